//! What can go wrong: for a caller, for a handler, for a worker that starts. Each error says what to do next.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;
use towpath_core::call::{Answer, DeadReason, Failure, Retry};
use towpath_core::names::{CallId, FunctionKey, InvalidName, WorkflowName, WorkflowVersion};
use towpath_core::payload::Payload;
use towpath_core::store::{StoreError, StoreTrouble};

use crate::params::ParamProblem;

/// Why a call did not give its result.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CallError {
    /// A name, scope, id or key that cannot be one.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// No such function was known for as long as the caller wanted to wait. Nothing was submitted.
    #[error("no function is called '{function}'{}", did_you_mean(closest))]
    FunctionNotFound {
        /// What was called.
        function: FunctionKey,
        /// Known functions with the most similar names, most similar first.
        closest: Vec<String>,
    },
    /// No healthy worker serves the function, and the caller did not want to wait for one. Nothing was submitted.
    #[error("no healthy worker serves '{function}': start one, or call without failing fast and the call waits for one")]
    NoWorkers {
        /// What was called.
        function: FunctionKey,
    },
    /// The parameters are not what the function takes. Nothing was submitted.
    #[error("the parameters do not fit '{function}': {}", list(problems))]
    InvalidParams {
        /// What was called.
        function: FunctionKey,
        /// Each parameter that does not fit.
        problems: Vec<ParamProblem>,
    },
    /// Params and input item together are larger than the function takes. Nothing was submitted.
    #[error("params and input item have {bytes} bytes, but the function takes at most {limit}: send less, or a reference to the data")]
    PayloadTooLarge {
        /// What came.
        bytes: u64,
        /// What may come.
        limit: u64,
    },
    /// The function's backlog is full. Nothing was submitted.
    #[error("'{function}' is overloaded: {backlog} calls wait and at most {limit} may; try again later or start more workers")]
    Overloaded {
        /// What was called.
        function: FunctionKey,
        /// Calls that wait.
        backlog: u64,
        /// Calls that may wait.
        limit: u64,
    },
    /// Calls within calls within calls, and no end. Nothing was submitted.
    #[error("the call would be {depth} calls deep and the limit is {limit}: look for a function that calls itself without end")]
    TooDeep {
        /// How many calls are above it.
        depth: u32,
        /// How many may be.
        limit: u32,
    },
    /// The same id or idempotency key was used before for something else. Nothing was submitted.
    #[error("call '{call_id}' was made with the same id or idempotency key but other parameters: use a new one")]
    Conflict {
        /// The call that was made then.
        call_id: CallId,
    },
    /// A number that is too large or too small. Nothing was submitted.
    #[error("{field} {message}")]
    OutOfRange {
        /// Which.
        field: &'static str,
        /// What it must be.
        message: String,
    },
    /// The handler failed for good, or every attempt failed.
    #[error("call '{call_id}' failed{}: {} ({})", gave_up(*dead), failure.message, failure.code)]
    Failed {
        /// Which call.
        call_id: CallId,
        /// What the handler said last.
        failure: Failure,
        /// Set when the call is a dead letter now, which can be replayed.
        dead: Option<DeadReason>,
    },
    /// The call had not ended at its deadline.
    #[error("call '{call_id}' timed out while it was {phase}: {}", phase.advice())]
    TimedOut {
        /// Which call.
        call_id: CallId,
        /// What it was doing then.
        phase: Phase,
        /// A worker has had it, then or before, so it may have done its work. `false`: it certainly never ran.
        may_have_run: bool,
    },
    /// Somebody cancelled the call.
    #[error("call '{call_id}' was cancelled")]
    Cancelled {
        /// Which call.
        call_id: CallId,
    },
    /// Params could not be written as JSON, or the result is not of the type that was asked for.
    #[error("{message}")]
    Decode {
        /// Which call, when there is one already.
        call_id: Option<CallId>,
        /// What does not fit.
        message: String,
    },
    /// The store could not be asked, or not be understood.
    #[error("{error}{}", about(call_id.as_ref()))]
    Store {
        /// Which call, when it may exist: look it up, or repeat it with the same id.
        call_id: Option<CallId>,
        /// What happened.
        error: StoreError,
    },
}

