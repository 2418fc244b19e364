//! After a lease has ended: frees a counter that an old workflow's EXPIRE kept alive, and wakes the queue.

use super::{LockState, Stepped};
use crate::time::Timestamp;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReapReply {
    /// A counter whose tenure is over was taken away.
    Freed,
    /// It was free already.
    Free,
    /// The lease is not over.
    Live {
        /// Its end.
        lease_end: Timestamp,
    },
    /// An old workflow's lock, which is left alone.
    Legacy,
}

/// Takes away what a tenure whose lease is over has left behind.
pub fn reap(state: &mut LockState, now: Timestamp) -> Stepped<ReapReply> {
    if let Some(lease_end) = state.held(now).map(|tenure| tenure.lease_end) {
        state.reap_at = Some(lease_end);
        return Stepped::quiet(ReapReply::Live { lease_end });
    }
    state.reap_at = None;
    let reply = match &state.counter {
        Some(counter) if counter.fence().is_none() => return Stepped::quiet(ReapReply::Legacy),
        Some(_) => {
            state.counter = None;
            state.free_since.get_or_insert(now);
            ReapReply::Freed
        }
        None => ReapReply::Free,
    };
    if state.foreign_meta().is_none() {
        state.meta = None;
    }
    Stepped { reply, wakes: state.queue.wakes() }
}
