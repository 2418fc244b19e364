//! Dead letters: listed, shown, replayed, dropped.

use serde_json::{Value, json};

use crate::support::{Server, server};

/// A server with dead letters of two functions.
async fn with_dead_letters(count: usize) -> (Server, Vec<String>) {
    let server = server().await;
    let retry = json!({ "max_attempts": 1 });
    let worker = server.pull_worker(json!([{ "name": "a", "retry": retry }, { "name": "b", "retry": retry }])).await;
    let mut ids = Vec::new();
    for n in 0..count {
        let function = if n % 2 == 0 { "a" } else { "b" };
        let submitted = server.post(&format!("/v1/functions/{function}/calls"), json!({ "params": n })).await.with(202);
        let delivery = worker.claim_one().await;
        let result = json!({ "delivery_id": delivery["delivery_id"], "success": false, "error": { "message": "no", "code": "nope" } });
        worker.post("complete", json!({ "results": [result] })).await.with(200);
        ids.push(submitted["call_id"].as_str().unwrap().to_owned());
    }
    (server, ids)
}

fn params(page: &Value) -> Vec<i64> {
    page["calls"].as_array().unwrap().iter().map(|call| call["params"].as_i64().unwrap()).collect()
}

#[tokio::test]
async fn dead_letters_are_listed_by_filter_and_shown_with_what_went_wrong() {
    let (server, ids) = with_dead_letters(4).await;
    assert_eq!(params(&server.get("/v1/dead-letters?payloads=true").await.with(200)), [3, 2, 1, 0]);
    assert_eq!(params(&server.get("/v1/dead-letters?function=a&reason=exhausted&payloads=true").await.with(200)), [2, 0]);
    assert_eq!(params(&server.get("/v1/dead-letters?reason=poisoned").await.with(200)), [0_i64; 0]);
    let shown = server.get(&format!("/v1/dead-letters/{}", ids[0])).await.with(200);
    assert_eq!(shown["outcome"], json!({ "kind": "dead", "reason": "exhausted", "error": { "code": "nope", "message": "no" } }));
}

#[tokio::test]
async fn a_replayed_dead_letter_is_a_new_call_and_cannot_be_replayed_twice() {
    let (server, ids) = with_dead_letters(1).await;
    let path = format!("/v1/dead-letters/{}", ids[0]);
    let replayed = server.post(&format!("{path}/replay"), json!({})).await.with(200);
    let new_id = replayed["replayed"][0]["replayed_as"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/calls/{new_id}")).await.with(200)["state"], "queued");
    assert_eq!(server.get(&format!("/v1/calls/{}", ids[0])).await.with(200)["state"], "settled");
    for answer in [server.post(&format!("{path}/replay"), json!({})).await, server.get(&path).await, server.delete(&path).await] {
        let error = answer.error(404, "dead_letter_not_found");
        assert_eq!(error["details"], json!({ "state": "settled", "replayed_as": new_id }));
    }
}

#[tokio::test]
async fn dead_letters_are_replayed_and_dropped_by_filter() {
    let (server, _ids) = with_dead_letters(6).await;
    let replayed = server.post("/v1/dead-letters:replay", json!({ "function": "a", "max": 2 })).await.with(200);
    assert_eq!(replayed["replayed"].as_array().unwrap().len(), 2);
    assert_eq!(params(&server.get("/v1/dead-letters?payloads=true").await.with(200)), [5, 3, 1, 0], "the newest of the function first");
    assert_eq!(server.post("/v1/dead-letters:drop", json!({ "function": "b" })).await.with(200)["dropped"], 3);
    assert_eq!(server.post("/v1/dead-letters:drop", json!({})).await.with(200)["dropped"], 1);
    assert_eq!(params(&server.get("/v1/dead-letters?payloads=true").await.with(200)), [0_i64; 0]);
}

#[tokio::test]
async fn dropping_one_settles_it() {
    let (server, ids) = with_dead_letters(1).await;
    let path = format!("/v1/dead-letters/{}", ids[0]);
    assert_eq!(server.delete(&path).await.with(200)["dropped"], 1);
    server.delete(&path).await.error(404, "dead_letter_not_found");
}
