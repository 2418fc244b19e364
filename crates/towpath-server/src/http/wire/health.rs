//! Health on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How everything is, in one answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct HealthBody {
    /// `ok`, `degraded` (look at `problems`) or `draining`.
    pub(crate) status: String,
    /// Sentences for people, each with what to do.
    pub(crate) problems: Vec<String>,
    /// The server's version.
    pub(crate) version: String,
    /// Which store.
    pub(crate) store: String,
    /// What an acknowledgement is worth: `fsync` or `memory`.
    pub(crate) durability: String,
    /// The store's clock.
    pub(crate) now: i64,
    /// For how long this server has run.
    pub(crate) uptime_ms: u64,
    /// Functions known.
    pub(crate) functions: u64,
    /// Workers heard of in the last 30 seconds.
    pub(crate) healthy_workers: u64,
    /// Calls that wait.
    pub(crate) backlog: u64,
    /// Calls that workers hold.
    pub(crate) running: u64,
    /// Dead letters.
    pub(crate) dead: u64,
    /// How long the oldest queued call has waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_queued_age_ms: Option<u64>,
}
