//! What the other rooms of this crate ask the registry.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use towpath_conformance::words::{definition, function, json, new_call, offer, worker_id};
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::inspect::FunctionCounts;
use towpath_core::store::{CallStore, ClaimCalls, ClaimFunction, Heartbeat, RegistryStore, SetConfig};
use towpath_core::worker::RegisterWorker;
use towpath_redis_testing::RedisServer;

use super::functions::{Changed, Definition};
use super::reply::{arguments, read};
use super::scripts;
use crate::definition::write_definition;
use crate::options::RedisOptions;
use crate::store::RedisStore;

const ADD: &str = "{function:stream:__global__:add}";

struct Rig {
    /// Lives as long as the test.
    _server: RedisServer,
    clock: VirtualClock,
    store: RedisStore,
}

impl Rig {
    async fn start() -> Self {
        let (server, clock) = (RedisServer::start(), VirtualClock::new());
        let options = RedisOptions::standalone("127.0.0.1", server.port());
        let store = RedisStore::open_by_clock(options, Arc::new(clock.clone())).await.unwrap();
        Self { _server: server, clock, store }
    }

    async fn register(&self, id: &str, functions: &[&str]) {
        let offers = functions.iter().map(|name| offer(name)).collect();
        self.store.register(RegisterWorker { worker_id: worker_id(id), kind: "rust".to_owned(), offers }).await.unwrap();
    }

    /// Asks the server something directly.
    async fn ask(&self, words: &[&str]) -> redis::Value {
        let mut command = Cmd::new();
        command.arg(words);
        self.store.shared.link.ask(&command).await.unwrap()
    }

    async fn claim(&self, worker: &str, name: &str, max: u32) {
        let functions = [ClaimFunction { function: function(name), max }].into();
        let (lease, wait) = (Duration::from_secs(60), Duration::ZERO);
        let want = ClaimCalls { worker: worker_id(worker), functions, max, lease, wait, takes_any: false };
        assert_eq!(self.store.claim(want).await.unwrap().len(), max as usize);
    }

