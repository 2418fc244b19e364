//! Everything that can happen to a Redis while it is used. Afterwards the same processes go on, without a restart.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;
use towpath::CallError;
use towpath_redis_testing::{FaultProxy, RedisServer};

use crate::caller::Caller;
use crate::pull_worker::runs;
use crate::rig::{durable_redis, everysec_redis};
use crate::scene::{Scene, for_a_while, now, runs_of};
use crate::support::wait_for;

/// Longer than the longest trouble.
const LONG: Duration = Duration::from_secs(40);
const TROUBLE: Duration = Duration::from_secs(5);

fn info(redis: &RedisServer, field: &str) -> String {
    let info = redis.cli(&["info", "all"]);
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap_or_default();
    line.trim().to_owned()
}

#[test]
fn scripts_that_were_flushed_are_loaded_again() {
    let redis = everysec_redis();
    let scene = Scene::set(&redis.url());
    redis.cli(&["script", "flush"]);
    assert_eq!(info(&redis, "number_of_cached_scripts"), "0");
    scene.works();
    assert_ne!(info(&redis, "number_of_cached_scripts"), "0");
}

#[test]
fn a_group_that_was_destroyed_is_made_again_and_nothing_waits_for_ever_or_runs_twice() {
    const CALLS: usize = 200;
    let redis = everysec_redis();
    // No lease ends in this test: a second run could only come from the group that was made again.
    let scene = Scene::set_with_lease(&redis.url(), LONG);
    let ids: Vec<String> = (0..CALLS).map(|number| format!("call-{number}")).collect();
    let (stream, group) = ("function:stream:__global__:outside", "group:outside");
    scene.runtime.block_on(async {
        let calls = ids.iter().map(|id| {
            let call = scene.towpath.call::<Value, _>("outside", id).call_id(id).timeout(LONG);
            async move { call.await.unwrap_or_else(|error| panic!("{error}")) }
        });
        let calls = futures_util::future::join_all(calls);
        let destroy = tokio::task::spawn_blocking({
            let (port, notes) = (redis.port().to_string(), scene.notes());
            move || {
                // In the middle: some have run, others wait.
                wait_for("the first calls to run", || (runs(&notes).len() > CALLS / 10).then_some(()));
                let words = ["-p", &port, "xgroup", "destroy", stream, group];
                String::from_utf8(std::process::Command::new("redis-cli").args(words).output().unwrap().stdout).unwrap()
            }
        });
        let (answers, destroyed) = futures_util::future::join(calls, destroy).await;
        assert_eq!(destroyed.unwrap().trim(), "1", "there was no group to destroy");
        for (id, answer) in ids.iter().zip(answers) {
            assert_eq!(answer["params"], id.as_str());
        }
    });
    scene.works();
    // Legacy callers give up when they find no group: it comes back by itself.
    wait_for("the group to be made again", || redis.cli(&["xinfo", "groups", stream]).contains(group).then_some(()));
    let twice: Vec<String> = runs(&scene.notes()).into_iter().filter(|(_, times)| *times > 1).map(|(id, _)| id).collect();
    assert!(twice.is_empty(), "calls ran twice though no worker died: {twice:?}");
}

#[test]
fn connections_that_redis_closes_are_made_again() {
    let redis = everysec_redis();
    let scene = Scene::set(&redis.url());
    for kind in ["normal", "pubsub", "normal"] {
        let killed: u32 = redis.cli(&["client", "kill", "type", kind]).parse().unwrap();
        assert!(killed > 1, "{killed} connections of the type {kind} were closed");
        scene.works();
    }
    // News go from process to process again: a function that comes at the server is seen here at once.
    let caller = Caller::new();
    let call = scene.towpath.call::<Value, _>("late", "x").wait_for_function(LONG).timeout(LONG);
    let waiting = scene.runtime.spawn(async move { call.detach().await.map(|handle| handle.call_id().to_string()) });
    caller.define(&scene.server.url, "late");
    let begun = now();
    scene.runtime.block_on(waiting).unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "it was heard after {:?}", begun.elapsed());
}

