//! The registry on a real server: what other processes and old peers see of it, and what it sees of them.

mod idle;
mod lost;
mod registry_rig;

use towpath_conformance::words::{definition, function, json, offer, seconds, worker_id};
use towpath_core::names::FunctionKey;
use towpath_core::store::{ConfigView, Heartbeat, RegistryStore, SetConfig};
use towpath_core::worker::{Offer, RegisterWorker};
use towpath_redis::RedisStore;

use registry_rig::{Rig, soon, waits};

fn worker(id: &str, offers: Vec<Offer>) -> RegisterWorker {
    RegisterWorker { worker_id: worker_id(id), kind: "rust".to_owned(), offers }
}

async fn register(store: &RedisStore, id: &str, functions: &[&str]) {
    store.register(worker(id, functions.iter().map(|name| offer(name)).collect())).await.expect("the server is there");
}

/// Workers and healthy workers of a function that is known.
async fn served(rig: &Rig, store: &RedisStore, name: &str) -> (u64, u64) {
    let view = store.find(&function(name), rig.now()).await.expect("the server is there").expect("it is known");
    (view.workers, view.healthy_workers)
}

async fn is_known(rig: &Rig, store: &RedisStore, name: &str) -> bool {
    store.find(&function(name), rig.now()).await.expect("the server is there").is_some()
}

