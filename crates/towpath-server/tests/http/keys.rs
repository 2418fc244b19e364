//! Keys of users that look like verbs, like parts of paths, or like nothing: each names its own thing on every route (decision 038).

use serde_json::{Value, json};

use crate::support::{Server, server};

/// Keys that every kind of thing may have.
fn awkward() -> Vec<String> {
    let words = ["settings", "cleanup", "replay", "drop", "keys", "messages", "claim", "calls", "call", "acquire", "check", "flush", "v1"];
    let marks = [".", "..", "a/b", "/", "%2F", "%", "a?b#c", "a b+c", "~", ":", "locks:cleanup", "🙂", "%7F", "..."];
    words.iter().chain(&marks).map(|key| (*key).to_owned()).chain(["x".repeat(256)]).collect()
}

/// A key as one segment, as the decision says.
fn segment(key: &str) -> String {
    match key {
        "" | "." | ".." => format!("%7F{key}"),
        _ => percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC).to_string(),
    }
}

#[tokio::test]
async fn every_key_of_a_lock_names_its_own_lock() {
    let server = server().await;
    for key in awkward() {
        let path = format!("/v1/locks/{}", segment(&key));
        let held = server.post(&format!("{path}/acquire"), json!({ "wait": false })).await.with(200);
        assert_eq!(held["scope"], key.as_str());
        let fence = &held["fence"];
        server.post(&format!("{path}/renew"), json!({ "fence": fence })).await.with(200);
        let shown = server.get(&path).await.with(200);
        assert_eq!(shown["scope"], key.as_str());
        let forced = json!({ "reason": "test", "counter": shown["counter"] });
        let forced = crate::support::answer(server.request(reqwest::Method::DELETE, &path).json(&forced)).await.with(200);
        assert_eq!(forced["holder"]["lock_id"], held["lock_id"], "{key}");
    }
    assert_eq!(server.post("/v1/locks:cleanup", json!({ "execution_id": "1" })).await.with(200)["cleaned"], false);
}

#[tokio::test]
async fn every_key_of_a_limit_names_its_own_limit() {
    let server = server().await;
    for key in awkward() {
        let path = format!("/v1/limits/{}", segment(&key));
        server
            .put(&path, json!({ "rules": [{ "name": "r", "algorithm": "sliding_log", "limit": 5, "window_ms": 3_600_000 }] }))
            .await
            .with(200);
        let verdict = server.post(&format!("{path}/check"), json!({ "cost": 2 })).await.with(200);
        assert_eq!((verdict["scope"].as_str(), &verdict["allowed"]), (Some(key.as_str()), &json!(true)));
        server.post(&format!("{path}/refund"), json!({})).await.with(200);
        assert_eq!(server.get(&path).await.with(200)["scope"], key.as_str());
        assert_eq!(server.delete(&path).await.with(200)["reset"], 1, "{key}");
    }
}

#[tokio::test]
async fn every_name_of_a_function_and_every_id_of_a_call_names_its_own() {
    let server = server().await;
    for key in awkward() {
        let path = format!("/v1/functions/{}", segment(&key));
        assert_eq!(server.put(&path, json!({})).await.with(200)["name"], key.as_str());
        let submitted = server.post(&format!("{path}/calls"), json!({ "call_id": key, "params": {} })).await.with(202);
        assert_eq!(submitted["call_id"], key.as_str());
        let call = format!("/v1/calls/{}", segment(&key));
        assert_eq!(server.get(&call).await.with(200)["function_name"], key.as_str());
        server.delete(&call).await.with(200);
        assert_eq!(server.get(&call).await.with(200)["state"], "cancelled", "{key}");
        assert_eq!(server.get(&path).await.with(200)["name"], key.as_str());
        assert_eq!(server.delete(&path).await.with(200)["name"], key.as_str());
    }
}

