//! Calling: results, refusals, deadlines, duplicates, detached calls.

use std::sync::Arc;

use crate::support::{Count, call, millis, on_the_model, seconds, start, state};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use towpath::testing::TestTowpath;
use towpath::{
    Backoff, CallContext, CallError, CallId, CallState, DeadReason, FunctionKey, FunctionLimits, FunctionName, FunctionOptions,
    HandlerError, NewCall, Payload, Phase, RetryPolicy, RunningWorker, Wait,
};

#[derive(Serialize, Deserialize)]
struct Add {
    a: i64,
    b: i64,
}

async fn add(params: Add, _: CallContext) -> Result<i64, HandlerError> {
    Ok(params.a + params.b)
}

async fn adder(test: &TestTowpath) -> RunningWorker {
    test.worker().function("add", add).start().await.unwrap()
}

/// A handler that never returns by itself.
async fn hang(_: Value, _: CallContext) -> Result<Value, HandlerError> {
    std::future::pending().await
}

async fn a_call_returns_what_its_handler_returned(test: TestTowpath) {
    let _worker = adder(&test).await;
    let sum: i64 = test.call("add", &Add { a: 1, b: 2 }).await.unwrap();
    assert_eq!(sum, 3);
}

async fn two_hundred_parallel_callers_get_their_own_answers(test: TestTowpath) {
    let _worker = adder(&test).await;
    let calls: Vec<_> = (0..200).map(|n| start(test.call::<i64, _>("add", &Add { a: n, b: 1_000 }))).collect();
    for (n, call) in (0..200).zip(calls) {
        assert_eq!(call.await.unwrap().unwrap(), n + 1_000);
    }
}

async fn a_call_waits_for_a_function_that_is_not_known_yet(test: TestTowpath) {
    let call = start(test.call::<i64, _>("add", &Add { a: 1, b: 2 }));
    test.advance(seconds(4)).await;
    assert!(!call.is_finished(), "five seconds are the default");
    let _worker = adder(&test).await;
    assert_eq!(call.await.unwrap(), Ok(3));
}

async fn an_unknown_function_is_refused_after_the_wait_with_the_closest_names(test: TestTowpath) {
    let _worker = adder(&test).await;
    let before = test.now();
    let error = test.finish(test.call::<i64, _>("ad", &Add { a: 1, b: 2 }).wait_for_function(seconds(3))).await.unwrap_err();
    assert_eq!(error.code(), "function_not_found");
    assert!(matches!(&error, CallError::FunctionNotFound { closest, .. } if closest == &["add"]), "{error}");
    assert_eq!(test.now().since(before), seconds(3));
}

async fn the_same_name_in_another_scope_is_another_function(test: TestTowpath) {
    let handler = |_: Value, ctx: CallContext| async move { Ok::<_, HandlerError>(ctx.scope().to_string()) };
    let _worker = test
        .worker()
        .function("where", handler)
        .function_with(FunctionOptions::new("where").scope("flow-7"), handler)
        .start()
        .await
        .unwrap();
    assert_eq!(test.call::<String, _>("where", &()).await.unwrap(), "__global__");
    assert_eq!(test.call::<String, _>("where", &()).scope("flow-7").await.unwrap(), "flow-7");
}

async fn without_a_healthy_worker_a_call_waits_unless_it_was_told_to_fail(test: TestTowpath) {
    adder(&test).await.drain().await;
    let error = test.call::<i64, _>("add", &Add { a: 1, b: 2 }).fail_without_workers().await.unwrap_err();
    assert_eq!(error.code(), "no_workers");
    let waiting = start(test.call::<i64, _>("add", &Add { a: 1, b: 2 }));
    test.settle().await;
    let _worker = adder(&test).await;
    assert_eq!(waiting.await.unwrap(), Ok(3));
}

async fn params_that_do_not_fit_are_refused_before_anything_is_submitted(test: TestTowpath) {
    let options = FunctionOptions::new("add").parameters(json!([
        {"name": "a", "type": "integer", "required": true},
        {"name": "b", "type": "integer", "default": 10},
    ]));
    let _worker = test.worker().function_with(options, add).start().await.unwrap();
    let error = test.call::<i64, _>("add", &json!({"a": "one"})).await.unwrap_err();
    assert_eq!(error.code(), "invalid_params");
    let says = "the parameters do not fit 'add': parameter 'a': expected an integer, got a string of 3 characters";
    assert_eq!(error.to_string(), says);
    let view = test.store().functions().await.unwrap().remove(0);
    assert_eq!(view.counts.backlog() + view.counts.running, 0);
    assert_eq!(test.call::<i64, _>("add", &json!({"a": 1})).await, Ok(11), "the default of b is filled in");
}

