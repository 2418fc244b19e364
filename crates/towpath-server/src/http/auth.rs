//! Who may ask. With keys, every route but the probes wants one; a path that the table does not know wants one too.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use thiserror::Error;

use super::app::App;
use super::codes::Code;
use super::error::ApiError;
use super::routes::Permission;

/// A key that opens the API. Only its digest is kept, so that neither a log nor a dump of memory gives it away.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey([u8; 32]);

/// Text that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidApiKey {
    /// Nothing, or only spaces.
    #[error("an API key is empty: give it at least one character")]
    Empty,
    /// A key has to stand in an HTTP header.
    #[error("an API key has a space, a control character or a character outside ASCII: use letters, digits and punctuation")]
    Unprintable,
}

impl FromStr for ApiKey {
    type Err = InvalidApiKey;

    fn from_str(text: &str) -> Result<Self, InvalidApiKey> {
        let text = text.trim();
        if text.is_empty() {
            return Err(InvalidApiKey::Empty);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidApiKey::Unprintable);
        }
        Ok(Self(Sha256::digest(text).into()))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(..)")
    }
}

/// The keys that open this server; none means that everyone who reaches it may ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys(Vec<ApiKey>);

impl Keys {
    pub(crate) fn new(keys: Vec<ApiKey>) -> Self {
        Self(keys)
    }

    /// Whether these headers carry one of the keys. Takes the same time for every wrong key: all are compared, whole digests at a time.
    fn open_for(&self, headers: &HeaderMap) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).and_then(bearer).unwrap_or_default();
        let digest: [u8; 32] = Sha256::digest(given).into();
        let matches = self.0.iter().fold(subtle::Choice::from(0), |any, key| any | key.0.ct_eq(&digest));
        !given.is_empty() && bool::from(matches)
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Whether the request is for a route that old clients know, comes from this very machine, and the operator has waived the key for that.
/// What a proxy has passed on comes from elsewhere.
fn is_waived(app: &App, request: &Request) -> bool {
    let is_old = request.extensions().get::<MatchedPath>().is_some_and(|path| matches!(path.as_str(), "/ingest" | "/dlq"));
    let is_near = request.extensions().get::<ConnectInfo<SocketAddr>>().is_some_and(|ConnectInfo(peer)| peer.ip().is_loopback());
    let is_passed_on = ["forwarded", "x-forwarded-for", "x-real-ip", "via"].iter().any(|name| request.headers().contains_key(*name));
    app.elo_routes().open && is_old && is_near && !is_passed_on
}

/// Lets a request through, or says that it needs a key.
pub(crate) async fn require(State(app): State<App>, request: Request, next: Next) -> Response {
    if app.permission_of(&request) == Permission::Public || app.keys().open_for(request.headers()) || is_waived(&app, &request) {
        return next.run(request).await;
    }
    let message =
        if request.headers().contains_key(AUTHORIZATION) { "this key does not open the server" } else { "the server wants a key" };
    let refused = ApiError::new(Code::Unauthorized, message).field("authorization").hint("send 'Authorization: Bearer <key>'");
    let mut response = refused.into_response();
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opens(keys: &[&str], header: Option<&str>) -> bool {
        let keys = Keys::new(keys.iter().map(|key| key.parse().unwrap()).collect());
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        keys.open_for(&headers)
    }

    #[test]
    fn any_of_the_keys_opens_and_nothing_else_does() {
        let keys = ["first-key", "second-key"];
        for good in ["Bearer first-key", "bearer second-key", "BEARER  first-key "] {
            assert!(opens(&keys, Some(good)), "{good}");
        }
        for bad in
            ["Bearer ", "Bearer", "first-key", "Basic first-key", "Bearer first-ke", "Bearer first-keyy", "Bearer first-key,second-key"]
        {
            assert!(!opens(&keys, Some(bad)), "{bad}");
        }
        assert!(!opens(&keys, None));
        assert!(opens(&[], None), "without keys everyone may ask");
    }

    #[test]
    fn a_key_never_shows_in_debug_output() {
        let key: ApiKey = "top-secret".parse().unwrap();
        assert_eq!(format!("{key:?}"), "ApiKey(..)");
    }

    #[test]
    fn keys_that_cannot_stand_in_a_header_are_refused() {
        assert_eq!(" ".parse::<ApiKey>(), Err(InvalidApiKey::Empty));
        for bad in ["a b", "a\nb", "ключ"] {
            assert_eq!(bad.parse::<ApiKey>(), Err(InvalidApiKey::Unprintable), "{bad}");
        }
    }
}
