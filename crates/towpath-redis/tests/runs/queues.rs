//! The two streams of a place: their names, their length, and what happens when a person deletes them.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use towpath_conformance::words::{completes, event, run_id, run_place, start, waits_for};
use towpath_core::run::{RunId, RunState, Then, place};
use towpath_core::store::{RunStore, StartRun, Started};

use crate::rig::{Rig, claim, commit, started, state};

#[tokio::test]
async fn streams_have_the_names_of_the_seed_byte_for_byte() {
    let rig = Rig::start();
    let store = rig.store().await;
    let names = [
        ("order-processing", "1.0.0", None, "workflow/order-processing/1.0.0"),
        ("user-onboarding", "1.0.0", None, "workflow/user-onboarding/1.0.0"),
        ("email-sending", "2.0.0", None, "workflow/email-sending/2.0.0"),
        ("order-processing", "1.0.0", Some("us-east"), "workflow/order-processing/1.0.0/us-east"),
        ("order-processing", "1.0.0", Some("eu-west"), "workflow/order-processing/1.0.0/eu-west"),
    ];
    for (workflow, version, shard, stream) in names {
        let place = place(workflow, version, shard).unwrap();
        started(&store, StartRun { run_id: RunId::new(&place, 1), place, ..start("order", 1) }).await;
        assert_eq!(rig.cli(&["TYPE", stream]), "stream");
        assert_eq!(rig.cli(&["XLEN", stream]), "1");
    }
    let mut written: Vec<String> = rig.cli(&["KEYS", "workflow*"]).lines().map(str::to_owned).collect();
    let mut expected: Vec<String> = names.iter().map(|(_, _, _, stream)| (*stream).to_owned()).collect();
    written.sort();
    expected.sort();
    assert_eq!(written, expected, "and no other key stands beside them");
}

#[tokio::test]
async fn the_queues_have_an_entry_of_each_run_that_is_ready_or_executed_and_no_other() {
    let rig = Rig::start();
    let store = rig.store().await;
    for number in 0..100 {
        started(&store, start("order", number)).await;
    }
    assert_eq!(rig.entries("order"), 100);
    let mut left = claim(&store, "w1", "order", 100).await;
    assert_eq!((left.len(), rig.entries("order")), (100, 100), "executed runs keep their entries");
    for claimed in left.split_off(50) {
        commit(&store, &claimed, waits_for(&["paid"])).await;
    }
    assert_eq!(rig.entries("order"), 50, "parked runs have none");
    for number in 50..100 {
        store.send_event(&run_id("order", number), event("paid", "1")).await.unwrap();
    }
    assert_eq!(rig.entries("order"), 100, "woken runs have one again");
    left.extend(claim(&store, "w2", "order", 100).await);
    for claimed in &left {
        commit(&store, claimed, completes()).await;
    }
    assert_eq!((left.len(), rig.entries("order")), (100, 0));
    let stream = run_place("order").stream();
    assert!(rig.cli(&["XPENDING", &stream, "towpath"]).starts_with('0'), "and the group waits for no acknowledgement");
}

#[tokio::test]
async fn ready_runs_are_delivered_after_streams_and_groups_were_deleted_under_them() {
    let rig = Rig::start();
    let store = rig.store().await;
    let stream = run_place("order").stream();
    let first = format!("towpath:{{{stream}}}:first");
    for number in 0..60 {
        started(&store, start("order", number)).await;
    }
    for claimed in claim(&store, "w0", "order", 30).await {
        commit(&store, &claimed, Then::Release).await;
    }
    let held = claim(&store, "w0", "order", 5).await;
    rig.cli(&["DEL", &stream, &first]);
    let mut delivered = Vec::new();
    for max in [7, 100] {
        delivered.extend(claim(&store, "w1", "order", max).await);
    }
    let mut ids: Vec<RunId> = delivered.iter().chain(&held).map(|claimed| claimed.run.run_id.clone()).collect();
    ids.sort();
    let mut expected: Vec<RunId> = (0..60).map(|number| run_id("order", number)).collect();
    expected.sort();
    assert_eq!(ids, expected, "each once");
    for claimed in delivered.iter().chain(&held) {
        commit(&store, claimed, completes()).await;
    }
    assert_eq!(rig.entries("order"), 0);
}

