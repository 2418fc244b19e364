//! Closing an open batch now, pushing its deadline out without a message, or giving back a deadline that went missing.

use std::time::Duration;

use super::ingest::silence_or_cap;
use super::{BatcherId, CloseReason, KeyState, OpenBatch, Stepped};
use crate::names::BatchKey;
use crate::time::Timestamp;

/// Something to do to an open batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealBatch {
    /// Of which batcher.
    pub batcher: BatcherId,
    /// Of which key.
    pub key: BatchKey,
    /// What.
    pub verb: SealVerb,
    /// Whether order is kept.
    pub serial: bool,
}

/// What is done to an open batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealVerb {
    /// Close it now.
    Flush,
    /// The sender is typing: the deadline moves out, never in, never beyond the longest wait.
    Touch {
        /// How long the sender must be silent from now on.
        debounce: Duration,
        /// The longest wait.
        max_wait: Duration,
    },
    /// Its deadline counts again, if it had been lost.
    Rearm,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealReply {
    /// It is closed.
    Flushed {
        /// How many messages it has.
        size: u64,
    },
    /// It closes then.
    Touched {
        /// When.
        deadline: Timestamp,
    },
    /// It was closed before.
    Sealed {
        /// When it was to close.
        deadline: Timestamp,
    },
    /// Its deadline counts.
    Rearmed {
        /// When it closes.
        deadline: Timestamp,
    },
    /// An earlier batch of the key is in flight: the end of that one arms this.
    InFlight,
    /// Nothing is open.
    Empty,
}

/// Does it.
pub fn seal(state: &mut KeyState, want: &SealBatch, now: Timestamp) -> Stepped<SealReply> {
    let Some(open) = state.open else { return Stepped::quiet(SealReply::Empty) };
    let busy = state.is_busy(want.serial);
    match want.verb {
        SealVerb::Rearm if busy => Stepped::quiet(SealReply::InFlight),
        SealVerb::Rearm => {
            state.open = Some(OpenBatch { armed: true, ..open });
            Stepped { reply: SealReply::Rearmed { deadline: open.deadline }, wake: Some(open.deadline) }
        }
        SealVerb::Flush | SealVerb::Touch { .. } if open.sealed => Stepped::quiet(SealReply::Sealed { deadline: open.deadline }),
        SealVerb::Flush => {
            state.open = Some(OpenBatch { deadline: now, reason: CloseReason::Flush, sealed: true, armed: !busy, ..open });
            Stepped { reply: SealReply::Flushed { size: open.size }, wake: (!busy).then_some(now) }
        }
        SealVerb::Touch { debounce, max_wait } => {
            let (deadline, reason) = silence_or_cap(open.first, debounce, max_wait, now);
            if deadline <= open.deadline {
                return Stepped::quiet(SealReply::Touched { deadline: open.deadline });
            }
            state.open = Some(OpenBatch { deadline, reason, armed: !busy, ..open });
            Stepped::quiet(SealReply::Touched { deadline })
        }
    }
}
