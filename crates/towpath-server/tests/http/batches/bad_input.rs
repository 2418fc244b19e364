//! Messages that are not taken: refused with what to change, and nothing is left behind.

use serde_json::{Value, json};

use super::keep;
use crate::support::{Server, server};

const MESSAGES: &str = "/v1/batches/input_contour/messages";

fn with(more: &Value) -> Value {
    let mut message = json!({ "channel": "telegram", "external_chat_id": "1", "text": "hi" });
    for (name, value) in more.as_object().unwrap() {
        message[name] = value.clone();
    }
    message
}

async fn open_keys(server: &Server) -> Value {
    server.get("/v1/batches/input_contour").await.with(200)["open_keys"].clone()
}

#[tokio::test]
async fn what_the_batchers_rules_refuse_is_422_and_names_the_field() {
    let server = server().await;
    for (message, code, field) in [
        (json!({ "external_chat_id": "1" }), "missing_field", "channel"),
        (json!({ "channel": "telegram" }), "missing_field", "external_chat_id"),
        (with(&json!({ "channel": "" })), "missing_field", "channel"),
        (with(&json!({ "channel": null })), "missing_field", "channel"),
        (with(&json!({ "channel": "a\u{7}b" })), "bad_name", "channel"),
        (with(&json!({ "channel": "x".repeat(257) })), "bad_name", "channel"),
        (with(&json!({ "channel": ["telegram"] })), "bad_field", "channel"),
        (with(&json!({ "debounce_seconds": -1 })), "out_of_range", "debounce_seconds"),
        (with(&json!({ "debounce_seconds": 301 })), "out_of_range", "debounce_seconds"),
        (with(&json!({ "debounce_seconds": "soon" })), "out_of_range", "debounce_seconds"),
        (with(&json!({ "text": 7 })), "bad_field", "text"),
        (with(&json!({ "media": [] })), "bad_field", "media"),
        (json!([1]), "bad_field", "message"),
    ] {
        assert_eq!(server.post(MESSAGES, message.clone()).await.error(422, code)["field"], field, "{message}");
    }
    assert_eq!(open_keys(&server).await, 0);
    server.post(MESSAGES, with(&json!({ "timestamp": "yesterday" }))).await.with(202);
}

#[tokio::test]
async fn what_is_too_large_too_deep_or_no_json_never_reaches_the_batcher() {
    let server = server().await;
    server.post(MESSAGES, with(&json!({ "text": "x".repeat(257 << 10) }))).await.error(413, "message_too_large");
    server.post_bytes(MESSAGES, "x".repeat(5 << 20)).await.error(413, "payload_too_large");
    server.post_bytes(MESSAGES, "[".repeat(1_000)).await.error(400, "too_deep");
    let error = server.post_bytes(MESSAGES, r#"{"channel": oops}"#).await.error(400, "invalid_json");
    assert_eq!(error["details"]["byte"], 12);
    let plain = server.request(reqwest::Method::POST, MESSAGES).header("content-type", "text/plain").body("{}");
    crate::support::answer(plain).await.error(415, "unsupported_media_type");
    let many: Vec<Value> = vec![with(&json!({})); 1_001];
    server.post(MESSAGES, json!({ "messages": many })).await.error(413, "batch_too_large");
    assert_eq!(open_keys(&server).await, 0);
}

#[tokio::test]
async fn of_several_messages_each_has_its_own_answer() {
    let server = server().await;
    let messages = json!([with(&json!({ "message_id": 1 })), with(&json!({ "message_id": 1 })), json!({}), with(&json!({}))]);
    let answer = server.post(MESSAGES, json!({ "messages": messages })).await.with(202);
    let told: Vec<(bool, bool, Option<&str>)> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["accepted"] == true, one["duplicate"] == true, one["error"]["code"].as_str()))
        .collect();
    assert_eq!(told, [(true, false, None), (false, true, None), (false, false, Some("missing_field")), (true, false, None)]);
    assert!(server.post(MESSAGES, json!({ "messages": [] })).await.with(202)["results"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_batcher_that_is_full_takes_nothing_and_says_when_to_come_back() {
    let server = server().await;
    keep(&server, "small", json!({ "max_open": 1, "debounce_seconds": 100 })).await;
    server.post("/v1/batches/small/messages", json!({ "id": 1 })).await.with(202);
    let answer = server.post("/v1/batches/small/messages", json!({ "id": 2 })).await;
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.error(429, "batcher_full")["effect"], "none");
}

#[tokio::test]
async fn keys_that_are_not_open_are_not_found_and_open_ones_are_closed_or_postponed() {
    let server = server().await;
    for path in ["flush", "touch"] {
        server.post(&format!("/v1/batches/input_contour/keys/nobody/{path}"), json!({})).await.error(404, "batch_not_found");
    }
    server.get("/v1/batches/input_contour/keys/nobody").await.error(404, "batch_not_found");
    server.get("/v1/batches/nobody/keys/nobody").await.error(404, "batcher_not_found");
    let pushed = server.post(MESSAGES, with(&json!({ "external_chat_id": "a/b:ü", "debounce_seconds": 1 }))).await.with(202);
    assert_eq!(pushed["batch_key"], "unknown:telegram:a/b:ü");
    let path = "/v1/batches/input_contour/keys/unknown%3Atelegram%3Aa%2Fb%3A%C3%BC";
    let touched = server.post(&format!("{path}/touch"), json!({})).await.with(200);
    assert!(touched["outcome"] == "touched" && touched["deadline"].as_i64() > pushed["deadline"].as_i64(), "{touched}");
    let flushed = server.post(&format!("{path}/flush"), json!({})).await.with(200);
    assert_eq!((&flushed["outcome"], &flushed["size"]), (&json!("flushed"), &json!(1)));
    assert_eq!(server.post(&format!("{path}/flush"), json!({})).await.with(200)["outcome"], "sealed");
    let listed = server.get("/v1/batches/input_contour?state=open&limit=1").await.with(200);
    assert_eq!((&listed["batches"][0]["reason"], &listed["batches"][0]["sealed"]), (&json!("flush"), &json!(true)));
    server.get("/v1/batches/input_contour?state=closed").await.error(400, "invalid_field");
}
