//! Semaphores and read/write locks: weighted permits of a scope, first come first served.
//!
//! A read/write lock is a semaphore of [`RW_LIMIT`] units: a reader takes one, a writer all of them. Hence readers join readers, and nobody
//! passes a writer that waits. Permits do not contend with exclusive locks of the same scope, nor with old workflows.
//!
//! ```
//! use towpath_core::names::{LockId, LockScope};
//! use towpath_core::permit::{AcquirePermit, PermitKind, PermitReply, PermitState, acquire};
//! use towpath_core::time::Timestamp;
//!
//! let now = Timestamp::from_millis(1_800_000_000_000);
//! let want = |who: &str, weight| {
//!     let scope = LockScope::new("gpu").unwrap();
//!     AcquirePermit { weight, ..AcquirePermit::new(PermitKind::Semaphore, scope, LockId::new(who).unwrap(), 4) }
//! };
//! let mut gpu = PermitState::default();
//! assert!(matches!(acquire(&mut gpu, &want("a", 3), now).reply, PermitReply::Granted(grant) if grant.units_left == 1));
//! assert!(matches!(acquire(&mut gpu, &want("b", 2), now).reply, PermitReply::Busy(busy) if busy.units_left == 1));
//! ```

mod acquire;
mod release;
mod renew;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use acquire::{AcquirePermit, PermitBusy, PermitGrant, PermitReply, acquire};
pub use release::{ReleaseBy, ReleasePermit, release};
pub use renew::{RenewPermit, renew};

use crate::lock::{Fence, Queue};
use crate::names::{ExecutionId, LockId};
use crate::time::Timestamp;

/// The units of a read/write lock: a reader takes one, a writer all.
pub const RW_LIMIT: u32 = 1_048_576;

/// What a scope of permits is used as. The same scope of another kind is another thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermitKind {
    /// So many units at once.
    Semaphore,
    /// Many readers, or one writer.
    ReadWrite,
}

impl PermitKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Semaphore, Self::ReadWrite];

    /// The short word that stores keep.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Semaphore => "sem",
            Self::ReadWrite => "rw",
        }
    }
}

impl fmt::Display for PermitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Everything that is kept of one scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermitState {
    /// Who holds units, by fence. The lease of some may be over: the next question takes them away.
    pub permits: Vec<Permit>,
    /// Who waits.
    pub queue: Queue,
    /// Since when the present head could have entered, and is silent.
    pub free_since: Option<Timestamp>,
    /// The highest fence that was ever given out.
    pub fence_high: Fence,
}

/// Units in somebody's hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// Who holds them.
    pub lock_id: LockId,
    /// How many.
    pub weight: u32,
    /// What tells this grant from every other of the scope.
    pub fence: Fence,
    /// Until when the holder may be silent.
    pub lease_end: Timestamp,
    /// For how long a renewal lets it be silent, if it does not say.
    pub lease: Duration,
    /// Until when it may be renewed.
    pub max_hold_end: Timestamp,
    /// The execution that it ends with.
    pub execution_id: Option<ExecutionId>,
}

impl PermitState {
    /// Units in use, of leases that are over too until somebody asks.
    pub fn used(&self) -> u64 {
        self.permits.iter().map(|permit| u64::from(permit.weight)).sum()
    }

    /// Whether anything at all is known of the scope.
    pub fn is_known(&self) -> bool {
        *self != Self::default()
    }
}

#[cfg(test)]
mod tests;