#[tokio::test]
async fn thousands_of_runs_survive_the_loss_of_their_streams_and_leave_none_behind() {
    const MANY: u32 = 3_000;
    let rig = Rig::start();
    let store = rig.store().await;
    let place = run_place("order");
    let starts = (0..MANY).map(|number| StartRun { run_id: RunId::new(&place, number.into()), ..start("order", 1) });
    for reply in join_all(starts.map(|start| store.start_run(start))).await {
        assert!(matches!(reply, Ok(Started::Created { .. })), "{reply:?}");
    }
    rig.cli(&["DEL", &place.stream()]);
    let mut ids = BTreeSet::new();
    while ids.len() < MANY as usize {
        let claimed = claim(&store, "w1", "order", 500).await;
        assert!(!claimed.is_empty(), "{} runs are not delivered", MANY as usize - ids.len());
        join_all(claimed.iter().map(|claimed| commit(&store, claimed, completes()))).await;
        ids.extend(claimed.into_iter().map(|claimed| claimed.run.run_id));
    }
    assert_eq!(rig.entries("order"), 0);
}

#[tokio::test]
async fn a_group_that_was_destroyed_is_made_again_and_no_run_is_given_to_two_workers() {
    let rig = Rig::start();
    let store = rig.store().await;
    for number in 0..10 {
        started(&store, start("order", number)).await;
    }
    let held = claim(&store, "w1", "order", 4).await;
    rig.cli(&["XGROUP", "DESTROY", &run_place("order").stream(), "towpath"]);
    let others = claim(&store, "w2", "order", 10).await;
    assert_eq!((held.len(), others.len()), (4, 6));
    for claimed in held.iter().chain(&others) {
        commit(&store, claimed, completes()).await;
    }
    assert_eq!(rig.entries("order"), 0);
}

#[tokio::test]
async fn a_run_whose_entry_was_delivered_to_a_process_that_died_is_delivered_again() {
    let rig = Rig::start();
    let store = rig.store().await;
    let id = started(&store, start("order", 1)).await;
    let stream = run_place("order").stream();
    // What a process does that dies between the delivery and the claim.
    rig.cli(&["XGROUP", "CREATE", &stream, "towpath", "0"]);
    rig.cli(&["XREADGROUP", "GROUP", "towpath", "towpath", "COUNT", "1", "STREAMS", &stream, ">"]);
    assert_eq!(claim(&store, "w1", "order", 1).await.len(), 0, "it may be about to be claimed");
    // It was delivered long ago.
    let entry = rig.cli(&["XPENDING", &stream, "towpath", "-", "+", "1"]);
    let entry = entry.lines().next().expect("an entry").to_owned();
    rig.cli(&["XCLAIM", &stream, "towpath", "towpath", "0", &entry, "IDLE", "6000"]);
    let claimed = claim(&store, "w1", "order", 1).await;
    assert_eq!(claimed.first().map(|claimed| &claimed.run.run_id), Some(&id));
}

#[tokio::test]
async fn an_entry_that_is_not_of_a_run_is_removed_and_holds_up_no_other() {
    let rig = Rig::start();
    let store = rig.store().await;
    let stream = run_place("order").stream();
    rig.cli(&["XADD", &stream, "*", "run", "nothing"]);
    rig.cli(&["XADD", &stream, "*", "job", "x"]);
    let id = started(&store, start("order", 1)).await;
    rig.cli(&["XADD", &stream, "*", "run", id.as_str()]);
    let claimed = claim(&store, "w1", "order", 1).await;
    assert_eq!(claimed.len(), 1);
    assert!(claim(&store, "w2", "order", 5).await.is_empty(), "a second entry of a run gives it to no second worker");
    commit(&store, &claimed[0], completes()).await;
    assert_eq!((rig.entries("order"), state(&store, &id).await), (0, Some(RunState::Completed)));
}

#[tokio::test]
async fn a_store_by_the_servers_clock_repairs_by_itself_what_no_claim_asks_for() {
    let rig = Rig::start();
    let store = rig.store_by_server().await;
    started(&store, start("order", 1)).await;
    rig.cli(&["DEL", &run_place("order").stream()]);
    crate::rig::soon(async {
        while rig.entries("order") == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
