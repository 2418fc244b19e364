//! Functions, and the workers that serve them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call::RetryPolicy;
use crate::names::{FunctionKey, InvalidName, LimitScope, RuleName, WorkerId};
use crate::payload::Payload;
use crate::time::Timestamp;

/// How often a worker says that it is alive.
pub const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);
/// A worker that was silent for longer is not counted on.
pub const HEALTHY_FOR: Duration = Duration::from_secs(30);
/// A worker that was silent for longer is taken off the list.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(45);

/// What a function is: registered by its workers, the latest registration counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionDefinition {
    /// Its full name.
    pub key: FunctionKey,
    /// One sentence for people.
    pub description: Option<String>,
    /// Parameter definitions (a JSON array) or a JSON Schema (an object). Stores carry it; edges and workers validate with it.
    pub parameters: Option<Payload>,
    /// How its calls are retried.
    pub retry: RetryPolicy,
    /// What it can take.
    pub limits: FunctionLimits,
    /// Where the server posts its calls, for a function without workers of its own.
    pub target: Option<PushTarget>,
}

impl FunctionDefinition {
    /// A function with all defaults.
    pub fn new(key: FunctionKey) -> Self {
        let (retry, limits) = (RetryPolicy::default(), FunctionLimits::default());
        Self { key, description: None, parameters: None, retry, limits, target: None }
    }
}

/// What a function can take. Absent means no limit, but for the payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FunctionLimits {
    /// Calls that may wait (queued or delayed); more are refused as `overloaded`.
    pub max_backlog: Option<u64>,
    /// Calls that may run at once over all workers.
    pub max_concurrent: Option<u32>,
    /// Bytes of params and input item together.
    pub max_payload_bytes: u64,
    /// So many deliveries in so long, over all workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<FunctionRate>,
    /// Over how many more streams the calls of a hot function are spread on a Redis, at most [`SHARDS_MAX`](Self::SHARDS_MAX). Calls that
    /// are spread have no order among them. Not together with the first two: those are counted in one place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<u16>,
}

/// The policy that every delivery of a function takes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionRate {
    /// What the policy is called.
    pub policy: RuleName,
    /// What is limited: functions that name the same scope share its limit. `None`: the function's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<LimitScope>,
}

impl FunctionRate {
    /// What is limited when a function names this rate. A function whose full name is too long for a scope must name one.
    pub fn scope_of(&self, function: &FunctionKey) -> Result<LimitScope, InvalidName> {
        self.scope.clone().map_or_else(|| LimitScope::new(function.to_string()), Ok)
    }
}

impl FunctionLimits {
    /// One mebibyte, as the seeds' authors would expect of a Redis value.
    pub const PAYLOAD_BYTES_DEFAULT: u64 = 1024 * 1024;

    /// Each stream of a function costs every worker a connection.
    pub const SHARDS_MAX: u16 = 64;

    /// Why these limits make no sense, if they do not.
    pub fn problem(&self) -> Option<String> {
        let shards = self.shards?;
        if shards == 0 || shards > Self::SHARDS_MAX {
            return Some(format!("shards: from 1 to {}, got {shards}", Self::SHARDS_MAX));
        }
        let counted = self.max_backlog.is_some() || self.max_concurrent.is_some();
        counted.then(|| "shards: not together with max_backlog or max_concurrent, which are counted in one place".to_owned())
    }
}

impl Default for FunctionLimits {
    fn default() -> Self {
        Self { max_backlog: None, max_concurrent: None, max_payload_bytes: Self::PAYLOAD_BYTES_DEFAULT, rate: None, shards: None }
    }
}

/// Where and how calls are pushed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushTarget {
    /// The address that takes a POST per call.
    pub url: String,
    /// How many calls are under way at once, per server.
    #[serde(default = "PushTarget::default_concurrency")]
    pub concurrency: u32,
}

impl PushTarget {
    const fn default_concurrency() -> u32 {
        16
    }
}

/// A function as one worker offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The function.
    pub definition: FunctionDefinition,
    /// How many of its calls this worker may hold at once by the store's count, calls parked in nested calls not counted.
    /// `None`: the worker counts for itself.
    pub concurrency: Option<u32>,
}

/// A worker that introduces itself. Doing it again replaces what it said before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterWorker {
    /// Who.
    pub worker_id: WorkerId,
    /// What sort of worker it is: `rust`, `http`, `exec`, `push`.
    pub kind: String,
    /// What it serves.
    pub offers: Vec<Offer>,
}

/// A worker as the registry sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// Who.
    pub worker_id: WorkerId,
    /// What sort of worker.
    pub kind: String,
    /// What it serves.
    pub functions: Vec<FunctionKey>,
    /// Since when.
    pub registered_at: Timestamp,
    /// When it last said that it is alive.
    pub last_heartbeat: Timestamp,
    /// Whether that was recent enough, by the store's clock.
    pub healthy: bool,
    /// Calls it holds now.
    pub running: u64,
}
