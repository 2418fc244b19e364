//! Claims: a worker's request for calls, served at once if there are any, else when a notification says that there may be.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use tokio::sync::oneshot;
use towpath_core::call::{Call, CallCommand, CallReply, step};
use towpath_core::ids::DeliveryId;
use towpath_core::names::{CallId, WorkerId};
use towpath_core::store::{ClaimCalls, Delivery, StoreError};
use towpath_core::time::{Timestamp, millis};

use super::change::Change;
use super::find::Found;
use super::partition::{Limits, Partition};
use super::record::{Record, read_request};
use super::sections;
use super::waiting::{Served, WaitingClaim};
use crate::pause::pause;
use crate::script::{Args, CLAIM};
use crate::store::RedisStore;
use crate::value;

/// So many functions are asked by one script at most.
const SECTIONS_MAX: usize = 32;
/// A function that could not be asked is asked again after this.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a look into queues brought.
#[derive(Default)]
struct Taken {
    deliveries: Vec<Delivery>,
    /// Nothing was found among the lines that were looked at, and there are more.
    must_look_again: bool,
    /// The trouble of some functions, if others could be asked.
    trouble: Option<StoreError>,
    /// At least one function could be asked.
    any_asked: bool,
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
    /// A submit may hand calls to it.
    is_written_down: bool,
    served: oneshot::Receiver<Served>,
}

impl RedisStore {
    pub(crate) async fn claim_or_wait(&self, want: ClaimCalls) -> Result<Vec<Delivery>, StoreError> {
        if want.max == 0 || want.functions.is_empty() {
            return Ok(Vec::new());
        }
        for wanted in want.functions.iter() {
            self.check_place(&wanted.function)?;
        }
        let until = self.shared.now() + want.wait;
        let look = self.shared.claims.looking.begin();
        let changes = self.shared.news.function_changes();
        let partitions = self.partitions_of_claim(&want, changes);
        let waits = !want.wait.is_zero();
        let want = Arc::new(want);
        // Without a wait there is no notification to rely on, so all queues are looked at.
        let taken = self.take_in_a_task(Arc::clone(&want), Arc::clone(&partitions), !waits).await?;
        if !taken.deliveries.is_empty() {
            return Ok(taken.deliveries);
        }
        match taken.trouble {
            Some(trouble) if !waits || !taken.any_asked => return Err(trouble),
            None if !waits => return Ok(Vec::new()),
            _waits => {}
        }
        let mut turn = self.queue_up(want, partitions, changes);
        drop(look);
        tokio::select! {
            biased;
            served = &mut turn.served => {
                let served = served.unwrap_or_default();
                turn.is_written_down &= !served.handed;
                Ok(served.deliveries)
            }
            () = self.shared.clock.sleep_until(until) => Ok(Vec::new()),
        }
    }

    /// All partitions of the functions that a claim wants calls of, maybe as the latest claim has determined them. `changes`: how often
    /// functions had changed before.
    fn partitions_of_claim(&self, want: &ClaimCalls, changes: u64) -> Arc<[Wanted]> {
        self.shared.claims.list_of(&want.functions, changes).unwrap_or_else(|| {
            let partitions = self.partitions_wanted(want);
            self.shared.claims.keep_list(&want.functions, changes, &partitions);
            partitions
        })
    }

    /// All partitions of the functions that a claim wants calls of.
    fn partitions_wanted(&self, want: &ClaimCalls) -> Arc<[Wanted]> {
        let wanted = want.functions.iter().filter(|wanted| wanted.max > 0);
        let partitions = wanted.flat_map(|wanted| self.partitions(&wanted.function).into_iter().map(|partition| (partition, wanted.max)));
        partitions.map(|(partition, max)| Wanted { partition, max }).collect()
    }

    /// Takes in a task of its own: if the caller goes away half way, what was taken for it is given back.
    async fn take_in_a_task(&self, want: Arc<ClaimCalls>, partitions: Arc<[Wanted]>, all: bool) -> Result<Taken, StoreError> {
        if !all && !partitions.iter().any(|wanted| wanted.partition.may_have_work()) {
            return Ok(Taken::default());
        }
        let (sender, receiver) = oneshot::channel();
        let store = self.clone();
        tokio::spawn(async move {
            let taken = store.take(&want, &partitions, all).await;
            if let Err(not_wanted) = sender.send(taken) {
                store.give_back(&want.worker, not_wanted.deliveries).await;
            }
        });
        receiver.await.map_err(|_| StoreError::Unknown("the claim was given up".to_owned()))
    }

