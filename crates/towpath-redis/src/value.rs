//! Reading replies of the server.

use redis::Value;
use towpath_core::names::CallId;
use towpath_core::store::StoreError;

pub(crate) use crate::link::checked;

/// The reply is of a shape that this server should never send.
pub(crate) fn strange(what: &str, reply: &Value) -> StoreError {
    StoreError::Corrupt(format!("the Redis server's reply to {what} makes no sense: {reply:?}"))
}

pub(crate) fn array(what: &str, reply: Value) -> Result<Vec<Value>, StoreError> {
    match reply {
        Value::Array(items) => Ok(items),
        Value::Nil => Ok(Vec::new()),
        other => Err(strange(what, &other)),
    }
}

pub(crate) fn bytes(reply: &Value) -> Option<&[u8]> {
    match reply {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

/// The same, as one's own.
pub(crate) fn into_bytes(reply: Value) -> Option<Vec<u8>> {
    match reply {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

pub(crate) fn text(reply: &Value) -> Option<&str> {
    bytes(reply).and_then(|bytes| std::str::from_utf8(bytes).ok())
}

/// A number, however it is written.
pub(crate) fn number(reply: &Value) -> Option<i64> {
    match reply {
        Value::Int(number) => Some(*number),
        other => text(other)?.parse().ok(),
    }
}

/// A score or another number that may be written with a fraction or an exponent.
pub(crate) fn score(reply: &Value) -> Option<f64> {
    match reply {
        Value::Double(score) => Some(*score),
        #[expect(clippy::cast_precision_loss, reason = "scores are instants and sequences, far below 2^53")]
        Value::Int(number) => Some(*number as f64),
        other => text(other)?.parse().ok(),
    }
}

pub(crate) fn call_id(reply: &Value) -> Result<CallId, StoreError> {
    text(reply).and_then(|text| CallId::new(text).ok()).ok_or_else(|| strange("a question for call ids", reply))
}
