//! Batches that are calls of a function.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use towpath::{CallContext, HandlerError};

use super::{keep, posting, push, settled, until};

#[tokio::test]
async fn a_batch_whose_function_is_not_known_waits_and_health_says_so() {
    let server = posting().await;
    keep(&server, "orders", json!({ "target": { "function": "ship" } })).await;
    let health = server.get("/v1/health").await.with(200);
    assert_eq!((&health["status"], &health["problems"]), (&json!("ok"), &json!([])), "nothing waits yet");
    let wait = |waiting: u64| json!({ "kind": "batcher", "name": "orders", "reason": "function_not_found", "function": "ship", "waiting": waiting });
    assert_eq!(health["waits"], json!([wait(0)]));
    push(&server, "orders", json!({ "id": "anna" })).await;
    let health = server.get("/v1/health").await.with(200);
    assert_eq!((&health["status"], &health["waits"]), (&json!("degraded"), &json!([wait(1)])));
    let problem = health["problems"][0].as_str().unwrap();
    assert!(problem.contains("1 batch of 'orders' waits") && problem.contains("'ship' is not known"), "{problem}");
    let worker = server.pull_worker(json!([{ "name": "ship" }])).await;
    let call = worker.claim_one().await;
    assert_eq!((&call["params"]["messages"], &call["params"]["meta"]["attempt"]), (&json!([{ "id": "anna" }]), &json!(1)));
    settled(&server, "orders").await;
    assert_eq!(server.get("/v1/health").await.with(200)["waits"], json!([]));
    assert!(super::dead_letters(&server, "orders").await.is_empty());
}

#[tokio::test]
async fn a_batch_becomes_a_call_whose_id_is_made_of_its_own() {
    let server = posting().await;
    let got: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
    let inbox = got.clone();
    let worker = server
        .running
        .towpath()
        .worker()
        .function("Process Order", move |order: Value, ctx: CallContext| {
            inbox.lock().unwrap().push((ctx.call_id().to_string(), order));
            async move { Ok::<_, HandlerError>(()) }
        })
        .start()
        .await
        .unwrap();
    keep(&server, "orders", json!({ "target": { "function": "Process Order" } })).await;
    push(&server, "orders", json!({ "id": "anna", "n": 1 })).await;
    settled(&server, "orders").await;
    let (call_id, order) = until("the call", async || got.lock().unwrap().first().cloned()).await;
    assert_eq!(call_id, format!("batch-{}", order["meta"]["batch_id"].as_str().unwrap()));
    assert_eq!(order["messages"], json!([{ "id": "anna", "n": 1 }]));
    worker.drain().await;
}
