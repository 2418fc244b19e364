//! Instants of the store's clock, in whole milliseconds. Arithmetic saturates: no input can make it wrap or panic.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant by the store's clock: milliseconds since the Unix epoch.
///
/// ```
/// use std::time::Duration;
/// use towpath_core::time::Timestamp;
///
/// let start = Timestamp::from_millis(1_000);
/// let later = start + Duration::from_millis(500);
/// assert_eq!(later.since(start), Duration::from_millis(500));
/// assert_eq!(start.since(later), Duration::ZERO, "an earlier instant is no time after a later one");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The latest instant there is: "never" where an instant is needed.
    pub const MAX: Self = Self(i64::MAX);

    /// The instant so many milliseconds after the Unix epoch.
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        let ms = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(ms).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(millis(length)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A length in whole milliseconds, as stores keep it. Longer than `i64` can say is the longest it can say.
pub fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

/// The length of so many stored milliseconds; a negative number is no length at all.
pub fn from_millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_the_longest_length_saturates() {
        assert_eq!(Timestamp::from_millis(5) + Duration::MAX, Timestamp::MAX);
    }
}
