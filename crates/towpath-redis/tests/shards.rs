//! A hot function that is spread over several streams: its calls are all there, wherever they lie, and old peers are not left out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use towpath::SystemClock;
use towpath_conformance::words::{SubmitWords, call_id, definition, function, new_call, ok, seconds, worker_id};
use towpath_core::call::CallState;
use towpath_core::inspect::{CallFilter, FunctionCounts, PageRequest};
use towpath_core::store::{
    CallStore, Cancelled, ClaimCalls, ClaimFunction, CompleteCalls, Delivery, Heartbeat, InspectStore, RegistryStore, StoreError,
    Submitted, TimerStore,
};
use towpath_core::worker::{FunctionDefinition, FunctionLimits, Offer, RegisterWorker};
use towpath_redis::{RedisOptions, RedisStore, Timing};
use towpath_redis_testing::{ClusterRig, RedisServer};

const SHARDS: u16 = 3;
const STREAM: &str = "function:stream:__global__:hot";
const LEASE: Duration = Duration::from_millis(1_500);

async fn process(url: &str) -> RedisStore {
    let mut options = RedisOptions::parse(url).expect("a URL of a Redis");
    options.timing = Timing { repair_every: Duration::from_millis(300), ..Timing::default() };
    RedisStore::open(options, Arc::new(SystemClock::new())).await.expect("the server is up")
}

fn spread(name: &str) -> FunctionDefinition {
    FunctionDefinition { limits: FunctionLimits { shards: Some(SHARDS), ..FunctionLimits::default() }, ..definition(name) }
}

async fn register(store: &RedisStore, worker: &str, definition: FunctionDefinition) -> Result<(), StoreError> {
    let offers = vec![Offer { definition, concurrency: None }];
    store.register(RegisterWorker { worker_id: worker_id(worker), kind: "rust".to_owned(), offers }).await
}

/// Submits calls `c-0`, `c-1` and so on, after one that makes the caller look who serves the function.
async fn submit(store: &RedisStore, count: usize) -> BTreeSet<String> {
    let ids: Vec<String> = (0..=count).map(|number| format!("c-{number}")).collect();
    for id in &ids {
        let submitted = store.submit(new_call(id, "hot").timeout(seconds(60))).await.expect("the server is up");
        assert!(matches!(submitted, Submitted::Accepted { .. }), "{submitted:?}");
    }
    ids.into_iter().collect()
}

fn claim(worker: &str, wait: Duration) -> ClaimCalls {
    let functions = [ClaimFunction { function: function("hot"), max: 7 }].into();
    ClaimCalls { worker: worker_id(worker), functions, max: 7, lease: LEASE, wait, takes_any: false }
}

/// Claims and answers until nothing has come for a while.
async fn answer_all(store: &RedisStore, worker: &str) -> Vec<String> {
    let mut answered = Vec::new();
    loop {
        let deliveries = store.claim(claim(worker, seconds(2))).await.expect("the server is up");
        assert!(deliveries.len() <= 7, "no more than was asked for");
        if deliveries.is_empty() {
            return answered;
        }
        for Delivery { id, request, .. } in deliveries {
            assert_eq!(request.function, function("hot"));
            answered.push(id.call_id.to_string());
            store.complete(CompleteCalls::one(worker_id(worker), id, ok("1"))).await.expect("the server is up");
        }
    }
}

async fn counts(store: &RedisStore) -> FunctionCounts {
    store.functions().await.expect("the server is up").first().expect("it is known").counts
}

