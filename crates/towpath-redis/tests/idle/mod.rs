//! What it costs to have nothing to do, and that it costs nobody who is waited for.

use std::sync::Arc;

use towpath_conformance::words::{SubmitWords, definition, function, new_call, offer, seconds, worker_id};
use towpath_core::clock::VirtualClock;
use towpath_core::store::{CallStore, Heartbeat, RegistryStore, Submitted, TimerStore};
use towpath_core::worker::RegisterWorker;
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::RedisServer;

use crate::registry_rig::{Rig, soon};

const MANY: usize = 100;

/// A worker that serves functions `f0`, `f1` and so on.
async fn register(store: &RedisStore, functions: usize) {
    let offers = (0..functions).map(|number| offer(&format!("f{number}"))).collect();
    let worker = RegisterWorker { worker_id: worker_id("w1"), kind: "rust".to_owned(), offers };
    store.register(worker).await.expect("the server is there");
}

async fn beat(store: &RedisStore) {
    assert_eq!(store.heartbeat(&worker_id("w1")).await.expect("the server is there"), Heartbeat::Known);
}

/// How many commands the server was sent so far, those inside of scripts included.
fn commands(rig: &Rig) -> i64 {
    let stats = rig.cli(&["INFO", "stats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).expect("a server that counts");
    line.trim().parse().expect("a number")
}

fn last_heartbeat(rig: &Rig, name: &str) -> String {
    rig.cli(&["HGET", &format!("function:meta:w1:{name}"), "lastHeartbeat"])
}

#[tokio::test]
async fn a_heartbeat_for_a_hundred_functions_costs_a_tenth_of_a_command_each() {
    let rig = Rig::start();
    let store = rig.open().await;
    register(&store, MANY).await;
    beat(&store).await;
    let before = commands(&rig);
    for _minute in 0..6 {
        rig.advance_s(10);
        beat(&store).await;
    }
    // Reading the count is one. Three of the six are told to old callers, and each of these looks after the set of all functions with one command.
    let cost = commands(&rig) - before - 1;
    assert!(cost <= 6 * 3 + 3 * (i64::try_from(MANY).unwrap() + 1), "{cost} commands");
    assert_eq!(last_heartbeat(&rig, "f7"), rig.now_ms(), "and old callers still see it");
}

#[tokio::test]
async fn old_callers_see_a_worker_of_many_functions_as_healthy_at_every_moment() {
    let rig = Rig::start();
    let store = rig.open().await;
    register(&store, MANY).await;
    for beats in 0..70 {
        rig.advance_s(10);
        let age_ms = rig.now().as_millis() - last_heartbeat(&rig, "f7").parse::<i64>().unwrap();
        assert!(age_ms <= 20_000, "{age_ms} ms old before beat {beats}");
        beat(&store).await;
    }
}

#[tokio::test]
async fn a_hash_that_is_gone_is_said_again_by_the_next_heartbeat_that_old_callers_are_told_of() {
    let rig = Rig::start();
    let store = rig.open().await;
    register(&store, 2).await;
    beat(&store).await;
    let whole = rig.cli(&["HLEN", "function:meta:w1:f1"]);
    rig.cli(&["DEL", "function:meta:w1:f1", "function:f1"]);
    rig.advance_s(10);
    beat(&store).await;
    assert_eq!(rig.cli(&["HLEN", "function:meta:w1:f1"]), whole);
    assert_eq!(rig.cli(&["SMEMBERS", "function:f1"]), "w1");
}

#[tokio::test]
async fn a_worker_is_healthy_for_every_function_by_its_latest_heartbeat() {
    let rig = Rig::start();
    let (here, there) = (rig.open().await, rig.open().await);
    register(&here, MANY).await;
    let healthy = async || there.find(&function("f7"), rig.now()).await.unwrap().expect("it is known").healthy_workers;
    let submits = async |id: &str| there.submit(new_call(id, "f7").or_fail_without_workers()).await.unwrap();
    for _beat in 0..8 {
        rig.advance_s(10);
        beat(&here).await;
    }
    rig.advance_s(29);
    assert_eq!(healthy().await, 1);
    assert!(matches!(submits("c1").await, Submitted::Accepted { .. }), "29 s after its latest heartbeat");
    rig.advance_s(1);
    assert_eq!(healthy().await, 0);
    assert_eq!(submits("c2").await, Submitted::NoWorkers, "30 s after it");
    beat(&here).await;
    assert!(matches!(submits("c3").await, Submitted::Accepted { .. }), "at once when it is heard again");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_left_behind_is_found_when_it_is_gone_however_many_functions_there_are() {
    let server = RedisServer::start();
    let open = || async {
        let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
        RedisStore::open(options, Arc::new(VirtualClock::new())).await.expect("the server is there")
    };
    let (stays, goes) = (open().await, open().await);
    for number in 0..MANY {
        goes.define(definition(&format!("f{number}"))).await.unwrap();
    }
    let known = stays.clock().now() + seconds(100_000);
    let waiting = tokio::spawn({
        let stays = stays.clone();
        async move { stays.due_before(Some(known)).await }
    });
    // It has looked once and would look again in a minute; and each has seen the other, at its second look.
    let asked = |question: &str| {
        let stats = server.cli(&["INFO", "commandstats"]);
        // Before Redis 7 the second word of a command does not stand there.
        let is_meant = |rest: &&str| rest.starts_with([':', '|']);
        let counted = stats.lines().find_map(|line| line.strip_prefix("cmdstat_")?.strip_prefix(question).filter(is_meant));
        let calls = counted.and_then(|counted| counted.split_once("calls=")?.1.split(',').next()?.parse().ok());
        calls.unwrap_or(0)
    };
    soon(async {
        while asked("zrange") < MANY || asked("pubsub") < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let Submitted::Accepted { deadline, .. } = goes.submit(new_call("c1", "f7")).await.unwrap() else { panic!("it is taken") };
    drop(goes);
    assert_eq!(soon(waiting).await.unwrap(), deadline);
}
