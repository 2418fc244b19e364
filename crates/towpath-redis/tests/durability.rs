//! What an answer says it is worth, with replicas that confirm, that stand still, and that are gone.

use std::sync::Arc;
use std::time::Duration;

use towpath_conformance::words::{call_id, definition, function, new_call, offer, ok, worker_id};
use towpath_core::call::CallState;
use towpath_core::clock::VirtualClock;
use towpath_core::store::{
    CallNews, CallStore, ClaimCalls, ClaimFunction, CompleteCalls, Durability, Heartbeat, InspectStore, RegistryStore, StoreError,
    StoreTrouble, Submitted,
};
use towpath_core::worker::RegisterWorker;
use towpath_redis::{RedisOptions, RedisStore, Unfit};
use towpath_redis_testing::{ClusterRig, RedisServer, SentinelRig, until};

const PATIENCE: Duration = Duration::from_secs(30);
/// A change of the server's settings is in answers by then.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

async fn open(server: &RedisServer, query: &str) -> Result<RedisStore, Unfit> {
    let options = RedisOptions::parse(&format!("{}?{query}", server.url())).expect("a URL of a Redis");
    RedisStore::open_by_clock(options, Arc::new(VirtualClock::new())).await
}

async fn worth(store: &RedisStore, id: &str) -> Result<Durability, StoreError> {
    match store.submit(new_call(id, "add")).await? {
        Submitted::Accepted { durability, .. } => Ok(durability),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_answer_names_the_level_of_the_servers_settings() {
    for (server, level) in [
        (RedisServer::build(), Durability::Memory),
        (RedisServer::build().append_only("everysec"), Durability::Everysec),
        (RedisServer::build().append_only("always"), Durability::Always),
    ] {
        let server = server.start();
        let store = open(&server, "").await.unwrap();
        store.define(definition("add")).await.unwrap();
        assert_eq!(worth(&store, "c-1").await, Ok(level));
        assert_eq!(store.probe().await.unwrap().durability, level);
    }
}

#[tokio::test]
async fn less_than_was_asked_for_is_refused_at_the_door_with_what_to_change() {
    let server = RedisServer::build().append_only("everysec").start();
    for (query, says) in [
        ("durability=always", "appendfsync always"),
        ("durability=replicated", "REPLICAOF"),
        ("durability=replicated&replicas=2", "2 replica"),
    ] {
        match open(&server, query).await {
            Err(Unfit::Refused(text)) => assert!(text.contains(says), "{text}"),
            other => panic!("{query}: {other:?}"),
        }
    }
    assert!(open(&server, "durability=memory").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_too_few_replicas_confirmed_is_no_success() {
    let primary = RedisServer::build().append_only("everysec").start();
    let replica = RedisServer::build().append_only("everysec").line(format!("replicaof 127.0.0.1 {}", primary.port())).start();
    until("the replica is in step", PATIENCE, || primary.cli(&["info", "replication"]).contains("state=online"));
    let store = open(&primary, "durability=replicated").await.unwrap();
    store.define(definition("add")).await.unwrap();
    assert_eq!(worth(&store, "c-1").await, Ok(Durability::Replicated));

    replica.pause();
    let unsure = worth(&store, "c-2").await;
    // Another connection has written nothing itself, and may vouch for what is there no more than the first.
    let elsewhere = open(&primary, "durability=replicated").await.unwrap();
    let still_unsure = elsewhere.submit(new_call("c-2", "add")).await;
    replica.resume();
    match unsure {
        Err(StoreError::Unknown(text)) => assert!(text.contains("0 of 1 replica") && text.contains("'everysec'"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(still_unsure, Err(StoreError::Unknown(_))), "{still_unsure:?}");
    // The caller asks by the same id, and gets an answer that is worth what was asked for.
    let again = store.submit(new_call("c-2", "add")).await.unwrap();
    assert!(matches!(again, Submitted::Existing { durability: Durability::Replicated, .. }), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_reaches_its_caller_only_when_replicas_have_it_and_nothing_else_waits() {
    let primary = RedisServer::build().append_only("everysec").start();
    let replica = RedisServer::build().append_only("everysec").line(format!("replicaof 127.0.0.1 {}", primary.port())).start();
    until("the replica is in step", PATIENCE, || primary.cli(&["info", "replication"]).contains("state=online"));
    let (calls, works) = (open(&primary, "durability=replicated").await.unwrap(), open(&primary, "durability=replicated").await.unwrap());
    let offers = vec![offer("add")];
    works.register(RegisterWorker { worker_id: worker_id("w-1"), kind: "rust".to_owned(), offers }).await.unwrap();
    let mut watch = calls.watch(&call_id("c-1"));
    assert_eq!(worth(&calls, "c-1").await, Ok(Durability::Replicated));
    let functions = [ClaimFunction { function: function("add"), max: 1 }].into();
    let claim =
        ClaimCalls { worker: worker_id("w-1"), functions, max: 1, lease: Duration::from_secs(30), wait: Duration::ZERO, takes_any: false };
    let delivery = works.claim(claim).await.unwrap().pop().expect("it waits");

    replica.pause();
    let answers = CompleteCalls { worker: worker_id("w-1"), answers: vec![(delivery.id, ok("1"))] };
    let completing = tokio::spawn({
        let works = works.clone();
        async move { works.complete(answers).await }
    });
    until("the answer is written and waits to be confirmed", PATIENCE, || primary.cli(&["info", "clients"]).contains("blocked_clients:2"));
    assert_eq!(works.heartbeat(&worker_id("w-1")).await, Ok(Heartbeat::Known));
    assert!(!completing.is_finished(), "nothing else waits for the replica");
    assert!(matches!(completing.await.unwrap(), Err(StoreError::Unknown(_))), "the worker is not told that it is kept");
    let early = tokio::select! {
        biased;
        news = watch.next() => Some(news),
        () = tokio::task::yield_now() => None,
    };
    assert!(early.is_none(), "nor is the caller: {early:?}");
    replica.resume();
    let news = tokio::time::timeout(PATIENCE, watch.next()).await.expect("it is kept now");
    assert!(matches!(news, CallNews::Ended(_)), "{news:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_waiter_is_not_confirmed() {
    const CALLS: usize = 40;
    let primary = RedisServer::build().append_only("everysec").start();
    let replica = RedisServer::build().append_only("everysec").line(format!("replicaof 127.0.0.1 {}", primary.port())).start();
    until("the replica is in step", PATIENCE, || primary.cli(&["info", "replication"]).contains("state=online"));
    let works = open(&primary, "").await.unwrap();
    let offers = vec![offer("add")];
    works.register(RegisterWorker { worker_id: worker_id("w-1"), kind: "rust".to_owned(), offers }).await.unwrap();
    let calls = open(&primary, "durability=replicated").await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..CALLS {
        let id = format!("c-{number}");
        waiters.push(calls.watch(&call_id(&id)));
        assert_eq!(worth(&calls, &id).await, Ok(Durability::Replicated));
    }
    let functions = [ClaimFunction { function: function("add"), max: 256 }].into();
    let claim = ClaimCalls {
        worker: worker_id("w-1"),
        functions,
        max: 256,
        lease: Duration::from_secs(30),
        wait: Duration::ZERO,
        takes_any: false,
    };
    let held = works.claim(claim).await.unwrap();
    assert_eq!(held.len(), CALLS);

    replica.pause();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let idle = tasks();
    for delivery in held {
        works.complete(CompleteCalls::one(worker_id("w-1"), delivery.id, ok("1"))).await.unwrap();
    }
    until("each answer waits to be confirmed", PATIENCE, || tasks() >= idle + CALLS);
    drop(waiters);
    until("no task is left behind", PATIENCE, || tasks() < idle + CALLS / 2);
    replica.resume();
}

/// Waits until a store names this level.
async fn names(store: &RedisStore, level: Durability, within: Duration) {
    let named = async {
        while store.probe().await.map(|status| status.durability) != Ok(level) {
            tokio::task::yield_now().await;
        }
    };
    let seen = tokio::time::timeout(within, named).await;
    assert!(seen.is_ok(), "'{level}' is not seen, but {:?}", store.probe().await.map(|status| status.durability));
}

fn is_below_minimum(refused: &Result<Durability, StoreError>, says: &str) -> bool {
    matches!(refused, Err(StoreError::Unavailable(StoreTrouble::BelowMinimum(text))) if text.contains(says))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_level_is_in_answers_within_seconds_and_below_the_minimum_nothing_new_is_taken_while_accepted_work_ends() {
    let server = RedisServer::build().append_only("everysec").start();
    let options = RedisOptions::parse(&server.url()).unwrap();
    let must_keep = RedisOptions { must_keep: true, ..options };
    let strict = RedisStore::open_by_clock(must_keep, Arc::new(VirtualClock::new())).await.unwrap();
    let (lenient, asks) = (open(&server, "").await.unwrap(), open(&server, "durability=everysec").await.unwrap());
    let offers = vec![offer("add")];
    strict.register(RegisterWorker { worker_id: worker_id("w-1"), kind: "rust".to_owned(), offers }).await.unwrap();
    assert_eq!(worth(&strict, "accepted").await, Ok(Durability::Everysec));

    server.cli(&["config", "set", "appendonly", "no"]);
    let all_see = async |level| {
        tokio::join!(names(&strict, level, SEEN_WITHIN), names(&lenient, level, SEEN_WITHIN), names(&asks, level, SEEN_WITHIN))
    };
    all_see(Durability::Memory).await;
    assert_eq!(worth(&lenient, "lenient").await, Ok(Durability::Memory), "no minimum: the answer says what it is worth");
    let refused = worth(&strict, "new").await;
    assert!(is_below_minimum(&refused, "--durability memory"), "{refused:?}");
    let refused = worth(&asks, "new").await;
    assert!(is_below_minimum(&refused, "gives 'memory'"), "{refused:?}");
    assert_eq!(strict.call(&call_id("new")).await.unwrap().map(|view| view.call.state), None, "nothing was written");
    let problems = strict.probe().await.unwrap().problems;
    assert!(problems.iter().any(|problem| problem.contains("new work is refused")), "{problems:?}");

    // What was accepted goes on: it is claimed, makes a call of its own, and ends.
    let functions = [ClaimFunction { function: function("add"), max: 1 }].into();
    let claim =
        ClaimCalls { worker: worker_id("w-1"), functions, max: 1, lease: Duration::from_secs(30), wait: Duration::ZERO, takes_any: false };
    let delivery = strict.claim(claim).await.unwrap().pop().expect("it waits");
    assert_eq!(delivery.id.call_id, call_id("accepted"));
    let nested = towpath_core::store::SubmitCall { continues: true, ..new_call("nested", "add") };
    assert!(matches!(strict.submit(nested).await, Ok(Submitted::Accepted { durability: Durability::Memory, .. })));
    strict.complete(CompleteCalls::one(worker_id("w-1"), delivery.id, ok("1"))).await.unwrap();
    let ended = strict.call(&call_id("accepted")).await.unwrap().map(|view| view.call.state);
    assert_eq!(ended, Some(CallState::Completed));

    server.cli(&["config", "set", "appendonly", "yes"]);
    server.cli(&["config", "set", "appendfsync", "always"]);
    all_see(Durability::Always).await;
    assert_eq!(worth(&strict, "new").await, Ok(Durability::Always));
    assert_eq!(worth(&asks, "new-too").await, Ok(Durability::Always));
    server.cli(&["config", "set", "appendfsync", "everysec"]);
    all_see(Durability::Everysec).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_read_settings_sees_the_append_only_file_go_and_is_not_recorded_for_asking() {
    let rules = "on nopass ~* &* +@all -config";
    let server = RedisServer::build().append_only("everysec").user("app", rules).start();
    let options = RedisOptions::parse(&server.url().replace("redis://", "redis://app:any@")).unwrap();
    let store = RedisStore::open_by_clock(RedisOptions { must_keep: true, ..options }, Arc::new(VirtualClock::new())).await.unwrap();
    store.define(definition("add")).await.unwrap();
    server.cli(&["acl", "log", "reset"]);
    assert_eq!(worth(&store, "c-1").await, Ok(Durability::Everysec));
    server.cli(&["config", "set", "appendonly", "no"]);
    names(&store, Durability::Memory, SEEN_WITHIN).await;
    let refused = worth(&store, "c-2").await;
    assert!(is_below_minimum(&refused, "'memory'"), "{refused:?}");
    assert_eq!(server.cli(&["acl", "log"]), "", "CONFIG is not tried again every few seconds");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_master_of_a_cluster_that_keeps_least_decides_also_when_it_changes_later() {
    let rig = ClusterRig::start();
    for node in &rig.nodes {
        node.cli(&["config", "set", "appendonly", "yes"]);
    }
    let options = RedisOptions::parse(&format!("{}?durability=everysec", rig.url())).unwrap();
    let store = RedisStore::open_by_clock(options, Arc::new(VirtualClock::new())).await.unwrap();
    store.define(definition("add")).await.unwrap();
    assert_eq!(worth(&store, "c-1").await, Ok(Durability::Everysec));
    rig.nodes[2].cli(&["config", "set", "appendonly", "no"]);
    names(&store, Durability::Memory, SEEN_WITHIN).await;
    let refused = worth(&store, "c-2").await;
    assert!(is_below_minimum(&refused, "gives 'memory'"), "{refused:?}");
    rig.nodes[2].cli(&["config", "set", "appendonly", "yes"]);
    names(&store, Durability::Everysec, SEEN_WITHIN).await;
    assert_eq!(worth(&store, "c-2").await, Ok(Durability::Everysec));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_answers_name_the_level_of_the_new_master() {
    let mut rig = SentinelRig::with(RedisServer::build().append_only("everysec"));
    let master = rig.master();
    for (_, replica) in rig.servers.iter().enumerate().filter(|(number, _)| *number != master) {
        replica.cli(&["config", "set", "appendonly", "no"]);
    }
    let options = RedisOptions::parse(&format!("{}?durability=everysec", rig.url())).unwrap();
    let store = RedisStore::open_by_clock(options, Arc::new(VirtualClock::new())).await.unwrap();
    store.define(definition("add")).await.unwrap();
    assert_eq!(worth(&store, "c-1").await, Ok(Durability::Everysec));
    let dead = rig.kill_master();
    rig.wait_for_other_master(dead);
    names(&store, Durability::Memory, PATIENCE).await;
    let refused = worth(&store, "c-2").await;
    assert!(is_below_minimum(&refused, "gives 'memory'"), "{refused:?}");
}
