//! Calls and claims that a neighbour has made unreadable: they are named, they can be removed as a whole, and they harm no other call.

mod planted;

use std::sync::Arc;
use std::time::Duration;

use towpath_conformance::words::{SubmitWords, call_id, definition, function, new_call, seconds, worker_id};
use towpath_core::call::CallState;
use towpath_core::clock::VirtualClock;
use towpath_core::inspect::{CallFilter, PageRequest};
use towpath_core::store::{CallStore, ClaimCalls, ClaimFunction, Delivery, InspectStore, RegistryStore, StoreError};
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

planted::planted! {
    a_lease_of_any_length_is_noticed:
        "calls/submit.lua", "#lease <= LEASE_DIGITS and" => "true and",
        "a_waiting_claim_with_an_impossible_lease_makes_no_call_unreadable";
    a_removal_that_leaves_lines_is_noticed:
        "calls/remove.lua", "for i = 2, 7 do" => "for i = 2, 6 do",
        "a_call_whose_record_cannot_be_read_is_named_and_removed_as_a_whole";
}
