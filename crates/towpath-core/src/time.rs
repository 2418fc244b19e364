//! Instants of the store's clock, in whole milliseconds, and in microseconds where limits count. Arithmetic saturates: no input can make it
//! wrap or panic.

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

/// An instant by the store's clock in microseconds since the Unix epoch. Limits count in these: at 5,000 in a second a millisecond is coarse.
///
/// ```
/// use towpath_core::time::{Micros, Timestamp};
///
/// assert_eq!(Micros::from(Timestamp::from_millis(7)), Micros::new(7_000));
/// assert_eq!(Micros::new(7_999).to_millis(), Timestamp::from_millis(7));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(i64);

impl Micros {
    /// The instant so many microseconds after the Unix epoch.
    pub const fn new(us: i64) -> Self {
        Self(us)
    }

    /// Microseconds since the Unix epoch.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The millisecond that this instant is in.
    pub const fn to_millis(self) -> Timestamp {
        Timestamp(self.0.div_euclid(1_000))
    }
}

impl From<Timestamp> for Micros {
    fn from(at: Timestamp) -> Self {
        Self(at.0.saturating_mul(1_000))
    }
}

impl std::ops::Add<Duration> for Micros {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(micros(length)))
    }
}

/// A length in whole microseconds. Longer than `i64` can say is the longest it can say.
pub fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
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
