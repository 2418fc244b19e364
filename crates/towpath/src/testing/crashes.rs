//! Workers that crash on command: from a chosen commit on, the store never answers them again.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// When the worker that makes a commit crashes. Commits are counted over all workers, from now on; 1 is the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashAt {
    /// Before the store has this commit.
    BeforeCommit(u64),
    /// After the store has this commit, and before the worker knows.
    AfterCommit(u64),
    /// The worker lives on, and the reply to this commit is lost.
    LostReply(u64),
    /// The worker lives on, and the store refuses this commit because it has another revision, as after a restore: the worker reads the journal
    /// again.
    Stale(u64),
}

/// A store of runs that workers crash at.
pub(crate) struct CrashingRuns {
    store: Arc<dyn RunStore>,
    plan: Mutex<Plan>,
    /// Reads that have no reply yet. A store in a file makes them beside its other moves.
    reads: AtomicUsize,
}

#[derive(Default)]
struct Plan {
    commits: u64,
    at: Option<CrashAt>,
    crashed: HashSet<WorkerId>,
    runs: BTreeSet<RunId>,
}

impl std::fmt::Debug for CrashingRuns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CrashingRuns").field("commits", &self.commits()).finish_non_exhaustive()
    }
}

/// What becomes of a commit.
enum Fate {
    Counts,
    CrashesBefore,
    CrashesAfter,
    LosesReply,
    IsStale,
}

impl CrashingRuns {
    pub(crate) fn new(store: Arc<dyn RunStore>) -> Self {
        Self { store, plan: Mutex::default(), reads: AtomicUsize::new(0) }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn crash_at(&self, at: CrashAt) {
        let mut plan = self.plan();
        (plan.commits, plan.at) = (0, Some(at));
    }

    pub(crate) fn commits(&self) -> u64 {
        self.plan().commits
    }

    pub(crate) fn runs(&self) -> Vec<RunId> {
        self.plan().runs.iter().cloned().collect()
    }

    /// Whether a read has no reply yet.
    pub(crate) fn is_reading(&self) -> bool {
        self.reads.load(Ordering::Acquire) > 0
    }

    async fn read<T>(&self, reply: impl Future<Output = T>) -> T {
        /// Counts down when the read has ended or was dropped.
        struct Reading<'a>(&'a AtomicUsize);
        impl Drop for Reading<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.reads.fetch_add(1, Ordering::AcqRel);
        let _reading = Reading(&self.reads);
        reply.await
    }

    fn fate(&self, commit: &Commit) -> Fate {
        let mut plan = self.plan();
        plan.commits += 1;
        plan.runs.extend(commit.children.iter().map(|child| child.run_id.clone()));
        let number = plan.commits;
        let fate = match plan.at {
            Some(CrashAt::BeforeCommit(at)) if at == number => Fate::CrashesBefore,
            Some(CrashAt::AfterCommit(at)) if at == number => Fate::CrashesAfter,
            Some(CrashAt::LostReply(at)) if at == number => Fate::LosesReply,
            Some(CrashAt::Stale(at)) if at == number => Fate::IsStale,
            _other => return Fate::Counts,
        };
        plan.at = None;
        if matches!(fate, Fate::CrashesBefore | Fate::CrashesAfter) {
            plan.crashed.insert(commit.owner.clone());
        }
        fate
    }

    /// A worker that has crashed hears nothing more.
    async fn unless_crashed<T>(&self, worker: &WorkerId, reply: impl Future<Output = T>) -> T {
        if self.plan().crashed.contains(worker) {
            std::future::pending::<()>().await;
        }
        reply.await
    }
}

#[async_trait]
impl RunStore for CrashingRuns {
    async fn start_run(&self, start: StartRun) -> Result<Started, StoreError> {
        self.plan().runs.insert(start.run_id.clone());
        self.store.start_run(start).await
    }

