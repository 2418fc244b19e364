//! Deliveries that are written down a moment later: what others see of them, and what becomes of them when their process dies.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use towpath::SystemClock;
use towpath_conformance::words::{SubmitWords, call_id, definition, function, new_call, ok, seconds, worker_id};
use towpath_core::call::{CallState, LostLease, Outcome};
use towpath_core::store::{
    CallNews, CallStore, Cancelled, ClaimCalls, ClaimFunction, CompleteCalls, Completed, Delivery, InspectStore, RegistryStore, Submitted,
};
use towpath_core::worker::{Offer, RegisterWorker};
use towpath_redis::{RedisOptions, RedisStore, Timing};
use towpath_redis_testing::{RedisServer, until};

const SOON: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_millis(1_500);

/// A process, as far as the store can tell.
async fn process(server: &RedisServer) -> RedisStore {
    process_at(&server.url()).await
}

async fn process_at(url: &str) -> RedisStore {
    let mut options = RedisOptions::parse(url).expect("a URL of a Redis");
    options.timing = Timing { sweep_every: Duration::from_millis(300), ..Timing::default() };
    RedisStore::open(options, Arc::new(SystemClock::new())).await.expect("the server is up")
}

fn claim(worker: &str) -> ClaimCalls {
    let functions = vec![ClaimFunction { function: function("add"), max: 10 }];
    ClaimCalls { worker: worker_id(worker), functions, max: 10, lease: LEASE, wait: SOON, in_process: true }
}

async fn serve(store: &RedisStore, worker: &str) {
    let offers = vec![Offer { definition: definition("add"), concurrency: None }];
    store.register(RegisterWorker { worker_id: worker_id(worker), kind: "rust".to_owned(), offers }).await.expect("the server is up");
}

/// A delivery that the server does not know of: the first one of a worker is always written down, to learn of limits.
async fn deliver_at_once(caller: &RedisStore, store: &RedisStore, worker: &str, id: &str) -> Delivery {
    for (id, number) in [(format!("{id}-first"), 1), (id.to_owned(), 2)] {
        assert!(matches!(
            caller.submit(new_call(&id, "add").timeout(seconds(60))).await.expect("the server is up"),
            Submitted::Accepted { .. }
        ));
        let delivery = store.claim(claim(worker)).await.expect("the server is up").pop().expect("a call waits");
        assert_eq!(delivery.id.call_id, call_id(&id));
        if number == 2 {
            return delivery;
        }
        store.complete(CompleteCalls::one(worker_id(worker), delivery.id, ok("1"))).await.expect("the server is up");
    }
    unreachable!("the second is returned")
}

async fn state_seen_by(store: &RedisStore, delivery: &Delivery) -> CallState {
    store.call(&delivery.id.call_id).await.expect("the server is up").expect("it is kept").call.state
}

