//! Pull workers: two of them, lost leases, retries, leaving, and clients that go away.

use reqwest::Method;
use serde_json::json;

use crate::support::{Server, answer, server};

#[tokio::test]
async fn two_workers_share_the_calls_of_a_function() {
    let server = server().await;
    let (one, two) = (server.pull_worker(json!([{ "name": "shared" }])).await, server.pull_worker(json!([{ "name": "shared" }])).await);
    for n in 0..2 {
        server.post("/v1/functions/shared/calls", json!({ "params": n, "call_id": format!("c-{n}") })).await.with(202);
    }
    let (first, second) = (one.claim_one().await, two.claim_one().await);
    assert_eq!((&first["params"], &second["params"]), (&json!(0), &json!(1)), "oldest first, each to one worker");
    assert_eq!(one.complete(&first, json!("one")).await, "accepted");
    assert_eq!(one.complete(&first, json!("again")).await, "already");
    assert_eq!(one.complete(&second, json!("not mine")).await, "lost");
    assert_eq!(two.complete(&second, json!("two")).await, "accepted");
    assert_eq!(server.get("/v1/calls/c-1").await.with(200)["outcome"]["data"], "two");
    let listed = server.get("/v1/workers").await.with(200);
    assert_eq!(listed["workers"].as_array().unwrap().len(), 2);
    assert_eq!((&listed["workers"][0]["kind"], &listed["workers"][0]["healthy"]), (&json!("http"), &json!(true)));
}

#[tokio::test]
async fn a_worker_gets_no_more_than_its_concurrency() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "narrow", "concurrency": 2 }])).await;
    for _ in 0..5 {
        server.post("/v1/functions/narrow/calls", json!({})).await.with(202);
    }
    let claimed = worker.post("claim", json!({ "max": 10 })).await.with(200);
    assert_eq!(claimed["calls"].as_array().unwrap().len(), 2);
    assert_eq!(worker.post("claim", json!({ "max": 10 })).await.with(200)["calls"], json!([]));
    worker.complete(&claimed["calls"][0], json!(null)).await;
    assert_eq!(worker.post("claim", json!({ "max": 10 })).await.with(200)["calls"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_backlog_of_one_function_does_not_starve_another_of_the_same_worker() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "busy" }, { "name": "idle" }])).await;
    for _ in 0..20 {
        server.post("/v1/functions/busy/calls", json!({})).await.with(202);
    }
    server.post("/v1/functions/idle/calls", json!({})).await.with(202);
    let mut names = Vec::new();
    for _ in 0..3 {
        let delivery = worker.claim_one().await;
        worker.complete(&delivery, json!(null)).await;
        names.push(delivery["function_name"].as_str().unwrap_or_default().to_owned());
    }
    assert!(names.iter().any(|name| name == "idle"), "{names:?}");
}

#[tokio::test]
async fn an_open_claim_gets_a_call_as_soon_as_it_comes() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "soon" }])).await;
    let (delivery, submitted) = tokio::join!(worker.claim_one(), server.post("/v1/functions/soon/calls", json!({})));
    assert_eq!(delivery["call_id"], submitted.with(202)["call_id"]);
    assert_eq!((&delivery["attempt"], &delivery["depth"]), (&json!(1), &json!(0)));
}

/// Ends when the server answers so many requests at once.
async fn open_requests(server: &Server, count: u32) {
    while !server.get("/metrics").await.text.contains(&format!("towpath_http_requests_open {count}\n")) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_that_goes_away_in_an_open_claim_swallows_nothing() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "careful" }])).await;
    let claim = server.request(Method::POST, &format!("/v1/workers/{}/claim", worker.id)).json(&json!({ "wait_ms": 60_000 }));
    let open = tokio::spawn(answer(claim));
    open_requests(&server, 2).await; // the claim, and the one that asks
    open.abort();
    open_requests(&server, 1).await;
    server.post("/v1/functions/careful/calls", json!({ "call_id": "c-1" })).await.with(202);
    assert_eq!(worker.claim_one().await["call_id"], "c-1");
}

