//! Dead letters: list, show, replay, drop; singly and by filter.

use axum::Json;
use axum::extract::State;
use serde_json::json;
use towpath_core::call::{CallState, DeadReason, Outcome};
use towpath_core::inspect::{CallFilter, CallView, PageRequest};
use towpath_core::names::{CallId, FunctionName};
use towpath_core::store::Replayed;

use super::app::App;
use super::error::{ApiError, dead_letter_not_found, invalid_name};
use super::extract::{JsonBody, PathText, Query};
use super::wire::calls::{CallDetail, CallList};
use super::wire::dead_letters::{DeadLetterFilter, DeadLetterQuery, DropAnswer, Replay, ReplayAnswer};
use super::{bounds, convert};

const MAX_DEFAULT: u32 = 1_000;

/// List dead letters, newest first
#[utoipa::path(
    get, path = "/v1/dead-letters", tag = "dead letters", params(DeadLetterQuery),
    responses((status = 200, description = "A page of calls in the state `dead`", body = CallList)),
)]
pub(crate) async fn list(State(app): State<App>, Query(query): Query<DeadLetterQuery>) -> Result<Json<CallList>, ApiError> {
    let mut wanted = Wanted::new(query.function.as_deref(), query.scope.as_deref(), query.reason.as_deref())?;
    wanted.filter.brief = !query.payloads;
    let page = convert::page(query.after.as_deref(), query.limit)?;
    let mut found = app.store().calls(&wanted.filter, page).await?;
    found.items.retain(|view| wanted.includes(view));
    Ok(Json(convert::call_list(&found, wanted.filter.brief)))
}

/// Which dead letters are meant. Stores do not know reasons, so that part is looked at here.
struct Wanted {
    filter: CallFilter,
    reason: Option<DeadReason>,
}

impl Wanted {
    fn new(function: Option<&str>, scope: Option<&str>, reason: Option<&str>) -> Result<Self, ApiError> {
        let name = |text: &str| FunctionName::new(text).map_err(|refused| invalid_name("function", &refused));
        let filter = CallFilter {
            states: vec![CallState::Dead],
            scope: scope.map(|text| convert::scope(Some(text))).transpose()?,
            function: function.map(name).transpose()?,
            worker: None,
            brief: true,
        };
        Ok(Self { filter, reason: convert::reason(reason)? })
    }

    fn includes(&self, view: &CallView) -> bool {
        let Some(Outcome::Dead { reason, .. }) = &view.call.outcome else { return false };
        self.reason.is_none_or(|wanted| wanted == *reason)
    }

    /// The ids of all of them, newest first, at most `max`. Collected before anything moves, so that moving does not shift the pages.
    async fn ids(&self, app: &App, max: u32) -> Result<Vec<CallId>, ApiError> {
        let (mut ids, mut page) = (Vec::new(), PageRequest::first(PageRequest::LIMIT_MAX));
        loop {
            let found = app.store().calls(&self.filter, page).await?;
            ids.extend(found.items.iter().filter(|view| self.includes(view)).map(|view| view.call.call_id.clone()));
            ids.truncate(max as usize);
            match found.next {
                Some(next) if ids.len() < max as usize => page = PageRequest { after: Some(next), limit: PageRequest::LIMIT_MAX },
                _ => return Ok(ids),
            }
        }
    }
}

/// Show a dead letter
#[utoipa::path(
    get, path = "/v1/dead-letters/{call_id}", tag = "dead letters",
    params(("call_id" = String, Path, description = "Which call")),
    responses((status = 200, description = "The call, with what went wrong", body = CallDetail)),
)]
pub(crate) async fn show(State(app): State<App>, PathText(id): PathText) -> Result<Json<CallDetail>, ApiError> {
    let call_id = convert::call_id(&id)?;
    match app.store().call(&call_id).await? {
        Some(view) if view.call.state == CallState::Dead => Ok(Json(CallDetail::from(&view))),
        view => Err(not_dead(&call_id, view.as_ref())),
    }
}

