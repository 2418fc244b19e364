//! Calls within calls: depth, permits given back, deadlines that cannot outlive the caller's.

use std::sync::Arc;

use crate::support::faulty::{FaultyStore, When, Which};
use crate::support::{Crowd, call, on_the_model, seconds, start};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use towpath::testing::TestTowpath;
use towpath::{CallContext, CallId, FunctionLimits, FunctionOptions, HandlerError, Phase, Towpath, VirtualClock};

/// Counts down by calling itself, and returns how deep it came.
async fn countdown(n: u32, ctx: CallContext) -> Result<u32, HandlerError> {
    if n == 0 {
        return Ok(0);
    }
    let below: u32 = ctx.call("countdown", &(n - 1)).timeout(seconds(600)).await?;
    Ok(below + 1)
}

async fn recursion_of_depth_500_finishes_with_one_permit(test: TestTowpath) {
    let _worker = test.worker().concurrency(1).function("countdown", countdown).start().await.unwrap();
    let deep: u32 = test.call("countdown", &500).timeout(seconds(600)).await.unwrap();
    assert_eq!(deep, 500);
}

async fn recursion_finishes_with_one_permit_of_the_function_and_one_in_the_store(test: TestTowpath) {
    let limits = FunctionLimits { max_concurrent: Some(1), ..FunctionLimits::default() };
    let options = FunctionOptions::new("countdown").limits(limits).concurrency(1);
    let _worker = test.worker().concurrency(4).function_with(options, countdown).start().await.unwrap();
    let deep: u32 = test.call("countdown", &50).timeout(seconds(600)).await.unwrap();
    assert_eq!(deep, 50);
}

async fn recursion_without_end_stops_at_a_thousand(test: TestTowpath) {
    let endless = |(): (), ctx: CallContext| async move {
        match ctx.call::<u32, _>("endless", &()).timeout(seconds(600)).await {
            Err(error) if error.code() == "depth_exceeded" => Ok(ctx.depth()),
            other => other.map_err(HandlerError::from),
        }
    };
    let _worker = test.worker().concurrency(1).function("endless", endless).start().await.unwrap();
    assert_eq!(test.call::<u32, _>("endless", &()).timeout(seconds(600)).await, Ok(1_000));
}

async fn nested_calls_side_by_side_need_no_second_permit(test: TestTowpath) {
    let total = |(): (), ctx: CallContext| async move {
        let parts = (0..10).map(|n: i64| ctx.call::<i64, _>("part", &n).into_future());
        let parts = futures_util::future::try_join_all(parts).await?;
        Ok::<_, HandlerError>(parts.iter().sum::<i64>())
    };
    let part = |n: i64, _: CallContext| async move { Ok::<_, HandlerError>(n) };
    let _worker = test.worker().concurrency(1).function("total", total).function("part", part).start().await.unwrap();
    assert_eq!(test.call::<i64, _>("total", &()).await, Ok(45));
}

async fn a_handler_has_its_permit_again_before_it_goes_on(test: TestTowpath) {
    let crowd = Crowd::default();
    let outer_crowd = crowd.clone();
    let outer = move |n: u32, ctx: CallContext| {
        let crowd = outer_crowd.clone();
        async move {
            crowd.enter(tokio::task::yield_now()).await;
            let inner: u32 = ctx.call("inner", &n).await?;
            crowd.enter(tokio::task::yield_now()).await;
            Ok::<_, HandlerError>(inner)
        }
    };
    let inner_crowd = crowd.clone();
    let inner = move |n: u32, _: CallContext| {
        let crowd = inner_crowd.clone();
        async move {
            crowd.enter(tokio::task::yield_now()).await;
            Ok::<_, HandlerError>(n)
        }
    };
    let _worker = test.worker().concurrency(2).function("outer", outer).function("inner", inner).start().await.unwrap();
    let calls: Vec<_> = (0..20).map(|n| start(test.call::<u32, _>("outer", &n))).collect();
    for (n, call) in (0..20).zip(calls) {
        assert_eq!(call.await.unwrap(), Ok(n));
    }
    assert_eq!(crowd.most(), 2);
}

