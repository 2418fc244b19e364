//! Functions on the wire.

use serde::{Deserialize, Serialize};
use towpath_core::call::RetryPolicy;
use towpath_core::worker::{FunctionLimits, PushTarget};
use utoipa::{IntoParams, ToSchema};

use super::{Json, object};

/// A function without a worker of its own, or a change of its definition.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DefineBody {
    /// Where it is known. Default `__global__`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Parameter definitions, an array, or a JSON Schema, an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub parameters: Option<Json>,
    /// How its calls are retried.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub retry: Option<RetryBody>,
    /// What it can take.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub limits: Option<LimitsBody>,
    /// The server posts each call there and takes the response as the result.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub target: Option<TargetBody>,
}

/// How calls are retried. What is left out has the default: 3 attempts, 5 deliveries, 2 seconds between attempts.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryBody {
    /// Attempts that may end with a handler's error; the last one makes a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000)]
    pub max_attempts: Option<u32>,
    /// Deliveries that may end with the worker's death; the last one makes the call `poisoned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000)]
    pub max_deliveries: Option<u32>,
    /// The wait between attempts.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub backoff: Option<BackoffBody>,
}

/// The wait between attempts.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackoffBody {
    /// `fixed`: always `delay_ms`. `exponential`: doubled after every failure, up to `delay_ms_max`.
    pub kind: BackoffKind,
    /// The wait after the first failure. Default 2,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 604_800_000)]
    pub delay_ms: Option<u64>,
    /// Never longer than this, with `exponential`. Default 60,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 604_800_000)]
    pub delay_ms_max: Option<u64>,
}

/// How the wait between attempts grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackoffKind {
    /// Always the same.
    Fixed,
    /// Doubled after every failure.
    Exponential,
}

/// What a function can take. What is left out has no limit, but for the payload: 1 MiB.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsBody {
    /// Calls that may wait; more are refused as `overloaded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000_000)]
    pub max_backlog: Option<u64>,
    /// Calls that may run at once over all workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_concurrent: Option<u32>,
    /// Bytes of params and input item together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4_194_304)]
    pub max_payload_bytes: Option<u64>,
    /// Every delivery takes from this policy, over all workers; calls wait in the queue until it is their turn.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub rate: Option<RateBody>,
    /// Over how many more streams its calls are spread on a Redis; they have no order among them then. Not with the first two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 64)]
    pub shards: Option<u16>,
}

/// The policy that every delivery of a function takes from.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RateBody {
    /// What the policy is called.
    pub policy: String,
    /// What is limited: functions that name the same scope share its limit. Default: the function's own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// Where and how calls are pushed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetBody {
    /// The address that takes a POST per call.
    pub url: String,
    /// How many calls are under way at once, per server. Default 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000)]
    pub concurrency: Option<u32>,
}

/// A function.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FunctionBody {
    /// What it is called.
    pub name: String,
    /// Where it is known.
    pub scope: String,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its parameter definitions or JSON Schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub parameters: Option<Json>,
    /// How its calls are retried.
    #[schema(value_type = RetryBody)]
    pub retry: RetryPolicy,
    /// What it can take.
    #[schema(value_type = LimitsBody)]
    pub limits: FunctionLimits,
    /// Where its calls are pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<TargetBody>)]
    pub target: Option<PushTarget>,
    /// Calls that wait for a worker.
    pub queued: u64,
    /// Calls that wait for their next attempt.
    pub delayed: u64,
    /// Calls that workers hold.
    pub running: u64,
    /// Of those, calls that wait for a nested call.
    pub parked: u64,
    /// Dead letters.
    pub dead: u64,
    /// Workers that offer it.
    pub workers: u64,
    /// Workers heard of in the last 30 seconds.
    pub healthy_workers: u64,
    /// How long the oldest queued call has waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_queued_age_ms: Option<u64>,
    /// The stream that legacy peers use; only on Redis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamBody>,
    /// What keeps the function from its calls, each with what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// The stream that legacy callers of a function write to and legacy workers read.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StreamBody {
    /// Entries in it, finished ones that were not removed yet included.
    pub length: u64,
    /// Age of the oldest entry that no worker has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_age_ms: Option<u64>,
    /// Entries that workers have read and not acknowledged.
    pub pending: u64,
    /// Age of the oldest of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_pending_age_ms: Option<u64>,
    /// Its consumer groups.
    pub groups: Vec<StreamGroupBody>,
}

/// A consumer group of a stream.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StreamGroupBody {
    /// What it is called.
    pub name: String,
    /// Consumers that it knows.
    pub consumers: u64,
    /// Entries that they have read and not acknowledged.
    pub pending: u64,
    /// Entries that none of them has read; absent when the server does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
}

/// A page of functions.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FunctionList {
    /// By scope and name.
    pub functions: Vec<FunctionBody>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which function of that name.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ScopeQuery {
    /// Where it is known. Default `__global__`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}
