//! The store's moves of locks and permits, handed to the writer.

use async_trait::async_trait;
use towpath_core::lock::{
    AcquireLock, AcquireReply, CancelLock, CancelReply, EndLock, EndReply, ReapReply, ReleaseLock, ReleaseReply, RenewLock, RenewReply,
};
use towpath_core::names::{ExecutionId, LockScope, NodeId};
use towpath_core::permit::{AcquirePermit, PermitReply, ReleasePermit, RenewPermit};
use towpath_core::store::{HeldScope, LockStore, LockWakes, StoreError};

use crate::permits;
use crate::store::SqliteStore;

#[async_trait]
impl LockStore for SqliteStore {
    async fn lock_acquire(&self, want: AcquireLock) -> Result<AcquireReply, StoreError> {
        self.make(move |tx| super::acquire(tx, &want)).await
    }

    async fn lock_renew(&self, lease: RenewLock) -> Result<RenewReply, StoreError> {
        self.make(move |tx| super::renew(tx, &lease)).await
    }

    async fn lock_release(&self, lease: ReleaseLock) -> Result<ReleaseReply, StoreError> {
        self.make(move |tx| super::release(tx, &lease)).await
    }

    async fn lock_end(&self, whose: EndLock) -> Result<EndReply, StoreError> {
        self.make(move |tx| super::end(tx, &whose)).await
    }

    async fn lock_cancel(&self, question: CancelLock) -> Result<CancelReply, StoreError> {
        self.make(move |tx| super::cancel(tx, &question)).await
    }

    async fn lock_reap(&self, scope: &LockScope) -> Result<ReapReply, StoreError> {
        let scope = scope.clone();
        self.make(move |tx| super::reap(tx, &scope)).await
    }

    async fn permit_acquire(&self, want: AcquirePermit) -> Result<PermitReply, StoreError> {
        self.make(move |tx| permits::acquire(tx, &want)).await
    }

    async fn permit_renew(&self, lease: RenewPermit) -> Result<RenewReply, StoreError> {
        self.make(move |tx| permits::renew(tx, &lease)).await
    }

    async fn permit_release(&self, what: ReleasePermit) -> Result<u32, StoreError> {
        self.make(move |tx| permits::release(tx, &what)).await
    }

    async fn held_by_execution(&self, execution_id: &ExecutionId) -> Result<Vec<HeldScope>, StoreError> {
        let execution_id = execution_id.clone();
        self.make(move |tx| super::held_by_execution(tx, &execution_id)).await
    }

    fn only_node(&self) -> Option<NodeId> {
        NodeId::new("embedded").ok()
    }

    fn lock_wakes(&self, node: &NodeId) -> Box<dyn LockWakes> {
        self.ears.listen_for_turns(node)
    }
}
