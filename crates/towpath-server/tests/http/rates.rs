//! Functions with a rate, served by pull workers and by push: calls stay in the queue until it is their turn.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Server, answer, server};

async fn put(server: &Server, scope: &str, algorithm: &str, limit: u64, window_ms: u64) {
    let rule = json!({ "name": "r", "algorithm": algorithm, "limit": limit, "window_ms": window_ms });
    server.put(&format!("/v1/limits/{scope}"), json!({ "policy": "calm", "rules": [rule] })).await.with(200);
}

fn rated(name: &str, concurrency: u32) -> Value {
    json!({ "name": name, "concurrency": concurrency, "limits": { "rate": { "policy": "calm" } } })
}

async fn submit(server: &Server, function: &str, id: &str) {
    let body = json!({ "call_id": id });
    let answer = server.post(&format!("/v1/functions/{function}/calls"), body).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
}

async fn state(server: &Server, id: &str) -> Value {
    server.get(&format!("/v1/calls/{id}")).await.with(200)["state"].clone()
}

#[tokio::test]
async fn a_rate_whose_policy_is_not_there_is_refused_and_one_that_is_removed_is_waited_for() {
    let server = server().await;
    let limits = json!({ "rate": { "policy": "calm" } });
    let rated_batcher = json!({ "key": ["id"], "rate": { "policy": "calm" } });
    for (error, field) in [
        (server.put("/v1/functions/send", json!({ "limits": limits })).await.error(422, "policy_not_found"), "limits.rate.policy"),
        (
            server.post("/v1/workers", json!({ "functions": [rated("send", 1)] })).await.error(422, "policy_not_found"),
            "functions[0].limits.rate.policy",
        ),
        (server.put("/v1/batches/send/settings", rated_batcher.clone()).await.error(422, "policy_not_found"), "rate.policy"),
    ] {
        assert_eq!((error["field"].as_str(), &error["details"]), (Some(field), &json!({ "policy": "calm", "scope": "send" })), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("towpath limit put 'send' --policy 'calm'"), "{error}");
    }
    server.get("/v1/functions/send").await.error(404, "function_not_found");
    server.get("/v1/batches/send").await.error(404, "batcher_not_found");
    put(&server, "send", "sliding_log", 2, 3_600_000).await;
    server.put("/v1/batches/send/settings", rated_batcher).await.with(201);
    let worker = server.pull_worker(json!([rated("send", 1)])).await;
    server.put("/v1/limits/send", json!({ "policy": "calm", "rules": [] })).await.with(200);
    submit(&server, "send", "s-1").await;
    assert_eq!(worker.post("claim", json!({ "wait_ms": 50 })).await.with(200)["calls"], json!([]));
    let health = server.get("/v1/health").await.with(200);
    let wait = |kind: &str, waiting: u64| json!({ "kind": kind, "name": "send", "reason": "policy_not_found", "policy": "calm", "scope": "send", "waiting": waiting });
    assert_eq!(health["waits"], json!([wait("function", 1), wait("batcher", 0)]));
    let why = server.get("/v1/calls/s-1").await.with(200)["waits_because"].clone();
    assert!(why.as_str().unwrap().starts_with("there is no policy 'calm'"), "{why}");
    let timed_out = server.post("/v1/functions/send/call", json!({ "timeout_ms": 50 })).await.error(504, "call_timed_out");
    assert_eq!(timed_out["hint"], why, "{timed_out}");
    let problem = health["problems"][0].as_str().unwrap();
    assert!(problem.starts_with("1 call of 'send' waits because there is no policy 'calm'"), "{problem}");
    put(&server, "send", "sliding_log", 2, 3_600_000).await;
    assert_eq!(worker.claim_one().await["call_id"], "s-1");
    assert_eq!(server.get("/v1/calls/s-1").await.with(200)["waits_because"], Value::Null);
    assert_eq!(server.get("/v1/health").await.with(200)["waits"], json!([]));
}

#[tokio::test]
async fn a_worker_comes_back_while_the_policy_of_its_function_is_missing() {
    let server = server().await;
    put(&server, "send", "sliding_log", 2, 3_600_000).await;
    let worker = server.pull_worker(json!([rated("send", 1)])).await;
    server.put("/v1/limits/send", json!({ "policy": "calm", "rules": [] })).await.with(200);
    server.delete(&format!("/v1/workers/{}", worker.id)).await.with(200);
    server.post("/v1/workers", json!({ "worker_id": worker.id, "functions": [rated("send", 1)] })).await.with(200);
    let mut changed = rated("send", 1);
    changed["limits"]["rate"]["policy"] = json!("calmer");
    for offer in [changed, rated("new", 1)] {
        server.post("/v1/workers", json!({ "functions": [offer] })).await.error(422, "policy_not_found");
    }
}

