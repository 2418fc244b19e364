//! Batches that are calls of a function, while the server is killed: also between the call and the end of its batch.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use towpath::Towpath;
use towpath::batches::FlightView;
use towpath_core::names::CallId;

use super::Caller;
use super::batches::Producer;
use crate::support::{Server, wait_for};

const THREADS: u64 = 8;
const KEYS_EACH: u64 = 4;
const MESSAGES_EACH: u64 = 20;
const KILLS: u64 = 10;

#[test]
fn every_message_is_in_one_call_though_the_server_is_killed_between_a_call_and_the_end_of_its_batch() {
    let (mut server, caller, producer, runtime) = (Server::start(), Caller::new(), Producer::new(), Runtime::new().unwrap());
    // Nobody serves it: every call that was ever made is there to be counted.
    caller.define(&server.url, "ship");
    let settings = json!({
        "key": ["key"], "debounce_seconds": 0.01, "max_messages": 2, "max_attempts": 50, "lease_seconds": 1, "target": { "function": "ship" },
    });
    producer.keep(&server.url, "orders", &settings);
    let urls = [server.url.clone()];
    let (mut called_at_a_kill, mut uncalled_at_a_kill) = (0, 0);
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
            for is_called in runtime.block_on(in_flight(folder.path())) {
                *if is_called { &mut called_at_a_kill } else { &mut uncalled_at_a_kill } += 1;
            }
            server = Server::start_in(folder, &address);
        }
        server
    });
    wait_for("all batches to be settled", || {
        let body = producer.get(&server.url, "/v1/batches/orders")?;
        (body["open_keys"] == 0 && body["in_flight"] == 0).then_some(())
    });
    judge(&all_calls(&caller, &server.url));
    println!(
        "{KILLS} kills: {called_at_a_kill} batches were called and not acknowledged, {uncalled_at_a_kill} were claimed and not called"
    );
    assert!(called_at_a_kill > 0, "no kill came between a call and the end of its batch: this run proved nothing");
}

/// Of each batch that was in flight when the server died: whether its call had been made.
async fn in_flight(folder: &Path) -> Vec<bool> {
    let towpath = Towpath::open(&format!("sqlite:{}", folder.join(".towpath").display())).await.unwrap();
    let flights = towpath.batch("orders").in_flight(None, 200).await.unwrap().items;
    let call_id = |flight: &FlightView| CallId::new(format!("batch-{}", flight.batch_id)).unwrap();
    let mut called = Vec::new();
    for flight in &flights {
        called.push(towpath.store().call(&call_id(flight)).await.unwrap().is_some());
    }
    towpath.close().await;
    called
}

/// What was asked of every call, the oldest first.
fn all_calls(caller: &Caller, url: &str) -> Vec<Value> {
    let (mut asked, mut after) = (Vec::new(), String::new());
    loop {
        let (_, page) = caller.get(url, &format!("/v1/calls?function=ship&limit=200{after}")).unwrap();
        for call in page["calls"].as_array().unwrap() {
            let (_, whole) = caller.get(url, &format!("/v1/calls/{}", call["call_id"].as_str().unwrap())).unwrap();
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
