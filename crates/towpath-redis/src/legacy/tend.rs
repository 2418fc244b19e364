//! Looks after the stream of one function: decides what became of exported calls, takes over what dead workers have left, and exports.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::call::{Call, CallCommand, CallReply, CallState, Claim, Held, step};
use towpath_core::names::CallId;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::answers::sent_mark;
use super::consumers::Consumers;
use super::entry::{Entry, Place};
use super::import::If;
use super::look::Look;
use super::peers::Serving;
use super::{CONSUMER, holder};
use crate::calls::change::Change;
use crate::calls::partition::Partition;
use crate::calls::record::Record;
use crate::registry::reply::command;
use crate::store::RedisStore;
use crate::value;

/// An entry that was acknowledged without a reply is put back into the queue after this.
const REPLY_WITHIN: Duration = Duration::from_secs(2);

/// What is decided about an exported call.
enum Fate {
    /// It waits, or a legacy worker runs it.
    Leave,
    /// A legacy worker has read it.
    Runs(String),
    /// It will never be answered: its worker is gone.
    Lost(String),
    /// Its entry is gone, or was never delivered.
    Return,
    /// Its entry was acknowledged, and no reply is there yet.
    Unanswered,
}

impl RedisStore {
    /// Looks after the stream of one partition.
    pub(super) async fn tend(&self, partition: &Arc<Partition>) -> Result<(), StoreError> {
        let serving = self.last_serving(&partition.function).unwrap_or_default();
        // What comes from now on is for the next tick.
        partition.legacy.is_tended.store(false, Ordering::Release);
        let tended = self.tend_once(partition, &serving).await;
        if !matches!(tended, Ok(true)) || serving.has_legacy {
            partition.legacy.tend();
        }
        tended.map(drop)
    }

    /// `true`: there is nothing to look after.
    async fn tend_once(&self, partition: &Arc<Partition>, serving: &Serving) -> Result<bool, StoreError> {
        let look = self.look_at_stream(partition, serving.has_legacy).await?;
        if look.has_unread() {
            partition.legacy.note_entries();
            self.work_came(partition);
        }
        let consumers = Consumers {
            names: look.consumers.iter().map(|(name, idle)| (name.as_str(), *idle)).collect(),
            workers: &serving.legacy,
            abandoned_after: self.shared.options.timing.abandoned_after,
            now: self.shared.now(),
        };
        let waiting = look.exported.iter().map(|exported| (Arc::clone(&exported.record), exported.is_there));
        let exported: Vec<(Arc<Record>, bool)> = waiting.chain(look.running.iter().map(|record| (Arc::clone(record), true))).collect();
        self.decide_on_exported(partition, &look, &exported, &consumers).await?;
        let places: HashSet<Place> = exported.iter().filter_map(|(record, _)| Place::read(&record.exported)).collect();
        self.take_over(partition, &look, &places, &consumers).await?;
        self.adopt_orphans(partition, &look, &places, &consumers).await?;
        self.answer_owed(partition, &look.owed).await?;
        self.export_for(partition, serving, look.exported_count, look.oldest_queued).await?;
        Ok(look.is_quiet())
    }

    async fn decide_on_exported(
        &self,
        partition: &Arc<Partition>,
        look: &Look,
        exported: &[(Arc<Record>, bool)],
        consumers: &Consumers<'_>,
    ) -> Result<(), StoreError> {
        let fates: Vec<Fate> = exported.iter().map(|(record, is_there)| fate(record, *is_there, look, consumers)).collect();
        // Only a call that was delivered can have a reply, and a reply counts whatever became of the worker.
        let is_delivered = |record: &Record| Place::read(&record.exported).is_some_and(|place| place <= look.last);
        let delivered: Vec<Arc<Record>> =
            exported.iter().map(|(record, _)| record).filter(|record| is_delivered(record)).cloned().collect();
        let found = self.find_replies(partition, &delivered).await?;
        let ended: HashSet<&CallId> =
            delivered.iter().zip(found).filter(|(_, found)| *found).map(|(record, _)| &record.call.call_id).collect();
        let mut unanswered = HashMap::new();
        let (mut changes, now) = (Vec::new(), self.shared.now());
        for ((record, _), fate) in exported.iter().zip(fates).filter(|((record, _), _)| !ended.contains(&record.call.call_id)) {
            match fate {
                Fate::Leave => {}
                Fate::Runs(consumer) => changes.extend(runs(partition, record, &consumer, now)),
                Fate::Return => changes.extend(returned(record, now)),
                Fate::Lost(consumer) => {
                    let max_deliveries = self.retry_policy(partition).await?.max_deliveries;
                    changes.extend(lost(record, &consumer, max_deliveries, now));
                }
                Fate::Unanswered => {
                    let call_id = record.call.call_id.clone();
                    let since = partition.legacy.unanswered().get(&call_id).copied().unwrap_or(now);
                    if now.since(since) >= REPLY_WITHIN {
                        changes.extend(returned(record, now));
                    } else {
                        unanswered.insert(call_id, since);
                    }
                }
            }
        }
        *partition.legacy.unanswered() = unanswered;
        let dying = changes.iter().map(|change: &Change| (&partition.function, &change.after.call));
        self.keep_reservations(dying.filter(|(_, call)| call.state == CallState::Dead)).await?;
        // Where another server was faster, the call has changed.
        self.apply(partition, changes).await.map(drop)
    }

