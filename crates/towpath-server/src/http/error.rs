//! What goes wrong becomes a status here and nowhere else. The body is written by [`render`], which knows the request's id.

use std::borrow::Cow;
use std::time::Duration;

use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use towpath::limits::LimitError;
use towpath::{CallError, Phase};
use towpath_core::call::{DeadReason, Failure, LostLease};
use towpath_core::ids::InvalidDeliveryId;
use towpath_core::names::{CallId, FunctionKey, InvalidName, WorkerId};
use towpath_core::store::{StoreError, StoreTrouble};

use super::codes::Code;
use super::request_id::RequestId;
use super::wire::Json;
use super::wire::batches::ItemError;
use super::wire::calls::FailureBody;
use super::wire::error::{Effect, ErrorBody, ErrorDetail};

/// No sentence in an answer is longer.
const TEXT_BYTES_MAX: usize = 2_000;

/// An answer that is an error.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    code: Code,
    message: String,
    field: Option<Cow<'static, str>>,
    hint: Option<String>,
    details: Option<Json>,
    effect: Effect,
    retry_after: Option<Duration>,
    /// It reads well, and the user's own rules refuse it: 422 instead of the code's usual status.
    is_unprocessable: bool,
}

impl ApiError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let (effect, retry_after) = (code.effect(), default_retry_after(code));
        Self { code, message: message.into(), field: None, hint: None, details: None, effect, retry_after, is_unprocessable: false }
    }

    /// Names the field of the request that has to change.
    pub(crate) fn field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The request reads well, and the user's own rules refuse it: 422, whatever the code's usual status is.
    pub(crate) fn unprocessable(mut self) -> Self {
        self.is_unprocessable = true;
        self
    }

    fn status(&self) -> StatusCode {
        if self.is_unprocessable { StatusCode::UNPROCESSABLE_ENTITY } else { self.code.status() }
    }

    /// Says what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Anything else a program may want.
    pub(crate) fn details(mut self, details: impl Serialize) -> Self {
        self.details = serde_json::value::to_raw_value(&details).ok();
        self
    }

    /// The call was taken before this went wrong: it lives on, and the caller can ask for it.
    pub(crate) fn after_submit(mut self, call_id: &CallId) -> Self {
        self.effect = Effect::Unknown;
        self.details(json!({ "call_id": call_id.as_str() }))
    }

    #[cfg(test)]
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    #[cfg(test)]
    pub(crate) fn field_name(&self) -> Option<&str> {
        self.field.as_deref()
    }

    #[cfg(test)]
    pub(crate) fn message_text(&self) -> &str {
        &self.message
    }

    #[cfg(test)]
    pub(crate) fn details_text(&self) -> &str {
        self.details.as_deref().map_or("", |details| details.get())
    }

    /// The same as it stands in a list of answers, one of which it is.
    pub(crate) fn in_list(&self) -> ItemError {
        ItemError {
            code: self.code.as_str().to_owned(),
            message: shortened(self.message.clone()),
            field: self.field.as_deref().map(str::to_owned),
        }
    }

    fn body(self, request_id: &RequestId) -> ErrorBody {
        ErrorBody {
            error: ErrorDetail {
                code: self.code.as_str().to_owned(),
                message: shortened(self.message),
                field: self.field.map(|field| shortened(field.into_owned())),
                hint: self.hint.map(shortened),
                details: self.details,
                effect: self.effect,
                request_id: request_id.to_string(),
            },
        }
    }
}

/// What a client sent may come back in a message, but not all of it if it is long.
fn shortened(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push('…');
    }
    text
}

/// How long to wait before trying again, where trying again makes sense.
fn default_retry_after(code: Code) -> Option<Duration> {
    match code {
        Code::Overloaded
        | Code::LockQueueFull
        | Code::BatcherFull
        | Code::MailboxFull
        | Code::OverloadedServer
        | Code::StoreUnavailable => Some(Duration::from_secs(1)),
        Code::Draining | Code::StoreFull | Code::StoreReadonly | Code::DurabilityBelowMinimum => Some(Duration::from_secs(5)),
        _ => None,
    }
}

