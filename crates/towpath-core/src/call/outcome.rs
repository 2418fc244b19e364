//! How a call ends, and what a worker says about a delivery.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::payload::Payload;

/// How a call ended. Written once; every reader sees the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler returned this.
    Ok(Payload),
    /// The handler refused for good.
    Failed(Failure),
    /// It was running at its deadline.
    TimedOut,
    /// It was still waiting at its deadline and was not run again.
    Expired,
    /// It was cancelled.
    Cancelled,
    /// It is a dead letter: kept until somebody replays or drops it.
    Dead {
        /// Why it was given up.
        reason: DeadReason,
        /// The last thing that went wrong.
        failure: Failure,
    },
}

/// Why a call was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// Every attempt ended with an error.
    Exhausted,
    /// Worker after worker died while running it.
    Poisoned,
}

impl DeadReason {
    /// The word used in the API, the command line and the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Poisoned => "poisoned",
        }
    }
}

/// An error that a handler reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A stable word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// Anything else, as JSON.
    pub details: Option<Payload>,
}

impl Failure {
    /// A failure without details.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), details: None }
    }
}

/// What a worker says about a delivery it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done, with this result.
    Ok(Payload),
    /// It went wrong.
    Failed {
        /// What went wrong.
        failure: Failure,
        /// Whether it makes sense to try again.
        retry: Retry,
    },
    /// The worker heeded a cancellation.
    Cancelled,
}

/// Whether to try again after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// As the function's policy says.
    ByPolicy,
    /// As the policy says, but not sooner than this: what a busy target asked for.
    NotBefore(Duration),
    /// Never: the same input will fail again.
    Never,
}
