//! Runs looked at: a list, one, its end, its journal, what it has published.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use towpath_core::run::RunId;
use towpath_core::store::{JournalEntry, RunFilter, RunPageRequest, RunView};
use towpath_core::time::Timestamp;

use super::why::{Workers, depends_on_workers};
use super::{body, found, names, seen, store};
use crate::http::app::App;
use crate::http::bounds;
use crate::http::codes::Code;
use crate::http::convert;
use crate::http::error::ApiError;
use crate::http::extract::{PathText, Query};
use crate::http::wire::runs::{JournalPage, JournalQuery, PublishedBody, RunBody, RunList, RunQuery, RunWaitQuery};

const LIMIT_DEFAULT: u32 = 50;
const WAIT_MS_MAX: u64 = 60_000;
const WAIT_MS_DEFAULT: u64 = 30_000;
const JOURNAL_LIMIT_DEFAULT: u32 = 200;
/// A page of a journal ends with the entry that reaches this many bytes.
pub(super) const JOURNAL_PAGE_BYTES: usize = 1024 * 1024;

/// List runs, those created last first
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", params(RunQuery),
    responses((status = 200, description = "A page of runs, without payloads", body = RunList)),
)]
pub(crate) async fn list(State(app): State<App>, Query(query): Query<RunQuery>) -> Result<Json<RunList>, ApiError> {
    let limit = bounds::check("limit", query.limit)?.unwrap_or(LIMIT_DEFAULT);
    let after = query.cursor.as_deref().map(cursor).transpose()?;
    let page = store(&app)?.runs(&filter(&query)?, RunPageRequest { after, limit }).await?;
    let now = app.clock().now();
    let runs = page.runs.iter().map(|view| body::run(view, Workers::NotAsked, now)).collect();
    let next = page.next.map(|(created, run_id)| format!("{}_{run_id}", created.as_millis()));
    Ok(Json(RunList { runs, next }))
}

fn filter(query: &RunQuery) -> Result<RunFilter, ApiError> {
    let instant = |ms: Option<u64>| ms.map(|ms| Timestamp::from_millis(i64::try_from(ms).unwrap_or(i64::MAX)));
    Ok(RunFilter {
        workflow: query.workflow.as_deref().map(|text| names::workflow("workflow", text)).transpose()?,
        version: query.version.as_deref().map(|text| names::version("version", text)).transpose()?,
        shard: query.shard.as_deref().map(|text| names::shard("shard", text)).transpose()?,
        states: query.state.as_deref().map_or(Ok(Vec::new()), names::states)?,
        cause: query.cause.as_deref().map(names::cause).transpose()?,
        parent: query.parent.as_deref().map(|text| names::run_id_in("parent", text)).transpose()?,
        reference: query.reference.as_deref().map(|text| names::reference("reference", text)).transpose()?,
        since: instant(query.since),
        until: instant(query.until),
    })
}

fn cursor(text: &str) -> Result<(Timestamp, RunId), ApiError> {
    let read = || {
        let (created, run_id) = text.split_once('_')?;
        Some((Timestamp::from_millis(created.parse().ok()?), RunId::parse(run_id).ok()?))
    };
    read().ok_or_else(|| {
        ApiError::new(Code::InvalidField, "'cursor' is not a page's `next`: use the text that the page before gave").field("cursor")
    })
}

/// Show a run, and why it is not moving
#[utoipa::path(
    get, path = "/v1/runs/{run_id}", tag = "runs",
    params(("run_id" = String, Path, description = "Which run")),
    responses((status = 200, description = "The run", body = RunBody)),
)]
pub(crate) async fn show(State(app): State<App>, PathText(id): PathText) -> Result<Json<RunBody>, ApiError> {
    let view = found(&app, &names::run_id(&id)?).await?;
    Ok(Json(detail(&app, &view).await))
}

/// A run, with what is known of the workers that it waits for. If that cannot be found out, the run is shown all the same.
pub(super) async fn detail(app: &App, view: &RunView) -> RunBody {
    let workers = match depends_on_workers(&view.run) {
        false => Workers::NotAsked,
        true => match seen::was_served(app, &view.run.place).await {
            Ok(true) => Workers::Seen,
            Ok(false) => Workers::NeverSeen,
            Err(_) => Workers::NotAsked,
        },
    };
    body::run(view, workers, app.clock().now())
}

/// Wait for the end of a run
///
/// The answer is 200 with its outcome, or 202 when the time is over first; the run goes on.
#[utoipa::path(
    get, path = "/v1/runs/{run_id}/wait", tag = "runs",
    params(("run_id" = String, Path, description = "Which run"), RunWaitQuery),
    responses((status = 200, description = "It has closed", body = RunBody),
        (status = 202, description = "It is still open", body = RunBody)),
)]
pub(crate) async fn wait(
    State(app): State<App>,
    PathText(id): PathText,
    Query(query): Query<RunWaitQuery>,
) -> Result<(StatusCode, Json<RunBody>), ApiError> {
    let run_id = names::run_id(&id)?;
    let wait = bounds::check_within("wait_ms", query.wait_ms, 0, WAIT_MS_MAX)?.unwrap_or(WAIT_MS_DEFAULT);
    let mut view = found(&app, &run_id).await?;
    if !view.run.state.is_closed() && wait > 0 && !app.drain().has_begun() {
        tokio::select! {
            closed = store(&app)?.run_closed(&run_id, Duration::from_millis(wait)) => closed?,
            () = app.drain().begun() => {}
        }
        view = found(&app, &run_id).await?;
    }
    let status = if view.run.state.is_closed() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(detail(&app, &view).await)))
}

/// Read the journal of a run's present generation
#[utoipa::path(
    get, path = "/v1/runs/{run_id}/journal", tag = "runs",
    params(("run_id" = String, Path, description = "Which run"), JournalQuery),
    responses((status = 200, description = "A page of its journal", body = JournalPage)),
)]
pub(crate) async fn journal(
    State(app): State<App>,
    PathText(id): PathText,
    Query(query): Query<JournalQuery>,
) -> Result<Json<JournalPage>, ApiError> {
    let run_id = names::run_id(&id)?;
    let limit = bounds::check("limit", query.limit)?.unwrap_or(JOURNAL_LIMIT_DEFAULT) as usize;
    let view = found(&app, &run_id).await?;
    let mut entries = store(&app)?.journal(&run_id, query.from.unwrap_or(0), JOURNAL_PAGE_BYTES).await?;
    entries.truncate(limit);
    let next = next_entry(&view, &entries);
    let entries = entries.iter().map(body::journal_entry).collect();
    Ok(Json(JournalPage { generation: view.run.generation, entries, next }))
}

/// Where the journal goes on behind these entries.
pub(super) fn next_entry(view: &RunView, entries: &[JournalEntry]) -> Option<u64> {
    entries.last().map(|last| last.number + 1).filter(|next| *next < view.run.entries)
}

/// Show what a run has published
#[utoipa::path(
    get, path = "/v1/runs/{run_id}/published", tag = "runs",
    params(("run_id" = String, Path, description = "Which run")),
    responses((status = 200, description = "The latest value of each key", body = PublishedBody)),
)]
pub(crate) async fn published(State(app): State<App>, PathText(id): PathText) -> Result<Json<PublishedBody>, ApiError> {
    let run_id = names::run_id(&id)?;
    found(&app, &run_id).await?;
    let published = store(&app)?.published(&run_id).await?;
    Ok(Json(PublishedBody { published: published.iter().map(|(key, value)| (key.to_string(), convert::json(value))).collect() }))
}
