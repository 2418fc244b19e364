//! Dead letters: listed, found, replayed, dropped. Their list has the old worker's form, one text per entry.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Value};
use towpath_core::batch::{BatcherId, DeadLetter, DeadReply, ReplayReply, SOURCE_KEPT, SourceId};
use towpath_core::inspect::{Cursor, CursorPage, DeadLetterQuery, PageRequest};
use towpath_core::names::BatchId;
use towpath_core::store::StoreError;
use towpath_core::time::{Timestamp, millis};

use super::letters::{Entry, Reader};
use super::places::{Place, Places};
use super::{keys, length_ms, scripts};
use crate::store::RedisStore;
use crate::value;

/// So many of the latest removals are on record.
const AUDIT_KEPT: i64 = 1_000;

/// So many entries that are not too old are passed before a list is left.
const YOUNGER_PASSED: usize = 200;
/// So many entries that are too old are removed by one sweep.
const OLD_AT_ONCE: usize = 1_000;
/// About this many bytes of them are in memory at once: an entry may have 16 MiB.
const OLD_BYTES: usize = 8 * 1024 * 1024;
/// A list is left when entries that stay have this many bytes.
const PASSED_BYTES: usize = 64 * 1024 * 1024;

/// Entries of some ids, in order of their arrival, and the part that has each.
type Found = HashMap<BatchId, VecDeque<(usize, Entry)>>;

impl RedisStore {
    pub(super) async fn add_letter(
        &self,
        batcher: &BatcherId,
        letter: &DeadLetter,
        source: Option<&SourceId>,
    ) -> Result<DeadReply, StoreError> {
        let places = self.places(batcher);
        let place = letter.key.as_ref().map_or(places.any(), |key| places.of(key));
        let mut args = self.batch_args(place, self.shared.now(), 4);
        args.push("add");
        args.push(letter.entry.as_bytes());
        args.push(source.map(SourceId::to_string).unwrap_or_default());
        args.number(length_ms(SOURCE_KEPT));
        let more: Vec<String> = source.map(|source| place.keys.of_source(source)).into_iter().collect();
        let reply = self.run_durably_at(&scripts::DEAD, place, &more, &args).await?;
        match value::text(&reply) {
            Some("added") => Ok(DeadReply::Added),
            Some("duplicate") => Ok(DeadReply::Duplicate),
            _ => Err(value::strange("adding a dead letter", &reply)),
        }
    }

    pub(super) async fn replay_letters(&self, batcher: &BatcherId, ids: &[BatchId]) -> Result<Vec<ReplayReply>, StoreError> {
        self.shared.guarantee.admit()?;
        let places = self.places(batcher);
        let mut found = self.find_letters(&places, ids).await?;
        let mut replies = Vec::with_capacity(ids.len());
        for id in ids {
            let entry = found.get_mut(id).and_then(VecDeque::pop_front);
            replies.push(self.replay_one(&places, id, entry).await?);
        }
        Ok(replies)
    }

    async fn replay_one(&self, places: &Places, id: &BatchId, entry: Option<(usize, Entry)>) -> Result<ReplayReply, StoreError> {
        let now = self.shared.now();
        let is_spread = places.all().len() > 1;
        if is_spread && self.place_of_flight(places, id).await?.is_some() {
            return Ok(ReplayReply::InFlight);
        }
        let Some((part, entry)) = entry else { return self.if_not_flying(places.any(), id, ReplayReply::Gone).await };
        let place = &places.all()[part];
        let Some(flight) = entry.letter.flight(now) else {
            return self.if_not_flying(place, id, ReplayReply::NotReplayable).await;
        };
        let mut args = self.batch_args(place, now, 7);
        args.push("replay");
        args.push(&entry.raw);
        args.push(id.as_str());
        args.push(flight.key.as_str());
        args.number(flight.first.as_millis());
        args.number(flight.last.as_millis());
        args.push(flight.reason.as_str());
        let reply = self.run_durably_at(&scripts::DEAD, place, &place.keys.of_flight(id), &args).await?;
        read_replayed(&reply, ReplayReply::Gone)
    }

    async fn if_not_flying(&self, place: &Place, id: &BatchId, otherwise: ReplayReply) -> Result<ReplayReply, StoreError> {
        let mut args = self.batch_args(place, self.shared.now(), 3);
        args.push("look");
        args.push("");
        args.push(id.as_str());
        read_replayed(&self.run_at(&scripts::DEAD, place, &place.keys.of_flight(id), &args).await?, otherwise)
    }

