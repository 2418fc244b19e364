//! A master that the Sentinels watch.

use std::time::{Duration, Instant};

use redis::Value;
use towpath_redis_testing::{RedisServer, SentinelRig};

use super::{ask, command, eventually, open, text, try_open, unavailable};

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "the Sentinels live by the real clock")]
async fn it_writes_again_soon_after_the_master_was_killed() {
    let mut rig = SentinelRig::start();
    let link = open(&rig.url()).await;
    assert!(!link.is_cluster());
    let mut exclusive = link.exclusive("jobs").await.unwrap();
    let read = tokio::spawn(async move { exclusive.ask(&command("BLPOP jobs 0")).await });
    ask(&link, "SET a 1").await.unwrap();
    let mut lives = link.lives();
    lives.mark_unchanged();
    let dead = rig.kill_master();
    let since = Instant::now();
    eventually("it writes", async || ask(&link, "SET a 2").await == Ok(Value::Okay)).await;
    assert!(since.elapsed() < Duration::from_secs(15), "it took {:?}", since.elapsed());
    assert!(lives.has_changed().unwrap());
    assert_ne!(rig.master(), dead);
    assert_eq!(rig.servers[1 - dead].cli(&["get", "a"]), "2");
    assert!(read.await.unwrap().is_err(), "a read on the dead master came to a good end");
    let mut exclusive = link.exclusive("jobs").await.unwrap();
    ask(&link, "RPUSH jobs x").await.unwrap();
    assert!(matches!(exclusive.ask(&command("BLPOP jobs 0")).await, Ok(crate::link::Reply::Array(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_follows_a_failover_of_healthy_servers_and_needs_no_restart() {
    let rig = SentinelRig::with(RedisServer::build().user("app", "on >secret ~* &* +@all"));
    // One of the Sentinels of the URL is not there.
    let url = rig.url().replacen("://", "://app:secret@127.0.0.1:1,", 1);
    let link = open(&url).await;
    ask(&link, "SET a 1").await.unwrap();
    let before = rig.master();
    rig.ask_for_failover();
    rig.wait_for_other_master(before);
    eventually("the new master has it", async || {
        let _ = ask(&link, "SET a 2").await;
        rig.servers[1 - before].cli(&["get", "a"]) == "2" && rig.servers[1 - before].cli(&["role"]).starts_with("master")
    })
    .await;
    assert_eq!(text(&link, "GET a").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_of_another_name_is_not_found() {
    let rig = SentinelRig::start();
    let said = unavailable(try_open(&rig.url().replace(SentinelRig::MASTER, "somebody")).await);
    assert!(said.contains("knows no master 'somebody'"), "{said}");
    let said = unavailable(try_open(&format!("redis+sentinel://127.0.0.1:{}/m", rig.servers[0].port())).await);
    assert!(said.contains("no Sentinel leads to a master"), "a server with data is no Sentinel, and {said}");
}
