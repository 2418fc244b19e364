//! Words for locks and permits.

use towpath_core::lock::{AcquireLock, EndBy, EndLock};
use towpath_core::names::{ExecutionId, LockId, LockScope, NodeId, RequestId, WaiterId};
use towpath_core::permit::{AcquirePermit, PermitKind, RW_LIMIT};

use super::{named, seconds};

/// What is locked.
pub fn scope(text: &str) -> LockScope {
    named(LockScope::new(text))
}

/// Who asks.
pub fn lock_id(text: &str) -> LockId {
    named(LockId::new(text))
}

/// Which question.
pub fn request(text: &str) -> RequestId {
    named(RequestId::new(text))
}

/// Which execution.
pub fn execution(text: &str) -> ExecutionId {
    named(ExecutionId::new(text))
}

/// Which process.
pub fn node(text: &str) -> NodeId {
    named(NodeId::new(text))
}

/// The place in a queue that this question of the bench's node has.
pub fn waiter(text: &str) -> WaiterId {
    WaiterId::new(&node("bench"), &request(text))
}

/// A question of `who`, which is also the question's id where it can be: ten seconds at a time, a minute in all, without waiting.
pub fn want(what: &str, who: &str) -> AcquireLock {
    let asked_as = RequestId::new(who).unwrap_or_else(|_| request("question"));
    let want = AcquireLock::new(scope(what), lock_id(who), asked_as);
    AcquireLock { lease: seconds(10), max_hold: seconds(60), ..want }
}

/// A release by lock id.
pub fn of_lock_id(what: &str, who: &str) -> EndLock {
    EndLock { scope: scope(what), by: EndBy::LockId(lock_id(who)) }
}

/// Adjectives of a question for a lock.
pub trait LockWords {
    /// Under another question's id.
    fn asked_as(self, request: &str) -> Self;
    /// Ready to wait, in the place of its question.
    fn waiting(self) -> Self;
    /// On behalf of an execution.
    fn for_execution(self, execution: &str) -> Self;
    /// Silent for so many seconds at most.
    fn lease_s(self, count: u64) -> Self;
    /// Allowed to enter so often.
    fn entering(self, times: u32) -> Self;
}

impl LockWords for AcquireLock {
    fn asked_as(self, id: &str) -> Self {
        Self { request_id: request(id), ..self }
    }

    fn waiting(self) -> Self {
        Self { waiter: Some(waiter(self.request_id.as_str())), ..self }
    }

    fn for_execution(mut self, id: &str) -> Self {
        self.identity.execution_id = Some(execution(id));
        self
    }

    fn lease_s(self, count: u64) -> Self {
        Self { lease: seconds(count), ..self }
    }

    fn entering(self, times: u32) -> Self {
        Self { max_holds: times, ..self }
    }
}

/// A question for units of five: ten seconds at a time, a minute in all, without waiting.
pub fn semaphore(what: &str, who: &str, weight: u32) -> AcquirePermit {
    let want = AcquirePermit::new(PermitKind::Semaphore, scope(what), lock_id(who), 5);
    AcquirePermit { weight, lease: seconds(10), max_hold: seconds(60), ..want }
}

/// A reader's question.
pub fn read(what: &str, who: &str) -> AcquirePermit {
    AcquirePermit { kind: PermitKind::ReadWrite, limit: RW_LIMIT, ..semaphore(what, who, 1) }
}

/// A writer's question.
pub fn write(what: &str, who: &str) -> AcquirePermit {
    AcquirePermit { weight: RW_LIMIT, ..read(what, who) }
}

/// Adjectives of a question for permits.
pub trait PermitWords {
    /// Ready to wait, in the place of its lock id.
    fn waiting(self) -> Self;
    /// On behalf of an execution.
    fn for_execution(self, execution: &str) -> Self;
}

impl PermitWords for AcquirePermit {
    fn waiting(self) -> Self {
        Self { waiter: Some(waiter(self.lock_id.as_str())), ..self }
    }

    fn for_execution(self, id: &str) -> Self {
        Self { execution_id: Some(execution(id)), ..self }
    }
}