    pub(super) async fn drop_letters(&self, batcher: &BatcherId, ids: &[BatchId], who: &str) -> Result<Vec<bool>, StoreError> {
        let places = self.places(batcher);
        let mut found = self.find_letters(&places, ids).await?;
        let entries: Vec<Option<(usize, Bytes)>> =
            ids.iter().map(|id| found.get_mut(id).and_then(VecDeque::pop_front).map(|(part, entry)| (part, entry.raw))).collect();
        let there: Vec<(usize, Bytes)> = entries.iter().flatten().cloned().collect();
        let mut removed = self.remove_entries(&places, &there).await?.into_iter();
        let dropped: Vec<bool> = entries.iter().map(|entry| entry.is_some() && removed.next().unwrap_or(false)).collect();
        let records: Vec<&str> = ids.iter().zip(&dropped).filter(|(_, dropped)| **dropped).map(|(id, _)| id.as_str()).collect();
        self.note_removal(batcher, who, &records).await;
        Ok(dropped)
    }

    pub(super) async fn clear_letters(&self, batcher: &BatcherId, who: &str) -> Result<u64, StoreError> {
        let mut cleared = 0;
        for place in self.places(batcher).all() {
            let mut args = self.batch_args(place, self.shared.now(), 1);
            args.push("clear");
            let reply = self.run_durably_at(&scripts::DEAD, place, &[], &args).await?;
            cleared += value::number(&reply).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        }
        if cleared > 0 {
            self.note_removal(batcher, who, &[&format!("all {cleared}")]).await;
        }
        Ok(cleared)
    }

    /// Removes what came here longer ago than that, a bounded number of bytes at a time.
    pub(super) async fn remove_old_letters(&self, places: &Places, keep: Duration) -> Result<u64, StoreError> {
        let since = Timestamp::from_millis(self.shared.now().as_millis().saturating_sub(millis(keep)));
        let (mut found, mut removed) = (0, 0);
        while found < OLD_AT_ONCE {
            let old = self.old_letters(places, since, OLD_AT_ONCE - found).await?;
            let is_last = bytes_of(&old) < OLD_BYTES;
            found += old.len();
            removed += self.remove_entries(places, &old).await?.into_iter().filter(|removed| *removed).count() as u64;
            if is_last {
                break;
            }
        }
        Ok(removed)
    }

    /// The first entries that came before this instant. The lists are in order of arrival, so that it stops where entries are younger; a few are
    /// passed, for the clocks of those who wrote them may differ. An entry that does not say when it came says nothing about those behind it.
    async fn old_letters(&self, places: &Places, since: Timestamp, most: usize) -> Result<Vec<(usize, Bytes)>, StoreError> {
        let (mut old, mut bytes) = (Vec::new(), 0);
        for (part, place) in places.all().iter().enumerate() {
            let (mut reader, mut younger, mut passed) = (Reader::forwards(self, place), 0, 0);
            while younger < YOUNGER_PASSED && passed < PASSED_BYTES && old.len() < most && bytes < OLD_BYTES {
                let Some(entry) = reader.head(None).await?.is_some().then(|| reader.take()).flatten() else { break };
                match entry.letter.at {
                    Some(at) if at < since => {
                        bytes += entry.raw.len();
                        old.push((part, entry.raw));
                        continue;
                    }
                    Some(_younger) => younger += 1,
                    None => {
                        let says = "it does not say when it came, so it stays until a person drops it";
                        self.shared.pass_over(&place.keys.dead, &entry.raw, says);
                    }
                }
                passed += entry.raw.len();
            }
        }
        Ok(old)
    }

    async fn remove_entries(&self, places: &Places, entries: &[(usize, Bytes)]) -> Result<Vec<bool>, StoreError> {
        let removals = entries.iter().map(|(part, raw)| {
            let mut remove = Cmd::new();
            remove.arg("LREM").arg(&places.all()[*part].keys.dead).arg(1).arg(&**raw);
            remove
        });
        let replies = self.shared.link.ask_all(&removals.collect::<Vec<_>>()).await?;
        replies.into_iter().map(|reply| value::checked(reply).map(|reply| value::number(&reply) == Some(1))).collect()
    }

