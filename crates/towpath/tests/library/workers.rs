//! Serving: permits, panics, leases, cancellation, drain.

use std::sync::{Arc, Mutex};

use crate::support::faulty::{FaultyStore, When, Which};
use crate::support::{Count, Crowd, call, millis, on_the_model, seconds, start, state};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use towpath::testing::TestTowpath;
use towpath::{
    CallContext, CallState, DrainReport, FunctionOptions, HandlerError, Outcome, Payload, RetryPolicy, VirtualClock, WorkerError, WorkerId,
};
use towpath_core::call::{AttemptsBefore, CallRequest};
use towpath_core::store::{Cancelled, SubmitCall};

/// A door that handlers wait at until the test opens it.
#[derive(Clone)]
struct Door(Arc<Semaphore>);

impl Default for Door {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl Door {
    async fn pass(&self) {
        self.0.acquire().await.unwrap().forget();
    }

    /// Lets one through, whoever came first.
    fn open(&self) {
        self.0.add_permits(1);
    }
}

/// A handler that waits at a door and counts who is inside.
fn waits_at(door: &Door, crowd: &Crowd) -> impl Fn(Value, CallContext) -> BoxFuture<'static, Result<Value, HandlerError>> + Clone + use<> {
    let (door, crowd) = (door.clone(), crowd.clone());
    move |params, _ctx| {
        let (door, crowd) = (door.clone(), crowd.clone());
        Box::pin(async move {
            crowd.enter(door.pass()).await;
            Ok(params)
        })
    }
}

fn worker_id(text: &str) -> WorkerId {
    WorkerId::new(text).unwrap()
}

async fn a_panic_is_a_failure_that_is_tried_again(test: TestTowpath) {
    let handler = |_: Value, ctx: CallContext| async move {
        assert!(ctx.attempt() > 1, "the first attempt breaks");
        Ok::<_, HandlerError>(ctx.attempt())
    };
    let worker = test.worker().function("breaks", handler).start().await.unwrap();
    let handle = test.call::<u32, _>("breaks", &()).detach().await.unwrap();
    test.settle().await;
    let failure = call(&test, handle.call_id()).await.last_failure.unwrap();
    assert_eq!(failure.code, "handler_panicked");
    assert_eq!(failure.message, "the handler of 'breaks' panicked: the first attempt breaks");
    assert_eq!(test.finish(handle.result()).await, Ok(2));
    test.settle().await;
    assert_eq!(worker.held(), 0);
}

async fn no_more_handlers_run_at_once_than_there_are_permits(test: TestTowpath) {
    let (door, crowd) = (Door::default(), Crowd::default());
    let _worker = test.worker().concurrency(3).function("wait", waits_at(&door, &crowd)).start().await.unwrap();
    let calls: Vec<_> = (0..10).map(|n| start(test.call::<i64, _>("wait", &n))).collect();
    test.settle().await;
    assert_eq!(crowd.inside(), 3);
    let view = test.store().functions().await.unwrap().remove(0);
    assert_eq!((view.counts.running, view.counts.queued), (3, 7), "what cannot run yet stays where other workers can claim it");
    for (n, call) in (0..).zip(calls) {
        door.open();
        assert_eq!(call.await.unwrap(), Ok(n));
    }
    assert_eq!(crowd.most(), 3);
}

async fn a_function_at_its_limit_does_not_hold_up_the_others(test: TestTowpath) {
    let (door, crowd) = (Door::default(), Crowd::default());
    let _worker = test
        .worker()
        .concurrency(8)
        .function_with(FunctionOptions::new("wait").concurrency(1), waits_at(&door, &crowd))
        .function("quick", |n: i64, _: CallContext| async move { Ok(n) })
        .start()
        .await
        .unwrap();
    let first = start(test.call::<Value, _>("wait", &1));
    let second = start(test.call::<Value, _>("wait", &2));
    test.settle().await;
    assert_eq!(test.call::<i64, _>("quick", &7).await, Ok(7));
    door.open();
    first.await.unwrap().unwrap();
    test.settle().await;
    assert_eq!(crowd.inside(), 1, "the permit that came back brought the second call");
    door.open();
    second.await.unwrap().unwrap();
    assert_eq!(crowd.most(), 1);
}

