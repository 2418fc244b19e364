//! Legacy workers as they stand in the registry: little is said, sometimes late, under names of their own choice.

use serde_json::json;
use towpath::{CallContext, CallError, FunctionOptions, Towpath};
use towpath_redis::Timing;
use towpath_redis_testing::until;

use crate::rig::{ADD, Add, GROUP, Ours, Rig, SOON, STREAM, Sum};

const META: &str = "function:meta:worker-1794767286013-elno0oaxhp6:gadd";

async fn call(towpath: &Towpath) -> Result<Sum, CallError> {
    towpath.call(ADD, &Add { a: 2, b: 40 }).fail_without_workers().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_says_nothing_but_its_heartbeat_is_called() {
    let rig = Rig::start();
    let mut worker = rig.legacy_worker(&["--meta-expired"]).await;
    let towpath = rig.towpath().await;
    assert_eq!(call(&towpath).await, Ok(Sum { sum: 42 }));
    let fields = worker.hear("took").await["fields"].take();
    assert_eq!(fields["responseChannel"], crate::rig::reply_list(fields["callId"].as_str().expect("an id")), "it knows no inbox");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_and_consumers_of_any_form_are_taken_as_they_are() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let names = [
        ("worker_1794767286013_x7k2", "worker_1794767286013_x7k2"),
        ("worker-1794767286013-elno0oaxhp6", "consumer-1794767295417-no49rgcw39"),
        ("n8n main:7 {a}", "no worker\tid: {b}"),
    ];
    for (worker, consumer) in names {
        let mut legacy = rig.legacy_worker(&["--generation", "b", "--worker-id", worker, "--consumer", consumer]).await;
        let sum: Sum = towpath.call(ADD, &Add { a: 2, b: 40 }).await.expect("a legacy worker answers");
        assert_eq!(sum, Sum { sum: 42 }, "{worker} as {consumer}");
        legacy.order("leave").await;
        legacy.hear("left").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_cannot_be_worker_ids_disturb_nobody() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let worker = Ours::new().start(&towpath).await;
    rig.cli(&["SADD", "function:gadd", "two\nlines", "", &"x".repeat(300)]);
    // Calls that a stranger took and holds.
    rig.cli(&["XADD", STREAM, "*", "init", "1"]);
    rig.cli(&["XGROUP", "CREATECONSUMER", STREAM, GROUP, "two\nlines"]);
    rig.cli(&["XREADGROUP", "GROUP", GROUP, "two\nlines", "COUNT", "1", "STREAMS", STREAM, ">"]);
    assert_eq!(call(&towpath).await, Ok(Sum { sum: 42 }));
    assert_eq!(rig.legacy_call(&[]).await["data"]["sum"], 42);
    assert_eq!(towpath.store().workers().await.expect("the server is there").len(), 1);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_that_comes_late_is_still_healthy_and_one_that_stays_away_is_not() {
    let rig = Rig::start();
    let worker = rig.legacy_worker(&["--generation", "b", "--heartbeat-s", "60"]).await;
    let now_ms = || -> i64 {
        let time = rig.cli(&["TIME"]);
        time.lines().next().and_then(|seconds| seconds.parse::<i64>().ok()).expect("seconds") * 1_000
    };
    rig.cli(&["HSET", META, "lastHeartbeat", &(now_ms() - 17_000).to_string()]);
    assert_eq!(call(&rig.towpath().await).await, Ok(Sum { sum: 42 }));
    worker.kill().await;
    rig.cli(&["HSET", META, "lastHeartbeat", &(now_ms() - 31_000).to_string()]);
    let refused = call(&rig.towpath().await).await.expect_err("nobody is there");
    assert_eq!(refused.code(), "no_workers", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_worker_that_has_just_come_is_seen_before_a_call_is_refused() {
    let rig = Rig::start();
    // Nobody happens to look just now.
    let towpath = rig.towpath_with(Timing::default()).await;
    Ours::new().start(&towpath).await.drain().await;
    let refused = call(&towpath).await.expect_err("nobody is there");
    assert_eq!(refused.code(), "no_workers", "{refused}");
    let _old = rig.legacy_worker(&[]).await;
    assert_eq!(call(&towpath).await, Ok(Sum { sum: 42 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_worker_leaves_ours_in_the_registry() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let _worker = Ours::new().start(&towpath).await;
    let mut legacy = rig.legacy_worker(&[]).await;
    legacy.order("leave").await;
    legacy.hear("left").await;
    assert_eq!(rig.legacy_call(&[]).await["data"]["sum"], 42, "a legacy caller finds our worker");
}

#[tokio::test(flavor = "multi_thread")]
async fn legacy_workers_their_functions_and_what_waits_for_them_are_listed() {
    let rig = Rig::start();
    let mut worker = rig.legacy_worker(&["--hold"]).await;
    rig.legacy_entry("old-1", &[]);
    worker.hear("took").await;
    rig.legacy_entry("old-2", &[]);
    rig.legacy_entry("old-3", &[]);
    // No Towpath process has ever named the function.
    let towpath = rig.towpath().await;
    let functions = towpath.store().functions().await.expect("the server is there");
    let [function] = &functions[..] else { panic!("{functions:?}") };
    assert_eq!(function.definition.key.name.as_str(), ADD);
    assert_eq!((function.counts.queued, function.counts.running), (2, 1), "{function:?}");
    assert!(function.oldest_queued_at.is_some() && function.healthy_workers == 1, "{function:?}");
    let stream = function.stream.as_ref().expect("legacy peers use it");
    assert_eq!((stream.length, stream.pending), (3, 1), "{stream:?}");
    assert!(stream.oldest_at.is_some() && stream.oldest_at == stream.oldest_pending_at, "the first is held: {stream:?}");
    let [group] = &stream.groups[..] else { panic!("{stream:?}") };
    assert_eq!((group.name.as_str(), group.pending, group.lag), (GROUP, 1, Some(2)), "{group:?}");
    let workers = towpath.store().workers().await.expect("the server is there");
    let [listed] = &workers[..] else { panic!("{workers:?}") };
    assert_eq!((listed.kind.as_str(), listed.healthy), ("legacy", true));
    assert_eq!(listed.functions, std::slice::from_ref(&function.definition.key));
}

/// B6.
#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_caller_learns_the_parameters_of_a_function_with_a_json_schema() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let number = json!({"type": "integer"});
    let schema = json!({"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]});
    let lists = json!([{"name": "a", "type": "number", "required": true}, {"name": "b", "type": "number", "required": true}]);
    for parameters in [schema, lists] {
        let handler = |add: Add, _: CallContext| async move { Ok(Sum { sum: add.a + add.b }) };
        let options = FunctionOptions::new(ADD).parameters(parameters.clone());
        let worker = towpath.worker().function_with(options, handler).start().await.expect("the server is there");
        let reply = rig.legacy_call(&["--listed-params"]).await;
        assert_eq!(reply["data"]["sum"], 42, "{parameters}: {reply}");
        worker.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_worker_that_was_killed_does_not_make_every_process_look_at_all_functions() {
    let rig = Rig::start();
    // More than an hour after it came its hash has no expiry.
    rig.cli(&["HSET", META, "executionId", "__global__", "lastHeartbeat", &(rig.now_ms() - 3_600_000).to_string()]);
    rig.cli(&["SADD", "function:gadd", "worker-1794767286013-elno0oaxhp6"]);
    let towpath = rig.towpath().await;
    let _worker = Ours::new().start(&towpath).await;
    let rounds = || rig.times_run("sunion");
    until("some rounds are over", SOON, || rounds() >= 3);
    let (looks, begun) = (rig.times_run("smembers"), rounds());
    until("some more rounds are over", SOON, || rounds() >= begun + 4);
    // Others than the rounds look, too, now and then.
    assert!(rig.times_run("smembers") - looks <= 2, "{} looks in four rounds", rig.times_run("smembers") - looks);
}