/// Waits until a store sees the call in this state.
fn until_it_is(store: &RedisStore, delivery: &Delivery, state: CallState) {
    let seen = || tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(state_seen_by(store, delivery)));
    until(state.as_str(), SOON, || seen() == state);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_given_together_reach_each_who_waits_in_another_process() {
    let server = RedisServer::start();
    let (caller, worker) = (process(&server).await, process(&server).await);
    serve(&worker, "w-1").await;
    let ids: Vec<_> = (0..8).map(|number| call_id(&format!("c-{number}"))).collect();
    let mut listeners: Vec<_> = ids.iter().map(|id| caller.watch(id)).collect();
    for id in &ids {
        let submitted = caller.submit(new_call(id.as_str(), "add").timeout(seconds(60))).await.expect("the server is up");
        assert!(matches!(submitted, Submitted::Accepted { .. }), "{submitted:?}");
    }
    let mut held = Vec::new();
    while held.len() < ids.len() {
        held.extend(worker.claim(claim("w-1")).await.expect("the server is up"));
    }
    // One of them is longer than a word should be, and those behind it begin the next one.
    let answer = |id: &str| if id == "c-3" { format!("\"{id}{}\"", "x".repeat(100_000)) } else { format!("\"{id}\"") };
    let answers = held.into_iter().map(|delivery| (delivery.id.clone(), ok(&answer(delivery.id.call_id.as_str())))).collect();
    worker.complete(CompleteCalls { worker: worker_id("w-1"), answers }).await.expect("the server is up");
    for (id, listener) in ids.iter().zip(&mut listeners) {
        let heard = tokio::time::timeout(SOON, listener.next()).await.unwrap_or_else(|_| panic!("{id} hears nothing"));
        let CallNews::Ended(outcome) = heard else { panic!("{id} hears {heard:?}") };
        let Outcome::Ok(data) = &*outcome else { panic!("{id}: {outcome:?}") };
        assert_eq!(data.as_bytes(), answer(id.as_str()).as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_at_once_is_all_that_is_written() {
    let server = RedisServer::start();
    let (caller, worker) = (process(&server).await, process(&server).await);
    serve(&worker, "w-1").await;
    let delivery = deliver_at_once(&caller, &worker, "w-1", "c-1").await;
    assert_eq!(state_seen_by(&caller, &delivery).await, CallState::Queued, "nobody has written down who has it");
    let reply = worker.complete(CompleteCalls::one(worker_id("w-1"), delivery.id.clone(), ok("42"))).await.expect("the server is up");
    assert!(matches!(reply[..], [Completed::Recorded { ended: Some(_) }]), "{reply:?}");
    let call = caller.call(&delivery.id.call_id).await.expect("the server is up").unwrap().call;
    assert_eq!((call.state, call.delivery, call.holder), (CallState::Completed, 1, Some(worker_id("w-1"))));
    let counts = caller.functions().await.expect("the server is up")[0].counts;
    assert_eq!((counts.queued, counts.running), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_for_a_while_is_seen_by_everybody() {
    let server = RedisServer::start();
    let (caller, worker) = (process(&server).await, process(&server).await);
    serve(&worker, "w-1").await;
    let delivery = deliver_at_once(&caller, &worker, "w-1", "c-1").await;
    assert_eq!(state_seen_by(&worker, &delivery).await, CallState::Running, "its own process knows at once");
    let other = deliver_at_once(&caller, &worker, "w-1", "c-2").await;
    until_it_is(&caller, &other, CallState::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_held_when_it_died_is_delivered_again_after_its_lease() {
    let server = RedisServer::start();
    let (caller, worker) = (process(&server).await, process(&server).await);
    serve(&worker, "w-1").await;
    let delivery = deliver_at_once(&caller, &worker, "w-1", "c-1").await;
    drop(worker); // without a word, as when it is killed
    let heir = process(&server).await;
    serve(&heir, "w-2").await;
    let again = heir.claim(claim("w-2")).await.expect("the server is up").pop().expect("it comes by itself");
    assert_eq!((again.id.call_id.clone(), again.id.number), (delivery.id.call_id.clone(), 2));
    let call = heir.call(&again.id.call_id).await.expect("the server is up").unwrap().call;
    assert_eq!((call.crashes, call.holder), (1, Some(worker_id("w-2"))), "it counts as a delivery that a worker did not survive");
    let late = caller.complete(CompleteCalls::one(worker_id("w-1"), delivery.id, ok("1"))).await.expect("the server is up");
    assert_eq!(late, [Completed::Lost(LostLease::Replaced)]);
    let reply = heir.complete(CompleteCalls::one(worker_id("w-2"), again.id, ok("2"))).await.expect("the server is up");
    assert!(matches!(reply[..], [Completed::Recorded { .. }]), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_others_begin_to_watch_is_still_answered_by_its_worker() {
    let server = RedisServer::start();
    let (caller, worker) = (process(&server).await, process(&server).await);
    serve(&worker, "w-1").await;
    let delivery = deliver_at_once(&caller, &worker, "w-1", "c-1").await;
    // Whoever watches is written into the record, which the worker has not seen since.
    let mut watch = caller.watch(&delivery.id.call_id);
    let heard = tokio::spawn(async move { watch.next().await });
    until("the watcher is written down", SOON, || server.cli(&["HGET", "towpath:calls", "c-1"]).contains("function:response:inbox:"));
    let reply = worker.complete(CompleteCalls::one(worker_id("w-1"), delivery.id.clone(), ok("42"))).await.expect("the server is up");
    assert!(matches!(reply[..], [Completed::Recorded { .. }]), "{reply:?}");
    let heard = tokio::time::timeout(SOON, heard).await.expect("the end is heard").expect("the server is up");
    let CallNews::Ended(outcome) = heard else { panic!("the end is what is heard: {heard:?}") };
    assert!(matches!(*outcome, Outcome::Ok(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_from_elsewhere_ends_a_call_whose_delivery_nobody_knows_of() {
    let server = RedisServer::start();
    let (caller, worker) = (process(&server).await, process(&server).await);
    serve(&worker, "w-1").await;
    let delivery = deliver_at_once(&caller, &worker, "w-1", "c-1").await;
    assert_eq!(caller.cancel(&delivery.id.call_id).await.expect("the server is up"), Cancelled::Done);
    let reply = worker.complete(CompleteCalls::one(worker_id("w-1"), delivery.id.clone(), ok("42"))).await.expect("the server is up");
    assert!(matches!(reply[..], [Completed::Lost(_)]), "{reply:?}");
    assert_eq!(state_seen_by(&worker, &delivery).await, CallState::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_answered_together_leaves_the_stream_though_an_older_call_still_runs() {
    const CALLS: usize = 40;
    let server = RedisServer::start();
    let (caller, worker) = (process(&server).await, process(&server).await);
    serve(&worker, "w-1").await;
    let oldest = deliver_at_once(&caller, &worker, "w-1", "oldest").await;
    let mut answers = Vec::new();
    for number in 0..CALLS {
        caller.submit(new_call(&format!("c-{number}"), "add").timeout(seconds(60))).await.expect("the server is up");
    }
    while answers.len() < CALLS {
        let deliveries = worker.claim(claim("w-1")).await.expect("the server is up");
        answers.extend(deliveries.into_iter().map(|delivery| (delivery.id, ok("1"))));
    }
    worker.complete(CompleteCalls { worker: worker_id("w-1"), answers }).await.expect("the server is up");
    let left = server.cli(&["XRANGE", "function:stream:__global__:add", "-", "+"]);
    assert!(!left.contains("c-"), "a group that is made anew must not find what is over: {left}");
    let reply = worker.complete(CompleteCalls::one(worker_id("w-1"), oldest.id, ok("2"))).await.expect("the server is up");
    assert!(matches!(reply[..], [Completed::Recorded { .. }]), "{reply:?}");
}

/// So many answers go to the server in one script, and so many in a transaction.
const FEW_AND_MANY: [usize; 2] = [20, 100];

/// Calls that one worker has read, of which the server does not know that they run.
async fn deliver(count: usize, caller: &RedisStore, worker: &RedisStore) -> Vec<Delivery> {
    serve(worker, "w-1").await;
    let first = deliver_at_once(caller, worker, "w-1", "first").await;
    worker.complete(CompleteCalls::one(worker_id("w-1"), first.id, ok("1"))).await.expect("the server is up");
    let ids: Vec<String> = (0..count).map(|number| format!("c-{number}")).collect();
    let submitted = join_all(ids.iter().map(|id| caller.submit(new_call(id, "add").timeout(seconds(60))))).await;
    assert!(submitted.iter().all(|one| matches!(one, Ok(Submitted::Accepted { .. }))), "{submitted:?}");
    let mut held = Vec::new();
    while held.len() < count {
        let functions = vec![ClaimFunction { function: function("add"), max: 100 }];
        held.extend(worker.claim(ClaimCalls { functions, max: 100, ..claim("w-1") }).await.expect("the server is up"));
    }
    held
}

fn transactions(server: &RedisServer) -> usize {
    let info = server.cli(&["INFO", "commandstats"]);
    let calls = info.lines().find_map(|line| line.strip_prefix("cmdstat_exec:calls="));
    calls.and_then(|calls| calls.split(',').next()?.parse().ok()).unwrap_or(0)
}

async fn answer_all(worker: &RedisStore, held: &[Delivery]) -> Vec<Completed> {
    let answers = held.iter().map(|delivery| (delivery.id.clone(), ok("42"))).collect();
    worker.complete(CompleteCalls { worker: worker_id("w-1"), answers }).await.expect("the server is up")
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_count_though_somebody_else_has_acknowledged_an_entry_or_destroyed_the_group() {
    const STREAM: &str = "function:stream:__global__:add";
    let meddlings = ["one is acknowledged", "the group is destroyed"];
    for (meddling, count) in meddlings.into_iter().flat_map(|meddling| FEW_AND_MANY.map(|count| (meddling, count))) {
        let server = RedisServer::start();
        let (caller, worker) = (process(&server).await, process(&server).await);
        let held = deliver(count, &caller, &worker).await;
        if meddling == "one is acknowledged" {
            let pending = server.cli(&["XPENDING", STREAM, "group:add", "-", "+", "20"]);
            let entry = pending.lines().next().expect("all are pending").to_owned();
            assert_eq!(server.cli(&["XACK", STREAM, "group:add", &entry]).trim(), "1");
        } else {
            assert_eq!(server.cli(&["XGROUP", "DESTROY", STREAM, "group:add"]).trim(), "1");
        }
        let replies = answer_all(&worker, &held).await;
        assert!(replies.iter().all(|reply| matches!(reply, Completed::Recorded { .. })), "{meddling}: {replies:?}");
        for delivery in &held {
            assert_eq!(state_seen_by(&caller, delivery).await, CallState::Completed, "{meddling}");
        }
        assert_eq!(server.cli(&["HGET", "towpath:counts:{function:stream:__global__:add}", "queued"]).trim(), "0", "{meddling}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_answers_that_are_given_together_only_that_to_a_changed_call_is_refused() {
    for count in FEW_AND_MANY {
        let server = RedisServer::start();
        let (caller, worker) = (process(&server).await, process(&server).await);
        let held = deliver(count, &caller, &worker).await;
        assert_eq!(caller.cancel(&held[7].id.call_id).await.expect("the server is up"), Cancelled::Done);
        // One is gone as if it had been forgotten, and must not come back.
        assert_eq!(server.cli(&["HDEL", "towpath:calls", held[9].id.call_id.as_str()]).trim(), "1");
        let cancelled = server.cli(&["HGET", "towpath:calls", held[7].id.call_id.as_str()]);
        let replies = answer_all(&worker, &held).await;
        for (place, (reply, delivery)) in replies.iter().zip(&held).enumerate() {
            let state = match place {
                7 => Some(CallState::Cancelled),
                9 => None,
                _ => Some(CallState::Completed),
            };
            assert_eq!(matches!(reply, Completed::Lost(_)), state != Some(CallState::Completed), "{place} of {count}: {reply:?}");
            let seen = caller.call(&delivery.id.call_id).await.expect("the server is up");
            assert_eq!(seen.map(|seen| seen.call.state), state, "{place} of {count}");
        }
        assert_eq!(server.cli(&["HGET", "towpath:calls", held[7].id.call_id.as_str()]), cancelled, "it is as it was, to the letter");
        assert_eq!(server.cli(&["EXISTS", "towpath:kept"]).trim(), "0", "nothing is left of the attempt");
    }
}

/// Has many calls answered at once, all of which must end as they should. Says how many transactions that took.
async fn answer_many(server: &RedisServer, url: &str) -> usize {
    let (caller, worker) = (process_at(url).await, process_at(url).await);
    let held = deliver(100, &caller, &worker).await;
    server.cli(&["SCRIPT", "FLUSH"]); // a transaction does not rely on what the server remembers
    let replies = answer_all(&worker, &held).await;
    assert!(replies.iter().all(|reply| matches!(reply, Completed::Recorded { .. })), "{replies:?}");
    for delivery in &held {
        let view = caller.call(&delivery.id.call_id).await.expect("the server is up").expect("it is kept");
        assert_eq!((view.call.state, view.request.params), (CallState::Completed, delivery.request.params.clone()));
    }
    transactions(server)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_answers_go_in_a_transaction() {
    // What is held for a second is written down first, and then there is no need: a slow machine may take several attempts.
    for _attempt in 0..10 {
        let server = RedisServer::start();
        // One to learn that it is allowed, and one for the answers.
        if answer_many(&server, &server.url()).await == 2 {
            return;
        }
    }
    panic!("in ten attempts nothing went in a transaction");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_answers_go_without_a_transaction_where_it_is_not_allowed() {
    let server = RedisServer::build().user("app", "on >secret ~* &* +@all -multi").start();
    let url = server.url().replacen("://", "://app:secret@", 1);
    assert!(answer_many(&server, &url).await <= 1, "after one attempt it is known that it is not allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_is_kept_through_an_answer() {
    let server = RedisServer::start();
    let (caller, worker) = (process(&server).await, process(&server).await);
    serve(&worker, "w-1").await;
    let first = deliver_at_once(&caller, &worker, "w-1", "first").await;
    worker.complete(CompleteCalls::one(worker_id("w-1"), first.id, ok("1"))).await.expect("the server is up");
    let texts = [r#"{"a":"=1:\n"}"#.to_owned(), format!("\"{}\"", "x".repeat(5_000))];
    for (number, text) in texts.iter().enumerate() {
        let call = new_call(&format!("c-{number}"), "add").params(text).timeout(seconds(60));
        caller.submit(call).await.expect("the server is up");
        let delivery = worker.claim(claim("w-1")).await.expect("the server is up").pop().expect("a call waits");
        worker.complete(CompleteCalls::one(worker_id("w-1"), delivery.id.clone(), ok("42"))).await.expect("the server is up");
        let view = caller.call(&delivery.id.call_id).await.expect("the server is up").expect("it is kept");
        assert_eq!((view.call.state, view.request.params.as_bytes()), (CallState::Completed, text.as_bytes()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_new_group_has_given_to_another_worker_is_answered_by_that_one() {
    let server = RedisServer::start();
    let (caller, one, other) = (process(&server).await, process(&server).await, process(&server).await);
    serve(&one, "w-1").await;
    let delivery = deliver_at_once(&caller, &one, "w-1", "c-1").await;
    server.cli(&["XGROUP", "DESTROY", "function:stream:__global__:add", "group:add"]);
    serve(&other, "w-2").await;
    let beyond_the_process = ClaimCalls { in_process: false, ..claim("w-2") };
    let again = other.claim(beyond_the_process).await.expect("the server is up").pop().expect("the new group begins anew");
    assert_eq!(again.id.call_id, delivery.id.call_id);
    let late = one.complete(CompleteCalls::one(worker_id("w-1"), delivery.id.clone(), ok("1"))).await.expect("the server is up");
    assert!(matches!(late[..], [Completed::Lost(_)]), "{late:?}");
    let reply = other.complete(CompleteCalls::one(worker_id("w-2"), again.id, ok("2"))).await.expect("the server is up");
    assert!(matches!(reply[..], [Completed::Recorded { .. }]), "{reply:?}");
    let view = caller.call(&delivery.id.call_id).await.expect("the server is up").expect("it is kept");
    assert!(matches!(&view.call.outcome, Some(Outcome::Ok(data)) if data.as_bytes() == b"2"), "{:?}", view.call.outcome);
    let counts = server.cli(&["HMGET", "towpath:counts:{function:stream:__global__:add}", "queued", "running"]);
    assert_eq!(counts.split_whitespace().collect::<Vec<_>>(), ["0", "0"]);
    assert_eq!(server.cli(&["EXISTS", "towpath:touched:{function:stream:__global__:add}"]).trim(), "0", "nothing is left of it");
}