async fn a_long_backlog_of_one_function_does_not_starve_another(test: TestTowpath) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&order);
    let write = move |(): (), ctx: CallContext| {
        written.lock().unwrap().push(ctx.function_name().to_string());
        async { Ok::<_, HandlerError>(()) }
    };
    let builder = || test.worker().concurrency(1).function("busy", write.clone()).function("rare", write.clone());
    builder().start().await.unwrap().drain().await;
    for _ in 0..30 {
        test.call::<(), _>("busy", &()).detach().await.unwrap();
    }
    test.call::<(), _>("rare", &()).detach().await.unwrap();
    let _worker = builder().start().await.unwrap();
    test.settle().await;
    let order = order.lock().unwrap();
    assert_eq!(order.len(), 31);
    assert!(order[..3].contains(&"rare".to_owned()), "{order:?}");
}

async fn a_call_that_takes_longer_than_its_lease_runs_once_while_its_worker_lives(test: TestTowpath) {
    let (door, crowd) = (Door::default(), Crowd::default());
    let _one = test.worker().function("wait", waits_at(&door, &crowd)).start().await.unwrap();
    let _two = test.worker().function("wait", waits_at(&door, &crowd)).start().await.unwrap();
    let call_in_test = start(test.call::<Value, _>("wait", &1).call_id("long").timeout(seconds(600)));
    test.advance(seconds(300)).await;
    door.open();
    assert_eq!(test.finish(call_in_test).await.unwrap(), Ok(json!(1)));
    let record = call(&test, &"long".parse_id()).await;
    assert_eq!((record.crashes, record.delivery, crowd.most()), (0, 1, 1));
}

async fn a_worker_that_is_dropped_loses_its_calls_to_another_when_the_lease_is_over(test: TestTowpath) {
    let (door, crowd) = (Door::default(), Crowd::default());
    let dead = test.worker().function("wait", waits_at(&door, &crowd)).start().await.unwrap();
    let waiting = start(test.call::<Value, _>("wait", &1).call_id("c").timeout(seconds(90)));
    test.settle().await;
    assert_eq!(crowd.inside(), 1);
    drop(dead);
    let living = |n: Value, _: CallContext| async move { Ok::<_, HandlerError>(n) };
    let _other = test.worker().function("wait", living).start().await.unwrap();
    test.advance(seconds(29)).await;
    assert_eq!(state(&test, &"c".parse_id()).await, CallState::Running, "the lease still holds");
    test.advance(seconds(1)).await;
    assert_eq!(waiting.await.unwrap(), Ok(json!(1)));
    let record = call(&test, &"c".parse_id()).await;
    assert_eq!((record.crashes, record.failures), (1, 0));
}

async fn a_lost_lease_cancels_the_handler_and_nothing_is_written_for_it(test: TestTowpath) {
    let told = Count::default();
    let counter = told.clone();
    let handler = move |_: Value, ctx: CallContext| {
        let counter = counter.clone();
        async move {
            ctx.cancelled().await;
            counter.add();
            Ok::<_, HandlerError>("too late")
        }
    };
    let worker = test.worker().id(worker_id("first")).concurrency(1).function("wait", handler).start().await.unwrap();
    let handle = test.call::<String, _>("wait", &()).detach().await.unwrap();
    test.settle().await;
    // Another process takes the call away, as if this one had been frozen for long.
    test.store().unregister(&worker_id("first")).await.unwrap();
    let taken = test.store().claim(claim_of("wait", "second")).await.unwrap();
    assert_eq!(taken.len(), 1);
    test.advance(seconds(10)).await;
    assert_eq!((told.get(), worker.held()), (1, 0), "it learns of it at its renewal");
    assert_eq!(state(&test, handle.call_id()).await, CallState::Running, "the second worker has it");
}

async fn a_worker_that_was_forgotten_introduces_itself_again(test: TestTowpath) {
    let handler = |n: i64, _: CallContext| async move { Ok::<_, HandlerError>(n) };
    let _worker = test.worker().id(worker_id("w")).function("echo", handler).start().await.unwrap();
    test.settle().await;
    test.store().unregister(&worker_id("w")).await.unwrap();
    assert!(test.store().workers().await.unwrap().is_empty());
    test.advance(seconds(10)).await;
    let workers = test.store().workers().await.unwrap();
    assert_eq!((workers[0].worker_id.as_str(), workers[0].kind.as_str(), workers[0].healthy), ("w", "rust", true));
}

async fn an_idle_worker_stays_healthy(test: TestTowpath) {
    let handler = |n: i64, _: CallContext| async move { Ok::<_, HandlerError>(n) };
    let _worker = test.worker().function("echo", handler).start().await.unwrap();
    test.advance(seconds(3_600)).await;
    assert!(test.store().workers().await.unwrap()[0].healthy);
    assert_eq!(test.call::<i64, _>("echo", &1).fail_without_workers().await, Ok(1));
}

