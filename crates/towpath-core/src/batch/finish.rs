//! Settling a claimed batch: delivered, try again later, given back, or dead letter. Only the current token may.

use std::time::Duration;

use super::{BatcherId, DeadLetter, Flight, KeyState, OpenBatch, Stepped};
use crate::names::{BatchId, BatchKey, BatchToken};
use crate::time::Timestamp;

/// A batch to settle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishBatch {
    /// Of which batcher.
    pub batcher: BatcherId,
    /// Which.
    pub batch_id: BatchId,
    /// Whose messages, if the asker knows: a store may be quicker for it, and depends on it for nothing.
    pub key: Option<BatchKey>,
    /// By which right.
    pub token: BatchToken,
    /// How.
    pub verb: Verb,
}

/// How a batch is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// It was delivered.
    Ack,
    /// It goes again, after this time.
    Retry {
        /// The wait.
        delay: Duration,
    },
    /// It is given back: it is due at once, and this attempt does not count.
    Release,
    /// It is given up, and kept.
    Dead(DeadLetter),
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReply {
    /// So it is.
    Done,
    /// Another has it, or it is settled. Nothing was touched.
    Lost,
}

/// What the store has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    /// Nothing.
    Lost,
    /// Keep the flight as it is now.
    Waits(Flight),
    /// Forget the flight and its messages; keep the dead letter if there is one.
    Over,
}

impl Finished {
    /// The answer.
    pub const fn reply(&self) -> FinishReply {
        match self {
            Self::Lost => FinishReply::Lost,
            Self::Waits(_) | Self::Over => FinishReply::Done,
        }
    }
}

/// Settles a batch. `state` is that of the flight's key: what gathered meanwhile is armed, unless yet another batch of it is in flight.
pub fn finish(flight: Option<&Flight>, state: &mut KeyState, want: &FinishBatch, now: Timestamp) -> Stepped<Finished> {
    let Some(flight) = flight.filter(|flight| flight.token.as_ref() == Some(&want.token)) else {
        return Stepped::quiet(Finished::Lost);
    };
    let again = match want.verb {
        Verb::Retry { delay } => Some((flight.attempt, now + delay)),
        Verb::Release => Some((flight.attempt.saturating_sub(1), now)),
        Verb::Ack | Verb::Dead(_) => None,
    };
    if let Some((attempt, at)) = again {
        let flight = Flight { token: None, attempt, at, ..flight.clone() };
        let wake = Some(flight.at);
        return Stepped { reply: Finished::Waits(flight), wake };
    }
    state.in_flight = state.in_flight.take().filter(|marker| *marker != flight.batch_id);
    let next = state.open.filter(|_| state.in_flight.is_none());
    if let Some(open) = next {
        state.open = Some(OpenBatch { armed: true, ..open });
    }
    Stepped { reply: Finished::Over, wake: next.map(|open| open.deadline) }
}
