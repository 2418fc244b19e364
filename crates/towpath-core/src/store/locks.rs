//! The moves of locks, semaphores and read/write locks. One method is one atomic transition, decided by its namesake in
//! [`lock`](crate::lock) or [`permit`](crate::permit).
//!
//! Waiting is the asker's: a question that names a waiter leaves a place in the queue, and whoever listens to [`LockStore::lock_wakes`]
//! hears when it is worth asking again. A place that nobody asks for is lost after its time.

use std::fmt;

use async_trait::async_trait;

use super::StoreError;
use crate::lock::{
    AcquireLock, AcquireReply, CancelLock, CancelReply, EndLock, EndReply, ReapReply, ReleaseLock, ReleaseReply, RenewLock, RenewReply,
};
use crate::names::{ExecutionId, LockScope, NodeId, WaiterId};
use crate::permit::{AcquirePermit, PermitKind, PermitReply, ReleasePermit, RenewPermit};

/// The moves of locks.
#[async_trait]
pub trait LockStore: Send + Sync {
    /// Takes the lock, joins its queue, or says who holds it. Does not wait. Decided by [`lock::acquire`](crate::lock::acquire).
    async fn lock_acquire(&self, want: AcquireLock) -> Result<AcquireReply, StoreError>;

    /// Prolongs a lease, or says why it is lost. Decided by [`lock::renew`](crate::lock::renew).
    async fn lock_renew(&self, lease: RenewLock) -> Result<RenewReply, StoreError>;

    /// Ends the tenure of a fence. Safe to repeat. Decided by [`lock::release`](crate::lock::release).
    async fn lock_release(&self, lease: ReleaseLock) -> Result<ReleaseReply, StoreError>;

    /// Ends a tenure when its recorded owner matches, and keeps a record of a forced end. Decided by [`lock::end`](crate::lock::end).
    async fn lock_end(&self, whose: EndLock) -> Result<EndReply, StoreError>;

    /// Takes a question back, and a grant that nobody learnt of. Decided by [`lock::cancel`](crate::lock::cancel).
    async fn lock_cancel(&self, question: CancelLock) -> Result<CancelReply, StoreError>;

    /// Takes away what a tenure whose lease is over has left behind. The timers do it when it is due. Decided by
    /// [`lock::reap`](crate::lock::reap).
    async fn lock_reap(&self, scope: &LockScope) -> Result<ReapReply, StoreError>;

    /// Takes units of a semaphore or read/write lock, or joins its queue. Decided by [`permit::acquire`](crate::permit::acquire).
    async fn permit_acquire(&self, want: AcquirePermit) -> Result<PermitReply, StoreError>;

    /// Prolongs a permit, or says why it is lost. Decided by [`permit::renew`](crate::permit::renew).
    async fn permit_renew(&self, lease: RenewPermit) -> Result<RenewReply, StoreError>;

    /// Gives permits back or leaves the queue; says how many that were. Decided by [`permit::release`](crate::permit::release).
    async fn permit_release(&self, what: ReleasePermit) -> Result<u32, StoreError>;

    /// What this execution holds: tenures and permits that name it and whose lease is not over, locks first, then by scope.
    async fn held_by_execution(&self, execution_id: &ExecutionId) -> Result<Vec<HeldScope>, StoreError>;

    /// The one node there is, where only one process at a time can use the store: whoever waits has the same place after a restart.
    fn only_node(&self) -> Option<NodeId> {
        None
    }

    /// Listens for this node's turns from this moment on.
    fn lock_wakes(&self, node: &NodeId) -> Box<dyn LockWakes>;
}

/// What an execution holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeldScope {
    /// An exclusive lock.
    Lock(LockScope),
    /// Units of a semaphore or read/write lock.
    Permit(PermitKind, LockScope),
}

/// A scope, `sem:<scope>` or `rw:<scope>`.
impl fmt::Display for HeldScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(scope) => f.write_str(scope.as_str()),
            Self::Permit(kind, scope) => write!(f, "{kind}:{scope}"),
        }
    }
}

/// A node's ear.
#[async_trait]
pub trait LockWakes: Send {
    /// The next thing to be heard. Hearing nothing proves nothing: a waiter asks again by its own timer, too.
    async fn next(&mut self) -> LockNews;
}

/// What a node hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockNews {
    /// The turn of this waiter may have come: ask again.
    Turn(WaiterId),
    /// Something may have been missed: let everybody ask again.
    Doubtful,
}