async fn a_changed_definition_counts_at_once(test: TestTowpath) {
    let first = adder(&test).await;
    assert_eq!(test.call::<i64, _>("add", &Add { a: 1, b: 2 }).await, Ok(3));
    let strict = FunctionOptions::new("add").parameters(json!({"required": ["c"]}));
    let _second = test.worker().function_with(strict, add).start().await.unwrap();
    test.settle().await;
    let error = test.call::<i64, _>("add", &Add { a: 1, b: 2 }).await.unwrap_err();
    assert_eq!(error.code(), "invalid_params");
    drop(first);
}

async fn a_payload_over_the_limit_is_refused(test: TestTowpath) {
    let limits = FunctionLimits { max_payload_bytes: 20, ..FunctionLimits::default() };
    let _worker = test.worker().function_with(FunctionOptions::new("add").limits(limits), add).start().await.unwrap();
    let fits = test.call::<i64, _>("add", &Add { a: 1, b: 2 });
    assert_eq!(fits.await, Ok(3));
    let error = test.call::<i64, _>("add", &Add { a: 1, b: 2 }).input_item(&"ten letters").await.unwrap_err();
    assert_eq!(error, CallError::PayloadTooLarge { bytes: 26, limit: 20 });
}

async fn a_full_backlog_refuses_as_overloaded(test: TestTowpath) {
    let limits = FunctionLimits { max_backlog: Some(2), ..FunctionLimits::default() };
    let options = FunctionOptions::new("slow").limits(limits).concurrency(1);
    let _worker = test.worker().function_with(options, hang).start().await.unwrap();
    for _ in 0..3 {
        test.call::<Value, _>("slow", &()).detach().await.unwrap();
        test.settle().await;
    }
    let error = test.call::<Value, _>("slow", &()).detach().await.unwrap_err();
    assert!(matches!(error, CallError::Overloaded { backlog: 2, limit: 2, .. }), "{error}");
}

async fn a_queued_call_expires_at_its_deadline_and_says_where_it_stood(test: TestTowpath) {
    adder(&test).await.drain().await;
    let before = test.now();
    let error = test.finish(test.call::<i64, _>("add", &Add { a: 1, b: 2 }).timeout(seconds(7))).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { phase: Phase::Queued, .. }), "{error}");
    assert_eq!(error.code(), "call_timed_out");
    assert_eq!(test.now().since(before), seconds(7));
}

async fn a_call_that_failed_and_expires_before_its_next_attempt_may_have_run(test: TestTowpath) {
    let never = adder(&test).await;
    never.drain().await;
    let error = test.finish(test.call::<i64, _>("add", &Add { a: 1, b: 2 }).timeout(seconds(1))).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { phase: Phase::Queued, may_have_run: false, .. }), "{error:?}");
    let fails = |_: Value, _: CallContext| async { Err::<(), _>(HandlerError::retryable("busy", "not now")) };
    let worker = test.worker().function("fails", fails).start().await.unwrap();
    let call = tokio::spawn(test.call::<(), _>("fails", &()).timeout(seconds(10)).into_future());
    test.advance(seconds(1)).await;
    worker.drain().await;
    let error = test.finish(async { call.await.unwrap() }).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { phase: Phase::Queued, may_have_run: true, .. }), "{error:?}");
}

async fn a_running_call_times_out_and_its_handler_is_dropped(test: TestTowpath) {
    let dropped = Count::default();
    let counter = dropped.clone();
    let handler = move |_: Value, _: CallContext| {
        let guard = counter.on_drop();
        async move {
            let _guard = guard;
            std::future::pending::<Result<(), HandlerError>>().await
        }
    };
    let worker = test.worker().function("hang", handler).start().await.unwrap();
    let error = test.finish(test.call::<(), _>("hang", &())).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { phase: Phase::Running, .. }), "{error}");
    test.settle().await;
    assert_eq!((dropped.get(), worker.held()), (1, 0));
}

