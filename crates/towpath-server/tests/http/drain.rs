//! Stopping: not ready at once, nothing new begins, what is open is answered or sent away with its id.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use towpath_server::settings::Settings;

use crate::support::{answer, client, server_with, settings};

/// Requests that outlive the server's owner: they need the address only.
fn request(addr: std::net::SocketAddr, method: Method, path: &str) -> reqwest::RequestBuilder {
    client().request(method, format!("http://{addr}{path}"))
}

#[tokio::test]
async fn a_stopping_server_is_not_ready_and_answers_open_waits_when_their_calls_end() {
    // The grace keeps the listener open until the test has seen what it wants to see; dropping the stop ends it.
    let server = server_with(Settings { drain_grace: Duration::from_secs(60), ..settings() }).await;
    let worker = server.pull_worker(json!([{ "name": "last" }])).await;
    let (addr, id) = (server.addr(), worker.id.clone());
    let waiting = tokio::spawn(answer(request(addr, Method::POST, "/v1/functions/last/call").json(&json!({}))));
    let delivery = worker.claim_one().await;
    let claim = |wait_ms| request(addr, Method::POST, &format!("/v1/workers/{id}/claim")).json(&json!({ "wait_ms": wait_ms }));
    let open_claim = tokio::spawn(answer(claim(60_000)));
    let open_look = tokio::spawn(answer(request(addr, Method::GET, "/v1/config?not_version=0&wait_ms=60000")));
    server.get("/healthz").await;
    let stop = tokio::spawn(server.running.stop());
    while answer(request(addr, Method::GET, "/readyz")).await.status != 503 {
        tokio::task::yield_now().await;
    }
    answer(request(addr, Method::GET, "/readyz")).await.error(503, "draining");
    assert_eq!(answer(request(addr, Method::GET, "/healthz")).await.status, 200, "it is stopping, not dead");
    assert_eq!(open_claim.await.unwrap().with(200)["calls"], json!([]), "an open claim gets nothing more");
    open_look.await.unwrap().with(200);
    answer(claim(0)).await.error(503, "draining");
    let result = json!({ "results": [{ "delivery_id": delivery["delivery_id"], "success": true, "data": "done" }] });
    answer(request(addr, Method::POST, &format!("/v1/workers/{id}/complete")).json(&result)).await.with(200);
    assert_eq!(waiting.await.unwrap().with(200)["data"], "done");
    stop.abort();
}

#[tokio::test]
async fn a_wait_that_outlasts_the_drain_is_sent_away_with_the_calls_id() {
    let server = server_with(Settings { drain_timeout: Duration::from_millis(50), ..settings() }).await;
    server.put("/v1/functions/unserved", json!({})).await.with(200);
    let addr = server.addr();
    let waiting = tokio::spawn(answer(request(addr, Method::POST, "/v1/functions/unserved/call").json(&json!({ "call_id": "c-1" }))));
    while server.get("/v1/calls/c-1").await.status != 200 {
        tokio::task::yield_now().await;
    }
    server.running.stop().await;
    let error = waiting.await.unwrap().error(503, "draining");
    assert_eq!((&error["details"]["call_id"], &error["effect"]), (&json!("c-1"), &json!("unknown")));
    assert!(tokio::net::TcpStream::connect(addr).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn an_idle_server_stops_at_once_and_frees_its_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().display());
    let on_disk = || Settings { store: store.clone(), ..settings() };
    let server = server_with(on_disk()).await;
    server.put("/v1/config", json!({ "value": { "mode": "kept" } })).await.with(200);
    let Err(second) = towpath_server::serve::start(on_disk()).await else { panic!("two servers on one file") };
    assert!(second.to_string().contains("towpath serve on 127.0.0.1"), "the second is told who has the store: {second}");
    server.running.stop().await;
    let again = server_with(on_disk()).await;
    assert_eq!(again.get("/v1/config").await.with(200)["value"]["mode"], "kept");
    assert_eq!(again.get("/v1/health").await.with(200)["durability"], "fsync");
}
