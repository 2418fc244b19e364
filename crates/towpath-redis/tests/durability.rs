//! What an answer says it is worth, with replicas that confirm, that stand still, and that are gone.

use std::sync::Arc;
use std::time::Duration;

use towpath_conformance::words::{definition, new_call};
use towpath_core::clock::VirtualClock;
use towpath_core::store::{CallStore, Durability, InspectStore, RegistryStore, StoreError, Submitted};
use towpath_redis::{RedisOptions, RedisStore, Unfit};
use towpath_redis_testing::{RedisServer, until};

const PATIENCE: Duration = Duration::from_secs(30);

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
    replica.resume();
    match unsure {
        Err(StoreError::Unknown(text)) => assert!(text.contains("0 of 1 replica") && text.contains("'everysec'"), "{text}"),
        other => panic!("{other:?}"),
    }
    // The caller asks by the same id, and gets an answer that is worth what was asked for.
    let again = store.submit(new_call("c-2", "add")).await.unwrap();
    assert!(matches!(again, Submitted::Existing { durability: Durability::Replicated, .. }), "{again:?}");
}
