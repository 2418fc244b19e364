//! Batches that are calls of a function, while the server is killed: also between the call and the end of its batch.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use towpath::Towpath;
use towpath_core::names::CallId;

use super::Producer;
use crate::support::{Server, wait_for};

const THREADS: u64 = 8;
const KEYS_EACH: u64 = 4;
const MESSAGES_EACH: u64 = 20;
const KILLS: u64 = 10;

/// One server on a store: `again` makes another in its place when it was killed, `store` says where the store is.
pub(crate) fn every_message_is_in_one_call(mut server: Server, again: impl Fn(TempDir, &str) -> Server, store: impl Fn(&Path) -> String) {
    let (producer, runtime) = (Producer::new(), Runtime::new().unwrap());
    // Nobody serves it: every call that was ever made is there to be counted.
    producer.define(&server.url, "ship");
    let settings = json!({
        "key": ["key"], "debounce_seconds": 0.01, "max_messages": 2, "max_attempts": 50, "lease_seconds": 1, "target": { "function": "ship" },
    });
    producer.keep(&server.url, "orders", &settings);
    let urls = [server.url.clone()];
    // A batch may be in flight at several kills.
    let mut called_at_a_kill = BTreeSet::new();
    server = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (producer, urls) = (&producer, &urls);
            scope.spawn(move || {
                for number in 0..KEYS_EACH * MESSAGES_EACH {
                    let (key, number) = (thread * KEYS_EACH + number % KEYS_EACH, number / KEYS_EACH);
                    producer.push(urls, &json!({ "key": key, "n": number, "message_id": format!("{key}-{number}") }));
                }
            });
        }
        for kill in 0..KILLS {
            std::thread::park_timeout(Duration::from_millis(40 + 29 * kill)); // at any moment
            let (folder, address) = server.crash();
            called_at_a_kill.extend(runtime.block_on(called_and_in_flight(&store(folder.path()))));
            server = again(folder, &address);
        }
        server
    });
    wait_for("all batches to be settled", || {
        let body = producer.get(&server.url, "/v1/batches/orders")?;
        (body["open_keys"] == 0 && body["in_flight"] == 0).then_some(())
    });
    judge(&all_calls(&producer, &server.url));
    println!("{KILLS} kills came between the call and the end of {} batches", called_at_a_kill.len());
    assert!(!called_at_a_kill.is_empty(), "no kill came between a call and the end of its batch: this run proved nothing");
}

/// The calls that had been made of batches that were in flight when the server died.
async fn called_and_in_flight(store: &str) -> Vec<CallId> {
    let towpath = Towpath::open(store).await.unwrap();
    let flights = towpath.batch("orders").in_flight(None, 200).await.unwrap().items;
    let mut called = Vec::new();
    for flight in flights {
        let call_id = CallId::new(format!("batch-{}", flight.batch_id)).unwrap();
        if towpath.store().call(&call_id).await.unwrap().is_some() {
            called.push(call_id);
        }
    }
    towpath.close().await;
    called
}

/// What was asked of every call, the oldest first.
fn all_calls(producer: &Producer, url: &str) -> Vec<Value> {
    let (mut asked, mut after) = (Vec::new(), String::new());
    loop {
        let page = producer.get(url, &format!("/v1/calls?function=ship&limit=200{after}")).unwrap();
        for call in page["calls"].as_array().unwrap() {
            let whole = producer.get(url, &format!("/v1/calls/{}", call["call_id"].as_str().unwrap())).unwrap();
            asked.push(whole["params"].clone());
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    asked.reverse();
    asked
}

fn judge(calls: &[Value]) {
    let mut numbers: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for message in calls.iter().flat_map(|params| params["messages"].as_array().unwrap()) {
        numbers.entry(message["key"].as_u64().unwrap()).or_default().push(message["n"].as_u64().unwrap());
    }
    assert_eq!(numbers.len() as u64, THREADS * KEYS_EACH);
    for (key, numbers) in numbers {
        assert_eq!(numbers, (0..MESSAGES_EACH).collect::<Vec<_>>(), "of key {key}: each message once, in order");
    }
}
