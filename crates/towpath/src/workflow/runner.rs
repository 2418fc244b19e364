//! Executes one claimed run: shows results to its code, starts its tasks, and commits what it comes to.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, watch};
use towpath_core::lock::Fence;
use towpath_core::run::{BlockCause, FactKind, RunId, StepId, Then, WaitSet};
use towpath_core::store::{ClaimedRun, StoreError};
use towpath_core::time::Timestamp;

use super::attempts::{Attempts, Ended};
use super::batch::{Batch, armed};
use super::execution::{Step, Trouble};
use super::host::{Host, Told};
use super::inbox::Inbox;
use super::recorded::Journal;
use super::replay::Progress;

/// A task that runs longer than this is opened in the journal before it ends.
const LAZY: Duration = Duration::from_millis(20);

/// How the execution of a claim ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The run is not this worker's any more: parked, closed, released, blocked or lost.
    Gone,
    /// The store has another revision: the journal must be read again.
    Stale,
}

/// The execution of one claim.
pub(crate) struct Runner {
    pub(super) host: Arc<Host>,
    pub(super) run_id: RunId,
    pub(super) epoch: Fence,
    pub(super) revision: u64,
    pub(super) told: watch::Receiver<Told>,
    pub(super) progress: Progress,
    pub(super) attempts: Attempts,
    pub(super) inbox: Inbox,
    /// Steps whose timers are armed in the store.
    pub(super) armed: HashSet<StepId>,
    /// Timers of steps that the code has dropped.
    pub(super) disarm: Vec<StepId>,
    /// Attempts that have ended, and are not in the journal yet.
    pub(super) ended: Vec<Ended>,
    /// When the next attempt of a step begins that fails and backs off for a moment only.
    pub(super) again_at: HashMap<StepId, Timestamp>,
    /// Facts that ended a back-off. They leave the inbox with the next result of their step.
    pub(super) back_off_facts: HashMap<StepId, u64>,
    /// Since when a task runs that the journal does not have.
    pub(super) lazy_since: Option<Timestamp>,
    /// A task has used up its attempts.
    pub(super) exhausted: Option<Trouble>,
    /// Since when the run only waits.
    pub(super) idle_since: Option<Timestamp>,
    /// How often this worker was told to look into the inbox.
    looks: u64,
    /// How much the journal has.
    pub(super) entries: u64,
    pub(super) bytes: u64,
    /// When the latest entry was written, as the store says it.
    pub(super) last_at: Timestamp,
    /// Held while no other suspect may be executed here, until the run makes progress.
    pub(super) alone: Option<OwnedSemaphorePermit>,
}

/// What to do after a look at the run.
enum Next {
    /// Commit this.
    Commit(Batch, Then),
    /// Block the run, with what has come so far.
    Block(Batch, Trouble),
    /// Wait until something happens, or until this instant.
    Wait(Option<Timestamp>),
}

impl Runner {
    /// Replays the journal of a claimed run.
    pub(crate) fn new(host: &Arc<Host>, claimed: ClaimedRun, journal: Journal, told: watch::Receiver<Told>) -> Result<Self, Trouble> {
        let ClaimedRun { run, facts } = claimed;
        let unserved = || Trouble::new(BlockCause::Decode, "this worker does not serve the workflow of the run");
        let served = host.served(&run.place).ok_or_else(unserved)?;
        let (entries, bytes, last_at) = (journal.entries, journal.bytes, journal.last_at);
        let progress = Progress::replay(served.as_ref(), &run, journal)?;
        let mut runner = Self {
            host: Arc::clone(host),
            run_id: run.run_id.clone(),
            epoch: run.epoch,
            revision: run.revision,
            told,
            progress,
            attempts: Attempts::new(),
            inbox: Inbox::of(&run, facts),
            armed: armed(&run),
            disarm: Vec::new(),
            ended: Vec::new(),
            again_at: HashMap::new(),
            back_off_facts: HashMap::new(),
            lazy_since: None,
            exhausted: None,
            idle_since: None,
            looks: 0,
            entries,
            bytes,
            last_at,
            alone: None,
        };
        runner.find_unknown_outcomes();
        Ok(runner)
    }

    /// The same, while no other suspect is executed here.
    pub(crate) fn alone(self, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self { alone: permit, ..self }
    }

    /// Executes the run until it leaves this worker.
    pub(crate) async fn execute(mut self) -> Result<Left, StoreError> {
        if self.inbox.seen() < self.told.borrow().facts {
            self.read_facts().await?;
        }
        loop {
            let (is_lost, must_leave) = {
                let told = self.told.borrow();
                (told.is_lost, told.must_leave)
            };
            if is_lost || must_leave {
                self.attempts.abort_all();
            }
            if is_lost {
                return Ok(Left::Gone);
            }
            self.forget_dropped();
            let trouble = self.progress.execution.lock().trouble.take();
            if let Some(trouble) = trouble {
                return self.block(Batch::default(), trouble).await;
            }
            if let Some(result) = self.progress.returned.take() {
                return self.close(result).await;
            }
            match self.next() {
                Next::Commit(batch, then) => {
                    if let Some(left) = self.commit(batch, then).await? {
                        return Ok(left);
                    }
                }
                Next::Block(batch, trouble) => return self.block(batch, trouble).await,
                Next::Wait(until) => self.wait(until).await?,
            }
        }
    }

