//! Calls on the wire.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Json, object};

/// A call to make. Everything has a default.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CallBody {
    /// The function's parameters, usually an object. Default `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub params: Option<Json>,
    /// The item the caller was working on, carried along for the handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub input_item: Option<Json>,
    /// Where the function is known. Default `__global__`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The call ends at the latest after this. Default 30,000 for a call that is waited for, 86,400,000 for a detached one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 2_592_000_000_u64)]
    pub timeout_ms: Option<u64>,
    /// An id made by the caller: sending it again is the same call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Makes calls of one function with the same key the same call, also across callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// How long to wait for a function that is not known yet. Default 5,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 600_000)]
    pub wait_for_function_ms: Option<u64>,
    /// How long this request waits for the outcome; if it takes longer, the answer is 202 with the call's id. Default: as long as the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 2_592_000_000_u64)]
    pub wait_ms: Option<u64>,
    /// Refuse at once with `no_workers` when no healthy worker serves the function.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_without_workers: bool,
    /// How often to call again, as a new call two seconds later, when the call times out. Default 0. Only for a call that is waited for, and
    /// not with `call_id` or `idempotency_key`, which would be the same call. A call that timed out while it ran may run twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 10)]
    pub retries_on_timeout: Option<u32>,
    /// The delivery whose handler makes this call: it gives its permit back while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_delivery_id: Option<String>,
    /// How long the outcome is kept. Default 600,000; 86,400,000 for detached calls and those with an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 2_592_000_000_u64)]
    pub retain_ms: Option<u64>,
    /// Attempts in the store that the call was moved from; `towpath import` sends them. They count as if they had been made here.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub attempts_before: Option<AttemptsBeforeBody>,
}

/// Attempts that a call has behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptsBeforeBody {
    /// Attempts that ended with a handler's error. Default 0.
    #[serde(default)]
    #[schema(maximum = 1_000_000)]
    pub failures: u32,
    /// Deliveries that ended with the worker's silence. Default 0.
    #[serde(default)]
    #[schema(maximum = 1_000_000)]
    pub crashes: u32,
}

/// A call that ended well.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CallAnswer {
    /// Which call.
    pub call_id: String,
    /// Always true here; a failure is an error with status 424.
    pub success: bool,
    /// What the handler returned.
    #[schema(value_type = Value)]
    pub data: Json,
    /// What the acknowledgement is worth: `memory`, `everysec`, `always`, `replicated` or `fsync`.
    pub durability: String,
}

/// A call that was taken and goes on.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CallAccepted {
    /// Which call.
    pub call_id: String,
    /// Where it stands.
    pub state: String,
    /// It had been taken before, under the same id or idempotency key; nothing new was done.
    pub existing: bool,
    /// What the acknowledgement is worth: `memory`, `everysec`, `always`, `replicated` or `fsync`.
    pub durability: String,
}

/// Everything that is known of a call.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CallDetail {
    /// Which call.
    pub call_id: String,
    /// Of which function.
    pub function_name: String,
    /// In which scope.
    pub scope: String,
    /// `queued`, `delayed`, `running`, `completed`, `failed`, `timed_out`, `expired`, `cancelled`, `dead` or `settled`.
    pub state: String,
    /// Which attempt runs or ran last.
    pub attempt: u32,
    /// Attempts that ended with a handler's error.
    pub failures: u32,
    /// Deliveries that ended with the worker's silence.
    pub crashes: u32,
    /// When it was submitted.
    pub submitted_at: i64,
    /// When it ends at the latest.
    pub deadline: i64,
    /// When its latest delivery started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<i64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<i64>,
    /// When a delayed call is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<i64>,
    /// Why it waits, or waited until its deadline, although a worker may be there, and what to do. Only in the answer about one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_because: Option<String>,
    /// The worker of its latest delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// A caller asked to cancel it.
    pub cancel_requested: bool,
    /// How many calls are above it. Absent in a list without payloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// The call whose handler made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_call_id: Option<String>,
    /// Its idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Its trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The handler's latest progress report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressDetail>,
    /// The latest error of a handler, while the call is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<FailureBody>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeBody>,
    /// The call that a replay of this dead letter became.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed_as: Option<String>,
    /// Its parameters. Absent in a list without payloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub params: Option<Json>,
    /// Its input item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub input_item: Option<Json>,
}

/// A progress report.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProgressDetail {
    /// Rises with every report of the call.
    pub number: u32,
    /// What the handler said.
    #[schema(value_type = Value)]
    pub value: Json,
}

/// How a call ended.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OutcomeBody {
    /// `ok`, `failed`, `timed_out`, `expired`, `cancelled` or `dead`.
    pub kind: String,
    /// The result, with `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub data: Option<Json>,
    /// The error, with `failed` and `dead`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureBody>,
    /// `exhausted` or `poisoned`, with `dead`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An error that a handler reported.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FailureBody {
    /// A word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub details: Option<Json>,
}

/// A page of calls, newest first. Without payloads a call in it has no `params`, `input_item`, `progress`, `depth`, `parent_call_id`,
/// `idempotency_key` and `traceparent`, its outcome no `data`, and its errors no `details`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CallList {
    /// The calls.
    pub calls: Vec<CallDetail>,
    /// Ask for the next page with `after=` this; absent on the last page. A page may have fewer calls than asked for and a next one all the
    /// same: one page looks at a bounded number of calls, and has a bounded size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which calls to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CallQuery {
    /// Only calls in these states, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Only calls of this function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Only calls in this scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Only calls that this worker holds or last held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Where the page before ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// At most this many, 1 to 200. Default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// With parameters, results and all else. Such a page ends with the call that reaches 1 MiB of payloads. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub payloads: bool,
}

/// How long to wait for a call.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// Answer when the call has ended, or after this. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Answer also when there is a progress report with a higher number than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_progress: Option<u32>,
}

/// What became of a cancellation.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CancelAnswer {
    /// Which call.
    pub call_id: String,
    /// `cancelled`: it will not run. `requested`: its worker will be asked to stop. `already_ended`: nothing changed.
    pub result: String,
}
