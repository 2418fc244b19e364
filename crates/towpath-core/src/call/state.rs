//! Every legal move of a call, in one table. Any other pair is refused here and nowhere else.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Waits for a worker.
    Queued,
    /// Waits for its next attempt.
    Delayed,
    /// A worker holds it under a lease.
    Running,
    /// Ended with a result.
    Completed,
    /// Ended with an error that is final.
    Failed,
    /// Was running at its deadline.
    TimedOut,
    /// Was waiting at its deadline.
    Expired,
    /// Was cancelled.
    Cancelled,
    /// A dead letter, kept until somebody deals with it.
    Dead,
    /// A dead letter that was replayed or dropped.
    Settled,
}

impl CallState {
    /// All states, in the order of the table.
    pub const ALL: [Self; 10] = [
        Self::Queued,
        Self::Delayed,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::TimedOut,
        Self::Expired,
        Self::Cancelled,
        Self::Dead,
        Self::Settled,
    ];

    /// The word used in the API, the command line and the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Delayed => "delayed",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Dead => "dead",
            Self::Settled => "settled",
        }
    }

    /// The state of that name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether the call has its outcome.
    pub const fn has_ended(self) -> bool {
        !matches!(self, Self::Queued | Self::Delayed | Self::Running)
    }
}

impl fmt::Display for CallState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What can happen to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallEvent {
    /// A worker takes it.
    Claim,
    /// The worker returned a result.
    Complete,
    /// The worker failed for good.
    Fail,
    /// The worker failed and there is another attempt.
    Retry,
    /// The worker failed and there is none.
    Exhaust,
    /// The worker's lease is over, and it was one too many.
    Poison,
    /// The worker hands it back unharmed.
    Release,
    /// The worker's lease is over, and another one may try.
    LeaseEnd,
    /// The wait before the next attempt is over.
    DelayEnd,
    /// Its deadline has passed.
    Deadline,
    /// Somebody wants it cancelled.
    Cancel,
    /// The worker, or its absence, made a requested cancellation true.
    Stop,
    /// Somebody dealt with the dead letter.
    Settle,
}

impl CallEvent {
    /// All events, in the order of the table.
    pub const ALL: [Self; 13] = [
        Self::Claim,
        Self::Complete,
        Self::Fail,
        Self::Retry,
        Self::Exhaust,
        Self::Poison,
        Self::Release,
        Self::LeaseEnd,
        Self::DelayEnd,
        Self::Deadline,
        Self::Cancel,
        Self::Stop,
        Self::Settle,
    ];
}

/// A move that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a call that is {from} cannot take the event {event:?}")]
pub struct Illegal {
    /// Where the call stands.
    pub from: CallState,
    /// What was asked of it.
    pub event: CallEvent,
}

/// The table.
pub fn next(from: CallState, event: CallEvent) -> Result<CallState, Illegal> {
    use CallEvent as E;
    use CallState as S;
    match (from, event) {
        (S::Queued, E::Claim) => Ok(S::Running),
        (S::Queued | S::Delayed, E::Deadline) => Ok(S::Expired),
        (S::Queued | S::Delayed, E::Cancel) => Ok(S::Cancelled),
        (S::Delayed, E::DelayEnd) => Ok(S::Queued),
        (S::Running, E::Complete) => Ok(S::Completed),
        (S::Running, E::Fail) => Ok(S::Failed),
        (S::Running, E::Retry) => Ok(S::Delayed),
        (S::Running, E::Exhaust | E::Poison) => Ok(S::Dead),
        (S::Running, E::Release | E::LeaseEnd) => Ok(S::Queued),
        (S::Running, E::Deadline) => Ok(S::TimedOut),
        (S::Running, E::Cancel) => Ok(S::Running), // a request: the worker learns of it at its next renewal
        (S::Running, E::Stop) => Ok(S::Cancelled),
        (S::Dead, E::Settle) => Ok(S::Settled),
        _ => Err(Illegal { from, event }),
    }
}

/// The table as Markdown. ARCHITECTURE.md holds this text, and a test compares the two.
pub fn table() -> String {
    let mut text = String::from("| from \\ event |");
    for event in CallEvent::ALL {
        text += &format!(" {event:?} |");
    }
    text += "\n|---|";
    text += &"---|".repeat(CallEvent::ALL.len());
    for from in CallState::ALL {
        text += &format!("\n| {from} |");
        for event in CallEvent::ALL {
            text += &next(from, event).map_or_else(|_| " |".to_owned(), |to| format!(" {to} |"));
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_an_ended_state_but_a_settled_dead_letter() {
        for from in CallState::ALL.into_iter().filter(|state| state.has_ended()) {
            for event in CallEvent::ALL {
                let expected = if (from, event) == (CallState::Dead, CallEvent::Settle) {
                    Ok(CallState::Settled)
                } else {
                    Err(Illegal { from, event })
                };
                assert_eq!(next(from, event), expected);
            }
        }
    }

    #[test]
    fn every_state_is_its_own_word() {
        for state in CallState::ALL {
            assert_eq!(CallState::parse(state.as_str()), Some(state));
        }
        assert_eq!(CallState::parse("leased"), None);
    }
}
