//! Starting runs.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use towpath_core::ids::Ids;
use towpath_core::names::{Reference, Shard};
use towpath_core::payload::Payload;
use towpath_core::run::{EntryKind, RunId, RunPlace, StepKey};
use towpath_core::store::{NewEvent, OnConflict, Reuse, StartRun, Started};

use super::body::{Begin, entry};
use super::context::to_payload;
use super::definition::{Event, Workflow};
use super::draw;
use super::error::RunError;
use super::handle::RunHandle;
use crate::Towpath;
use crate::error::HandlerError;

/// How long a run can be read after it has closed, unless its start says otherwise.
pub(crate) const RETAIN_DEFAULT: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A start of a run. Await it for a handle.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use towpath::workflow::{Workflow, WorkflowContext};
/// use towpath::{HandlerError, Towpath};
///
/// static GREET: Workflow<String, String> = Workflow::new("greet", "1");
///
/// async fn greet(name: String, _ctx: WorkflowContext) -> Result<String, HandlerError> {
///     Ok(format!("hello {name}"))
/// }
///
/// let towpath = Towpath::open("memory:").await?;
/// let worker = towpath.worker().workflow(&GREET, greet).start().await?;
/// let run = towpath.start(&GREET, "Ada").reference("greeting-7").await?;
/// assert_eq!(run.result().await?, "hello Ada");
/// worker.drain().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "a run starts when this is awaited"]
pub struct StartBuilder<O> {
    towpath: Towpath,
    /// The first thing that was wrong stands here until the start is awaited.
    start: Result<NewStart, RunError>,
    result: PhantomData<fn() -> O>,
}

struct NewStart {
    place: RunPlace,
    input: Payload,
    input_hash: Arc<str>,
    reference: Option<Reference>,
    on_conflict: OnConflict,
    reuse: Reuse,
    delay: Duration,
    timeout: Option<Duration>,
    retain: Duration,
    event: Option<NewEvent>,
    trace: Option<String>,
}

impl Towpath {
    /// Starts a run of a workflow.
    pub fn start<B, I, O>(&self, workflow: &Workflow<I, O>, input: &B) -> StartBuilder<O>
    where
        B: Serialize + ?Sized,
    {
        let start = new_start(workflow, input);
        StartBuilder { towpath: self.clone(), start, result: PhantomData }
    }
}

fn new_start<B: Serialize + ?Sized, I, O>(workflow: &Workflow<I, O>, input: &B) -> Result<NewStart, RunError> {
    let place = workflow.place()?;
    let input = payload(input, "input")?;
    let hash =
        StepKey::of_input(b"", &input).map_err(|error| RunError::InvalidInput { message: format!("the input cannot be used: {error}") })?;
    let input_hash = match hash {
        StepKey::Input(hash) => hash,
        StepKey::None | StepKey::Given(_) => Arc::from(""),
    };
    Ok(NewStart {
        place,
        input,
        input_hash,
        reference: None,
        on_conflict: OnConflict::default(),
        reuse: Reuse::default(),
        delay: Duration::ZERO,
        timeout: None,
        retain: RETAIN_DEFAULT,
        event: None,
        trace: None,
    })
}

/// A value as JSON.
pub(super) fn payload<V: Serialize + ?Sized>(value: &V, what: &str) -> Result<Payload, RunError> {
    to_payload(value, what).map_err(|error| match error {
        HandlerError::Final { failure } => RunError::InvalidInput { message: failure.message },
        other => RunError::InvalidInput { message: other.to_string() },
    })
}

impl<O> StartBuilder<O> {
    /// A name of your own for the run, unique for the workflow over all versions. Starting it again with the same input is the same run.
    pub fn reference(self, reference: &str) -> Self {
        self.with(|start| {
            start.reference = Some(Reference::new(reference)?);
            Ok(())
        })
    }

