//! Hostile and mistaken questions about limits, as one table: each is answered with a status, a code and the field at fault, and counts nothing.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Server, answer, server};

const CHECK: &str = "/v1/limits/s/check";
const REFUND: &str = "/v1/limits/s/refund";
const RULE: &str = "r%3Dgcra:5/1s";

fn rule() -> Value {
    json!({ "name": "r", "limit": 5, "window_ms": 1_000 })
}

fn one(key: &str, value: Value) -> Value {
    let mut rule = rule();
    rule[key] = value;
    json!({ "rules": [rule] })
}

async fn refuses(server: &Server, method: Method, path: &str, body: Option<&Value>, status: u16, code: &str, field: &str) {
    let request = server.request(method, path);
    let request = if let Some(body) = body { request.json(body) } else { request };
    let error = answer(request).await.error(status, code);
    assert_eq!((error["field"].as_str(), error["effect"].as_str()), (Some(field), Some("none")), "{path} {body:?}: {error}");
}

#[tokio::test]
async fn scopes_that_cannot_be_are_refused_by_every_verb() {
    let server = server().await;
    let (long, long_in_bytes) = ("x".repeat(300), "%D0%B7".repeat(129));
    for scope in ["%20", "%E2%80%83", "%09", "a%0Ab", "a%00", "a%7F", long.as_str(), long_in_bytes.as_str()] {
        let at = |more: &str| format!("/v1/limits/{scope}{more}");
        let body = json!({ "rules": [rule()] });
        for (method, path, body) in [
            (Method::POST, at("/check"), Some(&body)),
            (Method::POST, at("/refund"), Some(&body)),
            (Method::PUT, at(""), Some(&body)),
            (Method::GET, at(&format!("?rules={RULE}")), None),
            (Method::DELETE, at(&format!("?rules={RULE}")), None),
        ] {
            refuses(&server, method, &path, body, 400, "invalid_name", "scope").await;
        }
    }
    assert_eq!(server.get("/v1/limits").await.with(200), json!({ "limits": [], "policies": [] }));
}

#[tokio::test]
async fn any_other_text_is_a_scope_of_its_own() {
    let server = server().await;
    let longest = "x".repeat(256);
    // `a:meta` is the identity of a lock, and nothing to limits: their keys end in the number of a window or begin with ours.
    let scopes = ["a", "a:meta", ":meta", "замок", "🔒", "a b", "{a}", "a%b", "a/b", "\"'`$(id)", "a-1", longest.as_str()];
    for scope in scopes {
        let path: String = url_escaped(scope);
        for (count, allowed) in [(1, true), (2, false)] {
            let verdict = server.post(&format!("/v1/limits/{path}/check"), json!({ "limit": 1, "windowSeconds": 3_600 })).await.with(200);
            assert_eq!((&verdict["scope"], &verdict["count"], &verdict["allowed"]), (&json!(scope), &json!(count), &json!(allowed)));
        }
    }
    assert_eq!(server.get("/v1/limits").await.with(200)["limits"].as_array().unwrap().len(), scopes.len());
}

fn url_escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn numbers_and_rules_that_cannot_be_are_refused_wherever_they_stand() {
    let server = server().await;
    let rules = [
        (one("limit", json!(0)), 400, "out_of_range", "rules[0].limit"),
        (one("limit", json!(1e300)), 400, "out_of_range", "rules[0].limit"),
        (one("limit", json!(null)), 400, "invalid_field", "rules[0].limit"),
        (one("limit", json!([5])), 400, "invalid_field", "rules[0].limit"),
        (one("window_ms", json!(0)), 400, "out_of_range", "rules[0].window_ms"),
        (one("window_ms", json!("0")), 400, "out_of_range", "rules[0].window_ms"),
        (one("window_ms", json!(u64::MAX)), 400, "out_of_range", "rules[0].window_ms"),
        (one("burst", json!(1_000_000_001)), 400, "out_of_range", "rules[0].burst"),
        (one("key", json!("")), 400, "invalid_name", "rules[0].key"),
        (one("key", json!("a\u{7f}")), 400, "invalid_name", "rules[0].key"),
        (json!({ "rules": [rule(), rule()] }), 422, "bad_rule", "rules"),
        (json!({ "rules": {} }), 400, "invalid_field", "rules"),
        (json!({ "rules": ["r=gcra:5/1s"] }), 400, "invalid_field", "rules[0]"),
        (json!({ "rules": [{ "name": "r", "limit": 5 }] }), 400, "missing_field", "rules[0].window_ms"),
    ];
    for (body, status, code, field) in &rules {
        for (method, path) in [(Method::POST, CHECK), (Method::POST, REFUND), (Method::PUT, "/v1/limits/s")] {
            refuses(&server, method, path, Some(body), *status, code, field).await;
        }
    }
    for (cost, path) in
        [(json!(0), CHECK), (json!(0), REFUND), (json!(-1), CHECK), (json!(1_000_001), REFUND), (json!(1e300), CHECK), (json!("x"), CHECK)]
    {
        refuses(&server, Method::POST, path, Some(&json!({ "rules": [rule()], "cost": cost })), 400, "out_of_range", "cost").await;
    }
    for (query, status, code, field) in [
        ("rules=r%3Dgcra:0/1s", 400, "out_of_range", "limit"),
        ("rules=r%3Dgcra:5/0s", 400, "out_of_range", "window_ms"),
        ("rules=nonsense", 422, "bad_rule", "rules"),
        ("rules=", 422, "bad_rule", "rules"),
        ("rules=r%3Dgcra:5/1s;r%3Dgcra:6/1s", 422, "bad_rule", "rules"),
        ("rules=r%3Dgcra:5/1s&policy=p", 422, "ambiguous", "rules"),
        ("policy=", 400, "invalid_name", "policy"),
        ("polcy=p", 400, "unknown_field", "polcy"),
    ] {
        for method in [Method::GET, Method::DELETE] {
            refuses(&server, method, &format!("/v1/limits/s?{query}"), None, status, code, field).await;
        }
    }
    let untouched = server.get(&format!("/v1/limits/s?rules={RULE}")).await.with(200);
    assert_eq!(untouched["count"], 0);
    assert_eq!(server.get("/v1/limits").await.with(200), json!({ "limits": [], "policies": [] }));
}

#[tokio::test]
async fn bodies_that_are_no_json_of_another_type_or_too_large_are_refused() {
    let server = server().await;
    for (method, path) in [(Method::POST, CHECK), (Method::POST, REFUND), (Method::PUT, "/v1/limits/s")] {
        let send = |kind: &'static str, body: Vec<u8>| answer(server.request(method.clone(), path).header("content-type", kind).body(body));
        for text in ["{", "nonsense", "{} {}", "{\"rules\": NaN}", "\u{feff}{}"] {
            send("application/json", text.into()).await.error(400, "invalid_json");
        }
        send("application/json", b"{\"policy\": \"\xff\"}".to_vec()).await.error(400, "invalid_json");
        send("application/json", b"[]".to_vec()).await.error(400, "invalid_field");
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/problem+json"] {
            send(kind, b"{}".to_vec()).await.error(415, "unsupported_media_type");
        }
        let large = format!("{{\"policy\": \"{}\"}}", "x".repeat(5_000_000));
        send("application/json", large.into()).await.error(413, "payload_too_large");
    }
    assert_eq!(server.get("/v1/limits").await.with(200), json!({ "limits": [], "policies": [] }));
}
