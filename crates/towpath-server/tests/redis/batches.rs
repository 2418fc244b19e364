//! Batches on one Redis with three servers: each batch goes once, kills lose nothing, old producers need not change.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use serde_json::{Value, json};

use crate::batch_histories::{self, Producer};
use crate::crowd::runtime;
use crate::rig::{durable_redis, serve, serve_at};
use crate::support::wait_for;

#[test]
fn no_message_is_lost_or_in_two_batches_though_three_servers_are_killed_and_the_receiver_misbehaves() {
    let redis = durable_redis();
    let url = redis.url();
    let flushed = || {
        assert_eq!(redis.cli(&["FLUSHALL"]), "OK");
        (0..3).map(|_| serve(&url)).collect()
    };
    batch_histories::all(flushed, |folder, address| serve_at(&url, folder, address));
}

#[test]
fn every_message_is_in_one_call_though_the_server_is_killed_between_a_call_and_the_end_of_its_batch() {
    let redis = durable_redis();
    let url = redis.url();
    let again = |folder, address: &str| serve_at(&url, folder, address);
    batch_histories::every_message_is_in_one_call(serve(&url), again, |_folder| url.clone());
}

type Inbox = Arc<Mutex<Vec<Value>>>;

async fn take(State(inbox): State<Inbox>, body: Bytes) {
    inbox.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
}

#[test]
fn what_old_producers_push_is_sent_once_by_three_servers_under_the_old_workers_keys() {
    const CHATS: usize = 200;
    let redis = durable_redis();
    let servers: Vec<_> = (0..3).map(|_| serve(&redis.url())).collect();
    let (runtime, inbox) = (runtime(), Inbox::default());
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let target = format!("http://{}/resolve", listener.local_addr().unwrap());
    let router = Router::new().fallback(take).with_state(inbox.clone());
    runtime.spawn(async move { axum::serve(listener, router).await });
    let settings = json!({
        "debounce_seconds": 1, "sources": [{ "list": "queue:incoming" }], "target": { "url": target }, "allow_targets": ["127.0.0.1"],
    });
    let producer = Producer::new();
    producer.keep(&servers[0].url, "input_contour", &settings);
    for chat in 0..CHATS {
        for text in ["Привет", "Разбил экран"] {
            let message = json!({ "channel": "telegram", "external_chat_id": chat.to_string(), "tenant_id": "t", "text": text });
            redis.cli(&["RPUSH", "queue:incoming", &message.to_string()]);
        }
    }
    redis.cli(&["RPUSH", "queue:incoming", "not json"]);
    wait_for("every chat to be sent on", || (inbox.lock().unwrap().len() >= CHATS).then_some(()));
    let after = wait_for("all batches to be settled", || {
        let answer = producer.get(&servers[1].url, "/v1/batches/input_contour")?;
        (answer["open_keys"] == 0 && answer["in_flight"] == 0).then_some(answer)
    });
    assert_eq!(after["dead_letters"], 1, "{after}");
    assert!(redis.cli(&["LRANGE", "dlq:input_contour", "0", "-1"]).contains("not json"), "the old list has what could not be read");
    let got = inbox.lock().unwrap().clone();
    let chats: BTreeSet<&str> = got.iter().map(|payload| payload["external_chat_id"].as_str().unwrap()).collect();
    let texts: usize = got.iter().map(|payload| payload["text"].as_str().unwrap().split("\n\n").count()).sum();
    assert_eq!((chats.len(), texts), (CHATS, CHATS * 2), "every message once, whoever sent it");
    assert_eq!(redis.cli(&["LLEN", "queue:incoming"]), "0");
}
