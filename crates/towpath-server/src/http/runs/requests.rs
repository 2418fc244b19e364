//! What a person or a program asks of a run from outside: cancel, terminate, pause, resume.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use towpath_core::store::{RunRequest, RunRequested};

use super::{closed, level, names, not_found, store};
use crate::http::app::App;
use crate::http::codes::Code;
use crate::http::error::ApiError;
use crate::http::extract::{OptionalJsonBody, PathText};
use crate::http::wire::runs::{ReasonBody, RunRequestAnswer};

/// A reason is at most this long.
const REASON_BYTES_MAX: usize = 2_000;

async fn request(app: &App, id: &str, request: RunRequest) -> Result<Json<RunRequestAnswer>, ApiError> {
    let run_id = names::run_id(id)?;
    match store(app)?.request_run(&run_id, request).await? {
        RunRequested::Done(state) => {
            Ok(Json(RunRequestAnswer { run_id: run_id.to_string(), state: state.to_string(), durability: level(app).await }))
        }
        RunRequested::Closed(state) => Err(closed(&run_id, state)),
        RunRequested::NotFound => Err(not_found(&run_id)),
    }
}

fn reason(body: ReasonBody, default: &str) -> Result<Arc<str>, ApiError> {
    let reason = body.reason.unwrap_or_else(|| default.to_owned());
    if reason.len() > REASON_BYTES_MAX {
        let message = format!("the reason has {} bytes: at most {REASON_BYTES_MAX} are kept", reason.len());
        return Err(ApiError::new(Code::InvalidField, message).field("reason"));
    }
    Ok(Arc::from(reason))
}

/// Cancel a run
///
/// Its code learns of it and ends the run, with clean-up. A run that no worker has had ends at once.
#[utoipa::path(
    post, path = "/v1/runs/{run_id}/cancel", tag = "runs", request_body = ReasonBody,
    params(("run_id" = String, Path, description = "Which run")),
    responses((status = 200, description = "Where it stands", body = RunRequestAnswer)),
)]
pub(crate) async fn cancel(
    State(app): State<App>,
    PathText(id): PathText,
    OptionalJsonBody(body): OptionalJsonBody<ReasonBody>,
) -> Result<Json<RunRequestAnswer>, ApiError> {
    let reason = reason(body, "a caller cancelled it")?;
    request(&app, &id, RunRequest::Cancel { reason }).await
}

/// End a run at once
///
/// None of its code runs for its end. Open children follow their policies.
#[utoipa::path(
    post, path = "/v1/runs/{run_id}/terminate", tag = "runs", request_body = ReasonBody,
    params(("run_id" = String, Path, description = "Which run")),
    responses((status = 200, description = "Where it stands", body = RunRequestAnswer)),
)]
pub(crate) async fn terminate(
    State(app): State<App>,
    PathText(id): PathText,
    OptionalJsonBody(body): OptionalJsonBody<ReasonBody>,
) -> Result<Json<RunRequestAnswer>, ApiError> {
    let reason = reason(body, "a caller terminated it")?;
    request(&app, &id, RunRequest::Terminate { reason }).await
}

/// Pause a run
///
/// No worker starts anything for it. Timers go on, and events gather in its inbox.
#[utoipa::path(
    post, path = "/v1/runs/{run_id}/pause", tag = "runs",
    params(("run_id" = String, Path, description = "Which run")),
    responses((status = 200, description = "Where it stands", body = RunRequestAnswer)),
)]
pub(crate) async fn pause(State(app): State<App>, PathText(id): PathText) -> Result<Json<RunRequestAnswer>, ApiError> {
    request(&app, &id, RunRequest::Pause).await
}

/// Go on with a run that is paused or blocked
#[utoipa::path(
    post, path = "/v1/runs/{run_id}/resume", tag = "runs",
    params(("run_id" = String, Path, description = "Which run")),
    responses((status = 200, description = "Where it stands", body = RunRequestAnswer)),
)]
pub(crate) async fn resume(State(app): State<App>, PathText(id): PathText) -> Result<Json<RunRequestAnswer>, ApiError> {
    request(&app, &id, RunRequest::Resume).await
}
