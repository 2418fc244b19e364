//! Batches that are calls of a function.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use towpath::{CallContext, HandlerError};

use super::{keep, posting, push, settled, until};

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
