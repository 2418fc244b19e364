//! What a runner does with its tasks: starts their attempts, and turns their ends into entries.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use towpath_core::call::{Failure, RetryPolicy};
use towpath_core::names::CallId;
use towpath_core::run::{BlockCause, EntryKind, Group, StepId, StepKind, TimerAt, WaitSet};
use towpath_core::time::{Timestamp, millis};

use super::attempts::{End, Ended, Work};
use super::batch::Batch;
use super::body::{Attempt, Done};
use super::execution::{Standing, State, Step, Trouble};
use super::runner::Runner;
use super::task::{ATTEMPT_DEFAULT, TaskAttempt, TaskContext, retry_default};
use crate::error::HandlerError;

impl Runner {
    /// Attempts that must run at most once and of which another worker has not said how they ended.
    pub(super) fn find_unknown_outcomes(&mut self) {
        let state = self.progress.execution.lock();
        for id in state.pending.values() {
            if state.steps.get(id).is_some_and(|step| step.open.once && step.started > step.attempts) {
                self.ended.push(Ended { step: id.clone(), end: End::Unknown });
            }
        }
    }

    /// Takes results: facts first, then attempts that have ended.
    pub(super) fn take_results(&mut self, batch: &mut Batch, state: &mut State) {
        for (step, number) in batch.use_facts(state, &mut self.inbox) {
            self.back_off_facts.insert(step, number);
        }
        let mut left = Vec::new();
        for ended in std::mem::take(&mut self.ended) {
            if batch.has_room() { self.take_end(batch, state, ended) } else { left.push(ended) }
        }
        self.ended = left;
    }

    fn take_end(&mut self, batch: &mut Batch, state: &mut State, Ended { step: id, end }: Ended) {
        batch.consumed.extend(self.back_off_facts.remove(&id));
        if !batch.wants(state, &id) {
            return;
        }
        let Some(step) = state.steps.get_mut(&id) else { return };
        let unknown = || Failure::new("unknown_outcome", "it is not known how the attempt ended, and the task runs at most once");
        let failed = |failure: Failure| if step.open.once { Err(unknown()) } else { Ok((failure, None)) };
        let again = match end {
            End::Returned(Ok(value)) => return batch.done(id, &Done::ok(value)),
            End::Returned(Err(HandlerError::Retryable { failure, retry_after })) => Ok((failure, retry_after)),
            End::Returned(Err(HandlerError::Final { failure })) => Err(failure),
            End::Returned(Err(HandlerError::Cancelled)) => Err(Failure::new("cancelled", "the task stopped by itself")),
            End::Panicked(message) => failed(Failure::new("task_panicked", format!("the task panicked: {message}"))),
            End::TimedOut => failed(Failure::new("timed_out", "the attempt took longer than it may")),
            End::LostLock => failed(Failure::new("lock_lost", "the attempt has lost its lock")),
            End::Unknown => Err(unknown()),
        };
        match again {
            Ok((failure, retry_after)) => self.fail_attempt(batch, id, step, &failure, retry_after),
            Err(failure) => batch.done(id, &Done::err(&failure)),
        }
    }

    /// An attempt failed: another one begins later, unless it was the last.
    fn fail_attempt(&mut self, batch: &mut Batch, id: StepId, step: &mut Step, failure: &Failure, retry_after: Option<Duration>) {
        let policy = step.open.retry.clone().unwrap_or_else(retry_default);
        let number = step.attempts + 1;
        let is_last = number >= policy.max_attempts;
        if is_last && step.open.retry.is_some() {
            return batch.done(id, &Done::err(failure));
        }
        let delay = if is_last { Duration::ZERO } else { retry_after.unwrap_or_else(|| delay(&policy, number, &step.idempotency_key)) };
        let ms = u64::try_from(millis(delay)).unwrap_or(0);
        batch.result(EntryKind::Attempt, id.clone(), &Attempt { n: number, err: failure.into(), ms });
        step.attempts = number;
        if is_last {
            let message = format!("{} has failed {number} times: {} ({})", step.open.title(), failure.message, failure.code);
            self.exhausted = Some(Trouble::new(BlockCause::Exhausted, message));
        } else if delay > self.host.options.linger {
            // Before the commit: no attempt begins in it.
            self.armed.insert(id.clone());
            batch.armed.push((id, TimerAt::After(delay)));
        } else {
            self.again_at.insert(id, self.host.now() + delay);
        }
    }

