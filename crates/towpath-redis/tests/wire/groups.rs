//! The consumer group: a legacy worker makes it at the end of the stream, and destroys it for everybody when it leaves.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use towpath::{CallError, Towpath};
use towpath_redis_testing::until;

use crate::rig::{ADD, Add, GROUP, Ours, Rig, SOON, STREAM, Sum, let_pass, own, reply_list};

/// What nobody tells us of is found by looking; so long that may take.
const FOUND_WITHIN: Duration = Duration::from_secs(100);

type Calling = JoinHandle<Result<Sum, CallError>>;

fn call(towpath: &Towpath) -> Calling {
    tokio::spawn(towpath.call(ADD, &Add { a: 2, b: 40 }).timeout(Duration::from_secs(120)).into_future())
}

async fn answered(calls: Vec<Calling>) {
    for call in calls {
        assert_eq!(call.await.expect("it does not panic"), Ok(Sum { sum: 42 }));
    }
}

fn entries_of(rig: &Rig) -> usize {
    rig.cli(&["XLEN", STREAM]).parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_outlive_a_legacy_worker_that_destroys_the_group() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let gate = Arc::new(Semaphore::new(0));
    let ours = Ours::new().behind(&gate).concurrency(1);
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    // One in our hands, one in the legacy worker's, the others wait.
    let mut calls = vec![call(&towpath), call(&towpath)];
    runs.reach(1).await;
    let held = legacy.hear("took").await["fields"]["callId"].take();
    calls.extend((0..4).map(|_| call(&towpath)));
    for number in 0..3 {
        rig.legacy_entry(&format!("legacy-{number}"), &[]);
    }
    until("all others wait", SOON, || rig.waiting() + entries_of(&rig) >= 8);
    legacy.order("leave").await;
    legacy.hear("left").await;
    rig.until_the_group_is_there();
    gate.add_permits(9);
    answered(calls).await;
    for number in 0..3 {
        assert_eq!(rig.legacy_answer(&format!("legacy-{number}"))["data"]["sum"], 42);
    }
    let mut ids = runs.ids();
    assert!(ids.contains(&held.as_str().expect("an id").to_owned()), "what the legacy worker held and never answered is run");
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), runs.ids().len()), (9, 9), "each ran once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_runs_goes_on_when_the_group_is_destroyed() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let gate = Arc::new(Semaphore::new(0));
    let ours = Ours::new().behind(&gate);
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let ours_calls = call(&towpath);
    rig.legacy_entry("legacy-1", &[]);
    runs.reach(2).await;
    rig.cli(&["XGROUP", "DESTROY", STREAM, GROUP]);
    rig.until_the_group_is_there();
    // It comes after them in the stream: when it runs, all before it were seen again.
    rig.legacy_entry("legacy-2", &[]);
    runs.reach(3).await;
    gate.add_permits(3);
    answered(vec![ours_calls]).await;
    assert_eq!(rig.legacy_answer("legacy-1")["data"]["sum"], 42);
    assert_eq!(rig.legacy_answer("legacy-2")["data"]["sum"], 42);
    assert_eq!(runs.ids().len(), 3, "nothing ran again: {:?}", runs.ids());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_finished_does_not_run_again_when_the_group_is_made_anew() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    answered((0..5).map(|_| call(&towpath)).collect()).await;
    for number in 0..5 {
        rig.legacy_entry(&format!("legacy-{number}"), &[]);
        rig.legacy_answer(&format!("legacy-{number}"));
    }
    rig.cli(&["XGROUP", "DESTROY", STREAM, GROUP]);
    rig.until_the_group_is_there();
    rig.legacy_entry("legacy-last", &[]);
    rig.legacy_answer("legacy-last");
    assert_eq!(runs.ids().len(), 11, "{:?}", runs.ids());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_worker_that_comes_after_the_group_was_made_anew_is_not_given_what_is_finished() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let worker = Ours::new().start(&towpath).await;
    answered((0..5).map(|_| call(&towpath)).collect()).await;
    rig.legacy_entry("legacy-1", &[]);
    rig.legacy_answer("legacy-1");
    // Nobody reads when the group is destroyed and a legacy worker comes.
    worker.drain().await;
    rig.cli(&["XGROUP", "DESTROY", STREAM, GROUP]);
    let again = Ours::new();
    let runs = again.runs.clone();
    let gate = Arc::new(Semaphore::new(0));
    // Busy with a call of its own, it leaves the stream to the legacy worker.
    let again = again.concurrency(1).behind(&gate).start(&towpath).await;
    let busy = call(&towpath);
    runs.reach(1).await;
    let mut legacy = rig.legacy_worker(&[]).await;
    rig.legacy_entry("legacy-2", &[]);
    rig.legacy_answer("legacy-2");
    legacy.order("leave").await;
    assert_eq!(legacy.took().await, ["legacy-2"]);
    gate.add_permits(1);
    answered(vec![busy]).await;
    again.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_a_legacy_worker_passed_over_by_its_new_group_are_found() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    // The function is known, and has no worker.
    Ours::new().start(&towpath).await.drain().await;
    let calls: Vec<Calling> = (0..3).map(|_| call(&towpath)).collect();
    until("they wait", SOON, || rig.waiting() == 3);
    rig.cli(&["XGROUP", "DESTROY", STREAM, GROUP]);
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    legacy.hear("took").await;
    legacy.kill().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    runs.reach_within(3, FOUND_WITHIN).await;
    answered(calls).await;
    assert_eq!(runs.ids().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_legacy_workers_that_leave_one_after_the_other_cost_nothing() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let mut first = rig.legacy_worker(&["--hold"]).await;
    // The group that the first destroys ends the second, which destroys the next one.
    let mut second = rig.legacy_worker(&["--hold", "--worker-id", "worker-2"]).await;
    let calls: Vec<Calling> = (0..20).map(|_| call(&towpath)).collect();
    first.order("leave").await;
    first.hear("left").await;
    second.has_left().await;
    answered(calls).await;
    let mut ids = runs.ids();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), runs.ids().len()), (20, 20), "each ran once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_legacy_worker_finished_does_not_run_again_when_it_leaves() {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&[]).await;
    for number in 0..3 {
        rig.legacy_entry(&format!("legacy-{number}"), &[]);
        rig.legacy_answer(&format!("legacy-{number}"));
    }
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    legacy.order("leave").await;
    legacy.hear("left").await;
    rig.until_the_group_is_there();
    rig.legacy_entry("legacy-last", &[]);
    rig.legacy_answer("legacy-last");
    assert_eq!(runs.ids(), ["legacy-last"], "the others were answered long ago");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_while_the_only_worker_a_legacy_one_starts_again_are_run_by_it() {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&[]).await;
    let towpath = rig.towpath().await;
    answered(vec![call(&towpath)]).await;
    legacy.order("leave").await;
    legacy.hear("left").await;
    let calls: Vec<Calling> = (0..3).map(|_| call(&towpath)).collect();
    until("they wait", SOON, || rig.waiting() == 3);
    // It makes the group again, at the end of the stream.
    let mut legacy = rig.legacy_worker(&[]).await;
    let found = tokio::time::timeout(FOUND_WITHIN, answered(calls)).await;
    assert!(found.is_ok(), "nobody runs them");
    legacy.order("leave").await;
    assert_eq!(legacy.took().await.len(), 3);
}

