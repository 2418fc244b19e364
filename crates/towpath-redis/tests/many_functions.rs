//! A worker of many functions asks all their streams at once: it is given no more than it wants, and in the end all there is.

use std::collections::BTreeSet;
use std::sync::Arc;

use towpath::SystemClock;
use towpath_conformance::words::{SubmitWords, call_id, definition, function, new_call, ok, seconds, worker_id};
use towpath_core::store::{CallStore, ClaimCalls, ClaimFunction, CompleteCalls, InspectStore, RegistryStore, Submitted};
use towpath_core::worker::{Offer, RegisterWorker};
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::RedisServer;

const FUNCTIONS: usize = 20;
const CALLS_EACH: usize = 3;

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
    let functions: Vec<ClaimFunction> = names.iter().map(|name| ClaimFunction { function: function(name), max: 2 }).collect();
    let mut got = Vec::new();
    while got.len() < expected.len() {
        let (worker, functions) = (worker_id("w-1"), functions.clone());
        let claim = ClaimCalls { worker, functions, max: 7, lease: seconds(30), wait: seconds(20), in_process: true };
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
