//! A store that fails at every point there is: no call is lost, and each ends once.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::faulty::{FaultyStore, When, Which};
use crate::support::{Count, millis, seconds, start};
use serde_json::{Value, json};
use towpath::testing::TestTowpath;
use towpath::{
    CallContext, CallError, CallId, FunctionLimits, FunctionOptions, HandlerError, Outcome, RetryPolicy, RunningWorker, Store, StoreError,
    StoreTrouble, VirtualClock, WorkerBuilder, WorkerError,
};
use towpath_conformance::model::ModelStore;
use towpath_core::clock::Clock;

/// How many calls the scenario makes itself; nested ones come on top.
const CALLS: u32 = 20;

/// What became of one scenario.
struct Played {
    store: Arc<FaultyStore>,
    /// By call id: the result as the caller saw it, or the failure's code.
    seen: BTreeMap<String, Result<Value, String>>,
}

fn workers(test: &TestTowpath) -> WorkerBuilder {
    let double = |n: i64, _: CallContext| async move { Ok::<_, HandlerError>(n * 2) };
    let flaky = |n: i64, ctx: CallContext| async move {
        if ctx.attempt() == 1 { Err(HandlerError::retryable("flaky", "the first attempt always fails")) } else { Ok(n) }
    };
    let refuse = |_: Value, _: CallContext| async { Err::<(), _>(HandlerError::fatal("refused", "never")) };
    let outer = |n: i64, ctx: CallContext| async move {
        let doubled: i64 = ctx.call("double", &n).call_id(&format!("{}-inner", ctx.call_id())).timeout(seconds(200)).await?;
        Ok::<_, HandlerError>(doubled + 1)
    };
    let limits = FunctionLimits { max_concurrent: Some(2), ..FunctionLimits::default() };
    // A handler whose nested call the store would not take is tried again like any other; here, until it works.
    let until_it_works = RetryPolicy { max_attempts: 100, ..RetryPolicy::default() };
    // Where a third of all replies is lost, a call may lose many deliveries in a row. That it is given up then is tested elsewhere.
    let patient = |retry: RetryPolicy| RetryPolicy { max_deliveries: 100, ..retry };
    let plain = |name: &str| FunctionOptions::new(name).retry(patient(RetryPolicy::default()));
    test.worker()
        .concurrency(3)
        .function_with(plain("double"), double)
        .function_with(plain("flaky"), flaky)
        .function_with(plain("refuse"), refuse)
        .function_with(FunctionOptions::new("outer").limits(limits).retry(patient(until_it_works)), outer)
}

