//! Batches for those who fetch them.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use towpath::batches::{BatchHandle, BatchId, PullToken, PulledBatch, Settle, Settled, Target};

use super::known;
use crate::http::app::App;
use crate::http::bounds;
use crate::http::codes::Code;
use crate::http::convert;
use crate::http::error::{ApiError, invalid_name};
use crate::http::extract::{JsonBody, OptionalJsonBody, PathText};
use crate::http::wire::batches::{FinishAnswer, FinishBody, FinishItem, FinishResult, PullAnswer, PullBody, PulledBody};

const WAIT_MS_MAX: u64 = 60_000;
const PULL_MAX: u64 = 100;
const RESULTS_MAX: usize = 1_000;
const ERROR_CHARS_MAX: usize = 2_000;

/// Fetch batches, waiting for one if need be
#[utoipa::path(
    post, path = "/v1/batches/{batcher}/claim", tag = "batches", request_body = PullBody,
    params(("batcher" = String, Path, description = "Which batcher")),
    responses((status = 200, description = "Those that are due, if any", body = PullAnswer)),
)]
pub(crate) async fn claim(
    State(app): State<App>,
    PathText(batcher): PathText,
    OptionalJsonBody(body): OptionalJsonBody<PullBody>,
) -> Result<Json<PullAnswer>, ApiError> {
    let known = known(&app, &batcher).await?;
    if known.settings.target != Some(Target::Pull) {
        let message = format!("batches of '{}' are not for consumers to fetch", known.name);
        return Err(ApiError::new(Code::NotPulled, message).field("batcher").hint("set its target to {\"pull\": true}"));
    }
    let batcher = known.name;
    let max = bounds::check_within("max", body.max, 1, PULL_MAX)?.unwrap_or(1);
    let wait = Duration::from_millis(bounds::check_within("wait_ms", body.wait_ms, 0, WAIT_MS_MAX)?.unwrap_or(0));
    let (handle, gone) = (app.towpath().batch(&batcher), CancellationToken::new());
    let _asker = gone.clone().drop_guard();
    let (sender, receiver) = oneshot::channel();
    let (app, max) = (app.clone(), usize::try_from(max).unwrap_or(usize::MAX));
    // On its own: a client that hangs up must not tear a claim apart.
    tokio::spawn(async move {
        let enough = async {
            tokio::select! {
                () = gone.cancelled() => {}
                () = app.drain().begun() => {}
            }
        };
        let claimed = handle.claim_unless(max, wait, enough).await;
        if let Err(Ok(unwanted)) = sender.send(claimed) {
            give_back(&handle, unwanted).await;
        }
    });
    let claimed = receiver.await.map_err(|_| ApiError::new(Code::Internal, "the claim broke off"))??;
    let batches = claimed.into_iter().map(|pulled| PulledBody {
        batch_id: pulled.batch.batch_id.to_string(),
        batch_key: pulled.batch.key.to_string(),
        token: pulled.token.to_string(),
        attempt: pulled.batch.attempt,
        lease_end: pulled.batch.lease_end.as_millis(),
        payload: convert::json(&pulled.payload),
    });
    Ok(Json(PullAnswer { batches: batches.collect() }))
}

/// The client that wanted them is gone: the next one need not wait for the lease.
async fn give_back(handle: &BatchHandle, unwanted: Vec<PulledBatch>) {
    for pulled in unwanted {
        let settle = Settle::Retry { error: "the consumer hung up".to_owned(), delay: Some(Duration::ZERO) };
        if let Err(error) = handle.settle(&pulled.batch.batch_id, &pulled.token, settle).await {
            tracing::debug!(%error, "a batch whose client was gone could not be given back");
        }
    }
}

/// Settle fetched batches
#[utoipa::path(
    post, path = "/v1/batches/{batcher}/finish", tag = "batches", request_body = FinishBody,
    params(("batcher" = String, Path, description = "Which batcher")),
    responses((status = 200, description = "For each whether it was so", body = FinishAnswer)),
)]
pub(crate) async fn finish(
    State(app): State<App>,
    PathText(batcher): PathText,
    JsonBody(body): JsonBody<FinishBody>,
) -> Result<Json<FinishAnswer>, ApiError> {
    let handle = app.towpath().batch(&known(&app, &batcher).await?.name);
    let items = read(&body)?;
    let settles = body.results.iter().enumerate().map(|(place, item)| settle(place, item)).collect::<Result<Vec<_>, _>>()?;
    let mut results = Vec::new();
    for ((batch_id, token), settle) in items.into_iter().zip(settles) {
        let result = match token {
            Some(token) => handle.settle(&batch_id, &token, settle).await?,
            None => Settled::Lost,
        };
        let result = if result == Settled::Done { "done" } else { "lost" };
        results.push(FinishResult { batch_id: batch_id.to_string(), result: result.to_owned(), lease_end: None });
    }
    Ok(Json(FinishAnswer { results }))
}

/// Prolong the leases of fetched batches
#[utoipa::path(
    post, path = "/v1/batches/{batcher}/extend", tag = "batches", request_body = FinishBody,
    params(("batcher" = String, Path, description = "Which batcher")),
    responses((status = 200, description = "For each whether it was so", body = FinishAnswer)),
)]
pub(crate) async fn extend(
    State(app): State<App>,
    PathText(batcher): PathText,
    JsonBody(body): JsonBody<FinishBody>,
) -> Result<Json<FinishAnswer>, ApiError> {
    let handle = app.towpath().batch(&known(&app, &batcher).await?.name);
    let mut results = Vec::new();
    for (batch_id, token) in read(&body)? {
        let lease_end = match token {
            Some(token) => handle.extend(&batch_id, &token).await?,
            None => None,
        };
        let result = if lease_end.is_some() { "extended" } else { "lost" };
        let lease_end = lease_end.map(|end| end.as_millis());
        results.push(FinishResult { batch_id: batch_id.to_string(), result: result.to_owned(), lease_end });
    }
    Ok(Json(FinishAnswer { results }))
}

/// Ids and tokens, before anything is done. A token that no claim ever gave opens nothing: its batch is lost.
fn read(body: &FinishBody) -> Result<Vec<(BatchId, Option<PullToken>)>, ApiError> {
    let count = body.results.len();
    if count > RESULTS_MAX {
        let message = format!("there are {count} results: send at most {RESULTS_MAX} at once");
        return Err(ApiError::new(Code::BatchTooLarge, message).field("results").details(json!({ "limit": RESULTS_MAX })));
    }
    let read = |(place, item): (usize, &FinishItem)| {
        let id = BatchId::new(&item.batch_id).map_err(|refused| invalid_name(format!("results[{place}].batch_id"), &refused))?;
        Ok((id, PullToken::parse(&item.token)))
    };
    body.results.iter().enumerate().map(read).collect()
}

fn settle(place: usize, item: &FinishItem) -> Result<Settle, ApiError> {
    let error = item.error.as_deref().unwrap_or("the consumer gave no reason").chars().take(ERROR_CHARS_MAX).collect();
    let delay = bounds::length("delay_ms", item.delay_ms)?;
    match item.verb.as_deref() {
        Some("ack") => Ok(Settle::Ack),
        Some("retry") => Ok(Settle::Retry { error, delay }),
        Some("dead") => Ok(Settle::Dead { error }),
        _ => Err(ApiError::new(Code::InvalidField, "'verb' is ack, retry or dead").field(format!("results[{place}].verb"))),
    }
}