    /// Imports entries of legacy callers that a dead worker, or a dead process of Towpath, has read.
    async fn take_over(
        &self,
        partition: &Arc<Partition>,
        look: &Look,
        exported: &HashSet<Place>,
        consumers: &Consumers<'_>,
    ) -> Result<(), StoreError> {
        let is_ours = |place: &Place, consumer: &str| consumer != CONSUMER && exported.contains(place);
        let abandoned = look
            .pending
            .iter()
            .filter(|(place, pending)| !is_ours(place, &pending.consumer) && consumers.have_abandoned(&pending.consumer, pending.idle));
        let places: Vec<Place> = abandoned.map(|(place, _)| *place).collect();
        let entries = self.entries(partition, &places).await?;
        if !entries.is_empty() {
            tracing::warn!(function = %partition.function, count = entries.len(), "entries that a worker has read and never answered are imported");
            self.import(partition, entries, If::Pending).await?;
            self.work_came(partition);
        }
        Ok(())
    }

    /// Imports orphans that are due, and forgets those that are dealt with.
    async fn adopt_orphans(
        &self,
        partition: &Arc<Partition>,
        look: &Look,
        exported: &HashSet<Place>,
        consumers: &Consumers<'_>,
    ) -> Result<(), StoreError> {
        if look.orphans.is_empty() {
            return Ok(());
        }
        let idle = |since: Timestamp| consumers.now.since(since);
        let due = look.orphans.iter().filter(|(_, orphan)| consumers.have_abandoned(&orphan.consumer, idle(orphan.since)));
        let due: Vec<Place> = due.map(|(place, _)| *place).filter(|place| !exported.contains(place)).collect();
        let entries = self.unanswered_entries(self.entries(partition, &due).await?).await?;
        self.import(partition, entries, If::InStream).await?;
        // One that is answered, imported or gone is not in the stream any more, or must not be.
        let mut settled: Vec<Place> = due;
        let waiting: Vec<Place> =
            look.orphans.keys().filter(|place| !settled.contains(place) && !exported.contains(place)).copied().collect();
        let there: HashSet<Place> = self.entries(partition, &waiting).await?.into_iter().map(|entry| entry.place).collect();
        settled.extend(waiting.into_iter().filter(|place| !there.contains(place)));
        if !settled.is_empty() {
            let mut forget = command("HDEL", &[&partition.keys.legacy]);
            forget.arg(settled.iter().map(|place| format!("o:{place}")).collect::<Vec<_>>());
            self.shared.link.ask(&forget).await?;
            self.work_came(partition);
        }
        Ok(())
    }

    /// These entries, as far as they are in the stream.
    async fn entries(&self, partition: &Partition, places: &[Place]) -> Result<Vec<Entry>, StoreError> {
        let stream = &partition.keys.stream;
        let asks: Vec<Cmd> =
            places.iter().map(|place| command("XRANGE", &[stream.clone(), place.to_string(), place.to_string()])).collect();
        Ok(self.shared.link.ask_all(&asks).await?.iter().flat_map(Entry::read_all).collect())
    }

    /// Those entries that have no reply, as far as that can be seen: a reply that waits on the list, or generation B's mark.
    async fn unanswered_entries(&self, entries: Vec<Entry>) -> Result<Vec<Entry>, StoreError> {
        let traces = |entry: &Entry| {
            let mark = entry.call_id.as_ref().map(sent_mark).unwrap_or_default();
            [command("EXISTS", &[entry.reply_list().unwrap_or_default()]), command("EXISTS", &[mark])]
        };
        let found = self.shared.link.ask_all(&entries.iter().flat_map(traces).collect::<Vec<_>>()).await?;
        let is_answered = |found: &[Value]| found.iter().any(|trace| value::number(trace) == Some(1));
        Ok(entries.into_iter().zip(found.chunks_exact(2)).filter(|(_, found)| !is_answered(found)).map(|(entry, _)| entry).collect())
    }

