//! Lists of calls for people, newest first. One page looks at a bounded number of calls, and reads no payload that it does not show.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use redis::{Cmd, Value};
use towpath_core::call::{CallRequest, CallState};
use towpath_core::inspect::{CallFilter, CallView, Page, PageRequest};
use towpath_core::names::CallId;
use towpath_core::store::StoreError;

use super::partition::Partition;
use super::record::Record;
use super::walk::{Place, WalkPlace};
use crate::registry::reply::command;
use crate::script::{Args, BRIEF};
use crate::store::RedisStore;
use crate::unreadable::is_odd;
use crate::value;

/// So many calls are looked at in one go.
pub(super) const CHUNK: usize = 200;
/// Past this many calls a page ends, with at least one chunk of each function looked at.
pub(super) const LOOKED_MAX: usize = 5_000;
/// A record of more bytes is read by itself: a script would hold all of them at once.
const LONG: usize = 8 * 1024;

/// A call that was found, its sequence, and where it is kept.
type FoundCall = (u64, CallView, Arc<Partition>);

/// Calls by sequence, the newest last; no more than a page needs.
struct Newest<'a> {
    filter: &'a CallFilter,
    limit: usize,
    below: Option<u64>,
    found: BTreeMap<(u64, CallId), (CallView, Arc<Partition>)>,
    /// How many calls were looked at.
    looked: usize,
    /// Of some function, calls with a lower sequence were not looked at.
    cut: Option<u64>,
    /// A walk has shown the others.
    only_ended: bool,
}

impl Newest<'_> {
    fn has_room_for(&self, sequence: u64) -> bool {
        let oldest = self.found.first_key_value().map(|((sequence, _), _)| *sequence);
        self.below.is_none_or(|below| sequence < below) && (self.found.len() < self.limit || oldest.is_none_or(|oldest| sequence > oldest))
    }

    fn add(&mut self, sequence: u64, view: CallView, partition: &Arc<Partition>) {
        if self.has_room_for(sequence) && matches(&view, self.filter) {
            self.found.insert((sequence, view.call.call_id.clone()), (view, Arc::clone(partition)));
            while self.found.len() > self.limit {
                self.found.pop_first();
            }
        }
    }

    /// What was found, newest first, and where the next page goes on.
    fn page(self, limit: usize) -> (Vec<FoundCall>, Option<u64>) {
        let cut = self.cut;
        let found = self.found.into_iter().map(|((sequence, _), (view, partition))| (sequence, view, partition));
        let mut found: Vec<_> = found.filter(|(sequence, ..)| cut.is_none_or(|cut| *sequence >= cut)).collect();
        found.sort_by_key(|(sequence, ..)| Reverse(*sequence));
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().map(|(sequence, ..)| *sequence).filter(|_| more).or(cut);
        (found, next)
    }
}

impl RedisStore {
    /// One page of calls.
    pub(crate) async fn list_calls(&self, filter: &CallFilter, page: PageRequest) -> Result<Page<CallView>, StoreError> {
        let limit = page.limit.min(PageRequest::LIMIT_MAX) as usize;
        let mut partitions = self.all_partitions().await?;
        partitions.retain(|partition| is_meant(partition, filter));
        let (below, only_ended) = match Place::read(page.after) {
            Place::InWalk(from) => return self.walk_calls(partitions, filter, from, limit).await,
            Place::Below { only_ended: false, .. } if self.has_many_timers(&partitions, filter).await => {
                return self.walk_calls(partitions, filter, WalkPlace::FIRST, limit).await;
            }
            Place::Below { sequence, only_ended } => (sequence, only_ended),
        };
        let mut newest = Newest { filter, limit: limit + 1, below, found: BTreeMap::new(), looked: 0, cut: None, only_ended };
        let mut unreached = Vec::new();
        for partition in &partitions {
            match self.collect(partition, &mut newest).await {
                // One function's trouble hides no other. Asked for alone, it is told.
                Err(error) if self.shared.is_local(&error) && filter.function.is_none() => {
                    let error = self.explain(partition, error).await;
                    self.shared.pass_over(&partition.keys.calls, b"", format!("calls of this function cannot be listed: {error}"));
                    unreached.extend((!is_odd(&error)).then_some(error));
                }
                Err(error) => return Err(self.explain(partition, error).await),
                Ok(()) => {}
            }
        }
        // When no function can be reached, it is not the trouble of one.
        if let Some(error) = unreached.pop().filter(|_| unreached.len() + 1 == partitions.len()) {
            return Err(error);
        }
        let (found, next) = newest.page(limit);
        let page = if filter.brief {
            Page { items: found.into_iter().map(|(_, view, _)| view).collect(), next }
        } else {
            self.with_payloads(found, next).await?
        };
        let next = page.next.map(|sequence| Place::Below { sequence: Some(sequence), only_ended }.write());
        Ok(Page { next, ..page })
    }

