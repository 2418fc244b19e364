//! Prolonging one permit.

use std::time::Duration;

use super::{PermitKind, PermitState};
use crate::lock::{Fence, LostLock, RenewReply, Stepped};
use crate::names::{LockId, LockScope};
use crate::time::Timestamp;

/// A permit to prolong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewPermit {
    /// Semaphore or read/write lock.
    pub kind: PermitKind,
    /// Of what.
    pub scope: LockScope,
    /// Whose.
    pub lock_id: LockId,
    /// Which grant.
    pub fence: Fence,
    /// Its new length, from the store's now. `None`: as long as it was given last.
    pub lease: Option<Duration>,
}

/// Prolongs a permit up to its cap, if it is not lost.
pub fn renew(state: &mut PermitState, lease: &RenewPermit, now: Timestamp) -> Stepped<RenewReply> {
    let lost = |why| Stepped::quiet(RenewReply::Lost(why));
    let Some(permit) = state.permits.iter_mut().find(|permit| permit.lock_id == lease.lock_id) else { return lost(LostLock::Absent) };
    if permit.fence != lease.fence {
        return lost(LostLock::Replaced);
    }
    if permit.max_hold_end <= now {
        return lost(LostLock::MaxHold);
    }
    if permit.lease_end <= now {
        return lost(LostLock::Expired);
    }
    permit.lease = lease.lease.unwrap_or(permit.lease);
    permit.lease_end = (now + permit.lease).min(permit.max_hold_end);
    Stepped::quiet(RenewReply::Renewed { now, lease_end: permit.lease_end, legacy_attempts: 0, healed: false })
}