async fn a_caller_that_retries_on_timeout_makes_new_calls_two_seconds_apart(test: TestTowpath) {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let runs = Arc::clone(&seen);
    let handler = move |_: Value, ctx: CallContext| {
        runs.lock().unwrap().push(ctx.call_id().clone());
        let run = runs.lock().unwrap().len();
        async move { if run < 3 { std::future::pending().await } else { Ok::<_, HandlerError>(run) } }
    };
    let _worker = test.worker().function("slow", handler).start().await.unwrap();
    let before = test.now();
    let answer: usize = test.finish(test.call("slow", &json!({})).timeout(seconds(5)).retries_on_timeout(3)).await.unwrap();
    let took = test.now().since(before);
    assert!(answer == 3 && took >= seconds(14) && took < seconds(15), "two time-outs of 5 s and two pauses of 2 s, not {took:?}");
    let ids = seen.lock().unwrap().clone();
    assert!(ids[0] != ids[1] && ids[1] != ids[2], "each try is a call of its own: {ids:?}");
    assert_eq!(state(&test, &ids[0]).await, CallState::TimedOut);
}

async fn a_caller_hears_of_the_last_timeout_when_its_retries_are_used_up(test: TestTowpath) {
    adder(&test).await.drain().await;
    let before = test.now();
    let call = test.call::<Value, _>("add", &Add { a: 1, b: 2 }).timeout(seconds(1)).retries_on_timeout(2);
    let error = test.finish(call).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { phase: Phase::Queued, .. }), "{error}");
    let took = test.now().since(before);
    assert!(took >= seconds(7) && took < seconds(8), "three tries and two pauses, not {took:?}");
}

async fn retries_on_timeout_are_refused_where_they_would_be_the_same_call(test: TestTowpath) {
    let _worker = adder(&test).await;
    let call = || test.call::<i64, _>("add", &Add { a: 1, b: 2 }).retries_on_timeout(3);
    for refused in [call().call_id("c-1").await, call().idempotency_key("k").await, call().retries_on_timeout(11).await] {
        assert!(matches!(&refused, Err(CallError::OutOfRange { field: "retries_on_timeout", .. })), "{refused:?}");
    }
    assert_eq!(call().detach().await.unwrap_err().code(), "out_of_range");
    assert_eq!(call().await.unwrap(), 3);
}

async fn lengths_out_of_bounds_are_refused(test: TestTowpath) {
    let _worker = adder(&test).await;
    let params = Add { a: 1, b: 2 };
    for builder in [
        test.call::<i64, _>("add", &params).timeout(millis(0)),
        test.call("add", &params).timeout(seconds(30 * 24 * 3_600 + 1)),
        test.call("add", &params).retain(millis(0)),
    ] {
        assert_eq!(builder.await.unwrap_err().code(), "out_of_range");
    }
    assert_eq!(test.call::<i64, _>("add", &params).timeout(millis(1)).await, Ok(3));
}

async fn a_bad_name_is_refused_when_the_call_is_awaited(test: TestTowpath) {
    for builder in [
        test.call::<i64, _>("", &()),
        test.call("meta:x", &()),
        test.call("add", &()).scope("a:b"),
        test.call("add", &()).call_id("inbox:x"),
        test.call("add", &()).idempotency_key("\0"),
    ] {
        assert_eq!(builder.await.unwrap_err().code(), "invalid_name");
    }
}

async fn a_result_of_another_type_is_told_with_the_call(test: TestTowpath) {
    let _worker = adder(&test).await;
    let error = test.call::<String, _>("add", &Add { a: 1, b: 2 }).await.unwrap_err();
    assert_eq!(error.code(), "decode_failed");
    assert!(error.call_id().is_some());
}

async fn the_same_idempotency_key_is_the_same_call(test: TestTowpath) {
    let runs = Count::default();
    let counter = runs.clone();
    let handler = move |n: usize, _: CallContext| {
        let run = counter.add();
        async move { Ok::<_, HandlerError>(n * 100 + run) }
    };
    let worker = test.worker().function("count", handler.clone()).start().await.unwrap();
    let first: usize = test.call("count", &7).idempotency_key("order-1").await.unwrap();
    let again: usize = test.call("count", &7).idempotency_key("order-1").await.unwrap();
    assert_eq!((first, again, runs.get()), (701, 701, 1));
    let conflict = test.call::<usize, _>("count", &8).idempotency_key("order-1").await.unwrap_err();
    assert_eq!(conflict.code(), "idempotency_conflict");
    worker.drain().await;
    test.advance(seconds(24 * 3_600 + 1)).await;
    let _worker = test.worker().function("count", handler).start().await.unwrap();
    assert_eq!(test.call::<usize, _>("count", &8).idempotency_key("order-1").await, Ok(802), "the retention is over");
}

