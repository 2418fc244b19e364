//! Dead letters: listed, shown without secrets, replayed under the same id, dropped.

use serde_json::json;

use super::receiver::Receiver;
use super::{dead_letters, keep, posting, push, settled};

#[tokio::test]
async fn a_dead_letter_is_shown_replayed_under_its_id_and_dropped() {
    let (receiver, server) = (Receiver::start().await, posting().await);
    let target = |path: &str| json!({ "key": ["id"], "debounce_seconds": 0, "target": { "url": format!("{}/{path}", receiver.base) } });
    keep(&server, "orders", target("400")).await;
    for id in ["a", "b", "c"] {
        push(&server, "orders", json!({ "id": id, "bot_token": "123:ABC" })).await;
    }
    settled(&server, "orders").await;
    let page = server.get("/v1/batch-dead-letters?limit=2").await.with(200);
    assert_eq!(page["dead_letters"].as_array().map(Vec::len), Some(2));
    let rest = server.get(&format!("/v1/batch-dead-letters?limit=2&cursor={}", page["next"].as_str().unwrap())).await.with(200);
    assert_eq!((rest["dead_letters"].as_array().map(Vec::len), rest.get("next")), (Some(1), None));
    let of_b = server.get("/v1/batch-dead-letters?batch_key=b&reason=rejected_400").await.with(200);
    let id = of_b["dead_letters"][0]["id"].as_str().unwrap();
    let shown = server.get(&format!("/v1/batch-dead-letters/{id}")).await;
    assert!(!shown.text.contains("123:ABC"), "{}", shown.text);
    let entry = shown.with(200)["entry"].clone();
    assert_eq!((&entry["batch_key"], &entry["attempts"], &entry["payload"]["messages"][0]["id"]), (&json!("b"), &json!(1), &json!("b")));
    assert!(entry["timestamp"].is_string() && entry["error"].as_str().unwrap().starts_with("the target answered 400"));

    server.put("/v1/batches/orders/settings", target("200")).await.with(200);
    let replayed = server.post("/v1/batch-dead-letters:replay", json!({ "ids": [id], "rate_per_second": 100 })).await.with(202);
    assert_eq!((&replayed["replayed"], &replayed["gone"]), (&json!([id]), &json!([])));
    settled(&server, "orders").await;
    let got = receiver.got();
    assert_eq!((got[3].header("webhook-id"), got[3].header("towpath-attempt")), (id, "1"));
    assert_eq!(got[3].json()["messages"][0]["bot_token"], "123:ABC", "what is sent is whole");
    let again = server.post("/v1/batch-dead-letters:replay", json!({ "ids": [id] })).await.with(202);
    assert_eq!(again["gone"], json!([id]));

    let left = dead_letters(&server, "orders").await;
    let first = left[0]["id"].as_str().unwrap();
    assert_eq!(server.delete(&format!("/v1/batch-dead-letters/{first}")).await.with(200)["dropped"], 1);
    server.delete(&format!("/v1/batch-dead-letters/{first}")).await.error(404, "dead_letter_not_found");
    server.post("/v1/batch-dead-letters:drop", json!({})).await.error(400, "missing_field");
    server.post("/v1/batch-dead-letters:drop", json!({ "ids": [first], "all": true })).await.error(422, "ambiguous");
    assert_eq!(server.post("/v1/batch-dead-letters:drop", json!({ "batcher": "orders" })).await.with(200)["dropped"], 1);
    server.get("/v1/batch-dead-letters?batcher=none").await.error(404, "batcher_not_found");
}
