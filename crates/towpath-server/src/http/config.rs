//! The shared configuration: read, wait for a change, replace.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde_json::json;
use towpath_core::store::{ConfigView, SetConfig};
use towpath_core::time::Timestamp;

use super::app::App;
use super::codes::Code;
use super::error::ApiError;
use super::extract::{JsonBody, Query};
use super::wire::config::{ConfigBody, ConfigQuery, SetConfigBody};
use super::{bounds, convert, wire};

/// Read the shared configuration, or wait until it changes
#[utoipa::path(
    get, path = "/v1/config", tag = "config", params(ConfigQuery),
    responses((status = 200, description = "The configuration", body = ConfigBody)),
)]
pub(crate) async fn show(State(app): State<App>, Query(query): Query<ConfigQuery>) -> Result<Json<ConfigBody>, ApiError> {
    let wait = bounds::length("wait_ms", query.wait_ms)?.unwrap_or_default();
    let until = app.clock().now() + wait;
    let waits_for = bounds::check("not_version", query.not_version)?.filter(|_| !wait.is_zero() && !app.drain().has_begun());
    let config = match waits_for {
        None => app.store().config().await?,
        Some(seen) => tokio::select! {
            config = app.store().config_changed(seen, until) => config?,
            () = app.drain().begun() => app.store().config().await?,
        },
    };
    Ok(Json(to_body(&config)))
}

/// Replace the shared configuration
#[utoipa::path(
    put, path = "/v1/config", tag = "config", request_body = SetConfigBody,
    responses((status = 200, description = "The configuration as it is now", body = ConfigBody)),
)]
pub(crate) async fn set(State(app): State<App>, JsonBody(body): JsonBody<SetConfigBody>) -> Result<Json<ConfigBody>, ApiError> {
    let if_version = bounds::check("if_version", body.if_version)?;
    check_shape(&body.value)?;
    match app.store().set_config(SetConfig { value: convert::payload(body.value), if_version }).await? {
        Some(config) => Ok(Json(to_body(&config))),
        None => {
            let version = app.store().config().await?.version;
            let message = format!("the configuration is at version {version}, not at the version given in if_version");
            Err(ApiError::new(Code::ConfigConflict, message).field("if_version").details(json!({ "version": version })))
        }
    }
}

/// An object, whose policies can be found.
fn check_shape(value: &wire::Json) -> Result<(), ApiError> {
    let bad = |field: &'static str, message: &str| ApiError::new(Code::BadField, message).field(field);
    let members: BTreeMap<String, wire::Json> =
        serde_json::from_str(value.get()).map_err(|_| bad("value", "the shared configuration is a JSON object, and `value` is not"))?;
    match members.get("limit_policies") {
        Some(policies) if !policies.get().starts_with('{') => Err(bad("value.limit_policies", "`limit_policies` is not a JSON object")),
        _ => Ok(()),
    }
}

fn to_body(config: &ConfigView) -> ConfigBody {
    ConfigBody { version: config.version, value: convert::json(&config.value), updated_at: config.updated_at.map(Timestamp::as_millis) }
}