async fn a_second_caller_under_the_same_key_waits_for_the_first_ones_outcome(test: TestTowpath) {
    let slow = |n: i64, ctx: CallContext| async move {
        ctx.cancelled().await;
        Ok::<_, HandlerError>(n)
    };
    let _worker = test.worker().function("slow", slow).start().await.unwrap();
    let calls: Vec<_> = (0..2).map(|_| start(test.call::<i64, _>("slow", &5).idempotency_key("k"))).collect();
    test.settle().await;
    let view = test.store().calls(&Default::default(), towpath::core::inspect::PageRequest::first(10)).await.unwrap();
    assert_eq!(view.items.len(), 1);
    test.store().cancel(&view.items[0].call.call_id).await.unwrap();
    for call in calls {
        assert_eq!(call.await.unwrap(), Ok(5));
    }
}

async fn a_callers_own_id_is_used_and_sending_it_again_is_the_same_call(test: TestTowpath) {
    let _worker = adder(&test).await;
    for existing in [false, true] {
        let handle = test.call::<i64, _>("add", &Add { a: 1, b: 2 }).call_id("mine-1").detach().await.unwrap();
        assert_eq!((handle.call_id().as_str(), handle.existing()), ("mine-1", existing));
        assert_eq!(handle.result().await, Ok(3));
    }
}

async fn a_detached_call_goes_on_by_itself_and_its_outcome_is_kept_for_a_day(test: TestTowpath) {
    adder(&test).await.drain().await;
    let handle = test.call::<i64, _>("add", &Add { a: 1, b: 2 }).detach().await.unwrap();
    let call_id = handle.call_id().clone();
    drop(handle);
    test.advance(seconds(23 * 3_600)).await;
    assert_eq!(state(&test, &call_id).await, CallState::Queued);
    let worker = adder(&test).await;
    test.settle().await;
    assert_eq!(state(&test, &call_id).await, CallState::Completed);
    worker.drain().await;
    test.advance(seconds(24 * 3_600 - 1)).await;
    assert_eq!(state(&test, &call_id).await, CallState::Completed);
    test.advance(seconds(2)).await;
    assert_eq!(test.store().call(&call_id).await.unwrap(), None);
}

async fn a_waited_for_outcome_is_kept_for_ten_minutes(test: TestTowpath) {
    let _worker = adder(&test).await;
    test.call::<i64, _>("add", &Add { a: 1, b: 2 }).call_id("c").await.unwrap();
    let call_id = CallId::new("c").unwrap();
    test.advance(seconds(599)).await;
    assert_eq!(state(&test, &call_id).await, CallState::Completed);
    test.advance(seconds(2)).await;
    assert_eq!(test.store().call(&call_id).await.unwrap(), None);
}

async fn a_cancelled_call_ends_as_cancelled_for_whoever_waits(test: TestTowpath) {
    adder(&test).await.drain().await;
    let handle = test.call::<i64, _>("add", &Add { a: 1, b: 2 }).detach().await.unwrap();
    handle.cancel().await.unwrap();
    let error = handle.result().await.unwrap_err();
    assert_eq!(error.code(), "call_cancelled");
}

