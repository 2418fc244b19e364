//! Functions with a rate: their calls wait for their turn in the queue, and hold up nobody else.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath::limits::{LimitScope, Room, Rule, RuleName, Rules, Turn};
use towpath::testing::TestTowpath;
use towpath::{
    CallContext, CallError, CallHandle, CallState, FunctionOptions, HandlerError, RunningWorker, Timestamp, VirtualClock, WorkerError,
};
use towpath_conformance::model::ModelStore;

use crate::on_every_store;
use crate::support::faulty::{FaultyStore, When, Which};
use crate::support::{call, millis, seconds, state};

on_every_store! {
    calls_of_a_function_with_a_rate_begin_as_its_policy_says
    a_call_waits_for_its_turn_in_the_queue_and_holds_up_nobody
    a_call_whose_turn_does_not_come_in_time_ends_without_having_run
    functions_that_name_one_scope_share_its_limit
    a_function_whose_policy_is_missing_waits_for_it
    a_worker_that_leaves_takes_no_turn_with_it
    workers_of_several_processes_share_a_rate
    a_call_that_is_tried_again_takes_another_turn
    a_name_that_cannot_be_a_policy_or_a_scope_is_refused_at_the_start
    turns_for_work_of_any_cost_can_be_drawn_and_given_back
}

/// When each handler began, counted from the first look.
#[derive(Clone)]
struct Begun {
    test_began: Timestamp,
    at: Arc<Mutex<Vec<(String, Duration)>>>,
}

impl Begun {
    fn new(test: &TestTowpath) -> Self {
        Self { test_began: test.now(), at: Arc::default() }
    }

    fn handler(&self, test: &TestTowpath) -> impl Fn((), CallContext) -> std::future::Ready<Result<(), HandlerError>> + Clone + use<> {
        let (begun, clock) = (self.clone(), Arc::clone(test.clock()));
        move |(), ctx| {
            let after = clock.now().since(begun.test_began);
            begun.at.lock().unwrap().push((ctx.function_name().to_string(), after));
            std::future::ready(Ok(()))
        }
    }

    fn times(&self) -> Vec<u128> {
        self.at.lock().unwrap().iter().map(|(_, after)| after.as_millis()).collect()
    }

    fn names(&self) -> Vec<String> {
        self.at.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }
}

async fn put(test: &TestTowpath, scope: Option<&str>, rule: &str) {
    let scope = scope.map(|scope| LimitScope::new(scope).unwrap());
    let rules = Rules::one(rule.parse::<Rule>().unwrap());
    test.limit_policies().put(scope.as_ref(), &RuleName::new("calm").unwrap(), &rules).await.unwrap();
}

async fn remove(test: &TestTowpath, scope: &str) {
    test.limit_policies().remove(Some(&LimitScope::new(scope).unwrap()), &RuleName::new("calm").unwrap()).await.unwrap();
}

async fn serve(test: &TestTowpath, begun: &Begun, options: FunctionOptions) -> RunningWorker {
    test.worker().function_with(options, begun.handler(test)).start().await.unwrap()
}

async fn submit(test: &TestTowpath, function: &str, count: usize) -> Vec<CallHandle<()>> {
    let mut handles = Vec::new();
    for _ in 0..count {
        handles.push(test.call::<(), _>(function, &()).detach().await.unwrap());
    }
    handles
}

async fn calls_of_a_function_with_a_rate_begin_as_its_policy_says(test: TestTowpath) {
    for (rule, expected) in [
        ("r=gcra:10/1s", vec![0, 100, 200, 300, 400, 500, 600, 700]),
        ("r=gcra:1/1s,burst=3", vec![0, 0, 0, 1_000, 2_000, 3_000, 4_000, 5_000]),
        ("r=sliding_log:3/1s", vec![0, 0, 0, 1_000, 1_000, 1_000, 2_000, 2_000]),
    ] {
        put(&test, Some(rule), rule).await;
        let begun = Begun::new(&test);
        let worker = serve(&test, &begun, FunctionOptions::new("send").rate("calm").rate_scope(rule)).await;
        submit(&test, "send", expected.len()).await;
        test.advance(seconds(6)).await;
        assert_eq!(begun.times(), expected, "{rule}");
        worker.drain().await;
    }
}

