//! Function push: calls are posted to a target, signed, and its response is the result.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use towpath_server::settings::Settings;

use crate::support::{Server, server_with, settings};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A request that the target got.
#[derive(Clone)]
pub(crate) struct Got {
    headers: HeaderMap,
    body: Vec<u8>,
}

/// A target that remembers what it got and answers by the path.
#[derive(Clone, Default)]
pub(crate) struct Target(Arc<Mutex<Vec<Got>>>);

impl Target {
    pub(crate) async fn start() -> (Self, String) {
        let target = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(respond).with_state(target.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (target, base)
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.0.lock().unwrap().clone()
    }
}

async fn respond(State(target): State<Target>, uri: axum::http::Uri, headers: HeaderMap, body: Bytes) -> Response {
    let count = {
        let mut got = target.0.lock().unwrap();
        got.push(Got { headers, body: body.to_vec() });
        got.len()
    };
    let params = serde_json::from_slice::<Value>(&body).unwrap()["params"].clone();
    match uri.path() {
        "/json" => axum::Json(json!({ "doubled": params["n"].as_i64().unwrap() * 2 })).into_response(),
        "/text" => "plain".into_response(),
        "/empty" => StatusCode::NO_CONTENT.into_response(),
        "/busy-once" if count == 1 => (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "0")], "come back").into_response(),
        "/busy-once" => axum::Json(count).into_response(),
        "/redirect" => (StatusCode::FOUND, [("location", "/json")], "").into_response(),
        "/large" => "x".repeat(5_000_000).into_response(),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "no such order").into_response(),
    }
}

pub(crate) async fn pushing() -> Server {
    let secrets = vec![SECRET.parse().unwrap()];
    server_with(Settings { allow_loopback_targets: true, webhook_secrets: secrets, ..settings() }).await
}

/// Defines a function that is pushed to a path of the target.
async fn define(server: &Server, base: &str, path: &str) {
    let retry = json!({ "max_attempts": 2, "backoff": { "kind": "fixed", "delay_ms": 1 } });
    let body = json!({ "target": { "url": format!("{base}{path}") }, "retry": retry });
    server.put(&format!("/v1/functions/{}", path.trim_start_matches('/')), body).await.with(200);
}

