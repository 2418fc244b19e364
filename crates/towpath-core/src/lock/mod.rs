//! A lock: who holds a scope, under which fence, until when, and who waits for it. Not here: clocks, keys, waiting.
//!
//! Old workflows know a lock as two keys alone: a *counter* that whoever wants the lock increments, and a *sidecar* with the identity of
//! whoever read 1. They change both as they please, so both are part of the state, and each move looks at them. The *tenure* is ours:
//! one grant up to its end.
//!
//! Each move is a pure function of the state, the command and an instant. It changes the state, answers, and names the waiters to wake:
//!
//! ```
//! use towpath_core::lock::{AcquireLock, AcquireReply, LockState, acquire};
//! use towpath_core::names::{LockId, LockScope, RequestId};
//! use towpath_core::time::Timestamp;
//!
//! let now = Timestamp::from_millis(1_800_000_000_000);
//! let want = |who: &str| {
//!     AcquireLock::new(LockScope::new("excel-fileId-123").unwrap(), LockId::new(who).unwrap(), RequestId::new(who).unwrap())
//! };
//! let mut lock = LockState::default();
//! let granted = acquire(&mut lock, &want("first"), now).reply;
//! assert!(matches!(granted, AcquireReply::Granted(grant) if grant.fence.as_u64() > 0));
//! assert!(matches!(acquire(&mut lock, &want("second"), now).reply, AcquireReply::Busy(_)));
//! ```

mod acquire;
mod bounds;
mod cancel;
mod end;
mod fence;
mod holder;
mod queue;
mod reap;
mod release;
mod renew;

use std::sync::Arc;
use std::time::Duration;

pub use acquire::{AcquireLock, AcquireReply, Busy, BusyWith, Grant, Previous, acquire};
pub use bounds::{OutOfRange, check_lease, check_ttl, check_wait, check_within};
pub use cancel::{CancelLock, CancelReply, cancel};
pub use end::{EndBy, EndLock, EndReply, end};
pub use fence::{Counter, Fence};
pub use holder::{Holder, HolderKind, Identity};
pub use queue::{Queue, Waiter};
pub use reap::{ReapReply, reap};
pub use release::{ReleaseLock, ReleaseReply, release};
pub use renew::{LostLock, RenewLock, RenewReply, renew};

use crate::names::{ExecutionId, LockId, RequestId, WaiterId};
use crate::time::Timestamp;

/// Everything that is kept of one scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockState {
    /// What old workflows increment; a tenure's fence while we hold it.
    pub counter: Option<Counter>,
    /// The identity of the holder, as old workflows read and write it.
    pub meta: Option<Arc<str>>,
    /// The latest grant, until it is released. Its lease may be over.
    pub tenure: Option<Tenure>,
    /// The highest fence that was ever given out.
    pub fence_high: Fence,
    /// Who waits.
    pub queue: Queue,
    /// The latest release.
    pub last: LastRelease,
    /// Since when the scope is free while somebody queued earlier is silent.
    pub free_since: Option<Timestamp>,
    /// An old workflow's counter that nobody has put a name to.
    pub orphan_watch: Option<OrphanWatch>,
    /// When somebody should see whether the lease is over.
    pub reap_at: Option<Timestamp>,
}

/// One grant, up to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// Who holds it.
    pub lock_id: LockId,
    /// What tells this tenure from every other of the scope.
    pub fence: Fence,
    /// How often its holder has entered without leaving.
    pub holds: u32,
    /// The execution that it ends with.
    pub execution_id: Option<ExecutionId>,
    /// The question that was answered with it, or that entered again.
    pub request_id: RequestId,
    /// Until when the holder may be silent.
    pub lease_end: Timestamp,
    /// For how long a renewal lets it be silent, if it does not say.
    pub lease: Duration,
    /// Until when it may be renewed.
    pub max_hold_end: Timestamp,
    /// The sidecar as it was written.
    pub meta: Arc<str>,
    /// When it was granted.
    pub locked_at: Timestamp,
}

/// What is remembered of the latest release, so that a repeated one is known as such.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastRelease {
    /// The highest fence that was released.
    pub fence: Fence,
    /// Who released.
    pub lock_id: Option<LockId>,
    /// The question that the released tenure answered.
    pub request_id: Option<RequestId>,
}

/// A counter without identity, seen again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrphanWatch {
    /// When it was first seen.
    pub since: Timestamp,
    /// When it was last seen.
    pub seen_at: Timestamp,
    /// Its value then.
    pub value: i64,
}

/// What a move came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stepped<R> {
    /// The answer.
    pub reply: R,
    /// Who should ask again, because the turn may be theirs. Losing this costs time only.
    pub wakes: Vec<WaiterId>,
}

impl<R> Stepped<R> {
    pub(crate) fn quiet(reply: R) -> Self {
        Self { reply, wakes: Vec::new() }
    }
}

impl LockState {
    /// The fence that the counter carries; none when it is absent or an old workflow's.
    fn counter_fence(&self) -> Option<Fence> {
        self.counter.as_ref().and_then(Counter::fence)
    }

    /// The tenure, as long as it counts: its lease is not over, and the counter carries its fence. A counter that is gone while the
    /// sidecar is still ours was shortened by a failing old caller: the tenure goes on, and the next renewal puts the counter back.
    pub fn held(&self, now: Timestamp) -> Option<&Tenure> {
        self.tenure.as_ref().filter(|tenure| {
            let ours = match &self.counter {
                Some(counter) => counter.fence() == Some(tenure.fence),
                None => self.has_sidecar_of(tenure),
            };
            tenure.lease_end > now && ours
        })
    }

    fn has_sidecar_of(&self, tenure: &Tenure) -> bool {
        self.meta.as_ref() == Some(&tenure.meta)
    }

    /// The sidecar, unless it is what our own latest tenure left behind.
    fn foreign_meta(&self) -> Option<&Arc<str>> {
        self.meta.as_ref().filter(|meta| self.tenure.as_ref().is_none_or(|tenure| tenure.meta != **meta))
    }

    /// Counter, sidecar and tenure always end together.
    fn publish(&mut self) {
        if let Some(tenure) = &self.tenure {
            self.counter = Some(Counter::of(tenure.fence));
            self.meta = Some(Arc::clone(&tenure.meta));
            self.reap_at = Some(tenure.lease_end);
        }
    }

    /// Notes that a tenure was released. From now on a repeated release and a late copy of its question are known as such.
    fn note_release(&mut self, tenure: Tenure, now: Timestamp) {
        self.last = LastRelease { fence: tenure.fence, lock_id: Some(tenure.lock_id), request_id: Some(tenure.request_id) };
        self.free_since = Some(now);
        self.reap_at = None;
    }

    /// Removes what the counter and the sidecar say of this tenure, and nothing that belongs to others.
    fn withdraw(&mut self, tenure: &Tenure) {
        if self.counter_fence() == Some(tenure.fence) {
            (self.counter, self.meta) = (None, None);
        } else if self.has_sidecar_of(tenure) {
            self.meta = None;
        }
    }

    /// Who holds it, if anybody does, as far as that is known.
    pub fn holder(&self, now: Timestamp) -> Option<Holder> {
        if let Some(tenure) = self.held(now) {
            return Some(Holder::of(tenure));
        }
        let legacy = self.counter.as_ref().is_some_and(|counter| counter.fence().is_none());
        legacy.then(|| Holder::from_meta(self.foreign_meta().map(|meta| &**meta)))
    }

    /// Whether anything at all is known of the scope: it was held or waited for once.
    pub fn is_known(&self) -> bool {
        *self != Self::default()
    }
}

#[cfg(test)]
mod tests;