async fn a_retryable_error_is_tried_again_two_seconds_later_and_thrice_at_most(test: TestTowpath) {
    let runs = Count::default();
    let counter = runs.clone();
    let handler = move |_: Value, ctx: CallContext| {
        counter.add();
        async move { Err::<(), _>(HandlerError::retryable("busy", format!("attempt {}", ctx.attempt())).details(json!({"n": 1}))) }
    };
    let _worker = test.worker().function("busy", handler).start().await.unwrap();
    let before = test.now();
    let error = test.finish(test.call::<(), _>("busy", &())).await.unwrap_err();
    let CallError::Failed { failure, dead: Some(DeadReason::Exhausted), .. } = error else { panic!("{error}") };
    assert_eq!((failure.code.as_str(), failure.message.as_str(), runs.get()), ("busy", "attempt 3", 3));
    assert_eq!(failure.details.unwrap().as_str(), r#"{"n":1}"#);
    assert_eq!(test.now().since(before), seconds(4));
}

async fn a_final_error_ends_the_call_at_once(test: TestTowpath) {
    let handler = |_: Value, _: CallContext| async { Err::<(), _>(HandlerError::fatal("no_such_order", "there is no order 7")) };
    let _worker = test.worker().function("order", handler).start().await.unwrap();
    let error = test.call::<(), _>("order", &()).await.unwrap_err();
    assert_eq!((error.code(), state(&test, error.call_id().unwrap()).await), ("call_failed", CallState::Failed));
    assert!(error.to_string().ends_with("there is no order 7 (no_such_order)"), "{error}");
}

async fn a_pause_that_the_handler_asks_for_is_kept(test: TestTowpath) {
    let handler = |_: Value, ctx: CallContext| async move {
        if ctx.attempt() == 1 { Err(HandlerError::retryable("busy", "later").retry_after(seconds(9))) } else { Ok(()) }
    };
    let retry = RetryPolicy { backoff: Backoff::Fixed { delay_ms: 1 }, ..RetryPolicy::default() };
    let _worker = test.worker().function_with(FunctionOptions::new("busy").retry(retry), handler).start().await.unwrap();
    let before = test.now();
    test.finish(test.call::<(), _>("busy", &())).await.unwrap();
    assert_eq!(test.now().since(before), seconds(9));
}

async fn waiting_for_progress_returns_with_each_report(test: TestTowpath) {
    let handler = |_: Value, ctx: CallContext| async move {
        ctx.progress(&json!({"percent": 50})).await?;
        ctx.cancelled().await;
        Ok::<_, HandlerError>("done")
    };
    let _worker = test.worker().function("slow", handler).start().await.unwrap();
    let handle = test.call::<String, _>("slow", &()).detach().await.unwrap();
    let until = test.now() + seconds(60);
    let view = test.finish(test.wait(handle.call_id(), Wait { until, after_progress: Some(0) })).await.unwrap().unwrap();
    let (number, progress) = view.progress.unwrap();
    assert_eq!((number, progress.as_str()), (1, r#"{"percent":50}"#));
    assert!(test.now() < until, "it did not wait for the end");

    let waiting = test.wait(handle.call_id(), Wait { until: test.now() + seconds(5), after_progress: Some(number) });
    let view = test.finish(waiting).await.unwrap().unwrap();
    assert_eq!(view.call.state, CallState::Running, "no more reports: the wait is over first");

    let towpath = test.towpath().clone();
    let (call_id, until) = (handle.call_id().clone(), test.now() + seconds(60));
    let waiting = start(async move { towpath.wait(&call_id, Wait { until, after_progress: None }).await });
    test.settle().await;
    handle.cancel().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().unwrap().call.state, CallState::Completed);
    let nobody = CallId::new("nobody").unwrap();
    assert_eq!(test.wait(&nobody, Wait { until, after_progress: None }).await, Ok(None));
}

async fn what_the_caller_gives_reaches_the_handler(test: TestTowpath) {
    let handler = |_: Value, ctx: CallContext| async move {
        let item: Option<i64> = ctx.input_item()?;
        Ok::<_, HandlerError>(json!([
            ctx.idempotency_key(),
            item,
            ctx.traceparent(),
            ctx.attempt(),
            ctx.depth(),
            ctx.remaining().as_secs()
        ]))
    };
    let _worker = test.worker().function("echo", handler).start().await.unwrap();
    let echoed: Value = test.call("echo", &()).idempotency_key("key").input_item(&7).traceparent("00-ab-cd-01").await.unwrap();
    assert_eq!(echoed, json!(["key", 7, "00-ab-cd-01", 1, 0, 30]));
    let echoed: Value = test.call("echo", &()).call_id("id-1").timeout(seconds(3)).await.unwrap();
    assert_eq!(echoed, json!(["id-1", null, null, 1, 0, 3]));
}

async fn the_raw_way_carries_text_as_it_came(test: TestTowpath) {
    let _worker =
        test.worker().function("echo", |n: Box<serde_json::value::RawValue>, _: CallContext| async { Ok(n) }).start().await.unwrap();
    let function = FunctionKey::global(FunctionName::new("echo").unwrap());
    let params = Payload::from_json("123456789012345678901234567890.50");
    let submitted = test.submit(NewCall::new(function, params.clone())).await.unwrap();
    assert!(!submitted.existing);
    assert_eq!(submitted.deadline.since(test.now()), seconds(30));
    let answered = submitted.answer().await.unwrap();
    assert_eq!(answered.data, params);
    assert_eq!(call(&test, &answered.call_id).await.state, CallState::Completed);
}

crate::on_every_store! {
    a_call_returns_what_its_handler_returned
    two_hundred_parallel_callers_get_their_own_answers
    a_call_waits_for_a_function_that_is_not_known_yet
    an_unknown_function_is_refused_after_the_wait_with_the_closest_names
    the_same_name_in_another_scope_is_another_function
    without_a_healthy_worker_a_call_waits_unless_it_was_told_to_fail
    params_that_do_not_fit_are_refused_before_anything_is_submitted
    a_changed_definition_counts_at_once
    a_payload_over_the_limit_is_refused
    a_full_backlog_refuses_as_overloaded
    a_call_that_failed_and_expires_before_its_next_attempt_may_have_run
    a_queued_call_expires_at_its_deadline_and_says_where_it_stood
    a_running_call_times_out_and_its_handler_is_dropped
    a_caller_that_retries_on_timeout_makes_new_calls_two_seconds_apart
    a_caller_hears_of_the_last_timeout_when_its_retries_are_used_up
    retries_on_timeout_are_refused_where_they_would_be_the_same_call
    lengths_out_of_bounds_are_refused
    a_bad_name_is_refused_when_the_call_is_awaited
    a_result_of_another_type_is_told_with_the_call
    the_same_idempotency_key_is_the_same_call
    a_second_caller_under_the_same_key_waits_for_the_first_ones_outcome
    a_callers_own_id_is_used_and_sending_it_again_is_the_same_call
    a_detached_call_goes_on_by_itself_and_its_outcome_is_kept_for_a_day
    a_waited_for_outcome_is_kept_for_ten_minutes
    a_cancelled_call_ends_as_cancelled_for_whoever_waits
    a_retryable_error_is_tried_again_two_seconds_later_and_thrice_at_most
    a_final_error_ends_the_call_at_once
    a_pause_that_the_handler_asks_for_is_kept
    waiting_for_progress_returns_with_each_report
    what_the_caller_gives_reaches_the_handler
    the_raw_way_carries_text_as_it_came
}

#[tokio::test]
async fn calls_read_the_registry_once_in_a_while_and_never_poll() {
    use crate::support::faulty::{FaultyStore, When, Which};
    let clock = towpath::VirtualClock::new();
    let model = Arc::new(towpath_conformance::model::ModelStore::new(Arc::new(clock.clone())));
    let store = FaultyStore::new(model, Which::None, When::Before);
    let test = TestTowpath::with_store(Arc::<FaultyStore>::clone(&store), clock);
    let _worker = adder(&test).await;
    test.settle().await; // the news of the registration is out
    for n in 0..100 {
        assert_eq!(test.call::<i64, _>("add", &Add { a: n, b: 0 }).await, Ok(n));
    }
    assert_eq!(store.count("find"), 1);
    assert_eq!(store.count("call"), 0);
    test.advance(seconds(5)).await;
    test.call::<i64, _>("add", &Add { a: 1, b: 0 }).await.unwrap();
    assert_eq!(store.count("find"), 2, "what was read is believed for five seconds");

    let before = store.moves().len();
    test.advance(seconds(600)).await;
    let idle = &store.moves()[before..];
    assert!(idle.len() <= 600 / 5, "idle for ten minutes: {} moves", idle.len());
}

#[tokio::test]
async fn a_deeper_call_than_a_thousand_is_refused() {
    let test = on_the_model();
    let _worker = adder(&test).await;
    let function = FunctionKey::global(FunctionName::new("add").unwrap());
    let mut call = NewCall::new(function, Payload::from_json(r#"{"a":1,"b":2}"#));
    call.depth = 1_000;
    assert!(test.call_raw(call.clone()).await.is_ok());
    call.depth = 1_001;
    assert_eq!(test.call_raw(call).await.unwrap_err(), CallError::TooDeep { depth: 1_001, limit: 1_000 });
}
