//! A worker in any language: register, claim, commit, renew, leave.

use std::sync::Arc;

use serde_json::{Value, json};
use towpath_server::metrics::Metrics;
use towpath_server::serve;

use crate::support::{Server, server, settings};

#[tokio::test]
async fn three_tasks_cost_one_commit_each_and_their_results_are_in_the_journal() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!({ "item": "tea" })).await;
    let mut held = worker.claim().await;
    assert_eq!(held.run["journal"][0]["body"]["v"], json!({ "item": "tea" }));
    let mut ids = Vec::new();
    for (name, value) in [("reserve", json!(1)), ("charge", json!(null)), ("charge", json!([3]))] {
        ids.push(held.task(name, value).await);
    }
    assert!(ids[0] != ids[1] && ids[1] != ids[2], "the same task for the second time is another step: {ids:?}");
    held.complete(json!("done")).await;
    assert_eq!(server.journal_kinds(&run_id).await, ["begin", "open", "done", "open", "done", "open", "done", "close"]);
    let journal = server.get(&format!("/v1/runs/{run_id}/journal")).await.with(200);
    assert_eq!(journal["entries"][2]["body"], json!({ "out": "ok", "v": 1 }));
    assert_eq!(journal["entries"][5]["body"], json!({ "k": "task", "name": "charge", "n": 1 }));
    assert_eq!(server.run(&run_id).await["outcome"], json!({ "kind": "completed", "data": "done" }));
}

#[tokio::test]
async fn steps_are_known_by_their_input_or_their_key() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    server.start_run("order", json!(1)).await;
    let mut held = worker.claim().await;
    let task = |more: Value| {
        let mut step = json!({ "kind": "task", "name": "mail" });
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "step": step, "out": "ok" })
    };
    let steps = json!([task(json!({ "input": { "to": "a" } })), task(json!({ "input": { "to": "b" } })), task(json!({ "key": "k" }))]);
    let answer = held.commit(steps, json!({ "kind": "stay" })).await;
    let journal = server.get(&format!("/v1/runs/{}/journal", held.id())).await.with(200);
    let opened = &journal["entries"];
    assert!(opened[1]["body"]["key"].as_str().unwrap().starts_with("h1:") && opened[1]["body"]["v"] == json!({ "to": "a" }), "{opened}");
    assert_eq!(opened[3]["body"]["key"], "k:k");
    assert_eq!(answer["step_ids"], json!([opened[1]["step_id"], opened[2]["step_id"], opened[3]["step_id"]]));
    let kinds: Vec<&str> = opened.as_array().unwrap().iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["begin", "open", "open", "open", "done", "done", "done"], "what was issued, then results");
}

#[tokio::test]
async fn the_same_commit_again_gets_the_first_answer() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!(1)).await;
    let mut held = worker.claim().await;
    let steps = json!([{ "step": { "kind": "task", "name": "reserve" }, "out": "ok", "value": 7 }]);
    let first = held.send(&steps, &json!({ "kind": "stay" })).await.with(200);
    let again = held.send(&steps, &json!({ "kind": "stay" })).await.with(200);
    assert_eq!(first, again);
    assert_eq!(server.journal_kinds(&run_id).await, ["begin", "open", "done"]);
    let stale = held.send(&json!([]), &json!({ "kind": "stay" })).await.with(200);
    assert_eq!((&stale["result"], &stale["revision"]), (&json!("stale"), &first["revision"]), "another commit on the old revision");
    held.revision = first["revision"].as_u64().unwrap();
    let close = json!({ "kind": "complete", "value": 1 });
    let closed = held.send(&json!([]), &close).await.with(200);
    assert_eq!(held.send(&json!([]), &close).await.with(200), closed, "also of a run that was closed by it");
    assert_eq!(server.journal_kinds(&run_id).await.last().map(String::as_str), Some("close"));
}

#[tokio::test]
async fn a_silent_worker_loses_its_run_and_its_late_commit_is_refused() {
    let server = server().await;
    let served = json!([{ "workflow": "order", "version": "1" }]);
    let silent = server.run_worker_of(json!({ "build": "b", "workflows": served, "lease_ms": 500 })).await;
    let other = server.run_worker_of(json!({ "build": "b", "workflows": served, "lease_ms": 500 })).await;
    let run_id = server.start_run("order", json!(1)).await;
    let mut first = silent.claim().await;
    let reserve = first.task("reserve", json!("by the first")).await;
    let mut second = other.claim().await;
    assert_eq!(second.id(), run_id);
    assert!(second.run["epoch"].as_u64() > first.run["epoch"].as_u64());
    assert_eq!(second.run["journal"][2]["body"]["v"], "by the first", "what was committed is there");
    let late =
        first.send(&json!([{ "step": { "kind": "task", "name": "charge" }, "out": "ok" }]), &json!({ "kind": "stay" })).await.with(200);
    assert_eq!((&late["result"], &late["held"]), (&json!("lost"), &json!(false)));
    let renewed = silent.post("renew", json!({ "runs": [{ "run_id": run_id, "epoch": first.run["epoch"] }] })).await.with(200);
    assert_eq!(renewed["runs"][0]["result"], "lost");
    let charge = second.task("charge", json!("by the second")).await;
    assert_ne!(reserve, charge);
    second.complete(json!(null)).await;
    assert_eq!(server.journal_kinds(&run_id).await, ["begin", "open", "done", "open", "done", "close"]);
    assert_eq!(server.run(&run_id).await["outcome"], json!({ "kind": "completed", "data": null }));
}

