//! The JSON body of a request: right content type, bounded size and time, bounded depth, known fields.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use super::depth::{DEPTH_MAX, is_too_deep};
use super::shape;
use crate::http::app::App;
use crate::http::codes::Code;
use crate::http::error::{ApiError, payload_too_large};

/// The largest body.
pub(crate) const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// So much of a refused body is read and thrown away, so that a client that is still writing gets to read the answer.
const DISCARD_BYTES_MAX: usize = 16 * 1024 * 1024;
const DISCARD_TIME_MAX: Duration = Duration::from_secs(5);

/// A body that must be there.
pub(crate) struct JsonBody<T>(pub(crate) T);

/// A body that may be left out when everything in it has a default.
pub(crate) struct OptionalJsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        check_type(request.headers())?;
        let text = read(request, app.body_time_max()).await?;
        parse(&text).map(Self)
    }
}

impl<T: DeserializeOwned + Default> FromRequest<App> for OptionalJsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let typed = request.headers().contains_key(CONTENT_TYPE);
        if typed {
            check_type(request.headers())?;
        }
        let text = read(request, app.body_time_max()).await?;
        match (text.is_empty(), typed) {
            (true, _) => Ok(Self(T::default())),
            (false, true) => parse(&text).map(Self),
            (false, false) => Err(wrong_type("there is no content type")),
        }
    }
}

/// A body that is JSON of any kind, byte for byte.
pub(crate) struct RawJsonBody(pub(crate) Bytes);

impl FromRequest<App> for RawJsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        check_type(request.headers())?;
        let text = read(request, app.body_time_max()).await?;
        refuse_deep(&text)?;
        shape::check(&text)?;
        Ok(Self(text))
    }
}

fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(ApiError::new(Code::UnsupportedMediaType, "compressed bodies are not taken").field("content-encoding"));
    }
    let Some(value) = headers.get(CONTENT_TYPE) else { return Err(wrong_type("there is no content type")) };
    let value = String::from_utf8_lossy(value.as_bytes());
    let essence = value.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(wrong_type(&format!("the content type is '{}'", essence.escape_default())))
}

fn wrong_type(what: &str) -> ApiError {
    ApiError::new(Code::UnsupportedMediaType, format!("{what}: send JSON with 'Content-Type: application/json'")).field("content-type")
}

/// Reads the body, unless it is too large; then little of it is looked at and none of it kept.
async fn read(request: Request, time_max: Duration) -> Result<Bytes, ApiError> {
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > BODY_BYTES_MAX as u64) {
        // A client that expects `100 Continue` has not sent anything yet and now never will.
        if !request.headers().contains_key(EXPECT) {
            discard(request.into_body()).await;
        }
        return Err(too_large(announced));
    }
    let mut body = request.into_body();
    match tokio::time::timeout(time_max, collect(&mut body)).await {
        Err(_elapsed) => Err(ApiError::new(Code::BodyTimeout, format!("the body did not arrive within {time_max:?}")).field("body")),
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => {
            discard(body).await;
            Err(too_large(None))
        }
        Ok(Err(broken)) => Err(ApiError::new(Code::InvalidBody, format!("the body could not be read to its end: {broken}"))),
    }
}

/// The whole body; `None` as soon as it is too large.
async fn collect(body: &mut Body) -> Result<Option<Bytes>, axum::Error> {
    let (mut parts, mut bytes) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(part) = frame?.into_data() else { continue };
        bytes += part.len();
        if bytes > BODY_BYTES_MAX {
            return Ok(None);
        }
        parts.push(part);
    }
    Ok(Some(if parts.len() == 1 { parts.swap_remove(0) } else { parts.concat().into() }))
}

async fn discard(body: Body) {
    let reading = async {
        let (mut stream, mut bytes) = (body.into_data_stream(), 0);
        while let Some(Ok(part)) = stream.next().await {
            bytes += part.len();
            if bytes > DISCARD_BYTES_MAX {
                break;
            }
        }
    };
    // Running out of time is fine: the answer goes out, and the connection is closed.
    let _elapsed = tokio::time::timeout(DISCARD_TIME_MAX, reading).await;
}

fn too_large(announced: Option<u64>) -> ApiError {
    let limit = BODY_BYTES_MAX as u64;
    let (size, bytes) = announced.map_or_else(|| ("too many".to_owned(), limit + 1), |bytes| (bytes.to_string(), bytes));
    payload_too_large("body", format!("the body has {size} bytes: at most {limit} are taken"), bytes, limit)
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiError> {
    refuse_deep(text)?;
    shape::read(text)
}

fn refuse_deep(text: &[u8]) -> Result<(), ApiError> {
    if is_too_deep(text) {
        let message = format!("the body nests deeper than {DEPTH_MAX} levels");
        return Err(ApiError::new(Code::TooDeep, message).field("body").details(serde_json::json!({ "limit": DEPTH_MAX })));
    }
    Ok(())
}
