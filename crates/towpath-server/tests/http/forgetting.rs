//! Forgetting a function with a target, while a server does not stop pushing: what callers and workers do meanwhile counts.

use std::time::Duration;

use serde_json::{Value, json};
use towpath::{FunctionKey, WorkerId};
use towpath_core::worker::{Offer, RegisterWorker};

use crate::push::pushing;
use crate::support::Server;

const PATH: &str = "/v1/functions/pushed";
const OLD: &str = "http://127.0.0.1:9/old";
const NEW: &str = "http://127.0.0.1:9/new";

async fn put(server: &Server, url: &str) {
    server.put(PATH, json!({ "target": { "url": url } })).await.with(200);
}

#[tokio::test]
async fn a_function_with_dead_letters_is_in_use_and_the_answer_says_what_to_do_with_them() {
    let server = pushing().await;
    server.put(PATH, json!({ "target": { "url": OLD }, "retry": { "max_attempts": 1 } })).await.with(200);
    server.post(&format!("{PATH}/call"), json!({ "call_id": "c-1" })).await.error(424, "call_failed");
    let error = server.delete(PATH).await.error(409, "function_in_use");
    assert!(error["message"].as_str().unwrap().ends_with("1 dead letter"), "{error}");
    let health = server.get("/v1/health").await.with(200);
    assert_eq!(health["problems"], json!(["'pushed' has 1 dead letter: see why with `towpath dlq ls`"]));
    assert_eq!(error["hint"], "replay or drop its dead letters first");
    assert_eq!(server.get(PATH).await.with(200)["target"]["url"], OLD);
    server.delete("/v1/dead-letters/c-1").await.with(200);
    server.delete(PATH).await.with(200);
}

/// A function that this server pushes, and another one that was killed a moment ago.
async fn pushed_by_two() -> Server {
    let server = pushing().await;
    put(&server, OLD).await;
    let (store, key) = (server.running.towpath().store().clone(), FunctionKey::global("pushed".parse().unwrap()));
    let definition = store.find(&key, server.running.towpath().clock().now()).await.unwrap().unwrap().definition;
    let offers = vec![Offer { definition, concurrency: None }];
    let worker_id = WorkerId::new("killed").unwrap();
    store.register(RegisterWorker { worker_id, kind: "push".to_owned(), offers }).await.unwrap();
    server
}

/// Waits until the function's target is this one.
async fn shows(server: &Server, url: Option<&str>) {
    let look = async { while server.get(PATH).await.with(200)["target"]["url"].as_str() != url {} };
    tokio::time::timeout(Duration::from_secs(8), look).await.unwrap_or_else(|_| panic!("its target never became {url:?}"));
}

/// Forgets the function and does something else as soon as its target is taken away.
async fn forget_and(server: &Server, meanwhile: impl Future<Output = ()>) -> Value {
    let meanwhile = async {
        shows(server, None).await;
        meanwhile.await;
    };
    tokio::join!(server.delete(PATH), meanwhile).0.error(409, "function_in_use")
}

#[tokio::test]
async fn a_target_that_is_set_while_the_function_is_forgotten_stays() {
    let server = pushed_by_two().await;
    let error = forget_and(&server, put(&server, NEW)).await;
    assert!(error["hint"].as_str().unwrap().contains("defined anew"), "{error}");
    shows(&server, Some(NEW)).await;
}

#[tokio::test]
async fn a_worker_that_comes_while_the_function_is_forgotten_keeps_its_definition() {
    let server = pushed_by_two().await;
    let come = async {
        server.pull_worker(json!([{ "name": "pushed", "description": "The worker's." }])).await;
    };
    forget_and(&server, come).await;
    let now = server.get(PATH).await.with(200);
    assert_eq!((&now["description"], &now["target"]), (&json!("The worker's."), &Value::Null), "{now}");
}

#[tokio::test]
async fn a_worker_whose_definition_is_the_same_without_a_target_gets_no_target() {
    let server = pushed_by_two().await;
    let come = async {
        server.pull_worker(json!([{ "name": "pushed" }])).await;
        // It ends the forgetting.
        server.post(&format!("{PATH}/calls"), json!({})).await.with(202);
    };
    let error = forget_and(&server, come).await;
    assert!(error["hint"].as_str().unwrap().contains("stop its workers"), "{error}");
    assert_eq!(server.get(PATH).await.with(200)["target"], Value::Null);
}

#[tokio::test]
async fn a_function_whose_forgetting_client_has_left_gets_its_target_back() {
    let server = pushed_by_two().await;
    let deleting = server.request(reqwest::Method::DELETE, PATH).send();
    tokio::select! {
        answer = deleting => panic!("{answer:?}"),
        () = shows(&server, None) => {}
    }
    // The connection is closed, and after some requests more the server has seen it.
    for _ in 0..20 {
        server.get(PATH).await.with(200);
    }
    // A call ends the forgetting, if it goes on.
    server.post(&format!("{PATH}/calls"), json!({})).await.with(202);
    shows(&server, Some(OLD)).await;
}

#[tokio::test]
async fn a_store_that_fails_while_the_function_is_forgotten_leaves_the_effect_unknown() {
    let server = pushed_by_two().await;
    let close = async {
        shows(&server, None).await;
        server.running.towpath().close().await;
    };
    let error = tokio::join!(server.delete(PATH), close).0.error(504, "store_unknown");
    assert_eq!(error["effect"], "unknown");
    assert!(error["message"].as_str().unwrap().contains("'pushed'"), "{error}");
}
