//! Random operations. They look at the model first, so that most of them hit something: a held delivery, a dead letter, a due instant.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use towpath_core::call::CallState;
use towpath_core::inspect::{CallFilter, PageRequest};
use towpath_core::store::Store;
use towpath_core::time::Timestamp;

use super::op::{Name, Op, Ref, Say, Shape};
use crate::bench::sure;
use crate::dump::Dump;

// Small alphabets: the same names meet again and again.
const FUNCTIONS: [Name; 3] = ["add", "sub", "wf-7:add"];
const WORKERS: [Name; 3] = ["w1", "w2", "w3"];
const KEYS: [Name; 2] = ["k1", "k2"];
const BODIES: [Name; 2] = ["1", "[\"two\"]"];
const CALLS: u32 = 14;
const LEASES_MS: [u64; 4] = [1_000, 5_000, 30_000, 30_000];
const TIMEOUTS_MS: [u64; 5] = [1, 2_000, 10_000, 60_000, 600_000];
const RETENTIONS_MS: [u64; 4] = [1, 2_000, 20_000, 60_000];
const PAUSES_MS: [u64; 5] = [1, 500, 2_000, 10_000, 45_000];

/// A source of operations, the same for the same seed.
pub(super) struct Generator {
    random: StdRng,
}

/// What the model shows, and when something is due.
struct Seen {
    dump: Dump,
    now: Timestamp,
    next_due: Option<Timestamp>,
    /// Where a page ends that somebody may be looking at.
    /// A page of so many calls is not the last.
    page: Option<u32>,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed) }
    }

    /// The first operations make functions known; the others follow what there is.
    pub(super) async fn next(&mut self, index: usize, model: &dyn Store, now: Timestamp) -> Op {
        if let Some(function) = FUNCTIONS.get(index) {
            return Op::Define { function, shape: self.shape() };
        }
        let newest = self.random.random_range(1..=5);
        let page = sure(model.calls(&CallFilter::default(), PageRequest::first(newest)).await).next.map(|_| newest);
        // A limit of none is a look at what is due, and changes nothing.
        let seen = Seen { dump: Dump::of(model).await, now, next_due: sure(model.fire_due(0).await).next_due, page };
        match self.random.random_range(0..100) {
            0..22 => self.submit(),
            22..40 => self.claim(),
            40..58 => self.speak(&seen),
            58..70 => self.pass_time(&seen),
            70..78 => Op::Fire { limit: self.pick(&[1, 2, 1_000, 1_000, 1_000]) },
            78..86 => self.settle(&seen),
            86..92 => self.registry(&seen),
            92..99 => self.look(&seen),
            _ => {
                if self.one_in(3) {
                    Op::Reopen
                } else {
                    self.forget_or_define()
                }
            }
        }
    }

    fn submit(&mut self) -> Op {
        Op::Submit {
            id: self.call_id(),
            of: self.function(),
            params: if self.one_in(6) { BODIES[1] } else { BODIES[0] },
            item: self.one_in(8).then_some(BODIES[1]),
            key: self.one_in(3).then(|| self.pick(&KEYS)),
            timeout_ms: self.pick(&TIMEOUTS_MS),
            retain_ms: self.pick(&RETENTIONS_MS),
            impatient: self.one_in(6),
        }
    }

    fn claim(&mut self) -> Op {
        let mut functions = Vec::new();
        for _ in 0..self.random.random_range(1..=3) {
            functions.push((self.function(), self.random.random_range(0..=3)));
        }
        Op::Claim { worker: self.worker(), functions, max: self.random.random_range(0..=4), lease_ms: self.pick(&LEASES_MS) }
    }

    /// A worker says something about deliveries: mostly its own, now and then one that is stale, another's, or made up.
    fn speak(&mut self, seen: &Seen) -> Op {
        let held: Vec<_> = seen.dump.calls.iter().filter(|view| view.call.delivery > 0).collect();
        let running: Vec<_> = held.iter().copied().filter(|view| view.call.state == CallState::Running).collect();
        let candidates = if running.is_empty() || self.one_in(5) { held } else { running };
        let chosen = candidates.choose(&mut self.random);
        let (mut worker, mut delivery) = (self.worker(), Ref(self.call_id(), 1));
        if let Some(view) = chosen {
            let holder = view.call.holder.as_ref().and_then(|holder| WORKERS.into_iter().find(|name| *name == holder.as_str()));
            worker = holder.unwrap_or(worker);
            delivery = Ref(view.call.call_id.as_str().to_owned(), view.call.delivery);
        }
        if self.one_in(12) {
            worker = self.worker();
        }
        if self.one_in(10) {
            delivery.1 = self.random.random_range(0..=3);
        }
        if self.one_in(25) {
            delivery.0 = self.call_id();
        }
        match self.random.random_range(0..20) {
            0..11 => Op::Complete { worker, answers: self.with_another(delivery).into_iter().map(|of| (of, self.say())).collect() },
            11..14 => Op::Renew { worker, deliveries: self.with_another(delivery), lease_ms: self.pick(&LEASES_MS) },
            14..16 => Op::Release { worker, deliveries: self.with_another(delivery) },
            16..18 => Op::Park { worker, delivery, parked: !self.one_in(3) },
            _ => Op::Progress { worker, delivery, report: self.pick(&BODIES) },
        }
    }

    fn with_another(&mut self, delivery: Ref) -> Vec<Ref> {
        let another = self.one_in(5).then(|| Ref(self.call_id(), self.random.random_range(1..=2)));
        let twice = self.one_in(10).then(|| delivery.clone());
        [Some(delivery), another, twice].into_iter().flatten().collect()
    }

    fn say(&mut self) -> Say {
        match self.random.random_range(0..10) {
            0..3 => Say::Ok(self.pick(&BODIES)),
            3..7 => Say::Fail,
            7 => Say::FailNotBefore { ms: self.pick(&PAUSES_MS) },
            8 => Say::FailForGood,
            _ => Say::Cancelled,
        }
    }

    /// Time passes by a while, or exactly to the next timer or end of a retention, or to just before it.
    fn pass_time(&mut self, seen: &Seen) -> Op {
        let next_gone = seen.dump.calls.iter().filter_map(|view| view.call.kept_until()).min();
        let next = if self.one_in(3) { next_gone.or(seen.next_due) } else { seen.next_due };
        let to_due = next.map(|due| u64::try_from(due.since(seen.now).as_millis()).unwrap_or(u64::MAX));
        let ms = match (to_due, self.random.random_range(0..4)) {
            (Some(ms), 0 | 1) => ms,
            (Some(ms), 2) => ms.saturating_sub(1),
            _ => self.pick(&PAUSES_MS),
        };
        Op::Advance { ms }
    }

    /// Somebody deals with a call: cancels it, or buries or revives a dead letter.
    fn settle(&mut self, seen: &Seen) -> Op {
        let dead: Vec<_> = seen.dump.calls.iter().filter(|view| view.call.state == CallState::Dead).collect();
        let letter = dead.choose(&mut self.random).map(|view| view.call.call_id.as_str().to_owned());
        let id = letter.clone().filter(|_| !self.one_in(6)).unwrap_or_else(|| self.call_id());
        match self.random.random_range(0..6) {
            0 if letter.is_some() || self.one_in(4) => Op::Drop { id },
            1 | 2 if letter.is_some() || self.one_in(4) => Op::Replay { id, as_id: self.call_id() },
            3 => Op::Watch { id: self.call_id() },
            _ => Op::Cancel { id: self.call_id() },
        }
    }

    fn registry(&mut self, seen: &Seen) -> Op {
        match self.random.random_range(0..12) {
            0..5 => {
                let mut offers = Vec::new();
                for _ in 0..self.random.random_range(0..=3) {
                    let concurrency = self.one_in(2).then(|| self.random.random_range(0..=2));
                    offers.push((self.function(), self.shape(), concurrency));
                }
                Op::Register { worker: self.worker(), offers }
            }
            5..8 => Op::Heartbeat { worker: self.worker() },
            8 => Op::Unregister { worker: self.worker() },
            9 => Op::FunctionsChanged,
            10 => {
                let version = seen.dump.config.version;
                let if_version = self.one_in(2).then(|| if self.one_in(2) { version } else { version + 1 });
                Op::SetConfig { value: self.pick(&BODIES), if_version }
            }
            _ => Op::ConfigChanged { seen: seen.dump.config.version.saturating_sub(u64::from(self.one_in(2))) },
        }
    }

    fn look(&mut self, seen: &Seen) -> Op {
        match self.random.random_range(0..11) {
            0 => Op::Call { id: self.call_id() },
            1 | 2 => Op::Calls {
                states: if self.one_in(2) { Vec::new() } else { vec![self.pick(&CallState::ALL), self.pick(&CallState::ALL)] },
                of: self.one_in(3).then(|| self.function()),
                worker: self.one_in(4).then(|| self.worker()),
                after: if self.one_in(3) { None } else { seen.page },
                limit: self.random.random_range(0..=4),
            },
            3 => Op::Functions,
            4 => Op::Workers,
            5 => Op::Probe,
            6 => Op::Find { function: self.function() },
            7 => Op::Attention { worker: self.worker() },
            8 => Op::DueBefore { known: if self.one_in(2) { None } else { seen.next_due } },
            9 => Op::Config,
            _ => Op::Listen,
        }
    }

    fn forget_or_define(&mut self) -> Op {
        let function = self.function();
        if self.one_in(2) { Op::Forget { function } } else { Op::Define { function, shape: self.shape() } }
    }

    fn shape(&mut self) -> Shape {
        Shape {
            attempts: self.pick(&[1, 2, 2, 3]),
            deliveries: self.pick(&[1, 2, 5]),
            pause_ms: self.pick(&[0, 500, 2_000]),
            grows: self.one_in(3),
            backlog: self.pick(&[None, None, None, Some(0), Some(2), Some(4)]),
            concurrent: self.pick(&[None, None, None, Some(0), Some(1), Some(2)]),
        }
    }

    fn call_id(&mut self) -> String {
        format!("c{}", self.random.random_range(0..CALLS))
    }

    fn function(&mut self) -> Name {
        self.pick(&[FUNCTIONS[0], FUNCTIONS[0], FUNCTIONS[0], FUNCTIONS[1], FUNCTIONS[2]])
    }

    fn worker(&mut self) -> Name {
        self.pick(&WORKERS)
    }

    fn one_in(&mut self, chances: u32) -> bool {
        self.random.random_ratio(1, chances)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())]
    }
}
