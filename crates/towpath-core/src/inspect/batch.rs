//! What people get to see of batches.

use serde::{Deserialize, Serialize};

use crate::batch::{CloseReason, Flight, Message, OpenBatch};
use crate::names::{BatchId, BatchKey};
use crate::time::Timestamp;

/// Where a page ended. Only the store that made it knows what it means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub String);

impl Cursor {
    /// The place behind what has this instant and this name.
    pub fn behind(at: Timestamp, name: &str) -> Self {
        Self(format!("{}:{name}", at.as_millis()))
    }

    /// The instant and the name; `None` when it is no cursor of that kind.
    ///
    /// ```
    /// use towpath_core::inspect::Cursor;
    /// use towpath_core::time::Timestamp;
    ///
    /// let cursor = Cursor::behind(Timestamp::from_millis(7), "a:b");
    /// assert_eq!(cursor.place(), Some((Timestamp::from_millis(7), "a:b")));
    /// ```
    pub fn place(&self) -> Option<(Timestamp, &str)> {
        let (at, name) = self.0.split_once(':')?;
        Some((Timestamp::from_millis(at.parse().ok()?), name))
    }
}

/// A page, and where the next one begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorPage<T> {
    /// The items.
    pub items: Vec<T>,
    /// Ask for the next page with this; `None` when this was the last.
    pub next: Option<Cursor>,
}

/// How much there is of everything in a batcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchCounts {
    /// Keys with an open batch.
    pub open_keys: u64,
    /// Messages in open batches.
    pub open_messages: u64,
    /// Batches in flight.
    pub in_flight: u64,
    /// Dead letters.
    pub dead_letters: u64,
}

/// An open batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBatchView {
    /// Whose messages.
    pub key: BatchKey,
    /// Where it stands.
    pub open: OpenBatch,
}

/// An open batch and its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchView {
    /// Whose messages.
    pub key: BatchKey,
    /// Where it stands.
    pub open: OpenBatch,
    /// The batch of this key that it waits for.
    pub in_flight: Option<BatchId>,
    /// A page of its messages in the order in which they came.
    pub messages: Vec<Message>,
}

/// A batch in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlightView {
    /// Which.
    pub batch_id: BatchId,
    /// Whose messages.
    pub key: BatchKey,
    /// Which attempt; 0 when it was put back and nobody has claimed it yet.
    pub attempt: u32,
    /// Somebody holds it; otherwise it waits for the next attempt.
    pub held: bool,
    /// The end of the lease, or when the next attempt is due.
    pub at: Timestamp,
    /// When its first message came.
    pub first: Timestamp,
    /// When its latest message came.
    pub last: Timestamp,
    /// What closed it.
    pub reason: CloseReason,
    /// It is a replayed dead letter.
    pub replayed: bool,
}

impl FlightView {
    /// A flight as people see it: without the token, which is a right.
    pub fn of(flight: &Flight) -> Self {
        Self {
            batch_id: flight.batch_id.clone(),
            key: flight.key.clone(),
            attempt: flight.attempt,
            held: flight.token.is_some(),
            at: flight.at,
            first: flight.first,
            last: flight.last,
            reason: flight.reason,
            replayed: flight.replay.is_some(),
        }
    }
}

/// Which dead letters, and how many at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterQuery {
    /// Only those that are here for this reason.
    pub reason: Option<String>,
    /// Only those of this key.
    pub key: Option<BatchKey>,
    /// The latest first.
    pub newest_first: bool,
    /// Where the page before ended; `None` for the first.
    pub after: Option<Cursor>,
    /// At most this many.
    pub limit: u32,
}

impl DeadLetterQuery {
    /// Whether an entry is meant, wherever the page begins.
    pub fn means(&self, letter: &crate::batch::DeadLetter) -> bool {
        let same = |wanted: Option<&str>, has: Option<&str>| wanted.is_none() || wanted == has;
        same(self.reason.as_deref(), letter.reason.as_deref())
            && same(self.key.as_ref().map(BatchKey::as_str), letter.key.as_ref().map(BatchKey::as_str))
    }
}
