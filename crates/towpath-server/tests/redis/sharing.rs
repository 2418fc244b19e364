//! Two servers and several workers on one Redis: they share the work, and whoever leaves hands over what it holds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;
use towpath::{CallContext, HandlerError, Towpath};

use crate::caller::Caller;
use crate::crowd::{Crowd, ids, runtime};
use crate::pull_worker::{self, Pace, runs};
use crate::rig::{durable_redis, serve};
use crate::scene::now;
use crate::support::{Server, wait_for};

/// Whoever takes over has begun so long after the other was told to stop.
const AT_ONCE: Duration = Duration::from_secs(1);

#[test]
fn two_servers_and_four_workers_share_the_work() {
    const CALLS: usize = 5_000;
    let redis = durable_redis();
    let servers = [serve(&redis.url()), serve(&redis.url())];
    let notes: Vec<_> = (0..4).map(|worker| servers[0].path(&format!("runs-{worker}"))).collect();
    // A machine that is busy for two seconds must not end a lease: this is about shares.
    let pace = Pace { lease_ms: 30_000, ..Pace::QUICK };
    let start = |(number, notes): (usize, &std::path::PathBuf)| pull_worker::start_noting(&servers[number % 2], "echo", notes, pace);
    let _workers: Vec<_> = notes.iter().enumerate().map(start).collect();
    let told = Crowd::call(&redis.url(), "echo", ids(CALLS), 512).told();
    assert_eq!(told.answers.len(), CALLS);
    let shares: Vec<usize> = notes.iter().map(|notes| runs(notes).len()).collect();
    println!("{CALLS} calls in shares of {shares:?}");
    assert_eq!(shares.iter().sum::<usize>(), CALLS, "each call ran once");
    assert!(shares.iter().all(|share| *share >= CALLS / 20), "a worker got next to nothing: {shares:?}");
}

/// When each call began, by the clock of this process.
type Starts = Arc<Mutex<BTreeMap<String, Vec<Instant>>>>;

fn begin(starts: &Starts, call_id: &str) {
    starts.lock().unwrap().entry(call_id.to_owned()).or_default().push(now());
}

#[test]
fn a_worker_that_is_told_to_stop_hands_its_calls_over_at_once() {
    const CALLS: usize = 8;
    let redis = durable_redis();
    let servers = [serve(&redis.url()), serve(&redis.url())];
    let never = ["--exec", "exec sleep 60", "--concurrency", "8", "--drain-timeout", "0s"];
    let mut leaving = servers[0].worker("slow", &never);
    let ids: Vec<String> = (0..CALLS).map(|_| servers[1].submit("slow", "{}", &["--timeout", "60s"])).collect();
    for id in &ids {
        leaving.event("started", |event| event["event"] == "started" && event["call_id"] == id.as_str());
    }
    let (runtime, starts) = (runtime(), Starts::default());
    let staying = runtime.block_on(async {
        let (towpath, starts) = (Towpath::open(&redis.url()).await.unwrap(), Arc::clone(&starts));
        let worker = towpath.worker().function("slow", move |_: Value, ctx: CallContext| {
            begin(&starts, ctx.call_id().as_str());
            async { Ok::<_, HandlerError>("from the one that stayed") }
        });
        worker.start().await.unwrap()
    });
    // It waits for calls already.
    let first = servers[1].submit("slow", "{}", &[]);
    wait_for("the other worker to answer a call", || starts.lock().unwrap().get(&first).map(drop));

    let told_to_stop = now();
    leaving.signal(Signal::SIGTERM);
    let caller = Caller::new();
    for id in &ids {
        let call = caller.ended(&servers[1].url, id);
        assert_eq!((&call["outcome"]["data"], &call["crashes"]), (&json!("from the one that stayed"), &json!(0)), "{call}");
        let took = starts.lock().unwrap()[id][0] - told_to_stop;
        assert!(took < AT_ONCE, "{id} was handed over after {took:?}");
    }
    let left = leaving.event("left", |event| event["event"] == "left");
    println!("handed over after {:?}; {left}", starts.lock().unwrap().values().map(|starts| starts[0]).max().unwrap() - told_to_stop);
    assert!(leaving.ends().success());
    runtime.block_on(staying.drain());
}

/// A place to which calls are pushed: it keeps them until it is told to answer.
#[derive(Clone)]
struct Target {
    starts: Starts,
    answering: watch::Sender<bool>,
}

async fn keep(State(target): State<Target>, Json(posted): Json<Value>) -> Response {
    begin(&target.starts, posted["call_id"].as_str().unwrap());
    let answered = target.answering.subscribe().wait_for(|answering| *answering).await.is_ok();
    Json(json!({ "answered": answered })).into_response()
}

fn pushing(store: &str) -> Server {
    let arguments = ["serve", "--store", store, "--listen", "127.0.0.1:0", "--allow-target", "127.0.0.1", "--drain-timeout", "0s"];
    Server::start_with(tempfile::tempdir().unwrap(), &arguments)
}

