//! One limit: so many in so long, counted so.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{EXACT_MAX, InvalidLimit};
use crate::names::{RuleKey, RuleName};

/// How a rule counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Evenly spaced, with room for a burst. Never more than the limit in any window while the burst is 1.
    #[default]
    Gcra,
    /// A counter per window, as old callers keep it. Twice the limit may pass across the edge of two windows.
    FixedWindow,
    /// This window's count, and the part of the last one's that a window before now still covers.
    SlidingCounter,
    /// The instant of every unit. Exact, and so limited to 1,000.
    SlidingLog,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Gcra, Self::FixedWindow, Self::SlidingCounter, Self::SlidingLog];

    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gcra => "gcra",
            Self::FixedWindow => "fixed_window",
            Self::SlidingCounter => "sliding_counter",
            Self::SlidingLog => "sliding_log",
        }
    }

    /// The algorithm of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == word)
    }
}

/// What a check answers when the store is out of reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// An error: nothing passes that nobody counted.
    #[default]
    Closed,
    /// Allowed: the limit protects less than an outage would cost.
    Open,
    /// Counted in this process's memory, with its share of the limit.
    Local,
}

impl OnError {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::Local];

    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Local => "local",
        }
    }

    /// The choice of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.as_str() == word)
    }
}

/// One limit. Made by [`Rule::gcra`] and its siblings, which check it; changed by the methods below.
///
/// ```
/// use std::time::Duration;
/// use towpath_core::limit::Rule;
///
/// let rule = Rule::gcra("per_minute", 100, Duration::from_secs(60)).unwrap().burst(20).unwrap();
/// assert_eq!("per_minute=gcra:100/60s,burst=20".parse(), Ok(rule));
/// assert!(Rule::gcra("none", 0, Duration::from_secs(1)).unwrap_err().to_string().contains("from 1 to"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    name: RuleName,
    algorithm: Algorithm,
    limit: u64,
    window_ms: u64,
    burst: u64,
    key: Option<RuleKey>,
    count_denied: bool,
    on_error: OnError,
    shadow: bool,
}

impl Rule {
    /// The largest limit and burst.
    pub const LIMIT_MAX: u64 = 1_000_000_000;
    /// The longest window: 31 days.
    pub const WINDOW_MS_MAX: u64 = 31 * 86_400_000;
    /// The largest limit of a `sliding_log`, which remembers every unit.
    pub const LOG_MAX: u64 = 1_000;

    /// A rule with all else at its default.
    pub fn new(name: impl AsRef<str>, algorithm: Algorithm, limit: u64, window: Duration) -> Result<Self, InvalidLimit> {
        let name = RuleName::new(name)?;
        InvalidLimit::unless_within("limit", limit, 1, Self::LIMIT_MAX)?;
        let whole = window.subsec_nanos().is_multiple_of(1_000_000);
        let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        if !whole || !(1..=Self::WINDOW_MS_MAX).contains(&window_ms) {
            let given = format!("{} ms", window.as_secs_f64() * 1_000.0);
            return Err(InvalidLimit::OutOfRange { field: "window_ms", given, min: 1, max: Self::WINDOW_MS_MAX });
        }
        if algorithm == Algorithm::SlidingLog && limit > Self::LOG_MAX {
            let most = Self::LOG_MAX;
            return Err(InvalidLimit::bad(format!(
                "rule '{name}' is a sliding_log of {limit}, which remembers every unit: at most {most}, or take gcra or sliding_counter"
            )));
        }
        let rule =
            Self { name, algorithm, limit, window_ms, burst: 1, key: None, count_denied: false, on_error: OnError::Closed, shadow: false };
        rule.checked(0, 0)?;
        Ok(rule)
    }

    /// So many in so long, evenly spaced.
    pub fn gcra(name: impl AsRef<str>, limit: u64, window: Duration) -> Result<Self, InvalidLimit> {
        Self::new(name, Algorithm::Gcra, limit, window)
    }

    /// So many in each window, by the seed's arithmetic and on its counter.
    pub fn fixed_window(name: impl AsRef<str>, limit: u64, window: Duration) -> Result<Self, InvalidLimit> {
        Self::new(name, Algorithm::FixedWindow, limit, window)
    }

    /// About so many in any window.
    pub fn sliding_counter(name: impl AsRef<str>, limit: u64, window: Duration) -> Result<Self, InvalidLimit> {
        Self::new(name, Algorithm::SlidingCounter, limit, window)
    }

