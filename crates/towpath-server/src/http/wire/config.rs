//! The shared configuration on the wire.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Json;

/// The shared configuration.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ConfigBody {
    /// Rises with every change; 0 when it was never set.
    pub version: u64,
    /// Its value, `null` when it was never set.
    #[schema(value_type = Value)]
    pub value: Json,
    /// When it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<i64>,
}

/// A change of the shared configuration.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetConfigBody {
    /// The new value, a JSON object. Members of the present one that it lacks are removed.
    #[schema(value_type = Value)]
    pub value: Json,
    /// Only if the version still is this; otherwise 409 `config_conflict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_version: Option<u64>,
}

/// Waiting for a change.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ConfigQuery {
    /// Answer when the version is another than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_version: Option<u64>,
    /// Or after this. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}
