//! The one error body.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Json;

/// Every error looks like this.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// What went wrong.
    pub(crate) error: ErrorDetail,
}

/// What went wrong, for programs (`code`, `effect`) and for people (`message`, `hint`).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// A stable word, listed in docs/errors.md.
    pub(crate) code: String,
    /// What happened, to which thing.
    pub(crate) message: String,
    /// The field of the request that has to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// Anything else a program may want: a call id, the phase of a time-out, the closest names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) details: Option<Json>,
    /// `none`: certainly nothing happened. `unknown`: ask by id, or repeat with the same id.
    pub(crate) effect: Effect,
    /// Also in the `x-request-id` header and in the server's log.
    pub(crate) request_id: String,
}

/// Whether the request may have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effect {
    /// Certainly nothing happened.
    None,
    /// Ask by id, or repeat with the same id.
    Unknown,
}