impl IntoResponse for ApiError {
    /// Carries the error to [`render`]; the body has to wait for the request's id.
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs().max(1);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the body of every error, and counts on nothing but what the handlers put into the response.
pub(crate) async fn render(request: Request, next: Next) -> Response {
    let request_id = request.extensions().get::<RequestId>().cloned().unwrap_or_default();
    let mut response = next.run(request).await;
    let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(%request_id, code = error.code.as_str(), what = ?error.message, "answered with an error of the server's own");
    } else {
        // Written with its escapes: it may repeat what the client sent, and must not forge a line.
        tracing::debug!(%request_id, code = error.code.as_str(), what = ?error.message, "answered with an error");
    }
    let body = serde_json::to_vec(&error.body(&request_id)).unwrap_or_default();
    *response.body_mut() = body.into();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The answer to a request whose handler panicked. What it did before is not known.
pub(crate) fn panicked(_panic: Box<dyn std::any::Any + Send>) -> Response {
    ApiError::new(Code::Internal, "the server ran into a bug of its own while it answered").into_response()
}

/// A name in `field` that was refused.
pub(crate) fn invalid_name(field: impl Into<Cow<'static, str>>, refused: &InvalidName) -> ApiError {
    ApiError::new(Code::InvalidName, refused.to_string()).field(field)
}

/// A rate whose policy is not there: what has it would wait.
pub(crate) fn no_policy(error: &LimitError, field: &str) -> ApiError {
    let LimitError::NoPolicy { scope, policy } = error else { return error.clone().into() };
    let message = format!("the rate names the policy '{policy}', which there is not, neither of scope '{scope}' nor for all");
    let hint = format!("make it first: `towpath limit put '{scope}' --policy '{policy}' --rule r=gcra:10/1s`, or PUT /v1/limits/{{scope}}");
    let details = json!({ "policy": policy, "scope": scope });
    ApiError::new(Code::PolicyNotFound, message).unprocessable().field(field.to_owned()).hint(hint).details(details)
}

/// A delivery id in `field` that is none.
pub(crate) fn invalid_delivery_id(field: impl Into<Cow<'static, str>>, refused: &InvalidDeliveryId) -> ApiError {
    ApiError::new(Code::InvalidName, refused.to_string()).field(field)
}

pub(crate) fn call_not_found(call_id: &CallId) -> ApiError {
    let message = format!("there is no call '{call_id}', or its retention is over");
    ApiError::new(Code::CallNotFound, message).field("call_id")
}

pub(crate) fn worker_not_found(worker_id: &WorkerId) -> ApiError {
    ApiError::new(Code::WorkerNotFound, format!("worker '{worker_id}' is not, or no longer, known"))
        .field("worker_id")
        .hint("register again with POST /v1/workers")
}

pub(crate) fn dead_letter_not_found(call_id: &CallId) -> ApiError {
    ApiError::new(Code::DeadLetterNotFound, format!("call '{call_id}' is no dead letter")).field("call_id")
}

pub(crate) fn function_not_found(function: &FunctionKey, closest: &[String]) -> ApiError {
    let error = ApiError::new(Code::FunctionNotFound, format!("no function '{}' is known in scope '{}'", function.name, function.scope));
    let hint = match closest {
        [] => "start a worker that serves it; GET /v1/functions lists those that are known".to_owned(),
        names => format!("did you mean {}?", names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(" or ")),
    };
    error.field("name").hint(hint).details(json!({ "closest": closest }))
}

pub(crate) fn lease_lost(field: &'static str, delivery: &str, lost: LostLease) -> ApiError {
    let message = format!("delivery '{delivery}' is no longer this worker's ({})", lost.as_str());
    ApiError::new(Code::LeaseLost, message)
        .field(field)
        .hint("stop working on it; its result will be refused")
        .details(json!({ "reason": lost.as_str() }))
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Unavailable(StoreTrouble::Full(_)) => Code::StoreFull,
            StoreError::Unavailable(StoreTrouble::ReadOnly(_)) => Code::StoreReadonly,
            StoreError::Unavailable(StoreTrouble::Broken(_) | StoreTrouble::Removed(_)) => Code::StoreBroken,
            StoreError::Unavailable(StoreTrouble::NotDurable(_)) => Code::DurabilityNotReached,
            StoreError::Unavailable(StoreTrouble::BelowMinimum(_)) => Code::DurabilityBelowMinimum,
            StoreError::Unavailable(StoreTrouble::NotAllowed(_)) => Code::StoreNotAllowed,
            StoreError::Unavailable(StoreTrouble::WrongType(_)) => Code::StoreWrongType,
            StoreError::Unavailable(_) => Code::StoreUnavailable,
            StoreError::Unknown(_) => Code::StoreUnknown,
            StoreError::Corrupt(_) => Code::StoreCorrupt,
        };
        Self::new(code, error.to_string())
    }
}

