//! Health on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How everything is, in one answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HealthBody {
    /// `ok`, `degraded` (look at `problems`) or `draining`.
    pub status: String,
    /// Sentences for people, each with what to do. At most 100, and how many more there are.
    pub problems: Vec<String>,
    /// Functions and batchers whose work waits for something that is not there. At most 100.
    #[serde(default)]
    pub waits: Vec<WaitBody>,
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

/// A function or batcher that names something which is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitBody {
    /// `function` or `batcher`.
    pub kind: String,
    /// Which.
    pub name: String,
    /// `function_not_found`: a batcher's target; `policy_not_found`: the policy of a rate.
    pub reason: String,
    /// The function that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The policy that is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The scope for which it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// How many calls or batches wait.
    pub waiting: u64,
}
