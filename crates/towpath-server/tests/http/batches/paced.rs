//! Batchers with a rate: posted and fetched batches wait for their turn in the queue.

use serde_json::json;

use super::receiver::Receiver;
use super::{keep, posting, push, settled, until};
use crate::support::{Server, server};

async fn put(server: &Server, scope: &str, limit: u64, window_ms: u64) {
    let rule = json!({ "name": "r", "algorithm": "sliding_log", "limit": limit, "window_ms": window_ms });
    server.put(&format!("/v1/limits/{scope}"), json!({ "policy": "calm", "rules": [rule] })).await.with(200);
}

#[tokio::test]
async fn a_batch_that_waits_for_its_turn_is_open_until_the_rate_is_given_up() {
    let (receiver, server) = (Receiver::start().await, posting().await);
    put(&server, "orders", 2, 3_600_000).await;
    let target = json!({ "url": format!("{}/200", receiver.base) });
    keep(&server, "orders", json!({ "target": target, "rate": { "policy": "calm" } })).await;
    for id in 1..=5 {
        push(&server, "orders", json!({ "id": id })).await;
    }
    let waiting = until("two to be sent", async || {
        let body = server.get("/v1/batches/orders").await.with(200);
        (body["open_keys"] == 3 && body["in_flight"] == 0).then_some(body)
    })
    .await;
    assert_eq!((receiver.got().len(), &waiting["dead_letters"]), (2, &json!(0)));
    let shown = server.get("/v1/batches/orders/settings").await.with(200);
    assert_eq!(shown["settings"]["rate"], json!({ "policy": "calm" }));
    server.put("/v1/batches/orders/settings", json!({ "key": ["id"], "debounce_seconds": 0, "target": target })).await.with(200);
    settled(&server, "orders").await;
    let mut ids: Vec<_> = receiver.got().iter().map(|got| got.json()["messages"][0]["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4, 5], "each once");
    assert!(receiver.got().iter().all(|got| got.json()["meta"]["attempt"] == 1), "waiting is no attempt");
}

#[tokio::test]
async fn consumers_of_a_batcher_share_its_rate() {
    let server = server().await;
    put(&server, "smtp", 3, 3_600_000).await;
    keep(&server, "orders", json!({ "target": { "pull": true }, "rate": { "policy": "calm", "scope": "smtp" } })).await;
    for id in 1..=5 {
        push(&server, "orders", json!({ "id": id })).await;
    }
    let claim = async || server.post("/v1/batches/orders/claim", json!({ "max": 2 })).await.with(200)["batches"].as_array().unwrap().len();
    assert_eq!([claim().await, claim().await, claim().await], [2, 1, 0]);
    let left = server.get("/v1/batches/orders").await.with(200);
    assert_eq!((&left["open_keys"], &left["in_flight"]), (&json!(2), &json!(3)));
}
