//! Several processes on one server, and lists over all places.

use std::collections::BTreeSet;

use towpath_conformance::words::{RUN_IDLE, completes, run_id, run_place, seconds, start, waits_for, worker_id};
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::run::{RunId, RunState};
use towpath_core::store::{RunCommitted, RunFilter, RunPageRequest, RunRequest, RunStore, StartRun, TakeOverRuns, TimerStore};
use towpath_core::time::Timestamp;
use towpath_redis::RedisStore;
use towpath_redis_testing::RedisServer;

use crate::rig::{Rig, claim, commit, commit_of, started, state};

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_claim_disjoint_runs() {
    let rig = Rig::start();
    let (one, other) = (rig.store().await, rig.store().await);
    for number in 0..100 {
        started(&one, start("order", number)).await;
    }
    let work = |store: RedisStore, worker: &'static str| {
        tokio::spawn(async move {
            let mut ids = Vec::new();
            loop {
                let claimed = claim(&store, worker, "order", 3).await;
                if claimed.is_empty() {
                    return ids;
                }
                for claimed in claimed {
                    commit(&store, &claimed, completes()).await;
                    ids.push(claimed.run.run_id);
                }
            }
        })
    };
    let (first, second) = (work(one, "w1"), work(other, "w2"));
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    let all: BTreeSet<&RunId> = first.iter().chain(&second).collect();
    assert_eq!((all.len(), first.len() + second.len()), (100, 100), "each run once");
}

#[tokio::test]
async fn a_process_finds_a_run_by_its_id_alone_and_fires_timers_that_a_dead_one_left() {
    let rig = Rig::start();
    let (gone, stays) = (rig.store().await, rig.store().await);
    let id = started(&gone, StartRun { delay: seconds(10), ..start("order", 1) }).await;
    drop(gone);
    assert_eq!(state(&stays, &id).await, Some(RunState::Delayed));
    let due = stays.due_before(None).await;
    assert_eq!(due, rig.clock.now() + seconds(10));
    rig.clock.advance(seconds(10));
    assert_eq!(stays.fire_runs(10).await.unwrap().fired, 1);
    assert_eq!(state(&stays, &id).await, Some(RunState::Ready));
}

#[tokio::test]
async fn a_run_that_was_taken_over_by_another_process_refuses_its_first_owner() {
    let rig = Rig::start();
    let (one, other) = (rig.store().await, rig.store().await);
    started(&one, start("order", 1)).await;
    let silent = claim(&one, "w1", "order", 1).await.remove(0);
    rig.clock.advance(seconds(15));
    let taken = other.take_over_runs(take_over("w2")).await.unwrap().claimed.remove(0);
    let late = one.commit_run(&silent.run.run_id, commit_of(&silent, completes())).await;
    assert_eq!(late, Ok(RunCommitted::Lost));
    commit(&other, &taken, completes()).await;
    assert_eq!(rig.entries("order"), 0);
}

#[tokio::test]
async fn owners_that_could_not_renew_while_the_server_was_away_keep_their_runs() {
    let mut rig = Rig { server: RedisServer::build().append_only("always").start(), clock: VirtualClock::new() };
    let (one, other) = (rig.store().await, rig.store().await);
    let id = started(&one, start("order", 1)).await;
    let claimed = claim(&one, "w1", "order", 1).await.remove(0);
    assert_eq!(other.take_over_runs(take_over("w2")).await.unwrap().claimed.len(), 0);
    rig.clock.advance(seconds(20));
    rig.server.restart();
    crate::rig::soon(async { while one.run(&id).await.is_err() || other.run(&id).await.is_err() {} }).await;
    let taken = other.take_over_runs(take_over("w2")).await.unwrap();
    assert_eq!((taken.claimed.len(), taken.next_due), (0, Some(rig.clock.now() + RUN_IDLE)));
    assert_eq!(one.renew_runs(&worker_id("w1"), vec![(id, claimed.run.epoch)]).await.unwrap().len(), 1);
    rig.clock.advance(RUN_IDLE);
    let taken = other.take_over_runs(take_over("w2")).await.unwrap();
    assert_eq!(taken.claimed.len(), 1, "one that stays silent loses its run");
}

#[tokio::test]
async fn lists_have_every_run_once_the_latest_first_and_places_count_them() {
    let rig = Rig::start();
    let store = rig.store().await;
    for number in 0..30 {
        started(&store, start(["order", "order@us-east", "shipping"][usize::from(number % 3)], number)).await;
        if number % 4 == 0 {
            rig.clock.advance(seconds(1));
        }
    }
    store.request_run(&run_id("order", 0), RunRequest::Pause).await.unwrap();
    store.request_run(&run_id("order", 3), RunRequest::Cancel { reason: "a test".into() }).await.unwrap();
    let parked = claim(&store, "w1", "shipping", 1).await.remove(0);
    commit(&store, &parked, waits_for(&["paid"])).await;
    let all = pages(&store, &RunFilter::default(), 7).await;
    assert_eq!(all.len(), 30);
    assert!(all.windows(2).all(|pair| pair[0] > pair[1]), "the latest first, then the highest id: {all:?}");
    let waiting = RunFilter { states: vec![RunState::Waiting], ..RunFilter::default() };
    assert_eq!(pages(&store, &waiting, 7).await.into_iter().map(|(_, id)| id).collect::<Vec<_>>(), [parked.run.run_id]);
    let sharded = RunFilter { shard: run_place("order@us-east").shard, ..RunFilter::default() };
    assert_eq!(pages(&store, &sharded, 200).await.len(), 10);
    let counts: Vec<_> = store.run_places().await.unwrap().into_iter().map(|view| (view.place.stream(), view.counts)).collect();
    let expected = [
        ("workflow/order/1.0.0", vec![(RunState::Ready, 9), (RunState::Cancelled, 1)]),
        ("workflow/order/1.0.0/us-east", vec![(RunState::Ready, 10)]),
        ("workflow/shipping/1.0.0", vec![(RunState::Ready, 9), (RunState::Waiting, 1)]),
    ];
    assert_eq!(counts, expected.map(|(stream, counts)| (stream.to_owned(), counts)));
}

fn take_over(worker: &str) -> TakeOverRuns {
    let places = [run_place("order")].into();
    TakeOverRuns { worker: worker_id(worker), places, max: 1, idle: RUN_IDLE, max_deliveries: 3, executing: Vec::new() }
}

/// All pages of a list.
async fn pages(store: &RedisStore, filter: &RunFilter, limit: u32) -> Vec<(Timestamp, RunId)> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.runs(filter, RunPageRequest { after, limit }).await.expect("the server is there");
        assert!(page.runs.len() <= limit as usize);
        all.extend(page.runs.into_iter().map(|view| (view.run.created_at, view.run.run_id)));
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}
