//! The moves of locks, listened to.

use async_trait::async_trait;
use towpath_core::lock::{
    AcquireLock, AcquireReply, CancelLock, CancelReply, EndLock, EndReply, ReapReply, ReleaseLock, ReleaseReply, RenewLock, RenewReply,
};
use towpath_core::names::{ExecutionId, LockScope, NodeId};
use towpath_core::permit::{AcquirePermit, PermitReply, ReleasePermit, RenewPermit};
use towpath_core::store::{HeldScope, LockStore, LockWakes, StoreError};

use super::ObservedStore;

#[async_trait]
impl LockStore for ObservedStore {
    async fn lock_acquire(&self, want: AcquireLock) -> Result<AcquireReply, StoreError> {
        let reply = self.heard(self.store.lock_acquire(want).await)?;
        if let AcquireReply::Granted(grant) = &reply {
            self.observer().lock_granted(grant.previous);
        }
        Ok(reply)
    }

    async fn lock_renew(&self, lease: RenewLock) -> Result<RenewReply, StoreError> {
        self.heard_lock_renewal(self.store.lock_renew(lease).await)
    }

    async fn lock_release(&self, lease: ReleaseLock) -> Result<ReleaseReply, StoreError> {
        let reply = self.heard(self.store.lock_release(lease).await)?;
        if let ReleaseReply::Lost { why, .. } = &reply {
            self.observer().lock_lost(*why);
        }
        Ok(reply)
    }

    async fn lock_end(&self, whose: EndLock) -> Result<EndReply, StoreError> {
        self.heard(self.store.lock_end(whose).await)
    }

    async fn lock_cancel(&self, question: CancelLock) -> Result<CancelReply, StoreError> {
        self.heard(self.store.lock_cancel(question).await)
    }

    async fn lock_reap(&self, scope: &LockScope) -> Result<ReapReply, StoreError> {
        self.heard(self.store.lock_reap(scope).await)
    }

    async fn permit_acquire(&self, want: AcquirePermit) -> Result<PermitReply, StoreError> {
        let kind = want.kind;
        let reply = self.heard(self.store.permit_acquire(want).await)?;
        if let PermitReply::Granted(_) = &reply {
            self.observer().permits_granted(kind);
        }
        Ok(reply)
    }

    async fn permit_renew(&self, lease: RenewPermit) -> Result<RenewReply, StoreError> {
        self.heard_lock_renewal(self.store.permit_renew(lease).await)
    }

    async fn permit_release(&self, what: ReleasePermit) -> Result<u32, StoreError> {
        self.heard(self.store.permit_release(what).await)
    }

    async fn held_by_execution(&self, execution_id: &ExecutionId) -> Result<Vec<HeldScope>, StoreError> {
        self.heard(self.store.held_by_execution(execution_id).await)
    }

    fn lock_wakes(&self, node: &NodeId) -> Box<dyn LockWakes> {
        self.store.lock_wakes(node)
    }
}
