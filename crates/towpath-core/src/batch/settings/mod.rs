//! What a batcher does: how it gathers, merges, delivers and gives up.

mod patch;
mod rate;
mod target;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

pub use patch::{KeptSettings, SettingsPatch};
pub(super) use patch::{fold, from_seconds};
pub use rate::{BatchRate, RatePatch};
pub use target::{InvalidTarget, Source, Target};

use super::{BatcherId, Layout, ReasonStyle, Rules};
use crate::names::{BatcherName, InvalidName};

/// All settings of a batcher, checked.
///
/// ```
/// use std::time::Duration;
/// use towpath_core::batch::{Settings, SettingsPatch};
/// use towpath_core::names::BatcherName;
///
/// let orders = BatcherName::new("orders").unwrap();
/// let file: SettingsPatch = serde_json::from_str(r#"{"key": ["/customer"], "debounce_seconds": 2.5}"#).unwrap();
/// let settings = Settings::of(&orders).patched(&file).unwrap();
/// assert_eq!(settings.debounce, Duration::from_millis(2_500));
/// assert_eq!(settings.max_wait, Duration::from_secs(300));
/// assert!(serde_json::from_str::<SettingsPatch>(r#"{"debounce": 2}"#).is_err(), "an unknown field is refused");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How long a sender must be silent.
    pub debounce: Duration,
    /// How long the first message waits at most.
    pub max_wait: Duration,
    /// So many messages close a batch.
    pub max_messages: u64,
    /// So many bytes close a batch.
    pub max_bytes: u64,
    /// A message that says just this closes its batch. Case does not matter.
    pub flush_keywords: Vec<String>,
    /// How long a message id is remembered.
    pub idempotency: Duration,
    /// What becomes of a message that was taken before.
    pub duplicates: Duplicates,
    /// Where in a message the parts of its batch key are: names of fields, or JSON Pointers.
    pub key: Vec<String>,
    /// Keeps messages without a tenant apart by their credential.
    pub split_unknown: bool,
    /// One batch per key at a time.
    pub serial: bool,
    /// How the messages of a batch are ordered.
    pub order: Order,
    /// How they become one.
    pub merge: Merge,
    /// What `meta.batch_reason` says.
    pub reason_style: ReasonStyle,
    /// So many attempts, then it is a dead letter.
    pub max_attempts: u32,
    /// The longest wait after the first failure; doubled after each.
    pub backoff_base: Duration,
    /// Never longer than this.
    pub backoff_cap: Duration,
    /// How long a delivery may take.
    pub timeout: Duration,
    /// How long a dispatcher may be silent.
    pub lease: Duration,
    /// So many deliveries at once.
    pub concurrency: u32,
    /// So many of them to one host.
    pub per_host: u32,
    /// So many deliveries in so long, over all servers.
    pub rate: Option<BatchRate>,
    /// Where batches go; without one they are held.
    pub target: Option<Target>,
    /// Where the secrets are that a delivery is signed with: `env:NAME` or `file:PATH`.
    pub secrets: Vec<String>,
    /// Address ranges and host names that a delivery may go to although they are private.
    pub allow_targets: Vec<String>,
    /// A field that makes an answer with status 2xx a failure.
    pub error_field: Option<String>,
    /// Lists that old producers push to.
    pub sources: Vec<Source>,
    /// So many messages may be open.
    pub max_open: u64,
    /// Dead letters older than this are removed.
    pub dlq_keep_days: Option<u32>,
    /// Which keys it has on Redis; `None` is the store's choice.
    pub layout: Option<Layout>,
    /// Over how many places its keys are spread; `None` is the store's choice.
    pub partitions: Option<u16>,
}

/// What becomes of a message that was taken before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Duplicates {
    /// It is not taken again.
    Drop,
    /// It is: nothing is remembered.
    Accept,
}

/// How the messages of a batch are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// By their own `timestamp`; what cannot be read comes first, in order of arrival.
    Timestamp,
    /// As they came.
    Arrival,
}

