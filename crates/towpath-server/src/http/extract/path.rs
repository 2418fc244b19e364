//! A part of the path, decoded. It may hold any text; what the text means is for the handler to check.

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use crate::http::codes::Code;
use crate::http::error::ApiError;

/// The one variable part of a path.
pub(crate) struct PathText(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathText {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = Path::<String>::from_request_parts(parts, state).await;
        read.map(|Path(text)| Self(text)).map_err(|refused| unreadable(&refused))
    }
}

/// The two variable parts of a path.
pub(crate) struct PathPair(pub(crate) String, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathPair {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = Path::<(String, String)>::from_request_parts(parts, state).await;
        read.map(|Path((first, second))| Self(first, second)).map_err(|refused| unreadable(&refused))
    }
}

fn unreadable(refused: &PathRejection) -> ApiError {
    let message = format!("the path cannot be read: {}", refused.body_text().to_lowercase());
    ApiError::new(Code::InvalidName, message).field("path").hint("percent-encode the UTF-8 bytes of the name")
}
