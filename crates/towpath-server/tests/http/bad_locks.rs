//! Hostile and mistaken questions about locks, as one table: each is answered with a status, a code and the field at fault, and leaves
//! nothing behind.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Server, answer, server};

/// `ACQUIRE`, `RENEW`, .. of scope `s`.
const ACQUIRE: &str = "/v1/locks/s/acquire";
const RENEW: &str = "/v1/locks/s/renew";
const RELEASE: &str = "/v1/locks/s/release";
const CANCEL: &str = "/v1/locks/s/cancel";
const CLEANUP: &str = "/v1/locks:cleanup";

async fn check(server: &Server, path: &str, body: &Value, status: u16, code: &str, field: &str) {
    let error = server.post(path, body.clone()).await.error(status, code);
    assert_eq!((error["field"].as_str(), error["effect"].as_str()), (Some(field), Some("none")), "{path} {body}: {error}");
}

#[tokio::test]
async fn scopes_that_cannot_be_are_refused_by_every_verb() {
    let server = server().await;
    let long = "x".repeat(300);
    let long_in_bytes = "%D0%B7".repeat(129);
    let scopes =
        ["", "%20", "%E2%80%83", "%3Ameta", "a:meta", "a:meta:meta", "a%0Ab", "a%00", "a%7F", long.as_str(), long_in_bytes.as_str()];
    let verbs = [
        ("acquire", json!({})),
        ("renew", json!({ "fence": 1 })),
        ("release", json!({ "lock_id": "a" })),
        ("cancel", json!({ "request_id": "q" })),
    ];
    for scope in scopes {
        for (verb, body) in &verbs {
            check(&server, &format!("/v1/locks/{scope}/{verb}"), body, 400, "invalid_name", "scope").await;
        }
        if scope.is_empty() {
            continue; // the list, and nothing that could be deleted
        }
        assert_eq!(server.get(&format!("/v1/locks/{scope}")).await.error(400, "invalid_name")["field"], "scope");
        let force = server.request(Method::DELETE, &format!("/v1/locks/{scope}")).json(&json!({ "reason": "stuck" }));
        assert_eq!(answer(force).await.error(400, "invalid_name")["field"], "scope");
        check(&server, ACQUIRE, &json!({ "kind": "semaphore", "limit": 0 }), 400, "out_of_range", "limit").await;
    }
    server.post("/v1/locks/not%FFutf8/acquire", json!({})).await.error(400, "invalid_name");
    assert_eq!(server.get("/v1/locks").await.with(200)["locks"], json!([]));
}

#[tokio::test]
async fn scopes_of_any_other_text_are_locks_of_their_own() {
    let server = server().await;
    let longest = "x".repeat(256);
    let scopes = ["замок", "🔒", "a b", "a:b", "{a}", "x:metal", "meta", "a%b", "a/b", "\"'`$(id)", "cleanup2", longest.as_str()];
    for scope in scopes {
        let name: String = scope.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let granted =
            server.post(&format!("/v1/locks/{name}/acquire"), json!({ "lock_id": scope, "workflow_name": scope })).await.with(200);
        assert_eq!((&granted["scope"], &granted["key"]), (&json!(scope), &json!(format!("n8n-lock-{scope}"))));
        let shown = server.get(&format!("/v1/locks/{name}")).await.with(200);
        assert_eq!((&shown["holder"]["lock_id"], &shown["holder"]["workflow_name"]), (&json!(scope), &json!(scope)));
    }
    assert_eq!(server.get("/v1/locks").await.with(200)["locks"].as_array().map(Vec::len), Some(scopes.len()));
}

