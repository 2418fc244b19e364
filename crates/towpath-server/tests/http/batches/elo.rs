//! The routes that old clients know, with the fields of both of their versions.

use serde_json::json;
use towpath_server::batches::{ConfigFile, EloRoutes};
use towpath_server::settings::Settings;

use super::receiver::Receiver;
use super::{posting, settled};
use crate::support::{server, server_with, settings};

fn message(text: &str) -> serde_json::Value {
    json!({ "channel": "telegram", "external_user_id": "1", "external_chat_id": "42", "text": text, "bot_token": "123:ABC", "debounce_seconds": 0 })
}

#[tokio::test]
async fn a_message_is_taken_with_an_id_of_its_own_and_known_again() {
    let server = server().await;
    let answer = server.post("/ingest", message("hi")).await.with(200);
    assert_eq!(answer["accepted"], true);
    assert!(answer["message_id"].as_str().unwrap().starts_with("msg_") && answer["trace_id"].as_str().unwrap().starts_with("trace_"));
    assert!(answer["batch_key"].as_str().unwrap().ends_with(":telegram:42") && answer["deadline"].is_string());
    let mut named = message("hi");
    (named["message_id"], named["trace_id"]) = (json!("m-1"), json!("t-1"));
    let first = server.post("/ingest", named.clone()).await.with(200);
    assert_eq!((&first["message_id"], &first["trace_id"], first.get("duplicate")), (&json!("m-1"), &json!("t-1"), None));
    let second = server.post("/ingest", named).await.with(200);
    assert_eq!(
        (&second["accepted"], &second["duplicate"], &second["reason"], &second["message_id"]),
        (&json!(false), &json!(true), &json!("duplicate"), &json!("m-1"))
    );
    let key = answer["batch_key"].as_str().unwrap();
    let open = server.get(&format!("/v1/batches/input_contour/keys/{key}")).await.with(200);
    assert_eq!(open["messages"][0]["message_id"], answer["message_id"], "the id that was made up is the message's");
    server.post("/ingest", json!({ "channel": "telegram", "text": "hi" })).await.error(422, "missing_field");
}

#[tokio::test]
async fn dead_letters_are_listed_under_both_names_and_cleared_by_number() {
    let (receiver, server) = (Receiver::start().await, posting().await);
    let target = json!({ "target": { "url": format!("{}/400", receiver.base) } });
    server.put("/v1/batches/input_contour/settings", target).await.with(200);
    for text in ["one", "two"] {
        server.post("/ingest", message(text)).await.with(200);
        settled(&server, "input_contour").await;
    }
    let listed = server.get("/dlq?limit=1").await;
    assert!(!listed.text.contains("123:ABC"), "{}", listed.text);
    let listed = listed.with(200);
    assert_eq!((&listed["count"], &listed["total"], &listed["items"]), (&json!(1), &json!(2), &listed["entries"]));
    assert_eq!(
        (&listed["items"][0]["payload"]["text"], &listed["items"][0]["payload"]["bot_token"]),
        (&json!("one"), &json!("[redacted]"))
    );
    assert_eq!(server.get("/dlq?order=newest").await.with(200)["items"][0]["payload"]["text"], "two");
    server.get("/dlq?order=best").await.error(400, "invalid_field");
    assert_eq!(server.delete("/dlq").await.with(200), json!({ "cleared": 2 }));
    assert_eq!(server.delete("/dlq").await.with(200), json!({ "cleared": 0 }));
}

#[tokio::test]
async fn health_has_the_fields_of_both_versions_and_no_address() {
    let (receiver, server) = (Receiver::start().await, posting().await);
    let target = json!({ "debounce_seconds": 7, "target": { "url": format!("{}/400", receiver.base) } });
    server.put("/v1/batches/input_contour/settings", target).await.with(200);
    server.post("/ingest", json!({ "channel": "c", "external_chat_id": 1 })).await.with(200);
    let answer = server.get("/health").await;
    assert!(!answer.text.contains("http"), "{}", answer.text);
    assert_eq!(
        answer.with(200),
        json!({
            "status": "ok", "redis": true, "queues": { "incoming": 0, "pending_batches": 1, "dlq": 0 },
            "config": { "debounce_seconds": 7, "max_wait_seconds": 300 },
        })
    );
}

#[tokio::test]
async fn old_routes_need_a_key_unless_it_is_waived_for_this_machine() {
    let keyed = |open: bool| Settings {
        api_keys: vec!["a-key".parse().unwrap()],
        config: ConfigFile { elo_routes: EloRoutes { open, ..EloRoutes::default() }, ..ConfigFile::default() },
        ..settings()
    };
    let closed = server_with(keyed(false)).await;
    closed.post("/ingest", message("hi")).await.error(401, "unauthorized");
    closed.get("/dlq").await.error(401, "unauthorized");
    closed.get("/health").await.with(200);
    let open = server_with(keyed(true)).await;
    open.post("/ingest", message("hi")).await.with(200);
    open.get("/v1/batches").await.error(401, "unauthorized");
    let passed_on = open.request(reqwest::Method::GET, "/dlq").header("x-forwarded-for", "203.0.113.9");
    crate::support::answer(passed_on).await.error(401, "unauthorized");
}
