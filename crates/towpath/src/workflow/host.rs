//! What the loops and the runs of one worker share.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use towpath_core::clock::Clock;
use towpath_core::lock::Fence;
use towpath_core::names::{BuildId, Shard, WorkerId, WorkflowName, WorkflowVersion};
use towpath_core::payload::Payload;
use towpath_core::run::{BlockCause, Commit, Run, RunId, RunPlace, Then};
use towpath_core::store::{ClaimedRun, JournalEntry, RunStore, StoreError};
use towpath_core::time::Timestamp;

use super::code::Served;
use super::execution::Trouble;
use super::options::WorkflowOptions;
use super::recorded::Journal;
use super::runner::{Left, Runner};
use super::task::States;
use crate::Towpath;
use crate::engine::backoff::Backoff;

/// One read of a journal has about this many bytes.
const JOURNAL_PAGE: usize = 1024 * 1024;
/// A worker executes one run at a time of those that this many owners in a row fell silent with: such a run may be what kills them.
const SUSPECT_AFTER: u32 = 3;

/// What a run's executor is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// The run is not this worker's any more.
    pub(crate) is_lost: bool,
    /// A caller wants nothing started for it.
    pub(crate) is_paused: bool,
    /// The worker leaves: attempts may end, none begins.
    pub(crate) is_leaving: bool,
    /// The worker leaves now.
    pub(crate) must_leave: bool,
    /// The store has not answered for most of the idle time: another worker may take the run over.
    pub(crate) is_silent: bool,
    /// The number of the latest fact.
    pub(crate) facts: u64,
    /// Rises when there may be new facts.
    pub(crate) looks: u64,
}

/// Whether a run may be executed.
enum Turn {
    /// It may. A suspect holds this while it has made no progress.
    Now(Option<OwnedSemaphorePermit>),
    /// It is not this worker's any more.
    Lost,
    /// The worker leaves.
    Leaves,
}

/// A run that this worker executes.
struct Active {
    epoch: Fence,
    told: watch::Sender<Told>,
    task: Option<AbortHandle>,
}

/// What the loops and the runs of one worker share.
pub(crate) struct Host {
    pub(crate) towpath: Towpath,
    pub(crate) store: Arc<dyn RunStore>,
    pub(crate) worker_id: WorkerId,
    pub(crate) options: WorkflowOptions,
    pub(crate) build: BuildId,
    pub(crate) states: Arc<States>,
    pub(crate) places: Arc<[RunPlace]>,
    /// How long one request for runs waits.
    pub(crate) claim_wait: Duration,
    served: HashMap<(WorkflowName, WorkflowVersion), Arc<dyn Served>>,
    active: Mutex<HashMap<RunId, Active>>,
    /// A run has begun or ended here.
    pub(crate) changed: Notify,
    slots: Arc<Semaphore>,
    suspects: Arc<Semaphore>,
    digests: AtomicU64,
    /// Ends the loops that claim.
    pub(crate) leaving: CancellationToken,
}

/// What a host is made of.
pub(crate) struct HostParts {
    pub(crate) towpath: Towpath,
    pub(crate) store: Arc<dyn RunStore>,
    pub(crate) worker_id: WorkerId,
    pub(crate) options: WorkflowOptions,
    pub(crate) build: BuildId,
    pub(crate) states: States,
    pub(crate) claim_wait: Duration,
    pub(crate) shards: Vec<Shard>,
    pub(crate) served: HashMap<(WorkflowName, WorkflowVersion), Arc<dyn Served>>,
}