#[tokio::test]
async fn questions_that_cannot_be_are_refused_with_the_field_and_its_range() {
    let server = server().await;
    let long = "x".repeat(300);
    let acquire = [
        (json!({ "ttl_seconds": 0 }), "out_of_range", "ttl_seconds"),
        (json!({ "ttl_seconds": 0.099 }), "out_of_range", "ttl_seconds"),
        (json!({ "ttl_seconds": -5 }), "out_of_range", "ttl_seconds"),
        (json!({ "ttl_seconds": "-5" }), "out_of_range", "ttl_seconds"),
        (json!({ "ttl_seconds": 604_801 }), "out_of_range", "ttl_seconds"),
        (json!({ "ttl_seconds": 1e300 }), "out_of_range", "ttl_seconds"),
        (json!({ "ttl_seconds": "a week" }), "invalid_field", "ttl_seconds"),
        (json!({ "ttl_seconds": "1e9" }), "invalid_field", "ttl_seconds"),
        (json!({ "ttl_seconds": "" }), "invalid_field", "ttl_seconds"),
        (json!({ "ttl_seconds": [1] }), "invalid_field", "ttl_seconds"),
        (json!({ "ttl_seconds": 10, "lease_ms": 11_000 }), "out_of_range", "lease_ms"),
        (json!({ "lease_ms": 10 }), "out_of_range", "lease_ms"),
        (json!({ "lease_ms": -1 }), "out_of_range", "lease_ms"),
        (json!({ "max_wait_seconds": -1 }), "out_of_range", "max_wait_seconds"),
        (json!({ "max_wait_seconds": 604_801 }), "out_of_range", "max_wait_seconds"),
        (json!({ "max_wait_seconds": 1e300 }), "out_of_range", "max_wait_seconds"),
        (json!({ "wait": "no" }), "invalid_field", "wait"),
        (json!({ "wait_till_lock_released": 0 }), "invalid_field", "wait_till_lock_released"),
        (json!({ "wait": true, "wait_till_lock_released": true }), "duplicate_field", "wait"),
        (json!({ "max_holds": 0 }), "out_of_range", "max_holds"),
        (json!({ "max_holds": 1.5 }), "out_of_range", "max_holds"),
        (json!({ "kind": "shared" }), "invalid_field", "kind"),
        (json!({ "kind": "semaphore" }), "missing_field", "limit"),
        (json!({ "kind": "semaphore", "limit": 0 }), "out_of_range", "limit"),
        (json!({ "kind": "semaphore", "limit": 1e12 }), "out_of_range", "limit"),
        (json!({ "kind": "semaphore", "limit": 2, "weight": 0 }), "out_of_range", "weight"),
        (json!({ "kind": "semaphore", "limit": 2, "weight": 3 }), "out_of_range", "weight"),
        (json!({ "lock_id": "" }), "invalid_name", "lock_id"),
        (json!({ "lock_id": long }), "invalid_name", "lock_id"),
        (json!({ "lock_id": 7 }), "invalid_field", "lock_id"),
        (json!({ "execution_id": "" }), "invalid_name", "execution_id"),
        (json!({ "execution_id": long }), "invalid_name", "execution_id"),
        (json!({ "workflow_id": long }), "invalid_name", "workflow_id"),
        (json!({ "workflow_name": long }), "invalid_name", "workflow_name"),
        (json!({ "request_id": "a b" }), "invalid_name", "request_id"),
        (json!({ "request_id": "a|b" }), "invalid_name", "request_id"),
        (json!({ "until": 1 }), "unknown_field", "until"),
    ];
    for (body, code, field) in &acquire {
        check(&server, ACQUIRE, body, 400, code, field).await;
    }
    let range = server.post(ACQUIRE, json!({ "ttl_seconds": 0 })).await.error(400, "out_of_range");
    assert_eq!(range["details"], json!({ "min": "0.1 s", "max": "604800 s" }));
    for (path, body, status, code, field) in [
        (RENEW, json!({}), 400, "missing_field", "fence"),
        (RENEW, json!({ "fence": -1 }), 400, "out_of_range", "fence"),
        (RENEW, json!({ "fence": 1, "lease_ms": 0 }), 400, "out_of_range", "lease_ms"),
        (RENEW, json!({ "fence": 1, "kind": "read" }), 400, "missing_field", "lock_id"),
        (RELEASE, json!({}), 400, "missing_field", "fence"),
        (RELEASE, json!({ "fence": 1, "lock_id": "a" }), 422, "ambiguous", "lock_id"),
        (RELEASE, json!({ "kind": "read", "fence": 1 }), 400, "missing_field", "lock_id"),
        (RELEASE, json!({ "lock_id": "" }), 400, "invalid_name", "lock_id"),
        (CANCEL, json!({}), 400, "missing_field", "request_id"),
        (CANCEL, json!({ "request_id": "" }), 400, "invalid_name", "request_id"),
        (CLEANUP, json!({}), 400, "missing_field", "execution_id"),
        (CLEANUP, json!({ "execution_id": "" }), 400, "invalid_name", "execution_id"),
        (CLEANUP, json!({ "execution_id": "e", "lock_scopes": ["a:meta"] }), 400, "invalid_name", "lock_scopes"),
    ] {
        check(&server, path, &body, status, code, field).await;
    }
    for (query, code, field) in [
        ("limit=0", "out_of_range", "limit"),
        ("limit=201", "out_of_range", "limit"),
        ("kind=shared", "invalid_field", "kind"),
        ("scan=maybe", "invalid_field", "scan"),
        ("cursor=a:meta", "invalid_name", "scope"),
        ("until=1", "unknown_field", "until"),
    ] {
        assert_eq!(server.get(&format!("/v1/locks?{query}")).await.error(400, code)["field"], field, "{query}");
    }
    server.get("/v1/locks/s").await.error(404, "lock_not_found");
}