impl CallError {
    /// A word for programs. It does not change between versions.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidName(_) => "invalid_name",
            Self::FunctionNotFound { .. } => "function_not_found",
            Self::NoWorkers { .. } => "no_workers",
            Self::InvalidParams { .. } => "invalid_params",
            Self::PayloadTooLarge { .. } => "payload_too_large",
            Self::Overloaded { .. } => "overloaded",
            Self::TooDeep { .. } => "depth_exceeded",
            Self::Conflict { .. } => "idempotency_conflict",
            Self::OutOfRange { .. } => "out_of_range",
            Self::Failed { .. } => "call_failed",
            Self::TimedOut { .. } => "call_timed_out",
            Self::Cancelled { .. } => "call_cancelled",
            Self::Decode { .. } => "decode_failed",
            Self::Store { error, .. } => store_error_code(error),
        }
    }

    /// The call that this is about, when there is one.
    pub fn call_id(&self) -> Option<&CallId> {
        match self {
            Self::Conflict { call_id } | Self::Failed { call_id, .. } => Some(call_id),
            Self::TimedOut { call_id, .. } | Self::Cancelled { call_id } => Some(call_id),
            Self::Decode { call_id, .. } | Self::Store { call_id, .. } => call_id.as_ref(),
            _ => None,
        }
    }
}

/// The word for programs of a store's error. It does not change between versions.
pub fn store_error_code(error: &StoreError) -> &'static str {
    match error {
        StoreError::Unavailable(StoreTrouble::Full(_)) => "store_full",
        StoreError::Unavailable(StoreTrouble::ReadOnly(_)) => "store_readonly",
        StoreError::Unavailable(StoreTrouble::Broken(_) | StoreTrouble::Removed(_)) => "store_broken",
        StoreError::Unavailable(StoreTrouble::NotDurable(_)) => "durability_not_reached",
        StoreError::Unavailable(StoreTrouble::BelowMinimum(_)) => "durability_below_minimum",
        StoreError::Unavailable(StoreTrouble::NotAllowed(_)) => "store_not_allowed",
        StoreError::Unavailable(StoreTrouble::WrongType(_)) => "store_wrong_type",
        StoreError::Unavailable(_) => "store_unavailable",
        StoreError::Unknown(_) => "store_unknown",
        StoreError::Corrupt(_) => "store_corrupt",
    }
}

/// What a call was doing at its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It waited for a worker, or for its next attempt.
    Queued,
    /// A worker ran it.
    Running,
}

impl Phase {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::Queued => "see that workers serve the function and keep up, or give it more time",
            Self::Running => "its handler was stopped; give it more time if it needs it",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn did_you_mean(closest: &[String]) -> String {
    if closest.is_empty() { ": start a worker that serves it".to_owned() } else { format!("; did you mean '{}'?", closest.join("', '")) }
}

fn gave_up(dead: Option<DeadReason>) -> &'static str {
    match dead {
        Some(DeadReason::Exhausted) => " in every attempt and is a dead letter now",
        Some(DeadReason::Poisoned) => " because its workers died and is a dead letter now",
        None => "",
    }
}

fn about(call_id: Option<&CallId>) -> String {
    call_id.map_or_else(String::new, |id| format!(" (call '{id}')"))
}

fn list(problems: &[ParamProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Why a handler did not return a result.
///
/// Any error converts into a retryable one, so `?` works. Use [`HandlerError::fatal`] where trying again cannot help.
///
/// ```
/// use std::time::Duration;
/// use towpath::HandlerError;
///
/// fn charge(amount: i64) -> Result<i64, HandlerError> {
///     if amount < 0 {
///         return Err(HandlerError::fatal("negative_amount", format!("cannot charge {amount}")));
///     }
///     let fee: i64 = "3".parse()?; // a retryable error with the code `handler_error`, should it fail
///     if amount > 1_000 {
///         return Err(HandlerError::retryable("bank_busy", "the bank asks to come back").retry_after(Duration::from_secs(30)));
///     }
///     Ok(amount + fee)
/// }
/// assert_eq!(charge(10).unwrap(), 13);
/// ```
///
/// It is no [`std::error::Error`] itself, because then no other error could convert into it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HandlerError {
    /// Another attempt makes sense, as the function's retry policy says.
    Retryable {
        /// What went wrong.
        failure: Failure,
        /// Not sooner than this.
        retry_after: Option<Duration>,
    },
    /// The same input will fail again: the call ends.
    Final {
        /// What went wrong.
        failure: Failure,
    },
    /// The handler heeded a cancellation: the call ends as cancelled.
    Cancelled,
}

impl HandlerError {
    /// An error after which another attempt makes sense.
    pub fn retryable(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Retryable { failure: Failure::new(code, message), retry_after: None }
    }

    /// An error that ends the call: the same input will fail again.
    pub fn fatal(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Final { failure: Failure::new(code, message) }
    }

    /// The handler has stopped because it was asked to.
    pub fn cancelled() -> Self {
        Self::Cancelled
    }

    /// Adds anything else that a program may want to know.
    #[must_use]
    pub fn details(self, details: impl Into<Value>) -> Self {
        self.details_raw(Payload::from_json(details.into().to_string()))
    }

    /// Adds anything else that a program may want to know, as JSON text.
    #[must_use]
    pub fn details_raw(mut self, details: Payload) -> Self {
        if let Self::Retryable { failure, .. } | Self::Final { failure } = &mut self {
            failure.details = Some(details);
        }
        self
    }

    /// Asks for the next attempt not to come sooner than this. Means nothing to an error that ends the call.
    #[must_use]
    pub fn retry_after(mut self, length: Duration) -> Self {
        if let Self::Retryable { retry_after, .. } = &mut self {
            *retry_after = Some(length);
        }
        self
    }

    /// What went wrong; `None` for a cancellation.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Retryable { failure, .. } | Self::Final { failure } => Some(failure),
            Self::Cancelled => None,
        }
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.failure() {
            Some(failure) => write!(f, "{} ({})", failure.message, failure.code),
            None => f.write_str("cancelled"),
        }
    }
}

