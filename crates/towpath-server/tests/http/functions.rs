//! Functions: defined, shown, listed, forgotten.

use serde_json::json;

use crate::support::server;

#[tokio::test]
async fn a_function_is_defined_shown_listed_and_forgotten() {
    let server = server().await;
    let definition = json!({
        "scope": "flow-1",
        "description": "Sends an invoice.",
        "parameters": [{ "name": "order", "type": "string", "required": true }],
        "retry": { "max_attempts": 7, "backoff": { "kind": "exponential", "delay_ms": 100, "delay_ms_max": 5_000 } },
        "limits": { "max_backlog": 10 },
    });
    let defined = server.put("/v1/functions/invoice", definition).await.with(200);
    assert_eq!(defined["retry"]["max_attempts"], 7);
    assert_eq!(defined["retry"]["max_deliveries"], 5, "what is left out has its default");
    assert_eq!(defined["retry"]["backoff"], json!({ "kind": "exponential", "delay_ms": 100, "delay_ms_max": 5_000 }));
    assert_eq!(defined["limits"], json!({ "max_backlog": 10, "max_concurrent": null, "max_payload_bytes": 1_048_576 }));
    server.get("/v1/functions/invoice").await.error(404, "function_not_found");
    assert_eq!(server.get("/v1/functions/invoice?scope=flow-1").await.with(200), defined);
    assert_eq!(server.get("/v1/functions").await.with(200)["functions"], json!([defined]));
    assert_eq!(server.delete("/v1/functions/invoice?scope=flow-1").await.with(200), defined);
    assert_eq!(server.get("/v1/functions").await.with(200)["functions"], json!([]));
}

#[tokio::test]
async fn a_function_in_use_is_not_forgotten() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "busy" }])).await;
    let error = server.delete("/v1/functions/busy").await.error(409, "function_in_use");
    assert_eq!(error["field"], "name");
    worker.leave().await;
    server.post("/v1/functions/busy/calls", json!({ "call_id": "c-1" })).await.with(202);
    server.delete("/v1/functions/busy").await.error(409, "function_in_use");
    server.delete("/v1/calls/c-1").await.with(200);
    server.delete("/v1/functions/busy").await.with(200);
}

#[tokio::test]
async fn the_backlog_is_counted_and_a_full_one_refuses_with_retry_after() {
    let server = server().await;
    server.put("/v1/functions/narrow", json!({ "limits": { "max_backlog": 2 } })).await.with(200);
    for _ in 0..2 {
        server.post("/v1/functions/narrow/calls", json!({})).await.with(202);
    }
    let refused = server.post("/v1/functions/narrow/calls", json!({})).await;
    assert_eq!(refused.headers["retry-after"], "1");
    let error = refused.error(429, "overloaded");
    assert_eq!(error["details"], json!({ "backlog": 2, "limit": 2 }));
    let shown = server.get("/v1/functions/narrow").await.with(200);
    assert_eq!((&shown["queued"], &shown["healthy_workers"]), (&json!(2), &json!(0)));
    assert!(shown["oldest_queued_age_ms"].is_u64(), "{shown}");
}