    /// Reads the payloads of what was found one by one, until they are many bytes.
    async fn with_payloads(&self, found: Vec<FoundCall>, next: Option<u64>) -> Result<Page<CallView>, StoreError> {
        let (count, mut items, mut bytes) = (found.len(), Vec::with_capacity(found.len()), 0);
        for (place, (sequence, view, partition)) in found.into_iter().enumerate() {
            let whole = self.wholes(&partition, std::slice::from_ref(&view.call.call_id)).await?.pop().flatten();
            match whole.map(|whole| whole.view(&partition)) {
                Some(Ok(whole)) => {
                    bytes += whole.payload_bytes();
                    items.push(whole);
                }
                Some(Err(error)) => self.shared.pass_over(&partition.keys.calls, view.call.call_id.as_str().as_bytes(), error),
                None => {} // it is gone
            }
            if bytes >= PageRequest::BYTES_MAX && place + 1 < count {
                return Ok(Page { items, next: Some(sequence) });
            }
        }
        Ok(Page { items, next })
    }

    /// Adds the newest calls of a partition that the filter means.
    async fn collect(&self, partition: &Arc<Partition>, newest: &mut Newest<'_>) -> Result<(), StoreError> {
        if !newest.only_ended {
            self.collect_open(partition, newest).await?;
        }
        if !means_ended(newest.filter) {
            return Ok(());
        }
        let keys = &partition.keys;
        let mut buckets = Cmd::new();
        buckets.arg("ZRANGE").arg(&keys.buckets).arg(0).arg(-1);
        for bucket in value::array("ZRANGE", self.shared.link.ask(&buckets).await?)? {
            let bucket = value::text(&bucket).unwrap_or_default();
            let (list, ended) = (format!("{}{bucket}", keys.listed), format!("{}{bucket}", keys.ended));
            self.collect_by_sequence(partition, &list, &ended, newest).await?;
        }
        Ok(())
    }

    /// Adds the newest open calls and dead letters.
    async fn collect_open(&self, partition: &Arc<Partition>, newest: &mut Newest<'_>) -> Result<(), StoreError> {
        let (keys, filter) = (&partition.keys, newest.filter);
        if means(filter, CallState::Queued) {
            self.collect_by_sequence(partition, &keys.queue, &keys.calls, newest).await?;
            self.collect_by_sequence(partition, &keys.exported, &keys.calls, newest).await?;
        }
        if means(filter, CallState::Dead) {
            self.collect_by_sequence(partition, &keys.dead, &keys.calls, newest).await?;
        }
        for (state, key) in [(CallState::Running, &keys.running), (CallState::Delayed, &keys.delayed)] {
            if means(filter, state) {
                self.collect_all(partition, key, newest).await?;
            }
        }
        // Calls past their deadline have left the queue before their timer ends them.
        if means(filter, CallState::Queued) {
            self.collect_late(partition, newest).await?;
        }
        Ok(())
    }

    /// Adds calls from a set that is in the order of their sequences, newest first, as long as there is room for older ones. `records`: where
    /// their records are.
    async fn collect_by_sequence(
        &self,
        partition: &Arc<Partition>,
        key: &str,
        records: &str,
        newest: &mut Newest<'_>,
    ) -> Result<(), StoreError> {
        let mut below = newest.below;
        loop {
            let mut ask = Cmd::new();
            let from = below.map_or_else(|| "+inf".to_owned(), |sequence| format!("({sequence}"));
            ask.arg("ZREVRANGEBYSCORE").arg(key).arg(from).arg("-inf").arg("WITHSCORES").arg("LIMIT").arg(0).arg(CHUNK);
            let reply = value::array("ZREVRANGEBYSCORE", self.shared.link.ask(&ask).await?)?;
            let mut ids = Vec::with_capacity(CHUNK);
            for pair in reply.chunks_exact(2) {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sequences are microseconds below 2^53")]
                let sequence = value::score(&pair[1]).unwrap_or_default() as u64;
                below = Some(sequence);
                if newest.has_room_for(sequence) {
                    ids.extend(value::call_id(&pair[0]));
                }
            }
            self.add_views(partition, records, &ids, newest).await?;
            if reply.len() / 2 < CHUNK || ids.is_empty() {
                return Ok(());
            }
            if newest.looked >= LOOKED_MAX {
                newest.cut = newest.cut.max(below);
                return Ok(());
            }
        }
    }

