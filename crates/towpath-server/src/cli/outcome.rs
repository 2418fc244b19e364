//! How a call ended, as a command tells it: the data on standard output, or a failure with its exit code.

use serde::Serialize;
use serde_json::json;
use towpath_server::http::wire::Json;
use towpath_server::http::wire::calls::{CallDetail, FailureBody};

use super::exit::Exit;
use super::failure::Failure;
use super::json_text;
use super::output::Output;

/// What programs get: the answer of the API's own call, but for the durability, which only the submitter of the call was told.
#[derive(Serialize)]
struct Concluded<'a> {
    call_id: &'a str,
    success: bool,
    data: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<&'a str>,
}

/// Shows the data of a call that ended well; anything else is a failure.
pub(crate) fn conclude(out: Output, detail: &CallDetail, durability: Option<&str>) -> Result<Exit, Failure> {
    let Some(ended_well) = detail.outcome.as_ref().filter(|outcome| outcome.kind == "ok") else {
        return Err(failure_of(detail));
    };
    let data = ended_well.data.clone().unwrap_or_else(json_text::null);
    if out.is_json() {
        out.json(&Concluded { call_id: &detail.call_id, success: true, data, durability });
        return Ok(Exit::Done);
    }
    let answer = format!("the answer of call {}", detail.call_id);
    if out.stdout_is_terminal() {
        out.line_of(&answer, &json_text::pretty(data.get()));
    } else {
        out.line_of(&answer, data.get());
    }
    Ok(Exit::Done)
}

/// Why a call has no data.
fn failure_of(detail: &CallDetail) -> Failure {
    let (id, name) = (&detail.call_id, &detail.function_name);
    let kind = detail.outcome.as_ref().map_or("", |outcome| outcome.kind.as_str());
    let error = detail.outcome.as_ref().and_then(|outcome| outcome.error.as_ref());
    match kind {
        "failed" => Failure::new(Exit::Failed, "call_failed", format!("call {id} of '{name}' failed: {}", sentence(error)))
            .details(&json!({ "call_id": id, "error": error }))
            .effect_unknown(),
        "dead" => {
            let reason = detail.outcome.as_ref().and_then(|outcome| outcome.reason.as_deref()).unwrap_or("exhausted");
            let tried = if reason == "poisoned" { "was given up" } else { "failed in every attempt" };
            Failure::new(Exit::Failed, "call_failed", format!("call {id} of '{name}' {tried}: {}", sentence(error)))
                .hint(format!("it is kept as a dead letter: `towpath dlq show {id}`, and once the cause is gone `towpath dlq replay {id}`"))
                .details(&json!({ "call_id": id, "error": error, "dead": reason }))
                .effect_unknown()
        }
        "timed_out" => Failure::new(Exit::NotNow, "call_timed_out", format!("call {id} of '{name}' was still running at its deadline"))
            .hint("give it longer with --timeout")
            .details(&json!({ "call_id": id, "phase": "running" }))
            .effect_unknown(),
        "expired" => {
            let (waited_for, hint) = match may_have_run(detail) {
                true => {
                    ("its next attempt", format!("see what went wrong with `towpath calls show {id}`, or give it longer with --timeout"))
                }
                false => ("a worker", format!("see who serves it with `towpath functions show {name}`, or give it longer with --timeout")),
            };
            let hint = detail.waits_because.clone().unwrap_or(hint);
            let message = format!("call {id} of '{name}' was still waiting for {waited_for} at its deadline");
            let failure = Failure::new(Exit::NotNow, "call_timed_out", message).hint(hint);
            let failure = failure.details(&json!({ "call_id": id, "phase": "queued" }));
            if may_have_run(detail) { failure.effect_unknown() } else { failure }
        }
        "cancelled" => {
            let failure = Failure::new(Exit::Failed, "call_cancelled", format!("call {id} of '{name}' was cancelled"));
            let failure = failure.details(&json!({ "call_id": id }));
            // A worker may have done something before it was asked to stop.
            if may_have_run(detail) { failure.effect_unknown() } else { failure }
        }
        other => Failure::new(
            Exit::Failed,
            "unknown_outcome",
            format!("call {id} of '{name}' ended as '{other}', which this version does not know"),
        )
        .hint("use a towpath as new as the server")
        .effect_unknown(),
    }
}

/// Whether a worker has had the call, here or in the store that it comes from.
fn may_have_run(detail: &CallDetail) -> bool {
    detail.started_at.is_some() || detail.failures > 0 || detail.crashes > 0
}

fn sentence(error: Option<&FailureBody>) -> String {
    error.map_or_else(|| "no reason is kept".to_owned(), |error| format!("{}: {}", error.code, error.message))
}

#[cfg(test)]
mod tests {
    use towpath_server::http::wire::error::Effect;

    use super::*;

    fn expired(more: &serde_json::Value) -> Failure {
        let mut call = json!({
            "call_id": "c", "function_name": "f", "scope": "__global__", "state": "expired", "attempt": 1, "failures": 0, "crashes": 0,
            "submitted_at": 0, "deadline": 1, "cancel_requested": false, "outcome": { "kind": "expired" },
        });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        failure_of(&serde_json::from_value(call).unwrap())
    }

    #[test]
    fn a_call_that_expired_had_no_effect_only_if_no_worker_had_it() {
        let never_ran = expired(&json!({}));
        assert_eq!(never_ran.detail.effect, Effect::None);
        assert!(never_ran.detail.message.contains("waiting for a worker"), "{}", never_ran.detail.message);
        for more in [json!({ "failures": 1 }), json!({ "crashes": 1 }), json!({ "started_at": 1 })] {
            let failure = expired(&more);
            assert_eq!(failure.detail.effect, Effect::Unknown, "{more}");
            assert!(failure.detail.message.contains("waiting for its next attempt"), "{}", failure.detail.message);
        }
    }
}