    /// An event that the run receives. If a run with the reference is open, that one receives it, and none is started.
    pub fn event<T: Serialize>(self, event: &Event<T>, data: &T) -> Self {
        self.with(|start| {
            start.event = Some(NewEvent { name: event.checked_name()?, data: payload(data, "data of the event")?, reference: None });
            Ok(())
        })
    }

    /// It starts after this. Default: at once.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|start| {
            start.delay = delay;
            Ok(())
        })
    }

    /// It is cancelled if it is still open after this, and terminated a minute later. Default: never.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|start| {
            start.timeout = Some(timeout);
            Ok(())
        })
    }

    /// How long it can be read after it has closed. Default: 7 days.
    pub fn retain(self, retain: Duration) -> Self {
        self.with(|start| {
            start.retain = retain;
            Ok(())
        })
    }

    /// What becomes of this start if the reference belongs to a run with another input. Default: it is refused.
    pub fn on_conflict(self, on_conflict: OnConflict) -> Self {
        self.with(|start| {
            start.on_conflict = on_conflict;
            Ok(())
        })
    }

    /// Whether the reference of a closed run can be used again. Default: not while that run can be read.
    pub fn reuse(self, reuse: Reuse) -> Self {
        self.with(|start| {
            start.reuse = reuse;
            Ok(())
        })
    }

    /// The shard that it is in, with all its children. Default: none.
    pub fn shard(self, shard: &str) -> Self {
        self.with(|start| {
            start.place.shard = Some(Shard::new(shard)?);
            Ok(())
        })
    }

    /// W3C trace context.
    pub fn traceparent(self, traceparent: &str) -> Self {
        self.with(|start| {
            start.trace = Some(traceparent.to_owned());
            Ok(())
        })
    }

    fn with(mut self, change: impl FnOnce(&mut NewStart) -> Result<(), RunError>) -> Self {
        if let Ok(start) = &mut self.start
            && let Err(error) = change(start)
        {
            self.start = Err(error);
        }
        self
    }

    async fn send(self) -> Result<RunHandle<O>, RunError> {
        let (towpath, start) = (self.towpath, self.start?);
        let store = towpath.run_store().cloned().ok_or(RunError::NoRunStore)?;
        let run_id = new_run_id(towpath.ids().as_ref(), &start.place);
        let chance = [towpath.ids().call_id(), towpath.ids().call_id()];
        let seed = draw::seed_of(&[run_id.as_str(), chance[0].as_str(), chance[1].as_str()]);
        let begin = entry(EntryKind::Begin, None, &Begin { seed, v: Some(start.input), trace: start.trace });
        let start = StartRun {
            run_id: run_id.clone(),
            place: start.place,
            begin,
            input_hash: start.input_hash,
            reference: start.reference,
            on_conflict: start.on_conflict,
            reuse: start.reuse,
            delay: start.delay,
            timeout: start.timeout,
            retain: start.retain,
            event: start.event,
        };
        match towpath.retry_lost_replies(|| store.start_run(start.clone())).await? {
            Started::Created { .. } => Ok(RunHandle::new(&towpath, store, run_id, false)),
            Started::Existing { run_id: known, .. } => {
                let existing = known != run_id;
                Ok(RunHandle::new(&towpath, store, known, existing))
            }
            Started::Conflict { run_id } => Err(RunError::ReferenceConflict { run_id }),
        }
    }
}

impl<O: Send + 'static> IntoFuture for StartBuilder<O> {
    type Output = Result<RunHandle<O>, RunError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl<O> fmt::Debug for StartBuilder<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.start.as_ref().map(|start| start.place.clone());
        f.debug_struct("StartBuilder").field("place", &place.ok()).finish_non_exhaustive()
    }
}

/// A new id: those of later runs sort later, if the ids of calls do.
fn new_run_id(ids: &dyn Ids, place: &RunPlace) -> RunId {
    let id = ids.call_id();
    let number = uuid::Uuid::parse_str(id.as_str()).map(|uuid| uuid.as_u128());
    RunId::new(place, number.unwrap_or_else(|_| u128::from_be_bytes(draw::bits(id.as_str(), 0, &[], "run", 0))))
}
