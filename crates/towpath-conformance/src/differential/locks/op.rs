//! What can be asked of locks and permits.

use towpath_core::inspect::LockQuery;
use towpath_core::lock::{AcquireLock, CancelLock, EndLock, ReleaseLock, RenewLock};
use towpath_core::names::{ExecutionId, LockScope};
use towpath_core::permit::{AcquirePermit, PermitKind, ReleasePermit, RenewPermit};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    Acquire(AcquireLock),
    Renew(RenewLock),
    Release(ReleaseLock),
    End(EndLock),
    Cancel(CancelLock),
    Reap(LockScope),
    Take(AcquirePermit),
    RenewPermit(RenewPermit),
    GiveBack(ReleasePermit),
    HeldBy(ExecutionId),
    Lock(LockScope),
    Locks(LockQuery),
    Permits(PermitKind, LockScope),
    PermitList(PermitKind, LockQuery),
    /// Whose turns were heard since the last time.
    Listen,
    Fire {
        limit: u32,
    },
    Advance {
        ms: u64,
    },
    Reopen,
    /// An old caller's commands.
    OldIncr(LockScope),
    OldSet(LockScope, String),
    /// It released, or its counter ran out.
    OldDelCounter(LockScope),
    OldDelMeta(LockScope),
    /// It looks at both.
    OldGet(LockScope),
}

impl Op {
    pub(super) fn kind(&self) -> String {
        let debug = format!("{self:?}");
        debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
    }
}