impl From<CallError> for ApiError {
    fn from(error: CallError) -> Self {
        let message = error.to_string();
        match error {
            CallError::InvalidName(refused) => invalid_name(name_field(&refused), &refused),
            CallError::FunctionNotFound { function, closest } => function_not_found(&function, &closest),
            CallError::NoWorkers { function } => Self::new(Code::NoWorkers, message)
                .field("name")
                .hint(format!("start a worker that serves '{function}', or leave out fail_without_workers to wait for one")),
            CallError::InvalidParams { problems, .. } => invalid_params(message, &problems),
            CallError::PayloadTooLarge { bytes, limit } => payload_too_large("params", message, bytes, limit),
            CallError::Overloaded { backlog, limit, .. } => {
                Self::new(Code::Overloaded, message).details(json!({ "backlog": backlog, "limit": limit }))
            }
            CallError::TooDeep { depth, limit } => {
                Self::new(Code::DepthExceeded, message).details(json!({ "depth": depth, "limit": limit }))
            }
            CallError::Conflict { call_id } => {
                Self::new(Code::IdempotencyConflict, message).field("idempotency_key").details(json!({ "call_id": call_id.as_str() }))
            }
            CallError::OutOfRange { field, message } => Self::new(Code::OutOfRange, message).field(field.to_string()),
            CallError::Failed { call_id, failure, dead } => call_failed(message, &call_id, &failure, dead),
            CallError::TimedOut { call_id, phase, .. } => timed_out(message, &call_id, phase),
            CallError::Cancelled { call_id } => Self::new(Code::CallCancelled, message).after_submit(&call_id),
            CallError::Store { call_id, error } => store_trouble(call_id.as_ref(), error),
            // Only typed callers decode; the server carries bytes.
            _ => Self::new(Code::Internal, message),
        }
    }
}

/// Which field of a call's request a name came from.
fn name_field(refused: &InvalidName) -> &'static str {
    let (InvalidName::Empty { what }
    | InvalidName::TooLong { what, .. }
    | InvalidName::Control { what, .. }
    | InvalidName::Separator { what, .. }
    | InvalidName::Reserved { what, .. }) = refused;
    match *what {
        "scope" => "scope",
        "call id" => "call_id",
        "idempotency key" => "idempotency_key",
        "worker id" => "worker_id",
        _ => "name",
    }
}

fn store_trouble(call_id: Option<&CallId>, error: StoreError) -> ApiError {
    let unknown = matches!(error, StoreError::Unknown(_));
    let answer = ApiError::from(error);
    match call_id {
        Some(call_id) if unknown => answer.after_submit(call_id),
        _ => answer,
    }
}

