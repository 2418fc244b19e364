//! The timekeeper fires timers of runs and sends their posts by itself.

use std::sync::Arc;
use std::time::Duration;

use crate::support::broken_runs::BrokenRuns;
use crate::support::seconds;
use towpath::testing::TestTowpath;
use towpath::{Towpath, VirtualClock};
use towpath_conformance::model::ModelStore;
use towpath_conformance::words::{RUN_IDLE, child, entry, event_name, reference, run_id, run_place, start, step, worker_id};
use towpath_core::run::{ClosePolicy, Commit, EntryKind, Post, Run, RunState, Then, TimerAt, WaitSet};
use towpath_core::store::{ClaimRuns, RunCommitted, RunStore, StartRun};

fn runs(test: &TestTowpath) -> Arc<dyn RunStore> {
    Arc::clone(test.run_store().expect("a store in memory keeps runs"))
}

/// Starts a run and gives it to a worker.
async fn executed(runs: &dyn RunStore, number: u8) -> Run {
    runs.start_run(start("order", number)).await.unwrap();
    let places = [run_place("order")].into();
    let want = ClaimRuns { worker: worker_id("w1"), places, max: 1, idle: RUN_IDLE, wait: Duration::ZERO };
    runs.claim_runs(want).await.unwrap().remove(0).run
}

fn commit(run: &Run, then: Then) -> Commit {
    Commit {
        owner: worker_id("w1"),
        epoch: run.epoch,
        revision: run.revision,
        digest: Arc::from("1"),
        entries: vec![entry(EntryKind::Open, "{}")],
        consumed: Vec::new(),
        seen: 0,
        armed: Vec::new(),
        disarmed: Vec::new(),
        children: Vec::new(),
        posts: Vec::new(),
        published: Vec::new(),
        then,
    }
}

async fn state(runs: &dyn RunStore, number: u8) -> RunState {
    runs.run(&run_id("order", number)).await.unwrap().unwrap().run.state
}

#[tokio::test]
async fn timers_of_runs_fire_at_their_instants_without_being_asked_for() {
    let test = TestTowpath::new().await;
    let runs = runs(&test);
    runs.start_run(StartRun { delay: seconds(20), ..start("order", 2) }).await.unwrap();
    runs.start_run(StartRun { delay: seconds(5), ..start("order", 3) }).await.unwrap();
    let run = executed(&*runs, 1).await;
    let sleep = Commit { armed: vec![(step(1), TimerAt::After(seconds(10)))], ..commit(&run, Then::Park { wait: WaitSet::default() }) };
    assert!(matches!(runs.commit_run(&run.run_id, sleep).await.unwrap(), RunCommitted::Committed { .. }));
    let mut seen = Vec::new();
    for _ in 0..4 {
        test.advance(seconds(5)).await;
        seen.push([state(&*runs, 1).await, state(&*runs, 2).await, state(&*runs, 3).await]);
    }
    use RunState::{Delayed, Ready, Waiting};
    assert_eq!(seen, [[Waiting, Delayed, Ready], [Ready, Delayed, Ready], [Ready, Delayed, Ready], [Ready, Ready, Ready]]);
    test.close().await;
}

#[tokio::test]
async fn posts_of_a_commit_are_sent_at_once_and_in_order() {
    let test = TestTowpath::new().await;
    let runs = runs(&test);
    // A timekeeper that has found nothing pauses for a moment.
    test.advance(seconds(1)).await;
    let begun = test.now();
    let run = executed(&*runs, 1).await;
    let (one, create) = child(&run.run_id, 1, 9, ClosePolicy::Cancel);
    let child_id = one.run_id.clone();
    let send = Post::Send {
        to: child_id.clone(),
        name: event_name("hello"),
        data: towpath_core::payload::Payload::null(),
        reference: reference("s"),
    };
    let opens = Commit { children: vec![one], posts: vec![create, send], ..commit(&run, Then::Stay) };
    assert!(matches!(runs.commit_run(&run.run_id, opens).await.unwrap(), RunCommitted::Committed { .. }));
    test.settle().await;
    assert_eq!(runs.facts(&child_id, 0).await.unwrap().len(), 1, "the child was created first, and then it received the event");
    assert_eq!(test.now(), begun, "no time has passed");
    test.close().await;
}

#[tokio::test]
async fn a_store_of_runs_that_broke_raises_the_alarm() {
    let clock = VirtualClock::new();
    let model = Arc::new(ModelStore::new(Arc::new(clock.clone())));
    let towpath = Towpath::builder().clock(Arc::new(clock)).run_store(Arc::new(BrokenRuns)).with_store(model);
    // No move was asked for: the timekeeper has met it.
    assert_eq!(towpath.broken().await, "the disk is gone");
    towpath.close().await;
}
