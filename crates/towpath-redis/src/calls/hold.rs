//! What a worker does with a call it holds.

use std::collections::HashMap;
use std::sync::Arc;

use redis::Cmd;
use towpath_core::call::{Answer, CallCommand, CallReply, CallState, Held, LostLease, Retry, RetryPolicy, step};
use towpath_core::ids::DeliveryId;
use towpath_core::names::{CallId, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::store::{CompleteCalls, Completed, RenewCalls, Renewal, StoreError};

use super::change::{Change, changes, ended};
use super::find::Found;
use super::partition::Partition;
use super::record::{PROGRESS, Record, read_progress, write_progress};
use crate::quick::QuickSet;
use crate::registry::reply::half_done;
use crate::store::RedisStore;
use crate::unreadable::is_odd;
use crate::value;

/// One command that only the holder of a call may give.
struct Order {
    call_id: CallId,
    command: CallCommand,
}

/// What came of it.
struct Done {
    found: Found,
    reply: CallReply,
}

impl RedisStore {
    pub(crate) async fn renew_all(&self, leases: RenewCalls) -> Result<Vec<Renewal>, StoreError> {
        let RenewCalls { worker, deliveries, lease } = leases;
        let order = |delivery: DeliveryId| Order {
            command: CallCommand::Renew { held: held(&worker, &delivery), lease },
            call_id: delivery.call_id,
        };
        let done = self.carry_out(deliveries.into_iter().map(order).collect()).await?;
        Ok(done.into_iter().map(renewal).collect())
    }

    pub(crate) async fn complete_all(&self, answers: CompleteCalls) -> Result<Vec<Completed>, StoreError> {
        let CompleteCalls { worker, answers } = answers;
        let policies = self.policies_for(&answers).await?;
        let order = |(delivery, answer): (DeliveryId, Answer)| Order {
            command: CallCommand::Answer {
                held: held(&worker, &delivery),
                policy: policies.get(&delivery.call_id).cloned().unwrap_or_default(),
                answer,
            },
            call_id: delivery.call_id,
        };
        let done = self.carry_out(answers.into_iter().map(order).collect()).await?;
        Ok(done.into_iter().map(completed).collect())
    }

    pub(crate) async fn release_all(&self, worker: &WorkerId, deliveries: Vec<DeliveryId>) -> Result<u64, StoreError> {
        let order = |delivery: DeliveryId| Order { command: CallCommand::Release(held(worker, &delivery)), call_id: delivery.call_id };
        let done = self.carry_out(deliveries.into_iter().map(order).collect()).await?;
        let recorded = |done: &Option<Done>| done.as_ref().is_some_and(|done| done.reply == CallReply::Recorded);
        Ok(done.iter().filter(|done| recorded(done)).count() as u64)
    }

    pub(crate) async fn park_one(&self, worker: &WorkerId, delivery: &DeliveryId, parked: bool) -> Result<Renewal, StoreError> {
        let order = Order { command: CallCommand::Park { held: held(worker, delivery), parked }, call_id: delivery.call_id.clone() };
        Ok(renewal(self.carry_out(vec![order]).await?.pop().flatten()))
    }

    pub(crate) async fn keep_progress(&self, worker: &WorkerId, delivery: &DeliveryId, report: &Payload) -> Result<Renewal, StoreError> {
        loop {
            let Some((partition, whole)) = self.find_whole(&delivery.call_id).await? else { return Ok(Renewal::Lost(LostLease::Absent)) };
            let (number, before) = (read_progress(&whole.progress).map_or(0, |(number, _)| number), Arc::new(whole.record));
            // Parking as it is parked shows whether the delivery is held, and changes nothing.
            let proof = CallCommand::Park { held: held(worker, delivery), parked: before.call.parked };
            let (call, reply) = step(before.call.clone(), proof, self.shared.now());
            if let CallReply::Lost(lost) = reply {
                return Ok(Renewal::Lost(lost));
            }
            let (until, cancel_requested) = (call.lease_until.unwrap_or_default(), call.cancel_requested);
            let after = Record { has_progress: true, ..before.next(call) };
            let field = format!("{PROGRESS}{}", delivery.call_id);
            let text = write_progress(number.saturating_add(1), report);
            let change = Change::to(before, after).with([b"HSET", partition.keys.calls.as_bytes(), field.as_bytes(), &text]).reporting();
            let record = Arc::clone(&change.after);
            if self.apply(&partition, vec![change]).await?[0] {
                self.remember(&Found { partition, record });
                return Ok(Renewal::Held { until, cancel_requested });
            }
        }
    }

    /// Gives back all that a worker holds, whatever function it is of.
    pub(crate) async fn give_back_all(&self, worker: &WorkerId) -> Result<u64, StoreError> {
        let (mut deliveries, mut given_back) = (Vec::new(), 0);
        for partition in self.all_partitions().await? {
            let running = match self.running(&partition).await {
                // What it holds of this function comes back when its lease ends.
                Err(error) if self.shared.is_local(&error) => continue,
                running => running?.into_iter().map(|record| record.call),
            };
            let own = running.filter(|call| call.holder.as_ref() == Some(worker));
            let own: Vec<DeliveryId> = own.map(|call| DeliveryId { call_id: call.call_id, number: call.delivery }).collect();
            if !own.is_empty() {
                deliveries.push((partition, own));
            }
        }
        for (partition, own) in deliveries {
            match self.release_all(worker, own).await {
                Err(error) if is_odd(&error) => {
                    let why = format!("calls of worker '{worker}' come back when their leases end: {error}");
                    self.shared.pass_over(&partition.keys.calls, b"", why);
                }
                released => given_back += released?,
            }
        }
        Ok(given_back)
    }

    /// The running calls of a partition.
    pub(crate) async fn running(&self, partition: &Partition) -> Result<Vec<Record>, StoreError> {
        let mut ask = Cmd::new();
        ask.arg("ZRANGE").arg(&partition.keys.running).arg(0).arg(-1);
        let ids = value::array("ZRANGE", self.shared.link.ask(&ask).await?)?;
        let ids: Vec<CallId> = ids.iter().filter_map(|id| value::call_id(id).ok()).collect();
        let records = self.records(partition, &ids).await?.into_iter().flatten();
        Ok(records.filter(|record| record.call.state == CallState::Running).collect())
    }

    /// Puts orders to calls: decides on what this process remembers of them where it can, and on what the server has where it must.
    async fn carry_out(&self, orders: Vec<Order>) -> Result<Vec<Option<Done>>, StoreError> {
        let mut done: Vec<Option<Done>> = orders.iter().map(|_| None).collect();
        let mut remembered: Vec<Option<Found>> = orders.iter().map(|order| self.shared.held.get(&order.call_id)).collect();
        let mut open: Vec<usize> = (0..orders.len()).collect();
        let (mut failure, mut has_changed) = (None, false);
        while !open.is_empty() && failure.is_none() {
            let (mut again, mut places, mut batch) = (Vec::new(), Vec::new(), Vec::new());
            let now = self.shared.now();
            for (place, found, is_fresh) in self.look_up(&orders, &open, &mut remembered, &mut again).await? {
                let (after, reply) = step(found.record.call.clone(), orders[place].command.clone(), now);
                if changes(&reply) {
                    let change = Change::new(Arc::clone(&found.record), after);
                    let record = Arc::clone(&change.after);
                    places.push(place);
                    batch.push((Arc::clone(&found.partition), change));
                    done[place] = Some(Done { found: Found { record, ..found }, reply });
                } else if is_fresh {
                    done[place] = Some(Done { found, reply });
                } else {
                    again.push(place); // only the server refuses
                }
            }
            let all = batch.iter().map(|(partition, change): &(Arc<Partition>, Change)| (&partition.function, &change.after.call));
            let dying = all.filter(|(_, call)| call.state == CallState::Dead);
            self.keep_reservations(dying).await?;
            for (place, made) in places.into_iter().zip(self.apply_all(batch).await) {
                match (made, &done[place]) {
                    (Ok(true), Some(done)) => {
                        self.remember(&done.found);
                        has_changed = true;
                    }
                    (Err(error), _) => failure = Some(error),
                    _changed => {
                        done[place] = None;
                        again.push(place);
                    }
                }
            }
            for place in &again {
                remembered[*place] = None;
                self.shared.held.remove(&orders[*place].call_id);
            }
            again.sort_unstable(); // of two orders about one call the first comes first, also the second time
            open = again;
        }
        // The orders about other functions were carried out. Repeating those does no harm, but "nothing happened" would be wrong.
        failure.map_or(Ok(done), |error| Err(if has_changed { half_done(error) } else { error }))
    }

    /// The calls that are still to be decided on, and whether they come from the server. Of several orders about one call the first is
    /// looked up; the others wait for what it leaves.
    async fn look_up(
        &self,
        orders: &[Order],
        open: &[usize],
        remembered: &mut [Option<Found>],
        again: &mut Vec<usize>,
    ) -> Result<Vec<(usize, Found, bool)>, StoreError> {
        let mut asked = QuickSet::default();
        let mut found = Vec::with_capacity(open.len());
        for place in open {
            if !asked.insert(&orders[*place].call_id) {
                again.push(*place);
            } else if let Some(known) = remembered[*place].take() {
                found.push((*place, known, false));
            } else {
                match self.find_call(&orders[*place].call_id).await {
                    Ok(loaded) => found.extend(loaded.map(|loaded| (*place, loaded, true))),
                    // No worker holds a record that cannot be read. The orders about other calls are carried out.
                    Err(error @ StoreError::Corrupt(_)) => tracing::warn!(%error, "a worker holds a call that cannot be read"),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(found)
    }

    /// Remembers what a worker of this process still holds.
    fn remember(&self, found: &Found) {
        let call_id = &found.record.call.call_id;
        let known = self.shared.held.remove(call_id).is_some();
        if known && found.record.call.state == CallState::Running {
            self.shared.held.put(found.clone());
        }
    }

    /// The retry policies that answers need: only failures that may be tried again do.
    async fn policies_for(&self, answers: &[(DeliveryId, Answer)]) -> Result<HashMap<CallId, RetryPolicy>, StoreError> {
        let mut policies = HashMap::new();
        for (delivery, answer) in answers {
            if !matches!(answer, Answer::Failed { retry: Retry::ByPolicy | Retry::NotBefore(_), .. }) {
                continue;
            }
            let found = match self.shared.held.get(&delivery.call_id) {
                Some(found) => Some(found),
                None => self.find_call(&delivery.call_id).await?,
            };
            if let Some(found) = found {
                policies.insert(delivery.call_id.clone(), self.retry_policy(&found.partition).await?);
            }
        }
        Ok(policies)
    }
}

fn held(worker: &WorkerId, delivery: &DeliveryId) -> Held {
    Held { worker: worker.clone(), number: delivery.number }
}

fn renewal(done: Option<Done>) -> Renewal {
    let Some(Done { found, reply }) = done else { return Renewal::Lost(LostLease::Absent) };
    match reply {
        CallReply::Held { until, cancel_requested } => Renewal::Held { until, cancel_requested },
        CallReply::Lost(lost) => Renewal::Lost(lost),
        _recorded => {
            let call = &found.record.call;
            Renewal::Held { until: call.lease_until.unwrap_or_default(), cancel_requested: call.cancel_requested }
        }
    }
}

fn completed(done: Option<Done>) -> Completed {
    let Some(Done { found, reply }) = done else { return Completed::Lost(LostLease::Absent) };
    match reply {
        CallReply::Lost(lost) => Completed::Lost(lost),
        CallReply::AlreadyRecorded => Completed::AlreadyRecorded,
        _recorded => Completed::Recorded { ended: ended(&found.partition, &found.record.call) },
    }
}
