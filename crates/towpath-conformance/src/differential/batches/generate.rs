//! Random operations on batches. They look at the model first, so that most of them hit something: a due key, a current token.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use towpath_core::batch::{
    BatcherId, ClaimBatch, ClaimedBatch, DeadLetter, ExtendBatch, FinishBatch, Message, MessageId, NewDeadLetter, NewMessage, ReclaimBatch,
    Rules, Seal, SealBatch, SealVerb, Verb,
};
use towpath_core::inspect::{DeadLetterQuery, FlightView};
use towpath_core::names::{BatchId, BatchKey, BatchToken};
use towpath_core::payload::Payload;
use towpath_core::store::BatchStore;
use towpath_core::time::Timestamp;

use super::op::Op;
use crate::dump::BatchDump;
use crate::words::{batch_id, batch_key, batch_token, source, unreadable};

// Small alphabets: the same names meet again and again.
const KEYS: [&str; 4] = ["a", "a:b", "чат 🚢", "z"];
const MESSAGE_IDS: [&str; 6] = ["1", "2", "3", "b:1", "m%3A1", "m:1"];
const REASONS: [&str; 2] = ["rejected_404", "crash_loop"];
const STEPS_MS: [u64; 7] = [1, 500, 999, 1_000, 4_000, 11_000, 61_000];

/// A source of operations, the same for the same seed.
pub(super) struct Generator {
    random: StdRng,
    batchers: Vec<BatcherId>,
    made: u64,
}

impl Generator {
    /// Most operations are of the first of these batchers.
    pub(super) fn new(seed: u64, batchers: &[BatcherId]) -> Self {
        Self { random: StdRng::seed_from_u64(seed), batchers: batchers.to_vec(), made: 0 }
    }

