//! Ending the tenure that owns a fence. Safe to repeat; a later holder is never touched.

use super::{Fence, Holder, LockState, LostLock, Stepped};
use crate::names::LockScope;
use crate::time::Timestamp;

/// A tenure to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseLock {
    /// Of what.
    pub scope: LockScope,
    /// Which tenure.
    pub fence: Fence,
}

/// What became of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseReply {
    /// The lock is free.
    Released,
    /// Its holder had entered more than once and has it still.
    StillHeld {
        /// How often it must still leave.
        holds: u32,
    },
    /// This tenure, or a later one, was released before. Nothing was touched.
    Already,
    /// The lease was over and nobody has come since. The lock is free.
    Expired,
    /// It belonged to somebody else, or to nobody, before the release came.
    Lost {
        /// Replaced or absent.
        why: LostLock,
        /// Who has it now, as far as that is written down.
        holder: Option<Holder>,
    },
}

/// Ends the tenure of this fence, or lets its holder leave once.
pub fn release(state: &mut LockState, lease: &ReleaseLock, now: Timestamp) -> Stepped<ReleaseReply> {
    let Some(tenure) = state.tenure.clone().filter(|tenure| tenure.fence == lease.fence) else {
        return Stepped::quiet(not_the_latest(state, lease.fence));
    };
    let live = tenure.lease_end > now;
    let own_counter = state.counter_fence() == Some(tenure.fence);
    let replaced = !own_counter && state.counter.is_some();
    let absent = !own_counter && state.counter.is_none() && live && !state.has_sidecar_of(&tenure);
    if live && !replaced && !absent && tenure.holds > 1 {
        let holds = tenure.holds - 1;
        state.tenure = Some(super::Tenure { holds, ..tenure });
        return Stepped::quiet(ReleaseReply::StillHeld { holds });
    }
    state.withdraw(&tenure);
    state.tenure = None;
    state.note_release(tenure, now);
    let wakes = if replaced { Vec::new() } else { state.queue.wakes() };
    let reply = if replaced {
        ReleaseReply::Lost { why: LostLock::Replaced, holder: holder_written_down(state) }
    } else if absent {
        ReleaseReply::Lost { why: LostLock::Absent, holder: None }
    } else if live {
        ReleaseReply::Released
    } else {
        ReleaseReply::Expired
    };
    Stepped { reply, wakes }
}

fn not_the_latest(state: &LockState, fence: Fence) -> ReleaseReply {
    if fence <= state.last.fence {
        ReleaseReply::Already
    } else if state.counter.is_none() && state.tenure.is_none() {
        ReleaseReply::Expired
    } else {
        ReleaseReply::Lost { why: LostLock::Replaced, holder: holder_written_down(state) }
    }
}

fn holder_written_down(state: &LockState) -> Option<Holder> {
    state.meta.as_deref().map(|meta| Holder::from_meta(Some(meta)))
}
