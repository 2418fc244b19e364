//! Functions on the wire.

use serde::{Deserialize, Serialize};
use towpath_core::call::RetryPolicy;
use towpath_core::worker::{FunctionLimits, PushTarget};
use utoipa::{IntoParams, ToSchema};

use super::Json;

/// A function without a worker of its own, or a change of its definition.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DefineBody {
    /// Where it is known. Default `__global__`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// Parameter definitions, an array, or a JSON Schema, an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) parameters: Option<Json>,
    /// How its calls are retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) retry: Option<RetryPolicy>,
    /// What it can take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) limits: Option<FunctionLimits>,
    /// `{url, concurrency}`: the server posts each call there and takes the response as the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) target: Option<PushTarget>,
}

/// A function.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct FunctionBody {
    /// What it is called.
    pub(crate) name: String,
    /// Where it is known.
    pub(crate) scope: String,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// Its parameter definitions or JSON Schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) parameters: Option<Json>,
    /// How its calls are retried.
    #[schema(value_type = Object)]
    pub(crate) retry: RetryPolicy,
    /// What it can take.
    #[schema(value_type = Object)]
    pub(crate) limits: FunctionLimits,
    /// Where its calls are pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) target: Option<PushTarget>,
    /// Calls that wait for a worker.
    pub(crate) queued: u64,
    /// Calls that wait for their next attempt.
    pub(crate) delayed: u64,
    /// Calls that workers hold.
    pub(crate) running: u64,
    /// Of those, calls that wait for a nested call.
    pub(crate) parked: u64,
    /// Dead letters.
    pub(crate) dead: u64,
    /// Workers that offer it.
    pub(crate) workers: u64,
    /// Workers heard of in the last 30 seconds.
    pub(crate) healthy_workers: u64,
    /// How long the oldest queued call has waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_queued_age_ms: Option<u64>,
}

/// All functions.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct FunctionList {
    /// By scope and name.
    pub(crate) functions: Vec<FunctionBody>,
}

/// Which function of that name.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ScopeQuery {
    /// Where it is known. Default `__global__`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
}
