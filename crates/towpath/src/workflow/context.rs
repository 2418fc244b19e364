//! What the code of a workflow is given: durable steps, and a way to know the time and to draw numbers that replay repeats.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use towpath_core::payload::Payload;
use towpath_core::run::{Parent, RunId, StepKey, StepKind, StepParts};
use towpath_core::time::{Timestamp, millis};

use super::admission::Needs;
use super::body::Open;
use super::calls::CallStep;
use super::child::ChildBuilder;
use super::definition::{Event, Workflow};
use super::draw;
use super::execution::{Execution, Launch, Request};
use super::step::{StepFuture, StepResult, value};
use super::task::{TaskBuilder, TaskContext};
use super::waits::EventWait;
use crate::error::HandlerError;

/// From this many entries on, [`History::should_continue`] says so.
const ENTRIES_MANY: u64 = 10_000;
/// From this many bytes on, [`History::should_continue`] says so.
const BYTES_MANY: u64 = 10 * 1024 * 1024;
/// The longest name of a step, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The most bytes that one payload may have.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// The most bytes that a published value may have.
const PUBLISHED_BYTES_MAX: usize = 64 * 1024;
/// The code of the error that ends a generation.
pub(crate) const CONTINUED: &str = "continued_as_new";

/// One execution of a run, as its code sees it. Clones are the same execution.
///
/// The code of a workflow is run again from its beginning on, with the recorded results, whenever a worker takes the run up. So it must do the
/// same each time: it waits only for steps, asks the context for time and chance, and has its effects in tasks.
#[derive(Clone)]
pub struct WorkflowContext {
    pub(crate) execution: Arc<Execution>,
    pub(crate) branch: Vec<Arc<str>>,
}

/// How much a generation has written so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Entries of the journal that the code has seen.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The code should [continue as new](WorkflowContext::continue_as_new) soon.
    pub should_continue: bool,
}

impl WorkflowContext {
    pub(crate) fn new(execution: &Arc<Execution>) -> Self {
        Self { execution: Arc::clone(execution), branch: Vec::new() }
    }

    /// Which run.
    pub fn run_id(&self) -> &RunId {
        &self.execution.identity.run_id
    }

    /// The run that started this one, if one did.
    pub fn parent(&self) -> Option<&Parent> {
        self.execution.identity.parent.as_ref()
    }

    /// How often the run was continued as new, from 0.
    pub fn generation(&self) -> u64 {
        self.execution.identity.generation
    }

    /// A task: `handler(input, task context)` runs beside the code, and its result is recorded. The worker runs it again if it died before.
    #[track_caller]
    pub fn task<B, I, O, F, Fut>(&self, name: &str, input: &B, handler: F) -> TaskBuilder<O>
    where
        B: Serialize + ?Sized,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(I, TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, HandlerError>> + Send + 'static,
    {
        let request = self.input_request(StepKind::Task, name, input, Location::caller()).map(|mut request| {
            request.launch = request.input.clone().map(|input| launch(input, handler));
            request
        });
        TaskBuilder { execution: Arc::clone(&self.execution), request, output: PhantomData }
    }

    /// A task without input: `closure(task context)`. It is known by its name and by how often it came before.
    #[track_caller]
    pub fn run<O, F, Fut>(&self, name: &str, closure: F) -> TaskBuilder<O>
    where
        O: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, HandlerError>> + Send + 'static,
    {
        let request = self.request(StepKind::Task, name, StepKey::None, Location::caller()).map(|mut request| {
            request.launch = Some(launch(Payload::null(), move |(): (), task| closure(task)));
            request
        });
        TaskBuilder { execution: Arc::clone(&self.execution), request, output: PhantomData }
    }

    /// Calls a Towpath function. The id of the call follows from the step, so after a crash the next worker attaches to the same call.
    #[track_caller]
    pub fn call<T, P>(&self, function: &str, params: &P) -> CallStep<T>
    where
        T: DeserializeOwned + Send + 'static,
        P: Serialize + ?Sized,
    {
        let request = self.input_request(StepKind::Call, function, params, Location::caller());
        CallStep::new(&self.execution, function, request)
    }

    /// Waits for this length, by the store's clock. No worker holds the run meanwhile.
    #[track_caller]
    pub fn sleep(&self, length: Duration) -> StepResult<()> {
        let ms = u64::try_from(millis(length)).unwrap_or(0);
        self.sleep_as(Location::caller(), move |open| open.ms = Some(ms))
    }

    /// Waits until this instant, by the store's clock.
    #[track_caller]
    pub fn sleep_until(&self, at: Timestamp) -> StepResult<()> {
        self.sleep_as(Location::caller(), move |open| open.until = Some(at.as_millis()))
    }

    fn sleep_as(&self, location: &'static Location<'static>, fill: impl FnOnce(&mut Open)) -> StepResult<()> {
        let request = self.request(StepKind::Sleep, "sleep", StepKey::None, location).map(|mut request| {
            fill(&mut request.open);
            request
        });
        let execution = Arc::clone(&self.execution);
        Box::pin(async move { value(StepFuture::new(&execution, request?)).await.map(drop) })
    }

    /// Waits for an event. Events that came early are kept, and each is received once, in the order in which they came.
    #[track_caller]
    pub fn event<T: DeserializeOwned + Send + 'static>(&self, event: &Event<T>) -> EventWait<T> {
        EventWait::new(&self.execution, self.request(StepKind::Event, event.name(), StepKey::None, Location::caller()))
    }

