//! A store of runs whose disk has failed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use towpath_core::lock::Fence;
use towpath_core::names::{BuildId, Reference, WorkerId, WorkflowName};
use towpath_core::payload::Payload;
use towpath_core::run::{Commit, Fact, RunId, RunPlace};
use towpath_core::store::*;

pub(crate) struct BrokenRuns;

fn broken<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable(StoreTrouble::Broken("the disk is gone".to_owned())))
}

#[async_trait]
impl RunStore for BrokenRuns {
    async fn start_run(&self, _: StartRun) -> Result<Started, StoreError> {
        broken()
    }
    async fn claim_runs(&self, _: ClaimRuns) -> Result<Vec<ClaimedRun>, StoreError> {
        broken()
    }
    async fn take_over_runs(&self, _: TakeOverRuns) -> Result<TakenOver, StoreError> {
        broken()
    }
    async fn renew_runs(&self, _: &WorkerId, _: Vec<(RunId, Fence)>) -> Result<Vec<RunRenewal>, StoreError> {
        broken()
    }
    async fn commit_run(&self, _: &RunId, _: Commit) -> Result<RunCommitted, StoreError> {
        broken()
    }
    async fn send_event(&self, _: &RunId, _: NewEvent) -> Result<EventSent, StoreError> {
        broken()
    }
    async fn request_run(&self, _: &RunId, _: RunRequest) -> Result<RunRequested, StoreError> {
        broken()
    }
    async fn register_build(&self, _: &BuildId, _: &[RunPlace]) -> Result<u64, StoreError> {
        broken()
    }
    async fn send_posts(&self, _: u32) -> Result<u64, StoreError> {
        broken()
    }
    async fn fire_runs(&self, _: u32) -> Result<FiredRuns, StoreError> {
        broken()
    }
    async fn run(&self, _: &RunId) -> Result<Option<RunView>, StoreError> {
        broken()
    }
    async fn journal(&self, _: &RunId, _: u64, _: usize) -> Result<Vec<JournalEntry>, StoreError> {
        broken()
    }
    async fn facts(&self, _: &RunId, _: u64) -> Result<Vec<Fact>, StoreError> {
        broken()
    }
    async fn published(&self, _: &RunId) -> Result<Vec<(Arc<str>, Payload)>, StoreError> {
        broken()
    }
    async fn run_closed(&self, _: &RunId, _: Duration) -> Result<(), StoreError> {
        broken()
    }
    async fn runs_notified(&self, _: &WorkerId, _: Duration) -> Result<Vec<RunId>, StoreError> {
        broken()
    }
    async fn run_referenced(&self, _: &WorkflowName, _: &Reference) -> Result<Option<RunId>, StoreError> {
        broken()
    }
    async fn runs(&self, _: &RunFilter, _: RunPageRequest) -> Result<RunPage, StoreError> {
        broken()
    }
    async fn run_places(&self) -> Result<Vec<RunPlaceView>, StoreError> {
        broken()
    }
}