    /// Decides what to do now that the code makes no more progress.
    fn next(&mut self) -> Next {
        let (holds_back, now) = (self.holds_back(), self.host.now());
        self.again_at.retain(|_, at| *at > now);
        let execution = Arc::clone(&self.progress.execution);
        let mut state = execution.lock();
        if !state.pending.values().any(|id| state.steps.get(id).is_some_and(Step::is_awaited)) {
            drop(state);
            return Next::Block(Batch::default(), self.progress.foreign("nothing that it waits for can end"));
        }
        let mut batch = Batch::default();
        if batch.take_many_commands(&execution, &mut state) {
            batch.finish_sends(&state);
            return Next::Commit(batch, Then::Stay);
        }
        let mut results = Batch::default();
        self.take_results(&mut results, &mut state);
        let is_lazy_over = self.lazy_since.is_some_and(|since| now >= since + LAZY);
        if is_lazy_over || results.has_results() || state.fresh.iter().any(|command| !state.is_lazy(command)) {
            batch.take_commands(&execution, &mut state);
        }
        if !holds_back && self.exhausted.is_none() {
            self.begin_once(&mut batch, &state);
        }
        batch.append(results);
        batch.finish_sends(&state);
        if let Some(trouble) = self.exhausted.take() {
            return Next::Block(batch, trouble);
        }
        if !batch.entries.is_empty() {
            return Next::Commit(batch, Then::Stay);
        }
        if !self.told.borrow().must_leave {
            self.launch(&state, now, holds_back);
        }
        if holds_back && self.attempts.is_empty() && self.has_work(&state) {
            batch.take_commands(&execution, &mut state);
            return Next::Commit(batch, Then::Release);
        }
        let wait = self.wait_set(&state);
        drop(state);
        self.rest(wait, now, holds_back)
    }

    /// Waits, or parks the run if it has waited for long enough.
    fn rest(&mut self, wait: Option<WaitSet>, now: Timestamp, holds_back: bool) -> Next {
        let lazy_until = self.lazy_since.map(|since| since + LAZY);
        let again_at = self.again_at.values().min().copied().filter(|_| !holds_back);
        let until = [lazy_until, again_at].into_iter().flatten().min();
        let is_idle = self.attempts.is_empty() && until.is_none();
        let Some(wait) = wait.filter(|_| is_idle) else {
            self.idle_since = None;
            return Next::Wait(until);
        };
        let park_at = *self.idle_since.get_or_insert(now) + self.host.options.linger;
        if holds_back || now >= park_at {
            return Next::Commit(Batch::default(), Then::Park { wait });
        }
        Next::Wait(Some(park_at))
    }

    /// Waits for an attempt to end, for a word from the host, or until this instant.
    async fn wait(&mut self, until: Option<Timestamp>) -> Result<(), StoreError> {
        let clock = Arc::clone(self.host.clock());
        let sleep = async {
            match until {
                Some(until) => clock.sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // The host ends all its runs before it goes.
            _changed = self.told.changed() => {}
            ended = self.attempts.next() => self.ended.push(ended),
            () = self.progress.poller.woken_by_others() => {
                let trouble = self.progress.foreign("it was woken by something that is not one");
                self.progress.execution.fail(trouble);
            }
            () = sleep => {}
        }
        while let Some(ended) = self.attempts.next_now() {
            self.ended.push(ended);
        }
        let (looks, facts) = {
            let told = self.told.borrow_and_update();
            (told.looks, told.facts)
        };
        if looks != self.looks || facts > self.inbox.seen() {
            self.looks = looks;
            self.read_facts().await?;
        }
        Ok(())
    }

    /// Reads the facts that came since the last look.
    pub(super) async fn read_facts(&mut self) -> Result<(), StoreError> {
        let known = self.told.borrow().facts;
        loop {
            let after = self.inbox.seen();
            let page = self.host.patiently("read facts", || self.host.store.facts(&self.run_id, after)).await?;
            if !self.inbox.add(page) {
                break;
            }
        }
        self.inbox.note_seen(known);
        self.note_due();
        Ok(())
    }

    /// Timers that were fired are not armed any more.
    pub(super) fn note_due(&mut self) {
        for (_, kind) in self.inbox.facts() {
            if let FactKind::TimerDue(step) = kind {
                self.armed.remove(step);
            }
        }
    }

    /// Whether no new attempt may begin.
    fn holds_back(&self) -> bool {
        let told = self.told.borrow();
        told.is_paused || told.is_leaving || told.is_silent
    }

    /// Stops attempts of steps that the code has dropped, and disarms their timers with the next commit.
    fn forget_dropped(&mut self) {
        let dropped = std::mem::take(&mut self.progress.execution.lock().dropped);
        for id in dropped {
            self.attempts.stop(&id);
            self.again_at.remove(&id);
            if let Some(number) = self.back_off_facts.remove(&id) {
                self.inbox.discard(number);
            }
            if self.armed.remove(&id) {
                self.disarm.push(id);
            }
        }
    }
}
