//! A worker of many functions asks all their streams at once: it is given no more than it wants, and in the end all there is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use towpath::{CallContext, SystemClock, Towpath};
use towpath_conformance::words::{SubmitWords, call_id, definition, function, new_call, ok, seconds, worker_id};
use towpath_core::store::{CallStore, ClaimCalls, ClaimFunction, CompleteCalls, InspectStore, RegistryStore, Submitted};
use towpath_core::worker::{Offer, RegisterWorker};
use towpath_redis::{RedisOptions, RedisStore, Timing};
use towpath_redis_testing::{RedisServer, until};

const FUNCTIONS: usize = 20;
const CALLS_EACH: usize = 3;
/// Calls over which the cost of one is measured.
const MEASURED: usize = 400;
const IDLE_SECONDS: u64 = 6;

async fn opened(server: &RedisServer) -> (RedisStore, Vec<String>) {
    let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    let store = RedisStore::open(options, Arc::new(SystemClock::new())).await.expect("the server is up");
    let names: Vec<String> = (0..FUNCTIONS).map(|number| format!("f-{number}")).collect();
    let offers = names.iter().map(|name| Offer { definition: definition(name), concurrency: None }).collect();
    store.register(RegisterWorker { worker_id: worker_id("w-1"), kind: "rust".to_owned(), offers }).await.expect("the server is up");
    (store, names)
}

