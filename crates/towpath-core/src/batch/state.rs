//! What is kept of a key: its open batch, and the batch of it that is in flight.

use serde::{Deserialize, Serialize};

use super::CloseReason;
use crate::names::{BatchId, BatchKey, BatchToken, BatcherName};
use crate::payload::Payload;
use crate::time::Timestamp;

/// A batcher, and where a store on Redis keeps it. Other stores go by the name alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatcherId {
    /// Its name.
    pub name: BatcherName,
    /// Which keys it has; `None` is the store's choice.
    pub layout: Option<Layout>,
    /// Over how many places its keys are spread; `None` is the store's choice.
    pub partitions: Option<u16>,
}

impl BatcherId {
    /// The batcher of this name, kept where the store likes.
    pub fn new(name: BatcherName) -> Self {
        Self { name, layout: None, partitions: None }
    }
}

/// Which keys a batcher has on Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Those of the old worker, literally.
    Seed,
    /// Our own.
    Own,
}

/// What is kept of one key. The messages themselves are the store's; here are only their number and size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyState {
    /// What gathers now.
    pub open: Option<OpenBatch>,
    /// The batch of this key that was claimed in turn and has not ended: the next one waits for it. A store that finds the id of a batch
    /// that is gone says `None`, so that lost state cannot block a key.
    pub in_flight: Option<BatchId>,
}

/// A batch that still takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenBatch {
    /// When its first message came.
    pub first: Timestamp,
    /// When its latest message came.
    pub last: Timestamp,
    /// When it closes.
    pub deadline: Timestamp,
    /// What will close it, as things stand.
    pub reason: CloseReason,
    /// Closed to postponement. Messages that come before the claim still join it.
    pub sealed: bool,
    /// The bytes of its messages.
    pub bytes: u64,
    /// How many messages it has; at least one.
    pub size: u64,
    /// Whether its deadline counts. Not while an earlier batch of its key is in flight.
    pub armed: bool,
}

/// A closed batch that was handed to a dispatcher, or waits for the next attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Which batch; the same through all attempts.
    pub batch_id: BatchId,
    /// Whose messages these are.
    pub key: BatchKey,
    /// Who may settle it; nobody while it waits for the next attempt.
    pub token: Option<BatchToken>,
    /// Which attempt this is; 0 when it was put back and nobody has claimed it yet.
    pub attempt: u32,
    /// When its first message came.
    pub first: Timestamp,
    /// When its latest message came.
    pub last: Timestamp,
    /// What closed it.
    pub reason: CloseReason,
    /// The end of the lease, or when the next attempt is due.
    pub at: Timestamp,
    /// It was claimed in turn: the next batch of its key waits for it.
    pub serial: bool,
    /// The entry of the dead letter that it is, if it was replayed: what is sent is in it, and the messages too.
    pub replay: Option<Payload>,
}

impl KeyState {
    /// Whether the next batch must wait, for those who keep the order.
    pub(super) fn is_busy(&self, serial: bool) -> bool {
        serial && self.in_flight.is_some()
    }
}

/// What a move came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stepped<R> {
    /// The answer.
    pub reply: R,
    /// Something is due then, perhaps earlier than anything before: whoever sleeps should know. Losing this costs time only.
    pub wake: Option<Timestamp>,
}

impl<R> Stepped<R> {
    pub(super) fn quiet(reply: R) -> Self {
        Self { reply, wake: None }
    }
}
