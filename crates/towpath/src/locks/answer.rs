//! What a question for a lock comes to.

use std::fmt;
use std::time::Duration;

use towpath_core::lock::{Fence, Holder};
use towpath_core::time::Timestamp;

use super::LockGuard;

/// What a question for a lock came to. Not getting it is an answer, not an error.
#[must_use = "a lock that was granted is released when its guard is dropped"]
#[derive(Debug)]
#[non_exhaustive]
pub enum Acquired {
    /// It is the caller's for as long as the guard lives.
    Granted(LockGuard),
    /// Somebody has it, and the caller did not want to wait.
    Held(Blocked),
    /// Somebody had it for as long as the caller waited.
    TimedOut(Blocked),
    /// The caller's lock id has it already and may not enter again.
    SelfHeld {
        /// The fence it was granted under.
        fence: Fence,
        /// The end of its lease, by the store's clock.
        lease_end: Timestamp,
    },
    /// A late copy of a question whose lock was granted and released before.
    Spent,
    /// More units were asked for than there are.
    Never,
    /// Too many wait already.
    QueueFull {
        /// How many wait.
        waiters: u32,
    },
}

impl Acquired {
    /// The guard, if the lock was granted.
    pub fn granted(self) -> Option<LockGuard> {
        match self {
            Self::Granted(guard) => Some(guard),
            _ => None,
        }
    }
}

/// Who or what was in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Who holds it, where that is known; nobody when those who queued earlier go first.
    pub holder: Option<Holder>,
    /// When it may be free, where that is known.
    pub free_in: Option<Duration>,
    /// How many wait ahead; `None` when the caller did not wait.
    pub ahead: Option<u32>,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.holder {
            Some(Holder { workflow_name, lock_id, locked_at, .. }) => {
                write!(f, "held by {workflow_name} (lock id '{lock_id}') since {locked_at}")?;
            }
            None => f.write_str("others wait for it")?,
        }
        match self.free_in {
            Some(free_in) => write!(f, ", free in {} s at the latest unless it is renewed", free_in.as_secs_f64().ceil()),
            None => Ok(()),
        }
    }
}
