//! Calls between wire and core.

use std::time::Duration;

use axum::http::HeaderMap;
use towpath::NewCall;
use towpath_core::call::{AttemptsBefore, CallState, DeadReason, Failure, Outcome};
use towpath_core::inspect::{CallFilter, CallView, Page, PageRequest};
use towpath_core::names::FunctionName;
use towpath_core::payload::Payload;
use towpath_core::time::Timestamp;

use super::{call_id, function_key, idempotency_key, json, payload, scope, traceparent, worker_id};
use crate::http::bounds;
use crate::http::codes::Code;
use crate::http::error::{ApiError, invalid_name};
use crate::http::wire::calls::{AttemptsBeforeBody, CallBody, CallDetail, CallList, CallQuery, FailureBody, OutcomeBody, ProgressDetail};

const LIMIT_DEFAULT: u32 = 50;

/// The call that a body asks for. `detached` callers do not wait, and their calls live longer.
pub(crate) fn new_call(name: &str, body: CallBody, headers: &HeaderMap, detached: bool) -> Result<NewCall, ApiError> {
    let function = function_key(name, body.scope.as_deref())?;
    let params = body.params.map_or_else(|| Payload::from_json("{}"), payload);
    let mut call = NewCall::new(function, params);
    call.input_item = body.input_item.map(payload);
    call.call_id = body.call_id.as_deref().map(call_id).transpose()?;
    call.idempotency_key = idempotency_key(headers, body.idempotency_key.as_deref())?;
    call.timeout = bounds::length("timeout_ms", body.timeout_ms)?;
    call.retain = bounds::length("retain_ms", body.retain_ms)?;
    call.wait_for_function = bounds::length("wait_for_function_ms", body.wait_for_function_ms)?.unwrap_or(call.wait_for_function);
    call.fail_without_workers = body.fail_without_workers;
    call.retries_on_timeout = body.retries_on_timeout.unwrap_or_default();
    call.detached = detached;
    call.traceparent = traceparent(headers);
    call.before = body.attempts_before.map_or(Ok(AttemptsBefore::default()), |body| attempts_before(&body))?;
    Ok(call)
}

fn attempts_before(body: &AttemptsBeforeBody) -> Result<AttemptsBefore, ApiError> {
    bounds::check("attempts_before.failures", Some(body.failures))?;
    bounds::check("attempts_before.crashes", Some(body.crashes))?;
    Ok(AttemptsBefore { failures: body.failures, crashes: body.crashes })
}

/// Which calls a query means, and which page of them.
pub(crate) fn filter(query: &CallQuery) -> Result<(CallFilter, PageRequest), ApiError> {
    let states = query.state.as_deref().map_or(Ok(Vec::new()), states)?;
    let name = |text: &str| FunctionName::new(text).map_err(|refused| invalid_name("function", &refused));
    let filter = CallFilter {
        states,
        scope: query.scope.as_deref().map(|text| scope(Some(text))).transpose()?,
        function: query.function.as_deref().map(name).transpose()?,
        worker: query.worker.as_deref().map(worker_id).transpose()?,
        brief: !query.payloads,
    };
    Ok((filter, page(query.after.as_deref(), query.limit)?))
}

fn states(list: &str) -> Result<Vec<CallState>, ApiError> {
    list.split(',')
        .map(|word| CallState::parse(word.trim()).ok_or_else(|| unknown_word("state", word, &CallState::ALL.map(CallState::as_str))))
        .collect()
}

/// Why dead letters were given up.
pub(crate) fn reason(word: Option<&str>) -> Result<Option<DeadReason>, ApiError> {
    match word {
        None => Ok(None),
        Some("exhausted") => Ok(Some(DeadReason::Exhausted)),
        Some("poisoned") => Ok(Some(DeadReason::Poisoned)),
        Some(word) => Err(unknown_word("reason", word, &["exhausted", "poisoned"])),
    }
}

fn unknown_word(field: &'static str, word: &str, known: &[&str]) -> ApiError {
    let message = format!("there is no {field} '{}': use {}", word.escape_default(), known.join(", "));
    ApiError::new(Code::InvalidField, message).field(field)
}

