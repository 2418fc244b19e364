//! What the result of a delivery means, and how long to wait before the next.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::Settings;
use crate::names::BatchId;

/// `Retry-After` is heeded up to this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// How a delivery went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// There was an answer.
    Answered {
        /// Its status.
        status: u16,
        /// How long the receiver wants to be left alone.
        retry_after: Option<Duration>,
        /// The answer has the field that makes it a failure, and it is truthy.
        has_error_field: bool,
    },
    /// There was none: no connection, a timeout, an address that is refused.
    Unanswered,
    /// It was not tried: the receiver is not there.
    NotTried,
    /// The receiver says itself that it is no use to try again.
    Fatal {
        /// Why, in one word.
        reason: String,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was delivered.
    Ack,
    /// It goes again, after this time.
    Retry {
        /// The wait.
        delay: Duration,
    },
    /// It is given back: it is due at once, and this attempt does not count.
    Release,
    /// It is given up.
    Dead {
        /// Why, in one word.
        reason: String,
    },
}

/// What a delivery's result means.
///
/// ```
/// use towpath_core::batch::{Delivered, Settings, Verdict, settle};
/// use towpath_core::names::{BatchId, BatcherName};
///
/// let (settings, id) = (Settings::of(&BatcherName::new("orders").unwrap()), BatchId::new("b-1").unwrap());
/// let status = |status| Delivered::Answered { status, retry_after: None, has_error_field: false };
/// assert_eq!(settle(&settings, &id, 1, &status(202)), Verdict::Ack);
/// assert_eq!(settle(&settings, &id, 1, &status(404)), Verdict::Dead { reason: "rejected_404".to_owned() });
/// assert!(matches!(settle(&settings, &id, 1, &status(503)), Verdict::Retry { .. }));
/// assert_eq!(settle(&settings, &id, 5, &status(503)), Verdict::Dead { reason: "max_retries_exceeded".to_owned() });
/// ```
pub fn settle(settings: &Settings, batch_id: &BatchId, attempt: u32, delivered: &Delivered) -> Verdict {
    let retry_after = match delivered {
        Delivered::Answered { status: 200..=299, has_error_field: false, .. } => return Verdict::Ack,
        Delivered::NotTried => return Verdict::Release,
        Delivered::Fatal { reason } => return Verdict::Dead { reason: reason.clone() },
        Delivered::Answered { status: 200..=299, .. } | Delivered::Unanswered => None,
        Delivered::Answered { status: 408 | 425 | 429 | 500..=599, retry_after, .. } => *retry_after,
        Delivered::Answered { status, .. } => return Verdict::Dead { reason: format!("rejected_{status}") },
    };
    if attempt >= settings.max_attempts {
        return Verdict::Dead { reason: "max_retries_exceeded".to_owned() };
    }
    Verdict::Retry { delay: backoff(settings, batch_id, attempt, retry_after) }
}

/// Whether a batch was taken over more often than it may be tried: its dispatchers die of it, and it is not sent again.
pub fn is_crash_loop(settings: &Settings, attempt: u32) -> bool {
    attempt > settings.max_attempts
}

/// The wait after this attempt: anything up to the full one, which doubles each time, so that failures in step do not return in step. The
/// chance comes from the batch's id, so that a decision stays a pure function.
pub fn backoff(settings: &Settings, batch_id: &BatchId, attempt: u32, retry_after: Option<Duration>) -> Duration {
    let base = u64::try_from(settings.backoff_base.as_millis()).unwrap_or(u64::MAX);
    let cap = u64::try_from(settings.backoff_cap.as_millis()).unwrap_or(u64::MAX);
    let full = base.saturating_mul(1_u64 << attempt.saturating_sub(1).min(62)).min(cap);
    let mut hasher = DefaultHasher::new();
    (batch_id, attempt).hash(&mut hasher);
    let drawn = Duration::from_millis(hasher.finish() % full.saturating_add(1).max(1));
    drawn.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::BatcherName;

    fn settings() -> Settings {
        Settings::of(&BatcherName::new("orders").unwrap())
    }

    fn said(status: u16, attempt: u32) -> Verdict {
        let delivered = Delivered::Answered { status, retry_after: Some(Duration::from_secs(3)), has_error_field: false };
        settle(&settings(), &BatchId::new("b").unwrap(), attempt, &delivered)
    }

    #[test]
    fn each_status_is_settled_as_the_table_says() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(said(status, 1), Verdict::Ack, "{status}");
        }
        for status in [408, 425, 429, 500, 503, 599] {
            assert!(matches!(said(status, 4), Verdict::Retry { delay } if delay >= Duration::from_secs(3)), "{status}");
            assert_eq!(said(status, 5), Verdict::Dead { reason: "max_retries_exceeded".to_owned() });
        }
        for status in [301, 400, 401, 404, 410, 422] {
            assert_eq!(said(status, 1), Verdict::Dead { reason: format!("rejected_{status}") });
        }
        let with_error = Delivered::Answered { status: 200, retry_after: None, has_error_field: true };
        let last = settings().max_attempts;
        assert_eq!(settle(&settings(), &BatchId::new("b").unwrap(), last, &Delivered::NotTried), Verdict::Release);
        for delivered in [with_error, Delivered::Unanswered] {
            assert!(matches!(settle(&settings(), &BatchId::new("b").unwrap(), 1, &delivered), Verdict::Retry { .. }));
        }
        assert!(is_crash_loop(&settings(), 6) && !is_crash_loop(&settings(), 5));
    }

    #[test]
    fn waits_stay_below_the_doubled_one_and_below_the_cap_and_differ() {
        let ids: Vec<BatchId> = (0..200).map(|n| BatchId::new(format!("b-{n}")).unwrap()).collect();
        for (attempt, full_ms) in [(1, 1_000), (2, 2_000), (4, 8_000), (7, 60_000), (60, 60_000)] {
            let waits: Vec<Duration> = ids.iter().map(|id| backoff(&settings(), id, attempt, None)).collect();
            assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(full_ms)), "{attempt}");
            assert!(waits.iter().any(|wait| *wait < Duration::from_millis(full_ms / 4)), "{attempt}");
            assert!(waits.iter().any(|wait| *wait > Duration::from_millis(full_ms * 3 / 4)), "{attempt}");
        }
        let long = backoff(&settings(), &ids[0], 1, Some(Duration::from_secs(86_400)));
        assert_eq!(long, Duration::from_secs(3_600), "a receiver cannot put us off for more than an hour");
    }
}
