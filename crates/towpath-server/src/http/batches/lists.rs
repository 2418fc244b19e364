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
use crate::http::wire::batches::{BatchBody, BatchPage, BatchQuery, BatcherBody, BatcherList};

const LIMIT_DEFAULT: u32 = 50;

/// List the batchers
#[utoipa::path(get, path = "/v1/batches", tag = "batches", responses((status = 200, description = "All of them", body = BatcherList)))]
pub(crate) async fn list(State(app): State<App>) -> Result<Json<BatcherList>, ApiError> {
    let mut batchers = Vec::new();
    for known in app.towpath().batchers().list().await? {
        batchers.push(batcher(&app, &known).await?);
    }
    Ok(Json(BatcherList { batchers }))
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
#[utoipa::path(
    get, path = "/v1/batches/{batcher}/{batch_key}", tag = "batches",
    params(("batcher" = String, Path, description = "Which batcher"), ("batch_key" = String, Path, description = "Whose batch, percent-encoded")),
    responses((status = 200, description = "The batch", body = BatchBody)),
)]
pub(crate) async fn show_batch(State(app): State<App>, PathPair(batcher, key): PathPair) -> Result<Json<BatchBody>, ApiError> {
    let (known, key) = (known(&app, &batcher).await?, convert::batch_key(&key)?);
    match app.towpath().batch(&known.name).show(&key).await? {
        Some(view) => Ok(Json(convert::whole_batch(&view))),
        None => Err(nothing_open(key.as_str())),
    }
}
