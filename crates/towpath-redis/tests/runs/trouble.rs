//! The trouble of one run stays its own.

use std::collections::BTreeSet;

use towpath_conformance::words::{completes, event, run_place, seconds, start};
use towpath_core::run::RunState;
use towpath_core::store::{RunRequest, RunStore, StartRun, StoreError, StoreTrouble};

use crate::rig::{Rig, claim, commit, run_key, started, state};

fn check_wrong_type<T: std::fmt::Debug>(reply: Result<T, StoreError>, key: &str) {
    match reply {
        Err(StoreError::Unavailable(StoreTrouble::WrongType(why))) => assert!(why.contains(key), "it should name {key}: {why}"),
        other => panic!("should be of a wrong type, but: {other:?}"),
    }
}

#[tokio::test]
async fn a_header_of_a_wrong_type_is_the_trouble_of_that_run_alone() {
    let rig = Rig::start();
    let store = rig.store().await;
    let odd = started(&store, StartRun { delay: seconds(5), ..start("order", 1) }).await;
    let good = started(&store, StartRun { delay: seconds(5), ..start("order", 2) }).await;
    let ready = started(&store, start("order", 3)).await;
    let fine = started(&store, start("order", 4)).await;
    for id in [&odd, &ready] {
        let key = run_key("order", id);
        rig.cli(&["RENAME", &key, &format!("{key}:aside")]);
        rig.cli(&["SET", &key, "not a hash"]);
    }
    let key = run_key("order", &odd);
    check_wrong_type(store.run(&odd).await, &key);
    check_wrong_type(store.send_event(&odd, event("paid", "1")).await, &key);
    check_wrong_type(store.request_run(&odd, RunRequest::Pause).await, &key);
    check_wrong_type(store.start_run(start("order", 1)).await, &key);
    rig.clock.advance(seconds(5));
    assert_eq!(store.fire_runs(10).await.unwrap().fired, 1, "the timer of the other run fires");
    assert_eq!(state(&store, &good).await, Some(RunState::Ready));
    let claimed = claim(&store, "w1", "order", 10).await;
    let ids: BTreeSet<_> = claimed.iter().map(|claimed| &claimed.run.run_id).collect();
    assert_eq!(ids, BTreeSet::from([&fine, &good]));
    for claimed in &claimed {
        commit(&store, claimed, completes()).await;
    }
    assert_eq!(
        store.runs(&Default::default(), towpath_core::store::RunPageRequest { after: None, limit: 10 }).await.unwrap().runs.len(),
        2
    );
}

#[tokio::test]
async fn rows_of_a_wrong_type_keep_a_change_from_being_written_by_half() {
    let rig = Rig::start();
    let store = rig.store().await;
    let id = started(&store, start("order", 1)).await;
    let inbox = format!("{}:in", run_key("order", &id));
    rig.cli(&["SET", &inbox, "not a sorted set"]);
    let before = rig.cli(&["HMGET", &run_key("order", &id), "v", "h", "s", "e"]);
    check_wrong_type(store.send_event(&id, event("paid", "1")).await, &run_key("order", &id));
    assert_eq!(rig.cli(&["HMGET", &run_key("order", &id), "v", "h", "s", "e"]), before, "nothing was written");
    rig.cli(&["DEL", &inbox]);
    assert!(store.send_event(&id, event("paid", "1")).await.is_ok());
}

#[tokio::test]
async fn a_place_whose_stream_is_of_a_wrong_type_holds_up_no_other_place() {
    let rig = Rig::start();
    let store = rig.store().await;
    rig.cli(&["SET", &run_place("order").stream(), "not a stream"]);
    check_wrong_type(store.start_run(start("order", 1)).await, "");
    let id = started(&store, start("shipping", 1)).await;
    let want = towpath_core::store::ClaimRuns {
        places: [run_place("order"), run_place("shipping")].into(),
        ..crate::rig::want("w1", "order", 10, std::time::Duration::ZERO)
    };
    let claimed = store.claim_runs(want).await.unwrap();
    assert_eq!(claimed.iter().map(|claimed| &claimed.run.run_id).collect::<Vec<_>>(), [&id]);
}

#[tokio::test]
async fn a_server_whose_memory_is_full_takes_nothing_new_and_finishes_what_it_has() {
    let rig = Rig::start();
    let store = rig.store().await;
    let id = started(&store, start("order", 1)).await;
    rig.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = |reply: Result<(), StoreError>| matches!(reply, Err(StoreError::Unavailable(StoreTrouble::Full(_))));
    assert!(refused(store.start_run(start("order", 2)).await.map(drop)));
    assert!(refused(store.send_event(&id, event("paid", "1")).await.map(drop)));
    let claimed = claim(&store, "w1", "order", 10).await;
    assert_eq!(claimed.len(), 1);
    commit(&store, &claimed[0], completes()).await;
    assert_eq!((state(&store, &id).await, rig.entries("order")), (Some(RunState::Completed), 0));
}
