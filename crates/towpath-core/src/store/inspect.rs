//! Reads for people. They may be slower and a moment old; the engine never uses them.

use async_trait::async_trait;

use super::StoreError;
use crate::inspect::{
    CallFilter, CallView, FunctionView, LimitPage, LimitQuery, LockPage, LockQuery, LockView, Page, PageRequest, PermitPage, PermitView,
    StoreStatus,
};
use crate::names::{CallId, FunctionKey, LockScope, WorkerId};
use crate::permit::PermitKind;
use crate::worker::WorkerView;

/// What can be looked at.
#[async_trait]
pub trait InspectStore: Send + Sync {
    /// One call. What a submit or an answer has acknowledged is visible here.
    async fn call(&self, call_id: &CallId) -> Result<Option<CallView>, StoreError>;

    /// Calls, newest first.
    async fn calls(&self, filter: &CallFilter, page: PageRequest) -> Result<Page<CallView>, StoreError>;

    /// All functions, by scope and name.
    async fn functions(&self) -> Result<Vec<FunctionView>, StoreError>;

    /// All workers, by id.
    async fn workers(&self) -> Result<Vec<WorkerView>, StoreError>;

    /// The functions that a worker offers; `None` when it is not known. A store that can tell without a look at all workers does.
    async fn offered_by(&self, worker: &WorkerId) -> Result<Option<Vec<FunctionKey>>, StoreError> {
        let workers = self.workers().await?;
        Ok(workers.into_iter().find(|view| view.worker_id == *worker).map(|view| view.functions))
    }

    /// One lock; `None` when it was never held.
    async fn lock(&self, scope: &LockScope) -> Result<Option<LockView>, StoreError>;

    /// Locks that are held or waited for, by scope. Those of old workflows as far as [`LockQuery`] says.
    async fn locks(&self, query: &LockQuery) -> Result<LockPage, StoreError>;

    /// One semaphore or read/write lock; `None` when nobody ever held a unit of it.
    async fn permits(&self, kind: PermitKind, scope: &LockScope) -> Result<Option<PermitView>, StoreError>;

    /// Limits that have counted something and have something in use, by scope and rule.
    async fn limits(&self, query: &LimitQuery) -> Result<LimitPage, StoreError>;

    /// Semaphores, or read/write locks, that are held or waited for, by scope.
    async fn permit_list(&self, kind: PermitKind, query: &LockQuery) -> Result<PermitPage, StoreError>;

    /// How many calls this store has made of entries of legacy callers since this was asked last, by function.
    fn take_imported(&self) -> Vec<(FunctionKey, u64)> {
        Vec::new()
    }

    /// What the store says about itself, after a write that proves it can write.
    async fn probe(&self) -> Result<StoreStatus, StoreError>;
}