    fn advance_ms(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    /// A worker of the seeds, as its hash says it.
    async fn old_worker(&self, id: &str, caps: &[&str]) {
        let heartbeat = self.clock.now().as_millis().to_string();
        let meta = format!("function:meta:{id}:add");
        self.ask(&[&["HSET", &meta, "executionId", "__global__", "lastHeartbeat", &heartbeat], caps].concat()).await;
        self.ask(&["SADD", "function:add", id]).await;
    }
}

#[tokio::test]
async fn functions_are_listed_by_scope_and_name_with_their_calls_counted() {
    let rig = Rig::start().await;
    for name in ["b", "wf-7:a", "add", "_first:z"] {
        rig.store.define(definition(name)).await.unwrap();
    }
    rig.ask(&["ZADD", &format!("towpath:queue:{ADD}"), "1", "a", "2", "b", "3", "c"]).await;
    rig.ask(&["ZADD", &format!("towpath:running:{ADD}"), "1", "d", "2", "e"]).await;
    rig.ask(&["SADD", &format!("towpath:parked:{ADD}"), "d"]).await;
    rig.ask(&["ZADD", &format!("towpath:dead:{ADD}"), "1", "f", "2", "g", "3", "h", "4", "i"]).await;
    let listed = rig.store.list_functions().await.unwrap();
    let names: Vec<_> = listed.iter().map(|view| view.definition.key.to_string()).collect();
    assert_eq!(names, ["add", "b", "_first:z", "wf-7:a"]);
    assert_eq!(listed[0].counts, FunctionCounts { queued: 3, delayed: 0, running: 2, parked: 1, dead: 4 });
    assert_eq!(listed[1].counts, FunctionCounts::default());
    let asked = RegistryStore::find(&rig.store, &function("add"), rig.clock.now()).await.unwrap();
    assert_eq!(asked.as_ref(), listed.first(), "the list and the question agree");
}

#[tokio::test]
async fn the_call_that_has_waited_longest_is_found() {
    let rig = Rig::start().await;
    rig.store.define(definition("add")).await.unwrap();
    let oldest = async || rig.store.list_functions().await.unwrap()[0].oldest_queued_at;
    assert_eq!(oldest().await, None);
    let first = rig.clock.now();
    rig.store.submit(new_call("c1", "add")).await.unwrap();
    rig.advance_ms(100);
    rig.store.submit(new_call("c2", "add")).await.unwrap();
    assert_eq!(oldest().await, Some(first));
    rig.claim("w1", "add", 1).await;
    assert_eq!(oldest().await, Some(rig.clock.now()), "a call that runs does not wait");
}

#[tokio::test]
async fn workers_are_listed_by_id_with_what_they_hold() {
    let rig = Rig::start().await;
    rig.register("w2", &["add"]).await;
    rig.advance_ms(30_000);
    rig.register("w1", &["add", "sub"]).await;
    for (call, name) in [("c1", "add"), ("c2", "add"), ("c3", "sub")] {
        rig.store.submit(new_call(call, name)).await.unwrap();
        rig.claim("w1", name, 1).await;
    }
    rig.register("w1", &["sub"]).await;
    let listed = rig.store.list_workers().await.unwrap();
    let shown: Vec<_> = listed.iter().map(|worker| (worker.worker_id.as_str(), worker.healthy, worker.running)).collect();
    assert_eq!(shown, [("w1", true, 3), ("w2", false, 0)], "also what it no longer offers");
    assert_eq!((&listed[0].functions[..], listed[0].kind.as_str()), (&[function("sub")][..], "rust"));
    assert_eq!((listed[0].registered_at, listed[0].last_heartbeat), (rig.clock.now(), rig.clock.now()));
}

#[tokio::test]
async fn a_worker_is_due_for_removal_after_its_silence_and_not_before() {
    let rig = Rig::start().await;
    assert_eq!(rig.store.next_silence().await.unwrap(), None);
    rig.register("w1", &["add"]).await;
    let due = rig.clock.now() + Duration::from_secs(45);
    rig.advance_ms(10_000);
    rig.register("w2", &["add"]).await;
    rig.register("w3", &[]).await;
    assert_eq!(rig.store.next_silence().await.unwrap(), Some(due));
    rig.advance_ms(34_999);
    assert_eq!(rig.store.silent_workers(10).await.unwrap(), []);
    rig.advance_ms(1);
    assert_eq!(rig.store.silent_workers(10).await.unwrap(), [(due, worker_id("w1"))]);
    rig.advance_ms(10_000);
    let all = rig.store.silent_workers(10).await.unwrap();
    assert_eq!(all.iter().map(|(_, worker)| worker.as_str()).collect::<Vec<_>>(), ["w1", "w2", "w3"], "earliest first");
    assert_eq!(rig.store.silent_workers(1).await.unwrap(), [(due, worker_id("w1"))]);
}

#[tokio::test]
async fn a_silent_worker_is_removed_once_and_only_while_it_is_silent() {
    let rig = Rig::start().await;
    rig.register("w1", &["add", "sub"]).await;
    rig.register("w2", &["add"]).await;
    rig.advance_ms(45_000);
    assert_eq!(rig.store.heartbeat(&worker_id("w2")).await.unwrap(), Heartbeat::Known);
    assert!(!rig.store.remove_worker(&worker_id("w2")).await.unwrap(), "it was heard meanwhile");
    assert!(rig.store.remove_worker(&worker_id("w1")).await.unwrap());
    assert!(!rig.store.remove_worker(&worker_id("w1")).await.unwrap());
    let listed = rig.store.list_workers().await.unwrap();
    assert_eq!(listed.iter().map(|worker| worker.worker_id.as_str()).collect::<Vec<_>>(), ["w2"]);
    let served: Vec<_> = rig.store.list_functions().await.unwrap().iter().map(|view| (view.workers, view.healthy_workers)).collect();
    assert_eq!(served, [(1, 1), (0, 0)]);
    assert_eq!(rig.store.heartbeat(&worker_id("w1")).await.unwrap(), Heartbeat::Unknown, "it must register again");
    let seen: redis::Value = rig.ask(&["EXISTS", "function:meta:w1:add", "function:sub"]).await;
    assert_eq!(seen, redis::Value::Int(0), "old callers no longer see it");
}

#[tokio::test]
async fn a_worker_that_offers_nothing_is_kept_while_it_is_heard() {
    let rig = Rig::start().await;
    rig.register("w1", &[]).await;
    rig.advance_ms(44_999);
    assert!(!rig.store.remove_worker(&worker_id("w1")).await.unwrap());
    assert_eq!(rig.store.heartbeat(&worker_id("w1")).await.unwrap(), Heartbeat::Known);
    rig.advance_ms(45_000);
    assert!(rig.store.remove_worker(&worker_id("w1")).await.unwrap());
}

#[tokio::test]
async fn a_heartbeat_beside_a_removal_keeps_its_worker_on_the_list() {
    let rig = Rig::start().await;
    rig.register("w1", &["add"]).await;
    let (heartbeats, now) = (rig.store.shared.keys.heartbeats(), rig.clock.now().as_millis());
    let last_step = async |silent_since: i64| {
        let arguments = arguments!["w1", silent_since];
        let (word,): (String,) = read(rig.store.shared.link.run(&scripts::GONE, &[&heartbeats], &arguments).await.unwrap()).unwrap();
        word
    };
    assert_eq!(last_step(now - 1).await, "alive");
    assert_eq!(last_step(now).await, "gone");
    assert_eq!(last_step(now).await, "unknown");
}

#[tokio::test]
async fn a_definition_that_came_first_is_not_replaced_by_what_an_old_worker_says() {
    let rig = Rig::start().await;
    rig.old_worker("worker-1-elno", &["parameters", "[{\"name\":\"a\",\"type\":\"any\"}]"]).await;
    rig.store.define(definition("add")).await.unwrap();
    let before = rig.store.shared.news.function_changes();
    // As if it had been defined while somebody was looking for old workers.
    assert!(rig.store.adopt(&function("add")).await.unwrap());
    assert_eq!(rig.store.list_functions().await.unwrap()[0].definition, definition("add"));
    assert_eq!(rig.store.shared.news.function_changes(), before);
}

#[tokio::test]
async fn a_definition_that_has_changed_since_it_was_read_is_not_replaced() {
    let rig = Rig::start().await;
    rig.store.define(definition("add")).await.unwrap();
    let mut other = definition("add");
    other.description = Some("The other.".to_owned());
    let read_before = write_definition(&other).unwrap();
    other.limits.shards = Some(2);
    let written = rig.store.write_offer(&other, Definition::ReplaceThis(&read_before), None).await.unwrap();
    assert_eq!(written, Changed { definition: false, offer: false, is_refused: true });
    assert_eq!(rig.store.list_functions().await.unwrap()[0].definition, definition("add"));
    let read_now = write_definition(&definition("add")).unwrap();
    let written = rig.store.write_offer(&other, Definition::ReplaceThis(&read_now), None).await.unwrap();
    assert_eq!(written, Changed { definition: true, offer: false, is_refused: false });
    assert_eq!(rig.store.list_functions().await.unwrap()[0].definition, other);
}

#[tokio::test]
async fn a_removal_that_was_cut_short_is_completed_by_the_next() {
    let rig = Rig::start().await;
    rig.register("w1", &["add"]).await;
    rig.advance_ms(45_000);
    // As if the process had died after its first steps.
    rig.ask(&["HDEL", "towpath:workers", "w1"]).await;
    assert_eq!(rig.store.list_workers().await.unwrap(), []);
    assert_eq!(rig.store.silent_workers(10).await.unwrap().len(), 1, "it is still found");
    assert!(rig.store.remove_worker(&worker_id("w1")).await.unwrap());
    assert_eq!(rig.store.next_silence().await.unwrap(), None);
}

#[tokio::test]
async fn a_healthy_legacy_worker_is_seen_in_its_scope() {
    let rig = Rig::start().await;
    let is_served = async |name: &str| rig.store.is_served_by_legacy(&function(name)).await.unwrap();
    rig.register("w1", &["add"]).await;
    assert!(!is_served("add").await);
    rig.old_worker("worker-1-elno", &[]).await;
    assert!(!is_served("add").await, "a look counts for a while");
    rig.advance_ms(5_000);
    assert!(is_served("add").await && !is_served("wf-7:add").await);
    rig.advance_ms(25_000);
    assert!(!is_served("add").await, "its heartbeat is too old");
    rig.old_worker("worker-2-elno", &["proto", "2"]).await;
    rig.store.define(definition("sub")).await.unwrap();
    assert!(!is_served("add").await, "that is a Towpath worker");
    rig.old_worker("worker-3-elno", &[]).await;
    rig.store.define(definition("mul")).await.unwrap();
    assert!(is_served("add").await, "a change of functions makes it look again");
}

#[tokio::test]
async fn the_configuration_set_in_steps_is_the_one_set_at_once() {
    let rig = Rig::start().await;
    let set = async |value: &str, if_version| {
        let set = rig.store.set_in_steps(SetConfig { value: json(value), if_version }).await.unwrap();
        set.map(|config| (config.version, config.value))
    };
    assert_eq!(set("1", Some(1)).await, None, "nobody has set it yet");
    assert_eq!(set("1", Some(0)).await, Some((1, json("1"))));
    assert_eq!(set("1", None).await, Some((2, json("1"))), "the same value is a new version");
    rig.ask(&["SET", "function:global_config", "3"]).await;
    assert_eq!(set("4", Some(2)).await, None, "an old peer was faster");
    assert_eq!(set("4", Some(3)).await, Some((4, json("4"))));
    let kept = rig.store.config().await.unwrap();
    assert_eq!((kept.version, kept.value, kept.updated_at), (4, json("4"), Some(rig.clock.now())));
    let at_once = rig.store.set_config(SetConfig { value: json("5"), if_version: Some(4) }).await.unwrap();
    assert_eq!(at_once.map(|config| config.version), Some(5));
}
