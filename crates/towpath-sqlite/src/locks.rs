//! Locks and permits on this store: refused, whoever asks, until their moves are written.

use async_trait::async_trait;
use towpath_core::lock::{
    AcquireLock, AcquireReply, CancelLock, CancelReply, EndLock, EndReply, ReapReply, ReleaseLock, ReleaseReply, RenewLock, RenewReply,
};
use towpath_core::names::{ExecutionId, LockScope, NodeId};
use towpath_core::permit::{AcquirePermit, PermitReply, ReleasePermit, RenewPermit};
use towpath_core::store::{HeldScope, LockNews, LockStore, LockWakes, StoreError, StoreTrouble};

use crate::store::SqliteStore;

pub(crate) fn not_yet() -> StoreError {
    StoreError::Unavailable(StoreTrouble::Other("this store does not keep locks yet".to_owned()))
}

struct Silence;

#[async_trait]
impl LockWakes for Silence {
    async fn next(&mut self) -> LockNews {
        std::future::pending().await
    }
}

#[async_trait]
impl LockStore for SqliteStore {
    async fn lock_acquire(&self, _want: AcquireLock) -> Result<AcquireReply, StoreError> {
        Err(not_yet())
    }

    async fn lock_renew(&self, _lease: RenewLock) -> Result<RenewReply, StoreError> {
        Err(not_yet())
    }

    async fn lock_release(&self, _lease: ReleaseLock) -> Result<ReleaseReply, StoreError> {
        Err(not_yet())
    }

    async fn lock_end(&self, _whose: EndLock) -> Result<EndReply, StoreError> {
        Err(not_yet())
    }

    async fn lock_cancel(&self, _question: CancelLock) -> Result<CancelReply, StoreError> {
        Err(not_yet())
    }

    async fn lock_reap(&self, _scope: &LockScope) -> Result<ReapReply, StoreError> {
        Err(not_yet())
    }

    async fn permit_acquire(&self, _want: AcquirePermit) -> Result<PermitReply, StoreError> {
        Err(not_yet())
    }

    async fn permit_renew(&self, _lease: RenewPermit) -> Result<RenewReply, StoreError> {
        Err(not_yet())
    }

    async fn permit_release(&self, _what: ReleasePermit) -> Result<u32, StoreError> {
        Err(not_yet())
    }

    async fn held_by_execution(&self, _execution_id: &ExecutionId) -> Result<Vec<HeldScope>, StoreError> {
        Err(not_yet())
    }

    fn lock_wakes(&self, _node: &NodeId) -> Box<dyn LockWakes> {
        Box::new(Silence)
    }
}