/// Rule 7: where another group reads the stream, entries of ended calls stay, and only the watermark tells that they are over.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_made_again_begins_behind_the_entries_that_were_delivered() {
    let rig = Rig::start();
    rig.cli(&["XGROUP", "CREATE", STREAM, "group:of-another-program", "0", "MKSTREAM"]);
    let mut legacy = rig.legacy_worker(&[]).await;
    for number in 0..3 {
        let call_id = format!("legacy-{number}");
        rig.legacy_entry(&call_id, &[]);
        rig.legacy_answer(&call_id);
        // Its caller takes the answer.
        rig.cli(&["DEL", &reply_list(&call_id)]);
    }
    let newest = rig.cli(&["XREVRANGE", STREAM, "+", "-", "COUNT", "1"]).lines().next().map(str::to_owned);
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    until("the watermark is kept", SOON, || Some(rig.cli(&["HGET", &own("legacy"), "watermark"])) == newest);
    legacy.order("leave").await;
    legacy.hear("left").await;
    rig.until_the_group_is_there();
    rig.legacy_entry("legacy-last", &[]);
    rig.legacy_answer("legacy-last");
    assert_eq!(runs.ids(), ["legacy-last"], "the others were answered long ago");
    assert!(rig.entries().contains("legacy-0"), "and are still in the stream");
}

