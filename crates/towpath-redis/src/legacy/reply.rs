//! Replies, as legacy peers write and read them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use towpath_core::call::{Answer, Call, Failure, Outcome, Retry};
use towpath_core::time::Timestamp;

use crate::calls::record::payload;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    call_id: &'a str,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a RawValue>,
    timestamp: i64,
}

/// The reply that legacy callers understand: `error` is plain text; code and details are added.
pub(super) fn write(call: &Call) -> Vec<u8> {
    let timestamp = call.ended_at.unwrap_or(call.submitted_at).as_millis();
    let mut reply =
        Written { call_id: call.call_id.as_str(), success: false, data: None, error: None, code: None, details: None, timestamp };
    let json;
    match &call.outcome {
        Some(Outcome::Ok(result)) => {
            json = raw(result.as_bytes());
            (reply.success, reply.data) = (true, json.as_deref());
        }
        Some(Outcome::Failed(failure) | Outcome::Dead { failure, .. }) => {
            json = failure.details.as_ref().and_then(|details| raw(details.as_bytes()));
            let Failure { code, message, .. } = failure;
            (reply.error, reply.code, reply.details) = (Some(message.as_str()), Some(code.as_str()), json.as_deref());
        }
        Some(Outcome::TimedOut) => (reply.error, reply.code) = (Some("Function call timed out while it ran"), Some("call_timed_out")),
        Some(Outcome::Expired) => {
            let error = match call.may_have_run() {
                true => "Function call timed out before its next attempt",
                false => "Function call timed out before a worker took it",
            };
            (reply.error, reply.code) = (Some(error), Some("call_timed_out"));
        }
        Some(Outcome::Cancelled) => (reply.error, reply.code) = (Some("Function call was cancelled"), Some("call_cancelled")),
        None => {}
    }
    // Plain structs of texts always have a JSON form.
    serde_json::to_vec(&reply).unwrap_or_default()
}

/// The reply to an entry whose call id Towpath refuses: it has no call.
pub(super) fn write_refused_id(call_id: &str, now: Timestamp) -> Vec<u8> {
    let error = "the call id is too long, has control characters in it, or begins with a prefix that is reserved";
    let (error, code) = (Some(error), Some("invalid_call_id"));
    let reply = Written { call_id, success: false, data: None, error, code, details: None, timestamp: now.as_millis() };
    serde_json::to_vec(&reply).unwrap_or_default()
}

/// JSON as it is. Anything else goes as `null`, because a reply must be readable.
fn raw(bytes: &[u8]) -> Option<Box<RawValue>> {
    let text = String::from_utf8(bytes.to_vec()).ok()?;
    RawValue::from_string(text).ok().or_else(|| RawValue::from_string("null".to_owned()).ok())
}

/// A reply as it came. Legacy workers write any JSON under these names.
#[derive(Deserialize)]
struct Read<'a> {
    #[serde(borrow)]
    success: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    details: Option<&'a RawValue>,
}

/// What the reply of a legacy worker says. The worker has run the call, so that a reply that cannot be read is a failure, too.
pub(super) fn read(reply: &[u8]) -> Answer {
    let failure = match serde_json::from_slice::<Read<'_>>(reply).map_err(|error| unreadable(&error)) {
        Ok(reply) if reply.success.is_some_and(says_yes) => {
            return Answer::Ok(payload(reply.data.map_or("null", RawValue::get).as_bytes()));
        }
        Ok(reply) => {
            let message = reply.error.map_or_else(|| "the worker failed and did not say why".to_owned(), text);
            let mut failure = Failure::new(reply.code.map_or_else(|| "handler_failed".to_owned(), text), message);
            failure.details = reply.details.map(|details| payload(details.get().as_bytes()));
            failure
        }
        Err(failure) => failure,
    };
    // Legacy workers know no further attempt, and their callers expect none.
    Answer::Failed { failure, retry: Retry::Never }
}

fn unreadable(error: &serde_json::Error) -> Failure {
    Failure::new("invalid_reply", format!("the legacy worker ran the call, and its reply cannot be read: {error}"))
}

fn says_yes(success: &RawValue) -> bool {
    matches!(success.get(), "true" | "1" | "\"true\"" | "\"1\"")
}

/// Plain text as a rule; anything else is shown as it is.
fn text(value: &RawValue) -> String {
    serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_legacy_workers_are_read() {
        for yes in ["true", "1", "\"true\""] {
            let reply = format!(r#"{{"success":{yes},"data":{{"sum":42}}}}"#);
            assert_eq!(read(reply.as_bytes()), Answer::Ok(payload(br#"{"sum":42}"#)), "{yes}");
        }
        assert_eq!(read(br#"{"success":true}"#), Answer::Ok(payload(b"null")));
        for (reply, code, message) in [
            (r#"{"success":false,"error":"no such order"}"#, "handler_failed", "no such order"),
            (r#"{"success":0,"error":{"a":1}}"#, "handler_failed", r#"{"a":1}"#),
            (r#"{"success":false,"error":"gone","code":404}"#, "404", "gone"),
            (r#"{"error":null,"code":null}"#, "handler_failed", "the worker failed and did not say why"),
            ("{}", "handler_failed", "the worker failed and did not say why"),
        ] {
            let Answer::Failed { failure, retry: Retry::Never } = read(reply.as_bytes()) else { panic!("{reply}") };
            assert_eq!((failure.code.as_str(), failure.message.as_str()), (code, message), "{reply}");
        }
    }

    #[test]
    fn a_reply_that_cannot_be_read_is_a_failure() {
        for reply in [&b"sum"[..], b"", b"null", b"\"ok\"", br#"{"success":true,"data":NaN}"#, b"{\"success\":true,\"data\":\"\xff\"}"] {
            let Answer::Failed { failure, retry: Retry::Never } = read(reply) else { panic!("{reply:?}") };
            assert_eq!(failure.code, "invalid_reply", "{reply:?}");
        }
    }
}
