//! Runs with one bug: each flaw is a few lines in the move that it spoils.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use towpath_conformance::backend::{Backend, UnderTest};
use towpath_conformance::model::ModelStore;
use towpath_conformance::words::{event_name, worker_id};
use towpath_core::clock::Clock;
use towpath_core::lock::Fence;
use towpath_core::names::{BuildId, Reference, WorkerId, WorkflowName};
use towpath_core::payload::Payload;
use towpath_core::run::{Commit, Fact, RunId, RunPlace, Then};
use towpath_core::store::{
    ClaimRuns, ClaimedRun, EventSent, FiredRuns, JournalEntry, NewEvent, RunCommitted, RunFilter, RunPage, RunPageRequest, RunPlaceView,
    RunRenewal, RunRequest, RunRequested, RunStore, RunView, StartRun, Started, Store, StoreError, TakeOverRuns, TakenOver,
};

macro_rules! run_flaws {
    ($($flaw:ident),* $(,)?) => {
        /// What is wrong with the store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum RunFlaw { $($flaw),* }

        impl RunFlaw {
            pub(crate) const ALL: [Self; [$(Self::$flaw),*].len()] = [$(Self::$flaw),*];
        }
    };
}

run_flaws! {
    IgnoresTheEpoch,
    IgnoresTheRevision,
    DoublesARepeatedCommit,
    ForgetsWhatARunWaitsFor,
    WakesForAnyEvent,
    LosesAnEventAtParking,
    TakesAnEventTwice,
    ForgetsReferencesOfEvents,
    FiresAbandonedTimers,
    StartsDelayedRunsAtOnce,
    DropsPosts,
    RenewsNothing,
    PausesNothing,
    TellsNoOwner,
    RepeatsTheCursorsRun,
    IgnoresTheCause,
    CountsRunningRunsAsReady,
}

pub(crate) struct FlawedRunsBackend(pub(crate) Option<RunFlaw>);

#[async_trait]
impl Backend for FlawedRunsBackend {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        Box::new(FlawedRuns { inner: ModelStore::new(clock), flaw: self.0 })
    }
}

#[derive(Clone)]
struct FlawedRuns {
    inner: ModelStore,
    flaw: Option<RunFlaw>,
}

#[async_trait]
impl UnderTest for FlawedRuns {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.inner.clone())
    }

    async fn reopen(&mut self) {
        self.inner = self.inner.reopened();
    }

    fn runs(&self) -> Option<Arc<dyn RunStore>> {
        Some(Arc::new(self.clone()))
    }
}

impl FlawedRuns {
    fn has(&self, flaw: RunFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    async fn spoilt(&self, run_id: &RunId, mut commit: Commit) -> Result<Commit, StoreError> {
        let Some(RunView { run, .. }) = self.inner.run(run_id).await? else { return Ok(commit) };
        match self.flaw {
            Some(RunFlaw::IgnoresTheEpoch) => {
                commit.owner = run.owner.clone().unwrap_or(commit.owner);
                (commit.epoch, commit.revision) = (run.epoch, run.revision);
            }
            Some(RunFlaw::IgnoresTheRevision) => commit.revision = run.revision,
            Some(RunFlaw::DoublesARepeatedCommit) if run.last_commit.as_ref().is_some_and(|last| last.digest == commit.digest) => {
                commit.digest = Arc::from(format!("{} again", commit.digest));
                commit.revision = run.revision;
            }
            Some(RunFlaw::FiresAbandonedTimers) => commit.disarmed.clear(),
            Some(RunFlaw::DropsPosts) => commit.posts.clear(),
            Some(RunFlaw::LosesAnEventAtParking) => commit.seen = u64::MAX,
            _other => {}
        }
        if let Then::Park { wait } = &mut commit.then {
            if self.has(RunFlaw::ForgetsWhatARunWaitsFor) && !wait.events.is_empty() {
                wait.events = [event_name("nothing")].into();
            }
            if self.has(RunFlaw::WakesForAnyEvent) {
                wait.events.extend(["paid", "other", "refunded"].map(event_name));
            }
        }
        Ok(commit)
    }

    /// Says what a renewal would say, and renews nothing.
    async fn seem_to_renew(&self, owner: &WorkerId, run_id: &RunId, epoch: Fence) -> Result<RunRenewal, StoreError> {
        let run = self.inner.run(run_id).await?.map(|view| view.run).filter(|run| run.owner.as_ref() == Some(owner) && run.epoch == epoch);
        Ok(run.map_or(RunRenewal::Lost, |run| RunRenewal::Held {
            until: run.expires_at.unwrap_or(run.changed_at),
            facts: run.facts,
            cancel_requested: run.cancel_requested,
            paused: run.paused,
        }))
    }
}

#[async_trait]
impl RunStore for FlawedRuns {
    async fn start_run(&self, mut start: StartRun) -> Result<Started, StoreError> {
        if self.has(RunFlaw::StartsDelayedRunsAtOnce) {
            start.delay = Duration::ZERO;
        }
        self.inner.start_run(start).await
    }

