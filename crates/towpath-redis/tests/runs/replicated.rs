//! Replicas that stand still: a worker keeps what it executes, and no promise is made that too few replicas have confirmed.

use std::sync::Arc;
use std::time::Duration;

use towpath_conformance::words::{completes, start, worker_id};
use towpath_core::clock::VirtualClock;
use towpath_core::store::{RunCommitted, RunRenewal, RunStore, Started, StoreError};
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::{RedisServer, until};

use crate::rig::{claim, commit_of, started};

const PATIENCE: Duration = Duration::from_secs(30);

async fn open(server: &RedisServer) -> RedisStore {
    let options = RedisOptions::parse(&format!("{}?durability=replicated", server.url())).expect("a URL");
    RedisStore::open_by_clock(options, Arc::new(VirtualClock::new())).await.expect("the server and its replica are there")
}

#[tokio::test]
async fn a_worker_has_its_runs_while_a_replica_stands_still_and_a_commit_is_confirmed_when_it_is_repeated() {
    let primary = RedisServer::build().append_only("everysec").start();
    let replica = RedisServer::build().append_only("everysec").line(format!("replicaof 127.0.0.1 {}", primary.port())).start();
    until("the replica is in step", PATIENCE, || primary.cli(&["info", "replication"]).contains("state=online"));
    let store = open(&primary).await;
    started(&store, start("order", 1)).await;

    replica.pause();
    let claimed = claim(&store, "w1", "order", 1).await;
    assert_eq!(claimed.len(), 1, "a claim promises nothing, so it waits for no replica");
    let (run_id, epoch) = (claimed[0].run.run_id.clone(), claimed[0].run.epoch);
    let renewed = store.renew_runs(&worker_id("w1"), vec![(run_id.clone(), epoch)]).await;
    assert!(matches!(renewed.as_deref(), Ok([RunRenewal::Held { .. }])), "{renewed:?}");
    let unsure = store.commit_run(&run_id, commit_of(&claimed[0], completes())).await;
    assert!(matches!(unsure, Err(StoreError::Unknown(_))), "{unsure:?}");
    let still_unsure = store.commit_run(&run_id, commit_of(&claimed[0], completes())).await;
    assert!(
        matches!(still_unsure, Err(StoreError::Unknown(_))),
        "a repeated commit writes nothing, and promises as much: {still_unsure:?}"
    );
    let unsure = store.start_run(start("order", 2)).await;
    assert!(matches!(unsure, Err(StoreError::Unknown(_))), "{unsure:?}");
    let still_unsure = store.start_run(start("order", 2)).await;
    assert!(matches!(still_unsure, Err(StoreError::Unknown(_))), "{still_unsure:?}");

    replica.resume();
    until("the replica is in step again", PATIENCE, || primary.cli(&["wait", "1", "1000"]).trim() == "1");
    let sure = store.commit_run(&run_id, commit_of(&claimed[0], completes())).await;
    assert!(matches!(sure, Ok(RunCommitted::Committed { .. })), "{sure:?}");
    assert!(matches!(store.start_run(start("order", 2)).await, Ok(Started::Existing { .. })));
}
