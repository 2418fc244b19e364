//! Who sends messages: callers that repeat what they got no answer to, and old producers whose list is drained by somebody who may die.

use std::collections::VecDeque;

use towpath_core::batch::{DeadReply, IngestReply, NewMessage};
use towpath_core::store::DrainReply;

use super::{KEYS, World};
use crate::bench::sure;
use crate::words::{MessageWords, message, source, unreadable};

/// Takes aside at most so many at a time.
const DRAINED_AT_ONCE: usize = 4;

#[derive(Default)]
pub(super) struct Producers {
    made: u64,
    /// What callers may send again, because the answer got lost.
    unanswered: Vec<NewMessage>,
    /// What old producers pushed: the key and the number of a message, or nothing that could be read.
    list: VecDeque<Option<(usize, u64)>>,
    /// What was taken aside and not put away.
    aside: VecDeque<Option<(usize, u64)>>,
    /// How many were ever put away: the first that is aside has this number.
    counter: u64,
}

impl Producers {
    pub(super) async fn push(&mut self, world: &mut World<'_>) {
        if world.dice.percent() < 15
            && let Some(again) = self.unanswered.pop()
        {
            let reply = world.t.ingest_under(&world.rules, again).await;
            assert!(matches!(reply, IngestReply::Duplicate { .. }), "seed {}: taken twice: {reply:?}", world.dice.seed);
            world.judge.tally.duplicates += 1;
            return;
        }
        self.made += 1;
        let key = world.dice.below(2);
        let mut new = message(KEYS[key], &body(key, self.made)).id(&self.made.to_string());
        if world.dice.percent() < 10 {
            new = new.immediate();
        }
        let reply = world.t.ingest_under(&world.rules, new.clone()).await;
        assert!(matches!(reply, IngestReply::Accepted { .. }), "seed {}: {reply:?}", world.dice.seed);
        world.judge.accepted(key, self.made);
        if world.dice.percent() < 30 {
            self.unanswered.push(new);
        }
        self.unanswered.truncate(8);
    }

    pub(super) fn push_to_list(&mut self, world: &mut World<'_>) {
        for _ in 0..=world.dice.below(3) {
            self.made += 1;
            let key = 2 + world.dice.below(2);
            self.list.push_back((world.dice.percent() >= 5).then_some((key, self.made)));
        }
    }

    /// Takes some elements in and puts them away, unless the drainer dies in between. Whether there is more to do.
    pub(super) async fn drain(&mut self, world: &mut World<'_>) -> bool {
        while self.aside.len() < DRAINED_AT_ONCE
            && let Some(element) = self.list.pop_front()
        {
            self.aside.push_back(element);
        }
        let from = self.counter;
        for (place, element) in self.aside.clone().into_iter().enumerate() {
            if !world.calm && world.dice.percent() < 8 {
                return true; // it died half-way
            }
            self.take_in(world, from + place as u64, element).await;
        }
        if !world.calm && world.dice.percent() < 20 {
            return true; // it died before it could put them away
        }
        let count = self.aside.len();
        // A drainer that slept through another's work starts from an old number, and must not put away what is not its own.
        let stale = from.wrapping_sub(u64::from(world.dice.percent() < 10));
        for from in [stale, from] {
            self.put_away(from, count);
        }
        !self.list.is_empty() || !self.aside.is_empty()
    }

    fn put_away(&mut self, from: u64, count: usize) -> DrainReply {
        if from != self.counter {
            return DrainReply::Moved { at: self.counter };
        }
        let gone = self.aside.drain(..count.min(self.aside.len())).count();
        self.counter += gone as u64;
        DrainReply::Removed { next: self.counter }
    }

    async fn take_in(&mut self, world: &mut World<'_>, number: u64, element: Option<(usize, u64)>) {
        let Some((key, made)) = element else {
            let letter = unreadable(&world.t.orders(), "{oops", Some(number), world.t.now());
            let added = sure(world.t.batches().dead_letter_add(&world.t.orders(), letter.clone(), Some(source(number))).await);
            match added {
                DeadReply::Added => world.judge.unreadable(letter.id),
                DeadReply::Duplicate => world.judge.tally.duplicates += 1,
            }
            return;
        };
        let new = message(KEYS[key], &body(key, made)).drained(number);
        match world.t.ingest_under(&world.rules, new).await {
            IngestReply::Accepted { .. } => world.judge.accepted(key, made),
            IngestReply::Duplicate { .. } => world.judge.tally.duplicates += 1,
            IngestReply::Full { .. } => panic!("seed {}: it is not full", world.dice.seed),
        }
    }
}

fn body(key: usize, number: u64) -> String {
    format!(r#"{{"key":{key},"n":{number}}}"#)
}