#[tokio::test]
async fn a_worker_that_leaves_releases_its_runs() {
    let server = server().await;
    let (one, two) = (server.run_worker("order").await, server.run_worker("order").await);
    let run_id = server.start_run("order", json!(1)).await;
    let mut held = one.claim().await;
    held.task("reserve", json!(1)).await;
    assert!(two.claims_nothing().await);
    assert_eq!(one.leave().await["released"], 1);
    assert_eq!(two.claim().await.id(), run_id);
    one.post("claim", json!({})).await.error(404, "worker_not_found");
    let lost = held.send(&json!([]), &json!({ "kind": "stay" })).await.with(200);
    assert_eq!(lost["result"], "lost");
}

#[tokio::test]
async fn a_worker_that_the_server_does_not_know_registers_again_and_keeps_its_run() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    server.start_run("order", json!(1)).await;
    let mut held = worker.claim().await;
    worker.server.delete("/v1/run-workers/another").await.error(404, "worker_not_found");
    let again = json!({ "worker_id": worker.id, "build": "b-1", "workflows": [{ "workflow": "order", "version": "1" }] });
    assert_eq!(server.post("/v1/run-workers", again).await.with(200)["worker_id"], json!(worker.id));
    held.task("reserve", json!(1)).await;
    assert_eq!(worker.leave().await["released"], 1);
}

#[tokio::test]
async fn a_server_that_does_not_know_a_worker_takes_its_renewals_and_commits() {
    let first = server().await;
    let same_store = first.running.towpath().clone();
    let running = serve::start_on(same_store, Arc::new(Metrics::new()), settings()).await.unwrap();
    let second = Server::on(running);
    let worker = first.run_worker("order").await;
    let run_id = first.start_run("order", json!(1)).await;
    let mut held = worker.claim().await;
    let renew = json!({ "runs": [{ "run_id": run_id, "epoch": held.run["epoch"] }] });
    let renewed = second.post(&format!("/v1/run-workers/{}/renew", worker.id), renew).await.with(200);
    assert_eq!(renewed["runs"][0]["result"], "held");
    held.server = &second;
    held.task("reserve", json!(1)).await;
    held.server = &first;
    held.complete(json!(2)).await;
    assert_eq!(second.journal_kinds(&run_id).await, ["begin", "open", "done", "close"]);
    second.post(&format!("/v1/run-workers/{}/claim", worker.id), json!({})).await.error(404, "worker_not_found");
}

#[tokio::test]
async fn a_renewal_that_waits_ends_when_something_comes() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!(1)).await;
    let held = worker.claim().await;
    let renew = json!({ "runs": [{ "run_id": run_id, "epoch": held.run["epoch"], "latest_fact": 0 }], "wait_ms": 60_000 });
    let cancel = async { server.run_verb(&run_id, "cancel", json!({})).await.with(200) };
    let (renewed, _cancelled) = tokio::join!(worker.post("renew", renew), cancel);
    let renewed = renewed.with(200)["runs"][0].clone();
    assert_eq!((&renewed["result"], &renewed["cancel_requested"], &renewed["latest_fact"]), (&json!("held"), &json!(true), &json!(1)));
}

#[tokio::test]
async fn a_renewal_that_knows_less_than_there_is_answers_at_once() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!(1)).await;
    let held = worker.claim().await;
    server.run_verb(&run_id, "send", json!({ "event": "x" })).await.with(202);
    let renew = json!({ "runs": [{ "run_id": run_id, "epoch": held.run["epoch"], "latest_fact": 0 }], "wait_ms": 60_000 });
    assert_eq!(worker.post("renew", renew).await.with(200)["runs"][0]["latest_fact"], 1);
}

