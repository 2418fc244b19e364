//! Runs that start other runs and send them events.

use serde_json::json;

use crate::support::server;

#[tokio::test]
async fn a_parent_waits_for_its_child_and_gets_its_result() {
    let server = server().await;
    let (parents, children) = (server.run_worker("order").await, server.run_worker("shipping").await);
    let parent_id = server.start_run("order", json!(1)).await;
    let mut parent = parents.claim().await;
    let step = parent.open(json!({ "kind": "child", "name": "shipping", "version": "1", "input": { "to": "anna" } })).await;
    assert_eq!(parent.park().await["held"], false);
    let mut child = children.claim().await;
    assert_eq!(child.run["journal"][0]["body"]["v"], json!({ "to": "anna" }));
    let shown = server.run(child.id()).await;
    assert_eq!(shown["parent"], json!(parent_id));
    assert_eq!(server.get(&format!("/v1/runs?parent={parent_id}")).await.with(200)["runs"][0]["run_id"], child.run["run_id"]);
    assert!(server.run(&parent_id).await["why"].as_str().unwrap().contains("1 child"));
    child.complete(json!("track-7")).await;
    let mut parent = parents.claim().await;
    let fact = parent.run["facts"][0].clone();
    assert_eq!(
        (&fact["kind"], &fact["step_id"], &fact["data"]),
        (&json!("child_closed"), &json!(step), &json!({ "out": "ok", "v": "track-7" }))
    );
    parent.commit(json!([{ "step_id": step, "fact": fact["number"] }]), json!({ "kind": "complete" })).await;
    let journal = server.get(&format!("/v1/runs/{parent_id}/journal")).await.with(200);
    assert_eq!(journal["entries"][2]["body"], json!({ "out": "ok", "v": "track-7" }));
}

#[tokio::test]
async fn a_child_follows_its_policy_when_its_parent_ends() {
    let server = server().await;
    let (parents, children) = (server.run_worker("order").await, server.run_worker("shipping").await);
    server.start_run("order", json!(1)).await;
    let mut parent = parents.claim().await;
    parent.open(json!({ "kind": "child", "name": "shipping", "version": "1", "on_close": "terminate" })).await;
    let child = children.claim().await;
    parent.complete(json!(null)).await;
    let ended = server.get(&format!("/v1/runs/{}/wait?wait_ms=20000", child.id())).await.with(200);
    assert_eq!(ended["state"], "terminated");
}

#[tokio::test]
async fn a_run_sends_an_event_to_another_one_once() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let waiting_id = server.start_run("order", json!("waits")).await;
    let mut waiting = worker.claim().await;
    waiting.open(json!({ "kind": "event", "name": "ready" })).await;
    waiting.park().await;
    server.start_run("order", json!("sends")).await;
    let sender = worker.claim().await;
    let steps = json!([{ "step": { "kind": "send", "name": "ready", "to": waiting_id, "input": { "n": 1 } } }]);
    let first = sender.send(&steps, &json!({ "kind": "stay" })).await.with(200);
    assert_eq!(sender.send(&steps, &json!({ "kind": "stay" })).await.with(200), first);
    let woken = worker.claim().await;
    assert_eq!((woken.id(), &woken.run["facts"][0]["data"]), (waiting_id.as_str(), &json!({ "n": 1 })));
    assert_eq!(woken.run["facts"].as_array().map(Vec::len), Some(1));
}
