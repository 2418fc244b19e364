//! Calls within calls: the parent gives its permit back, and depth, deadline and trace go down.

use serde_json::json;

use crate::support::server;

#[tokio::test]
async fn a_parent_that_waits_does_not_stand_in_its_childs_way() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "tree", "concurrency": 1 }])).await;
    server.post("/v1/functions/tree/calls", json!({ "call_id": "root", "timeout_ms": 20_000 })).await.with(202);
    let parent = worker.claim_one().await;
    let child = json!({ "call_id": "leaf", "parent_delivery_id": parent["delivery_id"], "timeout_ms": 600_000 });
    let call = server.post("/v1/functions/tree/call", child);
    let work = async {
        let delivery = worker.claim_one().await; // only because the parent is parked
        assert_eq!((&delivery["call_id"], &delivery["depth"]), (&json!("leaf"), &json!(1)));
        let later_ms = delivery["deadline"].as_i64().unwrap() - parent["deadline"].as_i64().unwrap();
        assert!(later_ms < 5_000, "a child ends with its parent, give or take its way to the store, not {later_ms} ms later");
        assert_eq!(server.get("/v1/functions/tree").await.with(200)["parked"], 1);
        worker.complete(&delivery, json!("leaf")).await
    };
    let (called, completed) = tokio::join!(call, work);
    assert_eq!((&called.with(200)["data"], completed.as_str()), (&json!("leaf"), "accepted"));
    assert_eq!(server.get("/v1/calls/leaf").await.with(200)["parent_call_id"], "root");
    while server.get("/v1/functions/tree").await.with(200)["parked"] != 0 {
        tokio::task::yield_now().await; // taken up again in the background
    }
    assert_eq!(worker.complete(&parent, json!("root")).await, "accepted");
}

#[tokio::test]
async fn a_parent_whose_caller_went_away_is_taken_up_again() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "tree", "concurrency": 1 }])).await;
    server.post("/v1/functions/tree/calls", json!({})).await.with(202);
    let parent = worker.claim_one().await;
    let request =
        server.request(reqwest::Method::POST, "/v1/functions/tree/call").json(&json!({ "parent_delivery_id": parent["delivery_id"] }));
    let open = tokio::spawn(crate::support::answer(request));
    let parked = async |expected: u64| {
        while server.get("/v1/functions/tree").await.with(200)["parked"] != expected {
            tokio::task::yield_now().await;
        }
    };
    parked(1).await;
    open.abort();
    parked(0).await;
}

#[tokio::test]
async fn a_delivery_that_is_over_makes_no_calls() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "tree" }])).await;
    server.post("/v1/functions/tree/calls", json!({})).await.with(202);
    let parent = worker.claim_one().await;
    worker.complete(&parent, json!(null)).await;
    for (id, reason) in [(parent["delivery_id"].clone(), "ended"), (json!("1-nothing"), "absent")] {
        let error = server.post("/v1/functions/tree/call", json!({ "parent_delivery_id": id })).await.error(409, "lease_lost");
        assert_eq!((&error["field"], &error["details"]["reason"]), (&json!("parent_delivery_id"), &json!(reason)));
    }
}

#[tokio::test]
async fn tries_of_a_nested_call_end_with_its_parent() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "tree", "concurrency": 1 }])).await;
    server.put("/v1/functions/leaf", json!({})).await.with(200);
    let nested = async |parent_ms: u64, timeout_ms: u64| {
        server.post("/v1/functions/tree/calls", json!({ "timeout_ms": parent_ms })).await.with(202);
        let parent = worker.claim_one().await;
        let body = json!({ "parent_delivery_id": parent["delivery_id"], "timeout_ms": timeout_ms, "retries_on_timeout": 1 });
        (server.post("/v1/functions/leaf/call", body).await, parent)
    };
    // The parent is over when it would be time for the second try.
    let (lost, _parent) = nested(2_500, 1_000).await;
    assert_eq!(lost.error(409, "lease_lost")["field"], "parent_delivery_id");
    let leaves = server.get("/v1/calls?function=leaf").await.with(200);
    assert_eq!(leaves["calls"].as_array().unwrap().len(), 1, "no second try was made: {leaves}");
    // The second try has only the time that the parent has left.
    let (late, parent) = nested(8_000, 5_000).await;
    late.error(504, "call_timed_out");
    let leaves = server.get("/v1/calls?function=leaf").await.with(200);
    let deadline = |call: &serde_json::Value| call["deadline"].as_i64().unwrap();
    let last = leaves["calls"].as_array().unwrap().iter().map(deadline).max().unwrap();
    let later_ms = last - deadline(&parent);
    assert!(later_ms < 2_000, "a try ends with its parent, give or take its way to the store, not {later_ms} ms later");
}

#[tokio::test]
async fn recursion_without_an_end_is_stopped_at_a_thousand() {
    let server = server().await;
    let worker = server.pull_worker(json!([{ "name": "endless", "concurrency": 10_000 }])).await;
    server.post("/v1/functions/endless/calls", json!({})).await.with(202);
    let mut parent = worker.claim_one().await;
    for depth in 1..=1_000 {
        server.post("/v1/functions/endless/calls", json!({ "parent_delivery_id": parent["delivery_id"] })).await.with(202);
        parent = worker.claim_one().await;
        assert_eq!(parent["depth"], depth);
    }
    let error = server
        .post("/v1/functions/endless/calls", json!({ "parent_delivery_id": parent["delivery_id"] }))
        .await
        .error(422, "depth_exceeded");
    assert_eq!(error["details"], json!({ "depth": 1_001, "limit": 1_000 }));
}