    /// Sends an event to another run. It arrives once, however often this run is taken up.
    #[track_caller]
    pub fn send<T: Serialize>(&self, to: &RunId, event: &Event<T>, data: &T) -> StepResult<()> {
        let request = self.input_request(StepKind::Send, event.name(), data, Location::caller()).map(|mut request| {
            request.open.to = Some(to.clone());
            request
        });
        let execution = Arc::clone(&self.execution);
        Box::pin(async move { value(StepFuture::new(&execution, request?)).await.map(drop) })
    }

    /// Starts a child: a run of another workflow. Await it for its result.
    #[track_caller]
    pub fn child<B, I, O>(&self, workflow: &Workflow<I, O>, input: &B) -> ChildBuilder<O>
    where
        B: Serialize + ?Sized,
        O: DeserializeOwned + Send + 'static,
    {
        let request = self.input_request(StepKind::Child, workflow.name(), input, Location::caller());
        let shard = self.execution.identity.place.shard.clone();
        let place = workflow.place().map(|place| towpath_core::run::RunPlace { shard, ..place });
        ChildBuilder::new(&self.execution, request, place)
    }

    /// The same context with a place of its own among the steps, for parallel parts that issue equal steps.
    #[must_use]
    pub fn branch(&self, label: &str) -> Self {
        let mut branch = self.branch.clone();
        branch.push(Arc::from(label));
        Self { execution: Arc::clone(&self.execution), branch }
    }

    /// Which version of a changed part of the code to follow: `min` for runs that were past this point without the question, `max` for others.
    /// One answer per change, for the whole generation. A run whose recorded answer is outside of `min..=max` is blocked.
    pub fn version(&self, change: &str, min: u32, max: u32) -> u32 {
        self.execution.version(change, min, max)
    }

    /// The time: when the latest entry that the code has seen was written, by the store's clock.
    pub fn now(&self) -> Timestamp {
        self.execution.lock().sight.now
    }

    /// A random number. Replay draws the same one.
    pub fn random(&self, label: &str) -> u64 {
        let bits = self.draw(label);
        bits[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// A random UUID. Replay draws the same one.
    pub fn uuid(&self, label: &str) -> String {
        uuid::Builder::from_random_bytes(self.draw(label)).into_uuid().to_string()
    }

    fn draw(&self, label: &str) -> [u8; 16] {
        let identity = &self.execution.identity;
        draw::bits(&identity.seed, identity.generation, &self.branch, label, self.execution.draw(&self.branch, label))
    }

    /// Publishes a value, which everyone who can see the run can read: the latest one per key. It is stored with the next step.
    pub fn publish<V: Serialize + ?Sized>(&self, key: &str, value: &V) -> Result<(), HandlerError> {
        let value = to_payload(value, "published value")?;
        if key.is_empty() || key.starts_with('$') || key.len() > NAME_BYTES_MAX {
            return Err(HandlerError::fatal("invalid_name", format!("'{key}' cannot be the key of a published value")));
        }
        if value.len() > PUBLISHED_BYTES_MAX {
            let message = format!("the value of '{key}' has {} bytes, and {PUBLISHED_BYTES_MAX} are allowed", value.len());
            return Err(HandlerError::fatal("publish_too_large", message));
        }
        self.execution.publish(Arc::from(key), value);
        Ok(())
    }

    /// Ends this generation and begins the next one with this input, under the same id: `return ctx.continue_as_new(&next);`. The journal
    /// begins anew; events that were not received and a cancellation move along.
    pub fn continue_as_new<B: Serialize + ?Sized, T>(&self, input: &B) -> Result<T, HandlerError> {
        let input = to_payload(input, "input")?;
        self.execution.lock().continued = Some(input);
        Err(HandlerError::fatal(CONTINUED, "the run continues as new"))
    }

    /// How much this generation has written so far.
    pub fn history(&self) -> History {
        let sight = self.execution.lock().sight;
        let should_continue = sight.entries >= ENTRIES_MANY || sight.bytes >= BYTES_MANY;
        History { entries: sight.entries, bytes: sight.bytes, should_continue }
    }

    /// Whether a caller wants the run cancelled. From then on every step ends with [`HandlerError::Cancelled`], unless it is
    /// [shielded](Self::shielded).
    pub fn is_cancelled(&self) -> bool {
        self.execution.lock().cancelled.is_some()
    }

    /// Ends when a caller wants the run cancelled. Use it beside steps, in `select!`: a run cannot wait for it alone.
    pub async fn cancelled(&self) {
        poll_fn(|cx| self.execution.poll_cancelled(cx.waker())).await;
    }

    /// Does work that a cancellation does not interrupt, such as giving back what was reserved.
    pub async fn shielded<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|cx| poll_shielded(&self.execution, work.as_mut(), cx)).await
    }

