//! The moves of runs, listened to: a store whose disk failed raises the alarm here, too.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use towpath_core::lock::Fence;
use towpath_core::names::{BuildId, Reference, WorkerId, WorkflowName};
use towpath_core::payload::Payload;
use towpath_core::run::{Commit, Fact, RunId, RunPlace};
use towpath_core::store::{
    ClaimRuns, ClaimedRun, EventSent, FiredRuns, JournalEntry, NewEvent, RunCommitted, RunFilter, RunPage, RunPageRequest, RunPlaceView,
    RunRenewal, RunRequest, RunRequested, RunStore, RunView, StartRun, Started, StoreError, TakeOverRuns, TakenOver,
};

use super::ObservedStore;

/// A store of runs, observed together with the store beside it.
pub(crate) struct ObservedRuns {
    store: Arc<dyn RunStore>,
    observed: Arc<ObservedStore>,
}

impl ObservedRuns {
    pub(crate) fn new(store: Arc<dyn RunStore>, observed: Arc<ObservedStore>) -> Self {
        Self { store, observed }
    }

    fn heard<T>(&self, reply: Result<T, StoreError>) -> Result<T, StoreError> {
        self.observed.heard(reply)
    }
}

#[async_trait]
impl RunStore for ObservedRuns {
    async fn start_run(&self, start: StartRun) -> Result<Started, StoreError> {
        self.heard(self.store.start_run(start).await)
    }

    async fn claim_runs(&self, want: ClaimRuns) -> Result<Vec<ClaimedRun>, StoreError> {
        self.heard(self.store.claim_runs(want).await)
    }

    async fn take_over_runs(&self, want: TakeOverRuns) -> Result<TakenOver, StoreError> {
        self.heard(self.store.take_over_runs(want).await)
    }

    async fn renew_runs(&self, owner: &WorkerId, claims: Vec<(RunId, Fence)>) -> Result<Vec<RunRenewal>, StoreError> {
        self.heard(self.store.renew_runs(owner, claims).await)
    }

    async fn commit_run(&self, run_id: &RunId, commit: Commit) -> Result<RunCommitted, StoreError> {
        self.heard(self.store.commit_run(run_id, commit).await)
    }

    async fn send_event(&self, run_id: &RunId, event: NewEvent) -> Result<EventSent, StoreError> {
        self.heard(self.store.send_event(run_id, event).await)
    }

    async fn request_run(&self, run_id: &RunId, request: RunRequest) -> Result<RunRequested, StoreError> {
        self.heard(self.store.request_run(run_id, request).await)
    }

    async fn register_build(&self, build: &BuildId, places: &[RunPlace]) -> Result<u64, StoreError> {
        self.heard(self.store.register_build(build, places).await)
    }

    async fn send_posts(&self, limit: u32) -> Result<u64, StoreError> {
        self.heard(self.store.send_posts(limit).await)
    }

    async fn fire_runs(&self, limit: u32) -> Result<FiredRuns, StoreError> {
        self.heard(self.store.fire_runs(limit).await)
    }

    async fn run(&self, run_id: &RunId) -> Result<Option<RunView>, StoreError> {
        self.heard(self.store.run(run_id).await)
    }

    async fn journal(&self, run_id: &RunId, from: u64, bytes_max: usize) -> Result<Vec<JournalEntry>, StoreError> {
        self.heard(self.store.journal(run_id, from, bytes_max).await)
    }

    async fn facts(&self, run_id: &RunId, after: u64) -> Result<Vec<Fact>, StoreError> {
        self.heard(self.store.facts(run_id, after).await)
    }

    async fn published(&self, run_id: &RunId) -> Result<Vec<(Arc<str>, Payload)>, StoreError> {
        self.heard(self.store.published(run_id).await)
    }

    async fn run_closed(&self, run_id: &RunId, wait: Duration) -> Result<(), StoreError> {
        self.heard(self.store.run_closed(run_id, wait).await)
    }

    async fn runs_notified(&self, owner: &WorkerId, wait: Duration) -> Result<Vec<RunId>, StoreError> {
        self.heard(self.store.runs_notified(owner, wait).await)
    }

    async fn run_referenced(&self, workflow: &WorkflowName, reference: &Reference) -> Result<Option<RunId>, StoreError> {
        self.heard(self.store.run_referenced(workflow, reference).await)
    }

    async fn runs(&self, filter: &RunFilter, page: RunPageRequest) -> Result<RunPage, StoreError> {
        self.heard(self.store.runs(filter, page).await)
    }

    async fn run_places(&self) -> Result<Vec<RunPlaceView>, StoreError> {
        self.heard(self.store.run_places().await)
    }
}