async fn a_cancelled_running_call_stops_at_once_when_its_handler_heeds_it(test: TestTowpath) {
    let handler = |_: Value, ctx: CallContext| async move {
        ctx.cancelled().await;
        Err::<(), _>(HandlerError::cancelled())
    };
    let _worker = test.worker().function("wait", handler).start().await.unwrap();
    let handle = test.call::<(), _>("wait", &()).detach().await.unwrap();
    test.settle().await;
    let before = test.now();
    assert_eq!(handle.cancel().await.unwrap(), Cancelled::Requested);
    assert_eq!(handle.result().await.unwrap_err().code(), "call_cancelled");
    assert_eq!(test.now(), before, "no time passed");
}

async fn a_handler_that_does_not_heed_a_cancellation_is_dropped_after_the_grace(test: TestTowpath) {
    let dropped = Count::default();
    let counter = dropped.clone();
    let handler = move |_: Value, _: CallContext| {
        let guard = counter.on_drop();
        async move {
            let _guard = guard;
            std::future::pending::<Result<(), HandlerError>>().await
        }
    };
    let _worker = test.worker().function("hang", handler).start().await.unwrap();
    let handle = test.call::<(), _>("hang", &()).detach().await.unwrap();
    test.settle().await;
    handle.cancel().await.unwrap();
    test.advance(millis(4_999)).await;
    assert_eq!((dropped.get(), state(&test, handle.call_id()).await), (0, CallState::Running));
    test.advance(millis(1)).await;
    assert_eq!((dropped.get(), state(&test, handle.call_id()).await), (1, CallState::Cancelled));
}

async fn a_result_in_spite_of_a_cancellation_counts(test: TestTowpath) {
    let handler = |_: Value, ctx: CallContext| async move {
        ctx.cancelled().await;
        Ok::<_, HandlerError>("done anyway")
    };
    let _worker = test.worker().function("wait", handler).start().await.unwrap();
    let handle = test.call::<String, _>("wait", &()).detach().await.unwrap();
    test.settle().await;
    handle.cancel().await.unwrap();
    assert_eq!(handle.result().await.unwrap(), "done anyway");
}

async fn a_drain_lets_handlers_finish_and_leaves_the_rest_to_others(test: TestTowpath) {
    let (door, crowd) = (Door::default(), Crowd::default());
    let worker = test.worker().concurrency(2).function("wait", waits_at(&door, &crowd)).start().await.unwrap();
    let calls: Vec<_> = (0..3).map(|n| start(test.call::<i64, _>("wait", &n).timeout(seconds(100)))).collect();
    test.settle().await;
    let draining = start(worker.drain());
    test.advance(seconds(20)).await;
    assert!(!draining.is_finished());
    door.open();
    door.open();
    test.settle().await;
    assert_eq!(test.finish(draining).await.unwrap(), DrainReport { finished: 2, handed_back: 0 });
    assert_eq!(crowd.most(), 2, "nothing was claimed while it drained");
    assert!(test.store().workers().await.unwrap().is_empty());
    let _next = test.worker().function("wait", |n: i64, _: CallContext| async move { Ok(n) }).start().await.unwrap();
    for (n, call) in (0..).zip(calls) {
        assert_eq!(call.await.unwrap(), Ok(n));
    }
}

async fn a_drain_hands_back_what_does_not_finish_in_time_without_counting_a_crash(test: TestTowpath) {
    let (door, crowd) = (Door::default(), Crowd::default());
    let worker = test.worker().function("wait", waits_at(&door, &crowd)).start().await.unwrap();
    let waiting = start(test.call::<Value, _>("wait", &1).call_id("c").timeout(seconds(100)));
    test.settle().await;
    let before = test.now();
    let report = test.finish(worker.drain()).await;
    assert_eq!(report, DrainReport { finished: 0, handed_back: 1 });
    assert_eq!(test.now().since(before), seconds(25));
    let record = call(&test, &"c".parse_id()).await;
    assert_eq!((record.state, record.crashes), (CallState::Queued, 0));
    let _next = test.worker().function("wait", |n: Value, _: CallContext| async move { Ok(n) }).start().await.unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(json!(1)), "another worker gets it at once");
}

async fn run_until_drains_when_the_signal_comes(test: TestTowpath) {
    let shutdown = Arc::new(Notify::new());
    let signal = Arc::clone(&shutdown);
    let worker = test.worker().function("echo", |n: i64, _: CallContext| async move { Ok(n) });
    let running = start(worker.run_until(async move { signal.notified().await }));
    assert_eq!(test.call::<i64, _>("echo", &1).await, Ok(1));
    test.settle().await;
    shutdown.notify_one();
    assert_eq!(running.await.unwrap().unwrap(), DrainReport::default());
}

