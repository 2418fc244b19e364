//! What was seen to break at the edges of the call path, one test each: waiters that were not told, ids that led nowhere, names and workers that
//! cost too much.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use towpath_conformance::words::{SubmitWords, call_id, definition, function, new_call, ok, seconds, worker_id};
use towpath_core::call::{Answer, CallState, Outcome};
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::store::{
    CallNews, CallStore, CallWatch, ClaimCalls, ClaimFunction, CompleteCalls, Completed, Delivery, InspectStore, RegistryStore, Submitted,
};
use towpath_core::worker::{Offer, RegisterWorker};
use towpath_redis::{RedisOptions, RedisStore, Timing};
use towpath_redis_testing::{RedisServer, until};

const TAG: &str = "{function:stream:__global__:add}";
const SOON: Duration = Duration::from_secs(30);

/// A server, and a process that lives by a virtual clock.
struct Rig {
    server: RedisServer,
    clock: VirtualClock,
    store: RedisStore,
}

async fn open(server: &RedisServer, clock: &VirtualClock) -> RedisStore {
    let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    RedisStore::open_by_clock(options, Arc::new(clock.clone())).await.expect("the server is up")
}

impl Rig {
    async fn start() -> Self {
        let (server, clock) = (RedisServer::start(), VirtualClock::new());
        let store = open(&server, &clock).await;
        Self { server, clock, store }
    }

    async fn another_process(&self) -> RedisStore {
        open(&self.server, &self.clock).await
    }

    async fn define(&self, name: &str) {
        self.store.define(definition(name)).await.expect("the server is up");
    }

    async fn submit(&self, id: &str) {
        let submitted = self.store.submit(new_call(id, "add").timeout(seconds(60))).await;
        assert!(matches!(submitted, Ok(Submitted::Accepted { .. })), "{submitted:?}");
    }

    async fn claim(&self, worker: &str, max: u32) -> Vec<Delivery> {
        claim(&self.store, worker, max, Duration::ZERO).await
    }

    async fn outcome(&self, id: &str) -> Option<Outcome> {
        self.store.call(&call_id(id)).await.expect("the server is up").expect("it is kept").call.outcome
    }

    fn count(&self, words: &[&str]) -> u64 {
        self.server.cli(words).trim().parse().expect("a number")
    }
}

/// Claims calls of `add`.
async fn claim(store: &RedisStore, worker: &str, max: u32, wait: Duration) -> Vec<Delivery> {
    let functions = [ClaimFunction { function: function("add"), max }].into();
    let want = ClaimCalls { worker: worker_id(worker), functions, max, lease: seconds(30), wait, takes_any: false };
    store.claim(want).await.expect("the server is up")
}

/// Claims one call of `add` and answers it, as another process does.
async fn run_one(there: &RedisStore, answer: Answer) {
    let held = claim(there, "w1", 1, Duration::ZERO).await.remove(0);
    let recorded = there.complete(CompleteCalls::one(worker_id("w1"), held.id, answer)).await.expect("the server is up");
    assert!(matches!(recorded[..], [Completed::Recorded { ended: Some(_) }]), "{recorded:?}");
}

/// What a waiter hears next, other than that the call has changed.
async fn heard(watch: &mut Box<dyn CallWatch>) -> CallNews {
    let heard = async {
        loop {
            match watch.next().await {
                CallNews::Changed => {}
                news => return news,
            }
        }
    };
    tokio::time::timeout(SOON, heard).await.expect("the waiter is told that the call has ended")
}

/// D1: such an outcome is not sent; the waiter is told to read it.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_call_with_a_large_outcome_is_told_to_another_process() {
    let rig = Rig::start().await;
    let there = rig.another_process().await;
    rig.define("add").await;
    let mut watch = rig.store.watch(&call_id("c-1"));
    rig.submit("c-1").await;
    run_one(&there, ok(&format!("\"{}\"", "x".repeat(200_000)))).await;
    assert_eq!(heard(&mut watch).await, CallNews::Doubtful, "it looks at the call");
    assert!(matches!(rig.outcome("c-1").await, Some(Outcome::Ok(data)) if data.len() > 200_000));
}

