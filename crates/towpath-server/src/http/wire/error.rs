//! The one error body.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Json;

/// Every error looks like this.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong, for programs (`code`, `effect`) and for people (`message`, `hint`).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// A stable word, listed in docs/errors.md.
    pub code: String,
    /// What happened, to which thing.
    pub message: String,
    /// The field of the request that has to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Anything else a program may want: a call id, the phase of a time-out, the closest names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub details: Option<Json>,
    /// `none`: certainly nothing happened. `unknown`: ask by id, or repeat with the same id.
    pub effect: Effect,
    /// Also in the `x-request-id` header and in the server's log.
    pub request_id: String,
}

/// Whether the request may have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Certainly nothing happened.
    None,
    /// Ask by id, or repeat with the same id.
    Unknown,
}