    /// Keeps a record of who removed what. It says what was done, so its own failure is nobody's trouble.
    async fn note_removal(&self, batcher: &BatcherId, who: &str, what: &[&str]) {
        if what.is_empty() {
            return;
        }
        let (key, at) = (keys::audit(self.shared.keys.prefix()), self.shared.now().to_iso());
        let (mut note, mut trim) = (Cmd::new(), Cmd::new());
        note.arg("LPUSH").arg(&key);
        for what in what {
            note.arg(serde_json::json!({"at": at, "batcher": batcher.name, "who": who, "what": what}).to_string());
        }
        trim.arg("LTRIM").arg(&key).arg(0).arg(AUDIT_KEPT - 1);
        if let Err(error) = self.shared.link.ask_all(&[note, trim]).await {
            tracing::warn!(%error, batcher = %batcher.name, who, "a removal of dead letters is not on record");
        }
    }

    pub(super) async fn one_letter(&self, batcher: &BatcherId, id: &BatchId) -> Result<Option<DeadLetter>, StoreError> {
        let mut found = self.find_letters(&self.places(batcher), std::slice::from_ref(id)).await?;
        Ok(found.remove(id).and_then(|mut entries| entries.pop_front()).map(|(_, entry)| entry.letter))
    }

    /// As many entries of each id as it is named, the oldest first. The lists are read once.
    async fn find_letters(&self, places: &Places, ids: &[BatchId]) -> Result<Found, StoreError> {
        let mut missing: HashMap<&BatchId, usize> = HashMap::new();
        for id in ids {
            *missing.entry(id).or_default() += 1;
        }
        let mut found = Found::new();
        for (part, place) in places.all().iter().enumerate() {
            let mut reader = Reader::forwards(self, place);
            while !missing.is_empty()
                && let Some(head) = reader.head(None).await?
            {
                let id = head.letter.id.clone();
                let Some(entry) = reader.take() else { break };
                let Some(count) = missing.get_mut(&id) else { continue };
                *count -= 1;
                if *count == 0 {
                    missing.remove(&id);
                }
                found.entry(id).or_default().push_back((part, entry));
            }
        }
        Ok(found)
    }

    /// In order of arrival; where there are several lists, by when they came.
    pub(super) async fn letters_page(&self, batcher: &BatcherId, query: &DeadLetterQuery) -> Result<CursorPage<DeadLetter>, StoreError> {
        let (places, limit) = (self.places(batcher), query.limit.min(PageRequest::LIMIT_MAX) as usize);
        let marks: Vec<&str> = query.after.as_ref().map_or(Vec::new(), |cursor| cursor.0.split(',').collect());
        let mut readers = Vec::new();
        for (part, place) in places.all().iter().enumerate() {
            let mark = marks.get(part).copied().filter(|_| marks.len() == places.all().len());
            readers.push(Reader::begin(self, place, query.newest_first, mark).await?);
        }
        let (mut items, mut bytes) = (Vec::new(), 0);
        loop {
            let mut first: Option<(Option<Timestamp>, usize)> = None;
            for (part, reader) in readers.iter_mut().enumerate() {
                let Some(head) = reader.head(Some(query)).await? else { continue };
                let at = head.letter.at;
                if first.is_none_or(|(best, _)| if query.newest_first { at >= best } else { at < best }) {
                    first = Some((at, part));
                }
            }
            let Some((_, part)) = first else { return Ok(CursorPage { items, next: None }) };
            if items.len() == limit || bytes >= PageRequest::BYTES_MAX {
                let marks: Vec<String> = readers.iter().map(Reader::mark).collect();
                return Ok(CursorPage { items, next: (limit > 0).then(|| Cursor(marks.join(","))) });
            }
            if let Some(entry) = readers[part].take() {
                bytes += entry.raw.len();
                items.push(entry.letter);
            }
        }
    }
}

fn bytes_of(entries: &[(usize, Bytes)]) -> usize {
    entries.iter().map(|(_, raw)| raw.len()).sum()
}

fn read_replayed(reply: &Value, otherwise: ReplayReply) -> Result<ReplayReply, StoreError> {
    match value::text(reply) {
        Some("replayed") => Ok(ReplayReply::Replayed),
        Some("in_flight") => Ok(ReplayReply::InFlight),
        Some("gone" | "free") => Ok(otherwise),
        _ => Err(value::strange("a replay of a dead letter", reply)),
    }
}
