//! What the model keeps of a batcher, and its moves.

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_core::batch::{
    self, ClaimBatch, ClaimReply, ClaimedBatch, DeadLetter, DeadReply, ExtendBatch, ExtendReply, FinishBatch, FinishReply, Finished,
    Flight, IngestReply, KeyState, Known, Message, NewMessage, OpenBatch, ReclaimBatch, ReplayReply, Rules, SOURCE_KEPT, SealBatch,
    SealReply, Skip, SourceId, Stepped, Verb,
};
use towpath_core::names::{BatchId, BatchKey, BatcherName};
use towpath_core::store::{StoredBatcher, Swept};
use towpath_core::time::{Timestamp, millis};

use super::Woken;

/// Everything of batches that survives a restart.
#[derive(Clone, Default)]
pub(in crate::model) struct BatchRecords {
    batchers: BTreeMap<BatcherName, Batcher>,
    pub(super) settings: BTreeMap<BatcherName, StoredBatcher>,
    pub(super) settings_version: u64,
}

impl BatchRecords {
    pub(super) fn batcher_mut(&mut self, name: &BatcherName) -> &mut Batcher {
        self.batchers.entry(name.clone()).or_default()
    }
}

/// One batcher.
#[derive(Clone, Default)]
pub(super) struct Batcher {
    /// Open batches, and their messages in order of arrival.
    pub(super) open: BTreeMap<BatchKey, (OpenBatch, Vec<Message>)>,
    /// Batches in flight, and theirs.
    pub(super) flights: BTreeMap<BatchId, (Flight, Vec<Message>)>,
    /// Until when an id counts as seen. Nothing needs to be swept: what is over counts for nothing.
    seen: BTreeMap<String, Timestamp>,
    /// Dead letters by arrival.
    pub(super) dead: BTreeMap<u64, DeadLetter>,
    last_dead: u64,
}

impl Batcher {
    fn state(&self, key: &BatchKey) -> KeyState {
        let in_flight = self.flights.values().find(|(flight, _)| flight.serial && flight.key == *key);
        KeyState { open: self.open.get(key).map(|(open, _)| *open), in_flight: in_flight.map(|(flight, _)| flight.batch_id.clone()) }
    }

    /// Keeps what a move made of an open batch; the messages are the caller's care.
    fn keep_open(&mut self, key: &BatchKey, open: Option<OpenBatch>) {
        match open {
            Some(open) => self.open.entry(key.clone()).or_insert((open, Vec::new())).0 = open,
            None => drop(self.open.remove(key)),
        }
    }

    fn is_seen(&self, id: Option<&String>, now: Timestamp) -> bool {
        id.and_then(|id| self.seen.get(id)).is_some_and(|until| *until > now)
    }

    pub(super) fn ingest(&mut self, message: NewMessage, rules: &Rules, now: Timestamp) -> Woken<IngestReply> {
        let remembered = message.message_id.as_ref().filter(|_| !rules.idempotency.is_zero());
        let id = remembered.map(|id| format!("i:{}:{}", message.key, id.as_str()));
        let source = message.source.as_ref().map(source_mark);
        let known = Known {
            seen: self.is_seen(id.as_ref(), now) || self.is_seen(source.as_ref(), now),
            open_messages: self.open.values().map(|(open, _)| open.size).sum(),
            earliest: self.open.values().filter(|(open, _)| open.armed).map(|(open, _)| open.deadline).min(),
        };
        let mut state = self.state(&message.key);
        let Stepped { reply, wake } = batch::ingest(&mut state, &message, rules, &known, now);
        if matches!(reply, IngestReply::Accepted { .. }) {
            self.keep_open(&message.key, state.open);
            self.seen.extend(id.map(|id| (id, now + rules.idempotency)));
            self.seen.extend(source.map(|source| (source, now + SOURCE_KEPT)));
            if let Some((_, messages)) = self.open.get_mut(&message.key) {
                messages.push(message.body);
            }
        }
        (reply, wake)
    }

    pub(super) fn claim(&mut self, want: &ClaimBatch, now: Timestamp) -> ClaimReply {
        if self.flights.contains_key(&want.batch_id) {
            return ClaimReply::Skip(Skip::Gone);
        }
        let mut state = self.state(&want.key);
        let sizes: Vec<u64> = self.open.get(&want.key).map_or(Vec::new(), |(_, all)| all.iter().map(|one| one.len() as u64).collect());
        let claimed = batch::claim(&mut state, want, &sizes, now);
        let mut messages = Vec::new();
        if let (Ok(taken), Some((_, all))) = (&claimed, self.open.get_mut(&want.key)) {
            messages = all.drain(..taken.messages).collect();
        }
        self.keep_open(&want.key, state.open);
        match claimed {
            Ok(taken) => {
                self.flights.insert(want.batch_id.clone(), (taken.flight.clone(), messages.clone()));
                ClaimReply::Claimed(ClaimedBatch::new(taken.flight, want.token.clone(), messages, now))
            }
            Err(skip) => ClaimReply::Skip(skip),
        }
    }