#[tokio::test]
async fn a_call_that_comes_between_two_requests_of_a_worker_is_lost_to_nobody() {
    let server = server().await;
    let asks = server.pull_worker(json!([{ "name": "between" }])).await;
    let nothing_yet = async || assert_eq!(asks.post("claim", json!({ "wait_ms": 20 })).await.with(200)["calls"], json!([]));
    let submit = async |id: &str| server.post("/v1/functions/between/calls", json!({ "call_id": id })).await.with(202);

    nothing_yet().await;
    submit("c-1").await;
    let first = asks.claim_one().await;
    assert_eq!(first["call_id"], "c-1", "the worker asks again");
    assert_eq!(asks.complete(&first, json!(1)).await, "accepted");

    nothing_yet().await;
    submit("c-2").await;
    let other = server.pull_worker(json!([{ "name": "between" }])).await;
    let second = other.claim_one().await;
    assert_eq!(second["call_id"], "c-2", "it does not, and another does");
    assert_eq!(other.complete(&second, json!(2)).await, "accepted");

    nothing_yet().await;
    submit("c-3").await;
    server.request(Method::DELETE, &format!("/v1/workers/{}", asks.id)).send().await.unwrap().error_for_status().unwrap();
    assert_eq!(other.post("claim", json!({})).await.with(200)["calls"][0]["call_id"], "c-3", "it has left, and another gets it at once");
}

#[tokio::test]
async fn a_failed_attempt_is_tried_again_and_a_final_one_is_not() {
    let server = server().await;
    let retry = json!({ "backoff": { "kind": "fixed", "delay_ms": 1 } });
    let worker = server.pull_worker(json!([{ "name": "shaky", "retry": retry }])).await;
    server.post("/v1/functions/shaky/calls", json!({ "call_id": "c-1" })).await.with(202);
    let fail = |delivery: &serde_json::Value, error| json!({ "results": [{ "delivery_id": delivery["delivery_id"], "success": false, "error": error }] });
    let first = worker.claim_one().await;
    worker.post("complete", fail(&first, json!({ "message": "busy", "code": "busy", "details": { "why": 1e3 } }))).await.with(200);
    let second = worker.claim_one().await;
    assert_eq!(second["attempt"], 2);
    let shown = server.get("/v1/calls/c-1").await.with(200);
    assert_eq!((&shown["last_failure"]["code"], &shown["attempt"]), (&json!("busy"), &json!(2)));
    worker.post("complete", fail(&second, json!({ "message": "no", "retryable": false }))).await.with(200);
    let shown = server.get("/v1/calls/c-1").await.with(200);
    assert_eq!(
        (&shown["state"], &shown["outcome"]["error"]["code"], &shown["failures"]),
        (&json!("failed"), &json!("handler_error"), &json!(2))
    );
}

