//! The store's moves of runs, handed to the writer; what is only read, to the reader.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use towpath_core::lock::Fence;
use towpath_core::names::{BuildId, Reference, WorkerId, WorkflowName};
use towpath_core::payload::Payload;
use towpath_core::run::{Commit, Fact, RunId, RunPlace};
use towpath_core::store::{
    ClaimRuns, ClaimedRun, EventSent, FiredRuns, JournalEntry, NewEvent, RunCommitted, RunFilter, RunPage, RunPageRequest, RunPlaceView,
    RunRenewal, RunRequest, RunRequested, RunStore, RunView, StartRun, Started, StoreError, TakeOverRuns, TakenOver,
};

use super::{claims, lists, posts, rows, timers};
use crate::store::SqliteStore;
use crate::trouble::Moved;

impl SqliteStore {
    /// Reads rows of a run. There are none once its retention is over, whether or not they are still in the file.
    async fn read_kept<T: Send + 'static>(
        &self,
        run_id: &RunId,
        mut read: impl FnMut(&Connection, &RunId) -> Moved<Vec<T>> + Send + 'static,
    ) -> Result<Vec<T>, StoreError> {
        let (run_id, now) = (run_id.clone(), self.clock.now());
        self.read(move |conn| match rows::load(conn, &run_id)? {
            Some(run) if !run.is_gone(now) => read(conn, &run_id),
            _gone => Ok(Vec::new()),
        })
        .await
    }
}

#[async_trait]
impl RunStore for SqliteStore {
    async fn start_run(&self, start: StartRun) -> Result<Started, StoreError> {
        let durability = self.durability;
        self.make(move |tx| super::start(tx, &start, durability)).await
    }

    async fn claim_runs(&self, want: ClaimRuns) -> Result<Vec<ClaimedRun>, StoreError> {
        let until = self.clock.now() + want.wait;
        // Listening begins before the look: a run that is queued between the two is heard of.
        let queued = self.ears.runs.listen_for_queued(&want.places);
        loop {
            let asked = want.clone();
            let claimed = self.make(move |tx| claims::claim(tx, &asked)).await?;
            if !claimed.is_empty() || self.clock.now() >= until {
                return Ok(claimed);
            }
            tokio::select! {
                () = queued.heard() => {}
                () = self.clock.sleep_until(until) => {}
            }
        }
    }

    async fn take_over_runs(&self, want: TakeOverRuns) -> Result<TakenOver, StoreError> {
        self.make(move |tx| claims::take_over(tx, &want)).await
    }

    async fn renew_runs(&self, owner: &WorkerId, claims: Vec<(RunId, Fence)>) -> Result<Vec<RunRenewal>, StoreError> {
        let owner = owner.clone();
        self.make(move |tx| claims::renew(tx, &owner, &claims)).await
    }

    async fn commit_run(&self, run_id: &RunId, commit: Commit) -> Result<RunCommitted, StoreError> {
        let run_id = run_id.clone();
        self.make(move |tx| super::commit(tx, &run_id, &commit)).await
    }

    async fn send_event(&self, run_id: &RunId, event: NewEvent) -> Result<EventSent, StoreError> {
        let run_id = run_id.clone();
        self.make(move |tx| super::send(tx, &run_id, &event)).await
    }

    async fn request_run(&self, run_id: &RunId, request: RunRequest) -> Result<RunRequested, StoreError> {
        let run_id = run_id.clone();
        self.make(move |tx| super::request(tx, &run_id, &request)).await
    }

    async fn register_build(&self, build: &BuildId, places: &[RunPlace]) -> Result<u64, StoreError> {
        let mut unblocked = 0;
        for place in places {
            // Some at a time: other moves go in between.
            let mut after = Some(String::new());
            while let Some(from) = after {
                let (build, place) = (build.clone(), place.clone());
                let (count, last) = self.make(move |tx| super::register_build(tx, &build, &place, &from)).await?;
                unblocked += count;
                after = last;
            }
        }
        Ok(unblocked)
    }

    async fn send_posts(&self, limit: u32) -> Result<u64, StoreError> {
        self.make(move |tx| posts::send(tx, limit)).await
    }

    async fn fire_runs(&self, limit: u32) -> Result<FiredRuns, StoreError> {
        self.make(move |tx| timers::fire(tx, limit)).await
    }

    async fn run(&self, run_id: &RunId) -> Result<Option<RunView>, StoreError> {
        let (run_id, now) = (run_id.clone(), self.clock.now());
        self.read(move |conn| {
            let Some(run) = rows::load(conn, &run_id)?.filter(|run| !run.is_gone(now)) else { return Ok(None) };
            let outcome = if run.state.is_closed() { rows::last_body(conn, &run_id)? } else { None };
            Ok(Some(RunView { run, reference: rows::reference(conn, &run_id)?, outcome }))
        })
        .await
    }

    async fn journal(&self, run_id: &RunId, from: u64, bytes_max: usize) -> Result<Vec<JournalEntry>, StoreError> {
        self.read_kept(run_id, move |conn, run_id| rows::journal(conn, run_id, from, bytes_max)).await
    }

    async fn facts(&self, run_id: &RunId, after: u64) -> Result<Vec<Fact>, StoreError> {
        self.read_kept(run_id, move |conn, run_id| rows::facts(conn, run_id, after)).await
    }

    async fn published(&self, run_id: &RunId) -> Result<Vec<(Arc<str>, Payload)>, StoreError> {
        self.read_kept(run_id, rows::published).await
    }

    async fn run_closed(&self, run_id: &RunId, wait: Duration) -> Result<(), StoreError> {
        let until = self.clock.now() + wait;
        // Listening begins before the look: an end between the two is heard.
        let closed = self.ears.runs.listen_for_close(run_id);
        if self.run(run_id).await?.is_some_and(|view| !view.run.state.is_closed()) {
            tokio::select! {
                () = closed.heard() => {}
                () = self.clock.sleep_until(until) => {}
            }
        }
        Ok(())
    }

    async fn runs_notified(&self, owner: &WorkerId, wait: Duration) -> Result<Vec<RunId>, StoreError> {
        let until = self.clock.now() + wait;
        loop {
            let now = self.clock.now();
            let (runs, more) = self.ears.runs.news_for(owner, now);
            if !runs.is_empty() || now >= until {
                return Ok(runs);
            }
            tokio::select! {
                () = more.notified() => {}
                () = self.clock.sleep_until(until) => {}
            }
        }
    }

    async fn run_referenced(&self, workflow: &WorkflowName, reference: &Reference) -> Result<Option<RunId>, StoreError> {
        let (workflow, reference, now) = (workflow.clone(), reference.clone(), self.clock.now());
        self.read(move |conn| {
            let Some(run_id) = rows::referenced(conn, &workflow, &reference)? else { return Ok(None) };
            Ok(rows::load(conn, &run_id)?.filter(|run| !run.is_gone(now)).map(|run| run.run_id))
        })
        .await
    }

    async fn runs(&self, filter: &RunFilter, page: RunPageRequest) -> Result<RunPage, StoreError> {
        let (filter, unreadable, now) = (filter.clone(), Arc::clone(&self.unreadable), self.clock.now());
        self.list(move |conn| lists::runs(conn, &filter, &page, now, &unreadable)).await
    }

    async fn run_places(&self) -> Result<Vec<RunPlaceView>, StoreError> {
        self.make(|tx| super::places(tx)).await
    }
}