    async fn claim_runs(&self, want: ClaimRuns) -> Result<Vec<ClaimedRun>, StoreError> {
        self.inner.claim_runs(want).await
    }

    async fn take_over_runs(&self, want: TakeOverRuns) -> Result<TakenOver, StoreError> {
        self.inner.take_over_runs(want).await
    }

    async fn renew_runs(&self, owner: &WorkerId, claims: Vec<(RunId, Fence)>) -> Result<Vec<RunRenewal>, StoreError> {
        if !self.has(RunFlaw::RenewsNothing) {
            return self.inner.renew_runs(owner, claims).await;
        }
        let mut renewals = Vec::new();
        for (run_id, epoch) in claims {
            renewals.push(self.seem_to_renew(owner, &run_id, epoch).await?);
        }
        Ok(renewals)
    }

    async fn commit_run(&self, run_id: &RunId, commit: Commit) -> Result<RunCommitted, StoreError> {
        self.inner.commit_run(run_id, self.spoilt(run_id, commit).await?).await
    }

    async fn send_event(&self, run_id: &RunId, mut event: NewEvent) -> Result<EventSent, StoreError> {
        if self.has(RunFlaw::ForgetsReferencesOfEvents) {
            event.reference = None;
        }
        let again = NewEvent { reference: None, ..event.clone() };
        let sent = self.inner.send_event(run_id, event).await?;
        if let (true, EventSent::Accepted { .. }) = (self.has(RunFlaw::TakesAnEventTwice), sent) {
            self.inner.send_event(run_id, again).await?;
        }
        Ok(sent)
    }

    async fn request_run(&self, run_id: &RunId, request: RunRequest) -> Result<RunRequested, StoreError> {
        if self.has(RunFlaw::PausesNothing)
            && request == RunRequest::Pause
            && let Some(view) = self.inner.run(run_id).await?.filter(|view| !view.run.state.is_closed())
        {
            return Ok(RunRequested::Done(view.run.state));
        }
        self.inner.request_run(run_id, request).await
    }

    async fn register_build(&self, build: &BuildId, places: &[RunPlace]) -> Result<u64, StoreError> {
        self.inner.register_build(build, places).await
    }

    async fn send_posts(&self, limit: u32) -> Result<u64, StoreError> {
        self.inner.send_posts(limit).await
    }

    async fn fire_runs(&self, limit: u32) -> Result<FiredRuns, StoreError> {
        self.inner.fire_runs(limit).await
    }

    async fn run(&self, run_id: &RunId) -> Result<Option<RunView>, StoreError> {
        self.inner.run(run_id).await
    }

    async fn journal(&self, run_id: &RunId, from: u64, bytes_max: usize) -> Result<Vec<JournalEntry>, StoreError> {
        self.inner.journal(run_id, from, bytes_max).await
    }

    async fn facts(&self, run_id: &RunId, after: u64) -> Result<Vec<Fact>, StoreError> {
        self.inner.facts(run_id, after).await
    }

    async fn published(&self, run_id: &RunId) -> Result<Vec<(Arc<str>, Payload)>, StoreError> {
        self.inner.published(run_id).await
    }

    async fn run_closed(&self, run_id: &RunId, wait: Duration) -> Result<(), StoreError> {
        self.inner.run_closed(run_id, wait).await
    }

    async fn runs_notified(&self, owner: &WorkerId, wait: Duration) -> Result<Vec<RunId>, StoreError> {
        let stranger = worker_id("stranger");
        self.inner.runs_notified(if self.has(RunFlaw::TellsNoOwner) { &stranger } else { owner }, wait).await
    }

    async fn run_referenced(&self, workflow: &WorkflowName, reference: &Reference) -> Result<Option<RunId>, StoreError> {
        self.inner.run_referenced(workflow, reference).await
    }

    async fn runs(&self, filter: &RunFilter, mut page: RunPageRequest) -> Result<RunPage, StoreError> {
        let mut filter = filter.clone();
        if self.has(RunFlaw::IgnoresTheCause) {
            filter.cause = None;
        }
        if self.has(RunFlaw::RepeatsTheCursorsRun) {
            page.after = page.after.map(|(at, run_id)| (at + Duration::from_millis(1), run_id));
        }
        self.inner.runs(&filter, page).await
    }

    async fn run_places(&self) -> Result<Vec<RunPlaceView>, StoreError> {
        use towpath_core::run::RunState::{Ready, Running};
        let mut places = self.inner.run_places().await?;
        for (state, _) in places.iter_mut().flat_map(|view| &mut view.counts) {
            *state = if self.has(RunFlaw::CountsRunningRunsAsReady) && *state == Running { Ready } else { *state };
        }
        Ok(places)
    }
}