    fn request(&self, kind: StepKind, name: &str, key: StepKey, location: &'static Location<'static>) -> Result<Request, HandlerError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let message = format!("'{name}' cannot be the name of a {}: it needs 1 to {NAME_BYTES_MAX} bytes", kind.as_str());
            return Err(HandlerError::fatal("invalid_name", message));
        }
        let parts = StepParts { branch: self.branch.clone(), kind, name: Arc::from(name), key };
        let open = Open::of(&parts);
        Ok(Request { parts, open, input: None, launch: None, needs: Needs::default(), child: None, location })
    }

    /// A step that is known by its input.
    fn input_request<B: Serialize + ?Sized>(
        &self,
        kind: StepKind,
        name: &str,
        input: &B,
        location: &'static Location<'static>,
    ) -> Result<Request, HandlerError> {
        let input = to_payload(input, "input")?;
        let key = StepKey::of_input(self.execution.identity.seed.as_bytes(), &input)
            .map_err(|error| HandlerError::fatal("unencodable_input", format!("the input of '{name}' cannot be used: {error}")))?;
        let mut request = self.request(kind, name, key, location)?;
        if kind == StepKind::Send {
            request.open.v = Some(input.clone());
        } else {
            request.open.keep_input(&input);
        }
        request.input = Some(input);
        Ok(request)
    }
}

impl fmt::Debug for WorkflowContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowContext").field("run", self.run_id()).field("branch", &self.branch).finish_non_exhaustive()
    }
}

fn poll_shielded<F: Future>(execution: &Execution, work: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
    /// Leaves the shielded part, also when the work panics.
    struct Inside<'a>(&'a Execution);
    impl Drop for Inside<'_> {
        fn drop(&mut self) {
            self.0.shield(false);
        }
    }
    execution.shield(true);
    let _inside = Inside(execution);
    work.poll(cx)
}

fn launch<I, O, F, Fut>(input: Payload, handler: F) -> Launch
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
    F: Fn(I, TaskContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, HandlerError>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |task: TaskContext| {
        let (handler, input) = (Arc::clone(&handler), input.clone());
        Box::pin(async move {
            let input: I = serde_json::from_str(input.as_str())
                .map_err(|error| HandlerError::fatal("invalid_input", format!("the input of '{}' does not fit: {error}", task.name())))?;
            let output = handler(input, task).await?;
            to_payload(&output, "result")
        })
    })
}

/// A value as JSON of at most [`PAYLOAD_BYTES_MAX`].
pub(crate) fn to_payload<V: Serialize + ?Sized>(value: &V, what: &str) -> Result<Payload, HandlerError> {
    let text = serde_json::to_vec(value)
        .map_err(|error| HandlerError::fatal("unencodable_input", format!("the {what} cannot be written as JSON: {error}")))?;
    if text.len() > PAYLOAD_BYTES_MAX {
        let message = format!("the {what} has {} bytes, and {PAYLOAD_BYTES_MAX} are allowed: keep a reference to the data", text.len());
        return Err(HandlerError::fatal("payload_too_large", message));
    }
    Ok(Payload::from_json(text))
}