#[tokio::test]
async fn bodies_that_are_no_question_are_refused() {
    let server = server().await;
    for body in ["hello", "{", "[]", r#"{"ttl_seconds": NaN}"#, r#"{"lock_id": "\ud800"}"#, "{} {}"] {
        let refused = server.post_bytes(ACQUIRE, body).await;
        assert_eq!(refused.status.as_u16(), 400, "{body}: {}", refused.text);
    }
    let text = server.request(Method::POST, ACQUIRE).header("content-type", "text/plain").body("{}");
    answer(text).await.error(415, "unsupported_media_type");
    server.post(ACQUIRE, json!({ "workflow_name": "x".repeat(10_000_000) })).await.error(413, "payload_too_large");
    server.get("/v1/locks/s").await.error(404, "lock_not_found");
}

#[tokio::test]
async fn a_release_of_an_unknown_or_foreign_lock_touches_nothing() {
    let server = server().await;
    for (body, outcome) in [(json!({ "lock_id": "a" }), "absent"), (json!({ "kind": "read", "lock_id": "a" }), "already")] {
        let released = server.post("/v1/locks/never/release", body).await.with(200);
        assert_eq!((&released["outcome"], &released["released"], &released["idempotent"]), (&json!(outcome), &json!(true), &json!(true)));
    }
    assert_eq!(server.post("/v1/locks/never/release", json!({ "fence": 7 })).await.with(200)["outcome"], "expired");
    server.get("/v1/locks/never").await.error(404, "lock_not_found");
    let held = server.post(ACQUIRE, json!({ "lock_id": "a" })).await.with(200);
    let foreign = server.post(RELEASE, json!({ "lock_id": "b" })).await.error(409, "lock_lost");
    assert_eq!(foreign["details"]["outcome"], "not_holder");
    assert!(foreign["message"].as_str().unwrap().starts_with("LOGIC ERROR: Lock held by unknown (id: unknown, execution: "), "{foreign}");
    let later = held["fence"].as_u64().unwrap() + 1;
    let lost = server.post(RELEASE, json!({ "fence": later })).await.error(409, "lock_lost");
    assert_eq!(lost["details"]["reason"], "replaced");
    assert_eq!(server.get("/v1/locks/s").await.with(200)["holder"]["lock_id"], "a");
}