    /// Adds calls from a set that is in another order: all of them are looked at.
    async fn collect_all(&self, partition: &Arc<Partition>, key: &str, newest: &mut Newest<'_>) -> Result<(), StoreError> {
        let mut from = 0;
        loop {
            let mut ask = Cmd::new();
            ask.arg("ZRANGE").arg(key).arg(from).arg(from + CHUNK - 1);
            let ids = value::array("ZRANGE", self.shared.link.ask(&ask).await?)?;
            let looked_at = ids.len();
            let ids: Vec<CallId> = ids.iter().filter_map(|id| value::call_id(id).ok()).collect();
            self.add_views(partition, &partition.keys.calls, &ids, newest).await?;
            if looked_at < CHUNK {
                return Ok(());
            }
            from += CHUNK;
        }
    }

    async fn collect_late(&self, partition: &Arc<Partition>, newest: &mut Newest<'_>) -> Result<(), StoreError> {
        let mut ask = Cmd::new();
        let now = self.shared.now().as_millis();
        ask.arg("ZRANGEBYSCORE").arg(&partition.keys.deadlines).arg("-inf").arg(now).arg("LIMIT").arg(0).arg(CHUNK);
        let ids = value::array("ZRANGEBYSCORE", self.shared.link.ask(&ask).await?)?;
        let ids: Vec<CallId> = ids.iter().filter_map(|id| value::call_id(id).ok()).collect();
        newest.looked += ids.len();
        let late = self.views(partition, &partition.keys.calls, &ids).await?.into_iter().flatten();
        // The others stand in sets of their own.
        late.filter(|(_, view)| view.call.state == CallState::Queued).for_each(|(sequence, view)| newest.add(sequence, view, partition));
        Ok(())
    }

    async fn add_views(
        &self,
        partition: &Arc<Partition>,
        records: &str,
        ids: &[CallId],
        newest: &mut Newest<'_>,
    ) -> Result<(), StoreError> {
        newest.looked += ids.len();
        let views = self.views(partition, records, ids).await?;
        views.into_iter().flatten().for_each(|(sequence, view)| newest.add(sequence, view, partition));
        Ok(())
    }

    /// Calls without their payloads and with their sequences, each where it was asked for; `None` if it is gone or cannot be read.
    pub(super) async fn views(
        &self,
        partition: &Arc<Partition>,
        records: &str,
        ids: &[CallId],
    ) -> Result<Vec<Option<(u64, CallView)>>, StoreError> {
        let (now, mut views) = (self.shared.now(), Vec::with_capacity(ids.len()));
        for some in ids.chunks(CHUNK) {
            let mut args = Args::with_capacity(some.len() + 1);
            args.number(LONG);
            some.iter().for_each(|id| args.push(id.as_str()));
            let reply = self.shared.link.run_args(&BRIEF, &[records], &args).await?;
            for (id, found) in some.iter().zip(value::array("a look at calls", reply)?) {
                let found = if matches!(found, Value::Int(_)) {
                    self.shared.link.ask(&command("HGET", &[records, id.as_str()])).await?
                } else {
                    found
                };
                let record = value::into_bytes(found).filter(|text| !text.is_empty()).map(|text| Record::read(id, &Bytes::from(text)));
                views.push(match record {
                    Some(Ok(record)) if !record.call.is_gone(now) => {
                        let view = CallView { call: record.call, request: CallRequest::of(partition.function.clone()), progress: None };
                        Some((record.sequence, view.brief()))
                    }
                    Some(Err(error)) => {
                        self.shared.pass_over(records, id.as_str().as_bytes(), error);
                        None
                    }
                    _gone => None,
                });
            }
        }
        Ok(views)
    }
}

fn is_meant(partition: &Partition, filter: &CallFilter) -> bool {
    filter.scope.as_ref().is_none_or(|scope| *scope == partition.function.scope)
        && filter.function.as_ref().is_none_or(|name| *name == partition.function.name)
}

/// Whether a filter means calls of this state.
pub(super) fn means(filter: &CallFilter, state: CallState) -> bool {
    filter.states.is_empty() || filter.states.contains(&state)
}

/// Whether a filter means ended calls that are no dead letters.
pub(super) fn means_ended(filter: &CallFilter) -> bool {
    CallState::ALL.iter().any(|state| state.has_ended() && *state != CallState::Dead && means(filter, *state))
}

pub(super) fn matches(view: &CallView, filter: &CallFilter) -> bool {
    means(filter, view.call.state) && filter.worker.as_ref().is_none_or(|worker| view.call.holder.as_ref() == Some(worker))
}
