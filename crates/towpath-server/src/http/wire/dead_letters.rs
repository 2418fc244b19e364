//! Dead letters on the wire. They are calls in the state `dead`; lists have the shape of call lists.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Which dead letters to replay or drop. Empty means all.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadLetterFilter {
    /// Only those of this function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) function: Option<String>,
    /// Only those in this scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
    /// Only those given up for this reason: `exhausted` or `poisoned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// At most this many. Default 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub(crate) max: Option<u32>,
}

/// Dead letters that run again.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReplayAnswer {
    /// One entry per dead letter.
    pub(crate) replayed: Vec<Replay>,
}

/// A dead letter and the call that it became.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Replay {
    /// The dead letter.
    pub(crate) call_id: String,
    /// The new call.
    pub(crate) replayed_as: String,
}

/// Dead letters that are gone.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct DropAnswer {
    /// How many.
    pub(crate) dropped: u64,
}
