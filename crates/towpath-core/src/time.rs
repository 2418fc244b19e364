//! Instants of the store's clock, in whole milliseconds, and in microseconds where limits count. Arithmetic saturates: no input can make it
//! wrap or panic.

mod iso;
mod mail;

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

    /// The instant as text: `2027-01-15T08:00:00.000Z`. Years have four digits, whatever the instant.
    ///
    /// ```
    /// use towpath_core::time::Timestamp;
    ///
    /// assert_eq!(Timestamp::from_millis(1_800_000_000_000).to_iso(), "2027-01-15T08:00:00.000Z");
    /// ```
    pub fn to_iso(self) -> String {
        let (seconds, ms) = (self.0.div_euclid(1_000), self.0.rem_euclid(1_000));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil_date(days);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        format!("{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z", year.clamp(0, 9_999))
    }

    /// The instant that a text names: a date, or a date and a time, with or without an offset; without one it is UTC. Finer than a
    /// millisecond is cut off. `None`: it cannot be read.
    ///
    /// ```
    /// use towpath_core::time::Timestamp;
    ///
    /// let noon = Timestamp::from_iso("2027-01-15T11:00:00+03:00").unwrap();
    /// assert_eq!(noon.to_iso(), "2027-01-15T08:00:00.000Z");
    /// assert_eq!(Timestamp::from_iso("yesterday"), None);
    /// ```
    pub fn from_iso(text: &str) -> Option<Self> {
        iso::parse(text.trim()).map(Self)
    }

    /// A date as programs and mails write it: ISO 8601, or RFC 2822 as in `Wed, 11 Dec 2024 10:00:00 GMT`.
    pub fn from_date(text: &str) -> Option<Self> {
        Self::from_iso(text).or_else(|| mail::parse(text.trim()).map(Self::from_millis))
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        let ms = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(ms).unwrap_or(0))
    }
}

/// Year, month and day of so many days after 1970-01-01. Years are counted from March, so that the leap day is a year's last.
fn civil_date(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(719_468);
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * month_from_march + 2) / 5 + 1)
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
    fn an_instant_is_written_as_a_date() {
        let written = |ms| Timestamp::from_millis(ms).to_iso();
        assert_eq!(written(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(written(951_827_696_789), "2000-02-29T12:34:56.789Z");
        assert_eq!(written(1_704_067_199_999), "2023-12-31T23:59:59.999Z");
        assert_eq!(written(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(written(i64::MAX).len(), written(0).len());
    }

    #[test]
    fn adding_the_longest_length_saturates() {
        assert_eq!(Timestamp::from_millis(5) + Duration::MAX, Timestamp::MAX);
    }
}