async fn params_that_got_past_the_caller_fail_for_good_at_the_worker(test: TestTowpath) {
    let options = FunctionOptions::new("strict").parameters(json!([{"name": "a", "type": "string", "required": true}]));
    let _worker = test.worker().function_with(options, |_: Value, _: CallContext| async { Ok(()) }).start().await.unwrap();
    // Straight into the store, as a caller of another make would.
    let submit = submit_of("strict", r#"{"a":1}"#);
    test.store().submit(submit.clone()).await.unwrap();
    test.settle().await;
    let record = call(&test, &submit.call_id).await;
    let Some(Outcome::Failed(failure)) = record.outcome else { panic!("{:?}", record.outcome) };
    assert_eq!(failure.code, "invalid_params");
    let details = r#"{"problems":[{"expected":"a string","got":"the number 1","parameter":"a"}]}"#;
    assert_eq!(failure.details.unwrap().as_str(), details);
}

async fn params_of_the_wrong_shape_for_the_handlers_type_fail_for_good(test: TestTowpath) {
    let _worker = test.worker().function("number", |n: i64, _: CallContext| async move { Ok(n) }).start().await.unwrap();
    let error = test.call::<i64, _>("number", "seven").await.unwrap_err();
    assert!(error.to_string().contains("(invalid_params)"), "{error}");
}

async fn a_call_whose_workers_keep_dying_is_poisoned(test: TestTowpath) {
    let retry = RetryPolicy { max_deliveries: 2, ..RetryPolicy::default() };
    let options = FunctionOptions::new("kills").retry(retry);
    let hang = |_: Value, _: CallContext| async { std::future::pending::<Result<(), HandlerError>>().await };
    let waiting = start(test.call::<(), _>("kills", &()).timeout(seconds(600)).wait_for_function(seconds(60)));
    for _ in 0..2 {
        let worker = test.worker().function_with(options.clone(), hang).start().await.unwrap();
        test.settle().await;
        drop(worker);
        test.advance(seconds(30)).await;
    }
    let _worker = test.worker().function_with(options, hang).start().await.unwrap();
    let error = test.finish(waiting).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("because its workers died"), "{error}");
}

crate::on_every_store! {
    a_panic_is_a_failure_that_is_tried_again
    no_more_handlers_run_at_once_than_there_are_permits
    a_function_at_its_limit_does_not_hold_up_the_others
    a_long_backlog_of_one_function_does_not_starve_another
    a_call_that_takes_longer_than_its_lease_runs_once_while_its_worker_lives
    a_worker_that_is_dropped_loses_its_calls_to_another_when_the_lease_is_over
    a_lost_lease_cancels_the_handler_and_nothing_is_written_for_it
    a_worker_that_was_forgotten_introduces_itself_again
    an_idle_worker_stays_healthy
    a_cancelled_running_call_stops_at_once_when_its_handler_heeds_it
    a_handler_that_does_not_heed_a_cancellation_is_dropped_after_the_grace
    a_result_in_spite_of_a_cancellation_counts
    a_drain_lets_handlers_finish_and_leaves_the_rest_to_others
    a_drain_hands_back_what_does_not_finish_in_time_without_counting_a_crash
    run_until_drains_when_the_signal_comes
    params_that_got_past_the_caller_fail_for_good_at_the_worker
    params_of_the_wrong_shape_for_the_handlers_type_fail_for_good
    a_call_whose_workers_keep_dying_is_poisoned
}

#[tokio::test]
async fn short_calls_are_never_renewed_and_long_ones_all_at_once() {
    let clock = VirtualClock::new();
    let model = Arc::new(towpath_conformance::model::ModelStore::new(Arc::new(clock.clone())));
    let store = FaultyStore::new(model, Which::None, When::Before);
    let test = TestTowpath::with_store(Arc::<FaultyStore>::clone(&store), clock);
    let gate = Arc::new(Semaphore::new(0));
    let held_gate = Arc::clone(&gate);
    let handler = move |_: Value, _: CallContext| {
        let gate = Arc::clone(&held_gate);
        async move { gate.acquire().await.map(drop).map_err(HandlerError::from) }
    };
    let _worker = test.worker().concurrency(50).function("wait", handler).start().await.unwrap();
    for _ in 0..50 {
        test.call::<(), _>("wait", &()).detach().await.unwrap();
    }
    test.advance(millis(9_999)).await;
    assert_eq!(store.count("renew"), 0);
    test.advance(millis(1)).await;
    assert_eq!(store.count("renew"), 1, "a third of the lease is over: one move for all fifty");
    gate.add_permits(1_000);
    test.advance(seconds(60)).await;
    assert_eq!(store.count("renew"), 1, "nothing is held any more");
}

