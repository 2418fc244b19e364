//! Claims: a worker's request for calls, served at once if there are any, else when a notification says that there may be.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use redis::Value;
use tokio::sync::{Notify, oneshot};
use towpath_core::call::{Call, CallCommand, CallReply, step};
use towpath_core::ids::DeliveryId;
use towpath_core::names::{CallId, WorkerId};
use towpath_core::store::{ClaimCalls, Delivery, StoreError};
use towpath_core::time::{Timestamp, millis};

use super::change::Change;
use super::find::Found;
use super::partition::{Limited, Partition};
use super::record::{Record, read_request};
use super::sections;
use crate::script::{Args, CLAIM};
use crate::store::RedisStore;
use crate::value;

/// So many functions are asked by one script at most.
const SECTIONS_MAX: usize = 32;

/// The claims of this process that wait, first come first served.
#[derive(Default)]
pub(crate) struct Claims {
    waiting: Mutex<Line>,
    /// Work may have come, or a claim.
    pub(crate) signal: Arc<Notify>,
}

/// The task that serves claims ends with the store.
impl Drop for Claims {
    fn drop(&mut self) {
        self.signal.notify_one();
    }
}

#[derive(Default)]
struct Line {
    last_ticket: u64,
    claims: VecDeque<WaitingClaim>,
}

struct WaitingClaim {
    ticket: u64,
    want: Arc<ClaimCalls>,
    partitions: Arc<[Wanted]>,
    served: oneshot::Sender<Vec<Delivery>>,
}

/// A partition that a claim wants calls of, and how many.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) partition: Arc<Partition>,
    max: u32,
}

/// A place among the waiting claims. Dropping it leaves the line, and gives back what was claimed for it but never taken.
struct Turn {
    store: RedisStore,
    ticket: u64,
    worker: WorkerId,
    served: oneshot::Receiver<Vec<Delivery>>,
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, Line> {
        // No code under this lock can panic half way.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first claim that waits for a partition with work, after this ticket.
    fn next_with_work(&self, after: u64) -> Option<(u64, Arc<ClaimCalls>, Arc<[Wanted]>)> {
        let line = self.lock();
        let has_work = |claim: &&WaitingClaim| claim.partitions.iter().any(|wanted| wanted.partition.may_have_work());
        let first = line.claims.iter().filter(|claim| claim.ticket > after).find(has_work);
        first.map(|claim| (claim.ticket, Arc::clone(&claim.want), Arc::clone(&claim.partitions)))
    }

    /// Hands deliveries to the claim with this ticket, or returns them when it waits no more.
    fn serve(&self, ticket: u64, deliveries: Vec<Delivery>) -> Result<(), Vec<Delivery>> {
        let mut line = self.lock();
        let Some(place) = line.claims.iter().position(|claim| claim.ticket == ticket) else { return Err(deliveries) };
        let Some(claim) = line.claims.remove(place) else { return Err(deliveries) };
        claim.served.send(deliveries)
    }

    /// Ends all claims of a worker that let a lease run out: it may be gone, and is not given more until it asks again.
    pub(crate) fn dismiss(&self, worker: &WorkerId) {
        let mut line = self.lock();
        let (dismissed, stay): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut line.claims).into_iter().partition(|claim| claim.want.worker == *worker);
        line.claims = stay;
        for claim in dismissed {
            drop(claim.served.send(Vec::new()));
        }
    }
}

impl RedisStore {
    pub(crate) async fn claim_or_wait(&self, want: ClaimCalls) -> Result<Vec<Delivery>, StoreError> {
        if want.max == 0 || want.functions.is_empty() {
            return Ok(Vec::new());
        }
        for wanted in &want.functions {
            self.check_place(&wanted.function)?;
        }
        let until = self.shared.now() + want.wait;
        let partitions: Arc<[Wanted]> = want
            .functions
            .iter()
            .filter(|wanted| wanted.max > 0)
            .flat_map(|wanted| self.partitions(&wanted.function).into_iter().map(|partition| Wanted { partition, max: wanted.max }))
            .collect();
        let waits = !want.wait.is_zero();
        let want = Arc::new(want);
        // Without a wait there is no notification to rely on, so all queues are looked at.
        let taken = self.take_in_a_task(Arc::clone(&want), Arc::clone(&partitions), !waits).await?;
        if !taken.is_empty() || !waits {
            return Ok(taken);
        }
        let mut turn = self.queue_up(want, partitions);
        tokio::select! {
            biased;
            served = &mut turn.served => Ok(served.unwrap_or_default()),
            () = self.shared.clock.sleep_until(until) => Ok(Vec::new()),
        }
    }

