//! When a failed call is tried again. The defaults are the seeds': three attempts, two seconds apart.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::names::CallId;

/// How often a function's calls are tried, and how long to wait in between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Attempts that may end with a handler's error; the last one makes a dead letter.
    pub max_attempts: u32,
    /// Deliveries that may end with the worker's death; the last one makes the call `poisoned`.
    pub max_deliveries: u32,
    /// The wait between attempts.
    pub backoff: Backoff,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_attempts: 3, max_deliveries: 5, backoff: Backoff::Fixed { delay_ms: 2_000 } }
    }
}

/// The wait between attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Backoff {
    /// Always the same.
    Fixed {
        /// The wait.
        delay_ms: u64,
    },
    /// Doubled after every failure, with up to half taken off at random so that failures in step do not return in step.
    Exponential {
        /// The wait after the first failure.
        delay_ms: u64,
        /// Never longer than this.
        delay_ms_max: u64,
    },
}

impl Backoff {
    /// The wait after this many failures. The jitter comes from the call's id, so that a decision stays a pure function.
    pub fn delay(&self, failures: u32, call_id: &CallId) -> Duration {
        match *self {
            Self::Fixed { delay_ms } => Duration::from_millis(delay_ms),
            Self::Exponential { delay_ms, delay_ms_max } => {
                let doublings = failures.saturating_sub(1).min(62);
                let full = delay_ms.saturating_mul(1_u64 << doublings).min(delay_ms_max);
                Duration::from_millis(full - jitter(call_id, failures) % (full / 2 + 1))
            }
        }
    }
}

fn jitter(call_id: &CallId, failures: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    (call_id, failures).hash(&mut hasher);
    hasher.finish()
}

impl RetryPolicy {
    /// The wait before the next attempt, or `None` when there is none left.
    pub fn next_delay(&self, failures: u32, call_id: &CallId) -> Option<Duration> {
        (failures < self.max_attempts).then(|| self.backoff.delay(failures, call_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call_id() -> CallId {
        CallId::new("call-1").unwrap()
    }

    #[test]
    fn the_default_is_three_attempts_two_seconds_apart() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.next_delay(1, &call_id()), Some(Duration::from_secs(2)));
        assert_eq!(policy.next_delay(2, &call_id()), Some(Duration::from_secs(2)));
        assert_eq!(policy.next_delay(3, &call_id()), None);
    }

    #[test]
    fn exponential_doubles_within_its_jitter_and_stops_at_its_maximum() {
        let backoff = Backoff::Exponential { delay_ms: 100, delay_ms_max: 1_000 };
        for (failures, full) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (60, 1_000), (u32::MAX, 1_000)] {
            let delay = backoff.delay(failures, &call_id()).as_millis();
            assert!(delay >= full / 2 && delay <= full, "{failures} failures: {delay} ms is not within {full} ms");
        }
    }

    #[test]
    fn overflowing_delays_saturate() {
        let backoff = Backoff::Exponential { delay_ms: u64::MAX, delay_ms_max: u64::MAX };
        assert!(backoff.delay(40, &call_id()) >= Duration::from_millis(u64::MAX / 2));
    }
}
