//! A request's id, which stands in the answer's header, in an error's body and in the log, so that the three can be brought together.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const BYTES_MAX: usize = 64;

/// Which request.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestId(Arc<str>);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RequestId {
    /// Random per process and counted within it: unique without asking a clock.
    fn fresh() -> Self {
        static PROCESS: OnceLock<u64> = OnceLock::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let process = PROCESS.get_or_init(|| RandomState::new().build_hasher().finish());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(format!("req-{process:016x}-{count}").into())
    }

    /// The client's own id, if it is a plain short word: anything else could garble the log.
    fn given(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(HEADER)?.to_str().ok()?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let fits = (1..=BYTES_MAX).contains(&text.len()) && text.bytes().all(plain);
        fits.then(|| Self(text.into()))
    }
}

/// Gives each request an id and its answer the same one.
pub(crate) async fn assign(mut request: Request, next: Next) -> Response {
    let id = RequestId::given(request.headers()).unwrap_or_else(RequestId::fresh);
    request.extensions_mut().insert(id.clone());
    let mut response = next.run(request).await;
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_str(value).unwrap());
        RequestId::given(&headers).map(|id| id.to_string())
    }

    #[test]
    fn a_clients_id_is_kept_only_if_it_is_a_plain_short_word() {
        assert_eq!(given("order-17.b"), Some("order-17.b".to_owned()));
        for refused in ["", "a b", "a\u{9}b", "a;b", &"x".repeat(65)] {
            assert_eq!(given(refused), None, "{refused:?}");
        }
    }

    #[test]
    fn two_fresh_ids_differ() {
        assert_ne!(RequestId::fresh().to_string(), RequestId::fresh().to_string());
    }
}
