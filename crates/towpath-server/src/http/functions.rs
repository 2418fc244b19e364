//! Functions: list, show, define, forget.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde_json::json;
use towpath_core::names::FunctionKey;
use towpath_core::worker::FunctionDefinition;

use super::app::App;
use super::codes::Code;
use super::convert::{self, function_key};
use super::error::{ApiError, function_not_found};
use super::extract::{JsonBody, PathText, Query};
use super::wire::functions::{DefineBody, FunctionBody, FunctionList, ScopeQuery};

/// Names at least this similar are offered when one is not found.
const SIMILAR: f64 = 0.7;
const CLOSEST_MAX: usize = 3;
/// The server's own worker has so long to stop before its function is forgotten.
const RETIRE_TIME_MAX: Duration = Duration::from_secs(10);

/// List all functions
#[utoipa::path(
    get, path = "/v1/functions", tag = "functions",
    responses((status = 200, description = "By scope and name", body = FunctionList)),
)]
pub(crate) async fn list(State(app): State<App>) -> Result<Json<FunctionList>, ApiError> {
    let (views, now) = (app.store().functions().await?, app.clock().now());
    Ok(Json(FunctionList { functions: views.iter().map(|view| convert::function_body(view, now)).collect() }))
}

/// Show a function
#[utoipa::path(
    get, path = "/v1/functions/{name}", tag = "functions",
    params(("name" = String, Path, description = "The function's name, percent-encoded"), ScopeQuery),
    responses((status = 200, description = "What it is and how it does", body = FunctionBody)),
)]
pub(crate) async fn show(
    State(app): State<App>,
    PathText(name): PathText,
    Query(query): Query<ScopeQuery>,
) -> Result<Json<FunctionBody>, ApiError> {
    find(&app, &function_key(&name, query.scope.as_deref())?).await
}

async fn find(app: &App, key: &FunctionKey) -> Result<Json<FunctionBody>, ApiError> {
    let now = app.clock().now();
    match app.store().find(key, now).await? {
        Some(view) => Ok(Json(convert::function_body(&view, now))),
        None => Err(not_found(app, key).await),
    }
}

async fn not_found(app: &App, key: &FunctionKey) -> ApiError {
    let known = app.store().functions().await.unwrap_or_default();
    let names = known.iter().filter(|view| view.definition.key.scope == key.scope).map(|view| view.definition.key.name.as_str());
    let mut similar: Vec<(f64, &str)> =
        names.map(|name| (strsim::jaro_winkler(name, key.name.as_str()), name)).filter(|(similarity, _)| *similarity >= SIMILAR).collect();
    similar.sort_by(|a, b| b.0.total_cmp(&a.0));
    let closest: Vec<String> = similar.into_iter().take(CLOSEST_MAX).map(|(_, name)| name.to_owned()).collect();
    function_not_found(key, &closest)
}

/// Define a function without a worker, or change its definition
///
/// With a `target`, the server posts each call there. A worker that registers the function replaces the definition.
#[utoipa::path(
    put, path = "/v1/functions/{name}", tag = "functions",
    params(("name" = String, Path, description = "The function's name, percent-encoded")),
    request_body = DefineBody,
    responses((status = 200, description = "The function as it is now", body = FunctionBody)),
)]
pub(crate) async fn define(
    State(app): State<App>,
    PathText(name): PathText,
    JsonBody(body): JsonBody<DefineBody>,
) -> Result<Json<FunctionBody>, ApiError> {
    let key = function_key(&name, body.scope.as_deref())?;
    let definition = convert::definition(key.clone(), body)?;
    if let Some(target) = &definition.target {
        app.targets().check(&target.url).map_err(|refused| {
            let hint = "use a public https address, or start the server with --allow-target HOST[:PORT] or --allow-target CIDR";
            let details = json!({ "setting": "allow_target" });
            ApiError::new(Code::TargetNotAllowed, refused.to_string()).field("target.url").hint(hint).details(details)
        })?;
    }
    {
        let _still = app.pushed().definitions().await;
        app.store().define(definition).await?;
    }
    find(&app, &key).await
}

/// Forget a function
///
/// Only one without workers and without calls that are not over.
#[utoipa::path(
    delete, path = "/v1/functions/{name}", tag = "functions",
    params(("name" = String, Path, description = "The function's name, percent-encoded"), ScopeQuery),
    responses((status = 200, description = "The function as it was", body = FunctionBody)),
)]
pub(crate) async fn forget(
    State(app): State<App>,
    PathText(name): PathText,
    Query(query): Query<ScopeQuery>,
) -> Result<Json<FunctionBody>, ApiError> {
    let key = function_key(&name, query.scope.as_deref())?;
    let was = find(&app, &key).await?;
    if was.target.is_some() && was.queued + was.delayed + was.running == 0 && was.workers <= 1 {
        stop_pushing(&app, &key).await?;
    }
    if app.store().forget(&key).await? {
        return Ok(was);
    }
    let message =
        format!("function '{key}' has {} workers, {} calls that wait and {} that run", was.workers, was.queued + was.delayed, was.running);
    let hint = "stop its workers and let its calls end, or cancel them";
    Err(ApiError::new(Code::FunctionInUse, message).field("name").hint(hint))
}

/// The server's own worker must not stand in the way of forgetting the function it pushes.
async fn stop_pushing(app: &App, key: &FunctionKey) -> Result<(), ApiError> {
    {
        let _still = app.pushed().definitions().await;
        if let Some(view) = app.store().find(key, app.clock().now()).await? {
            app.store().define(FunctionDefinition { target: None, ..view.definition }).await?;
        }
    }
    let patience = app.clock().sleep_until(app.clock().now() + RETIRE_TIME_MAX);
    tokio::select! {
        () = app.pushed().retired(key) => {}
        () = patience => {}
    }
    Ok(())
}
