//! Where a run stands, and why it does not go on.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Waits for the instant of its start.
    Delayed,
    /// Waits for a worker.
    Ready,
    /// A worker executes it.
    Running,
    /// Parked: no worker has it. It waits for an event, a timer or a child.
    Waiting,
    /// Needs a person or another build of its code; [`BlockCause`] says why.
    Blocked,
    /// Ended with a result.
    Completed,
    /// Ended with an error of its code.
    Failed,
    /// Ended by a cancellation that its code has heeded.
    Cancelled,
    /// Ended from outside. No code ran for its end.
    Terminated,
}

impl RunState {
    /// All states, in the order of a run's life.
    pub const ALL: [Self; 9] = [
        Self::Delayed,
        Self::Ready,
        Self::Running,
        Self::Waiting,
        Self::Blocked,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Terminated,
    ];

    /// The word used in the API, the command line and the stores.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delayed => "delayed",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Blocked => "blocked",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Terminated => "terminated",
        }
    }

    /// The state of that name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether the run has its outcome. Nothing leaves such a state.
    pub const fn is_closed(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Terminated)
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a run is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockCause {
    /// Its code does not do what its journal says.
    Nondeterminism,
    /// Its code waits for something that is not durable, such as a socket.
    ForeignAwait,
    /// Its code panicked.
    Panicked,
    /// Its code cannot read its input, or a result in its journal.
    Decode,
    /// Its journal has reached its limit.
    HistoryFull,
    /// Worker after worker stopped answering while it executed the run.
    Poisoned,
    /// A task has used up its attempts.
    Exhausted,
}

impl BlockCause {
    /// All causes.
    pub const ALL: [Self; 7] =
        [Self::Nondeterminism, Self::ForeignAwait, Self::Panicked, Self::Decode, Self::HistoryFull, Self::Poisoned, Self::Exhausted];

    /// The word used in the API, the command line and the stores.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nondeterminism => "nondeterminism",
            Self::ForeignAwait => "foreign_await",
            Self::Panicked => "panicked",
            Self::Decode => "decode",
            Self::HistoryFull => "history_full",
            Self::Poisoned => "poisoned",
            Self::Exhausted => "exhausted",
        }
    }

    /// The cause of that name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == word)
    }

    /// Whether another build of the code may mend it. The run is ready again when one registers that it has not met.
    pub const fn is_of_the_build(self) -> bool {
        matches!(self, Self::Nondeterminism | Self::ForeignAwait | Self::Panicked | Self::Decode)
    }
}

impl fmt::Display for BlockCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_and_every_cause_is_its_own_word() {
        for state in RunState::ALL {
            assert_eq!(RunState::parse(state.as_str()), Some(state));
        }
        for cause in BlockCause::ALL {
            assert_eq!(BlockCause::parse(cause.as_str()), Some(cause));
        }
        assert_eq!((RunState::parse("queued"), BlockCause::parse("")), (None, None));
    }
}
