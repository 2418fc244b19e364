//! The moves of locks, which fail on command like all others.

use async_trait::async_trait;
use towpath_core::lock::{
    AcquireLock, AcquireReply, CancelLock, CancelReply, EndLock, EndReply, ReapReply, ReleaseLock, ReleaseReply, RenewLock, RenewReply,
};
use towpath_core::names::{ExecutionId, LockScope, NodeId};
use towpath_core::permit::{AcquirePermit, PermitReply, ReleasePermit, RenewPermit};
use towpath_core::store::{HeldScope, LockStore, LockWakes, StoreError};

use super::FaultyStore;

#[async_trait]
impl LockStore for FaultyStore {
    async fn lock_acquire(&self, want: AcquireLock) -> Result<AcquireReply, StoreError> {
        self.make("lock_acquire", self.store.lock_acquire(want)).await
    }

    async fn lock_renew(&self, lease: RenewLock) -> Result<RenewReply, StoreError> {
        self.make("lock_renew", self.store.lock_renew(lease)).await
    }

    async fn lock_release(&self, lease: ReleaseLock) -> Result<ReleaseReply, StoreError> {
        self.make("lock_release", self.store.lock_release(lease)).await
    }

    async fn lock_end(&self, whose: EndLock) -> Result<EndReply, StoreError> {
        self.make("lock_end", self.store.lock_end(whose)).await
    }

    async fn lock_cancel(&self, question: CancelLock) -> Result<CancelReply, StoreError> {
        self.make("lock_cancel", self.store.lock_cancel(question)).await
    }

    async fn lock_reap(&self, scope: &LockScope) -> Result<ReapReply, StoreError> {
        self.make("lock_reap", self.store.lock_reap(scope)).await
    }

    async fn permit_acquire(&self, want: AcquirePermit) -> Result<PermitReply, StoreError> {
        self.make("permit_acquire", self.store.permit_acquire(want)).await
    }

    async fn permit_renew(&self, lease: RenewPermit) -> Result<RenewReply, StoreError> {
        self.make("permit_renew", self.store.permit_renew(lease)).await
    }

    async fn permit_release(&self, what: ReleasePermit) -> Result<u32, StoreError> {
        self.make("permit_release", self.store.permit_release(what)).await
    }

    async fn held_by_execution(&self, execution_id: &ExecutionId) -> Result<Vec<HeldScope>, StoreError> {
        self.make("held_by_execution", self.store.held_by_execution(execution_id)).await
    }

    fn lock_wakes(&self, node: &NodeId) -> Box<dyn LockWakes> {
        self.store.lock_wakes(node)
    }
}
