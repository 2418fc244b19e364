//! Which calls a claim gets, and who is served first when several wait.
//!
//! - Functions are tried in the order given, each up to its own `max` and all together up to the claim's; of a function the oldest
//!   submit comes first, however often it was delivered before.
//! - Of a function no more are delivered than fit under the worker's `Offer::concurrency` and the function's `max_concurrent`; calls that
//!   run but are parked count for neither. A worker that never registered has no offer, hence only the function's limit.
//! - A call that is found expired ends there and then and does not count. A claim looks no further than it has room for.
//! - A claim that waits is served within the transition that made work for it, first come first served.
//! - A claim that waits ends empty when a lease of its worker runs out: whoever let that happen may be gone, and shall not be given more
//!   until it asks again.

use std::mem;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use towpath_core::call::{CallCommand, CallReply, CallState, Claim, Held};
use towpath_core::ids::DeliveryId;
use towpath_core::names::{CallId, FunctionKey, WorkerId};
use towpath_core::store::{ClaimCalls, Delivery};
use towpath_core::time::Timestamp;

use super::records::{Record, Records};
use super::{ModelStore, State};

/// A claim that found nothing yet.
pub(super) struct WaitingClaim {
    ticket: u64,
    want: ClaimCalls,
    served: oneshot::Sender<Vec<Delivery>>,
}

/// A place among the waiting claims. Dropping it leaves the queue, and gives back what was claimed for it but never taken.
struct Turn {
    store: ModelStore,
    ticket: u64,
    worker: WorkerId,
    served: oneshot::Receiver<Vec<Delivery>>,
}

impl ModelStore {
    pub(super) async fn claim_or_wait(&self, want: ClaimCalls) -> Vec<Delivery> {
        let (claimed, mut turn, until) = self.transition(|state, now| {
            let claimed = state.claim_now(&want, now);
            let waits = claimed.is_empty() && want.max > 0 && !want.functions.is_empty() && !want.wait.is_zero();
            let until = now + want.wait;
            (claimed, waits.then(|| state.queue_up(self, want)), until)
        });
        let Some(turn) = &mut turn else { return claimed };
        tokio::select! {
            biased;
            served = &mut turn.served => served.unwrap_or_default(),
            () = self.shared.clock.sleep_until(until) => Vec::new(),
        }
    }
}

impl State {
    fn queue_up(&mut self, store: &ModelStore, want: ClaimCalls) -> Turn {
        self.ears.last_ticket += 1;
        let ticket = self.ears.last_ticket;
        let worker = want.worker.clone();
        let (sender, served) = oneshot::channel();
        self.ears.waiting.push(WaitingClaim { ticket, want, served: sender });
        Turn { store: store.clone(), ticket, worker, served }
    }

    pub(super) fn serve_waiting_claims(&mut self, now: Timestamp) {
        for waiting in mem::take(&mut self.ears.waiting) {
            let deliveries = self.claim_now(&waiting.want, now);
            if deliveries.is_empty() {
                self.ears.waiting.push(waiting);
            } else {
                // Its turn leaves the queue, under this same lock, before it stops listening: somebody takes them.
                drop(waiting.served.send(deliveries));
            }
        }
    }

    pub(super) fn dismiss_claims_of(&mut self, worker: &WorkerId) {
        for waiting in self.ears.waiting.extract_if(.., |waiting| waiting.want.worker == *worker) {
            drop(waiting.served.send(Vec::new()));
        }
    }

    fn claim_now(&mut self, want: &ClaimCalls, now: Timestamp) -> Vec<Delivery> {
        let mut claimed = Vec::new();
        for entry in want.functions.iter() {
            let left = (want.max as usize).saturating_sub(claimed.len());
            let room = left.min(entry.max as usize).min(self.records.room(&want.worker, &entry.function));
            claimed.extend(self.claim_of(&entry.function, room, want, now));
        }
        claimed
    }

    fn claim_of(&mut self, function: &FunctionKey, room: usize, want: &ClaimCalls, now: Timestamp) -> Vec<Delivery> {
        let queued = self.records.calls_of(function).filter(|record| record.call.state == CallState::Queued);
        let queued: Vec<CallId> = queued.map(|record| record.call.call_id.clone()).collect();
        let mut claimed = Vec::new();
        for call_id in queued {
            if claimed.len() >= room {
                break;
            }
            let claim = Claim { worker: want.worker.clone(), lease: want.lease };
            if let Some(CallReply::Claimed { number, until }) = self.put(&call_id, CallCommand::Claim(claim), now) {
                claimed.extend(self.records.delivery(DeliveryId { call_id, number }, until, now));
            }
        }
        claimed
    }

    /// Takes unharmed deliveries back and says how many there were.
    pub(super) fn release_all(&mut self, worker: &WorkerId, deliveries: Vec<DeliveryId>, now: Timestamp) -> u64 {
        let mut released = 0;
        for delivery in deliveries {
            let held = Held { worker: worker.clone(), number: delivery.number };
            released += u64::from(self.put(&delivery.call_id, CallCommand::Release(held), now) == Some(CallReply::Recorded));
        }
        released
    }
}

impl Records {
    /// How many more calls of a function a worker may be given now.
    fn room(&self, worker: &WorkerId, function: &FunctionKey) -> usize {
        let busy = |record: &&Record| !record.call.parked && record.request.function == *function;
        let running = |record: &&Record| record.call.state == CallState::Running;
        let by_worker = self.held_by(worker).filter(busy).count();
        let by_all = self.calls.values().filter(running).filter(busy).count();
        let offered = self.workers.get(worker).and_then(|worker| worker.offered_concurrency(function));
        let limit = self.functions.get(function).and_then(|definition| definition.limits.max_concurrent);
        let left = |max: Option<u32>, taken: usize| max.map_or(usize::MAX, |max| (max as usize).saturating_sub(taken));
        left(offered, by_worker).min(left(limit, by_all))
    }

    fn delivery(&self, id: DeliveryId, lease_until: Timestamp, now: Timestamp) -> Option<Delivery> {
        let record = self.record(&id.call_id)?;
        Some(Delivery {
            request: record.request.clone(),
            attempt: record.call.attempt(),
            submitted_at: record.call.submitted_at,
            deadline: record.call.deadline,
            remaining: record.call.deadline.since(now),
            lease_until,
            id,
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.store.transition(|state, now| {
            state.ears.waiting.retain(|waiting| waiting.ticket != self.ticket);
            let never_taken = match self.served.try_recv() {
                Ok(deliveries) => deliveries,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            };
            state.release_all(&self.worker, never_taken.into_iter().map(|delivery| delivery.id).collect(), now);
        });
    }
}
