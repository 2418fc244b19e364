//! Replies as Rust sees them.

use redis::{Cmd, FromRedisValue, ToRedisArgs, Value};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use crate::link::checked;
use crate::unreadable::is_odd;

/// One command of several words.
pub(crate) fn command<T: ToRedisArgs>(name: &str, arguments: &[T]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(name).arg(arguments);
    command
}

/// A reply as what it must be. An error reply means that the server refused, anything else of the wrong shape that it is not ours.
pub(crate) fn read<T: FromRedisValue>(reply: Value) -> Result<T, StoreError> {
    redis::from_redis_value(checked(reply)?)
        .map_err(|error| StoreError::Corrupt(format!("a reply of the Redis server has another shape: {error}")))
}

/// The next of several replies.
pub(crate) fn next<T: FromRedisValue>(replies: &mut std::vec::IntoIter<Value>) -> Result<T, StoreError> {
    match replies.next() {
        Some(reply) => read(reply),
        None => Err(StoreError::Corrupt("the Redis server gave fewer replies than it was asked for".to_owned())),
    }
}

/// The next of several replies, or nothing where the key holds something else.
pub(crate) fn next_readable<T: FromRedisValue + Default>(replies: &mut std::vec::IntoIter<Value>) -> Result<T, StoreError> {
    match next(replies) {
        Err(error) if is_odd(&error) => Ok(T::default()),
        reply => reply,
    }
}

/// Replies of which only matters that the server refused nothing.
pub(crate) fn done(replies: impl IntoIterator<Item = Value>) -> Result<(), StoreError> {
    replies.into_iter().try_for_each(|reply| read::<Value>(reply).map(drop))
}

/// A failure after a first step was taken: whoever asked may not believe that nothing was written. All these moves can be repeated.
pub(crate) fn half_done(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable(trouble) => StoreError::Unknown(trouble.to_string()),
        other => other,
    }
}

/// A score of a sorted set as the instant it stands for. Instants in milliseconds are far below what a score can hold exactly.
#[expect(clippy::cast_possible_truncation, reason = "a score is a whole number of milliseconds")]
pub(crate) fn instant(score: f64) -> Timestamp {
    Timestamp::from_millis(score as i64)
}

/// Arguments of a script, in the order of its header.
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => { [$($argument.to_string().into_bytes()),*] };
}
pub(crate) use arguments;
