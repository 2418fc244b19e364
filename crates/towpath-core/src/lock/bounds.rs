//! Which lengths and numbers make sense, said once for every edge.

use std::fmt::Display;
use std::time::Duration;

use thiserror::Error;

/// A number outside its range. The text says what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} is {given}: it must be from {min} to {max}")]
pub struct OutOfRange {
    /// Which number.
    pub field: &'static str,
    /// What was given.
    pub given: String,
    /// The smallest that is allowed.
    pub min: String,
    /// The largest that is allowed.
    pub max: String,
}

const TTL_MIN: Duration = Duration::from_millis(100);
const LEASE_MIN: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

/// Refuses what is not from `min` to `max`.
///
/// ```
/// use towpath_core::lock::check_within;
///
/// assert!(check_within("weight", 3, 1, 1_000_000).is_ok());
/// let refused = check_within("weight", 0, 1, 1_000_000).unwrap_err();
/// assert_eq!(refused.to_string(), "weight is 0: it must be from 1 to 1000000");
/// ```
pub fn check_within<T: PartialOrd + Display + Copy>(field: &'static str, given: T, min: T, max: T) -> Result<(), OutOfRange> {
    if given >= min && given <= max {
        return Ok(());
    }
    Err(OutOfRange { field, given: given.to_string(), min: min.to_string(), max: max.to_string() })
}

fn check_length(field: &'static str, given: Duration, min: Duration, max: Duration) -> Result<(), OutOfRange> {
    let seconds = |length: Duration| format!("{} s", length.as_secs_f64());
    if given >= min && given <= max {
        return Ok(());
    }
    Err(OutOfRange { field, given: seconds(given), min: seconds(min), max: seconds(max) })
}

/// How long a lock may be held: 0.1 s to 7 days.
pub fn check_ttl(ttl: Duration) -> Result<(), OutOfRange> {
    check_length("ttl", ttl, TTL_MIN, LONGEST)
}

/// How long a holder may be silent: 1 s, or less when the whole hold is shorter, up to the whole hold.
pub fn check_lease(lease: Duration, ttl: Duration) -> Result<(), OutOfRange> {
    check_length("lease", lease, LEASE_MIN.min(ttl), ttl)
}

/// How long a caller may wait: up to 7 days.
pub fn check_wait(wait: Duration) -> Result<(), OutOfRange> {
    check_length("wait", wait, Duration::ZERO, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_make_no_sense_are_refused_with_what_is_allowed() {
        let ms = Duration::from_millis;
        for ttl in [ms(0), ms(99), LONGEST + ms(1), Duration::MAX] {
            assert!(check_ttl(ttl).is_err(), "{ttl:?}");
        }
        assert_eq!(check_ttl(ms(0)).unwrap_err().to_string(), "ttl is 0 s: it must be from 0.1 s to 604800 s");
        assert!(check_ttl(ms(100)).is_ok() && check_ttl(LONGEST).is_ok());
        assert!(check_lease(ms(999), ms(10_000)).is_err() && check_lease(ms(10_001), ms(10_000)).is_err());
        assert!(check_lease(ms(500), ms(500)).is_ok(), "a hold of half a second has no longer lease");
        assert!(check_wait(Duration::ZERO).is_ok() && check_wait(Duration::MAX).is_err());
    }
}
