//! The arithmetic against definitions that share nothing with it: exact rationals, sums over all that was taken, and every window.

mod bounds;
mod oracle;
mod rules;

use std::time::Duration;

use super::{Check, LimitReply, LimitState, Rule, Rules, take};
use crate::names::LimitScope;
use crate::time::Micros;

/// A limit in memory, and the instant it lives in.
struct Limiter {
    rules: Rules,
    states: Vec<Option<LimitState>>,
    now_us: i64,
}

impl Limiter {
    fn new(rules: Vec<Rule>) -> Self {
        let rules = Rules::new(rules).unwrap();
        Self { states: vec![None; rules.len()], rules, now_us: 1_800_000_000_000_000 }
    }

    fn put(&mut self, check: &Check) -> LimitReply {
        let (states, reply) = take(check, &self.states, Micros::new(self.now_us));
        self.states = states;
        reply
    }

    fn take(&mut self, cost: u64, wait_us: u64) -> LimitReply {
        self.put(&Check::take(scope(), self.rules.clone(), cost, Duration::from_micros(wait_us)).unwrap())
    }

    fn peek(&mut self, cost: u64) -> LimitReply {
        self.put(&Check::peek(scope(), self.rules.clone(), cost).unwrap())
    }

    fn refund(&mut self, cost: u64) -> LimitReply {
        self.put(&Check::refund(scope(), self.rules.clone(), cost).unwrap())
    }
}

fn scope() -> LimitScope {
    LimitScope::new("acme").unwrap()
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn us(count: i128) -> Duration {
    Duration::from_micros(u64::try_from(count).unwrap())
}
