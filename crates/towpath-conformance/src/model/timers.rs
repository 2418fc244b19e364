//! What happens by itself.
//!
//! - Due are calls by [`Call::due`](towpath_core::call::Call::due), workers whose silence has lasted too long, and locks whose lease
//!   ends. The earliest comes first; at the same instant the older submit, workers after calls, and locks, by scope, after workers.
//! - What comes due only by what happens meanwhile waits for the next time.
//! - A worker that is taken off the list keeps what it holds until the lease ends.
//! - `next_due` is the earliest of what is left, which lies in the past when the limit cut the work short.

use async_trait::async_trait;
use towpath_core::call::{CallCommand, CallReply, CallState};
use towpath_core::names::{CallId, LockScope, WorkerId};
use towpath_core::store::{Fired, StoreError, TimerStore};
use towpath_core::time::Timestamp;

use super::records::{Record, Records};
use super::{ModelStore, State};

/// Something that happens by itself.
enum Due {
    Call(CallId),
    Worker(WorkerId),
    Lock(LockScope),
}

#[async_trait]
impl TimerStore for ModelStore {
    async fn fire_due(&self, limit: u32) -> Result<Fired, StoreError> {
        Ok(self.transition(|state, now| {
            let mut fired = Fired::default();
            let due = state.records.agenda().into_iter().filter(|(at, _)| *at <= now);
            for (_, thing) in due.take(limit as usize) {
                state.fire(thing, now, &mut fired);
            }
            fired.next_due = state.records.next_due();
            fired
        }))
    }

    async fn due_before(&self, known: Option<Timestamp>) -> Timestamp {
        let earlier = |state: &mut State, _| {
            let next_due = state.records.next_due()?;
            known.is_none_or(|known| next_due < known).then_some(next_due)
        };
        self.look_until(None, earlier).await.unwrap_or(Timestamp::MAX)
    }
}

impl Records {
    /// All that will happen by itself, in the order in which it will.
    fn agenda(&self) -> Vec<(Timestamp, Due)> {
        let calls = self.calls.values().filter_map(|Record { call, .. }| Some((call.due()?, Due::Call(call.call_id.clone()))));
        let workers = self.workers.iter().map(|(worker_id, worker)| (worker.removed_at(), Due::Worker(worker_id.clone())));
        let locks = self.lock_ends().map(|(at, scope)| (at, Due::Lock(scope.clone())));
        let mut agenda: Vec<_> = calls.chain(workers).chain(locks).collect();
        agenda.sort_by_key(|(at, _)| *at); // what is due at one instant keeps the order of the chain
        agenda
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.agenda().first().map(|(at, _)| *at)
    }
}

impl Record {
    /// Who has let the lease of this call run out.
    fn silent_holder(&self, now: Timestamp) -> Option<WorkerId> {
        let ran_out = self.call.state == CallState::Running && self.call.lease_until.is_some_and(|until| until <= now);
        self.call.holder.clone().filter(|_| ran_out)
    }
}

impl State {
    fn fire(&mut self, due: Due, now: Timestamp, fired: &mut Fired) {
        let call_id = match due {
            Due::Call(call_id) => call_id,
            Due::Worker(worker_id) => {
                self.remove_worker(&worker_id);
                fired.workers_removed += 1;
                return;
            }
            Due::Lock(scope) => {
                let _whatever_is_found = self.reap(&scope, now);
                fired.locks_reaped += 1;
                return;
            }
        };
        let before = self.records.record(&call_id).map(|record| record.call.state);
        if let Some(silent) = self.records.record(&call_id).and_then(|record| record.silent_holder(now)) {
            self.dismiss_claims_of(&silent);
        }
        let max_deliveries =
            self.records.record(&call_id).map_or(0, |record| self.records.retry_policy(&record.request.function).max_deliveries);
        let reply = self.put(&call_id, CallCommand::ComeDue { max_deliveries }, now);
        let ended = self.records.record(&call_id).and_then(Record::ended);
        match (reply, ended, before) {
            (Some(CallReply::Forget), ..) => fired.forgotten += 1,
            (_, Some(ended), _) => fired.ended.push(ended),
            (_, None, Some(CallState::Running)) => fired.reclaimed += 1,
            (_, None, _) => fired.promoted += 1,
        }
    }
}