/// A target that listens, and its address.
fn listening(runtime: &tokio::runtime::Runtime, target: &Target) -> String {
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let router = axum::Router::new().fallback(keep).with_state(target.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    })
}

fn push_workers(caller: &Caller, url: &str, count: usize) {
    wait_for(&format!("{count} servers to push"), || {
        let (_, body) = caller.get(url, "/v1/workers")?;
        (body["workers"].as_array()?.len() == count).then_some(())
    });
}

#[test]
fn a_function_with_a_target_is_forgotten_though_three_servers_push_it() {
    let redis = durable_redis();
    let (runtime, target) = (runtime(), Target { starts: Starts::default(), answering: watch::Sender::new(true) });
    let (url, caller) = (listening(&runtime, &target), Caller::new());
    let servers = [pushing(&redis.url()), pushing(&redis.url()), pushing(&redis.url())];
    for round in 0..3 {
        caller.define_as(&servers[0].url, "pushed", &json!({ "target": { "url": url } }));
        push_workers(&caller, &servers[1].url, 3);
        let id = format!("call-{round}");
        caller.submit(&servers[2].url, "pushed", &id);
        assert_eq!(caller.ended(&servers[0].url, &id)["outcome"]["data"]["answered"], true);

        let (status, was) = caller.ask(reqwest::Method::DELETE, &servers[round].url, "/v1/functions/pushed").unwrap();
        assert_eq!((status, &was["name"], &was["target"]["url"]), (200, &json!("pushed"), &json!(url)), "{was}");
        // No server pushes it any more, and none brings it back.
        push_workers(&caller, &servers[1].url, 0);
        for server in &servers {
            assert_eq!(caller.get(&server.url, "/v1/functions/pushed").unwrap().0, 404);
        }
    }
}

#[test]
fn a_function_with_a_target_that_is_not_forgotten_keeps_its_target() {
    let redis = durable_redis();
    let (runtime, target) = (runtime(), Target { starts: Starts::default(), answering: watch::Sender::new(false) });
    let (url, caller) = (listening(&runtime, &target), Caller::new());
    let (serving, killed) = (pushing(&redis.url()), pushing(&redis.url()));
    caller.define_as(&serving.url, "pushed", &json!({ "target": { "url": url } }));
    push_workers(&caller, &serving.url, 2);
    // A server that cannot stop pushing, because it is not there any more.
    killed.process.signal(Signal::SIGKILL);
    let (status, refused) = caller.ask(reqwest::Method::DELETE, &serving.url, "/v1/functions/pushed").unwrap();
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("function_in_use")), "{refused}");
    assert!(refused["error"]["hint"].as_str().unwrap().contains("45 seconds"), "{refused}");
    caller.submit(&serving.url, "pushed", "call");
    wait_for("the call to be pushed", || target.starts.lock().unwrap().get("call").map(drop));
    // With a call that runs nothing is tried at all.
    let (status, refused) = caller.ask(reqwest::Method::DELETE, &serving.url, "/v1/functions/pushed").unwrap();
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("function_in_use")), "{refused}");
    target.answering.send_replace(true);
    assert_eq!(caller.ended(&serving.url, "call")["outcome"]["data"]["answered"], true);
}

#[test]
fn a_server_that_is_told_to_stop_hands_the_calls_that_it_pushes_over_at_once() {
    const CALLS: usize = 12;
    let redis = durable_redis();
    let (runtime, target) = (runtime(), Target { starts: Starts::default(), answering: watch::Sender::new(false) });
    let url = listening(&runtime, &target);
    let (mut leaving, caller) = (pushing(&redis.url()), Caller::new());
    caller.define_as(&leaving.url, "pushed", &json!({ "target": { "url": url } }));
    let ids: Vec<String> = (0..CALLS).map(|number| format!("call-{number}")).collect();
    for id in &ids {
        caller.submit(&leaving.url, "pushed", id);
    }
    wait_for("all calls to be posted", || (target.starts.lock().unwrap().len() == CALLS).then_some(()));
    let staying = pushing(&redis.url());
    push_workers(&caller, &staying.url, 2);

    let told_to_stop = now();
    leaving.process.signal(Signal::SIGTERM);
    wait_for("all calls to be posted again", || target.starts.lock().unwrap().values().all(|starts| starts.len() > 1).then_some(()));
    let took = target.starts.lock().unwrap().values().map(|starts| starts[1]).max().unwrap() - told_to_stop;
    assert!(took < AT_ONCE, "handed over after {took:?}");
    println!("handed over after {took:?}");
    target.answering.send_replace(true);
    for id in &ids {
        let call = caller.ended(&staying.url, id);
        assert_eq!((&call["outcome"]["data"]["answered"], &call["crashes"]), (&json!(true), &json!(0)), "{call}");
    }
    assert!(leaving.process.ends().success());
}
