//! What there is: batchers, open batches, batches in flight.

use axum::Json;
use axum::extract::State;
use towpath::batches::{Cursor, KnownBatcher};

use super::known;
use super::messages::nothing_open;
use crate::http::app::App;
use crate::http::bounds;
use crate::http::codes::Code;
use crate::http::convert::batches as convert;
use crate::http::error::ApiError;
use crate::http::extract::{PathPair, PathText, Query};
use crate::http::pages::{self, PageQuery};
use crate::http::wire::batches::{BatchBody, BatchMessagesQuery, BatchPage, BatchQuery, BatcherBody, BatcherList};

const LIMIT_DEFAULT: u32 = 50;

/// List the batchers
#[utoipa::path(
    get, path = "/v1/batches", tag = "batches", params(PageQuery),
    responses((status = 200, description = "By name", body = BatcherList)),
)]
pub(crate) async fn list(State(app): State<App>, Query(query): Query<PageQuery>) -> Result<Json<BatcherList>, ApiError> {
    let (limit, after) = (query.limit()?, query.cursor.as_deref().map(convert::batcher_name).transpose()?);
    let mut all = app.towpath().batchers().list().await?;
    all.sort_by(|one, other| one.name.cmp(&other.name));
    let wanted = all.into_iter().filter(|known| after.as_ref().is_none_or(|after| known.name > *after));
    let (page, next) = pages::cut(wanted, limit, |_small| 0, |known| known.name.to_string());
    let mut batchers = Vec::with_capacity(page.len());
    for known in page {
        batchers.push(batcher(&app, &known).await?);
    }
    Ok(Json(BatcherList { batchers, next }))
}

async fn batcher(app: &App, known: &KnownBatcher) -> Result<BatcherBody, ApiError> {
    let counts = app.towpath().batch(&known.name).counts().await?;
    Ok(BatcherBody {
        batcher: known.name.to_string(),
        target: convert::target_word(known.settings.target.as_ref()).to_owned(),
        open_keys: counts.open_keys,
        open_messages: counts.open_messages,
        in_flight: counts.in_flight,
        dead_letters: counts.dead_letters,
    })
}

/// Show a batcher and its batches
#[utoipa::path(
    get, path = "/v1/batches/{batcher}", tag = "batches",
    params(("batcher" = String, Path, description = "Which batcher"), BatchQuery),
    responses((status = 200, description = "A page of them", body = BatchPage)),
)]
pub(crate) async fn show_batcher(
    State(app): State<App>,
    PathText(name): PathText,
    Query(query): Query<BatchQuery>,
) -> Result<Json<BatchPage>, ApiError> {
    let known = known(&app, &name).await?;
    let limit = bounds::check("limit", query.limit)?.unwrap_or(LIMIT_DEFAULT);
    let (handle, after) = (app.towpath().batch(&known.name), query.cursor.map(Cursor));
    let (batches, next) = match query.state.as_deref() {
        None | Some("open") => {
            let page = handle.open(after, limit).await?;
            (page.items.iter().map(convert::open_batch).collect(), page.next)
        }
        Some("in_flight") => {
            let page = handle.in_flight(after, limit).await?;
            (page.items.iter().map(convert::flight).collect(), page.next)
        }
        Some(_) => return Err(ApiError::new(Code::InvalidField, "'state' is open or in_flight").field("state")),
    };
    Ok(Json(BatchPage { batcher: batcher(&app, &known).await?, batches, next: next.map(|next| next.0) }))
}

/// Show an open batch and its messages
///
/// Up to 200 messages and 1 MiB at once; `next` leads to those behind. When a batch leaves between two pages, messages move up.
#[utoipa::path(
    get, path = "/v1/batches/{batcher}/keys/{batch_key}", tag = "batches",
    params(("batcher" = String, Path, description = "Which batcher"), ("batch_key" = String, Path, description = "Whose batch, percent-encoded"),
        BatchMessagesQuery),
    responses((status = 200, description = "The batch", body = BatchBody)),
)]
pub(crate) async fn show_batch(
    State(app): State<App>,
    PathPair(batcher, key): PathPair,
    Query(query): Query<BatchMessagesQuery>,
) -> Result<Json<BatchBody>, ApiError> {
    let (known, key) = (known(&app, &batcher).await?, convert::batch_key(&key)?);
    let from = query.cursor.unwrap_or(0);
    match app.towpath().batch(&known.name).show_from(&key, from).await? {
        Some(view) => Ok(Json(convert::whole_batch(&view, from))),
        None => Err(nothing_open(key.as_str())),
    }
}
