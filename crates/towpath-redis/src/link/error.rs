//! What a failure means to whoever asked: nothing happened, or nobody knows.

use redis::{RedisError, Value};
use towpath_core::store::{StoreError, StoreTrouble};

/// Nothing was written.
pub(crate) fn trouble(cause: String) -> StoreError {
    StoreError::Unavailable(StoreTrouble::Other(cause))
}

/// The server could not be reached: nothing was written.
pub(super) fn not_reached(error: &RedisError) -> StoreError {
    trouble(format!("the Redis server cannot be reached ({error}); work goes on by itself when it is back"))
}

/// The connection broke after something was sent: nobody knows.
pub(super) fn lost(error: &RedisError) -> StoreError {
    StoreError::Unknown(format!("the connection to the Redis server broke ({error})"))
}

/// The server refused: nothing was written.
pub(super) fn refused(error: &RedisError) -> StoreError {
    trouble(format!("the Redis server refused it ({error})"))
}

/// The server does not know the script (yet, or after a restart).
pub(super) fn is_no_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}
