//! Closing a due batch and leasing it; taking one over whose lease ended or whose retry is due; staying alive while it is delivered.

use std::time::Duration;

use super::{BatcherId, CloseReason, DeadLetter, Flight, KeyState, Message, OpenBatch, Rules};
use crate::names::{BatchId, BatchKey, BatchToken};
use crate::payload::Payload;
use crate::time::Timestamp;

/// A due batch to close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimBatch {
    /// Of which batcher.
    pub batcher: BatcherId,
    /// Of which key.
    pub key: BatchKey,
    /// What the batch is called from now on.
    pub batch_id: BatchId,
    /// Who may settle it.
    pub token: BatchToken,
    /// How long the dispatcher may be silent.
    pub lease: Duration,
    /// The caps, and whether order is kept.
    pub rules: Rules,
}

/// A batch to take over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReclaimBatch {
    /// Of which batcher.
    pub batcher: BatcherId,
    /// Which.
    pub batch_id: BatchId,
    /// Who may settle it from now on.
    pub token: BatchToken,
    /// How long the dispatcher may be silent.
    pub lease: Duration,
}

/// A lease to prolong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendBatch {
    /// Of which batcher.
    pub batcher: BatcherId,
    /// Of which batch.
    pub batch_id: BatchId,
    /// Whose.
    pub token: BatchToken,
    /// Its new length, from the store's now on.
    pub lease: Duration,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimReply {
    /// It is the asker's, until the lease ends.
    Claimed(ClaimedBatch),
    /// Nothing to do.
    Skip(Skip),
}

/// Why there was nothing to claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// Another was faster, or there is nothing of the kind.
    Gone,
    /// It is not due, or somebody holds it.
    NotDue,
    /// An earlier batch of the key is in flight: the end of that one arms this.
    InFlight,
    /// A deadline without messages, which was removed.
    Empty,
}

/// A batch in a dispatcher's hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedBatch {
    /// Which.
    pub batch_id: BatchId,
    /// Whose messages.
    pub key: BatchKey,
    /// The right to settle it.
    pub token: BatchToken,
    /// Which attempt.
    pub attempt: u32,
    /// Until when the dispatcher may be silent.
    pub lease_end: Timestamp,
    /// The store's clock when it was claimed.
    pub now: Timestamp,
    /// When its first message came.
    pub first: Timestamp,
    /// When its latest message came.
    pub last: Timestamp,
    /// What closed it.
    pub reason: CloseReason,
    /// Its messages in the order in which they came. A replayed entry of an old worker has none.
    pub messages: Vec<Message>,
    /// The body of a replayed dead letter, to be sent as it is.
    pub payload: Option<Payload>,
}

impl ClaimedBatch {
    /// A flight that somebody holds, with its messages; those of a replayed dead letter are in its entry.
    pub fn new(flight: Flight, token: BatchToken, messages: Vec<Message>, now: Timestamp) -> Self {
        let replayed = flight.replay.map(|entry| DeadLetter::parse(entry.to_bytes()));
        Self {
            batch_id: flight.batch_id,
            key: flight.key,
            token,
            attempt: flight.attempt,
            lease_end: flight.at,
            now,
            first: flight.first,
            last: flight.last,
            reason: flight.reason,
            messages: replayed.as_ref().map_or(messages, DeadLetter::messages),
            payload: replayed.and_then(|letter| letter.payload()),
        }
    }
}

/// What became of a prolongation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendReply {
    /// It holds.
    Extended {
        /// Its end.
        lease_end: Timestamp,
    },
    /// Another has it, or it is settled: stop, and write nothing.
    Lost,
}

/// A batch that was just closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// To be kept.
    pub flight: Flight,
    /// So many messages from the front of the open batch are its own.
    pub messages: usize,
}

/// Closes the open batch of a key if it is due. `sizes` are the lengths of its messages, in order; those beyond `max_messages` are not
/// looked at. What does not fit is due at once, or as soon as this batch ends.
pub fn claim(state: &mut KeyState, want: &ClaimBatch, sizes: &[u64], now: Timestamp) -> Result<Taken, Skip> {
    let Some(open) = state.open.filter(|open| open.armed) else { return Err(Skip::Gone) };
    if open.deadline > now {
        return Err(Skip::NotDue);
    }
    if state.is_busy(want.rules.serial) {
        state.open = Some(OpenBatch { armed: false, ..open });
        return Err(Skip::InFlight);
    }
    let (messages, bytes) = fitting(&open, &want.rules, sizes);
    let rest = open.size - messages as u64;
    let reason = if rest == 0 {
        open.reason
    } else if messages as u64 >= want.rules.max_messages {
        CloseReason::MaxMessages
    } else {
        CloseReason::MaxBytes
    };
    state.open = (rest > 0).then(|| OpenBatch {
        first: now,
        deadline: now,
        reason,
        sealed: true,
        bytes: open.bytes.saturating_sub(bytes),
        size: rest,
        armed: !want.rules.serial,
        ..open
    });
    if want.rules.serial {
        state.in_flight = Some(want.batch_id.clone());
    }
    let flight = Flight {
        batch_id: want.batch_id.clone(),
        key: want.key.clone(),
        token: Some(want.token.clone()),
        attempt: 1,
        first: open.first,
        last: open.last,
        reason,
        at: now + want.lease,
        serial: want.rules.serial,
        replay: None,
    };
    Ok(Taken { flight, messages })
}

/// How many messages from the front fit into one batch, and their bytes. A single message always fits.
fn fitting(open: &OpenBatch, rules: &Rules, sizes: &[u64]) -> (usize, u64) {
    if open.size <= rules.max_messages && (open.bytes <= rules.max_bytes || open.size == 1) {
        return (sizes.len(), open.bytes);
    }
    let (mut taken, mut bytes) = (0, 0);
    for size in sizes.iter().take(usize::try_from(rules.max_messages).unwrap_or(usize::MAX)) {
        if taken > 0 && bytes + size > rules.max_bytes {
            break;
        }
        (taken, bytes) = (taken + 1, bytes + size);
    }
    (taken, bytes)
}

/// Takes a batch over whose lease ended or whose retry is due: same id, same messages, next attempt.
pub fn reclaim(flight: Option<&mut Flight>, want: &ReclaimBatch, now: Timestamp) -> Result<Flight, Skip> {
    let flight = flight.ok_or(Skip::Gone)?;
    if flight.at > now {
        return Err(Skip::NotDue);
    }
    flight.attempt = flight.attempt.saturating_add(1);
    flight.token = Some(want.token.clone());
    flight.at = now + want.lease;
    Ok(flight.clone())
}

/// Prolongs a lease, even one that is over, as long as nobody else has taken the batch.
pub fn extend(flight: Option<&mut Flight>, want: &ExtendBatch, now: Timestamp) -> ExtendReply {
    match flight.filter(|flight| flight.token.as_ref() == Some(&want.token)) {
        Some(flight) => {
            flight.at = now + want.lease;
            ExtendReply::Extended { lease_end: flight.at }
        }
        None => ExtendReply::Lost,
    }
}