    /// Writes that attempts begin which run at most once.
    pub(super) fn begin_once(&self, batch: &mut Batch, state: &State) {
        for id in state.pending.values() {
            let Some(step) = state.steps.get(id).filter(|step| step.open.once && step.started == step.attempts) else { continue };
            let is_known = matches!(step.standing, Standing::Open) || batch.opened.contains(id);
            if is_known && self.is_startable(id, step) {
                batch.start(id.clone(), step.attempts + 1);
            }
        }
    }

    /// Starts all attempts that may begin. A worker that holds back starts those only whose beginning is in the journal: to other workers it would
    /// be unknown how they ended.
    pub(super) fn launch(&mut self, state: &State, now: Timestamp, holds_back: bool) {
        for id in state.pending.values() {
            let Some(step) = state.steps.get(id) else { continue };
            let may_begin = if step.open.once { step.started == step.attempts + 1 } else { !holds_back };
            if !may_begin || !self.is_startable(id, step) {
                continue;
            }
            let Some(launch) = step.launch.clone() else { continue };
            if matches!(step.standing, Standing::Fresh) {
                self.lazy_since.get_or_insert(now);
            }
            let timeout = step.open.ms.map_or(ATTEMPT_DEFAULT, Duration::from_millis);
            self.host.towpath.observer().task_started(&self.progress.execution.identity.place.workflow, &step.open.name);
            let task = self.task(id, step);
            self.attempts.start(Arc::clone(self.host.clock()), Work { launch, needs: step.needs.clone(), task, timeout });
        }
    }

    fn is_startable(&self, id: &StepId, step: &Step) -> bool {
        step.launch.is_some()
            && step.is_pending()
            && !self.attempts.is_running(id)
            && !self.armed.contains(id)
            && !self.again_at.contains_key(id)
            && !self.ended.iter().any(|ended| ended.step == *id)
    }

    fn task(&self, id: &StepId, step: &Step) -> TaskContext {
        TaskContext {
            fence: None,
            inner: Arc::new(TaskAttempt {
                towpath: self.host.towpath.clone(),
                states: Arc::clone(&self.host.states),
                run_id: self.run_id.clone(),
                step_id: id.clone(),
                name: Arc::clone(&step.open.name),
                attempt: step.attempts + 1,
                idempotency_key: Arc::clone(&step.idempotency_key),
                epoch: self.epoch,
                token: CancellationToken::new(),
            }),
        }
    }

    /// Whether there is something that a worker which does not hold back would do.
    pub(super) fn has_work(&self, state: &State) -> bool {
        let is_task = |id: &StepId| state.steps.get(id).is_some_and(|step| self.is_startable(id, step));
        !state.fresh.is_empty() || !self.again_at.is_empty() || state.pending.values().any(is_task)
    }

    /// What the run waits for. `None`: nothing would wake it.
    pub(super) fn wait_set(&self, state: &State) -> Option<WaitSet> {
        let mut wait = WaitSet::default();
        for id in state.pending.values() {
            let Some(step) = state.steps.get(id).filter(|step| step.is_awaited()) else { continue };
            match step.open.k {
                StepKind::Event => wait.events.extend(step.open.event()),
                StepKind::Child => drop(wait.groups.insert(id.clone(), Group { open: 1, fail_fast: false })),
                _other => {}
            }
        }
        let is_empty = wait.events.is_empty() && wait.groups.is_empty() && self.armed.is_empty();
        (!is_empty).then_some(wait)
    }
}

fn delay(policy: &RetryPolicy, failures: u32, key: &str) -> Duration {
    CallId::new(key).map_or(Duration::ZERO, |key| policy.backoff.delay(failures, &key))
}
