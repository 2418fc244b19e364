//! A waiter gives up: it timed out, was cancelled, or lost its connection. A grant whose answer never arrived is undone.

use super::{Fence, LockState, Stepped};
use crate::names::{LockScope, RequestId, WaiterId};
use crate::time::Timestamp;

/// A question to take back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelLock {
    /// For what.
    pub scope: LockScope,
    /// The question.
    pub request_id: RequestId,
    /// Its place in the queue, if it had one.
    pub waiter: Option<WaiterId>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReply {
    /// It waits no longer.
    Cancelled,
    /// It was not in the queue.
    NotQueued,
    /// It had been granted unseen; the lock was released.
    WasGranted {
        /// The fence that nobody learnt of.
        fence: Fence,
    },
}

/// Takes a question back, and its grant with it.
pub fn cancel(state: &mut LockState, question: &CancelLock, now: Timestamp) -> Stepped<CancelReply> {
    let waiter = question.waiter.as_ref();
    let was_head = waiter.is_some() && state.queue.waiters.first().map(|place| &place.waiter) == waiter;
    let queued = waiter.is_some_and(|waiter| state.queue.leave(waiter));
    let unseen = |tenure: &super::Tenure| tenure.request_id == question.request_id && tenure.lease_end > now && tenure.holds == 1;
    let granted = state.tenure.take_if(|tenure| unseen(tenure));
    let reply = match granted {
        Some(tenure) => {
            let fence = tenure.fence;
            state.withdraw(&tenure);
            state.note_release(tenure, now);
            CancelReply::WasGranted { fence }
        }
        None if queued => CancelReply::Cancelled,
        None => CancelReply::NotQueued,
    };
    let passes_on = was_head || matches!(reply, CancelReply::WasGranted { .. });
    Stepped { reply, wakes: if passes_on { state.queue.wakes() } else { Vec::new() } }
}
