//! Runs of workflows: the header decides, in Rust; one script compares it and writes header and rows (decision 050).
//!
//! | file | what it does |
//! |---|---|
//! | `keys` | every key of runs, built in one place |
//! | `places` | which places are known, and where a run is |
//! | `rows` | rows of a run to text and back |
//! | `scripts` | the Lua files of `lua/runs` |
//! | `moves`, `change` | what is asked of a run; what one script writes for all moves of a run that go together |
//! | `put`, `remembered` | load, decide, compare and apply; what needs not be loaded |
//! | `start` | starts, and references |
//! | `claim` | claims, take-overs, renewals, builds |
//! | `timers`, `posts` | timers that are due; what is told to runs of other slots |
//! | `read`, `lists` | reads of one run, and of many |
//! | `listen` | waiting for an end, and for facts |
//! | `repair` | ready runs that no worker could get |

mod change;
mod claim;
pub(crate) mod keys;
mod listen;
mod lists;
mod moves;
mod places;
mod posts;
mod put;
mod read;
mod remembered;
mod repair;
mod rows;
mod scripts;
mod start;
mod timers;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use towpath_core::lock::Fence;
use towpath_core::names::{BuildId, Reference, WorkerId, WorkflowName};
use towpath_core::payload::Payload;
use towpath_core::run::{Commit, Fact, FactKind, RunCommand, RunId, RunPlace, RunReply};
use towpath_core::store::{
    ClaimRuns, ClaimedRun, EventSent, FiredRuns, JournalEntry, NewEvent, RunCommitted, RunFilter, RunPage, RunPageRequest, RunPlaceView,
    RunRenewal, RunRequest, RunRequested, RunStore, RunView, StartRun, Started, StoreError, TakeOverRuns, TakenOver, end_without_code,
};

use crate::store::RedisStore;
use moves::What;
pub(crate) use places::Runs;

impl RedisStore {
    async fn commit_to_run(&self, run_id: &RunId, commit: Commit) -> Result<RunCommitted, StoreError> {
        let seen = commit.seen;
        Ok(match self.put_to(run_id, What::Commit(Box::new(commit))).await?.reply() {
            Some(RunReply::Committed(committed)) => {
                let facts = if committed.has_facts { self.facts_after(run_id, seen).await? } else { Vec::new() };
                RunCommitted::Committed { committed, facts }
            }
            Some(RunReply::Stale { revision }) => RunCommitted::Stale { revision },
            Some(RunReply::HistoryFull) => RunCommitted::HistoryFull,
            Some(RunReply::WaitSetTooLarge) => RunCommitted::WaitSetTooLarge,
            Some(RunReply::NothingToWaitFor) => RunCommitted::NothingToWaitFor,
            _lost => RunCommitted::Lost,
        })
    }

    async fn send_to_run(&self, run_id: &RunId, event: NewEvent) -> Result<EventSent, StoreError> {
        Ok(match self.put_to(run_id, What::Send(event)).await?.reply() {
            Some(RunReply::Accepted { number }) => EventSent::Accepted { number },
            Some(RunReply::Duplicate { number }) => EventSent::Duplicate { number },
            Some(RunReply::MailboxFull) => EventSent::MailboxFull,
            Some(RunReply::Closed(state)) => EventSent::Closed(state),
            _other => EventSent::NotFound,
        })
    }
}

/// The move of a request.
fn request_of(request: RunRequest) -> What {
    let (command, fact) = match request {
        RunRequest::Cancel { reason } => {
            let entry = end_without_code("cancelled", &reason);
            (RunCommand::Cancel { entry }, Some(FactKind::Cancel { reason }))
        }
        RunRequest::Terminate { reason } => (RunCommand::Terminate { entry: end_without_code("terminated", &reason) }, None),
        RunRequest::Pause => (RunCommand::Pause, None),
        RunRequest::Resume => (RunCommand::Resume, None),
    };
    What::Plain { command, fact }
}

#[async_trait]
impl RunStore for RedisStore {
    async fn start_run(&self, start: StartRun) -> Result<Started, StoreError> {
        self.begin_run(start).await
    }

    async fn claim_runs(&self, want: ClaimRuns) -> Result<Vec<ClaimedRun>, StoreError> {
        self.claim_ready_runs(&want).await
    }

    async fn take_over_runs(&self, want: TakeOverRuns) -> Result<TakenOver, StoreError> {
        self.take_over_silent(&want).await
    }

    async fn renew_runs(&self, owner: &WorkerId, claims: Vec<(RunId, Fence)>) -> Result<Vec<RunRenewal>, StoreError> {
        self.renew_run_claims(owner, claims).await
    }

    async fn commit_run(&self, run_id: &RunId, commit: Commit) -> Result<RunCommitted, StoreError> {
        self.commit_to_run(run_id, commit).await
    }

    async fn send_event(&self, run_id: &RunId, event: NewEvent) -> Result<EventSent, StoreError> {
        self.shared.guarantee.admit()?;
        self.send_to_run(run_id, event).await
    }

    async fn request_run(&self, run_id: &RunId, request: RunRequest) -> Result<RunRequested, StoreError> {
        Ok(match self.put_to(run_id, request_of(request)).await?.reply() {
            Some(RunReply::Done(state)) => RunRequested::Done(state),
            Some(RunReply::Closed(state)) => RunRequested::Closed(state),
            _other => RunRequested::NotFound,
        })
    }

    async fn register_build(&self, build: &BuildId, places: &[RunPlace]) -> Result<u64, StoreError> {
        self.build_registered(build, places).await
    }

    async fn send_posts(&self, limit: u32) -> Result<u64, StoreError> {
        self.send_due_posts(limit).await
    }

    async fn fire_runs(&self, limit: u32) -> Result<FiredRuns, StoreError> {
        self.fire_run_timers(limit).await
    }

    async fn run(&self, run_id: &RunId) -> Result<Option<RunView>, StoreError> {
        self.view_run(run_id).await
    }

    async fn journal(&self, run_id: &RunId, from: u64, bytes_max: usize) -> Result<Vec<JournalEntry>, StoreError> {
        self.journal_from(run_id, from, bytes_max).await
    }

    async fn facts(&self, run_id: &RunId, after: u64) -> Result<Vec<Fact>, StoreError> {
        self.facts_after(run_id, after).await
    }

    async fn published(&self, run_id: &RunId) -> Result<Vec<(Arc<str>, Payload)>, StoreError> {
        self.published_values(run_id).await
    }

    async fn run_closed(&self, run_id: &RunId, wait: Duration) -> Result<(), StoreError> {
        self.wait_for_close(run_id, wait).await
    }

    async fn runs_notified(&self, owner: &WorkerId, wait: Duration) -> Result<Vec<RunId>, StoreError> {
        Ok(self.wait_for_notified(owner, wait).await)
    }

    async fn run_referenced(&self, workflow: &WorkflowName, reference: &Reference) -> Result<Option<RunId>, StoreError> {
        self.find_referenced(workflow, reference).await
    }

    async fn runs(&self, filter: &RunFilter, page: RunPageRequest) -> Result<RunPage, StoreError> {
        self.page_of_runs(filter, page).await
    }

    async fn run_places(&self) -> Result<Vec<RunPlaceView>, StoreError> {
        self.views_of_places().await
    }
}
