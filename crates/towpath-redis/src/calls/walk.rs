//! Lists where running and delayed calls are many. Their sets are in the order of their timers and not of their submits, so that the newest
//! cannot be found without reading all of them. Up to a few thousand are read. Where there are more, a list walks through the records of open calls
//! and dead letters, function by function, before it shows ended calls. A walk gives every record that stays, whatever its state becomes
//! meanwhile: `HSCAN` promises that. It may give one twice, and it is in no order; each page is newest first.
//!
//! Only a whole reply of `HSCAN` can be on a page: a place within a reply would not hold when the hash grows or shrinks.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use redis::{Cmd, Value};
use towpath_core::batch::hash12;
use towpath_core::call::{CallRequest, CallState};
use towpath_core::inspect::{CallFilter, CallView, Page, PageRequest};
use towpath_core::names::CallId;
use towpath_core::store::StoreError;

use super::lists::{CHUNK, LOOKED_MAX, matches, means, means_ended};
use super::partition::Partition;
use super::record::{PROGRESS, REQUEST, Record};
use crate::link::trouble;
use crate::registry::reply::command;
use crate::store::RedisStore;
use crate::unreadable::is_odd;
use crate::value;

/// The bits of a cursor: it is a place of a walk; the walk is over, and only ended calls follow.
const IN_WALK: u64 = 1 << 63;
const ONLY_ENDED: u64 = 1 << 62;
/// The lowest bits of a place of a walk are the cursor of `HSCAN`, which is less than the number of buckets of the hash.
const SCAN_BITS: u32 = 30;
/// The lowest bits of a mark count functions whose hashes are the same.
const SAME_BITS: u32 = 2;
const HASH_BITS: u32 = 63 - SCAN_BITS - SAME_BITS;
/// The first question asks for this many calls: they may be large.
const FIRST_COUNT: usize = 8;
/// After a reply of more bytes the next question asks for fewer calls.
const REPLY_BYTES: usize = 256 * 1024;
/// Records. What stands beside them has a name that begins with another character.
const RECORDS: &str = "[^\u{1}]*";

/// Where a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Below this sequence; `None`: with the newest call. `only_ended`: a walk has shown the others.
    Below { sequence: Option<u64>, only_ended: bool },
    /// In a walk.
    InWalk(WalkPlace),
}

/// A place in a walk: the mark of a partition, and where `HSCAN` goes on in it. Partitions are walked in the order of their marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WalkPlace {
    mark: u64,
    scan: u64,
}

impl WalkPlace {
    pub(super) const FIRST: Self = Self { mark: 0, scan: 0 };
}

impl Place {
    pub(super) fn read(cursor: Option<u64>) -> Self {
        match cursor {
            Some(cursor) if cursor & IN_WALK != 0 => {
                let place = cursor & !IN_WALK;
                Self::InWalk(WalkPlace { mark: place >> SCAN_BITS, scan: place & ((1 << SCAN_BITS) - 1) })
            }
            Some(cursor) => Self::Below { sequence: Some(cursor & !ONLY_ENDED), only_ended: cursor & ONLY_ENDED != 0 },
            None => Self::Below { sequence: None, only_ended: false },
        }
    }

    pub(super) fn write(self) -> u64 {
        match self {
            Self::InWalk(WalkPlace { mark, scan }) => IN_WALK | mark << SCAN_BITS | scan,
            Self::Below { sequence, only_ended } => sequence.unwrap_or(ONLY_ENDED - 1) | if only_ended { ONLY_ENDED } else { 0 },
        }
    }
}

/// A page of a walk while it is gathered.
struct WalkPage<'a> {
    filter: &'a CallFilter,
    limit: usize,
    found: BTreeMap<(Reverse<u64>, CallId), CallView>,
    bytes: usize,
    /// How many calls were looked at, and functions without any.
    looked: usize,
    /// How many calls the next question asks for.
    count: usize,
    /// How many bytes the latest reply had.
    replied: usize,
}

impl WalkPage<'_> {
    fn is_full(&self) -> bool {
        self.found.len() >= self.limit || self.bytes >= PageRequest::BYTES_MAX || self.looked >= LOOKED_MAX
    }

    fn has_room_for(&self, calls: usize, bytes: usize) -> bool {
        self.found.len() + calls <= self.limit && self.bytes + bytes <= PageRequest::BYTES_MAX
    }

    /// Asks for more calls next time, fewer if they are large. A reply may have a few more than were asked for.
    fn adjust_count(&mut self, found: usize) {
        let room = if found == 0 { CHUNK } else { self.limit.saturating_sub(self.found.len()) * 3 / 4 };
        let next = if self.replied > REPLY_BYTES { self.count / 4 } else { self.count * 2 };
        self.count = next.min(room).clamp(1, CHUNK);
    }
}