    pub(super) fn reclaim(&mut self, want: &ReclaimBatch, now: Timestamp) -> ClaimReply {
        let kept = self.flights.get_mut(&want.batch_id);
        let messages = kept.as_ref().map_or(Vec::new(), |(_, messages)| messages.clone());
        match batch::reclaim(kept.map(|(flight, _)| flight), want, now) {
            Ok(flight) => ClaimReply::Claimed(ClaimedBatch::new(flight, want.token.clone(), messages, now)),
            Err(skip) => ClaimReply::Skip(skip),
        }
    }

    pub(super) fn extend(&mut self, want: &ExtendBatch, now: Timestamp) -> ExtendReply {
        batch::extend(self.flights.get_mut(&want.batch_id).map(|(flight, _)| flight), want, now)
    }

    pub(super) fn finish(&mut self, want: &FinishBatch, now: Timestamp) -> Woken<FinishReply> {
        let flight = self.flights.get(&want.batch_id).map(|(flight, _)| flight.clone());
        let key = flight.as_ref().map(|flight| flight.key.clone());
        let mut state = key.as_ref().map_or(KeyState::default(), |key| self.state(key));
        let Stepped { reply, wake } = batch::finish(flight.as_ref(), &mut state, want, now);
        let said = reply.reply();
        match (reply, key) {
            (Finished::Waits(flight), _) => {
                if let Some((kept, _)) = self.flights.get_mut(&want.batch_id) {
                    *kept = flight;
                }
            }
            (Finished::Over, Some(key)) => {
                self.flights.remove(&want.batch_id);
                self.keep_open(&key, state.open);
                if let Verb::Dead(letter) = &want.verb {
                    self.put_dead(letter.clone());
                }
            }
            _ => {}
        }
        (said, wake)
    }

    pub(super) fn seal(&mut self, want: &SealBatch, now: Timestamp) -> Woken<SealReply> {
        let mut state = self.state(&want.key);
        let Stepped { reply, wake } = batch::seal(&mut state, want, now);
        self.keep_open(&want.key, state.open);
        (reply, wake)
    }

    /// Nothing ever loses its deadline here, so only old dead letters are swept.
    pub(super) fn sweep(&mut self, keep_dead: Option<Duration>, now: Timestamp) -> Swept {
        let before = self.dead.len();
        if let Some(keep) = keep_dead {
            let since = Timestamp::from_millis(now.as_millis().saturating_sub(millis(keep)));
            self.dead.retain(|_, letter| letter.at.is_none_or(|at| at >= since));
        }
        Swept { rearmed: 0, dead_removed: (before - self.dead.len()) as u64 }
    }

    pub(super) fn add_dead(&mut self, letter: DeadLetter, source: Option<&SourceId>, now: Timestamp) -> DeadReply {
        let mark = source.map(source_mark);
        if self.is_seen(mark.as_ref(), now) {
            return DeadReply::Duplicate;
        }
        self.seen.extend(mark.map(|mark| (mark, now + SOURCE_KEPT)));
        self.put_dead(letter);
        DeadReply::Added
    }

    fn put_dead(&mut self, letter: DeadLetter) {
        self.last_dead += 1;
        self.dead.insert(self.last_dead, letter);
    }

    /// The oldest entry of this id.
    pub(super) fn take_dead(&mut self, id: &BatchId) -> Option<DeadLetter> {
        let place = self.dead.iter().find(|(_, letter)| letter.id == *id).map(|(place, _)| *place)?;
        self.dead.remove(&place)
    }

    pub(super) fn clear_dead(&mut self) -> u64 {
        std::mem::take(&mut self.dead).len() as u64
    }

    pub(super) fn replay(&mut self, id: &BatchId, now: Timestamp) -> Woken<ReplayReply> {
        if self.flights.contains_key(id) {
            return (ReplayReply::InFlight, None);
        }
        let Some(letter) = self.dead_letter(id) else { return (ReplayReply::Gone, None) };
        let Some(flight) = letter.flight(now) else { return (ReplayReply::NotReplayable, None) };
        self.take_dead(id);
        self.flights.insert(id.clone(), (flight, Vec::new()));
        (ReplayReply::Replayed, Some(now))
    }
}

fn source_mark(source: &SourceId) -> String {
    format!("s:{source}")
}