    /// So many in any window, and never more.
    pub fn sliding_log(name: impl AsRef<str>, limit: u64, window: Duration) -> Result<Self, InvalidLimit> {
        Self::new(name, Algorithm::SlidingLog, limit, window)
    }

    /// The check of the seed: a fixed window that counts denied calls too.
    pub fn seed(limit: u64, window: Duration) -> Result<Self, InvalidLimit> {
        let mut rule = Self::fixed_window("fixed_window", limit, window)?;
        rule.count_denied = true;
        Ok(rule)
    }

    /// So many may come at once. For `gcra` only.
    pub fn burst(mut self, burst: u64) -> Result<Self, InvalidLimit> {
        InvalidLimit::unless_within("burst", burst, 1, Self::LIMIT_MAX)?;
        if self.algorithm != Algorithm::Gcra {
            let (name, algorithm) = (&self.name, self.algorithm.as_str());
            return Err(InvalidLimit::bad(format!("rule '{name}' is a {algorithm}, which has no burst: leave it out, or take gcra")));
        }
        self.burst = burst;
        self.checked(0, 0)?;
        Ok(self)
    }

    /// Counts apart from every other key.
    pub fn key(mut self, key: impl AsRef<str>) -> Result<Self, InvalidLimit> {
        self.key = Some(RuleKey::new(key)?);
        Ok(self)
    }

    /// Counts denied calls as well, as old callers do. For a single `fixed_window` only.
    pub fn count_denied(mut self) -> Result<Self, InvalidLimit> {
        if self.algorithm != Algorithm::FixedWindow {
            let name = &self.name;
            return Err(InvalidLimit::bad(format!(
                "rule '{name}' counts denied calls, which only a fixed_window can: leave count_denied out"
            )));
        }
        self.count_denied = true;
        Ok(self)
    }

    /// What to answer when the store is out of reach.
    #[must_use]
    pub fn on_error(mut self, choice: OnError) -> Self {
        self.on_error = choice;
        self
    }

    /// Counts, and never denies: to see what a limit would do.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// The same rule with a share of its limit and burst, at least one of each: what one of several processes may give away on its own.
    #[must_use]
    pub fn share_of(&self, processes: u64) -> Self {
        let share = |whole: u64| (whole / processes.max(1)).max(1);
        Self { limit: share(self.limit), burst: share(self.burst), ..self.clone() }
    }

    /// Its name.
    pub fn name(&self) -> &RuleName {
        &self.name
    }

    /// How it counts.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How many.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// In how long.
    pub fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms)
    }

    /// Whom it counts apart.
    pub fn counted_for(&self) -> Option<&RuleKey> {
        self.key.as_ref()
    }

    /// How many may come at once: the burst of a `gcra`, the limit of any other.
    pub fn capacity(&self) -> u64 {
        if self.algorithm == Algorithm::Gcra { self.burst } else { self.limit }
    }

    /// Whether denied calls count.
    pub fn counts_denied(&self) -> bool {
        self.count_denied
    }

    /// What to answer when the store is out of reach.
    pub fn when_unreachable(&self) -> OnError {
        self.on_error
    }

    /// Whether it only watches.
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// The window in microseconds.
    pub fn window_us(&self) -> i64 {
        // At most 31 days, checked when it was made.
        i64::try_from(self.window_ms).unwrap_or(i64::MAX).saturating_mul(1_000)
    }

    /// The time of one unit in microseconds, as a fraction in lowest terms: window / limit.
    pub fn interval(&self) -> (i64, i64) {
        let (window, limit) = (self.window_us(), i64::try_from(self.limit).unwrap_or(i64::MAX));
        let common = greatest_common_divisor(window, limit).max(1);
        (window / common, limit / common)
    }

    /// Refuses numbers that could not be computed exactly everywhere.
    pub(crate) fn checked(&self, cost: u64, max_wait_us: i64) -> Result<(), InvalidLimit> {
        let too_large = |why| Err(InvalidLimit::TooLarge { rule: self.name.as_str().to_owned(), why });
        let (num, den) = self.interval();
        match self.algorithm {
            Algorithm::Gcra => {
                let room = (i128::from(self.burst) + i128::from(cost)) * i128::from(num) + i128::from(max_wait_us) * i128::from(den);
                if room > EXACT_MAX { too_large("(burst + cost) · window / limit + wait") } else { Ok(()) }
            }
            Algorithm::SlidingCounter if 2 * i128::from(self.limit) * i128::from(self.window_us()) > EXACT_MAX => {
                too_large("2 · limit · window in microseconds")
            }
            _ => Ok(()),
        }
    }
}

fn greatest_common_divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