/// How the walk through one partition ended.
enum Walked {
    /// All of it was shown.
    Through,
    /// The page is full; `HSCAN` goes on here.
    To(u64),
}

impl RedisStore {
    /// Whether there are more running and delayed calls than one page reads.
    pub(super) async fn has_many_timers(&self, partitions: &[Arc<Partition>], filter: &CallFilter) -> bool {
        let sets: Vec<_> = partitions.iter().flat_map(|partition| timer_sets(partition, filter)).collect();
        let sizes = self.shared.link.ask_apart(&sets.iter().map(|key| command("ZCARD", &[key])).collect::<Vec<_>>()).await;
        sizes.iter().flatten().filter_map(value::number).sum::<i64>() > i64::try_from(LOOKED_MAX).unwrap_or(i64::MAX)
    }

    /// One page of a walk through the records of open calls and dead letters.
    pub(super) async fn walk_calls(
        &self,
        partitions: Vec<Arc<Partition>>,
        filter: &CallFilter,
        from: WalkPlace,
        limit: usize,
    ) -> Result<Page<CallView>, StoreError> {
        let mut page = WalkPage { filter, limit, found: BTreeMap::new(), bytes: 0, looked: 0, count: FIRST_COUNT, replied: 0 };
        let (number, mut unreached) = (partitions.len(), 0);
        let mut next = None;
        for (mark, partition) in marked(partitions).into_iter().filter(|(mark, _)| *mark >= from.mark) {
            let scan = if mark == from.mark { from.scan } else { 0 };
            if page.is_full() {
                next = Some(WalkPlace { mark, scan });
                break;
            }
            match self.walk_partition(&partition, scan, &mut page).await {
                Ok(Walked::Through) => {}
                Ok(Walked::To(scan)) => {
                    next = Some(WalkPlace { mark, scan });
                    break;
                }
                Err(error) => {
                    let error = self.explain(&partition, error).await;
                    unreached += usize::from(!is_odd(&error));
                    // One function's trouble hides no other. Asked for alone, it is told; and where none can be reached, it is not the trouble of one.
                    if !self.shared.is_local(&error) || filter.function.is_some() || unreached == number {
                        return Err(error);
                    }
                    page.looked += 1;
                    self.shared.pass_over(&partition.keys.calls, b"", format!("calls of this function cannot be listed: {error}"));
                }
            }
        }
        let ended = means_ended(filter).then_some(Place::Below { sequence: None, only_ended: true });
        let next = next.map(Place::InWalk).or(ended).map(Place::write);
        Ok(Page { items: page.found.into_values().collect(), next })
    }

    async fn walk_partition(&self, partition: &Arc<Partition>, from: u64, page: &mut WalkPage<'_>) -> Result<Walked, StoreError> {
        let mut scan = from;
        loop {
            let (next, calls, bytes) = self.scan(partition, scan, page).await?;
            if !page.has_room_for(calls.len(), bytes) {
                if !page.found.is_empty() {
                    return Ok(Walked::To(scan));
                }
                if page.count > 1 {
                    page.count = (page.count / 4).max(1);
                    continue;
                }
                // One bucket of the hash has more than the page: it cannot be divided.
            }
            let found = calls.len();
            let ids: Vec<CallId> = calls.iter().map(|(_, view)| view.call.call_id.clone()).collect();
            let shown = if page.filter.brief { calls } else { self.with_requests(partition, &ids, page.filter).await? };
            page.bytes += bytes;
            page.found.extend(shown.into_iter().map(|(sequence, view)| ((Reverse(sequence), view.call.call_id.clone()), view)));
            page.adjust_count(found);
            if next == 0 {
                return Ok(Walked::Through);
            }
            if page.is_full() {
                return Ok(Walked::To(next));
            }
            scan = next;
        }
    }

