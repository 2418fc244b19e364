//! Replies, as legacy peers write and read them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use towpath_core::call::{Answer, Call, Failure, Outcome, Retry};

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
            (reply.error, reply.code) = (Some("Function call timed out before a worker took it"), Some("call_timed_out"));
        }
        Some(Outcome::Cancelled) => (reply.error, reply.code) = (Some("Function call was cancelled"), Some("call_cancelled")),
        None => {}
    }
    // Plain structs of texts always have a JSON form.
    serde_json::to_vec(&reply).unwrap_or_default()
}

/// JSON as it is. Anything else goes as `null`, because a reply must be readable.
fn raw(bytes: &[u8]) -> Option<Box<RawValue>> {
    let text = String::from_utf8(bytes.to_vec()).ok()?;
    RawValue::from_string(text).ok().or_else(|| RawValue::from_string("null".to_owned()).ok())
}

#[derive(Deserialize)]
struct Read<'a> {
    #[serde(default)]
    success: bool,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    code: Option<String>,
    #[serde(borrow)]
    details: Option<&'a RawValue>,
}

/// What the reply of a legacy worker says. `None`: it is not a reply.
pub(super) fn read(reply: &[u8]) -> Option<Answer> {
    let reply: Read<'_> = serde_json::from_slice(reply).ok()?;
    if reply.success {
        return Some(Answer::Ok(payload(reply.data.map_or("null", RawValue::get).as_bytes())));
    }
    // The error is plain text as a rule; anything else is shown as it is.
    let text = reply.error.map_or_else(
        || "the worker failed and did not say why".to_owned(),
        |error| serde_json::from_str(error.get()).unwrap_or_else(|_| error.get().to_owned()),
    );
    let mut failure = Failure::new(reply.code.unwrap_or_else(|| "handler_failed".to_owned()), text);
    failure.details = reply.details.map(|details| payload(details.get().as_bytes()));
    // Legacy workers know no further attempt, and their callers expect none.
    Some(Answer::Failed { failure, retry: Retry::Never })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_legacy_workers_are_read() {
        assert_eq!(read(br#"{"success":true,"data":{"sum":42}}"#), Some(Answer::Ok(payload(br#"{"sum":42}"#))));
        assert_eq!(read(br#"{"success":true}"#), Some(Answer::Ok(payload(b"null"))));
        for (reply, message) in [
            (r#"{"success":false,"error":"no such order"}"#, "no such order"),
            (r#"{"success":false,"error":{"a":1}}"#, r#"{"a":1}"#),
            ("{}", "the worker failed and did not say why"),
        ] {
            let Some(Answer::Failed { failure, retry: Retry::Never }) = read(reply.as_bytes()) else { panic!("{reply}") };
            assert_eq!(failure.message, message);
        }
        assert_eq!(read(b"sum"), None);
    }
}
