//! Batches over real sockets: pushed, gathered, posted to a receiver, fetched, given up and replayed.

mod bad_input;
mod delivery;
mod elo;
mod functions;
mod hostile;
mod letters;
mod paced;
mod pulled;
mod receiver;
mod settings;
mod stopping;
mod worked_example;

use std::time::Duration;

use serde_json::{Value, json};
use towpath::{Clock, SystemClock};
use towpath_server::settings::Settings;

use crate::support::{Server, server_with, settings};

/// A server that may post to this machine.
async fn posting() -> Server {
    server_with(Settings { allow_loopback_targets: true, ..settings() }).await
}

/// Looks until `look` finds something.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let clock = SystemClock::new();
    let give_up_at = clock.now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(clock.now() < give_up_at, "waited too long for {what}");
        clock.sleep_until(clock.now() + Duration::from_millis(5)).await; // between two looks at the thing itself
    }
}

/// Keeps settings of a batcher whose key is `id` and whose messages do not wait.
async fn keep(server: &Server, batcher: &str, more: Value) {
    let mut body = json!({ "key": ["id"], "debounce_seconds": 0, "backoff_base_ms": 1, "backoff_cap_ms": 1, "max_attempts": 2 });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    server.put(&format!("/v1/batches/{batcher}/settings"), body).await.with(201);
}

async fn push(server: &Server, batcher: &str, message: Value) -> Value {
    server.post(&format!("/v1/batches/{batcher}/messages"), message).await.with(202)
}

/// The batcher when nothing of it is open or in flight any more.
async fn settled(server: &Server, batcher: &str) -> Value {
    until(&format!("all batches of {batcher} to be settled"), async || {
        let body = server.get(&format!("/v1/batches/{batcher}")).await.with(200);
        (body["open_keys"] == 0 && body["in_flight"] == 0).then_some(body)
    })
    .await
}

/// The dead letters of a batcher.
async fn dead_letters(server: &Server, batcher: &str) -> Vec<Value> {
    let body = server.get(&format!("/v1/batch-dead-letters?batcher={batcher}")).await.with(200);
    body["dead_letters"].as_array().unwrap().iter().map(|letter| letter["entry"].clone()).collect()
}
