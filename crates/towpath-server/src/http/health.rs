//! How the server is: two probes for machines, one answer for people, numbers for Prometheus, and a page with pointers.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use towpath_core::inspect::FunctionView;
use towpath_core::store::StoreError;

use super::app::App;
use super::codes::Code;
use super::error::ApiError;
use super::functions::plural;
use super::openapi;
use super::waits;
use super::wire::health::HealthBody;

/// A call that waits longer than this for a worker is worth a word.
const LONG_WAIT: Duration = Duration::from_secs(60);
/// A legacy worker that holds an entry for longer than legacy callers wait by default is worth a word.
const LONG_HELD: Duration = Duration::from_secs(300);

/// Say that the process answers
///
/// Says nothing about the store: a process that answers need not be restarted.
#[utoipa::path(
    get, path = "/healthz", tag = "health",
    responses((status = 200, description = "It answers", body = String, content_type = "text/plain")),
)]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Say whether requests should be sent here
///
/// Ready means: not stopping, a write to the store succeeded in the last two seconds, and the tasks of this server run. A store that takes
/// nothing new is not ready: 507 `store_full` when its disk or its memory is full, 503 when it is out of reach.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses((status = 200, description = "Ready", body = String, content_type = "text/plain")),
)]
pub(crate) async fn readyz(State(app): State<App>) -> Result<&'static str, ApiError> {
    if app.drain().has_begun() {
        return Err(ApiError::new(Code::Draining, "the server is stopping"));
    }
    if let Some(trouble) = app.probe().ask(&app).await?.refuses {
        return Err(StoreError::Unavailable(trouble).into());
    }
    if !app.towpath().is_fit() {
        return Err(ApiError::new(Code::Internal, "a task of this server panics each time that it is started; its log says which"));
    }
    Ok("ready\n")
}

/// Say how everything is
#[utoipa::path(
    get, path = "/v1/health", tag = "health",
    responses((status = 200, description = "In one answer", body = HealthBody)),
)]
pub(crate) async fn health(State(app): State<App>) -> Result<Json<HealthBody>, ApiError> {
    let store = app.probe().ask(&app).await?;
    let (functions, workers, now) = (app.store().functions().await?, app.store().workers().await?, app.clock().now());
    let oldest_queued_age = functions.iter().filter_map(|view| view.oldest_queued_at).min().map(|at| now.since(at));
    let waits = waits::all(&app, &functions).await?;
    let of_functions = functions.iter().flat_map(|view| problems(view, now));
    let refuses = store.refuses.map(|trouble| format!("nothing new is accepted: {trouble}"));
    let problems =
        named(refuses.into_iter().chain(store.problems).chain(waits.iter().filter_map(waits::problem)).chain(of_functions).collect());
    let status = match (app.drain().has_begun(), problems.is_empty()) {
        (true, _) => "draining",
        (false, true) => "ok",
        (false, false) => "degraded",
    };
    let sum = |count: fn(&FunctionView) -> u64| functions.iter().map(count).sum();
    let ms = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    Ok(Json(HealthBody {
        status: status.to_owned(),
        problems,
        waits,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: store.location,
        durability: store.durability.as_str().to_owned(),
        now: now.as_millis(),
        uptime_ms: ms(now.since(app.started_at())),
        functions: functions.len() as u64,
        healthy_workers: workers.iter().filter(|worker| worker.healthy).count() as u64,
        backlog: sum(|view| view.counts.backlog()),
        running: sum(|view| view.counts.running),
        dead: sum(|view| view.counts.dead),
        oldest_queued_age_ms: oldest_queued_age.map(ms),
    }))
}

/// As many as an answer names, and how many more there are.
fn named(mut problems: Vec<String>) -> Vec<String> {
    let more = problems.len().saturating_sub(waits::NAMED_MAX);
    if more > 0 {
        problems.truncate(waits::NAMED_MAX);
        problems.push(format!("and {more} more: look at the functions with `towpath functions`"));
    }
    problems
}

/// What a person on call should know about a function, each with what to do.
fn problems(view: &FunctionView, now: towpath_core::time::Timestamp) -> Vec<String> {
    let (name, counts, mut found) = (&view.definition.key, &view.counts, Vec::new());
    let waited = view.oldest_queued_at.map(|at| now.since(at)).unwrap_or_default();
    if counts.queued > 0 && view.healthy_workers == 0 {
        let wait = if counts.queued == 1 { "waits" } else { "wait" };
        found.push(format!("{} of '{name}' {wait} and no healthy worker serves it: start one", plural(counts.queued, "call")));
    } else if waited > LONG_WAIT {
        found.push(format!("a call of '{name}' has waited for {} s: start more workers or raise their concurrency", waited.as_secs()));
    }
    found.extend(view.problems.iter().map(|problem| format!("'{name}': {problem}")));
    if let Some(stream) = &view.stream {
        let held = stream.oldest_pending_at.map(|at| now.since(at)).filter(|held| *held > LONG_HELD);
        found.extend(held.map(|held| {
            let advice = "is its legacy worker alive?";
            format!("an entry in the stream of '{name}' was written {} s ago, read, and not finished: {advice}", held.as_secs())
        }));
    }
    if counts.dead > 0 {
        found.push(format!("'{name}' has {}: see why with `towpath dlq ls`", plural(counts.dead, "dead letter")));
    }
    found
}

/// Give the numbers, for Prometheus
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text")),
)]
pub(crate) async fn metrics(State(app): State<App>) -> Result<impl IntoResponse, ApiError> {
    let functions = app.store().functions().await?;
    let mut batches = Vec::new();
    // A store without batches has none to count.
    for known in app.towpath().batchers().list().await.unwrap_or_default() {
        batches.push((known.name.clone(), app.towpath().batch(&known.name).counts().await?));
    }
    app.metrics().batches().set(&batches);
    app.metrics().count_imported(&app.store().take_imported());
    let text = app.metrics().render(&functions, app.clock().now());
    Ok(([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text))
}

/// Give the description of this API
#[utoipa::path(
    get, path = "/openapi.json", tag = "health",
    responses((status = 200, description = "OpenAPI 3.1", body = Object)),
)]
pub(crate) async fn openapi_json() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], openapi::text())
}

/// Show a page with pointers
#[utoipa::path(
    get, path = "/", tag = "health",
    responses((status = 200, description = "Where to go from here", body = String, content_type = "text/plain")),
)]
pub(crate) async fn front_page() -> String {
    format!(
        "Towpath {}: durable function calls.\n\n\
         GET  /v1/functions              what can be called\n\
         POST /v1/functions/NAME/call    call it: {{\"params\": {{...}}}}\n\
         GET  /v1/calls                  what was called\n\
         POST /v1/batches/NAME/messages  gather messages, hand them over as one\n\
         GET  /v1/health                 how everything is\n\
         GET  /openapi.json              the whole API\n\
         GET  /metrics                   numbers for Prometheus\n\n\
         On the command line: towpath --help\n",
        env!("CARGO_PKG_VERSION")
    )
}