fn not_dead(call_id: &CallId, view: Option<&CallView>) -> ApiError {
    let refused = dead_letter_not_found(call_id);
    match view {
        None => refused.hint("there is no such call; GET /v1/dead-letters lists what there is"),
        Some(view) => {
            let replayed_as = view.call.replayed_as.as_ref().map(CallId::as_str);
            refused
                .hint(format!("the call is in the state '{}'", view.call.state))
                .details(json!({ "state": view.call.state.as_str(), "replayed_as": replayed_as }))
        }
    }
}

/// Run a dead letter again, as a new call
#[utoipa::path(
    post, path = "/v1/dead-letters/{call_id}/replay", tag = "dead letters",
    params(("call_id" = String, Path, description = "Which call")),
    responses((status = 200, description = "The new call", body = ReplayAnswer)),
)]
pub(crate) async fn replay(State(app): State<App>, PathText(id): PathText) -> Result<Json<ReplayAnswer>, ApiError> {
    let call_id = convert::call_id(&id)?;
    let replay_id = app.towpath().ids().call_id();
    match app.store().replay_dead(&call_id, replay_id.clone()).await? {
        Replayed::Submitted => Ok(Json(ReplayAnswer { replayed: vec![replayed(&call_id, &replay_id)] })),
        Replayed::NotDead => Err(not_dead(&call_id, app.store().call(&call_id).await?.as_ref())),
    }
}

fn replayed(call_id: &CallId, replayed_as: &CallId) -> Replay {
    Replay { call_id: call_id.to_string(), replayed_as: replayed_as.to_string() }
}

/// Run all dead letters of a filter again
#[utoipa::path(
    post, path = "/v1/dead-letters:replay", tag = "dead letters", request_body = DeadLetterFilter,
    responses((status = 200, description = "The new calls", body = ReplayAnswer)),
)]
pub(crate) async fn replay_all(State(app): State<App>, JsonBody(body): JsonBody<DeadLetterFilter>) -> Result<Json<ReplayAnswer>, ApiError> {
    let mut answer = ReplayAnswer { replayed: Vec::new() };
    for call_id in all(&app, &body).await? {
        let replay_id = app.towpath().ids().call_id();
        match app.store().replay_dead(&call_id, replay_id.clone()).await? {
            Replayed::Submitted => answer.replayed.push(replayed(&call_id, &replay_id)),
            Replayed::NotDead => {} // another request dealt with it since it was listed
        }
    }
    Ok(Json(answer))
}

async fn all(app: &App, body: &DeadLetterFilter) -> Result<Vec<CallId>, ApiError> {
    let max = bounds::check("max", body.max)?.unwrap_or(MAX_DEFAULT);
    Wanted::new(body.function.as_deref(), body.scope.as_deref(), body.reason.as_deref())?.ids(app, max).await
}

/// Drop a dead letter without running it again
#[utoipa::path(
    delete, path = "/v1/dead-letters/{call_id}", tag = "dead letters",
    params(("call_id" = String, Path, description = "Which call")),
    responses((status = 200, description = "It is settled", body = DropAnswer)),
)]
pub(crate) async fn drop_one(State(app): State<App>, PathText(id): PathText) -> Result<Json<DropAnswer>, ApiError> {
    let call_id = convert::call_id(&id)?;
    if app.store().drop_dead(&call_id).await? {
        return Ok(Json(DropAnswer { dropped: 1 }));
    }
    Err(not_dead(&call_id, app.store().call(&call_id).await?.as_ref()))
}

/// Drop all dead letters of a filter
#[utoipa::path(
    post, path = "/v1/dead-letters:drop", tag = "dead letters", request_body = DeadLetterFilter,
    responses((status = 200, description = "How many are settled", body = DropAnswer)),
)]
pub(crate) async fn drop_all(State(app): State<App>, JsonBody(body): JsonBody<DeadLetterFilter>) -> Result<Json<DropAnswer>, ApiError> {
    let mut dropped = 0;
    for call_id in all(&app, &body).await? {
        dropped += u64::from(app.store().drop_dead(&call_id).await?);
    }
    Ok(Json(DropAnswer { dropped }))
}
