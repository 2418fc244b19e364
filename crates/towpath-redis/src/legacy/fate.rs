//! What became of exported calls: whether a legacy worker runs a call, has lost it, or never gets it.

use std::collections::HashMap;
use std::collections::hash_map::Entry as InMap;
use std::sync::Arc;
use std::time::Duration;

use towpath_core::call::{Call, CallCommand, CallReply, CallState, Claim, Held, step};
use towpath_core::names::CallId;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::consumers::Consumers;
use super::entry::Place;
use super::look::{Look, items};
use super::{CONSUMER, consumer_of, holder};
use crate::calls::change::Change;
use crate::calls::partition::Partition;
use crate::calls::record::Record;
use crate::registry::reply::command;
use crate::store::RedisStore;
use crate::value;

/// A reply follows the acknowledgement of its entry within this, and an entry that is not there is not on its way any more.
const REPLY_WITHIN: Duration = Duration::from_secs(2);
/// So long it is remembered since when a call has no entry, if the call is not looked at any more.
const REMEMBERED: Duration = Duration::from_secs(600);

/// What is decided about an exported call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// It waits, or a legacy worker runs it.
    Leave,
    /// A legacy worker has read it.
    Runs(String),
    /// Its worker is gone, and will not answer it.
    Lost(String),
    /// It was never delivered, and will not be.
    Return,
    /// Its entry was removed before it was delivered.
    Removed,
    /// Its entry was acknowledged, and no reply is there yet.
    Acknowledged,
}

/// The entries that a stream may have.
struct Extent {
    first: Option<Place>,
    /// The last one that it ever had.
    last: Place,
}

impl Extent {
    fn may_have(&self, place: Place) -> bool {
        self.first.is_some_and(|first| first <= place) && place <= self.last
    }
}

/// The looks at streams of one round of timers.
#[derive(Default)]
pub(crate) struct Looks(HashMap<String, Look>);

/// Since when calls have no entry: it was acknowledged without a reply, or removed.
#[derive(Default)]
pub(super) struct WithoutEntry(HashMap<CallId, Timestamp>);

impl WithoutEntry {
    /// How long the call has had none.
    fn note(&mut self, call_id: &CallId, now: Timestamp) -> Duration {
        now.since(*self.0.entry(call_id.clone()).or_insert(now))
    }

    fn forget(&mut self, call_id: &CallId) {
        self.0.remove(call_id);
    }

    /// Since the longest time that any call has had none.
    pub(super) fn longest(&self, now: Timestamp) -> Duration {
        self.0.values().map(|since| now.since(*since)).max().unwrap_or_default()
    }
}

impl RedisStore {
    /// Decides about these calls: some that wait in the stream, and some that legacy workers run.
    pub(super) async fn decide_on_exported(
        &self,
        partition: &Arc<Partition>,
        look: &Look,
        exported: &[Arc<Record>],
        consumers: &Consumers<'_>,
    ) -> Result<(), StoreError> {
        let now = consumers.now;
        let extent = self.extent_for(partition, look, exported, now).await?;
        // Only a call that was delivered can have a reply, and a reply counts whatever became of the worker.
        let is_delivered = |record: &&Arc<Record>| Place::read(&record.exported).is_some_and(|place| place <= look.last);
        let (delivered, mut open): (Vec<_>, Vec<_>) = exported.iter().partition(is_delivered);
        let delivered: Vec<Arc<Record>> = delivered.into_iter().cloned().collect();
        let found = self.find_replies(partition, &delivered).await?;
        open.extend(delivered.iter().zip(found).filter(|(_, found)| !found).map(|(record, _)| record));
        let fates: Vec<(&Arc<Record>, Fate)> =
            open.into_iter().map(|record| (record, fate(record, look, extent.as_ref(), consumers))).collect();
        let mut max_deliveries = u32::MAX;
        if fates.iter().any(|(_, fate)| matches!(fate, Fate::Lost(_) | Fate::Acknowledged)) {
            max_deliveries = self.retry_policy(partition).await?.max_deliveries;
        }
        let mut changes = Vec::new();
        {
            let mut without = partition.legacy.without_entry();
            without.0.retain(|_, since| now.since(*since) < REMEMBERED);
            for (record, fate) in fates {
                let call_id = &record.call.call_id;
                if !matches!(fate, Fate::Removed | Fate::Acknowledged) {
                    without.forget(call_id);
                }
                let change = match fate {
                    Fate::Leave => None,
                    Fate::Runs(consumer) => runs(partition, record, &consumer, now),
                    Fate::Return => returned(record, now),
                    Fate::Lost(consumer) => lost(record, &consumer, max_deliveries, now),
                    Fate::Removed => (without.note(call_id, now) >= REPLY_WITHIN).then(|| returned(record, now)).flatten(),
                    // A legacy worker of generation B acknowledges entries that other workers hold: one that lives goes on, and answers.
                    Fate::Acknowledged => {
                        let (consumer, since) = (record.call.holder.as_ref().map_or("", consumer_of), without.note(call_id, now));
                        let is_lost = since >= REPLY_WITHIN && consumers.have_abandoned(consumer, since);
                        is_lost.then(|| lost(record, consumer, max_deliveries, now)).flatten()
                    }
                };
                changes.extend(change);
            }
        }
        let dying = changes.iter().map(|change: &Change| (&partition.function, &change.after.call));
        self.keep_reservations(dying.filter(|(_, call)| call.state == CallState::Dead)).await?;
        // Where another server was faster, the call has changed.
        self.apply(partition, changes).await.map(drop)
    }

