//! Reads for people.

use std::time::Duration;

use async_trait::async_trait;
use towpath_core::inspect::{
    CallFilter, CallView, FunctionView, LimitPage, LimitQuery, LockPage, LockQuery, LockView, Page, PageRequest, PermitPage, PermitView,
    StoreStatus,
};
use towpath_core::names::{CallId, FunctionKey, LockScope, WorkerId};
use towpath_core::permit::PermitKind;
use towpath_core::store::{InspectStore, StoreError};
use towpath_core::worker::WorkerView;

use crate::store::RedisStore;

/// How long a probe waits for a subscription.
pub(crate) const LISTENS_WITHIN: Duration = Duration::from_secs(1);
#[async_trait]
impl InspectStore for RedisStore {
    async fn call(&self, call_id: &CallId) -> Result<Option<CallView>, StoreError> {
        let Some((partition, whole)) = self.find_whole(call_id).await? else { return Ok(None) };
        whole.view(&partition).map(Some)
    }

    async fn calls(&self, filter: &CallFilter, page: PageRequest) -> Result<Page<CallView>, StoreError> {
        self.list_calls(filter, page).await
    }

    async fn functions(&self) -> Result<Vec<FunctionView>, StoreError> {
        self.list_functions().await
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        self.list_workers().await
    }

    async fn offered_by(&self, worker: &WorkerId) -> Result<Option<Vec<FunctionKey>>, StoreError> {
        self.offers_of(worker).await
    }

    async fn lock(&self, scope: &LockScope) -> Result<Option<LockView>, StoreError> {
        self.lock_view(scope).await
    }

    async fn locks(&self, query: &LockQuery) -> Result<LockPage, StoreError> {
        self.lock_page(query).await
    }

    async fn permits(&self, kind: PermitKind, scope: &LockScope) -> Result<Option<PermitView>, StoreError> {
        self.permit_view(kind, scope).await
    }

    async fn limits(&self, query: &LimitQuery) -> Result<LimitPage, StoreError> {
        self.limit_page(query).await
    }

    async fn permit_list(&self, kind: PermitKind, query: &LockQuery) -> Result<PermitPage, StoreError> {
        self.permit_page(kind, query).await
    }

    fn take_imported(&self) -> Vec<(FunctionKey, u64)> {
        self.shared.legacy.take_imported()
    }

    async fn probe(&self) -> Result<StoreStatus, StoreError> {
        let refuses = self.shared.prove_writable().await?;
        // What was begun before is under way: claims wait in their line, and subscriptions hear. When the way there is cut, others see to that.
        drop(tokio::time::timeout(LISTENS_WITHIN, self.shared.claims.looked()).await);
        drop(tokio::time::timeout(LISTENS_WITHIN, self.shared.news.listening().settled()).await);
        let now = self.shared.now();
        Ok(StoreStatus {
            location: self.shared.location(),
            durability: self.shared.durability(),
            now,
            commits: 0,
            moves: 0,
            refuses,
            problems: self
                .shared
                .guarantee
                .problem()
                .into_iter()
                .chain(self.shared.incarnation.problems(now))
                .chain(self.shared.unreadable.problems(now))
                .collect(),
        })
    }
}