#[tokio::test]
async fn a_claim_gives_out_no_more_than_the_policy_lets_through() {
    let server = server().await;
    put(&server, "send", "sliding_log", 2, 3_600_000).await;
    let worker = server.pull_worker(json!([rated("send", 10), { "name": "other", "concurrency": 10 }])).await;
    for id in ["s-1", "s-2", "s-3", "s-4"] {
        submit(&server, "send", id).await;
    }
    submit(&server, "other", "o-1").await;
    let claimed = worker.post("claim", json!({ "max": 10, "wait_ms": 5_000 })).await.with(200);
    let mut ids: Vec<&str> = claimed["calls"].as_array().unwrap().iter().map(|call| call["call_id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["o-1", "s-1", "s-2"], "oldest first, and whoever has no rate is not held up");
    for id in ["s-3", "s-4"] {
        assert_eq!(state(&server, id).await, "queued");
    }
    assert_eq!(worker.post("claim", json!({ "max": 10, "wait_ms": 50 })).await.with(200)["calls"], json!([]));
    submit(&server, "other", "o-2").await;
    assert_eq!(worker.claim_one().await["call_id"], "o-2");
    let shown = server.get("/v1/functions/send").await.with(200);
    assert_eq!(shown["limits"]["rate"], json!({ "policy": "calm" }));
}

#[tokio::test]
async fn an_open_claim_is_answered_when_it_is_the_calls_turn() {
    let server = server().await;
    put(&server, "send", "gcra", 1, 400).await;
    let worker = server.pull_worker(json!([rated("send", 10)])).await;
    for id in ["s-1", "s-2", "s-3"] {
        submit(&server, "send", id).await;
    }
    let clock = server.running.towpath().clock();
    let begun = clock.now();
    for id in ["s-1", "s-2", "s-3"] {
        let call = worker.claim_one().await;
        assert_eq!(call["call_id"], id);
        worker.complete(&call, json!(null)).await;
    }
    let took = clock.now().since(begun);
    assert!(took >= Duration::from_millis(795), "two waits of 400 ms, less what the clocks round: {took:?}");
}

#[tokio::test]
async fn a_client_that_goes_away_while_its_call_waits_swallows_neither_call_nor_turn() {
    let server = server().await;
    put(&server, "send", "gcra", 1, 200).await;
    let worker = server.pull_worker(json!([rated("send", 10)])).await;
    submit(&server, "send", "s-1").await;
    worker.claim_one().await;
    submit(&server, "send", "s-2").await;
    let claim = server.request(Method::POST, &format!("/v1/workers/{}/claim", worker.id)).json(&json!({ "wait_ms": 10_000 }));
    let gone = tokio::time::timeout(Duration::from_millis(20), answer(claim)).await;
    assert!(gone.is_err(), "it was to be too early");
    assert_eq!(worker.claim_one().await["call_id"], "s-2");
}

#[tokio::test]
async fn a_pushed_function_has_a_rate_too() {
    let (target, base) = crate::push::Target::start().await;
    let server = crate::push::pushing().await;
    put(&server, "smtp", "sliding_log", 1, 3_600_000).await;
    let rate = json!({ "policy": "calm", "scope": "smtp" });
    server.put("/v1/functions/text", json!({ "target": { "url": format!("{base}/text") }, "limits": { "rate": rate } })).await.with(200);
    for id in ["p-1", "p-2"] {
        submit(&server, "text", id).await;
    }
    let ended = server.get("/v1/calls/p-1?wait_ms=10000").await.with(200);
    assert_eq!(ended["state"], "completed", "{ended}");
    assert_eq!((state(&server, "p-2").await, target.got().len()), (json!("queued"), 1));
}

#[tokio::test]
async fn a_rate_that_cannot_be_is_refused_with_its_place() {
    let server = server().await;
    let long = "x".repeat(300);
    for (rate, status, code, field) in [
        (json!({ "policy": "" }), 400, "invalid_name", "limits.rate.policy"),
        (json!({ "policy": "a:b" }), 400, "invalid_name", "limits.rate.policy"),
        (json!({ "policy": "p", "scope": " " }), 400, "invalid_name", "limits.rate.scope"),
        (json!({ "policy": "p", "scope": long }), 400, "invalid_name", "limits.rate.scope"),
        (json!({ "policy": "p", "scop": "s" }), 400, "unknown_field", "limits.rate.scop"),
        (json!({}), 400, "missing_field", "limits.rate.policy"),
        (json!("p"), 400, "invalid_field", "limits.rate"),
    ] {
        let body = json!({ "functions": [{ "name": "send", "limits": { "rate": rate } }] });
        let error = server.post("/v1/workers", body.clone()).await.error(status, code);
        assert_eq!(error["field"], format!("functions[0].{field}"), "{body}");
        let error = server.put("/v1/functions/send", json!({ "limits": { "rate": rate } })).await.error(status, code);
        assert_eq!(error["field"], field, "{rate}");
    }
    server.get("/v1/functions/send").await.error(404, "function_not_found");
}