    /// Which entries the stream may have, if a call waits in it for so long that its entry may have been removed. An entry that another program
    /// has removed from between others is not missed.
    async fn extent_for(
        &self,
        partition: &Partition,
        look: &Look,
        exported: &[Arc<Record>],
        now: Timestamp,
    ) -> Result<Option<Extent>, StoreError> {
        let waits_long = |record: &Arc<Record>| {
            Place::read(&record.exported).is_some_and(|place| look.last < place && now.since(place.at()) >= REPLY_WITHIN)
        };
        if !exported.iter().any(waits_long) {
            return Ok(None);
        }
        let ask = [command("XINFO", &["STREAM", partition.keys.stream.as_str()])];
        let reply = self.shared.link.ask_all(&ask).await?.pop().unwrap_or(redis::Value::Nil);
        let about = |name: &str| items(&reply).chunks_exact(2).find(|pair| value::text(&pair[0]) == Some(name)).map(|pair| &pair[1]);
        let place = |value: &redis::Value| value::text(value).and_then(Place::read);
        let first = about("first-entry").and_then(|entry| items(entry).first()).and_then(place);
        Ok(Some(Extent { first, last: about("last-generated-id").and_then(place).unwrap_or_default() }))
    }

    /// A call that is due, with what legacy workers are known to have done with it: one that was delivered to a legacy worker has run.
    pub(crate) async fn seen_by_legacy_workers(
        &self,
        partition: &Arc<Partition>,
        record: Arc<Record>,
        now: Timestamp,
        looks: &mut Looks,
    ) -> Result<Arc<Record>, StoreError> {
        if record.call.state != CallState::Queued || record.exported.is_empty() {
            return Ok(record);
        }
        let Some(place) = Place::read(&record.exported) else { return Ok(record) };
        let look = match looks.0.entry(partition.member.clone()) {
            InMap::Occupied(seen) => seen.into_mut(),
            InMap::Vacant(new) => new.insert(self.look_at_stream(partition, false, 0).await?),
        };
        let consumer = look.pending.get(&place).map(|pending| pending.consumer.as_str());
        if place > look.last || consumer == Some(CONSUMER) || consumer.is_none() && look.missed.has(place) {
            return Ok(record);
        }
        let Some(change) = runs(partition, &record, consumer.unwrap_or_default(), now) else { return Ok(record) };
        let after = Arc::clone(&change.after);
        // A call that has changed meanwhile is not ended by this timer either.
        Ok(if self.apply(partition, vec![change]).await?[0] { after } else { record })
    }
}

fn fate(record: &Record, look: &Look, extent: Option<&Extent>, consumers: &Consumers<'_>) -> Fate {
    let Some(place) = Place::read(&record.exported) else { return Fate::Return };
    let waits = record.call.state == CallState::Queued;
    match look.pending.get(&place) {
        // A process of Towpath is about to import it, or has died: that is taken over like an entry of a legacy caller.
        Some(pending) if pending.consumer == CONSUMER && waits => Fate::Leave,
        Some(pending) if pending.consumer != CONSUMER => {
            if consumers.have_abandoned(&pending.consumer, pending.idle) {
                Fate::Lost(pending.consumer.clone())
            } else if waits {
                Fate::Runs(pending.consumer.clone())
            } else {
                Fate::Leave
            }
        }
        _ if look.is_beyond_horizon(place) => Fate::Leave,
        _ if waits && look.missed.has(place) => Fate::Return,
        _ if place <= look.last => Fate::Acknowledged,
        _ if extent.is_none_or(|extent| extent.may_have(place)) => Fate::Leave,
        _ => Fate::Removed,
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
