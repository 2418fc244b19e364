//! Runs that wait: events, timers, and the race between parking and what comes.

use serde_json::json;

use crate::support::server;

#[tokio::test]
async fn an_event_wakes_a_parked_run_and_its_data_is_in_the_journal() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!(1)).await;
    let mut held = worker.claim().await;
    let step = held.open(json!({ "kind": "event", "name": "approved" })).await;
    assert_eq!(held.park().await["held"], false);
    server.run_verb(&run_id, "send", json!({ "event": "other" })).await.with(202);
    assert!(worker.claims_nothing().await, "it does not wait for that");
    server.run_verb(&run_id, "send", json!({ "event": "approved", "data": { "granted": true } })).await.with(202);
    let mut woken = worker.claim().await;
    let fact = woken.run["facts"].as_array().unwrap().iter().find(|fact| fact["event"] == "approved").unwrap().clone();
    assert_eq!((&fact["kind"], &fact["data"]), (&json!("event"), &json!({ "granted": true })));
    woken.commit(json!([{ "step_id": step, "fact": fact["number"] }]), json!({ "kind": "stay" })).await;
    let journal = server.get(&format!("/v1/runs/{run_id}/journal")).await.with(200);
    assert_eq!(journal["entries"][2]["body"], json!({ "out": "ok", "v": { "granted": true }, "n": 2 }));
    assert_eq!(server.run(&run_id).await["unconsumed_events"], 1);
    woken.complete(json!(1)).await;
}

#[tokio::test]
async fn a_run_is_not_parked_while_its_inbox_has_what_it_waits_for() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!(1)).await;
    let mut held = worker.claim().await;
    server.run_verb(&run_id, "send", json!({ "event": "approved", "data": 1 })).await.with(202);
    server.run_verb(&run_id, "send", json!({ "event": "unrelated" })).await.with(202);
    let steps = json!([{ "step": { "kind": "event", "name": "approved" } }]);
    let answer = held.commit(steps, json!({ "kind": "park" })).await;
    assert_eq!((&answer["held"], answer["facts"].as_array().map(Vec::len)), (&json!(true), Some(1)), "{answer}");
    let end = json!([{ "step_id": answer["step_ids"][0], "fact": answer["facts"][0]["number"] }]);
    held.commit(end, json!({ "kind": "stay" })).await;
    held.open(json!({ "kind": "event", "name": "never" })).await;
    assert_eq!(held.park().await["held"], false, "what it has no use for does not hold it back");
}

#[tokio::test]
async fn a_sleep_and_the_deadline_of_an_event_end_by_their_timers() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!(1)).await;
    let mut held = worker.claim().await;
    let sleep = held.open(json!({ "kind": "sleep", "sleep_ms": 50 })).await;
    let parked = held.park().await;
    let mut held = if parked["held"] == json!(true) { held } else { worker.claim().await };
    let number = if parked["held"] == json!(true) { parked["facts"][0]["number"].clone() } else { held.run["facts"][0]["number"].clone() };
    held.commit(json!([{ "step_id": sleep, "fact": number }]), json!({ "kind": "stay" })).await;
    let wait = held.open(json!({ "kind": "event", "name": "approved", "deadline_ms": 100 })).await;
    held.park().await;
    let mut woken = worker.claim().await;
    let fact = woken.run["facts"][0].clone();
    assert_eq!((&fact["kind"], &fact["step_id"]), (&json!("timer_due"), &json!(wait)));
    woken.commit(json!([{ "step_id": wait, "fact": fact["number"] }]), json!({ "kind": "complete" })).await;
    let journal = server.get(&format!("/v1/runs/{run_id}/journal")).await.with(200);
    let bodies: Vec<_> =
        journal["entries"].as_array().unwrap().iter().filter(|entry| entry["kind"] == "done").map(|entry| entry["body"].clone()).collect();
    assert_eq!(bodies, [json!({ "out": "ok" }), json!({ "out": "timeout" })]);
}

#[tokio::test]
async fn an_event_that_comes_in_time_disarms_its_deadline() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!(1)).await;
    let mut held = worker.claim().await;
    let step = held.open(json!({ "kind": "event", "name": "approved", "deadline_ms": 3_600_000 })).await;
    server.run_verb(&run_id, "send", json!({ "event": "approved" })).await.with(202);
    held.commit(json!([{ "step_id": step, "fact": 1 }]), json!({ "kind": "stay" })).await;
    let nothing = held.send(&json!([]), &json!({ "kind": "park" })).await.with(200);
    assert_eq!(nothing["result"], "nothing_to_wait_for", "no step is open, and no timer is armed");
}

#[tokio::test]
async fn a_cancellation_wakes_a_parked_run() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    let run_id = server.start_run("order", json!(1)).await;
    let mut held = worker.claim().await;
    held.open(json!({ "kind": "event", "name": "approved" })).await;
    held.park().await;
    server.run_verb(&run_id, "cancel", json!({ "reason": "late" })).await.with(200);
    let mut woken = worker.claim().await;
    assert_eq!((&woken.run["cancel_requested"], &woken.run["facts"][0]["reason"]), (&json!(true), &json!("late")));
    assert_eq!(woken.park().await["held"], true, "the code has not noticed it yet");
    woken.commit(json!([{ "fact": 1 }]), json!({ "kind": "cancel" })).await;
    assert_eq!(server.run(&run_id).await["state"], "cancelled");
}
