//! Workers that go at every point of a run, and events that race with a park.

use serde_json::{Value, json};

use super::Held;
use crate::support::server;

const STEPS: usize = 20;

/// Executes a run as a sequential worker does, until the code has ended or `commits` more results were committed.
async fn execute(held: &mut Held<'_>, commits: usize) -> bool {
    let recorded = held.run["journal"].as_array().unwrap().iter().filter(|entry| entry["kind"] == "done").count();
    for step in recorded..STEPS {
        if step - recorded == commits {
            return false;
        }
        held.task(&format!("task-{}", step % 3), json!(step)).await;
    }
    held.complete(json!("all")).await;
    true
}

#[tokio::test]
async fn a_worker_that_goes_before_or_after_every_commit_leaves_one_result_per_step() {
    let server = server().await;
    let run_id = server.start_run("order", json!(1)).await;
    let mut number = 0;
    loop {
        let worker = server.run_worker("order").await;
        let mut held = worker.claim().await;
        // Every other worker goes before its first commit, the others after it.
        if execute(&mut held, number % 2).await {
            break;
        }
        assert_eq!(worker.leave().await["released"], 1);
        number += 1;
    }
    assert_eq!(number, 2 * STEPS - 1);
    let journal = server.get(&format!("/v1/runs/{run_id}/journal")).await.with(200)["entries"].as_array().unwrap().clone();
    let of = |kind: &str| journal.iter().filter(|entry| entry["kind"] == kind).cloned().collect::<Vec<Value>>();
    let values: Vec<u64> = of("done").iter().map(|done| done["body"]["v"].as_u64().unwrap()).collect();
    assert_eq!(values, (0..STEPS as u64).collect::<Vec<_>>());
    let mut ids: Vec<String> = of("open").iter().map(|open| open["step_id"].to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), of("close").len()), (STEPS, 1), "each step has an id of its own");
}

#[tokio::test]
async fn an_event_that_races_with_a_park_is_received_once() {
    let server = server().await;
    let worker = server.run_worker("order").await;
    for trial in 0..60 {
        let run_id = server.start_run("order", json!(trial)).await;
        let mut held = worker.claim().await;
        let step = held.open(json!({ "kind": "event", "name": "approved" })).await;
        let event = json!({ "event": "approved", "data": trial });
        let (parked, _sent) = if trial % 2 == 0 {
            tokio::join!(held.park(), server.run_verb(&run_id, "send", event))
        } else {
            let (sent, parked) = tokio::join!(server.run_verb(&run_id, "send", event), held.park());
            (parked, sent)
        };
        let (mut held, facts) = if parked["held"] == json!(true) {
            (held, parked["facts"].clone())
        } else {
            let again = worker.claim().await;
            let facts = again.run["facts"].clone();
            (again, facts)
        };
        assert_eq!((held.id(), facts.as_array().map(Vec::len)), (run_id.as_str(), Some(1)), "{facts}");
        held.commit(json!([{ "step_id": step, "fact": facts[0]["number"] }]), json!({ "kind": "complete" })).await;
        let journal = server.get(&format!("/v1/runs/{run_id}/journal")).await.with(200);
        assert_eq!(journal["entries"][2]["body"]["v"], json!(trial));
    }
}
