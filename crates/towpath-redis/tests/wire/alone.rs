//! Legacy workers alone: what ours leave behind, or others made them pass over, is run by them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use towpath::{Backoff, CallContext, CallError, FunctionOptions, HandlerError, RetryPolicy, RunningWorker, Towpath};
use towpath_redis_testing::until;

use crate::rig::{ADD, Add, GROUP, Ours, Rig, SOON, STREAM, Sum, own};

type Calling = JoinHandle<Result<Sum, CallError>>;

fn call(towpath: &Towpath) -> Calling {
    tokio::spawn(towpath.call(ADD, &Add { a: 2, b: 40 }).into_future())
}

async fn answered(call: Calling) {
    assert_eq!(call.await.expect("it does not panic"), Ok(Sum { sum: 42 }));
}

/// A worker of ours whose handler says that it began, and never ends.
async fn never_ends(towpath: &Towpath, began: &Arc<Semaphore>) -> RunningWorker {
    let began = Arc::clone(began);
    let handler = move |_: Add, _: CallContext| {
        began.add_permits(1);
        std::future::pending::<Result<Sum, HandlerError>>()
    };
    towpath.worker().drain_timeout(Duration::ZERO).function(ADD, handler).start().await.expect("the server is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_a_legacy_worker_passed_over_are_run_by_it_when_nobody_else_serves_them() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    // The function is known, and nobody serves it.
    Ours::new().start(&towpath).await.drain().await;
    let calls: Vec<Calling> = (0..3).map(|_| call(&towpath)).collect();
    until("they wait", SOON, || rig.waiting() == 3);
    rig.cli(&["XGROUP", "DESTROY", STREAM, GROUP]);
    let mut legacy = rig.legacy_worker(&[]).await;
    for call in calls {
        answered(call).await;
    }
    legacy.order("leave").await;
    assert_eq!(legacy.took().await.len(), 3, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_our_last_worker_hands_back_is_run_by_a_legacy_one_with_all_that_was_asked() {
    let rig = Rig::start();
    let (here, there) = (rig.towpath().await, rig.towpath().await);
    let began = Arc::new(Semaphore::new(0));
    let worker = never_ends(&there, &began).await;
    let calling = here.call::<Sum, _>(ADD, &Add { a: 2, b: 40 }).input_item(&"an item").idempotency_key("a key");
    let calling = tokio::spawn(calling.into_future());
    began.acquire().await.expect("nobody closes it").forget();
    let mut legacy = rig.legacy_worker(&[]).await;
    assert_eq!(worker.drain().await.handed_back, 1);
    answered(calling).await;
    let fields = legacy.hear("took").await["fields"].take();
    assert_eq!(fields["functionName"], ADD);
    assert_eq!(fields["inputItem"], "\"an item\"");
    assert_eq!(fields["idempotencyKey"], "a key");
    let timeout: u64 = fields["timeout"].as_str().and_then(|ms| ms.parse().ok()).expect("a number");
    assert!((1..=30_000).contains(&timeout), "what is left of its time: {timeout}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_callers_call_that_our_last_worker_hands_back_is_run_once_more_and_ends() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let began = Arc::new(Semaphore::new(0));
    let worker = never_ends(&towpath, &began).await;
    let mut caller = rig.legacy_caller(&[]);
    let call_id = caller.hear("called").await["callId"].take();
    began.acquire().await.expect("nobody closes it").forget();
    // One that answers as the first seed has it, without the call's id.
    let mut legacy = rig.legacy_worker(&["--bare-reply"]).await;
    assert_eq!(worker.drain().await.handed_back, 1);
    assert_eq!(caller.hear("answer").await["reply"]["data"]["sum"], 42);
    let call_id = towpath::CallId::new(call_id.as_str().expect("an id")).expect("an id");
    let view = towpath.store().call(&call_id).await.expect("the server is there").expect("it is known");
    assert_eq!(view.call.state, towpath::CallState::Completed, "nobody gives it to anybody again");
    legacy.order("leave").await;
    assert_eq!(legacy.took().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_attempt_of_a_call_is_a_legacy_workers_when_ours_have_left() {
    let rig = Rig::start();
    let (here, there) = (rig.towpath().await, rig.towpath().await);
    let handler = |_: Add, _: CallContext| async { Err::<Sum, _>(HandlerError::retryable("not_yet", "try again")) };
    let later = RetryPolicy { backoff: Backoff::Fixed { delay_ms: 1_000 }, ..RetryPolicy::default() };
    let worker = there.worker().function_with(FunctionOptions::new(ADD).retry(later), handler);
    let worker = worker.start().await.expect("the server is there");
    let calling = call(&here);
    until("it is put off", SOON, || rig.cli(&["ZCARD", &own("delayed")]) == "1");
    worker.drain().await;
    let mut legacy = rig.legacy_worker(&[]).await;
    answered(calling).await;
    let fields = legacy.hear("took").await["fields"].take();
    assert_eq!((fields["inputItem"].as_str(), fields["noItem"].as_str()), (Some("{}"), Some("1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_an_item_has_none_for_our_worker_though_its_entry_has_one_for_legacy_ones() {
    let rig = Rig::start();
    let mut busy = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath().await;
    let first = call(&towpath);
    busy.hear("took").await;
    let calling = tokio::spawn(towpath.call::<bool, _>(ADD, &Add { a: 2, b: 40 }).into_future());
    until("it waits in the stream", SOON, || rig.entries().matches("noItem").count() == 2);
    let handler = |_: Add, ctx: CallContext| async move { Ok(ctx.input_item::<serde_json::Value>()?.is_some()) };
    let _worker = towpath.worker().function(ADD, handler).start().await.expect("the server is there");
    assert_eq!(calling.await.expect("it does not panic"), Ok(false));
    busy.order("answer").await;
    answered(first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_legacy_workers_finished_behind_a_long_call_of_theirs_does_not_run_again() {
    let rig = Rig::start();
    let mut busy = rig.legacy_worker(&["--hold", "--worker-id", "worker-2"]).await;
    rig.legacy_entry("legacy-long", &[]);
    busy.hear("took").await;
    let mut legacy = rig.legacy_worker(&[]).await;
    for number in 0..5 {
        rig.legacy_entry(&format!("legacy-{number}"), &[]);
        rig.legacy_answer(&format!("legacy-{number}"));
    }
    let towpath = rig.towpath().await;
    let ours = Ours::new();
    let runs = ours.runs.clone();
    let _worker = ours.start(&towpath).await;
    let newest = rig.cli(&["XREVRANGE", STREAM, "+", "-", "COUNT", "1"]).lines().next().map(str::to_owned);
    until("the watermark is kept", SOON, || Some(rig.cli(&["HGET", &own("legacy"), "watermark"])) == newest);
    busy.kill().await;
    legacy.order("leave").await;
    legacy.hear("left").await;
    rig.until_the_group_is_there();
    rig.legacy_entry("legacy-last", &[]);
    rig.legacy_answer("legacy-last");
    runs.reach(2).await;
    assert_eq!(runs.ids(), ["legacy-last", "legacy-long"], "a dead worker's call is run when its worker was silent for long");
    rig.legacy_answer("legacy-long");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_worker_that_joins_gets_a_backlog_of_complete_entries() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    // Submitted while Towpath workers alone are known.
    let gate = Arc::new(Semaphore::new(0));
    let ours = Ours::new().behind(&gate).concurrency(1);
    let runs = ours.runs.clone();
    let worker = ours.start(&towpath).await;
    let busy = call(&towpath);
    runs.reach(1).await;
    let calls: Vec<Calling> = (0..8).map(|_| call(&towpath)).collect();
    until("they wait", SOON, || rig.waiting() == 8);
    let mut legacy = rig.legacy_worker(&[]).await;
    for call in calls {
        answered(call).await;
    }
    for _ in 0..8 {
        let fields = legacy.hear("took").await["fields"].take();
        for name in ["callId", "functionName", "params", "inputItem", "responseChannel", "timeout", "timestamp"] {
            assert!(fields[name].as_str().is_some_and(|text| !text.is_empty()), "no {name} in {fields}");
        }
    }
    gate.add_permits(1);
    answered(busy).await;
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_legacy_worker_ran_without_an_answer_times_out_as_running() {
    let rig = Rig::start();
    let mut legacy = rig.legacy_worker(&["--hold"]).await;
    let towpath = rig.towpath().await;
    let ran = towpath.call::<Sum, _>(ADD, &Add { a: 2, b: 40 }).timeout(Duration::from_secs(2)).into_future();
    let ran = tokio::spawn(ran);
    legacy.hear("took").await;
    let waited = towpath.call::<Sum, _>(ADD, &Add { a: 2, b: 40 }).timeout(Duration::from_secs(2)).into_future();
    let phase = |error: CallError| if let CallError::TimedOut { phase, .. } = error { format!("{phase:?}") } else { format!("{error}") };
    assert_eq!(phase(waited.await.expect_err("no worker takes it")), "Queued");
    assert_eq!(phase(ran.await.expect("it does not panic").expect_err("its worker never answers")), "Running");
    until("its entry goes with its end", SOON, || rig.cli(&["XLEN", STREAM]) == "0");
}
