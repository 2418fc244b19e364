//! Children: runs that a run starts, and whose end it can wait for.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use towpath_core::call::Failure;
use towpath_core::names::InvalidName;
use towpath_core::run::{ClosePolicy, RunId, RunPlace};

use super::body::{Done, Out};
use super::execution::{Execution, Request};
use super::step::{StepFuture, StepResult, decode};
use crate::error::HandlerError;

/// How a child ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildOutcome<O> {
    /// With a result.
    Completed(O),
    /// With an error of its code.
    Failed(Failure),
    /// By a cancellation.
    Cancelled,
    /// From outside, for this reason.
    Terminated(String),
}

impl<O> ChildOutcome<O> {
    /// The result, or an error that says how the child ended: `child_failed`, `child_cancelled` or `child_terminated`.
    pub fn into_result(self) -> Result<O, HandlerError> {
        match self {
            Self::Completed(result) => Ok(result),
            Self::Failed(failure) => {
                let details = serde_json::json!({ "code": failure.code, "message": failure.message });
                Err(HandlerError::fatal("child_failed", format!("the child failed: {} ({})", failure.message, failure.code))
                    .details(details))
            }
            Self::Cancelled => Err(HandlerError::fatal("child_cancelled", "the child was cancelled")),
            Self::Terminated(reason) => Err(HandlerError::fatal("child_terminated", format!("the child was terminated: {reason}"))),
        }
    }
}

/// A child. Await it for its result, ask for its [`outcome`](Self::outcome), or [`start`](Self::start) it and go on.
#[must_use = "a child starts when this is awaited or started"]
pub struct ChildBuilder<O> {
    execution: Arc<Execution>,
    request: Result<Request, HandlerError>,
    result: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned + Send + 'static> ChildBuilder<O> {
    pub(crate) fn new(execution: &Arc<Execution>, request: Result<Request, HandlerError>, place: Result<RunPlace, InvalidName>) -> Self {
        let request = request.and_then(|mut request| {
            let place = place.map_err(|error| HandlerError::fatal("invalid_name", error.to_string()))?;
            request.open.ver = Some(Arc::from(place.version.as_str()));
            request.open.close = Some(ClosePolicy::default());
            request.child = Some(place);
            Ok(request)
        });
        Self { execution: Arc::clone(execution), request, result: PhantomData }
    }

    /// What becomes of the child when this run closes or continues as new while it is open. Default: it is cancelled.
    pub fn on_parent_close(mut self, policy: ClosePolicy) -> Self {
        if let Ok(request) = &mut self.request {
            request.open.close = Some(policy);
        }
        self
    }

    /// Starts the child and goes on. It starts with the next commit, whether or not the code waits for it later.
    pub fn start(self) -> Result<ChildHandle<O>, HandlerError> {
        let request = self.request?;
        let what = format!("the result of {}", request.open.title());
        let step = StepFuture::issue(&self.execution, request);
        let run_id = step.id().and_then(|id| self.execution.lock().steps.get(id).and_then(|step| step.open.run.clone()));
        let run_id = run_id.ok_or_else(HandlerError::cancelled)?;
        Ok(ChildHandle { execution: self.execution, step, run_id, what, result: PhantomData })
    }

    /// Waits for the child's end, whatever it is.
    pub fn outcome(self) -> StepResult<ChildOutcome<O>> {
        Box::pin(async move {
            let request = self.request?;
            let what = format!("the result of {}", request.open.title());
            let done = StepFuture::new(&self.execution, request).await.ok_or_else(HandlerError::cancelled)?;
            Ok(outcome(&self.execution, &what, done).await)
        })
    }
}

impl<O: DeserializeOwned + Send + 'static> IntoFuture for ChildBuilder<O> {
    type Output = Result<O, HandlerError>;
    type IntoFuture = StepResult<O>;

    fn into_future(self) -> StepResult<O> {
        let outcome = self.outcome();
        Box::pin(async move { outcome.await?.into_result() })
    }
}

impl<O> fmt::Debug for ChildBuilder<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.request.as_ref().map(|request| Arc::clone(&request.parts.name));
        f.debug_struct("ChildBuilder").field("workflow", &name.ok()).finish_non_exhaustive()
    }
}

/// A child that was started.
pub struct ChildHandle<O> {
    execution: Arc<Execution>,
    step: StepFuture,
    run_id: RunId,
    what: String,
    result: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned + Send + 'static> ChildHandle<O> {
    /// Which run.
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// Waits for the child's result.
    pub async fn result(self) -> Result<O, HandlerError> {
        self.outcome().await?.into_result()
    }

    /// Waits for the child's end, whatever it is.
    pub async fn outcome(self) -> Result<ChildOutcome<O>, HandlerError> {
        let done = self.step.await.ok_or_else(HandlerError::cancelled)?;
        Ok(outcome(&self.execution, &self.what, done).await)
    }
}

impl<O> fmt::Debug for ChildHandle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildHandle").field("run", &self.run_id).finish_non_exhaustive()
    }
}

async fn outcome<O: DeserializeOwned>(execution: &Execution, what: &str, done: Done) -> ChildOutcome<O> {
    match done.out {
        Out::Ok => ChildOutcome::Completed(decode(execution, what, &done.value()).await),
        Out::Cancelled => ChildOutcome::Cancelled,
        Out::Terminated => ChildOutcome::Terminated(done.reason.unwrap_or_default()),
        Out::Err | Out::Timeout => ChildOutcome::Failed(done.failure()),
    }
}
