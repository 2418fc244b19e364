//! Health on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How everything is, in one answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HealthBody {
    /// `ok`, `degraded` (look at `problems`) or `draining`.
    pub status: String,
    /// Sentences for people, each with what to do.
    pub problems: Vec<String>,
    /// The server's version.
    pub version: String,
    /// Which store.
    pub store: String,
    /// What an acknowledgement is worth: `memory`, `everysec`, `always`, `replicated` or `fsync`.
    pub durability: String,
    /// The store's clock.
    pub now: i64,
    /// For how long this server has run.
    pub uptime_ms: u64,
    /// Functions known.
    pub functions: u64,
    /// Workers heard of in the last 30 seconds.
    pub healthy_workers: u64,
    /// Calls that wait.
    pub backlog: u64,
    /// Calls that workers hold.
    pub running: u64,
    /// Dead letters.
    pub dead: u64,
    /// How long the oldest queued call has waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_queued_age_ms: Option<u64>,
}
