//! Calls of Towpath functions as steps of a workflow.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use towpath_core::names::{CallId, FunctionKey, FunctionName};
use towpath_core::payload::Payload;
use towpath_core::time::millis;

use super::execution::{Execution, Launch, Request};
use super::step::{StepFuture, StepResult, decode, value};
use super::task::TaskContext;
use crate::call::NewCall;
use crate::error::{CallError, HandlerError};

/// How long the outcome of the call is kept, for the worker that attaches to it after a crash.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);
/// The call ends after this, unless it says otherwise.
const TIMEOUT: Duration = Duration::from_secs(24 * 3_600);
/// The step waits a little longer than the call takes.
const ATTEMPT_LONGER: Duration = Duration::from_secs(60);

/// A call of a Towpath function. Await it for its result.
#[must_use = "a call is made when it is awaited"]
pub struct CallStep<T> {
    execution: Arc<Execution>,
    request: Result<Request, HandlerError>,
    function: Result<FunctionKey, HandlerError>,
    timeout: Duration,
    result: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + Send + 'static> CallStep<T> {
    pub(crate) fn new(execution: &Arc<Execution>, function: &str, request: Result<Request, HandlerError>) -> Self {
        let function = FunctionName::new(function).map(FunctionKey::global);
        let function = function.map_err(|error| HandlerError::fatal("invalid_name", error.to_string()));
        Self { execution: Arc::clone(execution), request, function, timeout: TIMEOUT, result: PhantomData }
    }

    /// The call ends at the latest after this. Default: 24 h.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl<T: DeserializeOwned + Send + 'static> IntoFuture for CallStep<T> {
    type Output = Result<T, HandlerError>;
    type IntoFuture = StepResult<T>;

    fn into_future(self) -> StepResult<T> {
        Box::pin(async move {
            let (mut request, function) = (self.request?, self.function?);
            let what = format!("the result of {}", request.open.title());
            request.open.ms = u64::try_from(millis(self.timeout + ATTEMPT_LONGER)).ok();
            let params = request.input.clone().unwrap_or_else(Payload::null);
            request.launch = Some(launch(function, params, self.timeout));
            let result = value(StepFuture::new(&self.execution, request)).await?;
            Ok(decode(&self.execution, &what, &result).await)
        })
    }
}

impl<T> fmt::Debug for CallStep<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallStep").field("function", &self.function.as_ref().ok()).finish_non_exhaustive()
    }
}

fn launch(function: FunctionKey, params: Payload, timeout: Duration) -> Launch {
    Arc::new(move |task: TaskContext| {
        let (mut call, call_id) = (NewCall::new(function.clone(), params.clone()), CallId::new(task.idempotency_key()));
        (call.timeout, call.retain) = (Some(timeout), Some(KEPT));
        Box::pin(async move {
            let call_id = call_id.map_err(|error| HandlerError::fatal("invalid_name", error.to_string()))?;
            call.call_id = Some(call_id.clone());
            tokio::select! {
                biased;
                answered = task.towpath().call_raw(call) => answered.map(|answered| answered.data).map_err(failed),
                () = task.cancelled() => {
                    // The code does not wait for it any more. A call that cannot be cancelled ends by itself.
                    let _ended_by_itself = task.towpath().store().cancel(&call_id).await;
                    Err(HandlerError::cancelled())
                }
            }
        })
    })
}

/// What a call that gave no result means to the step.
fn failed(error: CallError) -> HandlerError {
    match error {
        CallError::Failed { failure, .. } => HandlerError::Final { failure },
        CallError::Store { .. } | CallError::NoWorkers { .. } | CallError::Overloaded { .. } | CallError::FunctionNotFound { .. } => {
            HandlerError::retryable(error.code(), error.to_string())
        }
        error => HandlerError::fatal(error.code(), error.to_string()),
    }
}