async fn a_call_waits_for_its_turn_in_the_queue_and_holds_up_nobody(test: TestTowpath) {
    put(&test, None, "r=sliding_log:1/60s").await;
    let begun = Begun::new(&test);
    let worker = test
        .worker()
        .concurrency(1)
        .function_with(FunctionOptions::new("slow").rate("calm"), begun.handler(&test))
        .function("quick", begun.handler(&test))
        .start()
        .await
        .unwrap();
    let slow = submit(&test, "slow", 3).await;
    test.advance(seconds(1)).await;
    assert_eq!(worker.held(), 0, "nothing waits in hand");
    for handle in &slow[1..] {
        assert_eq!(state(&test, handle.call_id()).await, CallState::Queued);
    }
    assert_eq!(call(&test, slow[2].call_id()).await.failures, 0);
    submit(&test, "quick", 2).await;
    test.settle().await;
    assert_eq!(begun.names(), ["slow", "quick", "quick"]);
    test.store().cancel(slow[1].call_id()).await.unwrap();
    assert_eq!(state(&test, slow[1].call_id()).await, CallState::Cancelled, "at once, for nobody holds it");
    test.advance(seconds(59)).await;
    assert_eq!((begun.names().len(), begun.times()[3]), (4, 60_000));
}

async fn a_call_whose_turn_does_not_come_in_time_ends_without_having_run(test: TestTowpath) {
    put(&test, None, "r=gcra:1/60s").await;
    let begun = Begun::new(&test);
    let _worker = serve(&test, &begun, FunctionOptions::new("slow").rate("calm")).await;
    submit(&test, "slow", 1).await;
    test.settle().await;
    let late = test.finish(test.call::<(), _>("slow", &()).timeout(seconds(20))).await.unwrap_err();
    assert!(matches!(late, CallError::TimedOut { .. }), "{late:?}");
    assert_eq!((begun.times().len(), test.now().since(begun.test_began)), (1, seconds(20)));
    submit(&test, "slow", 1).await;
    test.advance(seconds(40)).await;
    assert_eq!(begun.times(), [0, 60_000], "the one that gave up took no turn");
}

async fn functions_that_name_one_scope_share_its_limit(test: TestTowpath) {
    put(&test, None, "r=gcra:1/1s").await;
    let begun = Begun::new(&test);
    let options = |name: &str| FunctionOptions::new(name).rate("calm").rate_scope("smtp");
    let _worker = test
        .worker()
        .function_with(options("mail"), begun.handler(&test))
        .function_with(options("news"), begun.handler(&test))
        .start()
        .await
        .unwrap();
    submit(&test, "mail", 2).await;
    submit(&test, "news", 2).await;
    test.advance(seconds(10)).await;
    assert_eq!(begun.times(), [0, 1_000, 2_000, 3_000]);
    let mut names = begun.names();
    names.sort();
    assert_eq!(names, ["mail", "mail", "news", "news"]);
}

async fn a_function_whose_policy_is_missing_waits_for_it(test: TestTowpath) {
    let begun = Begun::new(&test);
    let refused = test.worker().function_with(FunctionOptions::new("send").rate("calm"), begun.handler(&test)).start().await;
    let Err(WorkerError::Rate { function, error }) = refused else { panic!("a worker with a rate that cannot be used has started") };
    assert_eq!((function.name.as_str(), error.code()), ("send", "policy_not_found"));
    assert!(test.store().functions().await.unwrap().is_empty(), "nothing was registered");
    put(&test, Some("send"), "r=gcra:1/1s").await;
    let _worker = serve(&test, &begun, FunctionOptions::new("send").rate("calm")).await;
    remove(&test, "send").await;
    test.advance(seconds(2)).await; // a process sees it within a second
    submit(&test, "send", 1).await;
    test.advance(seconds(5)).await;
    assert_eq!(begun.times(), [0_u128; 0]);
    put(&test, Some("send"), "r=gcra:1/1s").await;
    test.advance(seconds(1)).await;
    assert_eq!(begun.times().len(), 1);
}

async fn a_worker_that_leaves_takes_no_turn_with_it(test: TestTowpath) {
    put(&test, None, "r=gcra:1/10s").await;
    let begun = Begun::new(&test);
    let first = serve(&test, &begun, FunctionOptions::new("send").rate("calm")).await;
    submit(&test, "send", 3).await;
    test.advance(seconds(1)).await;
    let report = test.finish(first.drain()).await;
    assert_eq!((report.handed_back, begun.times().len()), (0, 1), "what waits for its turn is in the queue");
    let _second = serve(&test, &begun, FunctionOptions::new("send").rate("calm")).await;
    test.advance(seconds(30)).await;
    assert_eq!(begun.times(), [0, 10_000, 20_000]);
}

async fn workers_of_several_processes_share_a_rate(test: TestTowpath) {
    put(&test, None, "r=gcra:10/1s").await;
    let begun = Begun::new(&test);
    let other = towpath::Towpath::builder().clock(Arc::clone(test.clock())).with_store(Arc::clone(test.store()));
    let _here = serve(&test, &begun, FunctionOptions::new("send").rate("calm")).await;
    let there = other.worker().function_with(FunctionOptions::new("send").rate("calm"), begun.handler(&test));
    let _there = there.start().await.unwrap();
    submit(&test, "send", 40).await;
    test.advance(seconds(4)).await;
    let times = begun.times();
    assert_eq!(times.len(), 40);
    let too_close: Vec<_> = times.windows(2).filter(|pair| pair[1] - pair[0] < 100).collect();
    assert!(too_close.is_empty(), "{times:?}");
}

