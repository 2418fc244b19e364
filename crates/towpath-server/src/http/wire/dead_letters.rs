//! Dead letters on the wire. They are calls in the state `dead`; lists have the shape of call lists.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which dead letters to replay or drop. Empty means all.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterFilter {
    /// Only those of this function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Only those in this scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Only those given up for this reason: `exhausted` or `poisoned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// At most this many. Default 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub max: Option<u32>,
}

/// Dead letters that run again.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReplayAnswer {
    /// One entry per dead letter.
    pub replayed: Vec<Replay>,
}

/// A dead letter and the call that it became.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Replay {
    /// The dead letter.
    pub call_id: String,
    /// The new call.
    pub replayed_as: String,
}

/// Dead letters that are gone.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DropAnswer {
    /// How many.
    pub dropped: u64,
}

/// Which dead letters to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeadLetterQuery {
    /// Only those of this function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Only those in this scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Only those given up for this reason: `exhausted` or `poisoned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where the page before ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// At most this many, 1 to 200. Default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// With parameters and all else. Such a page ends with the call that reaches 1 MiB of payloads. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub payloads: bool,
}
