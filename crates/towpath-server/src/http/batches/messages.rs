//! Messages in; open batches closed or postponed.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use serde_json::value::RawValue;
use towpath::batches::{Message, Pushed};
use towpath_core::batch::SealReply;

use super::known;
use crate::http::app::App;
use crate::http::codes::Code;
use crate::http::convert::batches as convert;
use crate::http::error::ApiError;
use crate::http::extract::{PathPair, PathText, RawJsonBody};
use crate::http::wire::batches::{MessageAnswer, MessageAnswers, SealAnswer};

const MESSAGES_MAX: usize = 1_000;

/// Push a message, or `{"messages": [..]}`
///
/// A message is any JSON object that has what its batch key is made of. It is kept byte for byte; an answer of 202 or 200 means that it is on record.
#[utoipa::path(
    post, path = "/v1/batches/{batcher}/messages", tag = "batches",
    params(("batcher" = String, Path, description = "Which batcher")),
    request_body = Object,
    responses(
        (status = 202, description = "Taken. Of several, each has its own answer.", body = MessageAnswer),
        (status = 200, description = "A message with its id was taken before", body = MessageAnswer),
    ),
)]
pub(crate) async fn push(
    State(app): State<App>,
    PathText(batcher): PathText,
    RawJsonBody(body): RawJsonBody,
) -> Result<Response, ApiError> {
    let batcher = known(&app, &batcher).await?.name;
    let handle = app.towpath().batch(&batcher);
    let Some(messages) = listed(&body)? else {
        let pushed = handle.push_all(vec![Message::new(body)]).await?.into_iter().next();
        let pushed = pushed.ok_or_else(|| ApiError::new(Code::Internal, "the store gave no answer"))??;
        let status = if matches!(pushed, Pushed::Accepted { .. }) { StatusCode::ACCEPTED } else { StatusCode::OK };
        return Ok((status, Json(convert::message_answer(&pushed))).into_response());
    };
    let answers = handle.push_all(messages).await?.into_iter().map(|pushed| match pushed {
        Ok(pushed) => convert::message_answer(&pushed),
        Err(error) => MessageAnswer { error: Some(ApiError::from(error).in_list()), ..MessageAnswer::default() },
    });
    Ok((StatusCode::ACCEPTED, Json(MessageAnswers { results: answers.collect() })).into_response())
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed<'a> {
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
}

/// The messages of a body that is nothing but a list of them. A message may have a field of that name beside others.
fn listed(body: &bytes::Bytes) -> Result<Option<Vec<Message>>, ApiError> {
    let Ok(listed) = serde_json::from_slice::<Listed<'_>>(body) else { return Ok(None) };
    let count = listed.messages.len();
    if count > MESSAGES_MAX {
        let message = format!("there are {count} messages: send at most {MESSAGES_MAX} at once");
        return Err(ApiError::new(Code::BatchTooLarge, message).field("messages").details(json!({ "limit": MESSAGES_MAX })));
    }
    let own = |message: &RawValue| Message::new(body.slice_ref(message.get().as_bytes()));
    Ok(Some(listed.messages.into_iter().map(own).collect()))
}

/// Close an open batch now
#[utoipa::path(
    post, path = "/v1/batches/{batcher}/keys/{batch_key}/flush", tag = "batches",
    params(("batcher" = String, Path, description = "Which batcher"), ("batch_key" = String, Path, description = "Whose batch, percent-encoded")),
    responses((status = 200, description = "It is closed", body = SealAnswer)),
)]
pub(crate) async fn flush(State(app): State<App>, PathPair(batcher, key): PathPair) -> Result<Json<SealAnswer>, ApiError> {
    let (batcher, key) = (known(&app, &batcher).await?.name, convert::batch_key(&key)?);
    sealed(app.towpath().batch(&batcher).flush(&key).await?, key.as_str())
}

/// Postpone an open batch: its sender is typing
///
/// The deadline moves out, never in, never beyond the longest wait.
#[utoipa::path(
    post, path = "/v1/batches/{batcher}/keys/{batch_key}/touch", tag = "batches",
    params(("batcher" = String, Path, description = "Which batcher"), ("batch_key" = String, Path, description = "Whose batch, percent-encoded")),
    responses((status = 200, description = "When it closes now", body = SealAnswer)),
)]
pub(crate) async fn touch(State(app): State<App>, PathPair(batcher, key): PathPair) -> Result<Json<SealAnswer>, ApiError> {
    let (batcher, key) = (known(&app, &batcher).await?.name, convert::batch_key(&key)?);
    sealed(app.towpath().batch(&batcher).touch(&key).await?, key.as_str())
}

fn sealed(reply: SealReply, key: &str) -> Result<Json<SealAnswer>, ApiError> {
    let (outcome, deadline, size) = match reply {
        SealReply::Flushed { size } => ("flushed", None, Some(size)),
        SealReply::Touched { deadline } => ("touched", Some(deadline), None),
        SealReply::Sealed { deadline } => ("sealed", Some(deadline), None),
        SealReply::Rearmed { deadline } => ("rearmed", Some(deadline), None),
        SealReply::InFlight | SealReply::Empty => return Err(nothing_open(key)),
    };
    let deadline = deadline.map(|deadline| deadline.as_millis());
    Ok(Json(SealAnswer { outcome: outcome.to_owned(), batch_key: key.to_owned(), deadline, size }))
}

pub(super) fn nothing_open(key: &str) -> ApiError {
    ApiError::new(Code::BatchNotFound, format!("nothing is open for '{key}'")).field("batch_key")
}
