//! Why a rule or a check is refused. The text says what to change; the code is the one in the API.

use std::fmt;

use thiserror::Error;

use crate::names::InvalidName;

/// A rule, a list of rules or a check that cannot be used. Nothing was counted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidLimit {
    /// A name that cannot stand in a key.
    #[error("{0}")]
    Name(#[from] InvalidName),
    /// A number outside its range.
    #[error("{field} is {given}: it must be from {min} to {max}")]
    OutOfRange {
        /// Which number.
        field: &'static str,
        /// What was given.
        given: String,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// More rules than a check may have, or none.
    #[error("{given} rules were given: a check has from 1 to {max}")]
    TooMany {
        /// How many.
        given: usize,
        /// How many there may be.
        max: usize,
    },
    /// Rules or options that do not go together.
    #[error("{0}")]
    BadRule(String),
    /// Its numbers are so large that they could not be computed exactly.
    #[error("rule '{rule}' is too large to be counted exactly ({why}): make its limit, burst, window or wait smaller")]
    TooLarge {
        /// Which rule.
        rule: String,
        /// Which product.
        why: &'static str,
    },
}

impl InvalidLimit {
    /// The stable code of the API.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Name(_) => "invalid_name",
            Self::OutOfRange { .. } => "out_of_range",
            Self::TooMany { .. } => "too_many",
            Self::BadRule(_) => "bad_rule",
            Self::TooLarge { .. } => "rule_too_large",
        }
    }

    /// The field that it is about, where there is one.
    pub const fn field(&self) -> Option<&'static str> {
        match self {
            Self::OutOfRange { field, .. } => Some(field),
            Self::Name(InvalidName::Empty { .. } | InvalidName::TooLong { .. } | InvalidName::Control { .. }) => None,
            _ => Some("rules"),
        }
    }

    pub(crate) fn bad(text: impl fmt::Display) -> Self {
        Self::BadRule(text.to_string())
    }

    pub(crate) fn unless_within(field: &'static str, given: u64, min: u64, max: u64) -> Result<(), Self> {
        if (min..=max).contains(&given) { Ok(()) } else { Err(Self::OutOfRange { field, given: given.to_string(), min, max }) }
    }
}
