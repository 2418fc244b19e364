//! The doctor's findings on the wire.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::doctor::Finding;

/// What to examine.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DoctorQuery {
    /// `false` leaves the store itself out: only the names that functions and batchers point to. Default `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<bool>,
}

/// What a server found in its own store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DoctorBody {
    /// Which store, without user and password.
    pub store: String,
    /// What an acknowledgement is worth there, by its settings. Absent for an embedded store, and where it is less than was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
    /// Each check with what was seen and what to do.
    pub checks: Vec<Finding>,
}