impl Host {
    pub(crate) fn new(parts: HostParts) -> Arc<Self> {
        let shards: Vec<Option<Shard>> = std::iter::once(None).chain(parts.shards.into_iter().map(Some)).collect();
        let mut places: Vec<RunPlace> = Vec::new();
        for (workflow, version) in parts.served.keys() {
            let place = |shard: &Option<Shard>| RunPlace { workflow: workflow.clone(), version: version.clone(), shard: shard.clone() };
            places.extend(shards.iter().map(place));
        }
        places.sort();
        Arc::new(Self {
            towpath: parts.towpath,
            store: parts.store,
            worker_id: parts.worker_id,
            slots: Arc::new(Semaphore::new(parts.options.max_concurrent_runs as usize)),
            options: parts.options,
            build: parts.build,
            states: Arc::new(parts.states),
            places: places.into(),
            claim_wait: parts.claim_wait,
            served: parts.served,
            active: Mutex::new(HashMap::new()),
            changed: Notify::new(),
            suspects: Arc::new(Semaphore::new(1)),
            digests: AtomicU64::new(0),
            leaving: CancellationToken::new(),
        })
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.towpath.clock()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// The code of a place, whatever its shard.
    pub(crate) fn served(&self, place: &RunPlace) -> Option<Arc<dyn Served>> {
        self.served.get(&(place.workflow.clone(), place.version.clone())).cloned()
    }

    /// What tells a commit from all others of this worker.
    pub(crate) fn next_digest(&self) -> Arc<str> {
        Arc::from(self.digests.fetch_add(1, Ordering::Relaxed).to_string())
    }

    fn active(&self) -> MutexGuard<'_, HashMap<RunId, Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many runs it executes.
    pub(crate) fn count(&self) -> usize {
        self.active().len()
    }

    /// The claims that it holds.
    pub(crate) fn claims(&self) -> Vec<(RunId, Fence)> {
        self.active().iter().map(|(run_id, active)| (run_id.clone(), active.epoch)).collect()
    }

    /// Tells the executor of a claim something. A later claim of the same run does not hear it.
    pub(crate) fn tell(&self, run_id: &RunId, epoch: Fence, change: impl FnOnce(&mut Told)) {
        if let Some(active) = self.active().get(run_id).filter(|active| active.epoch == epoch) {
            tell(active, change);
        }
    }

    /// Tells all executors something.
    pub(crate) fn tell_all(&self, change: impl Fn(&mut Told)) {
        self.active().values().for_each(|active| tell(active, &change));
    }

    /// The worker leaves: runs park, close or are released as soon as their attempts have ended.
    pub(crate) fn begin_to_leave(&self) {
        self.leaving.cancel();
        self.tell_all(|told| told.is_leaving = true);
    }

    /// Ends when no run is executed here.
    pub(crate) async fn all_left(&self) {
        loop {
            let changed = self.changed.notified();
            if self.count() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Ends all executors at once, as if the process had died.
    pub(crate) fn abort_all(&self) {
        for active in self.active().values() {
            active.task.iter().for_each(AbortHandle::abort);
        }
    }

    /// How many slots are free; waits for the first.
    pub(crate) async fn free_slots(&self) -> u32 {
        let first = self.slots.acquire().await.ok();
        let count = self.slots.available_permits().saturating_add(usize::from(first.is_some()));
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Executes claimed runs.
    pub(crate) fn start(self: &Arc<Self>, claimed: Vec<ClaimedRun>) {
        for claimed in claimed {
            let slot = Arc::clone(&self.slots).try_acquire_owned().ok();
            let (run_id, epoch) = (claimed.run.run_id.clone(), claimed.run.epoch);
            let mut active = self.active();
            // Under the lock: who begins to leave afterwards tells this one.
            let is_leaving = self.leaving.is_cancelled();
            let (told, hears) = watch::channel(Told { facts: claimed.run.facts, is_leaving, ..Told::default() });
            // What this worker has claimed anew is not its old claim's any more.
            if let Some(old) = active.insert(run_id.clone(), Active { epoch, told, task: None }) {
                tell(&old, |told| told.is_lost = true);
            }
            let host = Arc::clone(self);
            let task = tokio::spawn(async move {
                let ended = Leaving { host: Arc::clone(&host), run_id: claimed.run.run_id.clone(), epoch };
                host.execute(claimed, hears).await;
                drop((ended, slot));
            });
            if let Some(active) = active.get_mut(&run_id) {
                active.task = Some(task.abort_handle());
            }
            drop(active);
        }
        self.changed.notify_waiters();
    }

    async fn execute(self: &Arc<Self>, mut claimed: ClaimedRun, told: watch::Receiver<Told>) {
        let (run_id, epoch) = (claimed.run.run_id.clone(), claimed.run.epoch);
        loop {
            match self.execute_once(claimed, told.clone()).await {
                Ok(Left::Gone) => return,
                Ok(Left::Stale) => {}
                Err(error) => {
                    tracing::error!(run = %run_id, %error, "a run cannot be executed; another worker takes it over");
                    return;
                }
            }
            match self.claimed_again(&run_id, epoch).await {
                Some(again) => claimed = again,
                None => return,
            }
        }
    }

    async fn execute_once(self: &Arc<Self>, claimed: ClaimedRun, told: watch::Receiver<Told>) -> Result<Left, StoreError> {
        let run = claimed.run.clone();
        let alone = match self.turn(&run, told.clone()).await {
            Turn::Now(alone) => alone,
            Turn::Lost => return Ok(Left::Gone),
            Turn::Leaves => return self.let_go(&run, Vec::new(), Then::Release).await,
        };
        let entries = self.journal(&run).await?;
        let unreadable = |message| Trouble::new(BlockCause::Decode, message);
        let runner = Journal::read(&entries).map_err(unreadable).and_then(|journal| Runner::new(self, claimed, journal, told));
        match runner {
            Ok(runner) => runner.alone(alone).execute().await,
            Err(trouble) => self.refuse(&run, &trouble).await,
        }
    }

    /// Waits until a run may be executed: a suspect when no other one is.
    async fn turn(&self, run: &Run, mut told: watch::Receiver<Told>) -> Turn {
        if run.deliveries < SUSPECT_AFTER {
            return Turn::Now(None);
        }
        let is_lost = tokio::select! {
            biased;
            alone = Arc::clone(&self.suspects).acquire_owned() => return Turn::Now(alone.ok()),
            told = told.wait_for(|told| told.is_lost || told.is_leaving) => told.is_ok_and(|told| told.is_lost),
        };
        if is_lost { Turn::Lost } else { Turn::Leaves }
    }

    /// The run as the store has it now, if it is still this worker's.
    async fn claimed_again(&self, run_id: &RunId, epoch: Fence) -> Option<ClaimedRun> {
        let view = self.patiently("read a run", || self.store.run(run_id)).await.ok()??;
        let run = Some(view.run).filter(|run| run.epoch == epoch && run.owner.as_ref() == Some(&self.worker_id))?;
        let facts = self.patiently("read facts", || self.store.facts(run_id, 0)).await.ok()?;
        self.tell(run_id, epoch, |told| told.facts = told.facts.max(run.facts));
        Some(ClaimedRun { run, facts })
    }

    /// The whole journal of a run.
    pub(crate) async fn journal(&self, run: &Run) -> Result<Vec<JournalEntry>, StoreError> {
        let mut entries: Vec<JournalEntry> = Vec::new();
        while (entries.len() as u64) < run.entries {
            let from = entries.len() as u64;
            let page = self.patiently("read a journal", || self.store.journal(&run.run_id, from, JOURNAL_PAGE)).await?;
            if page.is_empty() {
                break;
            }
            entries.extend(page);
        }
        Ok(entries)
    }

    /// Blocks a run whose code could not even begin.
    async fn refuse(&self, run: &Run, trouble: &Trouble) -> Result<Left, StoreError> {
        tracing::warn!(run = %run.run_id, cause = %trouble.cause, "a run is blocked: {}", trouble.message);
        let (key, value, then) = self.blocked(trouble);
        self.let_go(run, vec![(key, value)], then).await
    }

    /// Lets go of a run that was not executed.
    async fn let_go(&self, run: &Run, published: Vec<(Arc<str>, Payload)>, then: Then) -> Result<Left, StoreError> {
        let commit = Commit {
            owner: self.worker_id.clone(),
            epoch: run.epoch,
            revision: run.revision,
            digest: self.next_digest(),
            entries: Vec::new(),
            consumed: Vec::new(),
            seen: 0,
            armed: Vec::new(),
            disarmed: Vec::new(),
            children: Vec::new(),
            posts: Vec::new(),
            published,
            then,
        };
        self.patiently("let go of a run", || self.store.commit_run(&run.run_id, commit.clone())).await?;
        Ok(Left::Gone)
    }

    /// Repeats a move while the store is in trouble. Every move here may be repeated as it is.
    pub(crate) async fn patiently<T, F>(&self, purpose: &'static str, mut attempt: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut backoff = Backoff::new(self.clock(), purpose);
        loop {
            match attempt().await {
                Ok(reply) => return Ok(reply),
                Err(error @ StoreError::Corrupt(_)) => return Err(error),
                Err(error) => backoff.failed(error).await?,
            }
        }
    }
}

fn tell(active: &Active, change: impl FnOnce(&mut Told)) {
    active.told.send_if_modified(|told| {
        let before = *told;
        change(told);
        *told != before
    });
}

/// Takes a run off the list when its executor ends, however it does.
struct Leaving {
    host: Arc<Host>,
    run_id: RunId,
    epoch: Fence,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut active = self.host.active();
        if active.get(&self.run_id).is_some_and(|active| active.epoch == self.epoch) {
            active.remove(&self.run_id);
        }
        drop(active);
        self.host.changed.notify_waiters();
    }
}