    pub(super) async fn next(&mut self, model: &dyn BatchStore) -> Op {
        let batcher = if self.one_in(8) { self.pick_of(&self.batchers.clone()) } else { self.batchers[0].clone() };
        let seen = BatchDump::of(model, &batcher).await;
        match self.random.random_range(0..100) {
            0..30 => self.ingest(batcher),
            30..44 => self.claim(batcher, &seen),
            44..50 => self.reclaim(batcher, &seen),
            50..53 => self.extend(batcher, &seen),
            53..64 => self.finish(batcher, &seen),
            64..69 => self.seal(batcher),
            69..82 => self.pass_time(&seen),
            82..89 => self.dead(batcher, &seen),
            89..98 => self.look(batcher, &seen),
            98 => Op::PutBatcher(batcher.name, format!(r#"{{"debounce_seconds": {}}}"#, self.pick(&[1, 2]))),
            _ => Op::Reopen,
        }
    }

    fn rules(&mut self) -> Rules {
        Rules {
            max_wait: self.seconds(&[15, 300, 300]),
            max_messages: self.pick(&[2, 3, 100, 100]),
            max_bytes: self.pick(&[20, 1 << 20, 1 << 20]),
            serial: !self.one_in(8),
            idempotency: self.seconds(&[0, 5, 3_600, 3_600]),
            max_open: 1_000_000,
        }
    }

    fn ingest(&mut self, batcher: BatcherId) -> Op {
        let (rules, count) = (self.rules(), self.pick(&[1, 1, 1, 2, 5]));
        let messages = (0..count).map(|_| self.message()).collect();
        Op::Ingest(batcher, rules, messages)
    }

    fn message(&mut self) -> NewMessage {
        self.made += 1;
        let body = if self.one_in(20) { "длинно".repeat(3_000) } else { format!(r#"{{"n":{}}}"#, self.made) };
        let debounce = self.seconds(&[0, 1, 10, 10, 10, 60]);
        let seal = if self.one_in(12) { Some(Seal::Keyword) } else { debounce.is_zero().then_some(Seal::Immediate) };
        NewMessage {
            key: self.key(),
            body: Message::new(body),
            message_id: if self.one_in(2) { MessageId::new(self.pick(&MESSAGE_IDS)) } else { None },
            source: self.one_in(6).then(|| source(self.random.random_range(0..6))),
            debounce,
            seal,
        }
    }

    fn claim(&mut self, batcher: BatcherId, seen: &BatchDump) -> Op {
        self.made += 1;
        let due = seen.due.keys.choose(&mut self.random).cloned();
        let flying = seen.in_flight.choose(&mut self.random).map(|flight| flight.batch_id.clone());
        let fresh = batch_id(&format!("b-{}", self.made));
        let id = if self.one_in(15) { flying.unwrap_or(fresh) } else { fresh };
        let key = if self.one_in(6) { self.key() } else { due.unwrap_or_else(|| self.key()) };
        let lease = self.seconds(&[5, 60]);
        Op::Claim(ClaimBatch { batcher, key, token: token(&id, 1), batch_id: id, lease, rules: self.rules() })
    }

    /// A flight that is there, or one that never was.
    fn flight(&mut self, seen: &BatchDump) -> (BatchId, u32, Option<FlightView>) {
        match seen.in_flight.choose(&mut self.random) {
            Some(flight) => (flight.batch_id.clone(), flight.attempt, Some(flight.clone())),
            None => (batch_id("nowhere"), 1, None),
        }
    }

    fn reclaim(&mut self, batcher: BatcherId, seen: &BatchDump) -> Op {
        let due = seen.due.flights.choose(&mut self.random).cloned();
        let (flying, _, _) = self.flight(seen);
        let id = due.unwrap_or(flying);
        let attempt = seen.in_flight.iter().find(|flight| flight.batch_id == id).map_or(0, |flight| flight.attempt);
        Op::Reclaim(ReclaimBatch { batcher, token: token(&id, attempt + 1), batch_id: id, lease: self.seconds(&[5, 60]) })
    }

    /// The current token, or that of the attempt before.
    fn token(&mut self, id: &BatchId, attempt: u32) -> BatchToken {
        token(id, if self.one_in(6) { attempt.saturating_sub(1) } else { attempt })
    }

    fn extend(&mut self, batcher: BatcherId, seen: &BatchDump) -> Op {
        let (id, attempt, _) = self.flight(seen);
        Op::Extend(ExtendBatch { batcher, token: self.token(&id, attempt), batch_id: id, lease: self.seconds(&[5, 60]) })
    }

    fn finish(&mut self, batcher: BatcherId, seen: &BatchDump) -> Op {
        let (id, attempt, flight) = self.flight(seen);
        let verb = match self.random.random_range(0..10) {
            0..5 => Verb::Ack,
            5..7 => Verb::Retry { delay: self.seconds(&[0, 1, 5]) },
            7 => Verb::Release,
            _ => match &flight {
                Some(flight) => Verb::Dead(self.letter(&batcher, flight, seen.due.now)),
                None => Verb::Ack,
            },
        };
        let key = flight.map(|flight| flight.key).filter(|_| self.one_in(2));
        Op::Finish(FinishBatch { batcher, token: self.token(&id, attempt), batch_id: id, key, verb })
    }

    fn letter(&mut self, batcher: &BatcherId, flight: &FlightView, at: Timestamp) -> DeadLetter {
        let batch = ClaimedBatch {
            batch_id: flight.batch_id.clone(),
            key: flight.key.clone(),
            token: token(&flight.batch_id, flight.attempt),
            attempt: flight.attempt,
            lease_end: flight.at,
            now: at,
            first: flight.first,
            last: flight.last,
            reason: flight.reason,
            messages: vec![Message::new(r#"{"text": "я"}"#)],
            payload: None,
        };
        let payload = Payload::from_json(format!(r#"{{"attempt":{}}}"#, flight.attempt));
        let payload = (!self.one_in(4)).then_some(&payload);
        DeadLetter::of_batch(NewDeadLetter { batcher: &batcher.name, batch: &batch, payload, reason: self.pick(&REASONS), error: "no", at })
    }

    fn seal(&mut self, batcher: BatcherId) -> Op {
        let verb = match self.random.random_range(0..5) {
            0..2 => SealVerb::Flush,
            2..4 => SealVerb::Touch { debounce: self.seconds(&[1, 10, 60]), max_wait: self.seconds(&[15, 300]) },
            _ => SealVerb::Rearm,
        };
        Op::Seal(SealBatch { batcher, key: self.key(), verb, serial: !self.one_in(8) })
    }

    /// Often exactly to where something is due, or to just before.
    fn pass_time(&mut self, seen: &BatchDump) -> Op {
        let left = seen.due.next.map(|next| u64::try_from(next.since(seen.due.now).as_millis()).unwrap_or(u64::MAX));
        match left.filter(|left| *left > 1) {
            Some(left) if !self.one_in(3) => Op::Advance { ms: left - u64::from(self.one_in(4)) },
            _ if self.one_in(25) => Op::Advance { ms: self.pick(&[3_600_000, 7 * 86_400_000]) },
            _ => Op::Advance { ms: self.pick(&STEPS_MS) },
        }
    }

    fn dead(&mut self, batcher: BatcherId, seen: &BatchDump) -> Op {
        let known = seen.dead.choose(&mut self.random).map(|letter| letter.id.clone());
        let (flying, _, _) = self.flight(seen);
        let ids = vec![known.unwrap_or_else(|| batch_id("nowhere")), flying];
        match self.random.random_range(0..10) {
            0..4 => Op::Replay(batcher, ids),
            4..6 => Op::Drop(batcher, ids),
            6 => Op::Clear(batcher),
            7 => Op::Sweep(batcher, if self.one_in(2) { None } else { Some(self.seconds(&[60, 86_400])) }),
            _ => {
                let number = self.one_in(2).then(|| self.random.random_range(0..6));
                let raw = self.pick(&["{oops", "ой\u{0}"]);
                Op::AddDead(batcher.clone(), Box::new(unreadable(&batcher, raw, number, seen.due.now)), number.map(source))
            }
        }
    }

    fn look(&mut self, batcher: BatcherId, seen: &BatchDump) -> Op {
        match self.random.random_range(0..10) {
            0..4 => Op::Dump(batcher),
            4 => Op::Due(batcher, self.pick(&[0, 1, 100])),
            5 => Op::Open(batcher, self.key()),
            6 => Op::Batchers,
            7 => {
                let known = seen.dead.choose(&mut self.random).map(|letter| letter.id.clone());
                Op::Dead(batcher, known.unwrap_or_else(|| batch_id("nowhere")))
            }
            8 => Op::Listen,
            _ => Op::DeadLetters(
                batcher,
                DeadLetterQuery {
                    reason: self.one_in(2).then(|| self.pick(&REASONS).to_owned()),
                    key: self.one_in(3).then(|| self.key()),
                    newest_first: self.one_in(2),
                    after: None,
                    limit: self.pick(&[1, 2, 100]),
                },
            ),
        }
    }

    fn key(&mut self) -> BatchKey {
        batch_key(self.pick(&KEYS))
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random.random_range(0..count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())]
    }

    fn pick_of<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())].clone()
    }

    fn seconds(&mut self, from: &[u64]) -> Duration {
        Duration::from_secs(self.pick(from))
    }
}

fn token(id: &BatchId, attempt: u32) -> BatchToken {
    batch_token(&format!("{id}/{attempt}"))
}