fn lengths(server: &RedisServer) -> Vec<u64> {
    let streams = (0..=SHARDS).map(|shard| if shard == 0 { STREAM.to_owned() } else { format!("{STREAM}#{shard}") });
    streams.map(|stream| server.cli(&["ZCARD", &format!("towpath:queue:{{{stream}}}")]).trim().parse().expect("a number")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_spread_and_every_one_is_seen_counted_and_answered_once() {
    let server = RedisServer::start();
    let (caller, worker) = (process(&server.url()).await, process(&server.url()).await);
    register(&worker, "w-1", spread("hot")).await.expect("the server is up");
    let ids = submit(&caller, 100).await;
    let lengths = lengths(&server);
    assert!(lengths[1..].iter().all(|length| *length > 10), "each has its share: {lengths:?}");
    assert_eq!((lengths.iter().sum::<u64>(), counts(&caller).await.queued), (101, 101));
    let listed = caller.calls(&CallFilter::default(), PageRequest { after: None, limit: 200 }).await.expect("the server is up").items;
    assert_eq!(listed.iter().map(|view| view.call.call_id.to_string()).collect::<BTreeSet<_>>(), ids);
    assert_eq!(caller.functions().await.expect("the server is up").len(), 1, "its streams are no functions");

    let again = caller.submit(new_call("c-7", "hot").timeout(seconds(60))).await.expect("the server is up");
    assert!(matches!(again, Submitted::Existing { .. }), "the same call is in the same place: {again:?}");
    assert!(matches!(caller.cancel(&call_id("c-9")).await.expect("the server is up"), Cancelled::Done));
    let mut answered = answer_all(&worker, "w-1").await;
    answered.push("c-9".to_owned());
    assert_eq!(answered.len(), ids.len(), "each once");
    assert_eq!(answered.into_iter().collect::<BTreeSet<_>>(), ids);
    assert_eq!(caller.call(&call_id("c-7")).await.expect("the server is up").unwrap().call.state, CallState::Completed);
    assert_eq!(counts(&caller).await, FunctionCounts::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_held_when_it_died_comes_again_from_every_stream() {
    let server = RedisServer::start();
    let (caller, worker) = (process(&server.url()).await, process(&server.url()).await);
    register(&worker, "w-1", spread("hot")).await.expect("the server is up");
    let ids = submit(&caller, 20).await;
    let mut held = 0;
    while held < ids.len() {
        held += worker.claim(claim("w-1", seconds(5))).await.expect("the server is up").len();
    }
    drop(worker); // without a word, as when it is killed
    let heir = process(&server.url()).await;
    register(&heir, "w-2", spread("hot")).await.expect("the server is up");
    let mut answered = Vec::new();
    while answered.len() < ids.len() {
        heir.due_before(None).await;
        heir.fire_due(100).await.expect("the server is up");
        answered.extend(answer_all(&heir, "w-2").await);
    }
    assert_eq!((answered.len(), answered.into_iter().collect::<BTreeSet<_>>()), (ids.len(), ids), "each once more");
}

#[tokio::test(flavor = "multi_thread")]
async fn as_long_as_one_worker_does_not_read_them_nothing_goes_there_and_nothing_is_left_there() {
    let server = RedisServer::start();
    let (caller, worker) = (process(&server.url()).await, process(&server.url()).await);
    register(&worker, "w-1", spread("hot")).await.expect("the server is up");
    let first = submit(&caller, 10).await;
    let before = lengths(&server);
    assert!(before[1..].iter().sum::<u64>() > 0, "{before:?}");
    let now = server.cli(&["TIME"]).split_whitespace().next().expect("seconds").to_owned() + "000";
    let meta =
        ["HSET", "function:meta:old-1:hot", "functionName", "hot", "scope", "__global__", "streamKey", STREAM, "lastHeartbeat", &now];
    server.cli(&meta);
    server.cli(&["SADD", "function:hot", "old-1"]);

    let newcomer = process(&server.url()).await;
    let submitted = newcomer.submit(new_call("plain", "hot").timeout(seconds(60))).await.expect("the server is up");
    assert!(matches!(submitted, Submitted::Accepted { .. }));
    let submitted = newcomer.submit(new_call("plain-2", "hot").timeout(seconds(60))).await.expect("the server is up");
    assert!(matches!(submitted, Submitted::Accepted { .. }));
    let after = lengths(&server);
    assert_eq!((after[0], &after[1..]), (before[0] + 2, &before[1..]), "an old worker reads one stream only");

    let answered: BTreeSet<String> = answer_all(&worker, "w-1").await.into_iter().collect();
    assert!(first.is_subset(&answered) && answered.contains("plain") && answered.contains("plain-2"), "{answered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_whose_name_is_that_of_a_stream_is_refused_and_so_is_the_other_way_round() {
    let server = RedisServer::start();
    let store = process(&server.url()).await;
    register(&store, "w-1", spread("hot")).await.expect("the server is up");
    let refused = register(&store, "w-2", definition("hot#2")).await.expect_err("it is a stream of another function");
    assert!(refused.to_string().contains("hot#2"), "{refused}");
    register(&store, "w-3", definition("hot#9")).await.expect("there is no such stream");
    register(&store, "w-4", definition("cold#1")).await.expect("there is no such stream");
    let refused = register(&store, "w-5", spread("cold")).await.expect_err("one of its streams is another function's");
    assert!(refused.to_string().contains("cold"), "{refused}");
    let counted = FunctionLimits { shards: Some(2), max_backlog: Some(5), ..FunctionLimits::default() };
    let refused = register(&store, "w-6", FunctionDefinition { limits: counted, ..definition("warm") }).await;
    assert!(refused.expect_err("it cannot be counted").to_string().contains("max_backlog"));
}

/// Whether each partition has the function's definition, the first one first.
fn defined(server: &RedisServer) -> Vec<bool> {
    let streams = (0..=SHARDS).map(|shard| if shard == 0 { STREAM.to_owned() } else { format!("{STREAM}#{shard}") });
    streams.map(|stream| server.cli(&["HEXISTS", &format!("towpath:function:{{{stream}}}"), "definition"]).trim() == "1").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_forget_forgets_no_part_of_a_function() {
    let server = RedisServer::start();
    let store = process(&server.url()).await;
    store.define(spread("hot")).await.expect("the server is up");
    // A call with a key is kept in the first partition.
    store.submit(new_call("c-1", "hot").timeout(seconds(60)).key("k-1")).await.expect("the server is up");
    assert!(!store.forget(&function("hot")).await.expect("the server is up"), "it has a call");
    assert_eq!(defined(&server), [true; 4], "all of it is still known");
    store.cancel(&call_id("c-1")).await.expect("the server is up");
    assert!(store.forget(&function("hot")).await.expect("the server is up"));
    assert_eq!(defined(&server), [false; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_was_not_defined_before_a_crash_costs_no_call_and_is_defined_by_the_next_heartbeat() {
    let server = RedisServer::start();
    let (caller, worker) = (process(&server.url()).await, process(&server.url()).await);
    register(&worker, "w-1", spread("hot")).await.expect("the server is up");
    for shard in 1..=SHARDS {
        server.cli(&["DEL", &format!("towpath:function:{{{STREAM}#{shard}}}")]);
    }
    let ids = submit(&caller, 20).await;
    assert_eq!(lengths(&server), [21, 0, 0, 0], "the first partition takes them");
    let again = caller.submit(new_call("c-7", "hot").timeout(seconds(60))).await.expect("the server is up");
    assert!(matches!(again, Submitted::Existing { .. }), "{again:?}");
    assert_eq!(answer_all(&worker, "w-1").await.into_iter().collect::<BTreeSet<_>>(), ids);
    assert_eq!(worker.heartbeat(&worker_id("w-1")).await.expect("the server is up"), Heartbeat::Unknown, "it registers again");
    register(&worker, "w-1", spread("hot")).await.expect("the server is up");
    assert_eq!(defined(&server), [true; 4]);
    assert_eq!(worker.heartbeat(&worker_id("w-1")).await.expect("the server is up"), Heartbeat::Known);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_the_load_of_one_function_is_that_of_several_masters() {
    let rig = ClusterRig::start();
    let (caller, worker) = (process(&rig.url()).await, process(&rig.url()).await);
    register(
        &worker,
        "w-1",
        FunctionDefinition { limits: FunctionLimits { shards: Some(12), ..FunctionLimits::default() }, ..definition("hot") },
    )
    .await
    .expect("the Cluster is up");
    let ids = submit(&caller, 60).await;
    let busy = rig.nodes.iter().filter(|node| !node.cli(&["KEYS", "towpath:queue:*"]).trim().is_empty()).count();
    assert!(busy >= 2, "{busy} masters took calls");
    let again = caller.submit(new_call("c-7", "hot").timeout(seconds(60))).await.expect("the Cluster is up");
    assert!(matches!(again, Submitted::Existing { .. }), "{again:?}");
    let answered = answer_all(&worker, "w-1").await;
    assert_eq!((answered.len(), answered.into_iter().collect::<BTreeSet<_>>()), (ids.len(), ids));
    assert_eq!(counts(&caller).await, FunctionCounts::default());
}
