//! Dead letters of batches: list, show, replay, drop.

use std::num::NonZeroU32;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use towpath::batches::{BatchId, BatcherName, Cursor, DeadLetter, DeadLetterQuery, DeadLetters, Select};

use crate::http::app::App;
use crate::http::bounds;
use crate::http::codes::Code;
use crate::http::convert::{self, batches as names};
use crate::http::error::{ApiError, invalid_name};
use crate::http::extract::{JsonBody, PathText, Query};
use crate::http::wire::batches::{BatchDeadLetter, BatchDeadLetterChoice, BatchDeadLetterQuery, BatchDeadLetters, BatchReplayAnswer};
use crate::http::wire::dead_letters::DropAnswer;

const LIMIT_DEFAULT: u32 = 50;
const RATE_MAX: u64 = 10_000;
/// Who is written down for what is dropped over the API.
pub(crate) const WHO: &str = "http";

/// List dead letters of batches, oldest first
#[utoipa::path(
    get, path = "/v1/batch-dead-letters", tag = "batch dead letters", params(BatchDeadLetterQuery),
    responses((status = 200, description = "A page of them", body = BatchDeadLetters)),
)]
pub(crate) async fn list(State(app): State<App>, Query(query): Query<BatchDeadLetterQuery>) -> Result<Json<BatchDeadLetters>, ApiError> {
    let limit = bounds::check("limit", query.limit)?.unwrap_or(LIMIT_DEFAULT);
    let key = query.batch_key.as_deref().map(names::batch_key).transpose()?;
    let wanted = DeadLetterQuery { reason: query.reason, key, newest_first: false, after: query.cursor.map(Cursor), limit };
    let page = of(&app, query.batcher.as_deref())?.list(&wanted).await?;
    let dead_letters = page.items.iter().map(|(batcher, letter)| body(batcher, letter)).collect();
    Ok(Json(BatchDeadLetters { dead_letters, next: page.next.map(|next| next.0) }))
}

fn of(app: &App, batcher: Option<&str>) -> Result<DeadLetters, ApiError> {
    let letters = app.towpath().dead_letters();
    match batcher {
        Some(name) => Ok(letters.batcher(names::batcher_name(name)?.as_str())),
        None => Ok(letters),
    }
}

fn body(batcher: &BatcherName, letter: &DeadLetter) -> BatchDeadLetter {
    BatchDeadLetter { id: letter.id.to_string(), batcher: batcher.to_string(), entry: convert::json(&letter.redacted()) }
}

fn batch_id(text: &str) -> Result<BatchId, ApiError> {
    BatchId::new(text).map_err(|refused| invalid_name("id", &refused))
}

fn not_found(id: &BatchId) -> ApiError {
    ApiError::new(Code::DeadLetterNotFound, format!("there is no dead letter '{id}' of a batch"))
        .field("id")
        .hint("GET /v1/batch-dead-letters lists what there is")
}

/// Show a dead letter of a batch
#[utoipa::path(
    get, path = "/v1/batch-dead-letters/{id}", tag = "batch dead letters",
    params(("id" = String, Path, description = "Which")),
    responses((status = 200, description = "The entry, secrets hidden", body = BatchDeadLetter)),
)]
pub(crate) async fn show(State(app): State<App>, PathText(id): PathText) -> Result<Json<BatchDeadLetter>, ApiError> {
    let id = batch_id(&id)?;
    match app.towpath().dead_letters().show(&id).await? {
        Some((batcher, letter)) => Ok(Json(body(&batcher, &letter))),
        None => Err(not_found(&id)),
    }
}

/// Deliver dead letters again, under the same batch ids
#[utoipa::path(
    post, path = "/v1/batch-dead-letters:replay", tag = "batch dead letters", request_body = BatchDeadLetterChoice,
    responses((status = 202, description = "What became of each", body = BatchReplayAnswer)),
)]
pub(crate) async fn replay(
    State(app): State<App>,
    JsonBody(choice): JsonBody<BatchDeadLetterChoice>,
) -> Result<(StatusCode, Json<BatchReplayAnswer>), ApiError> {
    let rate = bounds::check_within("rate_per_second", choice.rate_per_second.map(u64::from), 1, RATE_MAX)?;
    let rate = rate.and_then(|rate| u32::try_from(rate).ok()).and_then(NonZeroU32::new);
    let select = select(&choice)?;
    let replays = of(&app, choice.batcher.as_deref())?.replay(&select, rate).await?;
    if let (Select::Ids(ids), [only]) = (&select, replays.not_replayable.as_slice())
        && ids.len() == 1
    {
        return Err(towpath::batches::BatchError::NotReplayable { id: only.clone() }.into());
    }
    let texts = |ids: Vec<BatchId>| ids.iter().map(ToString::to_string).collect();
    let answer = BatchReplayAnswer {
        replayed: texts(replays.replayed),
        in_flight: texts(replays.in_flight),
        gone: texts(replays.gone),
        not_replayable: texts(replays.not_replayable),
    };
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

fn select(choice: &BatchDeadLetterChoice) -> Result<Select, ApiError> {
    let key = choice.batch_key.as_deref().map(names::batch_key).transpose()?;
    let filtered = choice.reason.is_some() || key.is_some();
    match (choice.ids.is_empty(), filtered || choice.batcher.is_some(), choice.all) {
        (false, _, false) if !filtered => Ok(Select::Ids(choice.ids.iter().map(|id| batch_id(id)).collect::<Result<_, _>>()?)),
        (true, true, _) if filtered => {
            Ok(Select::Matching(DeadLetterQuery { reason: choice.reason.clone(), key, ..DeadLetterQuery::default() }))
        }
        (true, true, _) | (true, false, true) => Ok(Select::All),
        (true, false, false) => Err(ApiError::new(Code::MissingField, "which dead letters? give ids, a filter, or all").field("ids")),
        _ => Err(ApiError::new(Code::Ambiguous, "give ids, or a filter, or all").field("ids")),
    }
}

/// Drop dead letters of batches
#[utoipa::path(
    post, path = "/v1/batch-dead-letters:drop", tag = "batch dead letters", request_body = BatchDeadLetterChoice,
    responses((status = 200, description = "How many are gone", body = DropAnswer)),
)]
pub(crate) async fn drop_many(
    State(app): State<App>,
    JsonBody(choice): JsonBody<BatchDeadLetterChoice>,
) -> Result<Json<DropAnswer>, ApiError> {
    let select = select(&choice)?;
    Ok(Json(DropAnswer { dropped: of(&app, choice.batcher.as_deref())?.drop(&select, WHO).await? }))
}

/// Drop a dead letter of a batch
#[utoipa::path(
    delete, path = "/v1/batch-dead-letters/{id}", tag = "batch dead letters",
    params(("id" = String, Path, description = "Which")),
    responses((status = 200, description = "It is gone", body = DropAnswer)),
)]
pub(crate) async fn drop_one(State(app): State<App>, PathText(id): PathText) -> Result<Json<DropAnswer>, ApiError> {
    let id = batch_id(&id)?;
    match app.towpath().dead_letters().drop(&Select::Ids(vec![id.clone()]), WHO).await? {
        0 => Err(not_found(&id)),
        dropped => Ok(Json(DropAnswer { dropped })),
    }
}