    /// Some records of a partition: where `HSCAN` goes on, the calls that the filter means, and how many bytes of payloads they have.
    async fn scan(
        &self,
        partition: &Arc<Partition>,
        from: u64,
        page: &mut WalkPage<'_>,
    ) -> Result<(u64, Vec<(u64, CallView)>, usize), StoreError> {
        let (calls_key, now) = (&partition.keys.calls, self.shared.now());
        let mut ask = command("HSCAN", &[calls_key]);
        ask.arg(from).arg("MATCH").arg(RECORDS).arg("COUNT").arg(page.count);
        let mut reply = value::array("HSCAN", self.shared.link.ask(&ask).await?)?.into_iter();
        let next = reply.next().as_ref().and_then(value::text).and_then(|next| next.parse::<u64>().ok());
        let next = next.filter(|next| *next < 1 << SCAN_BITS);
        let next = next.ok_or_else(|| trouble(format!("the key {calls_key} has more calls than can be listed")))?;
        let fields = value::array("HSCAN", reply.next().unwrap_or(Value::Nil))?;
        page.looked += (fields.len() / 2).max(1);
        page.replied = fields.iter().filter_map(value::bytes).map(<[u8]>::len).sum();
        let (mut calls, mut bytes, mut beside) = (Vec::new(), 0, Vec::new());
        for pair in fields.chunks_exact(2) {
            let Ok(call_id) = value::call_id(&pair[0]) else { continue };
            let text = value::bytes(&pair[1]).unwrap_or_default();
            let record = match Record::read(&call_id, &text.to_vec().into()) {
                Ok(record) if !record.call.is_gone(now) => record,
                Ok(_gone) => continue,
                Err(error) => {
                    self.shared.pass_over(calls_key, call_id.as_str().as_bytes(), error);
                    continue;
                }
            };
            let is_beside = [(REQUEST, record.request.is_none()), (PROGRESS, record.has_progress)];
            let view = CallView { call: record.call, request: CallRequest::of(partition.function.clone()), progress: None }.brief();
            if matches(&view, page.filter) {
                bytes += text.len();
                beside.extend(is_beside.into_iter().filter(|(_, is_beside)| *is_beside).map(|(start, _)| format!("{start}{call_id}")));
                calls.push((record.sequence, view));
            }
        }
        if page.filter.brief {
            return Ok((next, calls, 0));
        }
        let sizes: Vec<Cmd> = beside.iter().map(|field| command("HSTRLEN", &[calls_key.as_str(), field])).collect();
        for size in self.shared.link.ask_apart(&sizes).await {
            bytes += value::number(&size?).and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
        }
        Ok((next, calls, bytes))
    }

    /// Calls with their payloads, without those that the filter no longer means: they have moved on since they were found.
    async fn with_requests(
        &self,
        partition: &Arc<Partition>,
        ids: &[CallId],
        filter: &CallFilter,
    ) -> Result<Vec<(u64, CallView)>, StoreError> {
        let mut calls = Vec::with_capacity(ids.len());
        for (id, whole) in ids.iter().zip(self.wholes(partition, ids).await?) {
            let Some(whole) = whole else { continue };
            let sequence = whole.record.sequence;
            match whole.view(partition) {
                Ok(view) if matches(&view, filter) => calls.push((sequence, view)),
                Ok(_moved_on) => {}
                Err(error) => self.shared.pass_over(&partition.keys.calls, id.as_str().as_bytes(), error),
            }
        }
        Ok(calls)
    }
}

/// Partitions in the order of a walk, each with its mark. Every process gives a partition the same mark, and a function that comes or goes changes
/// no other's.
fn marked(partitions: Vec<Arc<Partition>>) -> Vec<(u64, Arc<Partition>)> {
    let hash = |member: &str| u64::from_str_radix(&hash12(member), 16).unwrap_or(0) >> (48 - HASH_BITS);
    let mut hashed: Vec<_> = partitions.into_iter().map(|partition| (hash(&partition.member), partition)).collect();
    hashed.sort_by(|(one, of_one), (other, of_other)| one.cmp(other).then_with(|| of_one.member.cmp(&of_other.member)));
    let (mut before, mut same) = (None, 0);
    let mark = |(hash, partition): (u64, Arc<Partition>)| {
        same = if before == Some(hash) { same + 1 } else { 0 };
        before = Some(hash);
        (hash << SAME_BITS | same.min((1 << SAME_BITS) - 1), partition)
    };
    hashed.into_iter().map(mark).collect()
}

/// The sets of running and delayed calls of a partition that a filter means.
fn timer_sets<'a>(partition: &'a Partition, filter: &CallFilter) -> Vec<&'a str> {
    let sets = [(CallState::Running, partition.keys.running.as_str()), (CallState::Delayed, partition.keys.delayed.as_str())];
    sets.into_iter().filter(|(state, _)| means(filter, *state)).map(|(_, key)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let walk = |mark, scan| Place::InWalk(WalkPlace { mark, scan });
        let below = |sequence, only_ended| Place::Below { sequence: Some(sequence), only_ended };
        let marks_max = (1 << (HASH_BITS + SAME_BITS)) - 1;
        let places = [walk(0, 0), walk(marks_max, (1 << SCAN_BITS) - 1), walk(7, 1 << 29), below(1_794_786_695_153_000, false)];
        for place in places.into_iter().chain([below(1_794_786_695_153_000, true), below(0, true)]) {
            assert_eq!(Place::read(Some(place.write())), place);
        }
        assert_eq!(Place::read(None), Place::Below { sequence: None, only_ended: false });
    }
}
