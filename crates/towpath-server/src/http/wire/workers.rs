//! Workers on the wire: any program that speaks HTTP can serve functions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::functions::{LimitsBody, RetryBody};
use super::{Json, object};

/// A worker that introduces itself. Doing it again replaces what it said before.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterBody {
    /// Who; made by the server when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// What sort of worker, for people. Default `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What it serves, at least one function.
    #[serde(deserialize_with = "object::list")]
    pub functions: Vec<OfferBody>,
}

/// A function as a worker offers it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OfferBody {
    /// What it is called.
    pub name: String,
    /// Where it is known. Default `__global__`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Parameter definitions, an array of `{name, type, required, default, description}`, or a JSON Schema, an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub parameters: Option<Json>,
    /// How many of its calls this worker takes at once. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub concurrency: Option<u32>,
    /// How its calls are retried.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub retry: Option<RetryBody>,
    /// What it can take.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub limits: Option<LimitsBody>,
}

/// A worker is known.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Registered {
    /// Use it in the paths below `/v1/workers/`.
    pub worker_id: String,
    /// A claimed call is taken back when it was not renewed for so long.
    pub lease_ms: u64,
    /// Send a heartbeat this often.
    pub heartbeat_ms: u64,
}

/// A wish for work.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimBody {
    /// At most this many calls. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000)]
    pub max: Option<u32>,
    /// How long to wait for the first one. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 60_000)]
    pub wait_ms: Option<u64>,
    /// How long the worker may be silent about what it claims. Default 30,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 604_800_000)]
    pub lease_ms: Option<u64>,
}

/// What a claim got; empty when nothing came in time.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Claimed {
    /// The calls, oldest first.
    pub calls: Vec<ClaimedCall>,
}

/// A call in a worker's hands.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClaimedCall {
    /// Which delivery of the call: give it back with the result.
    pub delivery_id: String,
    /// Which call. The same for every delivery, so it serves as an idempotency key for what the handler does.
    pub call_id: String,
    /// Of which function.
    pub function_name: String,
    /// In which scope.
    pub scope: String,
    /// The parameters, checked against the function's definition, with defaults filled in.
    #[schema(value_type = Value)]
    pub params: Json,
    /// The item the caller was working on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub input_item: Option<Json>,
    /// 1 until a handler has failed.
    pub attempt: u32,
    /// When it was submitted.
    pub submitted_at: i64,
    /// When it ends at the latest, by the store's clock.
    pub deadline: i64,
    /// How long that is from now.
    pub remaining_ms: u64,
    /// The end of the lease, by the store's clock.
    pub lease_until: i64,
    /// How many calls are above it.
    pub depth: u32,
    /// The caller's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// What a worker made of its deliveries.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteBody {
    /// One entry per delivery, at most 1,000.
    #[serde(deserialize_with = "object::list")]
    pub results: Vec<ResultBody>,
}

/// What a worker made of a delivery.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultBody {
    /// Which delivery.
    pub delivery_id: String,
    /// Whether it went well.
    pub success: bool,
    /// The result, if it went well. Default `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub data: Option<Json>,
    /// The error, if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub error: Option<ResultError>,
}

/// Why a delivery went wrong.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultError {
    /// A word for programs. Default `handler_error`; `cancelled` says that a cancellation was heeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// A sentence for people.
    pub message: String,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub details: Option<Json>,
    /// Whether trying again makes sense. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// Not sooner than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 604_800_000)]
    pub retry_after_ms: Option<u64>,
}

/// What became of the results, in the order in which they were sent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CompleteAnswer {
    /// One entry per result.
    pub results: Vec<ResultAnswer>,
}

/// What became of a result.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ResultAnswer {
    /// Which delivery.
    pub delivery_id: String,
    /// `accepted`; `already`: it was accepted before; `lost`: the delivery is no longer this worker's and the result was refused.
    pub result: String,
    /// Why it was lost: `expired`, `replaced`, `ended` or `absent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A sign of life, and leases to prolong.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatBody {
    /// Deliveries still being worked on, at most 1,000.
    #[serde(default)]
    pub delivery_ids: Vec<String>,
    /// Their new lease. Default 30,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 604_800_000)]
    pub lease_ms: Option<u64>,
    /// Keep this request open for this long, or until a caller cancels one of the calls. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 60_000)]
    pub wait_ms: Option<u64>,
}

/// What a heartbeat learns.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatAnswer {
    /// No longer this worker's: stop working on them, their results will be refused.
    pub lost: Vec<String>,
    /// Their callers cancelled these: stop and answer with the error code `cancelled`.
    pub cancelled: Vec<String>,
}

/// A progress report.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgressBody {
    /// Which delivery.
    pub delivery_id: String,
    /// What to show: any JSON, at most 64 KiB.
    #[schema(value_type = Value)]
    pub progress: Json,
}

/// A worker left.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Unregistered {
    /// Deliveries that were handed back for other workers.
    pub handed_back: u64,
}

/// All workers.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WorkerList {
    /// By id.
    pub workers: Vec<WorkerBody>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A worker.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WorkerBody {
    /// Who.
    pub worker_id: String,
    /// What sort of worker.
    pub kind: String,
    /// What it serves.
    pub functions: Vec<FunctionRef>,
    /// Since when.
    pub registered_at: i64,
    /// When it was last heard of.
    pub last_heartbeat: i64,
    /// Heard of in the last 30 seconds.
    pub healthy: bool,
    /// Calls it holds now.
    pub running: u64,
}

/// A function's full name.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FunctionRef {
    /// What it is called.
    pub name: String,
    /// Where it is known.
    pub scope: String,
}
