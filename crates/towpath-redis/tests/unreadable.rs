//! Calls and claims that a neighbour has made unreadable: they are named, they can be removed as a whole, and they harm no other call.

mod planted;

use std::sync::Arc;
use std::time::Duration;

use towpath_conformance::words::{SubmitWords, call_id, definition, failed, function, new_call, seconds, worker_id};
use towpath_core::call::CallState;
use towpath_core::clock::VirtualClock;
use towpath_core::inspect::{CallFilter, PageRequest};
use towpath_core::store::{
    CallStore, ClaimCalls, ClaimFunction, CompleteCalls, Delivery, InspectStore, RegistryStore, Retention, StoreError, TimerStore,
};
use towpath_core::worker::{Offer, RegisterWorker};
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::{RedisServer, until};

const SOON: Duration = Duration::from_secs(30);

fn key(set: &str) -> String {
    format!("towpath:{set}:{{function:stream:__global__:add}}")
}

async fn open(server: &RedisServer, clock: &VirtualClock) -> RedisStore {
    let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    RedisStore::open_by_clock(options, Arc::new(clock.clone())).await.expect("the server is up")
}

async fn start() -> (RedisServer, RedisStore) {
    let (server, clock) = (RedisServer::start(), VirtualClock::new());
    let store = open(&server, &clock).await;
    let offers = vec![Offer { definition: definition("add"), concurrency: None }];
    let register = RegisterWorker { worker_id: worker_id("w1"), kind: "rust".to_owned(), offers };
    store.register(register).await.expect("the server is up");
    (server, store)
}

fn want(max: u32, wait: Duration) -> ClaimCalls {
    let functions = [ClaimFunction { function: function("add"), max }].into();
    ClaimCalls { worker: worker_id("w1"), functions, max, lease: seconds(30), wait, takes_any: true }
}

async fn listed(store: &RedisStore) -> Vec<String> {
    let page = store.calls(&CallFilter::default(), PageRequest::first(100)).await.expect("the server is up");
    page.items.into_iter().map(|view| view.call.call_id.to_string()).collect()
}