/// D2: a caller that sends an id again, to another server, waits there.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_submits_a_call_again_is_told_its_end() {
    let rig = Rig::start().await;
    let (there, worker) = (rig.another_process().await, rig.another_process().await);
    rig.define("add").await;
    rig.submit("c-1").await;
    let mut watch = there.watch(&call_id("c-1"));
    let again = there.submit(new_call("c-1", "add").timeout(seconds(60))).await;
    assert!(matches!(again, Ok(Submitted::Existing { .. })), "{again:?}");
    // The waiter attaches itself to the record when it begins to listen.
    let listening = tokio::spawn(async move { heard(&mut watch).await });
    let replies = || rig.server.cli(&["HGET", &format!("towpath:calls:{TAG}"), "c-1"]).lines().nth(3).unwrap_or_default().to_owned();
    until("the record names the second process", SOON, || !replies().trim().is_empty());
    run_one(&worker, ok("1")).await;
    assert!(matches!(listening.await.expect("it heard it"), CallNews::Ended(_)));
}

/// D2: the end came before the process could attach itself, and its clock runs ahead.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_before_a_process_is_attached_is_told_whatever_its_clock_says() {
    let rig = Rig::start().await;
    rig.define("add").await;
    rig.submit("c-1").await;
    let ahead = VirtualClock::new();
    ahead.advance(rig.clock.now().since(ahead.now()) + seconds(1));
    let there = open(&rig.server, &ahead).await;
    let mut watch = there.watch(&call_id("c-1"));
    let view = there.call(&call_id("c-1")).await.expect("the server is up").expect("it is kept");
    assert_eq!(view.call.state, CallState::Queued);
    run_one(&rig.store, ok("1")).await;
    assert_eq!(heard(&mut watch).await, CallNews::Doubtful, "it looks at the call");
}

/// D3: an id is used again for a call that lives longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_lasts_as_long_as_the_latest_call_with_its_id() {
    const DAY: Duration = Duration::from_secs(24 * 3_600);
    let rig = Rig::start().await;
    rig.define("add").await;
    let submit = |timeout| rig.store.submit(new_call("job", "add").timeout(timeout).retain(seconds(1)));
    assert!(matches!(submit(seconds(1)).await, Ok(Submitted::Accepted { .. })));
    run_one(&rig.store, ok("1")).await;
    rig.clock.advance(seconds(10));
    let left = || rig.server.cli(&["PTTL", "towpath:id:{job}"]).trim().parse::<i64>().expect("a number");
    assert!((1..=3_602_000).contains(&left()), "{} ms", left());
    assert!(matches!(submit(DAY).await, Ok(Submitted::Accepted { .. })));
    assert!(left() > 24 * 3_600_000, "{} ms", left());
    assert!(matches!(submit(seconds(1)).await, Ok(Submitted::Existing { .. })));
    assert!(left() > 24 * 3_600_000, "it is not shortened: {} ms", left());
    rig.server.cli(&["PERSIST", "towpath:id:{job}"]);
    assert!(matches!(submit(DAY).await, Ok(Submitted::Existing { .. })));
    assert_eq!(left(), -1, "the reservation of a dead letter has no end");
}

/// D3: of two functions one gets the id.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_two_functions_submit_at_once_is_of_one_of_them() {
    let rig = Rig::start().await;
    let there = rig.another_process().await;
    for name in ["one", "two"] {
        rig.define(name).await;
    }
    for number in 0..50 {
        let id = format!("c-{number}");
        let call = |name: &str| new_call(&id, name).timeout(seconds(60));
        let (one, two) = tokio::join!(rig.store.submit(call("one")), there.submit(call("two")));
        let (one, two) = (one.expect("the server is up"), two.expect("the server is up"));
        let found = rig.store.call(&call_id(&id)).await.expect("the server is up").expect("it is found").request.function;
        match (one, two) {
            (Submitted::Accepted { .. }, Submitted::Conflict { .. }) => assert_eq!(found, function("one"), "{id}"),
            (Submitted::Conflict { .. }, Submitted::Accepted { .. }) => assert_eq!(found, function("two"), "{id}"),
            both => panic!("{id}: {both:?}"),
        }
    }
}

