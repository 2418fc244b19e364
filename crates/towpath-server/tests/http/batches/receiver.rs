//! A receiver of batches: a real HTTP server that remembers what it got and answers by the path.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use towpath::{Clock, SystemClock, Timestamp};

/// A request that the receiver got.
#[derive(Clone, Debug)]
pub(super) struct Got {
    pub(super) at: Timestamp,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Got {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("there is no {name}")).to_str().unwrap()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[derive(Clone)]
pub(super) struct Receiver {
    got: Arc<Mutex<Vec<Got>>>,
    /// One permit lets one go who hangs, whether it hangs already or will.
    release: Arc<Semaphore>,
    pub(super) base: String,
    pub(super) port: u16,
}

impl Receiver {
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let receiver =
            Self { got: Arc::default(), release: Arc::new(Semaphore::new(0)), base: format!("http://{addr}"), port: addr.port() };
        let router = Router::new().fallback(respond).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        receiver
    }

    pub(super) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    /// Waits for so many requests.
    pub(super) async fn gets(&self, count: usize) -> Vec<Got> {
        super::until(&format!("{count} deliveries"), async || Some(self.got()).filter(|got| got.len() >= count)).await
    }

    /// Lets go one who hangs.
    pub(super) fn release(&self) {
        self.release.add_permits(1);
    }
}

async fn respond(State(receiver): State<Receiver>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    receiver.got.lock().unwrap().push(Got { at: SystemClock::new().now(), headers, body: body.to_vec() });
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    if message["messages"][0]["id"] == "hang" {
        receiver.release.acquire().await.unwrap().forget();
    }
    match uri.path().trim_start_matches('/') {
        "hang" => {
            receiver.release.acquire().await.unwrap().forget();
            StatusCode::OK.into_response()
        }
        "busy" => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")], "come back").into_response(),
        "redirect" => (StatusCode::TEMPORARY_REDIRECT, [("location", "/200")], "").into_response(),
        "endless" => {
            let parts = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 10_000])));
            axum::body::Body::from_stream(parts).into_response()
        }
        "error_field" => axum::Json(json!({ "error": "no such client" })).into_response(),
        status => StatusCode::from_u16(status.parse().unwrap_or(200)).unwrap().into_response(),
    }
}

/// A receiver that takes a request and breaks the connection without a word.
pub(super) async fn rude() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // Closed so, a connection is reset.
            socket.set_zero_linger().unwrap();
            drop(socket);
        }
    });
    base
}