    async fn claim_runs(&self, want: ClaimRuns) -> Result<Vec<ClaimedRun>, StoreError> {
        let worker = want.worker.clone();
        self.unless_crashed(&worker, self.store.claim_runs(want)).await
    }

    async fn take_over_runs(&self, want: TakeOverRuns) -> Result<TakenOver, StoreError> {
        let worker = want.worker.clone();
        self.unless_crashed(&worker, self.store.take_over_runs(want)).await
    }

    async fn renew_runs(&self, owner: &WorkerId, claims: Vec<(RunId, Fence)>) -> Result<Vec<RunRenewal>, StoreError> {
        self.unless_crashed(owner, self.store.renew_runs(owner, claims)).await
    }

    async fn commit_run(&self, run_id: &RunId, commit: Commit) -> Result<RunCommitted, StoreError> {
        let owner = commit.owner.clone();
        self.unless_crashed(&owner, async { self.commit(run_id, commit).await }).await
    }

    async fn send_event(&self, run_id: &RunId, event: NewEvent) -> Result<EventSent, StoreError> {
        self.store.send_event(run_id, event).await
    }

    async fn request_run(&self, run_id: &RunId, request: RunRequest) -> Result<RunRequested, StoreError> {
        self.store.request_run(run_id, request).await
    }

    async fn register_build(&self, build: &BuildId, places: &[RunPlace]) -> Result<u64, StoreError> {
        self.store.register_build(build, places).await
    }

    async fn send_posts(&self, limit: u32) -> Result<u64, StoreError> {
        self.store.send_posts(limit).await
    }

    async fn fire_runs(&self, limit: u32) -> Result<FiredRuns, StoreError> {
        self.store.fire_runs(limit).await
    }

    async fn run(&self, run_id: &RunId) -> Result<Option<RunView>, StoreError> {
        self.read(self.store.run(run_id)).await
    }

    async fn journal(&self, run_id: &RunId, from: u64, bytes_max: usize) -> Result<Vec<JournalEntry>, StoreError> {
        self.read(self.store.journal(run_id, from, bytes_max)).await
    }

    async fn facts(&self, run_id: &RunId, after: u64) -> Result<Vec<Fact>, StoreError> {
        self.read(self.store.facts(run_id, after)).await
    }

    async fn published(&self, run_id: &RunId) -> Result<Vec<(Arc<str>, Payload)>, StoreError> {
        self.read(self.store.published(run_id)).await
    }

    async fn run_closed(&self, run_id: &RunId, wait: Duration) -> Result<(), StoreError> {
        self.store.run_closed(run_id, wait).await
    }

    async fn runs_notified(&self, owner: &WorkerId, wait: Duration) -> Result<Vec<RunId>, StoreError> {
        self.unless_crashed(owner, self.store.runs_notified(owner, wait)).await
    }

    async fn run_referenced(&self, workflow: &WorkflowName, reference: &Reference) -> Result<Option<RunId>, StoreError> {
        self.store.run_referenced(workflow, reference).await
    }

    async fn runs(&self, filter: &RunFilter, page: RunPageRequest) -> Result<RunPage, StoreError> {
        self.store.runs(filter, page).await
    }

    async fn run_places(&self) -> Result<Vec<RunPlaceView>, StoreError> {
        self.store.run_places().await
    }
}

impl CrashingRuns {
    async fn commit(&self, run_id: &RunId, commit: Commit) -> Result<RunCommitted, StoreError> {
        match self.fate(&commit) {
            Fate::Counts => self.store.commit_run(run_id, commit).await,
            Fate::CrashesBefore => std::future::pending().await,
            Fate::IsStale => Ok(RunCommitted::Stale { revision: commit.revision }),
            Fate::CrashesAfter => {
                self.store.commit_run(run_id, commit).await?;
                std::future::pending().await
            }
            Fate::LosesReply => {
                self.store.commit_run(run_id, commit).await?;
                Err(StoreError::Unknown("the test lost the reply".to_owned()))
            }
        }
    }
}