/// Starts the worker, as a supervisor would: again if the store would not have it.
async fn start_worker(test: &TestTowpath) -> RunningWorker {
    for _ in 0..100 {
        match workers(test).start().await {
            Ok(worker) => return worker,
            Err(WorkerError::Store(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the worker could not be registered in a hundred tries")
}

/// Makes a call as a careful caller does: under its own id, again under the same id while the store is in trouble.
async fn make(test: &TestTowpath, number: u32) -> Result<Value, String> {
    let function = ["double", "flaky", "refuse", "outer"][number as usize % 4];
    for _ in 0..100 {
        let call = test.call::<Value, _>(function, &number).call_id(&format!("call-{number}")).timeout(seconds(300));
        match call.await {
            Ok(value) => return Ok(value),
            Err(CallError::Failed { failure, .. }) => return Err(failure.code),
            Err(CallError::Store { .. }) => test.clock().sleep_until(test.now() + millis(100)).await,
            Err(other) => panic!("call-{number}: {other}"),
        }
    }
    panic!("call-{number} was not taken in a hundred tries")
}

fn expected(number: u32) -> Result<Value, String> {
    match number % 4 {
        0 => Ok(json!(number * 2)),
        1 => Ok(json!(number)),
        2 => Err("refused".to_owned()),
        _ => Ok(json!(number * 2 + 1)),
    }
}

async fn play(which: Which, when: When) -> Played {
    let clock = VirtualClock::new();
    let model: Arc<dyn Store> = Arc::new(ModelStore::new(Arc::new(clock.clone())));
    let store = FaultyStore::new(model, which, when);
    let test = Arc::new(TestTowpath::with_store(Arc::<FaultyStore>::clone(&store), clock));
    let worker = test.finish(start_worker(&test)).await;
    let calls: Vec<_> = (0..CALLS)
        .map(|number| {
            let test = Arc::clone(&test);
            start(async move { (number, make(&test, number).await) })
        })
        .collect();
    let mut seen = BTreeMap::new();
    for call in calls {
        let (number, result) = test.finish(call).await.unwrap();
        seen.insert(format!("call-{number}"), result);
    }
    test.finish(worker.drain()).await;
    Played { store, seen }
}

/// Everything that was promised, about one scenario.
async fn check(played: &Played, what: &str) {
    let ends = played.store.ends();
    for number in 0..CALLS {
        let id = format!("call-{number}");
        assert_eq!(played.seen[&id], expected(number), "{what}: {id} as its caller saw it");
        let mut ids = vec![id.clone()];
        if number % 4 == 3 {
            ids.push(format!("{id}-inner"));
        }
        for id in ids {
            let call_id = CallId::new(&id).unwrap();
            let view = played.store.inner().call(&call_id).await.unwrap().unwrap_or_else(|| panic!("{what}: {id} is lost"));
            assert!(matches!(view.call.outcome, Some(Outcome::Ok(_) | Outcome::Failed(_))), "{what}: {id} is {:?}", view.call);
            assert_eq!(ends.get(&call_id), Some(&1), "{what}: how often {id} ended");
        }
    }
}

#[tokio::test]
async fn one_fault_at_any_point_loses_no_call_and_ends_none_twice() {
    let calm = play(Which::None, When::Before).await;
    check(&calm, "no fault").await;
    let moves = calm.store.moves().len();
    assert!(moves > 50, "the scenario is too small to prove anything: {moves} moves");
    for when in [When::Before, When::After] {
        for number in 1..=moves {
            let played = play(Which::Only(number), when).await;
            let moved = played.store.moves();
            let what = format!("{when:?} move {number} ({:?})", moved.get(number - 1));
            assert_eq!(played.store.faults(), usize::from(moved.len() >= number), "{what}");
            check(&played, &what).await;
        }
    }
}

#[tokio::test]
async fn a_fault_at_every_nth_move_loses_no_call_and_ends_none_twice() {
    let moves = play(Which::None, When::Before).await.store.moves().len();
    for when in [When::Before, When::After] {
        // At every second move, an attempt that takes two moves meets the fault each time, and is rightly given up in the end.
        for every in 3..=moves {
            let played = play(Which::Every(every), when).await;
            assert!(played.store.faults() > 0, "{when:?} every {every}: nothing failed, so nothing was proved");
            check(&played, &format!("{when:?} every {every}")).await;
        }
    }
}

#[tokio::test]
async fn a_lost_reply_to_a_submit_is_sent_again_under_the_same_id() {
    let clock = VirtualClock::new();
    let model: Arc<dyn Store> = Arc::new(ModelStore::new(Arc::new(clock.clone())));
    let calm = FaultyStore::new(Arc::clone(&model), Which::None, When::After);
    let test = TestTowpath::with_store(Arc::<FaultyStore>::clone(&calm), clock.clone());
    let runs = Count::default();
    let counter = runs.clone();
    let handler = move |(): (), _: CallContext| {
        counter.add();
        async { Ok::<_, HandlerError>(()) }
    };
    let _worker = test.worker().function("once", handler).start().await.unwrap();
    // A second handle on the same store, whose first submit loses its reply: three moves of its loops and a find come before.
    let faulty = FaultyStore::new(model, Which::Only(5), When::After);
    let caller = TestTowpath::with_store(Arc::<FaultyStore>::clone(&faulty), clock);
    caller.settle().await;
    caller.finish(caller.call::<(), _>("once", &())).await.unwrap();
    assert_eq!(faulty.moves()[3..6], ["find", "submit", "submit"]);
    assert_eq!((faulty.faults(), runs.get()), (1, 1));
    let submits = faulty.submits();
    let tag = towpath_conformance::words::function("once").tag();
    assert_eq!(submits[0].0.function_tag(), Some(tag.as_str()), "an id that the library makes tells its function");
    assert_eq!(submits, [(submits[0].0.clone(), true), (submits[0].0.clone(), false)], "only the first submit is fresh");

    caller.finish(caller.call::<(), _>("once", &()).call_id("mine")).await.unwrap();
    assert_eq!(faulty.submits()[2], (CallId::new("mine").unwrap(), false), "a caller may have sent its own id before");
}

#[tokio::test]
async fn a_store_that_broke_is_told_to_whoever_asks() {
    let clock = VirtualClock::new();
    let model: Arc<dyn Store> = Arc::new(ModelStore::new(Arc::new(clock.clone())));
    let store = FaultyStore::new(model, Which::None, When::Before);
    let test = TestTowpath::with_store(Arc::<FaultyStore>::clone(&store), clock);
    let towpath = test.towpath().clone();
    let broken = start(async move { towpath.broken().await });
    test.settle().await;
    assert!(!broken.is_finished());
    store.set_trouble(Some(StoreTrouble::Broken("the disk is gone".to_owned())));
    let error = test.config().await.unwrap_err();
    assert_eq!(error, StoreError::Unavailable(StoreTrouble::Broken("the disk is gone".to_owned())));
    assert_eq!(broken.await.unwrap(), "the disk is gone");
    assert_eq!(towpath::store_error_code(&error), "store_broken");
}

#[tokio::test]
async fn an_answer_outlasts_a_store_in_trouble() {
    let clock = VirtualClock::new();
    let model: Arc<dyn Store> = Arc::new(ModelStore::new(Arc::new(clock.clone())));
    let store = FaultyStore::new(model, Which::None, When::Before);
    let test = TestTowpath::with_store(Arc::<FaultyStore>::clone(&store), clock);
    let (runs, door) = (Count::default(), Arc::new(tokio::sync::Notify::new()));
    let (counter, gate) = (runs.clone(), Arc::clone(&door));
    let handler = move |n: i64, _: CallContext| {
        counter.add();
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            Ok::<_, HandlerError>(n)
        }
    };
    let worker = test.worker().function("work", handler).start().await.unwrap();
    let call = start(test.call::<i64, _>("work", &7).timeout(seconds(300)));
    test.settle().await;
    store.set_trouble(Some(StoreTrouble::Full("no room".to_owned())));
    door.notify_one();
    test.advance(seconds(20)).await;
    assert!(!call.is_finished());
    store.set_trouble(None);
    assert_eq!(test.finish(call).await.unwrap(), Ok(7));
    test.settle().await;
    assert_eq!((runs.get(), worker.held()), (1, 0));
}

fn faulty() -> (Arc<FaultyStore>, TestTowpath) {
    let clock = VirtualClock::new();
    let model: Arc<dyn Store> = Arc::new(ModelStore::new(Arc::new(clock.clone())));
    let store = FaultyStore::new(model, Which::None, When::Before);
    let test = TestTowpath::with_store(Arc::<FaultyStore>::clone(&store), clock);
    (store, test)
}

#[tokio::test]
async fn a_task_that_panics_is_started_again_and_no_call_notices() {
    for name in ["renew", "complete", "heartbeat", "claim", "fire_due", "functions_changed"] {
        let (store, test) = faulty();
        let runs = Count::default();
        let (counter, clock) = (runs.clone(), test.virtual_clock().clone());
        let slow = move |n: i64, ctx: CallContext| {
            let (counter, clock) = (counter.clone(), clock.clone());
            async move {
                counter.add();
                clock.sleep_until(clock.now() + seconds(100)).await;
                let busy = HandlerError::retryable("busy", "the first attempt always fails");
                if ctx.attempt() == 1 { Err(busy) } else { Ok(n) }
            }
        };
        let worker = test.worker().function("slow", slow).start().await.unwrap();
        test.settle().await;
        store.panic_of(name, 1);
        if name == "functions_changed" {
            store.inner().define(towpath_conformance::words::definition("another")).await.unwrap();
        }
        let result = test.finish(test.call::<i64, _>("slow", &7).timeout(seconds(400))).await;
        assert_eq!((result, runs.get()), (Ok(7), 2), "{name}");
        assert_eq!(store.panics_left(), 0, "{name} has panicked");
        let asked = store.count(name);
        assert_eq!(test.finish(test.call::<i64, _>("slow", &8).timeout(seconds(400))).await, Ok(8), "{name}");
        if name == "functions_changed" {
            store.inner().define(towpath_conformance::words::definition("a third")).await.unwrap();
            test.settle().await;
        }
        assert!(store.count(name) > asked, "{name} is asked for again");
        assert!(store.inner().workers().await.unwrap()[0].healthy, "{name}");
        test.finish(worker.drain()).await;
    }
}

#[tokio::test]
async fn a_worker_that_cannot_renew_its_leases_does_not_say_that_it_is_healthy() {
    let (store, test) = faulty();
    let clock = test.virtual_clock().clone();
    let slow = move |(): (), _: CallContext| {
        let clock = clock.clone();
        async move {
            clock.sleep_until(clock.now() + seconds(300)).await;
            Ok::<_, HandlerError>(())
        }
    };
    let _worker = test.worker().function("slow", slow).start().await.unwrap();
    store.panic_of("renew", u32::MAX);
    let _call = start(test.call::<(), _>("slow", &()).timeout(seconds(400)));
    test.advance(seconds(120)).await;
    assert!(!store.inner().workers().await.unwrap().iter().any(|worker| worker.healthy), "its renewer does not run");
    store.panic_of("renew", 0);
    test.advance(seconds(60)).await;
    assert!(store.inner().workers().await.unwrap()[0].healthy, "it runs again");
}

#[tokio::test]
async fn a_process_that_cannot_fire_timers_says_so() {
    let (store, test) = faulty();
    test.settle().await;
    assert!(test.is_fit());
    store.panic_of("fire_due", u32::MAX);
    store.inner().define(towpath_conformance::words::definition("add")).await.unwrap();
    store.inner().submit(towpath_conformance::words::new_call("c-1", "add")).await.unwrap();
    test.advance(seconds(120)).await;
    assert!(!test.is_fit(), "its timekeeper does not run");
    store.panic_of("fire_due", 0);
    test.advance(seconds(60)).await;
    assert!(test.is_fit(), "it runs again");
}

#[tokio::test]
async fn a_function_that_is_known_and_takes_no_call_is_not_asked_without_a_pause() {
    let (store, test) = faulty();
    store.inner().define(towpath_conformance::words::definition("odd")).await.unwrap();
    store.know_no_function();
    let result = test.finish(test.call::<(), _>("odd", &()).wait_for_function(seconds(5))).await;
    assert!(matches!(&result, Err(CallError::FunctionNotFound { .. })), "{result:?}");
    assert!((3..20).contains(&store.submits().len()), "{} submits", store.submits().len());
}
