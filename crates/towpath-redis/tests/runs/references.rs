//! References over several slots: a start that died half way, many starts at once, and the end of a reference.

use towpath_conformance::words::{StartWords, completes, reference, run_id, run_place, seconds, start};
use towpath_core::run::RunState;
use towpath_core::store::{RunStore, StartRun, Started};
use towpath_redis::RedisStore;

use crate::rig::{Rig, claim, commit, run_key, started, state};

const KEY: &str = "towpath:{ref/order/o-1}";

/// What a start leaves behind that died after it had reserved its reference: the run is not there.
async fn died_after_reserving(rig: &Rig, store: &RedisStore) -> towpath_core::run::RunId {
    // The run of a start whose request is kept is taken away again.
    let id = started(store, start("order", 1).known_as("o-1")).await;
    let request = serde_json::json!({
        "run_id": id, "place": run_place("order"), "begin": start("order", 1).begin, "input_hash": "1", "reference": "o-1",
        "delay_ms": 0, "timeout_ms": null, "retain_ms": 3_600_000, "event": null,
    });
    rig.cli(&["HSET", KEY, "request", &request.to_string()]);
    let own = format!("towpath:{{{}}}", run_place("order").stream());
    for suffix in ["", ":j"] {
        rig.cli(&["DEL", &format!("{}{suffix}", run_key("order", &id))]);
    }
    rig.cli(&["DEL", &run_place("order").stream(), &format!("{own}:st:ready"), &format!("{own}:runs")]);
    id
}

#[tokio::test]
async fn a_start_that_died_after_it_reserved_is_completed_under_the_same_id() {
    let rig = Rig::start();
    let store = rig.store().await;
    let id = died_after_reserving(&rig, &store).await;
    assert_eq!(state(&store, &id).await, None);
    let another = rig.store().await;
    let reply = another.start_run(start("order@us-east", 2).known_as("o-1")).await;
    assert_eq!(reply, Ok(Started::Existing { run_id: id.clone(), state: RunState::Ready, event: None }));
    let claimed = claim(&another, "w1", "order", 10).await;
    assert_eq!(claimed.iter().map(|claimed| &claimed.run.run_id).collect::<Vec<_>>(), [&id]);
    assert_eq!(rig.cli(&["HEXISTS", KEY, "request"]), "0");
}

#[tokio::test]
async fn a_start_that_died_after_it_reserved_and_comes_again_creates_its_run() {
    let rig = Rig::start();
    let store = rig.store().await;
    let id = died_after_reserving(&rig, &store).await;
    started(&store, start("order", 1).known_as("o-1")).await;
    assert_eq!(state(&store, &id).await, Some(RunState::Ready));
    let other = store.start_run(start("order", 2).known_as("o-1").with_input("2")).await;
    assert_eq!(other, Ok(Started::Conflict { run_id: id }));
}

#[tokio::test]
async fn a_reference_that_was_not_confirmed_is_confirmed_by_the_next_start() {
    let rig = Rig::start();
    let store = rig.store().await;
    for again in [start("order", 1).known_as("o-1"), start("order", 2).known_as("o-1")] {
        let id = run_id("order", 1);
        let reply = store.start_run(start("order", 1).known_as("o-1")).await;
        assert!(matches!(reply, Ok(Started::Created { .. } | Started::Existing { .. })), "{reply:?}");
        // As if the process had died after it had created the run, and before it confirmed its reservation.
        let request = serde_json::json!({
            "run_id": id, "place": run_place("order"), "begin": start("order", 1).begin, "input_hash": "1", "reference": "o-1",
            "delay_ms": 0, "timeout_ms": null, "retain_ms": 3_600_000, "event": null,
        });
        rig.cli(&["HSET", KEY, "request", &request.to_string()]);
        rig.cli(&["PEXPIRE", KEY, "86400000"]);
        let reply = store.start_run(again).await;
        assert_eq!(reply, Ok(Started::Existing { run_id: id, state: RunState::Ready, event: None }));
        assert_eq!((rig.cli(&["PTTL", KEY]), rig.cli(&["HEXISTS", KEY, "request"])), ("-1".to_owned(), "0".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_reference_from_many_processes_is_one_run() {
    let rig = Rig::start();
    let mut starts = Vec::new();
    for number in 0..20 {
        let store = rig.store().await;
        let place = if number % 2 == 0 { "order" } else { "order@us-east" };
        starts.push(tokio::spawn(async move { store.start_run(start(place, number).known_as("o-1")).await }));
    }
    let (mut created, mut runs) = (0, std::collections::BTreeSet::new());
    for (number, one) in (0..).zip(starts) {
        match one.await.unwrap().unwrap() {
            Started::Created { .. } => {
                created += 1;
                runs.insert(run_id(if number % 2 == 0 { "order" } else { "order@us-east" }, number));
            }
            Started::Existing { run_id, .. } => drop(runs.insert(run_id)),
            Started::Conflict { .. } => panic!("all have the same input"),
        }
    }
    assert!(created <= 1 && runs.len() == 1, "{created} created, {runs:?}");
    assert_eq!(rig.entries("order") + rig.entries("order@us-east"), 1);
}

#[tokio::test]
async fn a_reference_gets_its_end_when_its_run_closes_and_can_be_read_until_then() {
    let rig = Rig::start();
    let store = rig.store_by_server().await;
    let short = StartRun { retain: seconds(2), ..start("order", 1).known_as("o-1") };
    let id = started(&store, short).await;
    assert_eq!(rig.cli(&["PTTL", KEY]), "-1", "an open run keeps it");
    assert_eq!(store.run_referenced(&run_place("order").workflow, &reference("o-1")).await, Ok(Some(id.clone())));
    let claimed = claim(&store, "w1", "order", 1).await;
    commit(&store, &claimed[0], completes()).await;
    store.send_posts(10).await.unwrap();
    let left: i64 = rig.cli(&["PTTL", KEY]).parse().unwrap();
    assert!((1..=2_000).contains(&left), "{left}");
    crate::rig::soon(async {
        while rig.cli(&["EXISTS", KEY, &run_key("order", &id), &format!("{}:j", run_key("order", &id))]) != "0" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(store.run_referenced(&run_place("order").workflow, &reference("o-1")).await, Ok(None));
    started(&store, start("order", 2).known_as("o-1")).await;
}