/// Where the call is named.
fn traces(server: &RedisServer, id: &str) -> Vec<String> {
    let mut found = Vec::new();
    for field in [id.to_owned(), format!("\u{1}r{id}"), format!("\u{1}p{id}")] {
        if server.cli(&["HEXISTS", &key("calls"), &field]).trim() == "1" {
            found.push(format!("{field} in calls"));
        }
    }
    let sets = ["queue", "running", "delayed", "exported", "dead", "deadlines"];
    found.extend(sets.iter().filter(|set| !server.cli(&["ZSCORE", &key(set), id]).trim().is_empty()).map(|set| (*set).to_owned()));
    found.extend((server.cli(&["SISMEMBER", &key("parked"), id]).trim() == "1").then(|| "parked".to_owned()));
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_record_cannot_be_read_is_named_and_removed_as_a_whole() {
    let (server, store) = start().await;
    store.submit(new_call("good", "add").timeout(seconds(600))).await.expect("the server is up");
    for (number, garbage) in ["junk", "", "3Q\t1", "9R of a later version", "3R\t99999999999999999999999\t1"].into_iter().enumerate() {
        let id = format!("bad-{number}");
        store.submit(new_call(&id, "add").timeout(seconds(600))).await.expect("the server is up");
        for field in [id.clone(), format!("\u{1}r{id}"), format!("\u{1}p{id}")] {
            server.cli(&["HSET", &key("calls"), &field, garbage]);
        }
        for set in ["queue", "running", "delayed", "exported", "dead", "deadlines"] {
            server.cli(&["ZADD", &key(set), "99999999999999", &id]);
        }
        server.cli(&["SADD", &key("parked"), &id]);
        let said = store.call(&call_id(&id)).await.expect_err("it is there, and cannot be read").to_string();
        assert!(said.contains(&id) && said.contains(&format!("towpath dlq drop {id}")), "{said}");
        assert_eq!(listed(&store).await, ["good"], "others are listed");
        // An empty record is not met by lists: there is nothing to read.
        if !garbage.is_empty() {
            let problems = store.probe().await.expect("the server is up").problems.join("\n");
            assert!(problems.contains(&id) && problems.contains(&key("calls")), "{problems}");
        }
        assert_eq!(store.drop_dead(&call_id(&id)).await, Ok(true));
        assert_eq!(traces(&server, &id), Vec::<String>::new(), "{garbage:?}");
        assert_eq!(store.call(&call_id(&id)).await, Ok(None));
        assert_eq!(store.drop_dead(&call_id(&id)).await, Ok(false), "it is gone");
    }
    assert_eq!(store.drop_dead(&call_id("good")).await, Ok(false), "it is no dead letter, and can be read");
    assert_eq!(store.call(&call_id("good")).await.expect("it can be read").expect("it is there").call.state, CallState::Queued);
    assert_eq!(store.claim(want(10, Duration::ZERO)).await.expect("the server is up").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_claim_with_an_impossible_lease_makes_no_call_unreadable() {
    let (server, store) = start().await;
    let claiming = store.clone();
    let waits: tokio::task::JoinHandle<Result<Vec<Delivery>, StoreError>> =
        tokio::spawn(async move { claiming.claim(want(1, seconds(3_600))).await });
    until("the claim to be written down", SOON, || !server.cli(&["GET", "towpath:claim:w1"]).trim().is_empty());
    let written = server.cli(&["GET", "towpath:claim:w1"]);
    let mut words: Vec<&str> = written.trim_end_matches('\n').split('\t').collect();
    words[2] = "99999999999999999999";
    server.cli(&["SET", "towpath:claim:w1", &words.join("\t")]);
    store.submit(new_call("c-1", "add").timeout(seconds(600))).await.expect("the server is up");
    let view = store.call(&call_id("c-1")).await.expect("it can be read").expect("it is there");
    assert!([CallState::Queued, CallState::Running].contains(&view.call.state));
    let delivered = tokio::time::timeout(SOON, waits).await.expect("the claim is served").expect("it does not panic");
    assert_eq!(delivered.expect("the server is up").len(), 1, "a notification has served it");
}

/// A store on which calls of some functions have become dead letters, in this order, a second apart.
async fn with_dead_letters(letters: &[(&str, &str)]) -> (RedisServer, RedisStore, VirtualClock) {
    let (server, clock) = (RedisServer::start(), VirtualClock::new());
    let store = open(&server, &clock).await;
    for (id, name) in letters {
        let mut once = definition(name);
        once.retry.max_attempts = 1;
        store.define(once).await.expect("the server is up");
        store.submit(new_call(id, name).timeout(seconds(600))).await.expect("the server is up");
        let functions = [ClaimFunction { function: function(name), max: 1 }].into();
        let one = store.claim(ClaimCalls { functions, ..want(1, Duration::ZERO) }).await.expect("the server is up").remove(0);
        let fails = CompleteCalls::one(worker_id("w1"), one.id, failed("busy"));
        store.complete(fails).await.expect("the server is up");
        clock.advance(seconds(1));
    }
    (server, store, clock)
}

/// The dead letters that are dropped because they are older than 100 seconds.
async fn dropped(store: &RedisStore) -> Vec<String> {
    let keep = Retention { dead_letters: Some(seconds(100)), audits: Some(seconds(100)), ..Retention::FOREVER };
    let forgotten = store.forget_old(&keep, 10).await.expect("one thing in trouble stops no retention");
    forgotten.dead_letters.iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_in_trouble_keeps_no_dead_letter_of_another() {
    for odd in ["calls", "buckets", "dead"] {
        let (server, store, clock) = with_dead_letters(&[("stays", "add"), ("goes", "sub")]).await;
        server.cli(&["DEL", &key(odd)]);
        server.cli(&["SET", &key(odd), "junk"]);
        server.cli(&["SET", "towpath:lock:audit", "junk"]);
        clock.advance(seconds(100));
        assert_eq!(dropped(&store).await, ["goes"], "beside {odd}");
        let problems = store.probe().await.expect("the server is up").problems.join("\n");
        assert!(problems.contains(&key(odd)), "{problems}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_cannot_be_read_or_names_nothing_keeps_no_dead_letter() {
    let (server, store, clock) = with_dead_letters(&[("old", "add"), ("younger", "add")]).await;
    server.cli(&["HSET", &key("calls"), "odd", "junk"]);
    server.cli(&["ZADD", &key("dead"), "1", "odd", "2", "orphan", "3", "no name \n"]);
    clock.advance(seconds(98));
    assert_eq!(dropped(&store).await, ["old"], "the other is a second younger");
    assert_eq!(server.cli(&["ZRANGE", &key("dead"), "0", "-1"]).trim(), "odd\nyounger", "lines that name nothing are gone");
    clock.advance(seconds(1));
    assert_eq!(dropped(&store).await, ["younger"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_score_that_is_no_sequence_spoils_no_later_one() {
    let (server, store) = start().await;
    store.submit(new_call("before", "add").timeout(seconds(600))).await.expect("the server is up");
    for score in ["+inf", "9e15", "1e300"] {
        server.cli(&["ZADD", &key("queue"), score, "junk"]);
        let later = open(&server, &VirtualClock::new()).await;
        later.submit(new_call(&format!("after-{score}"), "add").timeout(seconds(600))).await.expect("the server is up");
        let sequence = server.cli(&["ZSCORE", &key("queue"), &format!("after-{score}")]).trim().parse::<f64>().expect("a score");
        let before = server.cli(&["ZSCORE", &key("queue"), "before"]).trim().parse::<f64>().expect("a score");
        assert!(before < sequence && sequence < before + 1e9, "{before} {sequence}");
    }
}

planted::planted! {
    a_lease_of_any_length_is_noticed:
        "calls/submit.lua", "#lease <= LEASE_DIGITS and" => "true and",
        "a_waiting_claim_with_an_impossible_lease_makes_no_call_unreadable";
    a_removal_that_leaves_lines_is_noticed:
        "calls/remove.lua", "for i = 2, 7 do" => "for i = 2, 6 do",
        "a_call_whose_record_cannot_be_read_is_named_and_removed_as_a_whole";
}