    /// Puts a claim into the line. `changes`: how often functions had changed when its partitions were determined.
    fn queue_up(&self, want: Arc<ClaimCalls>, partitions: Arc<[Wanted]>, changes: u64) -> Turn {
        let partitions = if self.shared.news.function_changes() == changes { partitions } else { self.partitions_wanted(&want) };
        for wanted in partitions.iter() {
            self.hear_of_work(&wanted.partition);
        }
        let (sender, served) = oneshot::channel();
        let (asked, worker) = (Arc::clone(&want), want.worker.clone());
        let ticket = {
            let mut line = self.shared.claims.lock();
            line.last_ticket += 1;
            let ticket = line.last_ticket;
            line.claims.push_back(WaitingClaim { ticket, want, partitions, served: sender });
            ticket
        };
        self.shared.claims.signal.notify_one();
        let is_written_down = self.write_down_claim(&asked, ticket);
        Turn { store: self.clone(), ticket, worker, is_written_down, served }
    }

    /// From now on this process hears when calls come into a partition's queue.
    fn hear_of_work(&self, partition: &Arc<Partition>) {
        if partition.is_heard.load(Ordering::Acquire) || partition.is_heard.swap(true, Ordering::AcqRel) {
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
        self.follow_shards().await?;
        let mut after = 0;
        while let Some((ticket, want, partitions)) = self.shared.claims.next_with_work(after) {
            let taken = self.take(&want, &partitions, false).await;
            if taken.deliveries.is_empty() {
                // Lines of calls that do not wait were removed. What is behind them is this claim's, too.
                after = if taken.must_look_again { after } else { ticket };
                continue;
            }
            after = ticket;
            if let Err(not_wanted) = self.shared.claims.serve(ticket, Served { deliveries: taken.deliveries, handed: false }) {
                self.give_back(&want.worker, not_wanted).await;
            }
        }
        Ok(())
    }

    /// A function may have been spread over more partitions since claims began to wait.
    async fn follow_shards(&self) -> Result<(), StoreError> {
        let changes = self.shared.news.function_changes();
        if self.shared.claims.lock().changes == changes {
            return Ok(());
        }
        self.members_of_the_set().await?;
        for partition in self.shared.claims.follow_shards(changes, |want| self.partitions_wanted(want)) {
            self.hear_of_work(&partition);
            partition.note_work();
        }
        Ok(())
    }

    pub(crate) async fn give_back(&self, worker: &WorkerId, deliveries: Vec<Delivery>) {
        let ids = deliveries.into_iter().map(|delivery| delivery.id).collect();
        if let Err(error) = self.release_all(worker, ids).await {
            tracing::warn!(%worker, %error, "calls of a claim that was given up could not be given back; their leases will run out");
        }
    }

    /// Delivers what waits now in those partitions that may have work, or in all of them. The trouble of one function is not that of another.
    async fn take(&self, want: &ClaimCalls, partitions: &[Wanted], all: bool) -> Taken {
        let mut taken = Taken::default();
        let asked: Vec<&Wanted> = partitions.iter().filter(|wanted| wanted.partition.take_note_of_work() || all).collect();
        let chunk = if self.shared.link.is_cluster() { 1 } else { SECTIONS_MAX };
        for (number, some) in asked.chunks(chunk).enumerate() {
            let left = want.max as usize - taken.deliveries.len().min(want.max as usize);
            if left == 0 {
                // What was not asked may still have work.
                asked[number * chunk..].iter().for_each(|wanted| wanted.partition.note_work());
                break;
            }
            if let Err(error) = self.take_from(want, some, left, &mut taken).await {
                some.iter().for_each(|wanted| self.ask_again_later(&wanted.partition));
                taken.trouble = Some(error);
            }
        }
        taken.must_look_again &= taken.deliveries.is_empty();
        taken
    }

    /// A function could not be asked: claims look again after a while, and other functions do not wait for that.
    fn ask_again_later(&self, partition: &Arc<Partition>) {
        let (shared, partition) = (Arc::downgrade(&self.shared), Arc::clone(partition));
        tokio::spawn(async move {
            pause(ASKED_AGAIN_AFTER).await;
            if let Some(shared) = shared.upgrade() {
                Self { shared }.work_came(&partition);
            }
        });
    }

    async fn take_from(&self, want: &ClaimCalls, asked: &[&Wanted], left: usize, taken: &mut Taken) -> Result<(), StoreError> {
        for wanted in asked {
            self.import_for(&wanted.partition, (wanted.max as usize).min(left)).await;
        }
        let (now, changes) = (self.shared.now(), self.shared.news.function_changes());
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
        let reply = self.shared.link.run_args(&CLAIM, &keys, &args).await;
        if let Err(StoreError::Unknown(_)) = &reply {
            self.give_back_unheard(want, asked, now);
        }
        let reply = reply?;
        for ((wanted, held), reply) in asked.iter().zip(&held).zip(sections::read("a claim", reply, asked.len())?) {
            let partition = &wanted.partition;
            match reply.and_then(|reply| self.read_claimed(partition, reply, now, changes, taken)) {
                Ok(late) => {
                    taken.any_asked = true;
                    // What was claimed is delivered in any case.
                    if let Err(error) = self.end_late(partition, &late).await {
                        tracing::debug!(function = %partition.function, %error, "calls past their deadline were not ended; their timers do it");
                    }
                }
                Err(error) => {
                    let error = self.explain_with(partition, &[held], error).await;
                    self.shared.pass_over(&partition.keys.queue, b"", format!("calls cannot be delivered; trying again: {error}"));
                    self.ask_again_later(partition);
                    taken.trouble = Some(error);
                }
            }
        }
        Ok(())
    }

    /// Reads what one section of a claim brought. Returns the calls past their deadline.
    fn read_claimed(
        &self,
        partition: &Arc<Partition>,
        reply: Value,
        now: Timestamp,
        changes: u64,
        taken: &mut Taken,
    ) -> Result<Vec<Value>, StoreError> {
        let mut parts = value::array("a claim", reply)?.into_iter();
        let left = parts.next().as_ref().and_then(value::number).unwrap_or_default();
        let limits = Limits::read(parts.next().as_ref().and_then(value::number).unwrap_or_default());
        partition.note_limits(limits, changes);
        let late = value::array("a claim", parts.next().unwrap_or(Value::Nil))?;
        let before = taken.deliveries.len();
        while let (Some(id), Some(record), Some(request)) = (parts.next(), parts.next(), parts.next()) {
            match self.delivered(partition, &id, record, request, now) {
                Ok(delivery) => taken.deliveries.push(delivery),
                // Its lease ends, and in the end it becomes a dead letter. The others are delivered.
                Err(error) => tracing::warn!(function = %partition.function, %error, "a call cannot be delivered"),
            }
        }
        let brought = taken.deliveries.len() > before;
        // Without room for the function the end of a call is the next news; without room for this worker others may have some.
        if left > 0 && (!limits.ended_by_function() || brought) {
            partition.note_work();
        }
        taken.must_look_again |= left > 0 && !brought && !limits.ended_by_function() && !limits.ended_by_worker();
        Ok(late)
    }

    pub(super) fn delivered(
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
        if record.call.lease_until.is_some_and(|until| until <= self.shared.now()) {
            // This process stood still meanwhile, and the call may be another worker's by now.
            return Err(StoreError::Unknown(format!("the lease of call '{call_id}' was over before its delivery was read")));
        }
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
        let ids: Vec<CallId> = late.iter().filter_map(|id| value::call_id(id).ok()).collect();
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
        let never_taken = self.served.try_recv().unwrap_or_default();
        if self.is_written_down && !never_taken.handed {
            self.store.withdraw_claim(&self.worker);
        }
        if !never_taken.deliveries.is_empty() {
            let (store, worker, never_taken) = (self.store.clone(), self.worker.clone(), never_taken.deliveries);
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
