//! Functions: list, show, define, forget.

mod pushed;

use axum::Json;
use axum::extract::State;
use serde_json::json;
use towpath_core::names::FunctionKey;
use towpath_core::worker::FunctionDefinition;

use self::pushed::Forgetting;
use super::app::App;
use super::codes::Code;
use super::convert::{self, function_key};
use super::error::{ApiError, function_not_found, invalid_name, no_policy};
use super::extract::{JsonBody, PathText, Query};
use super::pages::{self, PageQuery};
use super::wire::functions::{DefineBody, FunctionBody, FunctionList, ScopeQuery};
use crate::push;

/// Names at least this similar are offered when one is not found.
const SIMILAR: f64 = 0.7;
const CLOSEST_MAX: usize = 3;
/// A function without description and parameters is about this long on the wire.
const BODY_BYTES: usize = 600;

/// List the functions
#[utoipa::path(
    get, path = "/v1/functions", tag = "functions", params(PageQuery),
    responses((status = 200, description = "By scope and name", body = FunctionList)),
)]
pub(crate) async fn list(State(app): State<App>, Query(query): Query<PageQuery>) -> Result<Json<FunctionList>, ApiError> {
    let (limit, after) = (query.limit()?, query.cursor.as_deref().map(cursor).transpose()?);
    let (mut views, now) = (app.store().functions().await?, app.clock().now());
    views.sort_by(|one, other| one.definition.key.cmp(&other.definition.key));
    let wanted = views.iter().filter(|view| after.as_ref().is_none_or(|after| view.definition.key > *after));
    let (page, next) = pages::cut(wanted, limit, |view| bytes(&view.definition), |view| cursor_text(&view.definition.key));
    Ok(Json(FunctionList { functions: page.into_iter().map(|view| convert::function_body(view, now)).collect(), next }))
}

/// About how long a definition is on the wire.
fn bytes(definition: &FunctionDefinition) -> usize {
    let parameters = definition.parameters.as_ref().map_or(0, |parameters| parameters.as_str().len());
    BODY_BYTES + definition.description.as_ref().map_or(0, String::len) + parameters
}

/// A scope has no `:`.
fn cursor_text(key: &FunctionKey) -> String {
    format!("{}:{}", key.scope, key.name)
}

fn cursor(text: &str) -> Result<FunctionKey, ApiError> {
    let (scope, name) = text.split_once(':').unwrap_or(("", text));
    function_key(name, Some(scope))
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
    check_rate(&app, &definition, "limits.rate").await?;
    {
        let _still = app.pushed().definitions().await;
        app.store().define(definition).await?;
    }
    find(&app, &key).await
}

/// Refuses a rate whose policy is not there: calls would wait for it.
pub(super) async fn check_rate(app: &App, definition: &FunctionDefinition, field: &str) -> Result<(), ApiError> {
    let Some(rate) = &definition.limits.rate else { return Ok(()) };
    let scope = rate.scope_of(&definition.key).map_err(|refused| invalid_name(format!("{field}.scope"), &refused))?;
    let checked = app.towpath().check_rate(&scope, &rate.policy).await;
    checked.map_err(|error| no_policy(&error, &format!("{field}.policy")))
}

/// Forget a function
///
/// Only one without workers, without calls that are not over and without dead letters.
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
    let is_only_pushed = was.target.is_some() && is_idle(&was) && !has_workers_of_its_own(&app, &key).await?;
    let ended = match is_only_pushed {
        true => pushed::forget(&app, &key).await?,
        false if app.store().forget(&key).await? => Forgetting::Forgotten,
        false => Forgetting::InUse,
    };
    if ended == Forgetting::Forgotten {
        return Ok(was);
    }
    let Json(now) = find(&app, &key).await?;
    let (waiting, running) = (now.queued + now.delayed, now.running);
    let message = format!(
        "function '{key}' has {}, {}, {} and {}",
        plural(now.workers, "worker"),
        plural(waiting, "waiting call"),
        plural(running, "running call"),
        plural(now.dead, "dead letter")
    );
    let hint = match is_only_pushed && is_idle(&now) {
        _ if ended == Forgetting::Redefined => "it was defined anew meanwhile: look at it, and forget it again if that is meant",
        true => "a server still pushes its calls; one that was killed is taken off the list after 45 seconds: then forget it again",
        false if now.dead > 0 => "replay or drop its dead letters first",
        false => "stop its workers and let its calls end, or cancel them",
    };
    Err(ApiError::new(Code::FunctionInUse, message).field("name").hint(hint))
}

/// Whether none of its calls waits or runs, and none is a dead letter.
fn is_idle(function: &FunctionBody) -> bool {
    function.queued + function.delayed + function.running + function.dead == 0
}

/// Whether a worker serves it that is not a server's own for its target.
async fn has_workers_of_its_own(app: &App, key: &FunctionKey) -> Result<bool, ApiError> {
    let workers = app.store().workers().await?;
    Ok(workers.iter().any(|worker| worker.kind != push::KIND && worker.functions.contains(key)))
}

/// `1 worker`, `2 workers`.
pub(super) fn plural(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
