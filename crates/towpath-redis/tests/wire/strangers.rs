//! Legacy peers that acknowledge, claim, copy and trim what is not theirs, and legacy workers that die with a call in their hands.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use towpath::{CallError, Towpath};
use towpath_redis_testing::until;

use crate::rig::{ADD, Add, GROUP, Ours, Rig, SOON, STREAM, Sum, TIMING, let_pass, own, reply_list};

/// What nobody tells us of is found by looking, after a lease; so long that may take.
const FOUND_WITHIN: Duration = Duration::from_secs(100);

type Calling = JoinHandle<Result<Sum, CallError>>;

fn call(towpath: &Towpath) -> Calling {
    tokio::spawn(towpath.call(ADD, &Add { a: 2, b: 40 }).timeout(Duration::from_secs(120)).into_future())
}

async fn answered(call: Calling) {
    assert_eq!(call.await.expect("it does not panic"), Ok(Sum { sum: 42 }));
}

/// The function is known, and nobody serves it.
async fn known(towpath: &Towpath) {
    Ours::new().start(towpath).await.drain().await;
}

fn until_entries(rig: &Rig, count: usize) {
    until(&format!("{count} entries wait"), SOON, || rig.cli(&["XLEN", STREAM]) == count.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_a_legacy_reclaimer_takes_from_us_and_copies_run_once() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let gate = Arc::new(Semaphore::new(0));
    let ours = Ours::new().behind(&gate);
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let new = call(&towpath);
    rig.legacy_entry("legacy-1", &["timeout", "60000"]);
    runs.reach(2).await;
    for _ in 0..3 {
        assert_eq!(rig.legacy_upkeep(&["reclaim", "--idle-ms", "0"]).await, 0, "nothing that we run is in the stream");
    }
    rig.legacy_entry("legacy-2", &[]);
    runs.reach(3).await;
    gate.add_permits(3);
    answered(new).await;
    assert_eq!(rig.legacy_answer("legacy-1")["data"]["sum"], 42);
    assert_eq!(rig.legacy_answer("legacy-2")["data"]["sum"], 42);
    rig.until_nothing_pends();
    // And after they have ended: a copy of an ended call is no call.
    rig.legacy_entry("legacy-1", &["timeout", "60000"]);
    rig.legacy_entry("legacy-3", &[]);
    runs.reach(4).await;
    gate.add_permits(1);
    rig.legacy_answer("legacy-3");
    rig.until_nothing_pends();
    assert_eq!(runs.ids().len(), 4, "{:?}", runs.ids());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_legacy_reclaimer_copied_for_a_dead_worker_runs_once() {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    rig.legacy_entry("legacy-1", &["timeout", "110000"]);
    legacy.hear("took").await;
    legacy.kill().await;
    for _ in 0..3 {
        assert!(rig.legacy_upkeep(&["reclaim", "--idle-ms", "0"]).await > 0);
    }
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    assert_eq!(rig.legacy_answer("legacy-1")["data"]["sum"], 42);
    // What the reclaimer holds and never answers is dealt with too, or it would be copied for ever.
    until("nothing is pending", FOUND_WITHIN, || rig.pending() == 0);
    assert_eq!(runs.ids(), ["legacy-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_stranger_acknowledged_goes_on_and_is_answered() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let gate = Arc::new(Semaphore::new(0));
    let ours = Ours::new().behind(&gate);
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let new = call(&towpath);
    rig.legacy_entry("legacy-1", &[]);
    runs.reach(2).await;
    // Generation B begins by acknowledging whatever is pending.
    let mut legacy = rig.legacy_worker(&["--generation", "b"]).await;
    assert_eq!(rig.pending(), 0);
    gate.add_permits(2);
    answered(new).await;
    assert_eq!(rig.legacy_answer("legacy-1")["data"]["sum"], 42);
    legacy.order("leave").await;
    assert_eq!(legacy.took().await, Vec::<String>::new());
    assert_eq!(runs.ids().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_a_legacy_worker_took_to_its_grave_are_run_by_ours() {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath().await;
    let new = call(&towpath);
    legacy.hear("took").await;
    legacy.kill().await;
    let mut second = rig.legacy_worker(&["--hold", "--worker-id", "worker-2"]).await;
    rig.legacy_entry("legacy-1", &["timeout", "110000"]);
    second.hear("took").await;
    second.kill().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    runs.reach_within(2, FOUND_WITHIN).await;
    answered(new).await;
    assert_eq!(rig.legacy_answer("legacy-1")["data"]["sum"], 42);
    rig.until_nothing_pends();
    assert_eq!(runs.ids().len(), 2, "{:?}", runs.ids());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_legacy_worker_took_and_another_acknowledged_is_not_forgotten() {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath().await;
    let new = call(&towpath);
    legacy.hear("took").await;
    legacy.kill().await;
    let mut second = rig.legacy_worker(&["--generation", "b", "--worker-id", "worker-2"]).await;
    second.order("leave").await;
    assert_eq!(second.took().await, Vec::<String>::new(), "it has dropped the call");
    let _worker = Ours::new().start(&towpath).await;
    let outcome = tokio::time::timeout(FOUND_WITHIN, new).await.expect("it is run or answered").expect("it does not panic");
    assert_eq!(outcome, Ok(Sum { sum: 42 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_calls_that_were_trimmed_away_before_a_worker_took_them_are_run() {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath().await;
    let mut calls = vec![call(&towpath)];
    legacy.hear("took").await;
    calls.extend((0..5).map(|_| call(&towpath)));
    until_entries(&rig, 6);
    assert_eq!(rig.legacy_upkeep(&["trim", "--keep", "2"]).await, 4);
    legacy.kill().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    for call in calls {
        answered(call).await;
    }
    assert_eq!(runs.ids().len(), 6, "{:?}", runs.ids());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_trimmed_away_while_they_run_go_on_and_are_answered() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let gate = Arc::new(Semaphore::new(0));
    let ours = Ours::new().behind(&gate);
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let new = call(&towpath);
    rig.legacy_entry("legacy-1", &[]);
    runs.reach(2).await;
    rig.legacy_upkeep(&["trim", "--keep", "0"]).await;
    gate.add_permits(2);
    answered(new).await;
    assert_eq!(rig.legacy_answer("legacy-1")["data"]["sum"], 42);
    rig.until_nothing_pends();
    assert_eq!(runs.ids().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_of_a_legacy_worker_does_not_end_a_call_twice() {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath().await;
    let new = call(&towpath);
    let call_id = legacy.hear("took").await["fields"]["callId"].take();
    let call_id = towpath::CallId::new(call_id.as_str().expect("an id")).expect("an id");
    let cancelled = towpath.store().cancel(&call_id).await.expect("the server is there");
    legacy.order("answer").await;
    legacy.hear("answered").await;
    let outcome = new.await.expect("it does not panic");
    let view = towpath.store().call(&call_id).await.expect("the server is there").expect("it is known");
    // Either the cancel came first or the answer; both see one end.
    match outcome {
        Ok(sum) => assert_eq!((sum, view.call.state), (Sum { sum: 42 }, towpath::CallState::Completed), "{cancelled:?}"),
        Err(error) => assert_eq!((error.code(), view.call.state), ("call_cancelled", towpath::CallState::Cancelled), "{cancelled:?}"),
    }
    assert!(rig.cli(&["XINFO", "GROUPS", STREAM]).contains(GROUP));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_trimmed_away_is_found_also_while_the_stream_is_in_use() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    rig.legacy_entry("old-1", &["timeout", "110000"]);
    legacy.hear("took").await;
    known(&towpath).await;
    let lost = call(&towpath);
    until_entries(&rig, 2);
    assert_eq!(rig.legacy_upkeep(&["trim", "--keep", "0"]).await, 2);
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    runs.reach_within(1, FOUND_WITHIN).await;
    answered(lost).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_call_of_a_legacy_worker_that_lives_is_not_given_to_ours() {
    check_long_call("worker-1794767286013-elno0oaxhp6").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_call_of_a_legacy_worker_whose_consumer_has_another_name_is_not_given_to_ours() {
    check_long_call("consumer-1794767295417-no49rgcw39").await;
}

async fn check_long_call(consumer: &str) {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&["--hold", "--consumer", consumer]).await;
    let towpath = rig.towpath().await;
    let long = call(&towpath);
    let timestamp = legacy.hear("took").await["fields"]["timestamp"].take();
    let submitted_ms: u64 = timestamp.as_str().and_then(|ms| ms.parse().ok()).expect("an instant");
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let lease_ms = u64::try_from(TIMING.abandoned_after.as_millis()).expect("a short time");
    until("it takes longer than a lease", FOUND_WITHIN, || now_ms(&rig) > submitted_ms + 2 * lease_ms);
    let looks = looks_at_readers(&rig);
    // The second look says that the first is over.
    until("it was looked at", FOUND_WITHIN, || looks_at_readers(&rig) >= looks + 2);
    legacy.order("answer").await;
    answered(long).await;
    assert_eq!(runs.ids(), Vec::<String>::new(), "the legacy worker was at it all the time");
}

fn now_ms(rig: &Rig) -> u64 {
    let seconds = rig.cli(&["TIME"]).lines().next().and_then(|seconds| seconds.parse::<u64>().ok());
    seconds.expect("seconds") * 1_000
}

/// How often somebody has asked who reads the stream, because something is pending for long.
fn looks_at_readers(rig: &Rig) -> u64 {
    let stats = rig.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_xinfo|consumers:calls="));
    line.and_then(|rest| rest.split(',').next()).and_then(|count| count.parse().ok()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_legacy_process_that_was_killed_and_started_again_are_run() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let first = ["--hold-all", "--worker-id", "worker-1794767286013-a", "--consumer", "consumer-1794767295417-a"];
    let mut legacy = rig.legacy_worker(&first).await;
    let new = call(&towpath);
    legacy.hear("took").await;
    rig.legacy_entry("old-1", &["timeout", "110000"]);
    legacy.hear("took").await;
    legacy.kill().await;
    let again = ["--hold", "--worker-id", "worker-1794767386013-b", "--consumer", "consumer-1794767395417-b"];
    let mut again = rig.legacy_worker(&again).await;
    rig.legacy_entry("old-2", &["timeout", "110000"]);
    again.hear("took").await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    answered(new).await;
    assert_eq!(rig.legacy_answer("old-1")["data"]["sum"], 42);
    again.order("answer").await;
    assert_eq!(rig.legacy_answer("old-2")["data"]["sum"], 42);
    assert_eq!((runs.ids().len(), runs.of("old-2")), (2, 0), "what the live process holds is its own: {:?}", runs.ids());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_a_process_owed_when_it_died_is_given() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().start(&towpath).await;
    rig.legacy_entry("old-1", &[]);
    rig.legacy_answer("old-1");
    // As if the process had died between the end of the call and its answer.
    rig.cli(&["DEL", &reply_list("old-1")]);
    rig.cli(&["SADD", &own("owed"), "old-1", "of-a-call-that-is-gone"]);
    assert_eq!(rig.legacy_answer("old-1")["data"]["sum"], 42);
    until("nothing is owed", SOON, || rig.cli(&["SCARD", &own("owed")]) == "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_list_of_another_type_harms_its_call_alone() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().start(&towpath).await;
    rig.cli(&["SET", &reply_list("old-1"), "a text"]);
    rig.legacy_entry("old-1", &[]);
    rig.legacy_entry("old-2", &[]);
    assert_eq!(rig.legacy_answer("old-2")["data"]["sum"], 42);
    until("nothing is owed", SOON, || rig.cli(&["SCARD", &own("owed")]) == "0");
    answered(call(&towpath)).await;
    until("nothing waits or runs", SOON, || rig.waiting() == 0 && rig.cli(&["ZCARD", &own("running")]) == "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_entry_another_worker_acknowledged_is_not_run_beside_its_live_worker() {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath().await;
    let new = call(&towpath);
    legacy.hear("took").await;
    until("it runs", SOON, || rig.cli(&["ZCARD", &own("running")]) == "1");
    // Generation B begins by acknowledging whatever is pending.
    let mut second = rig.legacy_worker(&["--generation", "b", "--worker-id", "worker-2"]).await;
    assert_eq!(rig.pending(), 0);
    second.order("leave").await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let_pass(2 * TIMING.abandoned_after).await;
    legacy.order("answer").await;
    answered(new).await;
    assert_eq!(runs.ids(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_legacy_workers_acknowledge_and_never_answer_ends() {
    const READ: &str = "local read = redis.call('XREADGROUP', 'GROUP', ARGV[1], 'consumer-1', 'STREAMS', KEYS[1], '>')
        for _, entry in ipairs(read and read[1][2] or {}) do redis.call('XACK', KEYS[1], ARGV[1], entry[1]) end
        return read and #read[1][2] or 0";
    let rig = Rig::start();
    let _registered = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath().await;
    let first = call(&towpath);
    until("the worker is busy", SOON, || rig.pending() == 1);
    let lost = call(&towpath);
    let mut runs = 0;
    until("it ends", FOUND_WITHIN, || {
        runs += rig.cli(&["EVAL", READ, "1", STREAM, GROUP]).parse::<u32>().expect("a number");
        lost.is_finished()
    });
    let error = lost.await.expect("it does not panic").expect_err("it was never answered");
    assert!(error.to_string().contains("(poisoned)"), "{error}");
    assert_eq!(runs, 5);
    first.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_cannot_be_read_ends_its_call() {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath().await;
    let new = call(&towpath);
    let call_id = legacy.hear("took").await["fields"]["callId"].take();
    rig.cli(&["LPUSH", &reply_list(call_id.as_str().expect("an id")), "{\"success\":true,\"data\":NaN}"]);
    let outcome = tokio::time::timeout(SOON, new).await.expect("it ends").expect("it does not panic");
    let error = outcome.expect_err("its result is not known");
    assert!(error.to_string().contains("its reply cannot be read") && error.to_string().contains("(invalid_reply)"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_dead_legacy_worker_has_answered_does_not_run_again() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let gate = Arc::new(Semaphore::new(0));
    let ours = Ours::new().behind(&gate).concurrency(1);
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let busy = call(&towpath);
    runs.reach(1).await;
    for number in 0..2 {
        rig.legacy_entry(&format!("old-{number}"), &["timeout", "110000"]);
    }
    rig.cli(&["XREADGROUP", "GROUP", GROUP, "consumer-1", "STREAMS", STREAM, ">"]);
    // It dies between its answer and its acknowledgement.
    rig.cli(&["LPUSH", &reply_list("old-0"), "{\"success\":true,\"data\":{\"sum\":41}}"]);
    gate.add_permits(10);
    answered(busy).await;
    assert_eq!(rig.legacy_answer("old-1")["data"]["sum"], 42);
    rig.until_nothing_pends();
    assert_eq!((runs.of("old-0"), runs.of("old-1")), (0, 1));
    assert_eq!(rig.legacy_answer("old-0")["data"]["sum"], 41);
    until_entries(&rig, 0);
}