#[tokio::test]
async fn old_callers_find_a_worker_of_ours() {
    let rig = Rig::start();
    let store = rig.open().await;
    let mut add = definition("wf-7:add");
    add.parameters = Some(json("[{\"name\": \"a\"}]"));
    let since = rig.now_ms();
    let mut schema = definition("sub");
    schema.parameters = Some(json("{\"type\": \"object\"}"));
    let offers = [add, schema].map(|definition| Offer { definition, concurrency: None });
    store.register(worker("w1", offers.to_vec())).await.unwrap();
    rig.advance_s(10);
    assert_eq!(store.heartbeat(&worker_id("w1")).await.unwrap(), Heartbeat::Known);
    assert_eq!(rig.cli(&["SMEMBERS", "function:add"]), "w1");
    for (field, value) in [
        ("functionName", "add"),
        ("parameters", r#"[{"defaultValue":"","description":"","name":"a","required":false,"type":"any"}]"#),
        ("scope", "wf-7"),
        ("workflowId", "wf-7"),
        ("executionId", "wf-7"),
        ("nodeId", ""),
        ("workerId", "w1"),
        ("streamKey", "function:stream:wf-7:add"),
        ("createdAt", since.as_str()),
        ("lastHeartbeat", rig.now_ms().as_str()),
        ("proto", "1"),
        ("caps", "lease"),
    ] {
        assert_eq!(rig.cli(&["HGET", "function:meta:w1:add", field]), value, "{field}");
    }
    assert_eq!(rig.cli(&["HGET", "function:meta:w1:sub", "workflowId"]), "", "of a function for all there is none");
    assert_eq!(rig.cli(&["HGET", "function:meta:w1:sub", "parameters"]), "[]", "a schema is no list");
    let expires: i64 = rig.cli(&["PTTL", "function:meta:w1:add"]).parse().unwrap();
    assert!((1..=1_200_000).contains(&expires), "{expires}");
    let group = rig.cli(&["XINFO", "GROUPS", "function:stream:wf-7:add"]);
    assert!(group.contains("group:add") && group.contains("last-delivered-id\n0-0"), "{group}");
}

#[tokio::test]
async fn a_function_that_is_defined_has_its_stream_and_group() {
    let rig = Rig::start();
    let store = rig.open().await;
    rig.cli(&["XADD", "function:stream:__global__:add", &format!("{}-0", rig.now_ms()), "callId", "early"]);
    store.define(definition("add")).await.unwrap();
    let early = rig.cli(&["XREADGROUP", "GROUP", "group:add", "w1", "STREAMS", "function:stream:__global__:add", ">"]);
    assert!(early.contains("early"), "what came before the group is delivered too: {early}");
}

#[tokio::test]
async fn a_worker_that_registers_again_makes_the_group_again_that_a_legacy_worker_destroyed() {
    let rig = Rig::start();
    let store = rig.open().await;
    register(&store, "w1", &["add"]).await;
    rig.cli(&["XADD", "function:stream:__global__:add", &format!("{}-0", rig.now_ms()), "callId", "c1"]);
    rig.cli(&["XGROUP", "DESTROY", "function:stream:__global__:add", "group:add"]);
    register(&store, "w1", &["add"]).await;
    let waiting = rig.cli(&["XREADGROUP", "GROUP", "group:add", "w1", "STREAMS", "function:stream:__global__:add", ">"]);
    assert!(waiting.contains("c1"), "{waiting}");
}

#[tokio::test]
async fn a_heartbeat_says_again_what_has_expired() {
    let rig = Rig::start();
    let store = rig.open().await;
    register(&store, "w1", &["add"]).await;
    let fields = ["functionName", "parameters", "scope", "workerId", "streamKey", "createdAt", "lastHeartbeat", "proto", "caps"];
    let said = || rig.cli(&[&["HMGET", "function:meta:w1:add"], &fields[..]].concat());
    let before = said();
    rig.cli(&["DEL", "function:meta:w1:add", "function:add"]);
    assert_eq!(store.heartbeat(&worker_id("w1")).await.unwrap(), Heartbeat::Known);
    assert_eq!(said(), before);
    assert_eq!(rig.cli(&["SMEMBERS", "function:add"]), "w1");
    assert_ne!(rig.cli(&["PTTL", "function:meta:w1:add"]), "-1", "it expires again");
}

#[tokio::test]
async fn a_worker_learns_that_the_server_was_emptied() {
    let rig = Rig::start();
    let store = rig.open().await;
    register(&store, "w1", &["add"]).await;
    rig.cli(&["FLUSHALL"]);
    assert_eq!(store.heartbeat(&worker_id("w1")).await.unwrap(), Heartbeat::Unknown);
    register(&store, "w1", &["add"]).await;
    assert_eq!(served(&rig, &store, "add").await, (1, 1));
}

#[tokio::test]
async fn a_worker_whose_function_was_lost_must_register_again() {
    let rig = Rig::start();
    let store = rig.open().await;
    register(&store, "w1", &["add"]).await;
    rig.cli(&["DEL", "towpath:function:{function:stream:__global__:add}"]);
    assert_eq!(store.heartbeat(&worker_id("w1")).await.unwrap(), Heartbeat::Unknown);
}

#[tokio::test]
async fn a_worker_that_leaves_leaves_nothing_of_itself() {
    let rig = Rig::start();
    let store = rig.open().await;
    let offers = vec![Offer { definition: definition("add"), concurrency: Some(2) }, offer("wf-7:sub")];
    store.register(worker("w1", offers)).await.unwrap();
    rig.cli(&["XGROUP", "CREATECONSUMER", "function:stream:__global__:add", "group:add", "w1"]);
    store.unregister(&worker_id("w1")).await.unwrap();
    let left = rig.cli(&["KEYS", "*"]);
    for key in ["function:add", "function:sub", "function:meta:w1:add", "towpath:workers", "towpath:heartbeats"] {
        assert!(!left.lines().any(|line| line == key), "{key} of\n{left}");
    }
    let fields = rig.cli(&["HKEYS", "towpath:function:{function:stream:__global__:add}"]);
    assert!(!fields.contains("offer:"), "{fields}");
    let consumers = rig.cli(&["XINFO", "CONSUMERS", "function:stream:__global__:add", "group:add"]);
    assert!(consumers.contains("towpath-seen") && !consumers.contains("w1"), "{consumers}");
    assert!(rig.cli(&["XINFO", "GROUPS", "function:stream:__global__:add"]).contains("group:add"), "the group stays");
    assert_eq!(served(&rig, &store, "add").await, (0, 0));
}

#[tokio::test]
async fn a_worker_that_leaves_stays_a_consumer_while_something_is_pending() {
    let rig = Rig::start();
    let store = rig.open().await;
    register(&store, "w1", &["add"]).await;
    let stream = "function:stream:__global__:add";
    rig.cli(&["XADD", stream, "*", "callId", "c1"]);
    rig.cli(&["XREADGROUP", "GROUP", "group:add", "w1", "STREAMS", stream, ">"]);
    store.unregister(&worker_id("w1")).await.unwrap();
    assert!(rig.cli(&["XPENDING", stream, "group:add"]).contains("w1"), "its entry can still be found");
}

#[tokio::test]
async fn a_worker_that_registers_again_is_gone_from_what_it_dropped() {
    let rig = Rig::start();
    let store = rig.open().await;
    register(&store, "w1", &["add", "wf-7:add", "sub"]).await;
    register(&store, "w1", &["wf-7:add", "mul"]).await;
    for (name, workers) in [("add", 0), ("wf-7:add", 1), ("sub", 0), ("mul", 1)] {
        assert_eq!(served(&rig, &store, name).await, (workers, workers), "{name}");
    }
    assert_eq!(rig.cli(&["SMEMBERS", "function:add"]), "w1", "it still serves a function of that name");
    assert_eq!(rig.cli(&["HGET", "function:meta:w1:add", "scope"]), "wf-7");
    assert_eq!(rig.cli(&["EXISTS", "function:sub", "function:meta:w1:sub"]), "0");
}

#[tokio::test]
async fn limits_and_offers_stand_where_scripts_read_them() {
    let rig = Rig::start();
    let store = rig.open().await;
    let hash = "towpath:function:{function:stream:__global__:add}";
    let mut add = definition("add");
    (add.limits.max_backlog, add.limits.max_concurrent) = (Some(7), Some(3));
    store.register(worker("w1", vec![Offer { definition: add, concurrency: Some(2) }])).await.unwrap();
    assert_eq!(rig.cli(&["HMGET", hash, "max_backlog", "max_concurrent", "offer:w1"]), "7\n3\n2");
    register(&store, "w1", &["add"]).await;
    assert_eq!(rig.cli(&["HGET", hash, "max_backlog"]), "-", "that field says that the function is known");
    assert_eq!(rig.cli(&["HLEN", hash]), "2", "beside the definition nothing else is left");
}

#[tokio::test]
async fn changes_of_functions_are_heard_in_other_processes_and_counted_once_here() {
    let rig = Rig::start();
    let (here, there) = (rig.open().await, rig.open().await);
    let waiting = tokio::spawn({
        let there = there.clone();
        async move { there.functions_changed(0).await.unwrap() }
    });
    here.define(definition("add")).await.unwrap();
    assert_eq!(soon(waiting).await.unwrap(), 1);
    here.define(definition("add")).await.unwrap();
    register(&there, "w1", &["add"]).await;
    there.heartbeat(&worker_id("w1")).await.unwrap();
    there.unregister(&worker_id("w1")).await.unwrap();
    there.define(definition("sub")).await.unwrap();
    assert_eq!(soon(here.functions_changed(1)).await.unwrap(), 2, "an identical definition is no change, nor is a worker");
    assert_eq!(soon(there.functions_changed(1)).await.unwrap(), 2, "and nobody hears itself twice");
}

#[tokio::test]
async fn the_count_of_changes_starts_at_0_when_no_function_is_known() {
    let rig = Rig::start();
    let store = rig.open().await;
    waits(store.functions_changed(0)).await;
    store.define(definition("add")).await.unwrap();
    let again = rig.open().await;
    assert_eq!(soon(again.functions_changed(0)).await.unwrap(), 1);
    assert!(store.forget(&function("add")).await.unwrap());
    waits(rig.open().await.functions_changed(0)).await;
}

#[tokio::test]
async fn a_function_is_found_as_soon_as_another_process_knows_it() {
    let rig = Rig::start();
    let (here, there) = (rig.open().await, rig.open().await);
    let until = rig.now() + seconds(5);
    let waiting = tokio::spawn(async move { there.find(&function("add"), until).await.unwrap() });
    register(&here, "w1", &["add"]).await;
    let found = soon(waiting).await.unwrap().expect("it is known now");
    assert_eq!((found.definition, found.workers), (definition("add"), 1));
}

#[tokio::test]
async fn a_function_that_is_not_known_in_time_is_not_found() {
    let rig = Rig::start();
    let store = rig.open().await;
    let until = rig.now() + seconds(5);
    let waiting = tokio::spawn(async move { store.find(&function("add"), until).await.unwrap() });
    rig.advance_s(5);
    assert_eq!(soon(waiting).await.unwrap(), None);
}

#[tokio::test]
async fn whoever_listens_looks_again_when_the_subscription_was_cut() {
    let rig = Rig::start();
    let store = rig.open().await;
    let other = rig.open().await;
    let config = tokio::spawn({
        let (store, until) = (store.clone(), rig.now() + seconds(600));
        async move { store.config_changed(0, until).await.unwrap() }
    });
    // A change that is told to nobody: only looking can find it.
    rig.cli(&["SET", "function:global_config", "{\"quiet\": true}"]);
    rig.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(soon(store.functions_changed(0)).await.unwrap(), 1);
    assert_eq!(soon(config).await.unwrap().value, json("{\"quiet\": true}"));
    soon(other.functions_changed(0)).await.unwrap();
    other.define(definition("add")).await.unwrap();
    assert_eq!(soon(store.functions_changed(1)).await.unwrap(), 2, "news come as before");
}

#[tokio::test]
async fn a_change_beside_a_restart_of_the_server_is_seen() {
    let mut rig = Rig::start();
    let (here, there) = (rig.open().await, rig.open().await);
    let until = rig.now() + seconds(600);
    let waiting = tokio::spawn(async move {
        loop {
            // The look at a connection that is just found dead fails; whoever listens asks again.
            if let Ok(config) = here.config_changed(0, until).await {
                return config.value;
            }
        }
    });
    rig.restart_server();
    let set = SetConfig { value: json("1"), if_version: None };
    while there.set_config(set.clone()).await.is_err() {}
    assert_eq!(soon(waiting).await.unwrap(), json("1"), "told, or seen by looking once the subscription is back");
}

#[tokio::test]
async fn two_databases_of_one_server_share_nothing() {
    let rig = Rig::start();
    let (here, there) = (rig.open().await, rig.open_database(1).await);
    here.define(definition("add")).await.unwrap();
    assert!(!is_known(&rig, &there, "add").await);
    rig.cli(&["PUBLISH", "towpath:news:1", "somebody f"]);
    assert_eq!(soon(there.functions_changed(0)).await.unwrap(), 1, "it hears its own news and no others");
}

#[tokio::test]
async fn a_function_is_not_forgotten_while_it_has_a_worker_or_a_call() {
    let rig = Rig::start();
    let store = rig.open().await;
    let add = function("add");
    assert!(!store.forget(&add).await.unwrap(), "it is not known");
    register(&store, "w1", &["add"]).await;
    rig.advance_s(40);
    assert!(!store.forget(&add).await.unwrap(), "it has a worker, if an unhealthy one");
    store.unregister(&worker_id("w1")).await.unwrap();
    for set in ["towpath:deadlines:{function:stream:__global__:add}", "towpath:dead:{function:stream:__global__:add}"] {
        rig.cli(&["ZADD", set, "1", "c1"]);
        assert!(!store.forget(&add).await.unwrap(), "{set}");
        rig.cli(&["DEL", set]);
    }
    assert!(store.forget(&add).await.unwrap());
    assert!(!is_known(&rig, &store, "add").await);
    assert!(!store.forget(&add).await.unwrap());
    assert_eq!(rig.cli(&["SMEMBERS", "towpath:functions"]), "");
}

#[tokio::test]
async fn a_forgotten_function_with_old_calls_keeps_its_place_in_the_set_and_is_not_known() {
    let rig = Rig::start();
    let store = rig.open().await;
    store.define(definition("add")).await.unwrap();
    rig.cli(&["ZADD", "towpath:buckets:{function:stream:__global__:add}", "1", "256.1"]);
    rig.cli(&["HSET", "towpath:ended:{function:stream:__global__:add}:256.1", "c1", "record"]);
    assert!(store.forget(&function("add")).await.unwrap());
    assert!(!is_known(&rig, &store, "add").await);
    assert_eq!(rig.cli(&["SMEMBERS", "towpath:functions"]), "__global__\nadd", "its calls can still be found");
    waits(rig.open().await.functions_changed(0)).await;
}

#[tokio::test]
async fn settings_of_towpath_stand_under_a_key_of_its_own_and_those_of_the_seeds_where_legacy_peers_read_them() {
    let rig = Rig::start();
    let store = rig.open().await;
    let unset = store.config().await.unwrap();
    assert_eq!(unset, ConfigView { version: 0, value: json("null"), updated_at: None });
    let set = store.set_config(SetConfig { value: json("{\"a\": 1}"), if_version: Some(0) }).await.unwrap();
    let expected = ConfigView { version: 1, value: json("{\"a\": 1}"), updated_at: Some(rig.now()) };
    assert_eq!(set, Some(expected.clone()));
    assert_eq!(store.config().await.unwrap(), expected);
    assert!(!rig.cli(&["GET", "function:global_config"]).contains("\"a\""), "legacy peers would wipe it");
    assert_eq!(store.set_config(SetConfig { value: json("2"), if_version: Some(0) }).await.unwrap(), None);
    assert_eq!(store.config().await.unwrap(), expected);
}

#[tokio::test]
async fn a_setting_of_a_legacy_peer_is_a_version_of_its_own_and_wipes_nothing() {
    let rig = Rig::start();
    let store = rig.open().await;
    store.set_config(SetConfig { value: json("{\"a\":1}"), if_version: None }).await.unwrap();
    rig.advance_s(1);
    rig.cli(&["SET", "function:global_config", "{\"queueMode\":true}", "EX", "86400"]);
    assert_eq!(store.set_config(SetConfig { value: json("2"), if_version: Some(1) }).await.unwrap(), None, "the legacy peer was faster");
    let seen = store.config().await.unwrap();
    let shown: serde_json::Value = serde_json::from_slice(seen.value.as_bytes()).unwrap();
    assert_eq!((seen.version, shown), (2, serde_json::json!({ "a": 1, "queueMode": true })));
    rig.advance_s(1);
    assert_eq!(store.config().await.unwrap(), seen, "it is noted once");
    rig.cli(&["DEL", "function:global_config"]);
    let left = store.config().await.unwrap();
    assert_eq!((left.version, left.value), (3, json("{\"a\":1}")), "legacy peers let theirs expire");
}

#[tokio::test]
async fn a_change_of_the_configuration_wakes_watchers_in_other_processes() {
    let rig = Rig::start();
    let (here, there) = (rig.open().await, rig.open().await);
    let until = rig.now() + seconds(60);
    let waiting = tokio::spawn(async move { there.config_changed(0, until).await.unwrap() });
    here.set_config(SetConfig { value: json("1"), if_version: None }).await.unwrap();
    assert_eq!(soon(waiting).await.unwrap().version, 1);
    let waiting = tokio::spawn(async move { here.config_changed(1, until).await.unwrap() });
    rig.advance_s(60);
    assert_eq!(soon(waiting).await.unwrap().version, 1, "the present one when the time is over");
}

#[tokio::test]
async fn a_function_that_only_an_old_worker_serves_is_known_when_somebody_asks() {
    let rig = Rig::start();
    let store = rig.open().await;
    rig.old_worker_a("worker-1-elno", "gadd");
    let found = store.find(&function("gadd"), rig.now()).await.unwrap().expect("an old worker serves it");
    assert_eq!((found.workers, found.healthy_workers), (1, 1));
    assert_eq!(found.definition.parameters, Some(json(registry_rig::PARAMETERS)));
    assert_eq!(found.definition.retry, definition("gadd").retry);
    assert!(is_known(&rig, &rig.open().await, "gadd").await, "other processes know it too");
    assert!(!is_known(&rig, &store, "wf-7:gadd").await, "not in another scope");
}

#[tokio::test]
async fn an_old_worker_of_a_workflow_serves_that_workflow_alone() {
    let rig = Rig::start();
    let store = rig.open().await;
    rig.old_worker_b("worker_2_5irp", "fnAddWorkflow001", "add");
    assert!(!is_known(&rig, &store, "add").await);
    assert_eq!(served(&rig, &store, "fnAddWorkflow001:add").await, (1, 1));
}

#[tokio::test]
async fn an_old_worker_that_says_no_more_than_its_heartbeat_serves_where_its_stream_is() {
    let rig = Rig::start();
    let store = rig.open().await;
    rig.old_worker_a("worker-1-elno", "gadd");
    // After an hour the hash expires, and the next heartbeat leaves nothing else in it.
    rig.cli(&["DEL", "function:meta:worker-1-elno:gadd"]);
    rig.old_heartbeat("worker-1-elno", "gadd");
    assert!(!is_known(&rig, &store, "wf-7:gadd").await, "there is no stream of that scope");
    let found = store.find(&function("gadd"), rig.now()).await.unwrap().expect("its stream is there");
    assert_eq!((found.definition, found.healthy_workers), (definition("gadd"), 1));
}

#[tokio::test]
async fn an_old_worker_that_fell_silent_serves_nothing() {
    let rig = Rig::start();
    let store = rig.open().await;
    rig.old_worker_a("worker-1-elno", "gadd");
    rig.advance_s(30);
    assert!(!is_known(&rig, &store, "gadd").await);
    rig.old_heartbeat("worker-1-elno", "gadd");
    rig.advance_s(17);
    assert_eq!(served(&rig, &store, "gadd").await, (1, 1), "a heartbeat may be that late");
    rig.advance_s(13);
    assert_eq!(served(&rig, &store, "gadd").await, (1, 0));
    rig.advance_s(15);
    assert_eq!(served(&rig, &store, "gadd").await, (0, 0), "after a while it is not counted at all");
}

#[tokio::test]
async fn an_old_worker_that_lives_is_counted_on_beside_ours() {
    let rig = Rig::start();
    let store = rig.open().await;
    rig.old_worker_a("worker-1-elno", "gadd");
    register(&store, "w1", &["gadd"]).await;
    for _ in 0..5 {
        assert_eq!(served(&rig, &store, "gadd").await, (2, 2));
        rig.advance_s(10);
        rig.old_heartbeat("worker-1-elno", "gadd");
        store.heartbeat(&worker_id("w1")).await.unwrap();
    }
    assert_eq!(rig.cli(&["HGET", "towpath:function:{function:stream:__global__:gadd}", "definition"]).matches("parameters").count(), 0);
    rig.old_worker_leaves("worker-1-elno", "gadd");
    rig.advance_s(5);
    assert_eq!(served(&rig, &store, "gadd").await, (1, 1));
}

#[tokio::test]
async fn what_an_old_worker_says_does_not_replace_a_definition() {
    let rig = Rig::start();
    let store = rig.open().await;
    let mut ours = definition("gadd");
    ours.description = Some("Ours.".to_owned());
    store.define(ours.clone()).await.unwrap();
    rig.old_worker_a("worker-1-elno", "gadd");
    let found = store.find(&function("gadd"), rig.now()).await.unwrap().expect("it is known");
    assert_eq!((found.definition, found.workers), (ours, 1));
}

#[tokio::test]
async fn a_caller_that_waits_finds_an_old_worker_that_comes() {
    let rig = Rig::start();
    let store = rig.open().await;
    let until = rig.now() + seconds(5);
    let waiting = tokio::spawn(async move { store.find(&function("gadd"), until).await.unwrap() });
    rig.old_worker_a("worker-1-elno", "gadd");
    rig.advance_s(1);
    assert_eq!(soon(waiting).await.unwrap().expect("it came in time").healthy_workers, 1);
}

#[tokio::test]
async fn a_function_with_an_old_worker_cannot_be_forgotten() {
    let rig = Rig::start();
    let store = rig.open().await;
    store.define(definition("gadd")).await.unwrap();
    rig.old_worker_a("worker-1-elno", "gadd");
    assert!(!store.forget(&function("gadd")).await.unwrap());
    rig.old_worker_leaves("worker-1-elno", "gadd");
    assert!(store.forget(&function("gadd")).await.unwrap());
}

#[tokio::test]
async fn parameters_that_are_no_list_of_the_seeds_are_left_aside() {
    let rig = Rig::start();
    let store = rig.open().await;
    for (name, parameters) in [("f1", "oops"), ("f2", "[{\"name\":\"a\",\"type\":\"date\"}]"), ("f3", "{}"), ("f4", "[{\"type\":\"any\"}]")]
    {
        rig.old_worker_a("worker-1-elno", name);
        rig.cli(&["HSET", &format!("function:meta:worker-1-elno:{name}"), "parameters", parameters]);
        let key: FunctionKey = function(name);
        let found = store.find(&key, rig.now()).await.unwrap().expect("it is served");
        assert_eq!(found.definition.parameters, None, "{parameters}");
    }
}