/// D3: a refused call leaves its id free for another function at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_call_leaves_no_reservation() {
    let rig = Rig::start().await;
    rig.define("add").await;
    let refused = rig.store.submit(new_call("job", "ad").timeout(seconds(60))).await;
    assert_eq!(refused, Ok(Submitted::UnknownFunction));
    assert_eq!(rig.count(&["EXISTS", "towpath:id:{job}"]), 0);
    rig.submit("job").await;
}

/// D5: repair, timers and the tick look at functions that exist, not at every name that was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_functions_that_do_not_exist_cost_nothing_lasting() {
    let server = RedisServer::start();
    let mut options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    options.timing = Timing { repair_every: Duration::from_millis(100), ..Timing::default() };
    let store = RedisStore::open(options, Arc::new(towpath::SystemClock::new())).await.expect("the server is up");
    store.define(definition("add")).await.expect("the server is up");
    for number in 0..300 {
        let name = format!("unknown-{number}");
        assert_eq!(store.find(&function(&name), store.clock().now()).await.expect("the server is up"), None);
        let refused = store.submit(new_call(&format!("c-{number}"), &name).timeout(seconds(60))).await;
        assert_eq!(refused, Ok(Submitted::UnknownFunction));
    }
    server.cli(&["CONFIG", "RESETSTAT"]);
    let looks = || {
        let stats = server.cli(&["INFO", "commandstats"]);
        let of_hlen = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hlen:calls=")).map(str::to_owned);
        of_hlen.and_then(|line| line.split(',').next().and_then(|calls| calls.parse::<u64>().ok())).unwrap_or(0)
    };
    until("repair has looked three times", SOON, || looks() >= 3);
    assert!(looks() < 50, "{} looks for one function", looks());
    store.submit(new_call("live", "add").timeout(seconds(60))).await.expect("the server is up");
    assert_eq!(claim(&store, "w1", 1, seconds(20)).await.len(), 1);
}

/// D6: the running calls of a function are counted for a worker some at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_registered_without_a_script_that_walks_all_running_calls() {
    const CALLS: u32 = 3_000;
    let rig = Rig::start().await;
    rig.define("add").await;
    let ids: Vec<String> = (0..CALLS).map(|number| format!("c-{number}")).collect();
    join_all(ids.iter().map(|id| rig.submit(id))).await;
    let mut held = 0;
    while held < CALLS as usize {
        // One call in ten is of the worker that registers.
        let worker = if held % 100 == 0 { "w1" } else { "w2" };
        held += rig.claim(worker, if worker == "w1" { 10 } else { 90 }).await.len();
    }
    rig.server.cli(&["CONFIG", "RESETSTAT"]);
    let offers = vec![Offer { definition: definition("add"), concurrency: Some(301) }];
    rig.store.register(RegisterWorker { worker_id: worker_id("w1"), kind: "http".to_owned(), offers }).await.expect("the server is up");
    assert_eq!(rig.count(&["SCARD", &format!("towpath:held:{TAG}:w1")]), 300);
    let stats = rig.server.cli(&["INFO", "commandstats"]);
    let of = |name: &str| {
        let calls = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls="))).unwrap_or("0");
        calls.split(',').next().and_then(|calls| calls.parse::<u64>().ok()).unwrap_or(0)
    };
    assert!(of("zscan") >= 10, "they are read page by page");
    assert!(of("evalsha") >= 10, "and no script reads them all: {} scripts", of("evalsha"));
    rig.submit("one").await;
    rig.submit("two").await;
    assert_eq!(rig.claim("w1", 5).await.len(), 1, "it has one slot left");
}