#[tokio::test]
async fn a_diverged_run_waits_for_another_build() {
    let server = server().await;
    let served = json!([{ "workflow": "order", "version": "1" }]);
    let old = server.run_worker_of(json!({ "build": "old", "workflows": served })).await;
    let run_id = server.start_run("order", json!(1)).await;
    let mut held = old.claim().await;
    held.commit(json!([]), json!({ "kind": "block", "cause": "nondeterminism", "reason": "task ship, and the journal has charge" })).await;
    let shown = server.run(&run_id).await;
    assert_eq!((&shown["state"], &shown["cause"], &shown["unfit_builds"]), (&json!("blocked"), &json!("nondeterminism"), &json!(["old"])));
    assert!(shown["why"].as_str().unwrap().contains("it goes on with a worker of another build"), "{shown}");
    let said = server.get(&format!("/v1/runs/{run_id}/published")).await.with(200);
    assert_eq!(said["published"]["$blocked"]["message"], "task ship, and the journal has charge");
    let same = json!({ "build": "old", "workflows": served });
    assert_eq!(server.post("/v1/run-workers", same).await.with(200)["unblocked"], 0);
    let other = json!({ "build": "new", "workflows": served });
    assert_eq!(server.post("/v1/run-workers", other).await.with(200)["unblocked"], 1);
    assert_eq!(server.run(&run_id).await["state"], "ready");
    assert_eq!(server.get("/v1/runs?state=blocked").await.with(200)["runs"], json!([]));
}

#[tokio::test]
async fn a_run_that_continues_as_new_begins_with_an_empty_journal() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!(1)).await;
    let mut held = worker.claim().await;
    held.task("reserve", json!(1)).await;
    server.run_verb(&run_id, "send", json!({ "event": "kept" })).await.with(202);
    held.commit(json!([]), json!({ "kind": "continue", "input": 2 })).await;
    let mut next = worker.claim().await;
    assert_eq!((next.id(), &next.run["generation"], &next.run["journal"][0]["body"]["v"]), (run_id.as_str(), &json!(1), &json!(2)));
    assert_eq!((next.run["journal"].as_array().map(Vec::len), &next.run["facts"][0]["event"]), (Some(1), &json!("kept")));
    next.task("reserve", json!(1)).await;
    next.commit(json!([]), json!({ "kind": "fail", "error": { "code": "out_of_stock", "message": "none left" } })).await;
    let shown = server.run(&run_id).await;
    assert_eq!((&shown["state"], &shown["outcome"]["error"]["code"]), (&json!("failed"), &json!("out_of_stock")));
}

#[tokio::test]
async fn a_paused_run_tells_its_worker_to_release_it() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!(1)).await;
    let mut held = worker.claim().await;
    server.run_verb(&run_id, "pause", json!({})).await.with(200);
    let steps = json!([{ "step": { "kind": "task", "name": "reserve" }, "out": "err", "error": { "message": "no" } }]);
    let answer = held.commit(steps, json!({ "kind": "stay" })).await;
    assert_eq!((&answer["paused"], &answer["held"]), (&json!(true), &json!(true)));
    held.commit(json!([]), json!({ "kind": "release" })).await;
    assert!(worker.claims_nothing().await);
    server.run_verb(&run_id, "resume", json!({})).await.with(200);
    let again = worker.claim().await;
    let failed = json!({ "out": "err", "err": { "code": "handler_error", "message": "no" } });
    assert_eq!(again.run["journal"][2]["body"], failed);
}

#[tokio::test]
async fn a_client_that_goes_away_in_an_open_claim_keeps_no_run() {
    let server = server().await;
    let (gone, other) = (server.run_worker("order").await, server.run_worker("order").await);
    let claim = server.request(reqwest::Method::POST, &format!("/v1/run-workers/{}/claim", gone.id)).json(&json!({ "wait_ms": 60_000 }));
    let hung_up = claim.timeout(std::time::Duration::from_millis(200)).send().await;
    assert!(hung_up.is_err_and(|error| error.is_timeout()));
    let run_id = server.start_run("order", json!(1)).await;
    assert_eq!(other.claim().await.id(), run_id);
}

#[tokio::test]
async fn a_long_journal_is_read_on_where_the_claim_ends() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!(1)).await;
    let mut held = worker.claim().await;
    for number in 0..3 {
        held.task("large", json!([number, "x".repeat(200_000)])).await;
    }
    held.commit(json!([]), json!({ "kind": "release" })).await;
    let again = worker.claim().await;
    let next = again.run["journal_next"].as_u64().unwrap();
    assert_eq!(again.run["journal"].as_array().map(|entries| entries.len() as u64), Some(next));
    let rest = server.get(&format!("/v1/runs/{run_id}/journal?from={next}")).await.with(200);
    let last = rest["entries"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["number"], &last["body"]["v"][0], &rest["next"]), (&json!(6), &json!(2), &Value::Null));
}
