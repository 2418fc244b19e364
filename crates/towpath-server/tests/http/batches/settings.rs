//! Settings: kept, shown, followed without a restart, refused with the field that is wrong.

use serde_json::json;

use super::receiver::Receiver;
use super::{keep, posting, push, settled};
use crate::support::server;

#[tokio::test]
async fn settings_are_new_once_and_what_they_do_not_name_is_the_default() {
    let server = server().await;
    server.get("/v1/batches/orders/settings").await.error(404, "batcher_not_found");
    server.post("/v1/batches/orders/messages", json!({ "id": 1 })).await.error(404, "batcher_not_found");
    let first = server.put("/v1/batches/orders/settings", json!({ "key": ["id"], "debounce_seconds": 2.5 })).await.with(201);
    assert_eq!((&first["settings"]["debounce_seconds"], &first["settings"]["max_wait_seconds"]), (&json!(2.5), &json!(300.0)));
    assert_eq!(first["stored"], json!({ "key": ["id"], "debounce_seconds": 2.5 }));
    let second = server.put("/v1/batches/orders/settings", json!({ "key": ["id"] })).await.with(200);
    assert_eq!(second["settings"]["debounce_seconds"], 10.0, "what was kept is replaced");
    assert!(second["version"].as_u64() > first["version"].as_u64());
    assert_eq!(server.get("/v1/batches/orders/settings").await.with(200), second);
    server.put("/v1/batches/input_contour/settings", json!({})).await.with(200);
    let names: Vec<String> = server.get("/v1/batches").await.with(200)["batchers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{} {}", one["batcher"].as_str().unwrap(), one["target"].as_str().unwrap()))
        .collect();
    assert_eq!(names, ["input_contour none", "orders none"]);
}

#[tokio::test]
async fn settings_that_cannot_be_are_refused_by_name_and_nothing_is_kept() {
    let server = server().await;
    for (body, status, code, field) in [
        (json!({ "debounce_seconds": -1 }), 422, "out_of_range", "debounce_seconds"),
        (json!({ "max_messages": 0 }), 422, "out_of_range", "max_messages"),
        (json!({ "flush_keywords": [""] }), 422, "bad_field", "flush_keywords"),
        (json!({ "secrets": ["whsec_hunter2"] }), 422, "bad_field", "secrets"),
        (json!({ "merge": "template" }), 422, "bad_field", "merge"),
        (json!({ "template": "{{/first" }), 422, "bad_field", "template"),
        (json!({ "target": { "workflow": "w" } }), 422, "target_not_allowed", "target"),
        (json!({ "target": { "url": "http://a/", "pull": true } }), 400, "invalid_field", "target"),
        (json!({ "debounce": 1 }), 400, "unknown_field", "debounce"),
        (json!({ "serial": "yes" }), 400, "invalid_field", "serial"),
        (json!({ "rate": { "policy": "" } }), 400, "invalid_name", "rate.policy"),
        (json!({ "rate": { "policy": "a:b" } }), 400, "invalid_name", "rate.policy"),
        (json!({ "rate": { "policy": "p", "scope": " " } }), 400, "invalid_name", "rate.scope"),
        (json!({ "rate": { "policy": "p", "scope": "x".repeat(300) } }), 400, "invalid_name", "rate.scope"),
        (json!({ "rate": { "policy": "p", "scop": "s" } }), 400, "unknown_field", "rate.scop"),
        (json!({ "rate": {} }), 400, "missing_field", "rate.policy"),
        (json!({ "rate": "p" }), 400, "invalid_field", "rate"),
    ] {
        let answer = server.put("/v1/batches/orders/settings", body.clone()).await;
        assert!(!answer.text.contains("hunter2"), "{}", answer.text);
        assert_eq!(answer.error(status, code)["field"], field, "{body}");
    }
    server.get("/v1/batches/orders/settings").await.error(404, "batcher_not_found");
    server.put("/v1/batches/a:b/settings", json!({})).await.error(400, "invalid_name");
}

#[tokio::test]
async fn a_batcher_without_a_target_holds_its_batches_until_it_has_one() {
    let (receiver, server) = (Receiver::start().await, posting().await);
    keep(&server, "orders", json!({})).await;
    push(&server, "orders", json!({ "id": 1 })).await;
    let held = server.get("/v1/batches/orders").await.with(200);
    assert_eq!((&held["open_keys"], &held["target"]), (&json!(1), &json!("none")));
    let target = json!({ "key": ["id"], "target": { "url": format!("{}/200", receiver.base) } });
    server.put("/v1/batches/orders/settings", target).await.with(200);
    settled(&server, "orders").await;
    assert_eq!(receiver.got()[0].json()["messages"], json!([{ "id": 1 }]));
}
