//! Wake-ups between processes: a claim that waits, an owner that listens, a caller that waits for the end.

use std::time::Duration;

use towpath_conformance::words::{child, completes, event, start, waits_for_children, worker_id};
use towpath_core::clock::Clock;
use towpath_core::run::{ClosePolicy, Commit};
use towpath_core::store::{RunRequest, RunStore, TimerStore};

use crate::rig::{Rig, claim, commit, commit_of, soon, started, want};

const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_claim_that_waits_hears_of_a_run_that_another_process_starts() {
    let rig = Rig::start();
    let (here, there) = (rig.store().await, rig.store().await);
    let waiting = tokio::spawn(async move { here.claim_runs(want("w1", "order", 1, LONG)).await });
    let id = started(&there, start("order", 1)).await;
    let claimed = soon(waiting).await.unwrap().unwrap();
    assert_eq!(claimed[0].run.run_id, id);
}

#[tokio::test]
async fn an_owner_hears_of_facts_and_requests_for_runs_that_it_executes() {
    let rig = Rig::start();
    let (here, there) = (rig.store().await, rig.store().await);
    let id = started(&there, start("order", 1)).await;
    let owner = worker_id("w1");
    assert_eq!(here.runs_notified(&owner, Duration::ZERO).await, Ok(Vec::new()));
    claim(&here, "w1", "order", 1).await;
    let waits = |what: &'static str| {
        let (here, owner) = (here.clone(), owner.clone());
        async move { soon(here.runs_notified(&owner, LONG)).await.unwrap_or_else(|error| panic!("{what}: {error}")) }
    };
    there.send_event(&id, event("paid", "1")).await.unwrap();
    assert_eq!(waits("an event").await, std::slice::from_ref(&id));
    there.request_run(&id, RunRequest::Pause).await.unwrap();
    assert_eq!(waits("a pause").await, std::slice::from_ref(&id));
    there.request_run(&id, RunRequest::Terminate { reason: "a test".into() }).await.unwrap();
    assert_eq!(waits("an end").await, [id]);
    assert_eq!(here.runs_notified(&owner, Duration::ZERO).await, Ok(Vec::new()), "each is heard once");
}

#[tokio::test]
async fn the_end_of_a_run_is_heard_in_another_process() {
    let rig = Rig::start();
    let (here, there) = (rig.store().await, rig.store().await);
    let id = started(&there, start("order", 1)).await;
    let waiting = tokio::spawn({
        let id = id.clone();
        async move { here.run_closed(&id, LONG).await }
    });
    let claimed = claim(&there, "w1", "order", 1).await;
    commit(&there, &claimed[0], completes()).await;
    assert_eq!(soon(waiting).await.unwrap(), Ok(()));
}

#[tokio::test]
async fn the_timekeeper_hears_of_a_post_that_waits_to_be_sent() {
    let rig = Rig::start();
    let store = rig.store().await;
    let known = rig.clock.now() + LONG;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.due_before(Some(known)).await }
    });
    let id = started(&store, start("order", 1)).await;
    let claimed = claim(&store, "w1", "order", 1).await.remove(0);
    let (one, create) = child(&id, 1, 9, ClosePolicy::Cancel);
    let then = waits_for_children(9, 1);
    let park = Commit { children: vec![one], posts: vec![create], ..commit_of(&claimed, then) };
    store.commit_run(&id, park).await.unwrap();
    assert_eq!(soon(waiting).await.unwrap(), rig.clock.now());
    store.send_posts(10).await.unwrap();
    assert_eq!(rig.cli(&["HLEN", "towpath:{workflow/order/1.0.0}:out"]), "0");
}
