//! What is due, and what people get to see.

use towpath_core::batch::{DeadLetter, Message};
use towpath_core::inspect::{BatchCounts, BatchView, Cursor, CursorPage, DeadLetterQuery, FlightView, OpenBatchView, PageRequest};
use towpath_core::names::{BatchId, BatchKey};
use towpath_core::store::DueBatches;
use towpath_core::time::Timestamp;

use super::records::Batcher;

impl Batcher {
    pub(super) fn due(&self, limit: usize, now: Timestamp) -> DueBatches {
        let armed = self.open.iter().filter(|(_, (open, _))| open.armed);
        let mut keys: Vec<(Timestamp, &BatchKey)> = armed.map(|(key, (open, _))| (open.deadline, key)).collect();
        let mut flights: Vec<(Timestamp, &BatchId)> = self.flights.iter().map(|(id, (flight, _))| (flight.at, id)).collect();
        keys.sort();
        flights.sort();
        let named = |due: usize| due.min(limit);
        let due_keys = named(keys.iter().take_while(|(at, _)| *at <= now).count());
        let due_flights = named(flights.iter().take_while(|(at, _)| *at <= now).count());
        let rest = keys[due_keys..].iter().map(|(at, _)| *at).chain(flights[due_flights..].iter().map(|(at, _)| *at));
        DueBatches {
            now,
            next: rest.min(),
            keys: keys[..due_keys].iter().map(|(_, key)| (*key).clone()).collect(),
            flights: flights[..due_flights].iter().map(|(_, id)| (*id).clone()).collect(),
        }
    }

    pub(super) fn counts(&self) -> BatchCounts {
        BatchCounts {
            open_keys: self.open.len() as u64,
            open_messages: self.open.values().map(|(open, _)| open.size).sum(),
            in_flight: self.flights.len() as u64,
            dead_letters: self.dead.len() as u64,
        }
    }

    pub(super) fn open_batches(&self, after: Option<&Cursor>, limit: u32) -> CursorPage<OpenBatchView> {
        let views = self.open.iter().map(|(key, (open, _))| OpenBatchView { key: key.clone(), open: *open });
        by_place(views.collect(), after, limit, |view| (view.open.first, view.key.as_str().to_owned()))
    }

    pub(super) fn open_batch(&self, key: &BatchKey, from: u64) -> Option<BatchView> {
        let (open, messages) = self.open.get(key)?;
        let in_flight = self.flights.values().find(|(flight, _)| flight.serial && flight.key == *key);
        let in_flight = in_flight.map(|(flight, _)| flight.batch_id.clone());
        Some(BatchView { key: key.clone(), open: *open, in_flight, messages: page_of(messages, from) })
    }

    pub(super) fn in_flight(&self, after: Option<&Cursor>, limit: u32) -> CursorPage<FlightView> {
        let views = self.flights.values().map(|(flight, _)| FlightView::of(flight));
        by_place(views.collect(), after, limit, |view| (view.at, view.batch_id.as_str().to_owned()))
    }

    pub(super) fn dead_letter(&self, id: &BatchId) -> Option<DeadLetter> {
        self.dead.values().find(|letter| letter.id == *id).cloned()
    }

    pub(super) fn dead_letters(&self, query: &DeadLetterQuery) -> CursorPage<DeadLetter> {
        let after = query.after.as_ref().and_then(|cursor| cursor.0.parse::<u64>().ok());
        let mut found: Vec<(u64, &DeadLetter)> =
            self.dead.iter().filter(|(_, letter)| query.means(letter)).map(|(place, letter)| (*place, letter)).collect();
        if query.newest_first {
            found.reverse();
        }
        found.retain(|(place, _)| after.is_none_or(|after| if query.newest_first { *place < after } else { *place > after }));
        let limit = up_to_bytes(found.iter().map(|(_, letter)| letter.entry.as_bytes().len())).min(page_size(query.limit));
        let next = (found.len() > limit && limit > 0).then(|| Cursor(found[limit - 1].0.to_string()));
        CursorPage { items: found.into_iter().take(limit).map(|(_, letter)| letter.clone()).collect(), next }
    }
}

/// A page of what is ordered by an instant and a name.
fn by_place<T>(mut items: Vec<T>, after: Option<&Cursor>, limit: u32, place: impl Fn(&T) -> (Timestamp, String)) -> CursorPage<T> {
    items.sort_by_key(&place);
    if let Some((at, name)) = after.and_then(Cursor::place) {
        items.retain(|item| place(item) > (at, name.to_owned()));
    }
    let limit = page_size(limit);
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|last| {
        let (at, name) = place(last);
        Cursor::behind(at, &name)
    });
    CursorPage { items, next }
}

fn page_of(messages: &[Message], from: u64) -> Vec<Message> {
    let rest = messages.iter().skip(usize::try_from(from).unwrap_or(usize::MAX));
    let limit = up_to_bytes(rest.clone().map(|message| message.as_bytes().len())).min(PageRequest::LIMIT_MAX as usize);
    rest.take(limit).cloned().collect()
}

/// How many items there are up to the one that fills a page, and with it.
fn up_to_bytes(lengths: impl Iterator<Item = usize>) -> usize {
    let mut sum = 0;
    lengths
        .take_while(|length| {
            let has_room = sum < PageRequest::BYTES_MAX;
            sum += length;
            has_room
        })
        .count()
}

fn page_size(limit: u32) -> usize {
    limit.min(PageRequest::LIMIT_MAX) as usize
}