async fn a_handler_that_waits_for_its_permit_does_not_take_it_while_another_nested_call_waits(test: TestTowpath) {
    let gates: [Arc<Semaphore>; 3] = std::array::from_fn(|_| Arc::new(Semaphore::new(0)));
    let [first_may_end, second_may_begin, holder_may_end] = gates.clone();
    let pass = |gate: &Arc<Semaphore>| {
        let gate = Arc::clone(gate);
        move |(): (), _: CallContext| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await?.forget();
                Ok::<_, HandlerError>(())
            }
        }
    };
    let outer = move |(): (), ctx: CallContext| {
        let second_may_begin = Arc::clone(&second_may_begin);
        async move {
            let first = ctx.call::<(), _>("first", &()).into_future();
            let second = async {
                second_may_begin.acquire().await.unwrap().forget();
                ctx.call::<(), _>("second", &()).await
            };
            tokio::try_join!(first, second)?;
            Ok::<_, HandlerError>("both")
        }
    };
    let second = |(): (), _: CallContext| async { Ok::<_, HandlerError>(()) };
    let one = test.worker().concurrency(1).function("outer", outer).function("second", second).function("holder", pass(&holder_may_end));
    let _one = one.start().await.unwrap();
    let _two = test.worker().function("first", pass(&first_may_end)).start().await.unwrap();

    let call = start(test.call::<String, _>("outer", &()));
    test.settle().await;
    test.call::<(), _>("holder", &()).detach().await.unwrap();
    // Step by step: the holder has the permit, the first nested call ends, its caller wants the permit back, the second one begins.
    test.settle().await;
    for gate in &gates {
        assert!(!call.is_finished());
        gate.add_permits(1);
        test.settle().await;
    }
    assert_eq!(call.await.unwrap().unwrap(), "both");
}

async fn a_nested_call_that_is_given_up_leaves_the_permits_in_order(test: TestTowpath) {
    let impatient = |(): (), ctx: CallContext| async move {
        for _ in 0..3 {
            let nested = ctx.call::<Value, _>("hang", &()).into_future();
            tokio::select! {
                biased;
                _ = nested => unreachable!("it hangs"),
                () = ctx.cancelled() => {}
            }
        }
        Ok::<_, HandlerError>("gave up")
    };
    let quick = |n: i64, _: CallContext| async move { Ok::<_, HandlerError>(n) };
    let hang = |(): (), _: CallContext| async { std::future::pending::<Result<(), HandlerError>>().await };
    let _worker = test.worker().concurrency(1).function("impatient", impatient).function("quick", quick).start().await.unwrap();
    let _other = test.worker().function("hang", hang).start().await.unwrap();
    let handle = test.call::<String, _>("impatient", &()).detach().await.unwrap();
    test.settle().await;
    handle.cancel().await.unwrap();
    assert_eq!(handle.result().await.unwrap(), "gave up");
    assert_eq!(test.call::<i64, _>("quick", &1).await, Ok(1));
    assert_eq!(test.call::<i64, _>("quick", &2).await, Ok(2));
}

async fn a_nested_call_ends_at_the_latest_when_its_caller_does(test: TestTowpath) {
    let outer = |(): (), ctx: CallContext| async move {
        let error = ctx.call::<Value, _>("nobody_serves_it", &()).call_id("inner").timeout(seconds(500)).await.unwrap_err();
        Err::<(), _>(HandlerError::fatal("inner_failed", error.code()))
    };
    let worker = test.worker().function("nobody_serves_it", |n: Value, _: CallContext| async move { Ok(n) }).start().await.unwrap();
    worker.drain().await;
    let _worker = test.worker().function("outer", outer).start().await.unwrap();
    let started = test.now();
    let error = test.finish(test.call::<(), _>("outer", &()).timeout(seconds(20))).await.unwrap_err();
    assert!(matches!(error, towpath::CallError::TimedOut { phase: Phase::Running, .. }), "{error}");
    let inner = call(&test, &CallId::new("inner").unwrap()).await;
    assert_eq!(inner.deadline.since(started), seconds(20));
}

async fn each_try_of_a_nested_call_ends_at_the_latest_when_its_caller_does(test: TestTowpath) {
    let outer = |(): (), ctx: CallContext| async move {
        let call = ctx.call::<Value, _>("nobody_serves_it", &()).timeout(seconds(7)).retries_on_timeout(3);
        Err::<(), _>(HandlerError::fatal("inner_failed", call.await.unwrap_err().code()))
    };
    let worker = test.worker().function("nobody_serves_it", |n: Value, _: CallContext| async move { Ok(n) }).start().await.unwrap();
    worker.drain().await;
    let _worker = test.worker().function("outer", outer).start().await.unwrap();
    let started = test.now();
    test.finish(test.call::<(), _>("outer", &()).timeout(seconds(20))).await.unwrap_err();
    let page = test.store().calls(&Default::default(), towpath::core::inspect::PageRequest::first(10)).await.unwrap();
    let mut ends: Vec<_> = page
        .items
        .iter()
        .filter(|view| view.request.function.name.as_str() != "outer")
        .map(|view| view.call.deadline.since(started))
        .collect();
    ends.sort();
    assert_eq!(ends, [seconds(7), seconds(16), seconds(20)]);
}

