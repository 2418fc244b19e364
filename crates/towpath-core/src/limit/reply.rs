//! What the rules of a check say.

use std::time::Duration;

use crate::time::Micros;

/// The answer of a store.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReply {
    /// Whether every rule that may deny allows.
    pub allowed: bool,
    /// The store's clock when it decided.
    pub now: Micros,
    /// What each rule says, in order.
    pub rules: Vec<RuleReply>,
}

/// What one rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleReply {
    /// Whether it allows.
    pub ok: bool,
    /// How many more it would allow now.
    pub remaining: u64,
    /// When to ask again.
    pub retry: Retry,
    /// Until it is as good as new, if nothing more is taken.
    pub reset: Duration,
    /// How long the caller must wait before it uses what it reserved.
    pub wait: Duration,
    /// Units in use; of a fixed window, the counter after this call.
    pub count: u64,
}

/// When to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// It was allowed.
    NotNeeded,
    /// After so long it will be allowed, if nobody else comes; a microsecond earlier it would not.
    After(Duration),
    /// It asks for more than there can ever be at once.
    Never,
}

pub(crate) fn length(us: i128) -> Duration {
    Duration::from_micros(u64::try_from(us.max(0)).unwrap_or(u64::MAX))
}

pub(crate) fn units(count: i128) -> u64 {
    u64::try_from(count.max(0)).unwrap_or(u64::MAX)
}

/// Division that rounds up; the divisor is positive.
pub(crate) fn div_ceil(dividend: i128, divisor: i128) -> i128 {
    -(-dividend).div_euclid(divisor)
}
