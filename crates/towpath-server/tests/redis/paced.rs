//! A batcher with a rate on one Redis with two servers: they share it, and every batch goes once.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use serde_json::{Value, json};

use crate::batch_histories::Producer;
use crate::crowd::runtime;
use crate::rig::{durable_redis, serve};
use crate::support::wait_for;

type Inbox = Arc<Mutex<Vec<(Instant, Value)>>>;

#[expect(clippy::disallowed_methods, reason = "what other processes send comes by the real clock")]
fn now() -> Instant {
    Instant::now()
}

async fn take(State(inbox): State<Inbox>, body: Bytes) {
    inbox.lock().unwrap().push((now(), serde_json::from_slice(&body).unwrap()));
}

#[test]
fn two_servers_share_the_rate_of_a_batcher_and_send_every_batch_once() {
    const BATCHES: u32 = 60;
    const APART: Duration = Duration::from_millis(50);
    let redis = durable_redis();
    let servers = [serve(&redis.url()), serve(&redis.url())];
    let (runtime, inbox) = (runtime(), Inbox::default());
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let target = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new().fallback(take).with_state(inbox.clone());
    runtime.spawn(async move { axum::serve(listener, router).await });
    servers[0].run(&["limit", "put", "orders", "--rule", "r=gcra:20/1s"]).exits(0);
    let producer = Producer::new();
    let settings = json!({
        "key": ["id"], "debounce_seconds": 0, "rate": { "policy": "default" }, "target": { "url": target }, "allow_targets": ["127.0.0.1"],
    });
    producer.keep(&servers[0].url, "orders", &settings);
    let begun = now();
    for id in 0..BATCHES {
        producer.push(&[servers[id as usize % 2].url.clone()], &json!({ "id": id, "message_id": id }));
    }
    wait_for("all batches to be settled", || {
        let answer = producer.get(&servers[1].url, "/v1/batches/orders")?;
        (answer["open_keys"] == 0 && answer["in_flight"] == 0).then_some(())
    });
    let got = inbox.lock().unwrap().clone();
    let mut ids: Vec<u64> = got.iter().map(|(_, payload)| payload["messages"][0]["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..u64::from(BATCHES)).collect::<Vec<_>>(), "each once");
    assert!(got.iter().all(|(_, payload)| payload["meta"]["attempt"] == 1), "waiting is no attempt");
    let took = got[got.len() - 1].0 - begun;
    assert!(took >= APART * (BATCHES - 1), "the first turn cannot have been before the first message: {took:?}");
}