#[tokio::test]
async fn a_handler_that_ends_after_its_lease_was_lost_is_not_even_answered() {
    let clock = VirtualClock::new();
    let model = Arc::new(towpath_conformance::model::ModelStore::new(Arc::new(clock.clone())));
    let store = FaultyStore::new(model, Which::None, When::Before);
    let test = TestTowpath::with_store(Arc::<FaultyStore>::clone(&store), clock);
    let handler = |(): (), ctx: CallContext| async move {
        ctx.cancelled().await;
        Ok::<_, HandlerError>(())
    };
    let worker = test.worker().id(worker_id("w")).concurrency(1).function("wait", handler).start().await.unwrap();
    test.call::<(), _>("wait", &()).detach().await.unwrap();
    test.settle().await;
    test.store().unregister(&worker_id("w")).await.unwrap();
    test.store().claim(claim_of("wait", "another")).await.unwrap();
    test.advance(seconds(10)).await;
    assert_eq!((worker.held(), store.count("complete")), (0, 0));
}

#[tokio::test]
async fn leases_that_began_at_different_times_are_renewed_together() {
    let clock = VirtualClock::new();
    let model = Arc::new(towpath_conformance::model::ModelStore::new(Arc::new(clock.clone())));
    let store = FaultyStore::new(model, Which::None, When::Before);
    let test = TestTowpath::with_store(Arc::<FaultyStore>::clone(&store), clock);
    let hang = |(): (), _: CallContext| async { std::future::pending::<Result<(), HandlerError>>().await };
    let _worker = test.worker().concurrency(200).function("hang", hang).start().await.unwrap();
    for _ in 0..100 {
        test.call::<(), _>("hang", &()).detach().await.unwrap();
        test.advance(millis(100)).await;
    }
    let before = store.count("renew");
    test.advance(seconds(60)).await;
    let renewals = store.count("renew") - before;
    assert!(renewals <= 24, "{renewals} moves for two leases");
    let view = test.store().functions().await.unwrap().remove(0);
    assert_eq!((view.counts.running, view.counts.queued), (100, 0), "no lease ran out");
}

#[tokio::test]
async fn a_worker_without_sense_is_refused_with_what_to_change() {
    let test = on_the_model();
    let echo = |n: i64, _: CallContext| async move { Ok::<_, HandlerError>(n) };
    let options = || FunctionOptions::new("echo");
    assert_eq!(test.worker().start().await.unwrap_err(), WorkerError::NoFunctions);
    for (builder, says) in [
        (test.worker().function("echo", echo).function("echo", echo), "'echo' was given two handlers"),
        (test.worker().function("global_config", echo), "reserved"),
        (test.worker().function("echo", echo).concurrency(0), "concurrency must be between 1 and"),
        (test.worker().function_with(options().concurrency(0), echo), "concurrency must be between 1 and"),
        (test.worker().function("echo", echo).lease(millis(99)), "lease must be between 100 ms and 7 days"),
        (test.worker().function_with(options().parameters(json!({"type": "x"})), echo), "the parameters of function 'echo' are not usable"),
    ] {
        let refused = builder.start().await.unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
    assert!(test.store().workers().await.unwrap().is_empty());
}

fn submit_of(function: &str, params: &str) -> SubmitCall {
    SubmitCall {
        call_id: "raw-1".parse_id(),
        request: CallRequest {
            function: towpath_conformance::words::function(function),
            params: Payload::from_json(params.to_owned()),
            input_item: None,
            idempotency_key: None,
            depth: 0,
            parent: None,
            traceparent: None,
        },
        timeout: seconds(60),
        retain: seconds(60),
        fail_without_workers: false,
        fresh: false,
        before: AttemptsBefore::default(),
        continues: false,
    }
}

fn claim_of(function: &str, worker: &str) -> towpath_core::store::ClaimCalls {
    towpath_core::store::ClaimCalls {
        worker: worker_id(worker),
        functions: [towpath_core::store::ClaimFunction { function: towpath_conformance::words::function(function), max: 1 }].into(),
        max: 1,
        lease: seconds(30),
        wait: seconds(0),
        takes_any: false,
    }
}

trait ParseId {
    fn parse_id(&self) -> towpath::CallId;
}

impl ParseId for str {
    fn parse_id(&self) -> towpath::CallId {
        towpath::CallId::new(self).unwrap()
    }
}
