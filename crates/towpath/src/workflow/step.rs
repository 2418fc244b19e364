//! The future of a step: issued when it is first polled, dropped with the code's interest in it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::de::DeserializeOwned;
use towpath_core::payload::Payload;
use towpath_core::run::{BlockCause, StepId};

use super::body::{Done, Out};
use super::execution::{Execution, Request, Trouble};
use crate::error::HandlerError;

/// A durable wait, as the code of a workflow awaits it.
pub type StepResult<T> = Pin<Box<dyn Future<Output = Result<T, HandlerError>> + Send>>;

/// Ends with the step's result, or with `None` when the run is cancelled.
pub(crate) struct StepFuture {
    execution: Arc<Execution>,
    request: Option<Request>,
    id: Option<StepId>,
    is_over: bool,
    /// The step goes on when this is dropped.
    outlives_drop: bool,
}

impl StepFuture {
    pub(crate) fn new(execution: &Arc<Execution>, request: Request) -> Self {
        Self { execution: Arc::clone(execution), request: Some(request), id: None, is_over: false, outlives_drop: false }
    }

    /// Issues the step at once. It goes on whether or not the code waits for it.
    pub(crate) fn issue(execution: &Arc<Execution>, request: Request) -> Self {
        let id = execution.issue(request);
        Self { execution: Arc::clone(execution), request: None, id, is_over: false, outlives_drop: true }
    }

    /// Which step it is, if it was issued.
    pub(crate) fn id(&self) -> Option<&StepId> {
        self.id.as_ref()
    }
}

impl Future for StepFuture {
    type Output = Option<Done>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Done>> {
        if let Some(request) = self.request.take() {
            self.id = self.execution.issue(request);
        }
        let Some(id) = &self.id else {
            self.is_over = true;
            return Poll::Ready(None);
        };
        let polled = self.execution.poll_step(id, cx.waker());
        self.is_over = polled.is_ready();
        polled
    }
}

impl Drop for StepFuture {
    fn drop(&mut self) {
        if let (false, false, Some(id)) = (self.is_over, self.outlives_drop, &self.id) {
            self.execution.abandon(id);
        }
    }
}

/// Waits for a step that ends well, with an error, or cancelled.
pub(crate) async fn value(step: StepFuture) -> Result<Payload, HandlerError> {
    let done = step.await.ok_or_else(HandlerError::cancelled)?;
    match done.out {
        Out::Ok => Ok(done.value()),
        _failed => Err(HandlerError::Final { failure: done.failure() }),
    }
}

/// Reads what the journal has. What the code cannot read blocks the run: another build may.
pub(crate) async fn decode<T: DeserializeOwned>(execution: &Execution, what: &str, value: &Payload) -> T {
    match serde_json::from_str(value.as_str()) {
        Ok(value) => value,
        Err(error) => {
            let message = format!("the code cannot read {what}: {error}");
            execution.fail(Trouble::new(BlockCause::Decode, message));
            std::future::pending().await
        }
    }
}
