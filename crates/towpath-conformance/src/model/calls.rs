//! The moves of calls.
//!
//! - A submit is judged in this order: its id, its idempotency key, the function, its workers, its backlog. A resend therefore finds its
//!   call whatever has happened since. From the end of its retention on a call does not exist, and its id and key are free.
//! - Every move of a call that is not known is `Lost(Absent)`, or `NotFound`, or not a dead letter.
//! - Parking and progress prove that the delivery is held but do not prolong the lease.
//! - Watchers hear `Ended` when a call ends and `Changed` on progress or when it is to be tried again.
//! - A replay's new call starts behind all others and is not refused for a full backlog: it was accepted once. Under an id that is taken
//!   it is `NotDead`.

use async_trait::async_trait;
use towpath_core::call::{Answer, Call, CallCommand, CallReply, Held, LostLease};
use towpath_core::ids::DeliveryId;
use towpath_core::names::{CallId, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::store::{
    CallNews, CallStore, CallWatch, Cancelled, ClaimCalls, CompleteCalls, Completed, Delivery, Durability, Ended, RenewCalls, Renewal,
    Replayed, StoreError, SubmitCall, Submitted,
};
use towpath_core::time::Timestamp;

use super::records::{Record, Records};
use super::{ModelStore, State};

#[async_trait]
impl CallStore for ModelStore {
    async fn submit(&self, call: SubmitCall) -> Result<Submitted, StoreError> {
        Ok(self.transition(|state, now| state.submit(call, now)))
    }

    async fn claim(&self, want: ClaimCalls) -> Result<Vec<Delivery>, StoreError> {
        Ok(self.claim_or_wait(want).await)
    }

    async fn renew(&self, leases: RenewCalls) -> Result<Vec<Renewal>, StoreError> {
        let RenewCalls { worker, deliveries, lease } = leases;
        let renew = |state: &mut State, delivery: DeliveryId, now| {
            let held = Held { worker: worker.clone(), number: delivery.number };
            state.hold(&delivery.call_id, CallCommand::Renew { held, lease }, now)
        };
        Ok(self.transition(|state, now| deliveries.into_iter().map(|delivery| renew(state, delivery, now)).collect()))
    }

    async fn complete(&self, answers: CompleteCalls) -> Result<Vec<Completed>, StoreError> {
        let CompleteCalls { worker, answers } = answers;
        let take = |state: &mut State, (delivery, answer), now| state.take_answer(&worker, &delivery, answer, now);
        Ok(self.transition(|state, now| answers.into_iter().map(|answer| take(state, answer, now)).collect()))
    }

    async fn release(&self, worker: &WorkerId, deliveries: Vec<DeliveryId>) -> Result<u64, StoreError> {
        Ok(self.transition(|state, now| state.release_all(worker, deliveries, now)))
    }

    async fn park(&self, worker: &WorkerId, delivery: &DeliveryId, parked: bool) -> Result<Renewal, StoreError> {
        let held = Held { worker: worker.clone(), number: delivery.number };
        Ok(self.transition(|state, now| state.hold(&delivery.call_id, CallCommand::Park { held, parked }, now)))
    }

    async fn report_progress(&self, worker: &WorkerId, delivery: &DeliveryId, progress: Payload) -> Result<Renewal, StoreError> {
        Ok(self.transition(|state, now| state.report_progress(worker, delivery, progress, now)))
    }

    async fn cancel(&self, call_id: &CallId) -> Result<Cancelled, StoreError> {
        Ok(self.transition(|state, now| state.cancel(call_id, now)))
    }

    async fn replay_dead(&self, call_id: &CallId, replay_id: CallId) -> Result<Replayed, StoreError> {
        Ok(self.transition(|state, now| state.replay_dead(call_id, replay_id, now)))
    }

    async fn drop_dead(&self, call_id: &CallId) -> Result<bool, StoreError> {
        let settle = CallCommand::Settle { replayed_as: None };
        Ok(self.transition(|state, now| state.put(call_id, settle, now) == Some(CallReply::Settled)))
    }

    fn watch(&self, call_id: &CallId) -> Box<dyn CallWatch> {
        Box::new(self.look(|state, _| state.ears.watch(call_id)))
    }

    /// A request rings once: the worker renews, learns of it, and listens again. A request made while nobody listens rings at once.
    async fn attention(&self, worker: &WorkerId) {
        self.look_until(None, |state, _| state.ears.wanted.remove(worker).then_some(())).await;
    }
}

impl State {
    fn submit(&mut self, call: SubmitCall, now: Timestamp) -> Submitted {
        if let Some(earlier) = self.records.same_call(&call) {
            return existing(earlier, &call);
        }
        let function = &call.request.function;
        let Some(definition) = self.records.functions.get(function) else { return Submitted::UnknownFunction };
        if call.fail_without_workers && !self.records.workers_of(function).any(|worker| worker.is_healthy(now)) {
            return Submitted::NoWorkers;
        }
        let backlog = self.records.counts(function).backlog();
        if let Some(limit) = definition.limits.max_backlog.filter(|limit| backlog >= *limit) {
            return Submitted::Overloaded { backlog, limit };
        }
        let taken = Call::submitted(call.call_id, now, call.timeout, call.retain).with_attempts(call.before);
        let deadline = taken.deadline;
        self.records.add_call(taken, call.request);
        Submitted::Accepted { deadline, durability: Durability::Memory }
    }

    /// Puts a command that only the holder may give.
    fn hold(&mut self, call_id: &CallId, command: CallCommand, now: Timestamp) -> Renewal {
        match self.put(call_id, command, now) {
            Some(CallReply::Held { until, cancel_requested }) => Renewal::Held { until, cancel_requested },
            Some(CallReply::Lost(lost)) => Renewal::Lost(lost),
            _recorded_or_absent => self.records.present_lease(call_id),
        }
    }

    fn take_answer(&mut self, worker: &WorkerId, delivery: &DeliveryId, answer: Answer, now: Timestamp) -> Completed {
        let Some(function) = self.records.record(&delivery.call_id).map(|record| record.request.function.clone()) else {
            return Completed::Lost(LostLease::Absent);
        };
        let held = Held { worker: worker.clone(), number: delivery.number };
        let policy = self.records.retry_policy(&function);
        match self.put(&delivery.call_id, CallCommand::Answer { held, answer, policy }, now) {
            Some(CallReply::Lost(lost)) => Completed::Lost(lost),
            Some(CallReply::AlreadyRecorded) => Completed::AlreadyRecorded,
            None => Completed::Lost(LostLease::Absent),
            Some(_recorded) => Completed::Recorded { ended: self.records.record(&delivery.call_id).and_then(Record::ended) },
        }
    }

    fn report_progress(&mut self, worker: &WorkerId, delivery: &DeliveryId, progress: Payload, now: Timestamp) -> Renewal {
        let held = Held { worker: worker.clone(), number: delivery.number };
        let parked = self.records.record(&delivery.call_id).is_some_and(|record| record.call.parked);
        // Parked as it is already: that changes nothing, and shows whether the delivery is held.
        let renewal = self.hold(&delivery.call_id, CallCommand::Park { held, parked }, now);
        if let (Renewal::Held { .. }, Some(record)) = (renewal, self.records.record_mut(&delivery.call_id)) {
            let number = record.progress.as_ref().map_or(0, |(number, _)| *number);
            record.progress = Some((number.saturating_add(1), progress));
            self.ears.tell(&delivery.call_id, &CallNews::Changed);
        }
        renewal
    }

    fn cancel(&mut self, call_id: &CallId, now: Timestamp) -> Cancelled {
        let reply = self.put(call_id, CallCommand::Cancel, now);
        let Some(Record { call, .. }) = self.records.record(call_id) else { return Cancelled::NotFound };
        match reply {
            Some(CallReply::Cancelled) => Cancelled::Done,
            Some(CallReply::CancelRequested) => {
                self.ears.wanted.extend(call.holder.clone());
                Cancelled::Requested
            }
            _ended_before => Cancelled::AlreadyEnded(call.state),
        }
    }

    fn replay_dead(&mut self, call_id: &CallId, replay_id: CallId, now: Timestamp) -> Replayed {
        let Some(Record { call, request, .. }) = self.records.record(call_id).cloned() else { return Replayed::NotDead };
        let settle = CallCommand::Settle { replayed_as: Some(replay_id.clone()) };
        if self.records.record(&replay_id).is_some() || self.put(call_id, settle, now) != Some(CallReply::Settled) {
            return Replayed::NotDead;
        }
        let time_to_live = call.deadline.since(call.submitted_at);
        self.records.add_call(Call::submitted(replay_id, now, time_to_live, call.retain), request);
        Replayed::Submitted
    }
}

impl Records {
    /// The call that a submit repeats: by its id first, then by its key.
    fn same_call(&self, call: &SubmitCall) -> Option<&Record> {
        self.record(&call.call_id).or_else(|| {
            let key = call.idempotency_key()?.clone();
            self.record(self.keys.get(&(call.request.function.clone(), key))?)
        })
    }

    /// The lease as it stands, of a call whose holder just spoke.
    fn present_lease(&self, call_id: &CallId) -> Renewal {
        let lease = self.record(call_id).and_then(|Record { call, .. }| Some((call.lease_until?, call.cancel_requested)));
        lease.map_or(Renewal::Lost(LostLease::Absent), |(until, cancel_requested)| Renewal::Held { until, cancel_requested })
    }
}

impl Record {
    /// For those who count: how this call ended, if it did.
    pub(super) fn ended(&self) -> Option<Ended> {
        let Record { call, request, .. } = self;
        call.state.has_ended().then(|| Ended {
            call_id: call.call_id.clone(),
            function: request.function.clone(),
            state: call.state,
            took: call.ended_at.unwrap_or(call.submitted_at).since(call.submitted_at),
        })
    }
}

fn existing(Record { call, request, .. }: &Record, again: &SubmitCall) -> Submitted {
    let call_id = call.call_id.clone();
    if !request.asks_the_same_as(&again.request) {
        return Submitted::Conflict { call_id };
    }
    Submitted::Existing { call_id, state: call.state, deadline: call.deadline, durability: Durability::Memory }
}