impl<E: Error> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message += &format!(": {cause}");
            source = cause.source();
        }
        Self::retryable("handler_error", message)
    }
}

impl HandlerError {
    pub(crate) fn into_answer(self) -> Answer {
        match self {
            Self::Retryable { failure, retry_after } => {
                Answer::Failed { failure, retry: retry_after.map_or(Retry::ByPolicy, Retry::NotBefore) }
            }
            Self::Final { failure } => Answer::Failed { failure, retry: Retry::Never },
            Self::Cancelled => Answer::Cancelled,
        }
    }
}

/// Why a worker could not start.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// A function's name or scope cannot be one.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// There is nothing to serve.
    #[error("the worker serves no function: add one with `.function(name, handler)`")]
    NoFunctions,
    /// The store keeps no runs of workflows.
    #[error("this store keeps no runs of workflows: open one that does, such as 'sqlite:./.towpath'")]
    NoRunStore,
    /// Two handlers for one workflow and version.
    #[error("workflow '{workflow}' in version '{version}' was given two handlers: remove one, or change a version")]
    DuplicateWorkflow {
        /// Which workflow.
        workflow: WorkflowName,
        /// In which version.
        version: WorkflowVersion,
    },
    /// The worker cannot tell which build of its program it is.
    #[error("the executable cannot be read ({message}): name the build with `.build(id)`")]
    UnknownBuild {
        /// Why.
        message: String,
    },
    /// Two handlers for one function.
    #[error("function '{function}' was given two handlers: remove one")]
    Duplicate {
        /// Which function.
        function: FunctionKey,
    },
    /// The parameter definitions or the JSON Schema of a function make no sense.
    #[error("the parameters of function '{function}' are not usable: {message}")]
    InvalidParameters {
        /// Which function.
        function: FunctionKey,
        /// What to change.
        message: String,
    },
    /// A number that is too large or too small.
    #[error("{field} {message}")]
    OutOfRange {
        /// Which.
        field: &'static str,
        /// What it must be.
        message: String,
    },
    /// The rate of a function names a policy that is not there, or that cannot be read.
    #[error("the rate of function '{function}' cannot be used: {error}")]
    Rate {
        /// Which function.
        function: FunctionKey,
        /// Why.
        error: Box<crate::limits::LimitError>,
    },
    /// Batches cannot be received.
    #[error("batches cannot be received: {0}")]
    Batches(#[from] crate::batches::BatchError),
    /// The worker could not be registered.
    #[error("the worker could not be registered: {0}")]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_becomes_retryable_and_names_its_causes() {
        #[derive(Debug, Error)]
        #[error("no receipt")]
        struct Outer(#[source] std::num::ParseIntError);
        let error = HandlerError::from(Outer("x".parse::<i32>().unwrap_err()));
        let HandlerError::Retryable { failure, retry_after: None } = error else { panic!("{error:?}") };
        assert_eq!(failure, Failure::new("handler_error", "no receipt: invalid digit found in string"));
    }

    #[test]
    fn an_unknown_function_is_answered_with_the_closest_names() {
        let function = FunctionKey::global(towpath_core::names::FunctionName::new("ad").unwrap());
        let error = CallError::FunctionNotFound { function: function.clone(), closest: vec!["add".to_owned()] };
        assert_eq!(error.to_string(), "no function is called 'ad'; did you mean 'add'?");
        let error = CallError::FunctionNotFound { function, closest: Vec::new() };
        assert_eq!(error.to_string(), "no function is called 'ad': start a worker that serves it");
    }
}