    /// Takes in a task of its own: if the caller goes away half way, what was taken for it is given back.
    async fn take_in_a_task(&self, want: Arc<ClaimCalls>, partitions: Arc<[Wanted]>, all: bool) -> Result<Vec<Delivery>, StoreError> {
        if !all && !partitions.iter().any(|wanted| wanted.partition.may_have_work()) {
            return Ok(Vec::new());
        }
        let (sender, receiver) = oneshot::channel();
        let store = self.clone();
        tokio::spawn(async move {
            let taken = store.take(&want, &partitions, all).await;
            if let Err(Ok(not_wanted)) = sender.send(taken) {
                store.give_back(&want.worker, not_wanted).await;
            }
        });
        receiver.await.unwrap_or_else(|_| Err(StoreError::Unknown("the claim was given up".to_owned())))
    }

    fn queue_up(&self, want: Arc<ClaimCalls>, partitions: Arc<[Wanted]>) -> Turn {
        for wanted in partitions.iter() {
            self.hear_of_work(&wanted.partition);
        }
        let (sender, served) = oneshot::channel();
        let worker = want.worker.clone();
        let ticket = {
            let mut line = self.shared.claims.lock();
            line.last_ticket += 1;
            let ticket = line.last_ticket;
            line.claims.push_back(WaitingClaim { ticket, want, partitions, served: sender });
            ticket
        };
        self.shared.claims.signal.notify_one();
        Turn { store: self.clone(), ticket, worker, served }
    }

    /// From now on this process hears when calls come into a partition's queue.
    fn hear_of_work(&self, partition: &Arc<Partition>) {
        if partition.is_heard.swap(true, Ordering::AcqRel) {
            return;
        }
        let (heard, shared) = (Arc::downgrade(partition), Arc::downgrade(&self.shared));
        self.shared.news.listening().listen_with(&partition.keys.work, move |_message| {
            if let (Some(partition), Some(shared)) = (heard.upgrade(), shared.upgrade()) {
                partition.note_work();
                shared.claims.signal.notify_one();
            }
        });
    }

    /// Calls may have come into a queue, or there is room for more: claims of this process look.
    pub(crate) fn work_came(&self, partition: &Partition) {
        partition.note_work();
        self.shared.claims.signal.notify_one();
    }

    /// Serves the claims that wait, whenever there may be something for them.
    pub(crate) async fn serve_claims(&self) -> Result<(), StoreError> {
        let mut after = 0;
        while let Some((ticket, want, partitions)) = self.shared.claims.next_with_work(after) {
            after = ticket;
            let deliveries = self.take(&want, &partitions, false).await?;
            if !deliveries.is_empty()
                && let Err(not_wanted) = self.shared.claims.serve(ticket, deliveries)
            {
                self.give_back(&want.worker, not_wanted).await;
            }
        }
        Ok(())
    }

    pub(crate) async fn give_back(&self, worker: &WorkerId, deliveries: Vec<Delivery>) {
        let ids = deliveries.into_iter().map(|delivery| delivery.id).collect();
        if let Err(error) = self.release_all(worker, ids).await {
            tracing::warn!(%worker, %error, "calls of a claim that was given up could not be given back; their leases will run out");
        }
    }

    /// Delivers what waits now in those partitions that may have work, or in all of them.
    async fn take(&self, want: &ClaimCalls, partitions: &[Wanted], all: bool) -> Result<Vec<Delivery>, StoreError> {
        let mut deliveries = Vec::new();
        let asked: Vec<&Wanted> = partitions.iter().filter(|wanted| wanted.partition.take_note_of_work() || all).collect();
        let chunk = if self.shared.link.is_cluster() { 1 } else { SECTIONS_MAX };
        let mut trouble = None;
        for (number, some) in asked.chunks(chunk).enumerate() {
            let left = want.max as usize - deliveries.len().min(want.max as usize);
            if left == 0 || trouble.is_some() {
                // What was not asked may still have work.
                asked[number * chunk..].iter().for_each(|wanted| wanted.partition.note_work());
                break;
            }
            match self.take_from(want, some, left).await {
                Ok(taken) => deliveries.extend(taken),
                Err(error) => {
                    some.iter().for_each(|wanted| wanted.partition.note_work());
                    trouble = Some(error);
                }
            }
        }
        match trouble {
            Some(error) if deliveries.is_empty() => Err(error),
            _ => Ok(deliveries),
        }
    }

