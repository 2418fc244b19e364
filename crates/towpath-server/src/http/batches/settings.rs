//! The settings of batchers: shown, and kept for all servers.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use towpath::batches::{BatchError, Batcher, SettingsPatch};

use super::known;
use crate::batches::check;
use crate::http::app::App;
use crate::http::codes::Code;
use crate::http::convert::batches as convert;
use crate::http::error::ApiError;
use crate::http::extract::{JsonBody, PathText};
use crate::http::wire::batches::SettingsBody;

/// Show the settings of a batcher
#[utoipa::path(
    get, path = "/v1/batches/{batcher}/settings", tag = "batches",
    params(("batcher" = String, Path, description = "Which batcher")),
    responses((status = 200, description = "All of them, and what of them is kept", body = SettingsBody)),
)]
pub(crate) async fn get(State(app): State<App>, PathText(batcher): PathText) -> Result<Json<SettingsBody>, ApiError> {
    convert::settings_body(&known(&app, &batcher).await?).map(Json)
}

/// Keep settings of a batcher
///
/// They replace what was kept before; what they do not name is as the configuration file or the default has it. All servers follow within a second.
#[utoipa::path(
    put, path = "/v1/batches/{batcher}/settings", tag = "batches",
    params(("batcher" = String, Path, description = "Which batcher")),
    request_body = Object,
    responses(
        (status = 200, description = "They are kept", body = SettingsBody),
        (status = 201, description = "They are kept, and the batcher is new", body = SettingsBody),
    ),
)]
pub(crate) async fn put(
    State(app): State<App>,
    PathText(batcher): PathText,
    JsonBody(patch): JsonBody<SettingsPatch>,
) -> Result<(StatusCode, Json<SettingsBody>), ApiError> {
    let batcher = Batcher::from_patch(convert::batcher_name(&batcher)?, patch).map_err(BatchError::from)?;
    check(app.targets(), batcher.settings())
        .map_err(|refused| ApiError::new(Code::TargetNotAllowed, refused.to_string()).field("target"))?;
    let put = app.towpath().batchers().put(&batcher).await?;
    let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(convert::settings_body(&put.batcher)?)))
}
