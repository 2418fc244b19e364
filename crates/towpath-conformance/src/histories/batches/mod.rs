//! Four keys, three dispatchers and a receiver that cannot be trusted. Dispatchers die before and after they have posted, or fall asleep and
//! come back with a right that is over; a drainer dies between taking an element in and putting it away; the store is stopped and opened.

mod dispatcher;
mod judge;
mod producers;

use std::time::Duration;

use towpath_core::batch::{Rules, SealVerb, Settings};
use towpath_core::inspect::DeadLetterQuery;

use super::Dice;
use crate::bench::{Bench, sure};
use dispatcher::Dispatcher;
use judge::Judge;
use producers::Producers;

pub use judge::BatchTally;

const DISPATCHERS: usize = 3;
/// Keys 0 and 1 are pushed to, 2 and 3 come from an old producer's list.
const KEYS: [&str; 4] = ["a", "a:b", "чат 🚢", "z"];

/// All that plays along.
struct World<'a> {
    t: &'a mut Bench,
    dice: &'a mut Dice,
    rules: Rules,
    settings: Settings,
    judge: Judge,
    claims: u64,
    /// Towards the end everything works, so that all that was taken must have arrived.
    calm: bool,
}

/// One history. Panics at the first thing that is wrong; returns how much has happened.
pub(super) async fn run(t: &mut Bench, dice: &mut Dice, steps: usize) -> BatchTally {
    let rules = Rules { max_messages: [2, 3, 5][dice.below(3)], max_bytes: [40, 1 << 20][dice.below(2)], ..Rules::default() };
    let settings = Settings::of(&t.orders().name);
    let mut world = World { t, dice, rules, settings, judge: Judge::default(), claims: 0, calm: false };
    let mut producers = Producers::default();
    let mut dispatchers: Vec<Dispatcher> = (0..DISPATCHERS).map(|_| Dispatcher::Idle).collect();
    for _ in 0..steps {
        world.step(&mut producers, &mut dispatchers).await;
    }
    world.land(&mut producers, &mut dispatchers).await;
    world.finish().await
}

impl World<'_> {
    async fn step(&mut self, producers: &mut Producers, dispatchers: &mut [Dispatcher]) {
        match self.dice.percent() {
            0..22 => {
                for _ in 0..=self.dice.below(2) {
                    producers.push(self).await;
                }
            }
            22..32 => producers.push_to_list(self),
            32..44 => {
                let _more = producers.drain(self).await;
            }
            44..84 => {
                let number = self.dice.below(DISPATCHERS);
                let before = std::mem::replace(&mut dispatchers[number], Dispatcher::Idle);
                dispatchers[number] = before.act(self).await;
            }
            84..86 => self.close_or_postpone().await,
            86..90 => self.replay().await,
            90 => self.t.reopen().await,
            _ => self.t.advance_ms([300, 2_000, 11_000, 61_000][self.dice.below(4)]),
        }
    }

    async fn close_or_postpone(&mut self) {
        let (key, touch) = (KEYS[self.dice.below(4)], SealVerb::Touch { debounce: Duration::from_secs(10), max_wait: self.rules.max_wait });
        let verb = if self.dice.percent() < 50 { SealVerb::Flush } else { touch };
        self.t.seal_batch(key, verb).await;
    }

    async fn replay(&mut self) {
        for id in self.t.dead_ids(DeadLetterQuery::default()).await.into_iter().rev().take(3) {
            let replies = sure(self.t.batches().dead_letter_replay(&self.t.orders(), vec![id.clone()]).await);
            self.judge.replayed(&id, replies[0]);
        }
    }

    /// Lets everything come down: no more crashes, no more failures, until nothing is left to do.
    async fn land(&mut self, producers: &mut Producers, dispatchers: &mut [Dispatcher]) {
        self.calm = true;
        while producers.drain(self).await {}
        for _ in 0..10_000 {
            for dispatcher in dispatchers.iter_mut() {
                let before = std::mem::replace(dispatcher, Dispatcher::Idle);
                *dispatcher = before.act(self).await;
            }
            let due = self.t.due_batches().await;
            let idle = dispatchers.iter().all(|dispatcher| matches!(dispatcher, Dispatcher::Idle));
            match due.next {
                _ if !due.keys.is_empty() || !due.flights.is_empty() || !idle => {}
                Some(next) => self.t.advance(next.since(self.t.now())),
                None => return,
            }
        }
        panic!("seed {}: it never comes to rest", self.dice.seed);
    }

    async fn finish(self) -> BatchTally {
        let dump = self.t.dump_batches().await;
        assert!(dump.open.is_empty() && dump.in_flight.is_empty(), "seed {}: something is left: {dump:#?}", self.dice.seed);
        self.judge.end(&dump.dead, self.dice.seed)
    }
}
