//! Batches for those who fetch them: long poll, tokens, retries.

use serde_json::{Value, json};

use super::{dead_letters, keep, push};
use crate::support::{Server, server};

async fn pulling() -> Server {
    let server = server().await;
    keep(&server, "orders", json!({ "target": { "pull": true } })).await;
    server
}

async fn claim(server: &Server, body: Value) -> Vec<Value> {
    server.post("/v1/batches/orders/claim", body).await.with(200)["batches"].as_array().unwrap().clone()
}

async fn finish(server: &Server, batch: &Value, more: Value) -> String {
    let mut item = json!({ "batch_id": batch["batch_id"], "token": batch["token"] });
    for (name, value) in more.as_object().unwrap() {
        item[name] = value.clone();
    }
    let answer = server.post("/v1/batches/orders/finish", json!({ "results": [item] })).await.with(200);
    answer["results"][0]["result"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_consumer_that_waits_is_told_at_once_and_settles_with_its_token() {
    let server = pulling().await;
    assert!(claim(&server, json!({})).await.is_empty());
    let (claimed, _) = tokio::join!(claim(&server, json!({ "max": 5, "wait_ms": 30_000 })), push(&server, "orders", json!({ "id": 1 })));
    let batch = &claimed[0];
    assert_eq!((&batch["attempt"], &batch["payload"]["messages"]), (&json!(1), &json!([{ "id": 1 }])));
    assert!(claim(&server, json!({})).await.is_empty(), "one at a time");
    let extend = json!({ "results": [{ "batch_id": batch["batch_id"], "token": batch["token"] }, { "batch_id": "x", "token": "y" }] });
    let extended = server.post("/v1/batches/orders/extend", extend).await.with(200);
    assert_eq!((&extended["results"][0]["result"], &extended["results"][1]["result"]), (&json!("extended"), &json!("lost")));
    assert!(extended["results"][0]["lease_end"].as_i64() >= batch["lease_end"].as_i64());
    assert_eq!(finish(&server, batch, json!({ "verb": "ack", "token": "1.no" })).await, "lost");
    assert_eq!(finish(&server, batch, json!({ "verb": "ack" })).await, "done");
    assert_eq!(finish(&server, batch, json!({ "verb": "ack" })).await, "lost");
}

#[tokio::test]
async fn a_consumer_may_try_again_and_give_up() {
    let server = pulling().await;
    push(&server, "orders", json!({ "id": 1 })).await;
    let first = claim(&server, json!({})).await.remove(0);
    assert_eq!(finish(&server, &first, json!({ "verb": "retry", "delay_ms": 0, "error": "busy" })).await, "done");
    let second = claim(&server, json!({ "wait_ms": 10_000 })).await.remove(0);
    assert_eq!((&second["batch_id"], &second["attempt"]), (&first["batch_id"], &json!(2)));
    assert_eq!(finish(&server, &first, json!({ "verb": "ack" })).await, "lost", "the first one's right is over");
    assert_eq!(finish(&server, &second, json!({ "verb": "retry", "error": "still busy" })).await, "done");
    let letter = dead_letters(&server, "orders").await.remove(0);
    assert_eq!(
        (&letter["reason"], &letter["error"], &letter["attempts"]),
        (&json!("max_retries_exceeded"), &json!("still busy"), &json!(2))
    );
    push(&server, "orders", json!({ "id": 2 })).await;
    let batch = claim(&server, json!({ "wait_ms": 10_000 })).await.remove(0);
    assert_eq!(finish(&server, &batch, json!({ "verb": "dead", "error": "never" })).await, "done");
    let letters = dead_letters(&server, "orders").await;
    assert_eq!((&letters[1]["reason"], &letters[1]["messages"]), (&json!("rejected"), &json!([{ "id": 2 }])));
}

#[tokio::test]
async fn a_consumer_that_hangs_up_takes_nothing_with_it() {
    let server = pulling().await;
    let gone = server.request(reqwest::Method::POST, "/v1/batches/orders/claim").json(&json!({ "wait_ms": 60_000 })).send();
    tokio::select! {
        _never = gone => panic!("nothing was due"),
        _pushed = server.get("/v1/health") => {}
    }
    push(&server, "orders", json!({ "id": 1 })).await;
    assert_eq!(claim(&server, json!({ "wait_ms": 30_000 })).await.len(), 1);
}

#[tokio::test]
async fn what_goes_elsewhere_is_not_for_consumers_to_fetch() {
    let server = server().await;
    keep(&server, "orders", json!({ "target": { "function": "ship" } })).await;
    server.post("/v1/batches/orders/claim", json!({})).await.error(409, "not_pulled");
}

#[tokio::test]
async fn what_a_consumer_says_wrongly_is_refused_by_name() {
    let server = pulling().await;
    for (path, body, code, field) in [
        ("claim", json!({ "max": 0 }), "out_of_range", "max"),
        ("claim", json!({ "wait_ms": 60_001 }), "out_of_range", "wait_ms"),
        ("finish", json!({ "results": [{ "batch_id": "a", "token": "b", "verb": "maybe" }] }), "invalid_field", "results[0].verb"),
        ("finish", json!({ "results": [{ "batch_id": "", "token": "b", "verb": "ack" }] }), "invalid_name", "results[0].batch_id"),
        ("finish", json!({}), "missing_field", "results"),
    ] {
        let error = server.post(&format!("/v1/batches/orders/{path}"), body).await.error(400, code);
        assert_eq!(error["field"], field);
    }
}
