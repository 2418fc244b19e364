//! Workers on the wire: any program that speaks HTTP can serve functions.

use serde::{Deserialize, Serialize};
use towpath_core::call::RetryPolicy;
use towpath_core::worker::FunctionLimits;
use utoipa::ToSchema;

use super::Json;

/// A worker that introduces itself. Doing it again replaces what it said before.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegisterBody {
    /// Who; made by the server when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) worker_id: Option<String>,
    /// What sort of worker, for people. Default `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// What it serves, at least one function.
    pub(crate) functions: Vec<OfferBody>,
}

/// A function as a worker offers it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfferBody {
    /// What it is called.
    pub(crate) name: String,
    /// Where it is known. Default `__global__`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// Parameter definitions, an array of `{name, type, required, default, description}`, or a JSON Schema, an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) parameters: Option<Json>,
    /// How many of its calls this worker takes at once. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub(crate) concurrency: Option<u32>,
    /// `{max_attempts, max_deliveries, backoff: {kind: "fixed", delay_ms} | {kind: "exponential", delay_ms, delay_ms_max}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) retry: Option<RetryPolicy>,
    /// `{max_backlog, max_concurrent, max_payload_bytes}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) limits: Option<FunctionLimits>,
}

/// A worker is known.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Registered {
    /// Use it in the paths below `/v1/workers/`.
    pub(crate) worker_id: String,
    /// A claimed call is taken back when it was not renewed for so long.
    pub(crate) lease_ms: u64,
    /// Send a heartbeat this often.
    pub(crate) heartbeat_ms: u64,
}

/// A wish for work.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimBody {
    /// At most this many calls. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000)]
    pub(crate) max: Option<u32>,
    /// How long to wait for the first one. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 60_000)]
    pub(crate) wait_ms: Option<u64>,
    /// How long the worker may be silent about what it claims. Default 30,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 604_800_000)]
    pub(crate) lease_ms: Option<u64>,
}

/// What a claim got; empty when nothing came in time.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Claimed {
    /// The calls, oldest first.
    pub(crate) calls: Vec<ClaimedCall>,
}

/// A call in a worker's hands.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ClaimedCall {
    /// Which delivery of the call: give it back with the result.
    pub(crate) delivery_id: String,
    /// Which call. The same for every delivery, so it serves as an idempotency key for what the handler does.
    pub(crate) call_id: String,
    /// Of which function.
    pub(crate) function_name: String,
    /// In which scope.
    pub(crate) scope: String,
    /// The parameters.
    #[schema(value_type = Object)]
    pub(crate) params: Json,
    /// The item the caller was working on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) input_item: Option<Json>,
    /// 1 until a handler has failed.
    pub(crate) attempt: u32,
    /// When it was submitted.
    pub(crate) submitted_at: i64,
    /// When it ends at the latest, by the store's clock.
    pub(crate) deadline: i64,
    /// How long that is from now.
    pub(crate) remaining_ms: u64,
    /// The end of the lease, by the store's clock.
    pub(crate) lease_until: i64,
    /// How many calls are above it.
    pub(crate) depth: u32,
    /// The caller's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency_key: Option<String>,
    /// Trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
}

/// What a worker made of its deliveries.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompleteBody {
    /// One entry per delivery, at most 1,000.
    pub(crate) results: Vec<ResultBody>,
}

/// What a worker made of a delivery.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResultBody {
    /// Which delivery.
    pub(crate) delivery_id: String,
    /// Whether it went well.
    pub(crate) success: bool,
    /// The result, if it went well. Default `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) data: Option<Json>,
    /// The error, if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ResultError>,
}

/// Why a delivery went wrong.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResultError {
    /// A word for programs. Default `handler_error`; `cancelled` says that a cancellation was heeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    /// A sentence for people.
    pub(crate) message: String,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) details: Option<Json>,
    /// Whether trying again makes sense. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retryable: Option<bool>,
    /// Not sooner than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 604_800_000)]
    pub(crate) retry_after_ms: Option<u64>,
}

/// What became of the results, in the order in which they were sent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct CompleteAnswer {
    /// One entry per result.
    pub(crate) results: Vec<ResultAnswer>,
}

/// What became of a result.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ResultAnswer {
    /// Which delivery.
    pub(crate) delivery_id: String,
    /// `accepted`; `already`: it was accepted before; `lost`: the delivery is no longer this worker's and the result was refused.
    pub(crate) result: String,
    /// Why it was lost: `expired`, `replaced`, `ended` or `absent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// A sign of life, and leases to prolong.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeartbeatBody {
    /// Deliveries still being worked on, at most 1,000.
    #[serde(default)]
    pub(crate) delivery_ids: Vec<String>,
    /// Their new lease. Default 30,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 604_800_000)]
    pub(crate) lease_ms: Option<u64>,
    /// Keep this request open for so long, or until somebody wants one of the deliveries cancelled. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 60_000)]
    pub(crate) wait_ms: Option<u64>,
}

/// What a heartbeat learns.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct HeartbeatAnswer {
    /// No longer this worker's: stop working on them, their results will be refused.
    pub(crate) lost: Vec<String>,
    /// Somebody wants these cancelled: stop and answer with the error code `cancelled`.
    pub(crate) cancelled: Vec<String>,
}

/// A progress report.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgressBody {
    /// Which delivery.
    pub(crate) delivery_id: String,
    /// What to show: any JSON, at most 64 KiB.
    #[schema(value_type = Object)]
    pub(crate) progress: Json,
}

/// A worker left.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Unregistered {
    /// Deliveries that were handed back for other workers.
    pub(crate) handed_back: u64,
}

/// All workers.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct WorkerList {
    /// By id.
    pub(crate) workers: Vec<WorkerBody>,
}

/// A worker.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct WorkerBody {
    /// Who.
    pub(crate) worker_id: String,
    /// What sort of worker.
    pub(crate) kind: String,
    /// What it serves.
    pub(crate) functions: Vec<FunctionRef>,
    /// Since when.
    pub(crate) registered_at: i64,
    /// When it was last heard of.
    pub(crate) last_heartbeat: i64,
    /// Heard of in the last 30 seconds.
    pub(crate) healthy: bool,
    /// Calls it holds now.
    pub(crate) running: u64,
}

/// A function's full name.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct FunctionRef {
    /// What it is called.
    pub(crate) name: String,
    /// Where it is known.
    pub(crate) scope: String,
}
