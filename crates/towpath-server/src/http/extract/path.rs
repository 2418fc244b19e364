//! A part of the path, decoded. It may hold any text; what the text means is for the handler to check.

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use crate::http::codes::Code;
use crate::http::error::ApiError;

/// Marks a key whose segment would otherwise be `.`, `..` or empty, which URL libraries fold away. No key has a control character, so it
/// is never part of one.
const MARK: char = '\u{7f}';

fn key(segment: String) -> String {
    match segment.strip_prefix(MARK) {
        Some(key) => key.to_owned(),
        None => segment,
    }
}

/// The one variable part of a path.
pub(crate) struct PathText(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathText {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = Path::<String>::from_request_parts(parts, state).await;
        read.map(|Path(text)| Self(key(text))).map_err(|refused| unreadable(&refused))
    }
}

/// The two variable parts of a path.
pub(crate) struct PathPair(pub(crate) String, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathPair {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = Path::<(String, String)>::from_request_parts(parts, state).await;
        read.map(|Path((first, second))| Self(key(first), key(second))).map_err(|refused| unreadable(&refused))
    }
}

fn unreadable(refused: &PathRejection) -> ApiError {
    let message = format!("the path cannot be read: {}", refused.body_text().to_lowercase());
    ApiError::new(Code::InvalidName, message).field("path").hint("percent-encode the UTF-8 bytes of the name")
}