/// How messages become one.
#[derive(Clone, Debug, PartialEq)]
pub struct Merge {
    /// What is made of them.
    pub strategy: Strategy,
    /// How a transcribed voice message is written; `{text}` is what was said.
    pub voice_template: String,
    /// What stands between two texts.
    pub separator: String,
    /// Whose fields the merged message has.
    pub identity_from: IdentityFrom,
    /// Whose pictures and sounds it has.
    pub media_merge: MediaMerge,
    /// For the strategy `template`.
    pub template: Option<Value>,
}

/// What is made of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// One message whose text is all texts.
    Text,
    /// All messages in a list.
    List,
    /// The first one.
    First,
    /// The last one.
    Last,
    /// JSON with look-ups.
    Template,
}

/// Whose fields the merged message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdentityFrom {
    /// Those of the first.
    First,
    /// Those of the last.
    Last,
}

/// Whose pictures and sounds the merged message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaMerge {
    /// Those of the message whose other fields it has.
    First,
    /// Those of all: lists are joined, a flag is set if any has it set.
    Concat,
}

/// Settings that cannot be. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidSettings {
    /// A number outside its range.
    #[error("{field} is {given}: it must be from {min} to {max}")]
    OutOfRange {
        /// Which.
        field: &'static str,
        /// What was given.
        given: String,
        /// The least.
        min: String,
        /// The most.
        max: String,
    },
    /// A name that nothing can have.
    #[error("{field}: {refused}")]
    BadName {
        /// Which.
        field: &'static str,
        /// Why.
        refused: InvalidName,
    },
    /// Something else that makes no sense.
    #[error("{field}: {why}")]
    Bad {
        /// Which.
        field: &'static str,
        /// Why.
        why: String,
    },
}

impl InvalidSettings {
    /// The stable code of the API.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::OutOfRange { .. } => "out_of_range",
            Self::BadName { .. } => "invalid_name",
            Self::Bad { .. } => "bad_field",
        }
    }

    /// The field that it is about.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::OutOfRange { field, .. } | Self::BadName { field, .. } | Self::Bad { field, .. } => field,
        }
    }
}

impl Settings {
    /// The defaults of a batcher. `input_contour` behaves as its old worker did.
    pub fn of(name: &BatcherName) -> Self {
        let seed = name.is_input_contour();
        Self {
            debounce: Duration::from_secs(10),
            max_wait: Duration::from_secs(300),
            max_messages: 100,
            max_bytes: 1 << 20,
            flush_keywords: Vec::new(),
            idempotency: Duration::from_secs(3_600),
            duplicates: Duplicates::Drop,
            key: ["tenant_id", "channel", "external_chat_id"].map(str::to_owned).to_vec(),
            split_unknown: true,
            serial: true,
            order: if seed { Order::Timestamp } else { Order::Arrival },
            merge: Merge {
                strategy: if seed { Strategy::Text } else { Strategy::List },
                voice_template: "[Голосовое]: {text}".to_owned(),
                separator: "\n\n".to_owned(),
                identity_from: IdentityFrom::First,
                media_merge: MediaMerge::First,
                template: None,
            },
            reason_style: if seed { ReasonStyle::Seed } else { ReasonStyle::Exact },
            max_attempts: 5,
            backoff_base: Duration::from_millis(1_000),
            backoff_cap: Duration::from_millis(60_000),
            timeout: Duration::from_secs(30),
            lease: Duration::from_secs(60),
            concurrency: 32,
            per_host: 8,
            rate: None,
            target: None,
            secrets: Vec::new(),
            allow_targets: Vec::new(),
            error_field: seed.then(|| "error".to_owned()),
            sources: Vec::new(),
            max_open: 1_000_000,
            dlq_keep_days: None,
            layout: None,
            partitions: None,
        }
    }

    /// What a store decides by.
    pub fn rules(&self) -> Rules {
        Rules {
            max_wait: self.max_wait,
            max_messages: self.max_messages,
            max_bytes: self.max_bytes,
            serial: self.serial,
            idempotency: if self.duplicates == Duplicates::Drop { self.idempotency } else { Duration::ZERO },
            max_open: self.max_open,
        }
    }

    /// Where a batcher with these settings is kept.
    pub fn batcher_id(&self, name: &BatcherName) -> BatcherId {
        BatcherId { name: name.clone(), layout: self.layout, partitions: self.partitions }
    }
}

#[cfg(test)]
mod tests;