#[tokio::test(flavor = "multi_thread")]
async fn large_requests_of_functions_that_are_called_together_are_found_again() {
    let server = RedisServer::start();
    let (store, names) = opened(&server).await;
    let params = |id: &str| format!("\"{id}{}\"", "x".repeat(5_000));
    let ids: Vec<(String, &String)> =
        names.iter().flat_map(|name| (0..CALLS_EACH).map(move |number| (format!("{name}-{number}"), name))).collect();
    // They are asked at once, so that they go with few scripts.
    let submits = ids.iter().map(|(id, name)| store.submit(new_call(id, name).params(&params(id)).timeout(seconds(60))));
    for submitted in futures_util::future::join_all(submits).await {
        assert!(matches!(submitted, Ok(Submitted::Accepted { .. })), "{submitted:?}");
    }
    for (id, name) in &ids {
        let view = store.call(&call_id(id)).await.expect("the server is up").expect("it is known");
        assert_eq!(view.request.function, function(name));
        assert_eq!(view.request.params.as_bytes(), params(id).as_bytes(), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_many_functions_brings_no_more_than_was_asked_for_and_passes_over_nothing() {
    let server = RedisServer::start();
    let (store, names) = opened(&server).await;
    let mut expected = BTreeSet::new();
    for (name, number) in names.iter().flat_map(|name| (0..CALLS_EACH).map(move |number| (name, number))) {
        let id = format!("{name}-{number}");
        store.submit(new_call(&id, name).timeout(seconds(60))).await.expect("the server is up");
        expected.insert(id);
    }
    server.cli(&["XGROUP", "DESTROY", "function:stream:__global__:f-7", "group:f-7"]); // one of them is in trouble
    let functions: Arc<[ClaimFunction]> = names.iter().map(|name| ClaimFunction { function: function(name), max: 2 }).collect();
    let mut got = Vec::new();
    while got.len() < expected.len() {
        let (worker, functions) = (worker_id("w-1"), functions.clone());
        let claim = ClaimCalls { worker, functions, max: 7, lease: seconds(30), wait: seconds(20), takes_any: false };
        let deliveries = store.claim(claim).await.expect("the server is up");
        assert!(!deliveries.is_empty() && deliveries.len() <= 7, "{} of at most 7 after {}", deliveries.len(), got.len());
        for name in &names {
            let of_one = deliveries.iter().filter(|delivery| delivery.request.function == function(name)).count();
            assert!(of_one <= 2, "{of_one} of '{name}', which had room for 2");
        }
        for delivery in deliveries {
            got.push(delivery.id.call_id.to_string());
            store.complete(CompleteCalls::one(worker_id("w-1"), delivery.id, ok("1"))).await.expect("the server is up");
        }
    }
    assert_eq!((got.len(), got.into_iter().collect()), (expected.len(), expected), "each once");
}

/// What a worker of so many functions costs.
#[derive(Debug)]
struct Cost {
    /// Commands that the server runs for a call, those inside of scripts included.
    commands_per_call: f64,
    /// Connections of the caller's and the worker's process.
    connections: u64,
    /// Messages that both processes send in a second without a call.
    idle_messages_per_second: f64,
}

/// A number that the server tells about itself.
fn number_in(info: &str, name: &str) -> u64 {
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in {info}"))
}

async fn process(server: &RedisServer) -> Towpath {
    let mut options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    // Everything that a process does by itself comes within the seconds that are measured.
    options.timing = Timing { repair_every: Duration::from_secs(5), ..Timing::default() };
    let store = RedisStore::open(options, Arc::new(SystemClock::new())).await.expect("the server is up");
    Towpath::builder().clock(store.clock()).with_store(Arc::new(store))
}

async fn cost_of_a_worker(functions: usize) -> Cost {
    let server = RedisServer::start();
    let (here, there) = (process(&server).await, process(&server).await);
    let name = |number: usize| format!("f-{}", number % functions);
    let handler = |number: usize, _: CallContext| async move { Ok(number + 1) };
    let worker = (0..functions).fold(there.worker().concurrency(1), |worker, number| worker.function(name(number), handler));
    let _worker = worker.start().await.expect("the server is up");
    let call = async |number: usize| assert_eq!(here.call::<usize, _>(&name(number), &number).await, Ok(number + 1));
    for number in 0..functions {
        call(number).await; // From now on both processes know the function.
    }
    let mut line = redis::Client::open(server.url()).and_then(|client| client.get_connection()).expect("the server is up");
    let mut asked = 0;
    let mut info = || {
        asked += 1;
        (redis::cmd("INFO").query::<String>(&mut line).expect("the server is up"), asked)
    };
    let (before, first) = info();
    for number in 0..MEASURED {
        call(number).await;
    }
    let (after, second) = info();
    let commands = |info: &str| number_in(info, "total_commands_processed");
    let commands_per_call = (commands(&after) - commands(&before) - (second - first)) as f64 / MEASURED as f64;

    let (begun, first) = info();
    let ended = number_in(&begun, "uptime_in_seconds") + IDLE_SECONDS;
    let mut last = (String::new(), 0);
    until("some seconds are over", Duration::from_secs(60), || {
        last = info();
        number_in(&last.0, "uptime_in_seconds") >= ended
    });
    let messages = |info: &str| number_in(info, "total_reads_processed");
    let idle_messages = messages(&last.0) - messages(&begun) - (last.1 - first);
    Cost {
        commands_per_call,
        connections: number_in(&begun, "connected_clients") - 1,
        idle_messages_per_second: idle_messages as f64 / IDLE_SECONDS as f64,
    }
}

/// A8.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_a_hundred_functions_costs_little_more_than_one_of_a_single_function() {
    let (one, hundred) = (cost_of_a_worker(1).await, cost_of_a_worker(100).await);
    println!("{one:?}\n{hundred:?}");
    assert!(hundred.commands_per_call <= 1.5 * one.commands_per_call, "a call: {one:?}, {hundred:?}");
    assert!(hundred.connections <= one.connections + 2, "connections: {one:?}, {hundred:?}");
    // A function without calls costs less than one message in three seconds: now and then its worker is announced again.
    let more_functions = 100.0 - 1.0;
    let for_each = (hundred.idle_messages_per_second - one.idle_messages_per_second) / more_functions;
    assert!(for_each <= 0.3, "idle: {one:?}, {hundred:?}");
}