    async fn take_from(&self, want: &ClaimCalls, asked: &[&Wanted], left: usize) -> Result<Vec<Delivery>, StoreError> {
        for wanted in asked {
            self.import_for(&wanted.partition, (wanted.max as usize).min(left)).await;
        }
        let now = self.shared.now();
        let mut args = Args::with_capacity(5 + asked.len());
        args.number(asked.len());
        args.push(want.worker.as_str());
        args.number(now.as_millis());
        args.number(millis(want.lease));
        args.number(left);
        asked.iter().for_each(|wanted| args.number(wanted.max));
        let held: Vec<String> = asked.iter().map(|wanted| format!("{}{}", wanted.partition.keys.held, want.worker)).collect();
        let mut keys: Vec<&str> = Vec::with_capacity(asked.len() * 6);
        for (wanted, held) in asked.iter().zip(&held) {
            let of = &wanted.partition.keys;
            keys.extend([of.calls.as_str(), &of.queue, &of.running, &of.parked, &of.definition, held]);
        }
        // A claim that no replica has is only made again; waiting for replicas could lose the deliveries with the reply.
        let reply = self.shared.link.run_args(&CLAIM, &keys, &args).await?;
        let mut deliveries = Vec::new();
        let mut trouble = None;
        for (wanted, reply) in asked.iter().zip(sections::read("a claim", reply, asked.len())?) {
            match reply {
                Ok(reply) => deliveries.extend(self.read_claimed(&wanted.partition, reply, now).await?),
                Err(error) => {
                    tracing::warn!(function = %wanted.partition.function, %error, "calls of this function cannot be delivered");
                    trouble = Some(error);
                }
            }
        }
        match trouble {
            Some(error) if deliveries.is_empty() && asked.len() == 1 => Err(error),
            _ => Ok(deliveries),
        }
    }

    /// What one section of a claim brought.
    async fn read_claimed(&self, partition: &Arc<Partition>, reply: Value, now: Timestamp) -> Result<Vec<Delivery>, StoreError> {
        let mut parts = value::array("a claim", reply)?.into_iter();
        let left = parts.next().as_ref().and_then(value::number).unwrap_or_default();
        let limited = match parts.next().as_ref().and_then(value::number) {
            Some(0) => Limited::No,
            Some(1) => Limited::ByWorker,
            _ => Limited::ByFunction,
        };
        partition.note_limit(limited);
        let late = value::array("a claim", parts.next().unwrap_or(Value::Nil))?;
        let mut deliveries = Vec::with_capacity(parts.len() / 3);
        while let (Some(id), Some(record), Some(request)) = (parts.next(), parts.next(), parts.next()) {
            deliveries.push(self.delivered(partition, &id, record, request, now)?);
        }
        // Without room for the function the end of a call is the next news; without room for this worker others may have some.
        if left > 0 && (limited != Limited::ByFunction || !deliveries.is_empty()) {
            partition.note_work();
        }
        self.end_late(partition, &late).await?;
        Ok(deliveries)
    }

    fn delivered(
        &self,
        partition: &Arc<Partition>,
        id: &Value,
        record: Value,
        request: Value,
        now: Timestamp,
    ) -> Result<Delivery, StoreError> {
        let call_id = value::call_id(id)?;
        let bytes = |value: Value| Bytes::from(value::into_bytes(value).unwrap_or_default());
        let record = Record::read(&call_id, &bytes(record))?;
        let request = read_request(&partition.function, record.request.as_ref().unwrap_or(&bytes(request)))?;
        if let Some(due) = record.call.due() {
            self.shared.agenda.note(partition, due);
        }
        let delivery = delivery(&record.call, request, now);
        self.shared.held.put(Found { partition: Arc::clone(partition), record: Arc::new(record) });
        Ok(delivery)
    }

    /// Ends calls that a claim found past their deadline.
    async fn end_late(&self, partition: &Arc<Partition>, late: &[Value]) -> Result<(), StoreError> {
        if late.is_empty() {
            return Ok(());
        }
        let ids = late.iter().map(value::call_id).collect::<Result<Vec<CallId>, StoreError>>()?;
        let (now, mut changes) = (self.shared.now(), Vec::new());
        for record in self.records(partition, &ids).await?.into_iter().flatten() {
            let (after, reply) = step(record.call.clone(), CallCommand::ComeDue { max_deliveries: u32::MAX }, now);
            if reply == CallReply::Moved && after.state.has_ended() {
                changes.push(Change::new(Arc::new(record), after));
            }
        }
        // A call that has changed meanwhile is over anyway.
        self.apply(partition, changes).await.map(drop)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.store.shared.claims.lock().claims.retain(|claim| claim.ticket != self.ticket);
        if let Ok(never_taken) = self.served.try_recv()
            && !never_taken.is_empty()
        {
            let (store, worker) = (self.store.clone(), self.worker.clone());
            // Outside a runtime nothing can be given back; the leases run out.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { store.give_back(&worker, never_taken).await });
            }
        }
    }
}

fn delivery(call: &Call, request: towpath_core::call::CallRequest, now: Timestamp) -> Delivery {
    Delivery {
        id: DeliveryId { call_id: call.call_id.clone(), number: call.delivery },
        request,
        attempt: call.attempt(),
        submitted_at: call.submitted_at,
        deadline: call.deadline,
        remaining: call.deadline.since(now),
        lease_until: call.lease_until.unwrap_or(now),
    }
}