fn invalid_params(message: String, problems: &[towpath::ParamProblem]) -> ApiError {
    let listed: Vec<Value> = problems.iter().map(|p| json!({ "parameter": p.parameter, "expected": p.expected, "got": p.got })).collect();
    let field = match problems.first().map(|problem| dotted(&problem.parameter)) {
        Some(parameter) if !parameter.is_empty() => format!("params.{parameter}"),
        _the_whole => "params".to_owned(),
    };
    ApiError::new(Code::InvalidParams, message).field(field).details(json!({ "problems": listed }))
}

/// `/items/0/id` as `items.0.id`; a plain name stays as it is.
fn dotted(parameter: &str) -> String {
    parameter.trim_start_matches('/').replace('/', ".")
}

pub(crate) fn payload_too_large(field: &'static str, message: String, bytes: u64, limit: u64) -> ApiError {
    ApiError::new(Code::PayloadTooLarge, message).field(field).details(json!({ "bytes": bytes, "limit": limit }))
}

/// The handler's error, its details byte for byte.
#[derive(Serialize)]
struct FailedDetails<'a> {
    call_id: &'a str,
    error: FailureBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead: Option<&'static str>,
}

fn call_failed(message: String, call_id: &CallId, failure: &Failure, dead: Option<DeadReason>) -> ApiError {
    let (error, dead) = (FailureBody::from(failure), dead.map(DeadReason::as_str));
    let answer = ApiError::new(Code::CallFailed, message).details(FailedDetails { call_id: call_id.as_str(), error, dead });
    match dead {
        None => answer,
        Some(_) => answer.hint(format!("it is a dead letter now: POST /v1/dead-letters/{call_id}/replay runs it again")),
    }
}

fn timed_out(message: String, call_id: &CallId, phase: Phase) -> ApiError {
    let phase = match phase {
        Phase::Queued => "queued",
        Phase::Running => "running",
    };
    ApiError::new(Code::CallTimedOut, message).details(json!({ "call_id": call_id.as_str(), "phase": phase }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_of_the_store_has_its_status_and_says_whether_something_happened() {
        let full = StoreTrouble::Full("ENOSPC".to_owned());
        let cases = [
            (StoreError::Unavailable(full), 507, "store_full", Effect::None),
            (StoreError::Unavailable(StoreTrouble::ReadOnly("EROFS".to_owned())), 503, "store_readonly", Effect::None),
            (StoreError::Unavailable(StoreTrouble::Broken("EIO".to_owned())), 503, "store_broken", Effect::None),
            (StoreError::Unavailable(StoreTrouble::Closed), 503, "store_unavailable", Effect::None),
            (StoreError::Unknown("cut".to_owned()), 504, "store_unknown", Effect::Unknown),
            (StoreError::Corrupt("bits".to_owned()), 500, "store_corrupt", Effect::Unknown),
        ];
        for (error, status, code, effect) in cases {
            assert_eq!(towpath::store_error_code(&error), code, "the library and the API use the same word");
            let answer = ApiError::from(error);
            assert_eq!((answer.code.status().as_u16(), answer.code.as_str(), answer.effect), (status, code, effect));
        }
    }

    #[test]
    fn a_lost_reply_to_a_submit_comes_with_the_calls_id() {
        let call_id = CallId::new("c-1").unwrap();
        let lost = CallError::Store { call_id: Some(call_id), error: StoreError::Unknown("cut".to_owned()) };
        assert_eq!(ApiError::from(lost).details_text(), r#"{"call_id":"c-1"}"#);
    }

    #[test]
    fn long_input_is_not_sent_back_whole() {
        let error = ApiError::new(Code::UnknownField, "ü".repeat(100_000)).field("x".repeat(100_000));
        let body = error.body(&RequestId::default()).error;
        assert!(body.message.len() < 2_100 && body.field.is_some_and(|field| field.len() < 2_100));
    }
}
