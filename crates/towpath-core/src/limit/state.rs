//! What is remembered of a rule between two checks, and where.

use std::fmt;

use super::{Algorithm, Rule};
use crate::time::Micros;

/// What is remembered of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitState {
    /// When the next unit would be due if they came evenly: so many microseconds, and a fraction of one.
    Gcra {
        /// Whole microseconds since the epoch.
        at_us: i64,
        /// The rest, as a numerator.
        part: i64,
        /// The denominator of the rest; it is the rule's, until the rule changes.
        parts: i64,
    },
    /// The count of one window.
    FixedWindow {
        /// How many.
        count: i64,
    },
    /// The counts of two windows.
    SlidingCounter {
        /// How long a window was, in microseconds. Counts of another length mean nothing.
        window_us: i64,
        /// The number of the window.
        window: i64,
        /// Its count.
        current: i64,
        /// The count of the window before.
        previous: i64,
    },
    /// Every unit that was taken: when, and how many then; oldest first.
    SlidingLog {
        /// Instants in microseconds, and how many units at each.
        units: Vec<(i64, u32)>,
    },
}

/// Where a rule's state is kept, under its scope. Two rules of one check never have the same.
///
/// A fixed window is known by its number, as old callers know it, so all rules of one window share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateName(String);

impl StateName {
    /// The name of a rule's state at an instant.
    ///
    /// ```
    /// use std::time::Duration;
    /// use towpath_core::limit::{Rule, StateName};
    /// use towpath_core::time::Micros;
    ///
    /// let now = Micros::new(125_000_000);
    /// let name = |rule: Rule| StateName::of(&rule, now).as_str().to_owned();
    /// assert_eq!(name(Rule::gcra("per_user", 5, Duration::from_secs(1)).unwrap().key("u17").unwrap()), "g:per_user:u17");
    /// assert_eq!(name(Rule::fixed_window("any", 5, Duration::from_secs(60)).unwrap()), "w:2");
    /// ```
    pub fn of(rule: &Rule, now: Micros) -> Self {
        let letter = match rule.algorithm() {
            Algorithm::Gcra => 'g',
            Algorithm::FixedWindow => 'w',
            Algorithm::SlidingCounter => 'c',
            Algorithm::SlidingLog => 'l',
        };
        let mut name = match rule.algorithm() {
            Algorithm::FixedWindow => format!("{letter}:{}", window_number(rule, now)),
            _ => format!("{letter}:{}", rule.name()),
        };
        if let Some(key) = rule.counted_for() {
            name.push(':');
            name.push_str(key.as_str());
        }
        Self(name)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The number of the window that an instant is in, as the seed counts them: `floor(now / window)`.
pub(crate) fn window_number(rule: &Rule, now: Micros) -> i64 {
    now.get().div_euclid(rule.window_us())
}
