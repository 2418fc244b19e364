//! Timers.
//!
//! - They fire kind by kind, each up to the limit: delays, leases, deadlines, workers that were silent for too long, lock leases. Within
//!   a kind the earliest comes first; at one instant the older submit, and workers and locks by name.
//! - A call that one kind has moved does not come up again in a later kind: what moved it has looked at its deadline as well.
//! - What comes due only by what happens meanwhile waits for the next time.
//! - A worker that is taken off the list keeps what it holds until the lease ends.
//! - `next_due` is the earliest of what is left, which lies in the past when a limit cut the work short. Timers of runs and posts are fired by
//!   moves of their own; `due_before` knows them, too.

use std::time::Duration;

use async_trait::async_trait;
use towpath_core::call::{Call, CallCommand, CallReply, CallState};
use towpath_core::names::{CallId, LockScope, WorkerId};
use towpath_core::store::{Fired, Forgotten, Retention, StoreError, TimerStore};
use towpath_core::time::Timestamp;

use super::records::{Record, Records};
use super::{ModelStore, State};

#[async_trait]
impl TimerStore for ModelStore {
    async fn fire_due(&self, limit: u32) -> Result<Fired, StoreError> {
        Ok(self.transition(|state, now| state.fire_due(limit as usize, now)))
    }

    async fn due_before(&self, known: Option<Timestamp>) -> Timestamp {
        let earlier = |state: &mut State, _| {
            let next_due = state.records.next_due().into_iter().chain(state.records.runs.next_due()).min()?;
            known.is_none_or(|known| next_due < known).then_some(next_due)
        };
        self.look_until(None, earlier).await.unwrap_or(Timestamp::MAX)
    }

    async fn forget_old(&self, keep: &Retention, limit: u32) -> Result<Forgotten, StoreError> {
        let Some(keep) = keep.dead_letters else { return Ok(Forgotten::default()) };
        Ok(self.transition(|state, now| Forgotten { dead_letters: state.drop_old(keep, limit as usize, now), ..Forgotten::default() }))
    }
}

/// When the delay of a call ends.
fn delay_end(call: &Call) -> Option<Timestamp> {
    call.not_before.filter(|_| call.state == CallState::Delayed)
}

/// When the lease of a call ends.
fn lease_end(call: &Call) -> Option<Timestamp> {
    call.lease_until.filter(|_| call.state == CallState::Running)
}

/// When an open call ends at the latest.
fn deadline(call: &Call) -> Option<Timestamp> {
    (!call.state.has_ended()).then_some(call.deadline)
}

impl Records {
    /// Calls with a timer of one kind that is due, earliest first, then older submit first.
    fn due_calls(&self, kind: impl Fn(&Call) -> Option<Timestamp>, limit: usize, now: Timestamp) -> Vec<CallId> {
        first(self.calls.values().filter_map(|Record { call, .. }| Some((kind(call)?, call.call_id.clone()))), limit, now)
    }

    fn silent_workers(&self, limit: usize, now: Timestamp) -> Vec<WorkerId> {
        first(self.workers.iter().map(|(worker_id, worker)| (worker.removed_at(), worker_id.clone())), limit, now)
    }

    fn due_locks(&self, limit: usize, now: Timestamp) -> Vec<LockScope> {
        first(self.lock_ends().map(|(at, scope)| (at, scope.clone())), limit, now)
    }

    fn next_due(&self) -> Option<Timestamp> {
        let calls = self.calls.values().filter_map(|record| record.call.due());
        let workers = self.workers.values().map(super::records::Worker::removed_at);
        calls.chain(workers).chain(self.lock_ends().map(|(at, _)| at)).min()
    }
}

/// The first things that are due. What is due at one instant keeps its order.
fn first<T>(things: impl Iterator<Item = (Timestamp, T)>, limit: usize, now: Timestamp) -> Vec<T> {
    let mut due: Vec<_> = things.filter(|(at, _)| *at <= now).collect();
    due.sort_by_key(|(at, _)| *at);
    due.into_iter().take(limit).map(|(_, thing)| thing).collect()
}

impl Record {
    /// Who has let the lease of this call run out.
    fn silent_holder(&self, now: Timestamp) -> Option<WorkerId> {
        let ran_out = self.call.state == CallState::Running && self.call.lease_until.is_some_and(|until| until <= now);
        self.call.holder.clone().filter(|_| ran_out)
    }
}

impl State {
    /// Settles dead letters that are older than that.
    fn drop_old(&mut self, keep: Duration, limit: usize, now: Timestamp) -> Vec<CallId> {
        let old = |call: &Call| call.ended_at.filter(|_| call.state == CallState::Dead).map(|at| at + keep);
        let old = self.records.due_calls(old, limit, now);
        for call_id in &old {
            self.put(call_id, CallCommand::Settle { replayed_as: None }, now);
        }
        old
    }

    fn fire_due(&mut self, limit: usize, now: Timestamp) -> Fired {
        let mut fired = Fired::default();
        // Each kind looks when its turn comes, so that it does not see what an earlier kind has moved.
        for kind in [delay_end, lease_end, deadline] {
            for call_id in self.records.due_calls(kind, limit, now) {
                self.fire_call(&call_id, now, &mut fired);
            }
        }
        for worker_id in self.records.silent_workers(limit, now) {
            self.remove_worker(&worker_id);
            fired.workers_removed += 1;
        }
        for scope in self.records.due_locks(limit, now) {
            let _whatever_is_found = self.reap(&scope, now);
            fired.locks_reaped += 1;
        }
        fired.next_due = self.records.next_due();
        fired
    }

    fn fire_call(&mut self, call_id: &CallId, now: Timestamp, fired: &mut Fired) {
        let Some(record) = self.records.record(call_id) else { return };
        let (before, silent) = (record.call.state, record.silent_holder(now));
        let max_deliveries = self.records.retry_policy(&record.request.function).max_deliveries;
        if let Some(silent) = silent {
            self.dismiss_claims_of(&silent);
        }
        if self.put(call_id, CallCommand::ComeDue { max_deliveries }, now) != Some(CallReply::Moved) {
            return;
        }
        match (self.records.record(call_id).and_then(Record::ended), before) {
            (Some(ended), _) => fired.ended.push(ended),
            (None, CallState::Running) => fired.reclaimed += 1,
            (None, _) => fired.promoted += 1,
        }
    }
}
