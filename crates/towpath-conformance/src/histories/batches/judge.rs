//! Who judges, without the model: by what was accepted, what arrived, and what became a dead letter.

use std::collections::{BTreeMap, BTreeSet};

use towpath_core::batch::{ClaimedBatch, DeadLetter, FinishReply, ReplayReply, Verb};
use towpath_core::names::{BatchId, BatchToken};
use towpath_core::payload::Payload;

use crate::bench::texts;

/// A message: its key, and a number that rises.
type Sent = (usize, u64);

/// How much has happened. A history in which nothing goes wrong proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchTally {
    /// Messages that were accepted.
    pub messages: u64,
    /// Repeats that were refused.
    pub duplicates: u64,
    /// Batches that another took over.
    pub reclaimed: u64,
    /// Dispatchers that came back too late.
    pub zombies_refused: u64,
    /// Batches that arrived more than once.
    pub repeated: u64,
    /// Batches that were given up.
    pub dead: u64,
    /// Dead letters that went again.
    pub replayed: u64,
}

impl BatchTally {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            duplicates: self.duplicates + other.duplicates,
            reclaimed: self.reclaimed + other.reclaimed,
            zombies_refused: self.zombies_refused + other.zombies_refused,
            repeated: self.repeated + other.repeated,
            dead: self.dead + other.dead,
            replayed: self.replayed + other.replayed,
        }
    }
}

/// What the judge knows.
#[derive(Default)]
pub(super) struct Judge {
    pub(super) tally: BatchTally,
    /// What was accepted, by key, in order.
    accepted: BTreeMap<usize, Vec<u64>>,
    /// What each batch is made of, from its first claim on.
    batches: BTreeMap<BatchId, Vec<Sent>>,
    /// Who claimed it last: nobody else may settle it.
    holders: BTreeMap<BatchId, BatchToken>,
    /// What was claimed, by key, in order: the same as was accepted.
    claimed: BTreeMap<usize, Vec<u64>>,
    /// What arrived, and how often.
    arrived: BTreeMap<BatchId, u64>,
    /// Batches that were settled as delivered.
    acked: BTreeSet<BatchId>,
    dead: BTreeSet<BatchId>,
    unreadable: BTreeSet<BatchId>,
    /// The latest message of each key that was settled; batches of a key are settled in order.
    settled: BTreeMap<usize, u64>,
    replayed: BTreeSet<BatchId>,
}

impl Judge {
    pub(super) fn accepted(&mut self, key: usize, number: u64) {
        self.tally.messages += 1;
        self.accepted.entry(key).or_default().push(number);
    }

    pub(super) fn unreadable(&mut self, id: BatchId) {
        assert!(self.unreadable.insert(id), "an element that cannot be read is kept once");
    }

    pub(super) fn claimed(&mut self, batch: &ClaimedBatch, max_messages: u64, seed: u64) {
        self.tally.reclaimed += u64::from(batch.attempt > 1);
        self.holders.insert(batch.batch_id.clone(), batch.token.clone());
        let content = if batch.payload.is_some() { self.content_of(&batch.batch_id) } else { content(&batch.messages) };
        assert!(!content.is_empty() && content.len() as u64 <= max_messages, "seed {seed}: {content:?}");
        match self.batches.get(&batch.batch_id) {
            Some(before) => assert_eq!(*before, content, "seed {seed}: a batch is the same at every attempt"),
            None => {
                for (key, number) in &content {
                    self.claimed.entry(*key).or_default().push(*number);
                }
                self.batches.insert(batch.batch_id.clone(), content);
            }
        }
    }

    fn content_of(&self, id: &BatchId) -> Vec<Sent> {
        self.batches.get(id).cloned().unwrap_or_default()
    }

    /// The receiver got something: whatever was claimed under that id, and nothing else.
    pub(super) fn arrived(&mut self, batch: &ClaimedBatch, body: &Payload, seed: u64) {
        for (key, number) in self.content_of(&batch.batch_id) {
            assert!(body.as_str().contains(&format!(r#""key":{key},"n":{number}}}"#)), "seed {seed}: a message is missing in what is sent");
        }
        let times = self.arrived.entry(batch.batch_id.clone()).or_default();
        *times += 1;
        self.tally.repeated += u64::from(*times == 2);
    }

    pub(super) fn settled(&mut self, batch: &ClaimedBatch, verb: &Verb, reply: FinishReply, seed: u64) {
        let id = &batch.batch_id;
        if reply == FinishReply::Done {
            assert_eq!(self.holders.get(id), Some(&batch.token), "seed {seed}: {id} was settled by one who had lost it");
        }
        if reply == FinishReply::Lost || matches!(verb, Verb::Retry { .. } | Verb::Release) {
            return;
        }
        assert!(!self.acked.contains(id) && !self.dead.contains(id), "seed {seed}: {id} was settled twice");
        if *verb == Verb::Ack {
            assert!(self.arrived.contains_key(id), "seed {seed}: {id} was settled as delivered, and never arrived");
            self.acked.insert(id.clone());
        } else {
            self.tally.dead += 1;
            self.dead.insert(id.clone());
        }
        if self.replayed.contains(id) {
            return; // it goes beside its key's own order
        }
        for (key, number) in self.content_of(id) {
            let latest = self.settled.entry(key).or_default();
            assert!(number > *latest, "seed {seed}: {number} was settled after {latest}");
            *latest = number;
        }
    }

    pub(super) fn replayed(&mut self, id: &BatchId, reply: ReplayReply) {
        let expected = if self.unreadable.contains(id) { ReplayReply::NotReplayable } else { ReplayReply::Replayed };
        assert_eq!(reply, expected);
        if reply == ReplayReply::Replayed {
            self.tally.replayed += 1;
            self.dead.remove(id);
            self.replayed.insert(id.clone());
        }
    }

    /// Everything has come to rest: nothing was lost, nothing is in two batches.
    pub(super) fn end(self, dead: &[DeadLetter], seed: u64) -> BatchTally {
        assert_eq!(self.claimed, self.accepted, "seed {seed}: what was accepted was claimed, once, in order");
        let kept: BTreeSet<BatchId> = dead.iter().map(|letter| letter.id.clone()).collect();
        assert_eq!(kept.len(), dead.len(), "seed {seed}: a dead letter is there twice");
        let meant: BTreeSet<BatchId> = self.dead.union(&self.unreadable).cloned().collect();
        assert_eq!(kept, meant, "seed {seed}: dead letters");
        let ended: BTreeSet<&BatchId> = self.acked.union(&self.dead).collect();
        assert_eq!(ended, self.batches.keys().collect(), "seed {seed}: every batch was delivered or is a dead letter");
        self.tally
    }
}

fn content(messages: &[towpath_core::batch::Message]) -> Vec<Sent> {
    let number = |text: &str, name: &str| {
        let rest = text.split(&format!("\"{name}\":")).nth(1).unwrap_or_default();
        rest.split([',', '}']).next().and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
    };
    let one = |text: &String| (usize::try_from(number(text, "key")).unwrap_or(usize::MAX), number(text, "n"));
    texts(messages).iter().map(one).collect()
}