async fn a_call_that_is_tried_again_takes_another_turn(test: TestTowpath) {
    put(&test, None, "r=sliding_log:1/60s").await;
    let fails_once =
        |(): (), ctx: CallContext| async move { if ctx.attempt() == 1 { Err(HandlerError::retryable("busy", "later")) } else { Ok(()) } };
    let _worker = test.worker().function_with(FunctionOptions::new("send").rate("calm"), fails_once).start().await.unwrap();
    let began = test.now();
    let handle = submit(&test, "send", 1).await.remove(0);
    test.finish(handle.result()).await.unwrap();
    assert_eq!(test.now().since(began), seconds(60), "two seconds to the next attempt, and then its turn");
}

async fn a_name_that_cannot_be_a_policy_or_a_scope_is_refused_at_the_start(test: TestTowpath) {
    let begun = Begun::new(&test);
    for options in [
        FunctionOptions::new("send").rate(""),
        FunctionOptions::new("send").rate("a:b"),
        FunctionOptions::new("send").rate("calm").rate_scope("x".repeat(257)),
        FunctionOptions::new("n".repeat(200)).scope("s".repeat(100)).rate("calm"),
    ] {
        let refused = test.worker().function_with(options.clone(), begun.handler(&test)).start().await;
        assert!(matches!(refused, Err(towpath::WorkerError::InvalidName(_))), "{options:?}");
    }
}

async fn turns_for_work_of_any_cost_can_be_drawn_and_given_back(test: TestTowpath) {
    put(&test, None, "r=gcra:100/1s,burst=10").await;
    let turns = test.turns("smtp", "calm").unwrap();
    assert_eq!(turns.room().await, Room::Now(10));
    let Turn::Yours(now) = turns.take(10, Duration::ZERO).await else { panic!("there is room") };
    assert!(now.wait.is_zero());
    let Turn::Yours(soon) = turns.take(5, millis(50)).await else { panic!("a turn is near") };
    assert_eq!(soon.wait, millis(50));
    assert!(matches!(turns.take(11, seconds(1)).await, Turn::Never));
    let Turn::NotBefore(at) = turns.take(10, millis(50)).await else { panic!("too far away") };
    assert_eq!(at.since(test.now()), millis(100));
    soon.refund().await.unwrap();
    test.advance(millis(100)).await;
    assert!(matches!(turns.take(10, Duration::ZERO).await, Turn::Yours(_)));
    assert_eq!(test.turns("", "calm").unwrap_err().code(), "invalid_name");
}

fn faulty() -> (Arc<FaultyStore>, TestTowpath) {
    let clock = VirtualClock::new();
    let model = Arc::new(ModelStore::new(Arc::new(clock.clone())));
    let store = FaultyStore::new(model, Which::None, When::Before);
    (Arc::clone(&store), TestTowpath::with_store(store, clock))
}

#[tokio::test]
async fn while_limits_are_out_of_reach_each_policy_says_what_happens() {
    for (rule, runs) in [("r=gcra:1/1s", 0), ("r=gcra:1/1s,on_error=open", 3), ("r=sliding_log:2/60s,on_error=local", 2)] {
        let (store, test) = faulty();
        put(&test, None, rule).await;
        let begun = Begun::new(&test);
        let _worker = serve(&test, &begun, FunctionOptions::new("send").rate("calm")).await;
        store.set_trouble_of(Some("take"));
        let handles = submit(&test, "send", 3).await;
        test.advance(seconds(5)).await;
        assert_eq!(begun.times().len(), runs, "{rule}");
        for handle in &handles[runs..] {
            assert_eq!(state(&test, handle.call_id()).await, CallState::Queued, "{rule}: it waits, unharmed");
        }
        store.set_trouble_of(None);
        test.advance(seconds(60)).await;
        assert_eq!(begun.times().len(), 3, "{rule}");
    }
}

#[tokio::test]
async fn nobody_asks_again_before_a_turn_can_come() {
    let (store, test) = faulty();
    put(&test, None, "r=sliding_log:1/60s").await;
    let begun = Begun::new(&test);
    let _worker = serve(&test, &begun, FunctionOptions::new("send").rate("calm")).await;
    submit(&test, "send", 20).await;
    test.advance(seconds(1)).await;
    let (takes, claims, releases) = (store.count("take"), store.count("claim"), store.count("release"));
    assert!(takes <= 4 && claims <= 3 && releases <= 1, "{takes} {claims} {releases}");
    test.advance(seconds(58)).await;
    assert!(store.count("take") - takes <= 6, "a look every ten seconds");
    assert_eq!((store.count("claim"), store.count("release")), (claims, releases), "and nothing is taken that would go back");
    test.advance(seconds(1)).await;
    assert_eq!(begun.times(), [0, 60_000]);
}
