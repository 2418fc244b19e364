//! A receiver of batches that is slow, fails, and forgets to answer, at random; it remembers everything.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::runtime::Runtime;
use towpath::{Clock, SystemClock};

use super::Chance;

#[derive(Clone)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) key: u64,
    pub(super) number: u64,
}

/// A delivery, in the order in which they were answered.
#[derive(Clone)]
pub(super) struct Got {
    pub(super) batch_id: String,
    pub(super) attempt: u32,
    pub(super) messages: Vec<Message>,
    /// It was worked on; whether the server has heard so is another question.
    pub(super) was_well: bool,
}

#[derive(Clone)]
struct Shared {
    got: Arc<Mutex<Vec<Got>>>,
    /// `None` once it behaves.
    chance: Arc<Mutex<Option<Chance>>>,
}

pub(super) struct Receiver {
    shared: Shared,
    address: String,
    /// Dropped, it ends.
    _runtime: Runtime,
}

impl Receiver {
    pub(super) fn start(seed: u64) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads can be started");
        let shared = Shared { got: Arc::default(), chance: Arc::new(Mutex::new(Some(Chance(seed ^ 0x5eed)))) };
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = listener.local_addr().expect("it has an address").to_string();
        let router = Router::new().fallback(respond).with_state(shared.clone());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { shared, address, _runtime: runtime }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// From now on everything is answered well and at once.
    pub(super) fn behave(&self) {
        *self.shared.chance.lock().unwrap() = None;
    }

    pub(super) fn got(&self) -> Vec<Got> {
        self.shared.got.lock().unwrap().clone()
    }
}

async fn respond(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let mood = shared.chance.lock().unwrap().as_mut().map_or(9, |chance| chance.below(10));
    let note = |was_well: bool| shared.got.lock().unwrap().push(read(&headers, &body, was_well));
    match mood {
        0 => {
            note(false);
            StatusCode::SERVICE_UNAVAILABLE
        }
        // It works, and answers when nobody listens any more.
        1 => {
            note(true);
            let clock = SystemClock::new();
            clock.sleep_until(clock.now() + Duration::from_millis(500)).await;
            StatusCode::OK
        }
        // It works, and says that it did not.
        2 => {
            note(true);
            StatusCode::INTERNAL_SERVER_ERROR
        }
        _ => {
            note(true);
            StatusCode::OK
        }
    }
}

fn read(headers: &HeaderMap, body: &[u8], was_well: bool) -> Got {
    let payload: Value = serde_json::from_slice(body).expect("what is sent is JSON");
    let messages = payload["messages"].as_array().expect("it is a list").iter().map(|message| Message {
        id: message["message_id"].as_str().unwrap().to_owned(),
        key: message["key"].as_u64().unwrap(),
        number: message["n"].as_u64().unwrap(),
    });
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    Got { batch_id: header("webhook-id"), attempt: header("towpath-attempt").parse().unwrap(), messages: messages.collect(), was_well }
}
