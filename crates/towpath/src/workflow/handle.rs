//! A run as its caller sees it.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use towpath_core::names::Reference;
use towpath_core::payload::Payload;
use towpath_core::run::{RunId, RunState};
use towpath_core::store::{EventSent, NewEvent, RunRequest, RunRequested, RunStore, RunView};

use super::body::{Done, Out, read};
use super::definition::{Event, Workflow};
use super::error::RunError;
use super::start::payload;
use crate::Towpath;

/// How long one question for the end of a run waits. The store itself looks again meanwhile.
const WAIT: Duration = Duration::from_secs(3_600);

/// A run. Clones are the same run.
#[derive(Clone)]
pub struct RunHandle<O> {
    towpath: Towpath,
    store: Arc<dyn RunStore>,
    run_id: RunId,
    existing: bool,
    result: PhantomData<fn() -> O>,
}

impl Towpath {
    /// A handle on a run that was started before.
    pub fn run<I, O>(&self, _of: &Workflow<I, O>, run_id: &RunId) -> Result<RunHandle<O>, RunError> {
        let store = self.run_store().cloned().ok_or(RunError::NoRunStore)?;
        Ok(RunHandle::new(self, store, run_id.clone(), true))
    }
}

impl<O> RunHandle<O> {
    pub(crate) fn new(towpath: &Towpath, store: Arc<dyn RunStore>, run_id: RunId, existing: bool) -> Self {
        Self { towpath: towpath.clone(), store, run_id, existing, result: PhantomData }
    }

    /// Which run.
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// It had been started before, under the same reference.
    pub fn existing(&self) -> bool {
        self.existing
    }

    /// Sends the run an event. Await it.
    pub fn send<T: Serialize>(&self, event: &Event<T>, data: &T) -> SendBuilder {
        let data = payload(data, "data of the event");
        let event = data.and_then(|data| Ok(NewEvent { name: event.checked_name()?, data, reference: None }));
        SendBuilder { towpath: self.towpath.clone(), store: Arc::clone(&self.store), run_id: self.run_id.clone(), event }
    }

    /// Has the run's code end it: from now on its steps end with [`HandlerError::Cancelled`](crate::HandlerError::Cancelled).
    pub async fn cancel(&self, reason: &str) -> Result<RunState, RunError> {
        self.request(RunRequest::Cancel { reason: Arc::from(reason) }).await
    }

    /// Ends the run at once. None of its code runs for that.
    pub async fn terminate(&self, reason: &str) -> Result<RunState, RunError> {
        self.request(RunRequest::Terminate { reason: Arc::from(reason) }).await
    }

    /// Starts nothing more for the run until it is resumed. Events and timers are kept meanwhile.
    pub async fn pause(&self) -> Result<RunState, RunError> {
        self.request(RunRequest::Pause).await
    }

    /// Goes on with a run that is paused or blocked.
    pub async fn resume(&self) -> Result<RunState, RunError> {
        self.request(RunRequest::Resume).await
    }

    async fn request(&self, request: RunRequest) -> Result<RunState, RunError> {
        let run_id = self.run_id.clone();
        match self.towpath.retry_lost_replies(|| self.store.request_run(&self.run_id, request.clone())).await? {
            RunRequested::Done(state) => Ok(state),
            RunRequested::Closed(state) => Err(RunError::Closed { run_id, state }),
            RunRequested::NotFound => Err(RunError::NotFound { run_id }),
        }
    }

    /// Where the run stands.
    pub async fn describe(&self) -> Result<RunView, RunError> {
        let view = self.store.run(&self.run_id).await?;
        view.ok_or_else(|| RunError::NotFound { run_id: self.run_id.clone() })
    }

    /// The values that the run has published, by key. A blocked run says why under the key `$blocked`.
    pub async fn published(&self) -> Result<Vec<(Arc<str>, Payload)>, RunError> {
        Ok(self.store.published(&self.run_id).await?)
    }

    /// Waits until the run has closed.
    async fn closed(&self) -> Result<RunView, RunError> {
        loop {
            let view = self.towpath.retry_lost_replies(|| self.store.run(&self.run_id)).await?;
            let view = view.ok_or_else(|| RunError::NotFound { run_id: self.run_id.clone() })?;
            if view.run.state.is_closed() {
                return Ok(view);
            }
            self.towpath.retry_lost_replies(|| self.store.run_closed(&self.run_id, WAIT)).await?;
        }
    }
}

impl<O: DeserializeOwned> RunHandle<O> {
    /// Waits for the run's result. At once if it has closed already.
    pub async fn result(&self) -> Result<O, RunError> {
        let view = self.closed().await?;
        let run_id = self.run_id.clone();
        let decode = |message: String| RunError::Decode { run_id: run_id.clone(), message };
        let done: Done = read(&view.outcome.unwrap_or_else(Payload::null)).map_err(decode)?;
        match done.out {
            Out::Ok => serde_json::from_str(done.value().as_str()).map_err(|error| decode(error.to_string())),
            Out::Cancelled => Err(RunError::Cancelled { run_id, reason: done.reason.unwrap_or_default() }),
            Out::Terminated => Err(RunError::Terminated { run_id, reason: done.reason.unwrap_or_default() }),
            Out::Err | Out::Timeout => Err(RunError::Failed { run_id, failure: done.failure() }),
        }
    }
}

impl<O> fmt::Debug for RunHandle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle").field("run", &self.run_id).field("existing", &self.existing).finish_non_exhaustive()
    }
}

/// An event for a run. It is sent when this is awaited. `true`: it is new; `false`: an event of this reference came before.
#[must_use = "an event is sent when this is awaited"]
pub struct SendBuilder {
    towpath: Towpath,
    store: Arc<dyn RunStore>,
    run_id: RunId,
    event: Result<NewEvent, RunError>,
}

impl SendBuilder {
    /// Makes events of the same name and reference one event.
    pub fn reference(mut self, reference: &str) -> Self {
        self.event = self.event.and_then(|event| Ok(NewEvent { reference: Some(Reference::new(reference)?), ..event }));
        self
    }

    async fn send(self) -> Result<bool, RunError> {
        let (event, run_id) = (self.event?, self.run_id);
        let sent = match &event.reference {
            Some(_) => self.towpath.retry_lost_replies(|| self.store.send_event(&run_id, event.clone())).await?,
            // Sent again, it would be another event.
            None => self.store.send_event(&run_id, event).await?,
        };
        match sent {
            EventSent::Accepted { .. } => Ok(true),
            EventSent::Duplicate { .. } => Ok(false),
            EventSent::MailboxFull => Err(RunError::MailboxFull { run_id }),
            EventSent::Closed(state) => Err(RunError::Closed { run_id, state }),
            EventSent::NotFound => Err(RunError::NotFound { run_id }),
        }
    }
}

impl IntoFuture for SendBuilder {
    type Output = Result<bool, RunError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl fmt::Debug for SendBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBuilder").field("run", &self.run_id).finish_non_exhaustive()
    }
}