/// The signature as the receiver computes it, with nothing of the server's code.
fn sign(id: &str, timestamp: &str, body: &[u8]) -> String {
    let key = STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[tokio::test]
async fn a_pushed_call_is_answered_by_its_target_and_signed() {
    let (target, base) = Target::start().await;
    let server = pushing().await;
    define(&server, &base, "/json").await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let request = server.request(reqwest::Method::POST, "/v1/functions/json/call").header("traceparent", trace);
    let body = json!({ "params": { "n": 21 }, "input_item": { "row": 3 }, "call_id": "c-1" });
    let called = crate::support::answer(request.json(&body)).await.with(200);
    assert_eq!(called["data"], json!({ "doubled": 42 }));
    let got = target.got();
    assert_eq!(got.len(), 1);
    let posted: Value = serde_json::from_slice(&got[0].body).unwrap();
    assert_eq!((&posted["call_id"], &posted["function_name"], &posted["scope"]), (&json!("c-1"), &json!("json"), &json!("__global__")));
    assert_eq!((&posted["input_item"]["row"], &posted["attempt"]), (&json!(3), &json!(1)));
    assert!(posted["deadline"].is_i64() && posted["delivery_id"].is_string(), "{posted}");
    let header = |name: &str| got[0].headers[name].to_str().unwrap().to_owned();
    assert_eq!(
        (header("webhook-id"), header("traceparent"), header("content-type")),
        ("c-1".into(), trace.into(), "application/json".into())
    );
    let (id, timestamp, signature) = (header("webhook-id"), header("webhook-timestamp"), header("webhook-signature"));
    assert_eq!(signature, sign(&id, &timestamp, &got[0].body));
    assert_ne!(signature, sign(&id, &timestamp, b"something else"), "a changed body does not fit the signature");
    assert_ne!(signature, sign(&id, "1", &got[0].body), "nor does another time");
    assert_eq!(server.get("/v1/workers").await.with(200)["workers"][0]["kind"], "push");
}

#[tokio::test]
async fn each_response_has_its_meaning() {
    let (_target, base) = Target::start().await;
    let server = pushing().await;
    for (path, data) in [("/text", json!("plain")), ("/empty", json!(null))] {
        define(&server, &base, path).await;
        assert_eq!(server.post(&format!("/v1/functions{path}/call"), json!({})).await.with(200)["data"], data, "{path}");
    }
    for (path, code) in [("/refuse", "push_refused"), ("/redirect", "push_refused"), ("/large", "push_response_too_large")] {
        define(&server, &base, path).await;
        let error = server.post(&format!("/v1/functions{path}/call"), json!({})).await.error(424, "call_failed");
        assert_eq!(error["details"]["error"]["code"], code, "{path}: {error}");
        assert!(error["details"]["dead"].is_null(), "{path}: a refusal is final and no dead letter");
    }
    let error = server.post("/v1/functions/refuse/call", json!({})).await.error(424, "call_failed");
    assert!(error["details"]["error"]["message"].as_str().unwrap().ends_with("no such order"), "{error}");
}

#[tokio::test]
async fn a_busy_target_is_tried_again_with_the_same_id() {
    let (target, base) = Target::start().await;
    let server = pushing().await;
    define(&server, &base, "/busy-once").await;
    assert_eq!(server.post("/v1/functions/busy-once/call", json!({})).await.with(200)["data"], 2);
    let ids: Vec<String> = target.got().iter().map(|got| got.headers["webhook-id"].to_str().unwrap().to_owned()).collect();
    assert_eq!((ids.len(), &ids[0]), (2, &ids[1]));
}

#[tokio::test]
async fn a_target_that_cannot_be_reached_makes_a_dead_letter() {
    let server = pushing().await;
    define(&server, "http://127.0.0.1:9", "/gone").await;
    let error = server.post("/v1/functions/gone/call", json!({})).await.error(424, "call_failed");
    assert_eq!((&error["details"]["error"]["code"], &error["details"]["dead"]), (&json!("push_unreachable"), &json!("exhausted")));
}

#[tokio::test]
async fn a_changed_target_gets_the_next_call_and_a_removed_one_none() {
    let (old, old_base) = Target::start().await;
    let (new, new_base) = Target::start().await;
    let server = pushing().await;
    for (base, expected) in [(&old_base, &old), (&new_base, &new)] {
        server.put("/v1/functions/moved", json!({ "target": { "url": format!("{base}/text"), "concurrency": 1 } })).await.with(200);
        // The change is followed in the background; a call that meets the old worker still goes to the old place.
        while expected.got().is_empty() {
            server.post("/v1/functions/moved/call", json!({})).await.with(200);
        }
    }
    let shown = server.get("/v1/functions/moved").await.with(200);
    assert_eq!(
        shown["target"],
        json!({ "url": format!("{new_base}/text"), "concurrency": 1 }),
        "serving it does not change its definition"
    );
    server.delete("/v1/functions/moved").await.with(200);
    server.get("/v1/functions/moved").await.error(404, "function_not_found");
}

#[tokio::test]
async fn targets_inside_are_refused_and_the_answer_names_the_setting() {
    let allowed = vec!["10.1.0.0/16".parse().unwrap()];
    let server = server_with(Settings { allow_targets: allowed, ..settings() }).await;
    for url in [
        "http://127.0.0.1:9/",
        "https://localhost/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::ffff:169.254.169.254]/",
        "https://10.2.0.1/",
        "http://example.com/",
        "https://user:pw@example.com/",
        "file:///etc/passwd",
        "",
        "https://2130706433/",
    ] {
        let error = server.put("/v1/functions/inside", json!({ "target": { "url": url } })).await.error(422, "target_not_allowed");
        assert_eq!((&error["field"], &error["details"]["setting"]), (&json!("target.url"), &json!("allow_target")), "{url}");
        assert!(error["hint"].as_str().unwrap().contains("--allow-target"), "{error}");
    }
    for url in ["https://example.com/hook", "http://10.1.2.3/hook"] {
        server.put("/v1/functions/outside", json!({ "target": { "url": url } })).await.with(200);
    }
    server.get("/v1/functions/inside").await.error(404, "function_not_found");
}

#[tokio::test]
async fn a_target_that_was_allowed_once_is_checked_again_at_every_call() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().display());
    let (target, base) = Target::start().await;
    let open = server_with(Settings { store: store.clone(), allow_loopback_targets: true, ..settings() }).await;
    define(&open, &base, "/text").await;
    open.running.stop().await;
    let strict = server_with(Settings { store, ..settings() }).await;
    let error = strict.post("/v1/functions/text/call", json!({})).await.error(424, "call_failed");
    assert_eq!(error["details"]["error"]["code"], "target_not_allowed");
    assert!(target.got().is_empty());
}