    /// A call that is due, with what legacy workers are known to have done with it: one that was delivered to a legacy worker has run.
    pub(crate) async fn seen_by_legacy_workers(
        &self,
        partition: &Arc<Partition>,
        record: Arc<Record>,
        now: Timestamp,
    ) -> Result<Arc<Record>, StoreError> {
        if record.call.state != CallState::Queued || record.exported.is_empty() {
            return Ok(record);
        }
        let Some(place) = Place::read(&record.exported) else { return Ok(record) };
        let look = self.look_at_stream(partition, false).await?;
        let consumer = look.pending.get(&place).map(|pending| pending.consumer.as_str());
        if place > look.last || consumer == Some(CONSUMER) {
            return Ok(record);
        }
        let Some(change) = runs(partition, &record, consumer.unwrap_or_default(), now) else { return Ok(record) };
        let after = Arc::clone(&change.after);
        // A call that has changed meanwhile is not ended by this timer either.
        Ok(if self.apply(partition, vec![change]).await?[0] { after } else { record })
    }
}

fn fate(record: &Record, is_there: bool, look: &Look, consumers: &Consumers<'_>) -> Fate {
    let Some(place) = Place::read(&record.exported) else { return Fate::Return };
    let waits = record.call.state == CallState::Queued;
    match (look.pending.get(&place), look.orphans.get(&place)) {
        // A process of Towpath is about to import it, or has died: that is taken over like an entry of a legacy caller.
        (Some(pending), _) if pending.consumer == CONSUMER && waits => Fate::Leave,
        (Some(pending), _) if pending.consumer != CONSUMER => {
            if consumers.have_abandoned(&pending.consumer, pending.idle) {
                Fate::Lost(pending.consumer.clone())
            } else if waits {
                Fate::Runs(pending.consumer.clone())
            } else {
                Fate::Leave
            }
        }
        (_, Some(orphan)) if orphan.consumer.is_empty() || orphan.consumer == CONSUMER => Fate::Return,
        (_, Some(orphan)) => {
            let is_lost = consumers.have_abandoned(&orphan.consumer, consumers.now.since(orphan.since));
            if is_lost { Fate::Lost(orphan.consumer.clone()) } else { Fate::Leave }
        }
        _ if place <= look.last => Fate::Unanswered,
        _ if is_there => Fate::Leave,
        _ => Fate::Return,
    }
}

/// The call as a legacy worker runs it, until its deadline.
fn claimed(record: &Record, consumer: &str, now: Timestamp) -> Option<Call> {
    let deadline = record.call.deadline;
    // It was delivered before its deadline, even if that is noticed later.
    let at = now.min(Timestamp::from_millis(deadline.as_millis().saturating_sub(1)));
    let claim = Claim { worker: holder(consumer)?, lease: deadline.since(at) };
    let (call, reply) = step(record.call.clone(), CallCommand::Claim(claim), at);
    matches!(reply, CallReply::Claimed { .. }).then_some(call)
}

fn runs(partition: &Partition, record: &Arc<Record>, consumer: &str, now: Timestamp) -> Option<Change> {
    let after = record.next(claimed(record, consumer, now)?);
    let after = Record { exported: Arc::clone(&record.exported), ..after };
    let (field, keys) = (format!("r:{}", record.call.call_id), &partition.keys);
    let entry = record.exported.as_bytes();
    Some(Change::to(Arc::clone(record), after).with([b"HSET", keys.legacy.as_bytes(), field.as_bytes(), entry]))
}

/// The call goes back to the queue, as if it had not been exported.
fn returned(record: &Arc<Record>, now: Timestamp) -> Option<Change> {
    let call = match &record.call.holder {
        None => record.call.clone(),
        Some(worker) => {
            let held = Held { worker: worker.clone(), number: record.call.delivery };
            let (call, reply) = step(record.call.clone(), CallCommand::Release(held), now);
            (reply == CallReply::Recorded).then_some(call)?
        }
    };
    let after = Record { exported: Arc::from(""), ..record.next(call) };
    Some(Change::to(Arc::clone(record), after))
}

/// The call is delivered again, or dies, as if the lease of a Towpath worker had ended.
fn lost(record: &Arc<Record>, consumer: &str, max_deliveries: u32, now: Timestamp) -> Option<Change> {
    let mut call = if record.call.state == CallState::Queued { claimed(record, consumer, now)? } else { record.call.clone() };
    call.lease_until = Some(now);
    let (call, reply) = step(call, CallCommand::ComeDue { max_deliveries }, now);
    let after = Record { exported: Arc::from(""), ..record.next(call) };
    (reply == CallReply::Moved).then(|| Change::to(Arc::clone(record), after))
}
