//! Giving permits back, or leaving the queue. Safe to repeat.

use super::{PermitKind, PermitState};
use crate::lock::{Fence, Stepped};
use crate::names::{ExecutionId, LockId, LockScope, WaiterId};
use crate::time::Timestamp;

/// Permits to give back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasePermit {
    /// Semaphore or read/write lock.
    pub kind: PermitKind,
    /// Of what.
    pub scope: LockScope,
    /// Which.
    pub by: ReleaseBy,
}

/// Which permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseBy {
    /// The one of this lock id.
    Permit {
        /// Whose.
        lock_id: LockId,
        /// Only this grant of it; `None` is any.
        fence: Option<Fence>,
    },
    /// All of an execution, which has failed.
    Execution(ExecutionId),
    /// None: a waiter leaves the queue.
    Waiter(WaiterId),
}

/// Gives back what matches. The reply is how many that were.
pub fn release(state: &mut PermitState, what: &ReleasePermit, _now: Timestamp) -> Stepped<u32> {
    let before = state.permits.len() + state.queue.waiters.len();
    match &what.by {
        ReleaseBy::Permit { lock_id, fence } => {
            state.permits.retain(|permit| permit.lock_id != *lock_id || fence.is_some_and(|fence| fence != permit.fence));
        }
        ReleaseBy::Execution(execution_id) => state.permits.retain(|permit| permit.execution_id.as_ref() != Some(execution_id)),
        ReleaseBy::Waiter(waiter) => {
            if state.queue.rank(waiter) == Some(0) {
                state.free_since = None; // the next head has not had its chance yet
            }
            state.queue.leave(waiter);
        }
    }
    let gone = u32::try_from(before - state.permits.len() - state.queue.waiters.len()).unwrap_or(u32::MAX);
    Stepped { reply: gone, wakes: if gone > 0 { state.queue.wakes() } else { Vec::new() } }
}