#[tokio::test]
async fn a_lost_lease_is_told_in_every_answer_that_speaks_of_it() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "short" }])).await;
    server.post("/v1/functions/short/calls", json!({ "call_id": "c-1" })).await.with(202);
    let claimed = worker.post("claim", json!({ "lease_ms": 1_000 })).await.with(200);
    let late = &claimed["calls"][0];
    // An open claim ends with nothing when a lease of its worker runs out: who is silent about one call is not given more unasked.
    assert_eq!(worker.post("claim", json!({ "wait_ms": 20_000 })).await.with(200)["calls"], json!([]));
    // The call comes back under a new delivery, which proves that the old one is over.
    let fresh = worker.claim_one().await;
    assert_eq!((&fresh["call_id"], fresh["delivery_id"] == late["delivery_id"]), (&json!("c-1"), false));
    let both = json!([late["delivery_id"], fresh["delivery_id"]]);
    assert_eq!(worker.post("heartbeat", json!({ "delivery_ids": both })).await.with(200)["lost"], json!([late["delivery_id"]]));
    assert_eq!(worker.complete(late, json!("late")).await, "lost");
    let error = worker.post("progress", json!({ "delivery_id": late["delivery_id"], "progress": 1 })).await.error(409, "lease_lost");
    assert_eq!((&error["field"], &error["details"]["reason"]), (&json!("delivery_id"), &json!("replaced")));
    assert_eq!(worker.complete(&fresh, json!("in time")).await, "accepted");
    assert_eq!(server.get("/v1/calls/c-1").await.with(200)["outcome"]["data"], "in time");
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("towpath_reclaims_total 1"), "{metrics}");
    assert!(metrics.contains(r#"towpath_lost_leases_total{reason="replaced"} 3"#), "{metrics}");
}

#[tokio::test]
async fn a_worker_that_leaves_hands_back_what_it_holds() {
    let server = server().await;
    let (leaver, stayer) =
        (server.pull_worker(json!([{ "name": "passed" }])).await, server.pull_worker(json!([{ "name": "passed" }])).await);
    server.post("/v1/functions/passed/calls", json!({ "call_id": "c-1" })).await.with(202);
    leaver.claim_one().await;
    assert_eq!(leaver.leave().await["handed_back"], 1);
    assert_eq!(stayer.claim_one().await["call_id"], "c-1");
    let error = leaver.post("claim", json!({})).await.error(404, "worker_not_found");
    assert!(error["hint"].as_str().unwrap().contains("register again"), "{error}");
}

#[tokio::test]
async fn a_worker_keeps_the_id_it_brings() {
    let server = server().await;
    let body = json!({ "worker_id": "import-7", "kind": "python", "functions": [{ "name": "a" }, { "name": "b", "scope": "flow-1" }] });
    let known = server.post("/v1/workers", body).await.with(200);
    assert_eq!(known, json!({ "worker_id": "import-7", "lease_ms": 30_000, "heartbeat_ms": 10_000 }));
    let listed = server.get("/v1/workers").await.with(200);
    assert_eq!(listed["workers"][0]["kind"], "python");
    assert_eq!(listed["workers"][0]["functions"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_pull_worker_gets_params_with_defaults_filled_in() {
    let server = server().await;
    let parameters = json!([{ "name": "a", "type": "integer", "required": true }, { "name": "b", "default": 7 }]);
    let worker = server.pull_worker(json!([{ "name": "fill", "parameters": parameters }])).await;
    let submitted = server.post("/v1/functions/fill/calls", json!({ "params": { "a": 1 }, "call_id": "c-1" })).await.with(202);
    assert_eq!(worker.claim_one().await["params"], json!({ "a": 1, "b": 7 }));
    let again = server.post("/v1/functions/fill/calls", json!({ "params": { "a": 1 }, "call_id": "c-1" })).await.with(202);
    assert_eq!((&again["call_id"], &again["existing"]), (&submitted["call_id"], &json!(true)), "what the caller asked is what is kept");
}

#[tokio::test]
async fn a_call_whose_params_no_longer_fit_ends_with_an_error_and_is_not_delivered() {
    let server = server().await;
    server.put("/v1/functions/moved", json!({ "parameters": [{ "name": "a" }] })).await.with(200);
    server.post("/v1/functions/moved/calls", json!({ "params": { "a": 1 }, "call_id": "c-1" })).await.with(202);
    let parameters = json!([{ "name": "a" }, { "name": "unit", "type": "string", "required": true }]);
    let worker = server.pull_worker(json!([{ "name": "moved", "parameters": parameters }])).await;
    assert_eq!(worker.post("claim", json!({ "wait_ms": 100 })).await.with(200)["calls"], json!([]));
    let call = server.get("/v1/calls/c-1").await.with(200);
    assert_eq!((&call["state"], &call["outcome"]["error"]["code"]), (&json!("failed"), &json!("invalid_params")), "{call}");
    let message = call["outcome"]["error"]["message"].as_str().unwrap();
    assert!(message.contains("parameter 'unit': expected a string, got nothing"), "{message}");
    server.post("/v1/functions/moved/calls", json!({ "params": { "unit": "kg" }, "call_id": "c-2" })).await.with(202);
    assert_eq!(worker.claim_one().await["call_id"], "c-2", "the next call is delivered");
}

#[tokio::test]
async fn parameter_definitions_that_cannot_be_compiled_block_no_call() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "odd" }])).await;
    server.define_unchecked("odd", "[{\"name\":\"a\",\"type\":\"text\"}]", None).await;
    server.post("/v1/functions/odd/calls", json!({ "params": [1] })).await.with(202);
    assert_eq!(worker.claim_one().await["params"], json!([1]));
}
