//! Redis expires closed runs by itself, and their lines leave the sets of the place when they are met.

use towpath_conformance::words::{completes, run_id, run_place, seconds, start};
use towpath_core::run::RunState;
use towpath_core::store::{RunFilter, RunPageRequest, RunStore, StartRun};
use towpath_redis::RedisStore;

use crate::rig::{Rig, claim, commit, run_key, soon, started, state};

/// Starts a run and completes it.
async fn complete(store: &RedisStore, start: StartRun) {
    started(store, start).await;
    let claimed = claim(store, "w1", "order", 1).await.remove(0);
    commit(store, &claimed, completes()).await;
}

#[tokio::test]
async fn lines_of_runs_that_redis_has_expired_go_when_others_close_and_when_a_list_meets_them() {
    let rig = Rig::start();
    let store = rig.store_by_server().await;
    for number in 0..6 {
        complete(&store, StartRun { retain: seconds(1), ..start("order", number) }).await;
    }
    let keys: Vec<String> = (0..6).map(|number| run_key("order", &run_id("order", number))).collect();
    let exist = || rig.cli(&std::iter::once("EXISTS").chain(keys.iter().map(String::as_str)).collect::<Vec<_>>());
    soon(async {
        while exist() != "0" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(rig.cli(&["KEYS", "*:run:*"]), "", "nothing of them is left");
    let own = format!("towpath:{{{}}}", run_place("order").stream());
    let lines = |set: &str| rig.cli(&["ZCARD", &format!("{own}:{set}")]);
    assert_eq!((lines("st:completed").as_str(), lines("runs").as_str()), ("6", "6"));
    complete(&store, start("order", 7)).await;
    assert_eq!((lines("st:completed").as_str(), lines("runs").as_str()), ("4", "4"), "three go with each that closes");
    let places = store.run_places().await.unwrap();
    assert_eq!(places[0].counts, [(RunState::Completed, 1)], "a count is of those that can be read");
    let page = store.runs(&RunFilter::default(), RunPageRequest { after: None, limit: 10 }).await.unwrap();
    assert_eq!((page.runs.len(), page.next), (1, None));
    assert_eq!(lines("runs"), "1");
    started(&store, start("order", 1)).await;
    assert_eq!(state(&store, &run_id("order", 1)).await, Some(RunState::Ready), "an id is free again");
}
