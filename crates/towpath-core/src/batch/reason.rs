//! Why a batch was closed, and how that is told to receivers that know only one word for it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a batch was closed, or will be as things stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    /// The sender was silent for the debounce time.
    SilenceReached,
    /// The first message had waited long enough.
    MaxWaitReached,
    /// It had all the messages that a batch may have.
    MaxMessages,
    /// It had all the bytes that a batch may have.
    MaxBytes,
    /// A message was one of the words that close a batch.
    Keyword,
    /// Somebody asked for it.
    Flush,
    /// A message was not to wait at all.
    Immediate,
}

impl CloseReason {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::SilenceReached, Self::MaxWaitReached, Self::MaxMessages, Self::MaxBytes, Self::Keyword, Self::Flush, Self::Immediate];

    /// The word in `meta.close_reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SilenceReached => "silence_reached",
            Self::MaxWaitReached => "max_wait_reached",
            Self::MaxMessages => "max_messages",
            Self::MaxBytes => "max_bytes",
            Self::Keyword => "keyword",
            Self::Flush => "flush",
            Self::Immediate => "immediate",
        }
    }

    /// The word in `meta.batch_reason`.
    pub const fn batch_reason(self, style: ReasonStyle) -> &'static str {
        match style {
            ReasonStyle::Seed => "debounce",
            ReasonStyle::Exact => self.as_str(),
        }
    }
}

/// What `meta.batch_reason` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonStyle {
    /// `debounce`, whatever closed the batch, as old receivers expect.
    Seed,
    /// What closed it.
    Exact,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no reason.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no reason for which a batch is closed")]
pub struct UnknownReason(pub String);

impl FromStr for CloseReason {
    type Err = UnknownReason;

    fn from_str(word: &str) -> Result<Self, UnknownReason> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word).ok_or_else(|| UnknownReason(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_read_by_its_word_and_old_receivers_hear_only_one() {
        for reason in CloseReason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
            assert_eq!(reason.batch_reason(ReasonStyle::Seed), "debounce");
            assert_eq!(reason.batch_reason(ReasonStyle::Exact), reason.as_str());
        }
        assert!("silence".parse::<CloseReason>().is_err());
    }
}