/// A page of a list.
pub(crate) fn page(after: Option<&str>, limit: Option<u32>) -> Result<PageRequest, ApiError> {
    let unreadable =
        |_| ApiError::new(Code::InvalidField, "'after' is not a page's `next`: use the text that the page before gave").field("after");
    let limit = bounds::check("limit", limit)?.unwrap_or(LIMIT_DEFAULT);
    Ok(PageRequest { after: after.map(|text| text.parse::<u64>().map_err(unreadable)).transpose()?, limit })
}

/// A page as it was asked for.
pub(crate) fn call_list(page: &Page<CallView>, brief: bool) -> CallList {
    let shown = if brief { brief_detail } else { |view: &CallView| CallDetail::from(view) };
    CallList { calls: page.items.iter().map(shown).collect(), next: page.next.map(|next| next.to_string()) }
}

/// What a brief view does not know is left out.
fn brief_detail(view: &CallView) -> CallDetail {
    let mut detail = CallDetail { depth: None, params: None, ..CallDetail::from(view) };
    if let Some(outcome) = &mut detail.outcome {
        outcome.data = None;
    }
    detail
}

impl From<&CallView> for CallDetail {
    fn from(view: &CallView) -> Self {
        let (call, request) = (&view.call, &view.request);
        let at = |instant: Option<Timestamp>| instant.map(Timestamp::as_millis);
        Self {
            call_id: call.call_id.to_string(),
            function_name: request.function.name.to_string(),
            scope: request.function.scope.to_string(),
            state: call.state.to_string(),
            attempt: attempt(view),
            failures: call.failures,
            crashes: call.crashes,
            submitted_at: call.submitted_at.as_millis(),
            deadline: call.deadline.as_millis(),
            started_at: at(call.started_at),
            ended_at: at(call.ended_at),
            next_attempt_at: at(call.not_before),
            waits_because: None,
            worker_id: call.holder.as_ref().map(ToString::to_string),
            cancel_requested: call.cancel_requested,
            depth: Some(request.depth),
            parent_call_id: request.parent.as_ref().map(ToString::to_string),
            idempotency_key: request.idempotency_key.as_ref().map(ToString::to_string),
            traceparent: request.traceparent.clone(),
            progress: view.progress.as_ref().map(|(number, value)| ProgressDetail { number: *number, value: json(value) }),
            last_failure: call.last_failure.as_ref().map(FailureBody::from),
            outcome: call.outcome.as_ref().map(OutcomeBody::from),
            replayed_as: call.replayed_as.as_ref().map(ToString::to_string),
            params: Some(json(&request.params)),
            input_item: request.input_item.as_ref().map(json),
        }
    }
}

/// Which attempt runs or ran last. One that failed is counted already, so the count is also the number of the last attempt.
fn attempt(view: &CallView) -> u32 {
    let failed_last = matches!(view.call.state, CallState::Failed | CallState::Dead | CallState::Settled | CallState::Delayed);
    if failed_last && view.call.failures > 0 { view.call.failures } else { view.call.attempt() }
}

impl From<&Outcome> for OutcomeBody {
    fn from(outcome: &Outcome) -> Self {
        let plain = |kind: &str| Self { kind: kind.to_owned(), data: None, error: None, reason: None };
        match outcome {
            Outcome::Ok(data) => Self { data: Some(json(data)), ..plain("ok") },
            Outcome::Failed(failure) => Self { error: Some(failure.into()), ..plain("failed") },
            Outcome::TimedOut => plain("timed_out"),
            Outcome::Expired => plain("expired"),
            Outcome::Cancelled => plain("cancelled"),
            Outcome::Dead { reason, failure } => {
                Self { error: Some(failure.into()), reason: Some(reason.as_str().to_owned()), ..plain("dead") }
            }
        }
    }
}

impl From<&Failure> for FailureBody {
    fn from(failure: &Failure) -> Self {
        Self { code: failure.code.clone(), message: failure.message.clone(), details: failure.details.as_ref().map(json) }
    }
}

/// A length in whole milliseconds, as the wire has it.
pub(super) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
