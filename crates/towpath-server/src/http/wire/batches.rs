//! Batches on the wire.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Json, object};

/// What became of a message.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct MessageAnswer {
    /// It is in the open batch of its key.
    pub accepted: bool,
    /// A message with its id was taken before; nothing changed.
    pub duplicate: bool,
    /// For whom it is gathered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_key: Option<String>,
    /// When the open batch of its key closes, as things stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<i64>,
    /// How many messages the batch has now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// What will close it, as things stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ItemError>,
}

/// Why one of several was not taken.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ItemError {
    /// A word for programs.
    pub code: String,
    /// What to change.
    pub message: String,
    /// Where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// What became of several messages, in order.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MessageAnswers {
    /// One entry per message.
    pub results: Vec<MessageAnswer>,
}

/// All batchers.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatcherList {
    /// By name.
    pub batchers: Vec<BatcherBody>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A batcher.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatcherBody {
    /// Its name.
    pub batcher: String,
    /// Where its batches go: `url`, `function`, `workflow`, `pull`, or `none`: they are held.
    pub target: String,
    /// Keys with an open batch.
    pub open_keys: u64,
    /// Messages in open batches.
    pub open_messages: u64,
    /// Batches in flight.
    pub in_flight: u64,
    /// Dead letters.
    pub dead_letters: u64,
}

/// Which batches to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BatchQuery {
    /// `open` (default) or `in_flight`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Where the page before ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most this many, 1 to 200. Default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A batcher and a page of its batches.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatchPage {
    /// The batcher.
    #[serde(flatten)]
    pub batcher: BatcherBody,
    /// The page.
    pub batches: Vec<BatchBody>,
    /// Ask for the next page with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A batch. What is open has a deadline and a size, what is in flight an id and an attempt.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct BatchBody {
    /// `open` or `in_flight`.
    pub state: String,
    /// Whose messages.
    pub batch_key: String,
    /// When its first message came.
    pub first_message_at: i64,
    /// When its latest message came.
    pub last_message_at: i64,
    /// What closed it, or will as things stand.
    pub reason: String,
    /// When it closes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<i64>,
    /// Closed to postponement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<bool>,
    /// How many messages it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// How many bytes they have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Which batch it is; of an open one, the batch that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<String>,
    /// Which attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// A receiver holds it; otherwise it waits for the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// The end of the lease, or when the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<i64>,
    /// It is a replayed dead letter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
    /// Its messages, secrets hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub messages: Option<Vec<Json>>,
    /// Of messages: send it as `cursor` for the next of them; absent when these were the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What became of a flush or a touch.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SealAnswer {
    /// `flushed`, `touched` or `sealed`: it was closed before.
    pub outcome: String,
    /// Whose batch.
    pub batch_key: String,
    /// When it closes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<i64>,
    /// How many messages it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// The settings of a batcher.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SettingsBody {
    /// Its name.
    pub batcher: String,
    /// All of them, defaults included.
    #[schema(value_type = Object)]
    pub settings: Json,
    /// What of them is kept for all servers; absent when nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub stored: Option<Json>,
    /// Rises with every change that is kept.
    pub version: u64,
}

/// Which batches to fetch.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PullBody {
    /// At most this many, 1 to 100. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    pub max: Option<u64>,
    /// How long to wait for the first, up to 60,000. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 60_000)]
    pub wait_ms: Option<u64>,
}

/// Batches that were fetched. Each is settled or prolonged with its token before its lease ends.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PullAnswer {
    /// None, when nothing was due in time.
    pub batches: Vec<PulledBody>,
}

/// A batch that was fetched.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PulledBody {
    /// Which; the same through all attempts.
    pub batch_id: String,
    /// Whose messages.
    pub batch_key: String,
    /// The right to settle it.
    pub token: String,
    /// Which attempt.
    pub attempt: u32,
    /// Until when to settle or prolong it.
    pub lease_end: i64,
    /// The messages made one.
    #[schema(value_type = Object)]
    pub payload: Json,
}

/// What became of fetched batches.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishBody {
    /// One entry per batch, up to 1,000.
    #[serde(deserialize_with = "object::list")]
    pub results: Vec<FinishItem>,
}

/// What became of one fetched batch. For `extend`, only the id and the token.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishItem {
    /// Which.
    pub batch_id: String,
    /// As the claim gave it.
    pub token: String,
    /// `ack`, `retry` or `dead`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// For `retry`: not before this, instead of the usual wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

/// Whether it was so, in order.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FinishAnswer {
    /// One entry per batch.
    pub results: Vec<FinishResult>,
}

/// Whether one was so.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FinishResult {
    /// Which.
    pub batch_id: String,
    /// `done`, `extended`, or `lost`: another has it, or it is settled.
    pub result: String,
    /// The new end of its lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_end: Option<i64>,
}

/// Which dead letters of batches to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BatchDeadLetterQuery {
    /// Only those of this batcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batcher: Option<String>,
    /// Only those given up for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only those of this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_key: Option<String>,
    /// Where the page before ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most this many, 1 to 200. Default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Dead letters of batches.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatchDeadLetters {
    /// The page, secrets hidden.
    pub dead_letters: Vec<BatchDeadLetter>,
    /// Ask for the next page with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A dead letter of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatchDeadLetter {
    /// Which: the batch that it was.
    pub id: String,
    /// Whose.
    pub batcher: String,
    /// The entry as it is kept: `payload`, `error`, `timestamp`, and what a replay needs. Secrets are hidden.
    #[schema(value_type = Object)]
    pub entry: Json,
}

/// Which dead letters are meant: `ids`, or some of the filters, or `all`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchDeadLetterChoice {
    /// These.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// Only those of this batcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batcher: Option<String>,
    /// Only those given up for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only those of this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_key: Option<String>,
    /// All of them, of the batcher if one is named.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// For a replay: so many per second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub rate_per_second: Option<u32>,
}

/// What became of replays.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct BatchReplayAnswer {
    /// In flight again, under the same ids.
    pub replayed: Vec<String>,
    /// Being delivered already.
    pub in_flight: Vec<String>,
    /// No longer there.
    pub gone: Vec<String>,
    /// There, with nothing that could be sent.
    pub not_replayable: Vec<String>,
}

/// Which messages of an open batch to show.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BatchMessagesQuery {
    /// Where the page before ended: its `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
}
