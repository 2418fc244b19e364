//! Prolonging a lease, or learning that it is lost. Counter and sidecar are put back as they were.

use std::time::Duration;

use super::{Counter, Fence, LockState, Stepped};
use crate::names::LockScope;
use crate::time::Timestamp;

/// A lease to prolong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewLock {
    /// Of what.
    pub scope: LockScope,
    /// Which tenure.
    pub fence: Fence,
    /// Its new length, from the store's now. `None`: as long as it was given last.
    pub lease: Option<Duration>,
}

/// What became of a lease.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewReply {
    /// It holds.
    Renewed {
        /// The store's clock.
        now: Timestamp,
        /// Its new end, never beyond the cap.
        lease_end: Timestamp,
        /// How often old callers have tried since the last renewal.
        legacy_attempts: u64,
        /// An old caller had damaged counter or sidecar; both are as they should be again.
        healed: bool,
    },
    /// It is over: stop, and write nothing.
    Lost(LostLock),
}

/// Why a lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostLock {
    /// It was not renewed in time.
    Expired,
    /// It reached its cap.
    MaxHold,
    /// Somebody else has the lock.
    Replaced,
    /// Somebody released it: nobody has the lock.
    Absent,
}

impl LostLock {
    /// As it is written in answers and counted.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::MaxHold => "max_hold",
            Self::Replaced => "replaced",
            Self::Absent => "absent",
        }
    }
}

/// Prolongs a lease up to its cap, if it is not lost.
pub fn renew(state: &mut LockState, lease: &RenewLock, now: Timestamp) -> Stepped<RenewReply> {
    Stepped::quiet(decide(state, lease, now).unwrap_or_else(RenewReply::Lost))
}

fn decide(state: &mut LockState, lease: &RenewLock, now: Timestamp) -> Result<RenewReply, LostLock> {
    let counter_fence = state.counter_fence();
    let Some(mut tenure) = state.tenure.clone().filter(|tenure| tenure.fence == lease.fence) else {
        return Err(match (&state.counter, counter_fence) {
            (None, _) => LostLock::Absent,
            (_, Some(fence)) if fence == lease.fence => LostLock::Expired,
            _ => LostLock::Replaced,
        });
    };
    if tenure.max_hold_end <= now {
        return Err(LostLock::MaxHold);
    }
    if tenure.lease_end <= now {
        return Err(LostLock::Expired);
    }
    let own_sidecar = state.has_sidecar_of(&tenure);
    if state.held(now).is_none() {
        // The tenure is over: leave nothing that looks like a holder.
        if own_sidecar {
            state.meta = None;
        }
        (state.tenure, state.reap_at) = (None, None);
        return Err(if state.counter.is_some() { LostLock::Replaced } else { LostLock::Absent });
    }
    let legacy_attempts = state.counter.as_ref().map_or(0, Counter::attempts);
    let healed = state.counter.is_none() || !own_sidecar;
    tenure.lease = lease.lease.unwrap_or(tenure.lease);
    tenure.lease_end = (now + tenure.lease).min(tenure.max_hold_end);
    let lease_end = tenure.lease_end;
    state.tenure = Some(tenure);
    state.publish();
    Ok(RenewReply::Renewed { now, lease_end, legacy_attempts, healed })
}