#[test]
fn a_redis_that_was_restarted_is_found_again_with_all_that_it_had() {
    let mut redis = durable_redis();
    let scene = Scene::set(&redis.url());
    let caller = Caller::new();
    caller.define(&scene.server.url, "nobody-serves-it");
    caller.submit(&scene.server.url, "nobody-serves-it", "the-one");
    let before = redis.process_id();
    redis.stop();
    let (ready, _) = caller.get(&scene.server.url, "/v1/health").expect("the server answers though its store is away");
    assert_eq!(ready, 503);
    redis.start_again();
    assert_ne!(redis.process_id(), before);
    scene.works();
    let (status, call) = caller.get(&scene.server.url, "/v1/calls/the-one").unwrap();
    assert_eq!((status, &call["state"]), (200, &"queued".into()), "{call}");
}

#[test]
fn five_seconds_without_a_packet_cost_five_seconds() {
    let redis = everysec_redis();
    let proxy = FaultProxy::before(redis.port());
    let scene = Scene::set(&proxy.url());
    let under_way = scene.runtime.spawn(scene.towpath.call::<Value, _>("outside", "x").timeout(LONG).into_future());
    proxy.stall();
    let in_the_middle = scene.runtime.spawn(scene.towpath.call::<Value, _>("outside", "y").timeout(LONG).into_future());
    for_a_while(TROUBLE);
    assert!(!in_the_middle.is_finished(), "packets went through: this run proved nothing");
    proxy.pass();
    scene.works();
    // It may have been refused; then nothing was taken, or its id is named.
    for call in [under_way, in_the_middle] {
        match scene.runtime.block_on(call).unwrap() {
            Ok(answer) => assert!(["x", "y"].contains(&answer["params"].as_str().unwrap())),
            Err(CallError::Store { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn connections_that_fall_mute_for_good_are_given_up() {
    let redis = everysec_redis();
    let proxy = FaultProxy::before(redis.port());
    let scene = Scene::set(&proxy.url());
    let before = proxy.accepted();
    proxy.swallow();
    for_a_while(TROUBLE);
    proxy.pass();
    scene.works();
    assert!(proxy.accepted() > before, "no new connection was needed: this run proved nothing");
}

#[test]
fn a_flush_is_said_loudly_and_work_goes_on() {
    let redis = everysec_redis();
    let scene = Scene::set(&redis.url());
    let caller = Caller::new();
    caller.define(&scene.server.url, "nobody-serves-it");
    let waiting = scene.runtime.spawn({
        let towpath = scene.towpath.clone();
        async move { towpath.call::<Value, _>("nobody-serves-it", "x").call_id("the-waiting-one").timeout(LONG).await }
    });
    wait_for("the call to be accepted", || {
        let found = caller.get(&scene.server.url, "/v1/calls/the-waiting-one");
        found.filter(|(status, _)| *status == 200)
    });
    redis.cli(&["flushall"]);
    let flushed = now();
    let said = scene.server.process.remark("the data of this Redis was replaced");
    assert!(said.contains("ERROR") && said.contains("calls that were accepted before are gone"), "{said}");
    scene.works();
    // Whoever waited for a call that is gone is told so, long before its deadline.
    match scene.runtime.block_on(waiting).unwrap() {
        Err(CallError::Store { call_id: Some(call_id), error }) => {
            assert_eq!(call_id.as_str(), "the-waiting-one");
            assert!(error.to_string().contains("no longer known"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(flushed.elapsed() < LONG / 2, "it took {:?}", flushed.elapsed());
    let (_, health) = caller.get(&scene.server.url, "/v1/health").unwrap();
    assert_eq!(health["status"], "degraded");
    assert!(health["problems"][0].as_str().unwrap().contains("the data of this Redis was replaced"), "{health}");
    // The first run of each function before the flush, and the one after it: no ghost of before runs.
    assert_eq!(scene.inside.load(Ordering::Relaxed), 2);
    assert_eq!(runs_of(&scene.notes(), "the-waiting-one"), 0);
}
