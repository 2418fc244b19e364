//! Between the wire's shapes and the core's words. Names and numbers are checked on the way in; nothing is lost on the way out.

pub(crate) mod batches;
mod calls;
mod functions;
mod limits;
pub(crate) mod locks;
mod workers;

use axum::http::HeaderMap;
use serde_json::value::RawValue;
use towpath_core::names::{CallId, FunctionKey, FunctionName, IdempotencyKey, InvalidName, Scope, WorkerId};
use towpath_core::payload::Payload;

pub(crate) use calls::{call_list, filter, new_call, page, reason};
pub(crate) use functions::{definition, function_body};
pub(crate) use limits::{
    ambiguous, cost, limit_body, limit_cursor, limit_cursor_text, limit_scope, max_wait, policy_body, policy_name, rules, rules_of_text,
    seed_rule, verdict_body,
};
pub(crate) use workers::{LEASE_DEFAULT, answers, claimed_call, delivery_id, delivery_ids, offers};

use super::error::{ApiError, invalid_name};
use super::wire::Json;

/// The text of a value, byte for byte.
pub(crate) fn payload(json: Json) -> Payload {
    let text: Box<str> = json.into();
    Payload::from_json(text.into_string())
}

/// A stored value as JSON. Should it be none, which only a damaged store can cause, it is shown as a string.
pub(crate) fn json(payload: &Payload) -> Json {
    RawValue::from_string(payload.as_str().to_owned())
        .or_else(|_| serde_json::value::to_raw_value(payload.as_str()))
        .unwrap_or_else(|_| RawValue::NULL.to_owned())
}

pub(crate) fn scope(given: Option<&str>) -> Result<Scope, ApiError> {
    given.map_or_else(|| Ok(Scope::global()), |text| Scope::new(text).map_err(|refused| invalid_name("scope", &refused)))
}

pub(crate) fn function_key(name: &str, given_scope: Option<&str>) -> Result<FunctionKey, ApiError> {
    Ok(FunctionKey { scope: scope(given_scope)?, name: FunctionName::new(name).map_err(|refused| invalid_name("name", &refused))? })
}

pub(crate) fn call_id(text: &str) -> Result<CallId, ApiError> {
    CallId::new(text).map_err(|refused| invalid_name("call_id", &refused))
}

pub(crate) fn worker_id(text: &str) -> Result<WorkerId, ApiError> {
    WorkerId::new(text).map_err(|refused| invalid_name("worker_id", &refused))
}

/// The key from the `Idempotency-Key` header or the body, which may both be there if they agree.
pub(crate) fn idempotency_key(headers: &HeaderMap, field: Option<&str>) -> Result<Option<IdempotencyKey>, ApiError> {
    const FIELD: &str = "idempotency_key";
    let check = |text: &str| IdempotencyKey::new(text).map_err(|refused: InvalidName| invalid_name(FIELD, &refused));
    let header = headers.get("idempotency-key").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    match (header.as_deref(), field) {
        (Some(header), Some(field)) if header != field => {
            let message = "the Idempotency-Key header and the field idempotency_key differ: send one of them";
            Err(ApiError::new(super::codes::Code::InvalidField, message).field(FIELD))
        }
        (Some(text), _) | (None, Some(text)) => check(text).map(Some),
        (None, None) => Ok(None),
    }
}

/// The trace that a request belongs to. What is not a W3C `traceparent` is ignored: a broken tracer must not break calls.
pub(crate) fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str, length| part.len() == length && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let known = match parts[..] {
        [version, trace, span, flags] => {
            let zero = trace.bytes().all(|b| b == b'0') || span.bytes().all(|b| b == b'0');
            hex(version, 2) && version != "ff" && hex(trace, 32) && hex(span, 16) && hex(flags, 2) && !zero
        }
        _ => false,
    };
    known.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_traceparent_that_is_none_is_ignored() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", HeaderValue::from_str(text).unwrap());
            traceparent(&headers)
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(good), Some(good.to_owned()));
        let zero = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        for bad in ["", "x", zero, &good.to_uppercase(), &format!("{good}-extra"), &"a".repeat(10_000), &good.replace("00-", "ff-")] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn header_and_field_may_agree_but_not_differ() {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", HeaderValue::from_static("a"));
        assert_eq!(idempotency_key(&headers, None).ok().flatten().map(String::from), Some("a".to_owned()));
        assert!(idempotency_key(&headers, Some("a")).is_ok());
        assert!(idempotency_key(&headers, Some("b")).is_err());
        assert_eq!(idempotency_key(&HeaderMap::new(), None).ok(), Some(None));
    }
}