/// Rule 7: nothing else removes it where another group reads the stream.
#[tokio::test(flavor = "multi_thread")]
async fn the_entry_of_an_exported_call_goes_with_the_end_of_the_call() {
    let rig = Rig::start();
    rig.cli(&["XGROUP", "CREATE", STREAM, "group:of-another-program", "0", "MKSTREAM"]);
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath().await;
    let calling = call(&towpath);
    legacy.hear("took").await;
    assert_eq!(entries_of(&rig), 1);
    legacy.order("answer").await;
    answered(vec![calling]).await;
    until("its entry is gone", SOON, || entries_of(&rig) == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_a_legacy_worker_finishes_after_it_destroyed_the_group_do_not_run_again() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let gate = Arc::new(Semaphore::new(0));
    let ours = Ours::new().behind(&gate).concurrency(1);
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let busy = call(&towpath);
    runs.reach(1).await;
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    for number in 0..3 {
        let call_id = format!("legacy-{number}");
        rig.legacy_entry(&call_id, &[]);
        legacy.hear("took").await;
        until("it is noted", SOON, || rig.cli(&["HEXISTS", &own("legacy"), "pending"]) == "1");
        // n8n stops: it destroys the group first, and ends its executions then.
        rig.cli(&["XGROUP", "DESTROY", STREAM, GROUP]);
        rig.until_the_group_is_there();
        assert_eq!(rig.pending(), 1, "its consumer holds it again");
        legacy.order("answer").await;
        legacy.hear("answered").await;
        rig.until_nothing_pends();
        // Its caller takes the answer.
        rig.cli(&["DEL", &reply_list(&call_id)]);
        until("nothing is kept about it", SOON, || rig.cli(&["HLEN", &own("legacy")]) == "1");
    }
    legacy.kill().await;
    gate.add_permits(100);
    answered(vec![busy]).await;
    let_pass(Duration::from_secs(5)).await;
    assert_eq!(runs.ids().len(), 1, "{:?}", runs.ids());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_deleted_and_begins_again_with_smaller_entries_is_served() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().start(&towpath).await;
    // The clock of another master was ahead.
    let ahead = format!("{}-0", rig.now_ms() + 600_000);
    rig.cli(&["XADD", STREAM, &ahead, "callId", "legacy-1", "params", "{\"a\":2,\"b\":40}", "responseChannel", &reply_list("legacy-1")]);
    assert_eq!(rig.legacy_answer("legacy-1")["data"]["sum"], 42);
    until("the watermark is kept", SOON, || rig.cli(&["HGET", &own("legacy"), "watermark"]) == ahead);
    rig.cli(&["DEL", STREAM]);
    for number in 2..5 {
        let call_id = format!("legacy-{number}");
        rig.legacy_entry(&call_id, &[]);
        assert_eq!(rig.legacy_answer(&call_id)["data"]["sum"], 42);
    }
}