async fn a_nested_call_knows_where_it_comes_from(test: TestTowpath) {
    let outer = |(): (), ctx: CallContext| async move {
        let handle = ctx.call::<Value, _>("inner", &()).detach().await?;
        let waited: Value = ctx.call("inner", &()).traceparent("00-other-01").await?;
        Ok::<_, HandlerError>(json!([handle.result().await?, waited]))
    };
    let inner = |_: Value, ctx: CallContext| async move { Ok::<_, HandlerError>(json!([ctx.depth(), ctx.traceparent()])) };
    let _worker = test.worker().function("outer", outer).function("inner", inner).start().await.unwrap();
    let told: Value = test.call("outer", &()).call_id("outer-1").traceparent("00-mine-01").await.unwrap();
    assert_eq!(told, json!([[1, "00-mine-01"], [1, "00-other-01"]]));
    let calls = test.store().calls(&Default::default(), towpath::core::inspect::PageRequest::first(10)).await.unwrap().items;
    let parents: Vec<_> = calls.iter().filter(|view| view.request.depth == 1).map(|view| view.request.parent.clone().unwrap()).collect();
    assert_eq!(parents, [CallId::new("outer-1").unwrap(), CallId::new("outer-1").unwrap()]);
}

crate::on_every_store! {
    recursion_of_depth_500_finishes_with_one_permit
    recursion_finishes_with_one_permit_of_the_function_and_one_in_the_store
    recursion_without_end_stops_at_a_thousand
    nested_calls_side_by_side_need_no_second_permit
    a_handler_has_its_permit_again_before_it_goes_on
    a_handler_that_waits_for_its_permit_does_not_take_it_while_another_nested_call_waits
    a_nested_call_that_is_given_up_leaves_the_permits_in_order
    a_nested_call_ends_at_the_latest_when_its_caller_does
    each_try_of_a_nested_call_ends_at_the_latest_when_its_caller_does
    a_nested_call_knows_where_it_comes_from
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn recursion_of_depth_500_finishes_on_many_threads() {
    let towpath = Towpath::open("memory:").await.unwrap();
    let worker = towpath.worker().concurrency(1).function("countdown", countdown).start().await.unwrap();
    let calls: Vec<_> = (0..4).map(|_| start(towpath.call::<u32, _>("countdown", &500).timeout(seconds(600)))).collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), Ok(500));
    }
    worker.drain().await;
    towpath.close().await;
}

#[tokio::test]
async fn the_store_is_told_of_waiting_calls_only_if_it_counts_them() {
    let clock = VirtualClock::new();
    let model = Arc::new(towpath_conformance::model::ModelStore::new(Arc::new(clock.clone())));
    let store = FaultyStore::new(model, Which::None, When::Before);
    let test = TestTowpath::with_store(Arc::<FaultyStore>::clone(&store), clock);
    let worker = test.worker().function("countdown", countdown).start().await.unwrap();
    assert_eq!(test.call::<u32, _>("countdown", &3).await, Ok(3));
    assert_eq!(store.count("park"), 0);
    worker.drain().await;
    let limits = FunctionLimits { max_concurrent: Some(1), ..FunctionLimits::default() };
    let options = FunctionOptions::new("countdown").limits(limits);
    let _worker = test.worker().function_with(options, countdown).start().await.unwrap();
    assert_eq!(test.call::<u32, _>("countdown", &3).await, Ok(3));
    assert_eq!(store.count("park"), 6, "three calls waited: each was told twice");
}

#[tokio::test]
async fn two_workers_that_need_each_other_do_not_block_each_other() {
    let test = on_the_model();
    let ping = |n: u32, ctx: CallContext| async move {
        if n == 0 { Ok(0) } else { Ok::<u32, HandlerError>(ctx.call::<u32, _>("pong", &(n - 1)).await? + 1) }
    };
    let pong = |n: u32, ctx: CallContext| async move {
        if n == 0 { Ok(0) } else { Ok::<u32, HandlerError>(ctx.call::<u32, _>("ping", &(n - 1)).await? + 1) }
    };
    let _one = test.worker().concurrency(1).function("ping", ping).start().await.unwrap();
    let _two = test.worker().concurrency(1).function("pong", pong).start().await.unwrap();
    let calls: Vec<_> = (0..5).map(|_| start(test.call::<u32, _>("ping", &20))).collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), Ok(20));
    }
}
