//! What people get to see of locks and permits.

use crate::lock::{Counter, Fence, Holder, LockState, Waiter};
use crate::names::LockScope;
use crate::permit::{Permit, PermitState};
use crate::time::Timestamp;

/// Everything that is known of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockView {
    /// Which.
    pub scope: LockScope,
    /// Who holds it.
    pub holder: Option<Holder>,
    /// Until when its holder may renew it, where that is known.
    pub max_hold_end: Option<Timestamp>,
    /// How often its holder has entered without leaving.
    pub holds: u32,
    /// The counter, as a forced release needs it.
    pub counter: Option<Counter>,
    /// The highest fence that was ever given out.
    pub fence_high: Fence,
    /// Who waits and is not gone, first come first.
    pub waiters: Vec<Waiter>,
}

impl LockView {
    /// The lock as it stands now; nothing when it was never held.
    pub fn of(scope: &LockScope, state: &LockState, now: Timestamp) -> Option<Self> {
        let tenure = state.held(now);
        state.is_known().then(|| Self {
            scope: scope.clone(),
            holder: state.holder(now),
            max_hold_end: tenure.map(|tenure| tenure.max_hold_end),
            holds: tenure.map_or(0, |tenure| tenure.holds),
            counter: state.counter.clone(),
            fence_high: state.fence_high,
            waiters: live(&state.queue.waiters, now),
        })
    }

    /// Whether it belongs in a list: somebody holds it or waits for it.
    pub fn is_in_use(&self) -> bool {
        self.holder.is_some() || !self.waiters.is_empty()
    }
}

/// Which locks, and how many at a time: by scope, in byte order.
///
/// Locks of ours are always found. One that an old workflow holds is found when one of ours has met it, when it is named in `also`, or with
/// `scan`. Semaphores and read/write locks are always found: old workflows have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockQuery {
    /// Only scopes that begin so.
    pub prefix: String,
    /// Only scopes after this one; `None` for the first page.
    pub after: Option<LockScope>,
    /// At most this many.
    pub limit: u32,
    /// Scopes that old workflows may hold: they are looked at as well, whether or not one of ours has ever met them.
    pub also: Vec<LockScope>,
    /// Looks at the names of all that is kept, so that no old workflow's lock is missed. Slow where there is much, and not allowed everywhere.
    pub scan: bool,
}

/// A page of locks that are held or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockPage {
    /// The locks.
    pub items: Vec<LockView>,
    /// Ask for the next page after this one; `None` when this was the last.
    pub next: Option<LockScope>,
}

/// Everything that is known of a semaphore or read/write lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitView {
    /// Which.
    pub scope: LockScope,
    /// Who holds units and is not silent for too long, by fence.
    pub permits: Vec<Permit>,
    /// Who waits and is not gone, first come first.
    pub waiters: Vec<Waiter>,
    /// The highest fence that was ever given out.
    pub fence_high: Fence,
}

impl PermitView {
    /// The permits as they stand now; nothing when there never were any.
    pub fn of(scope: &LockScope, state: &PermitState, now: Timestamp) -> Option<Self> {
        let held = |permit: &&Permit| permit.lease_end > now;
        state.is_known().then(|| Self {
            scope: scope.clone(),
            permits: state.permits.iter().filter(held).cloned().collect(),
            waiters: live(&state.queue.waiters, now),
            fence_high: state.fence_high,
        })
    }

    /// Whether it belongs in a list: somebody holds units or waits for them.
    pub fn is_in_use(&self) -> bool {
        !self.permits.is_empty() || !self.waiters.is_empty()
    }
}

/// A page of semaphores, or of read/write locks, that are held or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitPage {
    /// One for each scope.
    pub items: Vec<PermitView>,
    /// Ask for the next page after this one; `None` when this was the last.
    pub next: Option<LockScope>,
}

fn live(waiters: &[Waiter], now: Timestamp) -> Vec<Waiter> {
    waiters.iter().filter(|place| place.alive_until > now).cloned().collect()
}