#[tokio::test]
async fn every_id_of_a_dead_letter_names_its_own() {
    let server = server().await;
    let retry = json!({ "max_attempts": 1 });
    let worker = server.pull_worker(json!([{ "name": "f", "retry": retry }])).await;
    for key in awkward() {
        let letter = dead(&server, &worker, &key).await;
        assert_eq!(server.get(&letter).await.with(200)["call_id"], key.as_str());
        let replayed = server.post(&format!("{letter}/replay"), json!({})).await.with(200);
        assert_eq!(replayed["replayed"][0]["call_id"], key.as_str());
        let again = worker.claim_one().await;
        assert_eq!(worker.complete(&again, json!(1)).await, "accepted", "{key}");
        let other = dead(&server, &worker, &format!("{}2", &key[..key.len().min(key.floor_char_boundary(200))])).await;
        assert_eq!(server.delete(&other).await.with(200)["dropped"], 1, "{key}");
    }
    assert_eq!(server.post("/v1/dead-letters:drop", json!({})).await.with(200)["dropped"], 0);
}

/// Makes a dead letter with this id; its path.
async fn dead(server: &Server, worker: &crate::support::PullWorker<'_>, id: &str) -> String {
    server.post("/v1/functions/f/calls", json!({ "call_id": id, "params": {} })).await.with(202);
    let delivery = worker.claim_one().await;
    let failed =
        json!({ "delivery_id": delivery["delivery_id"], "success": false, "error": { "code": "no", "message": "no", "retryable": true } });
    worker.post("complete", json!({ "results": [failed] })).await.with(200);
    format!("/v1/dead-letters/{}", segment(id))
}

#[tokio::test]
async fn every_key_of_a_batch_names_its_own_batch() {
    let server = server().await;
    server
        .put("/v1/batches/keys/settings", json!({ "key": ["id"], "debounce_seconds": 3_600, "target": { "pull": true } }))
        .await
        .with(201);
    for key in awkward() {
        let pushed = server.post("/v1/batches/keys/messages", json!({ "id": key, "text": "hi" })).await.with(202);
        assert_eq!(pushed["batch_key"], key.as_str());
        let path = format!("/v1/batches/keys/keys/{}", segment(&key));
        let open = server.get(&path).await.with(200);
        assert_eq!((open["batch_key"].as_str(), open["messages"].as_array().map(Vec::len)), (Some(key.as_str()), Some(1)));
        assert_eq!(server.post(&format!("{path}/touch"), json!({})).await.with(200)["batch_key"], key.as_str());
        assert_eq!(server.post(&format!("{path}/flush"), json!({})).await.with(200)["batch_key"], key.as_str());
    }
    for batcher in awkward().into_iter().filter(|name| !name.contains(['/', ':'])) {
        let path = format!("/v1/batches/{}", segment(&batcher));
        let kept = server.put(&format!("{path}/settings"), json!({ "key": ["id"] })).await;
        assert!(kept.status.is_success(), "{}", kept.text);
        assert_eq!(server.get(&path).await.with(200)["batcher"], batcher.as_str());
    }
}

#[tokio::test]
async fn an_empty_key_is_refused_and_names_nothing_else() {
    let server = server().await;
    let post: [(&str, Value); 4] = [
        ("/v1/locks/%7F/acquire", json!({})),
        ("/v1/locks//acquire", json!({})),
        ("/v1/limits/%7F/check", json!({})),
        ("/v1/functions/%7F/calls", json!({ "params": {} })),
    ];
    for (path, body) in post {
        server.post(path, body).await.error(400, "invalid_name");
    }
    for path in ["/v1/calls/%7F", "/v1/dead-letters/%7F", "/v1/batches/input_contour/keys/%7F", "/v1/functions/%7F", "/v1/locks/%7F"] {
        server.get(path).await.error(400, "invalid_name");
    }
    for path in ["/v1/calls/", "/v1/locks/", "/v1/functions/"] {
        server.get(path).await.error(404, "route_not_found");
    }
}