#[tokio::test]
async fn an_allowed_host_and_port_is_posted_to_and_no_other_port() {
    let (target, base) = Target::start().await;
    let port = base.rsplit(':').next().unwrap();
    let server = server_with(Settings { allow_targets: vec![format!("localhost:{port}").parse().unwrap()], ..settings() }).await;
    server.put("/v1/functions/named", json!({ "target": { "url": format!("http://localhost:{port}/text") } })).await.with(200);
    assert_eq!(server.post("/v1/functions/named/call", json!({})).await.with(200)["data"], "plain");
    assert_eq!(target.got().len(), 1);
    let elsewhere = json!({ "target": { "url": format!("http://localhost:{}/text", port.parse::<u16>().unwrap().wrapping_add(1)) } });
    server.put("/v1/functions/other", elsewhere).await.error(422, "target_not_allowed");
}

#[tokio::test]
async fn a_secret_is_made_once_and_kept_beside_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().display());
    let mut seen = Vec::new();
    for _ in 0..2 {
        let server = server_with(Settings { store: store.clone(), ..settings() }).await;
        let kept =
            std::fs::read_dir(folder.path()).unwrap().filter_map(Result::ok).find(|file| file.file_name() == "webhook-secret").unwrap();
        seen.push(std::fs::read_to_string(kept.path()).unwrap());
        server.running.stop().await;
    }
    assert!(seen[0].starts_with("whsec_") && seen[0] == seen[1], "{} secrets", seen.len());
}

#[tokio::test]
async fn a_target_gets_params_with_defaults_filled_in() {
    let (target, base) = Target::start().await;
    let server = pushing().await;
    let body = json!({ "target": { "url": format!("{base}/json") }, "parameters": [{ "name": "n", "type": "integer", "default": 4 }] });
    server.put("/v1/functions/json", body).await.with(200);
    let called = server.post("/v1/functions/json/call", json!({ "params": {} })).await.with(200);
    assert_eq!(called["data"], json!({ "doubled": 8 }));
    assert_eq!(serde_json::from_slice::<Value>(&target.got()[0].body).unwrap()["params"], json!({ "n": 4 }));
}

#[tokio::test]
async fn a_target_is_called_though_the_parameter_definitions_cannot_be_compiled() {
    let (_target, base) = Target::start().await;
    let server = pushing().await;
    server.define_unchecked("text", "[{\"name\":\"a\",\"type\":\"text\"}]", Some(format!("{base}/text"))).await;
    let called = server.post("/v1/functions/text/call", json!({ "params": { "a": 1 } })).await.with(200);
    assert_eq!(called["data"], json!("plain"));
}
