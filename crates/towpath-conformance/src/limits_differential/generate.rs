//! Random checks. They remember the last denial, so that time often moves to exactly its retry, or to a microsecond before it.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use towpath_core::inspect::LimitQuery;
use towpath_core::limit::{Check, NotedRule, Retry, Rule, Rules};
use towpath_core::names::LimitScope;

use super::{Op, Reply};

/// Few rules that meet again and again; those of one name are the same rule before and after a change.
const RULES: [&str; 19] = [
    "even=gcra:7/1s",
    "even=gcra:3/1s",
    "even=gcra:999999937/1s,burst=3",
    "burst=gcra:100/60s,burst=5",
    "burst=gcra:12345/7s,burst=3",
    "user=gcra:2/1s,key=u1",
    "user=gcra:2/1s,key=u2",
    "window=fixed_window:4/1s",
    "other=fixed_window:6/1s",
    "minute=fixed_window:9/60s",
    "mine=fixed_window:3/1s,key=u1",
    "counter=sliding_counter:5/1s",
    "counter=sliding_counter:3/1s",
    "counter=sliding_counter:5/700ms",
    "log=sliding_log:4/1s",
    "log=sliding_log:2/1s",
    "long=sliding_log:6/5s,key=u1",
    "planned=sliding_log:1/2s,shadow",
    "hoped=gcra:1/1s,shadow",
];
const SCOPES: [&str; 3] = ["acme", "acme", "заказ-7"];
const PAUSES_US: [u64; 9] = [0, 1, 17, 999, 33_333, 142_857, 500_000, 1_000_000, 7_000_001];

/// A source of operations, the same for the same seed.
pub(super) struct Generator {
    random: StdRng,
    last_retry_us: u64,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), last_retry_us: 0 }
    }

    /// Learns from what the stores agreed on.
    pub(super) fn heard(&mut self, reply: &Reply) {
        let Reply::Said(said) = reply else { return };
        let retries = said.rules.iter().filter_map(|rule| if let Retry::After(after) = rule.retry { Some(after) } else { None });
        if let Some(after) = retries.max() {
            self.last_retry_us = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        }
    }

    pub(super) fn next(&mut self) -> Op {
        match self.random.random_range(0..100) {
            0..55 => self.take(),
            55..60 => self.look(),
            60..62 => self.list(),
            62..69 => self.refund(),
            69..72 => Op::Reset(self.scope(), self.rules()),
            72..99 => self.pass_time(),
            _ => Op::Reopen,
        }
    }

    fn take(&mut self) -> Op {
        loop {
            let wait = if self.one_in(4) { Duration::from_micros(self.random.random_range(1..900_000)) } else { Duration::ZERO };
            let (scope, rules, cost) = (self.scope(), self.rules(), self.cost());
            // What cannot be asked (a wait without a rule that could promise anything) is not asked.
            if let Ok(check) = Check::take(scope, rules, cost.max(1), wait) {
                return Op::Take(check);
            }
        }
    }

    fn look(&mut self) -> Op {
        let (scope, rules, cost) = (self.scope(), self.rules(), self.random.random_range(0..4));
        Op::Take(Check::peek(scope, rules, cost).expect("a cost that may be looked at"))
    }

    fn refund(&mut self) -> Op {
        let (scope, rules, cost) = (self.scope(), self.rules(), self.cost());
        Op::Take(Check::refund(scope, rules, cost.max(1)).expect("a cost that may be given back"))
    }

    fn list(&mut self) -> Op {
        let prefix = ["", "", "a", "acme", "заказ", "zoo"][self.random.random_range(0..6)].to_owned();
        let after = self.one_in(2).then(|| NotedRule::new(self.scope(), self.rules()[0].clone()));
        Op::List(LimitQuery { prefix, after, limit: self.random.random_range(1..30) })
    }

    fn pass_time(&mut self) -> Op {
        let us = match self.random.random_range(0..4) {
            0 => self.last_retry_us,
            1 => self.last_retry_us.saturating_sub(1),
            _ => PAUSES_US[self.random.random_range(0..PAUSES_US.len())],
        };
        // Never so long that a store may have swept what a changed rule would still see.
        Op::Advance { us: us.min(60_000_000) }
    }

    fn rules(&mut self) -> Rules {
        if self.one_in(8) {
            return Rules::one(Rule::seed(3, Duration::from_secs(2)).expect("the seed's rule"));
        }
        loop {
            let count = if self.one_in(2) { 1 } else { self.random.random_range(2..=5) };
            let chosen = (0..count).map(|_| RULES[self.random.random_range(0..RULES.len())].parse().expect("a rule of the list"));
            if let Ok(rules) = Rules::new(chosen.collect()) {
                return rules;
            }
        }
    }

    fn cost(&mut self) -> u64 {
        if self.one_in(2) { 1 } else { self.random.random_range(1..=7) }
    }

    fn scope(&mut self) -> LimitScope {
        LimitScope::new(SCOPES[self.random.random_range(0..SCOPES.len())]).expect("a name of the list")
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random.random_range(0..count) == 0
    }
}
