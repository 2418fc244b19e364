//! What is asked of a limit.

use std::time::Duration;

use super::{Algorithm, InvalidLimit, Rules};
use crate::names::LimitScope;
use crate::time::micros;

/// A question to a limit that was checked when it was made: whatever is in it can be computed exactly.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    scope: LimitScope,
    rules: Rules,
    cost: i64,
    max_wait_us: i64,
    commit: bool,
}

impl Check {
    /// The largest cost.
    pub const COST_MAX: u64 = 1_000_000;
    /// The longest wait of a reserve: 7 days.
    pub const WAIT_MAX: Duration = Duration::from_secs(7 * 86_400);

    /// Takes `cost` units if every rule has room. With a wait, `gcra` rules may promise room that comes within it.
    pub fn take(scope: LimitScope, rules: Rules, cost: u64, max_wait: Duration) -> Result<Self, InvalidLimit> {
        InvalidLimit::unless_within("cost", cost, 1, Self::COST_MAX)?;
        let max_ms = u64::try_from(Self::WAIT_MAX.as_millis()).unwrap_or(u64::MAX);
        let given_ms = u64::try_from(max_wait.as_millis()).unwrap_or(u64::MAX);
        InvalidLimit::unless_within("max_wait_ms", given_ms, 0, max_ms)?;
        if !max_wait.is_zero() && !rules.iter().any(|rule| rule.algorithm() == Algorithm::Gcra) {
            return Err(InvalidLimit::bad("only a gcra rule can promise room that is still to come: add one, or do not wait"));
        }
        Self::new(scope, rules, i64::try_from(cost).unwrap_or(i64::MAX), micros(max_wait), true)
    }

    /// What taking `cost` units would be answered now; nothing is written. A cost of 0 just looks.
    pub fn peek(scope: LimitScope, rules: Rules, cost: u64) -> Result<Self, InvalidLimit> {
        InvalidLimit::unless_within("cost", cost, 0, Self::COST_MAX)?;
        Self::new(scope, rules, i64::try_from(cost).unwrap_or(i64::MAX), 0, false)
    }

    /// Gives units back, never beyond an empty limit.
    pub fn refund(scope: LimitScope, rules: Rules, cost: u64) -> Result<Self, InvalidLimit> {
        InvalidLimit::unless_within("cost", cost, 1, Self::COST_MAX)?;
        Self::new(scope, rules, -i64::try_from(cost).unwrap_or(i64::MAX), 0, true)
    }

    fn new(scope: LimitScope, rules: Rules, cost: i64, max_wait_us: i64, commit: bool) -> Result<Self, InvalidLimit> {
        for rule in rules.iter() {
            rule.checked(cost.unsigned_abs(), max_wait_us)?;
        }
        Ok(Self { scope, rules, cost, max_wait_us, commit })
    }

    /// What is limited.
    pub fn scope(&self) -> &LimitScope {
        &self.scope
    }

    /// By which rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How much: negative gives back, 0 just looks.
    pub fn cost(&self) -> i64 {
        self.cost
    }

    /// How long a `gcra` rule may let the caller wait, in microseconds.
    pub fn max_wait_us(&self) -> i64 {
        self.max_wait_us
    }

    /// Whether anything is written.
    pub fn writes(&self) -> bool {
        self.commit
    }
}
