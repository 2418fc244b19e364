//! Servers that die, stand still or change their role, and networks that lose things.

use std::time::Duration;

use redis::Value;
use towpath_core::store::{StoreError, StoreTrouble};
use towpath_redis_testing::{FaultProxy, RedisServer};

use super::{ask, break_is_seen, command, eventually, open, text, try_open, unavailable, unknown};
use crate::link::Script;

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_by_itself_after_a_restart_and_counts_a_life() {
    let mut server = RedisServer::build().append_only("always").start();
    let link = open(&server.url()).await;
    let mut lives = link.lives();
    lives.mark_unchanged();
    let script = Script::new("return redis.call('INCR', KEYS[1])");
    assert_eq!(link.run(&script, &["a"], &[]).await, Ok(Value::Int(1)));
    server.restart();
    eventually("it answers", async || ask(&link, "PING").await.is_ok()).await;
    assert!(lives.has_changed().unwrap());
    assert_eq!(link.run(&script, &["a"], &[]).await, Ok(Value::Int(2)), "the new process does not know the script");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_broke_while_nobody_used_it_is_replaced_without_an_error() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.port());
    let link = open(&proxy.url()).await;
    for round in 0..20 {
        proxy.cut();
        break_is_seen(&link).await;
        assert_eq!(ask(&link, "INCR a").await, Ok(Value::Int(round + 1)), "in round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_killed_is_unavailable_by_name_until_it_is_back() {
    let mut server = RedisServer::build().append_only("always").start();
    let link = open(&server.url()).await;
    ask(&link, "SET a kept").await.unwrap();
    server.kill();
    eventually("it is known to be away", async || matches!(ask(&link, "SET a lost").await, Err(StoreError::Unavailable(_)))).await;
    let said = unavailable(ask(&link, "SET a lost").await);
    assert!(said.contains(&format!("127.0.0.1:{}", server.port())) && said.contains("goes on by itself"), "{said}");
    assert!(matches!(link.exclusive("a").await.map(drop), Err(StoreError::Unavailable(_))));
    assert!(matches!(link.subscribed("a").await.map(drop), Err(StoreError::Unavailable(_))));
    server.start_again();
    eventually("it answers", async || ask(&link, "PING").await.is_ok()).await;
    assert_eq!(text(&link, "GET a").await, "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_not_hammered_and_its_callers_do_not_wait() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.port());
    let link = open(&proxy.url()).await;
    proxy.refuse();
    proxy.cut();
    eventually("the break is noticed", async || matches!(ask(&link, "PING").await, Err(StoreError::Unavailable(_)))).await;
    for _ in 0..5000 {
        unavailable(ask(&link, "PING").await);
    }
    assert!(proxy.accepted() < 50, "{} attempts", proxy.accepted());
    proxy.pass();
    eventually("it answers", async || ask(&link, "PING").await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_caller_reconnects_for_all() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.port());
    let link = open(&proxy.url()).await;
    proxy.cut();
    break_is_seen(&link).await;
    let asking: Vec<_> = (0..100)
        .map(|_| {
            let link = link.clone();
            tokio::spawn(async move { ask(&link, "INCR a").await })
        })
        .collect();
    for one in asking {
        one.await.unwrap().unwrap();
    }
    assert_eq!(proxy.accepted(), 2);
    assert_eq!(server.cli(&["get", "a"]), "100");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_lost_is_unknown_and_nothing_is_sent_twice() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.port());
    let link = open(&proxy.url()).await;
    proxy.cut_before_answer();
    let said = unknown(ask(&link, "INCR a").await);
    assert!(said.contains("broke"), "{said}");
    assert_eq!(text(&link, "GET a").await, "1");
    proxy.cut_before_answer();
    unknown(link.ask_all(&[command("INCR a"), command("INCR a")]).await);
    assert_eq!(text(&link, "GET a").await, "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_that_come_late_are_no_break() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.port());
    let link = open(&proxy.url()).await;
    proxy.stall();
    let mut asking = {
        let link = link.clone();
        tokio::spawn(async move { ask(&link, "INCR a").await })
    };
    let answered = tokio::time::timeout(Duration::from_secs(1), &mut asking).await;
    assert!(answered.is_err(), "an answer came through");
    proxy.pass();
    assert_eq!(asking.await.unwrap(), Ok(Value::Int(1)));
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_bytes_vanish_is_given_up_and_replaced() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.port());
    let link = open(&proxy.url()).await;
    proxy.swallow();
    let said = unknown(ask(&link, "INCR a").await);
    assert!(said.contains("did not answer in time"), "{said}");
    unavailable(ask(&link, "INCR a").await);
    proxy.pass();
    eventually("it answers", async || ask(&link, "PING").await.is_ok()).await;
    assert_eq!(ask(&link, "INCR a").await, Ok(Value::Int(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_is_unknown_and_used_again_when_it_goes_on() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    server.pause();
    unknown(ask(&link, "INCR a").await);
    unavailable(ask(&link, "INCR a").await);
    server.resume();
    eventually("it answers", async || ask(&link, "PING").await.is_ok()).await;
    assert_eq!(text(&link, "GET a").await, "1", "what was sent before it stood still was done once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_master_is_read_only_and_left() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    let mut lives = link.lives();
    lives.mark_unchanged();
    server.cli(&["replicaof", "127.0.0.1", "1"]);
    let refused = ask(&link, "SET a 1").await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(StoreTrouble::ReadOnly(_)))), "{refused:?}");
    server.cli(&["replicaof", "no", "one"]);
    assert_eq!(ask(&link, "SET a 1").await, Ok(Value::Okay));
    assert!(lives.has_changed().unwrap(), "it still uses the connection to the demoted one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_read_that_sees_a_master_demoted_ends_and_takes_the_shared_connection_with_it() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    let mut exclusive = link.exclusive("jobs").await.unwrap();
    let read = tokio::spawn(async move { exclusive.ask(&command("BLPOP jobs 0")).await });
    eventually("the read blocks", async || text(&link, "INFO clients").await.contains("blocked_clients:1")).await;
    server.cli(&["replicaof", "127.0.0.1", "1"]);
    let said = unavailable(read.await.unwrap());
    assert!(said.contains("UNBLOCKED") && said.contains("looks for the master"), "{said}");
    break_is_seen(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_is_full_also_for_a_script() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    let script = Script::new("return redis.call('SET', KEYS[1], ARGV[1])");
    link.run(&script, &["a"], &[b"1".to_vec()]).await.unwrap();
    server.cli(&["config", "set", "maxmemory", "1"]);
    for refused in [ask(&link, "SET a 2").await, link.run(&script, &["a"], &[b"2".to_vec()]).await] {
        assert!(matches!(&refused, Err(StoreError::Unavailable(StoreTrouble::Full(_)))), "{refused:?}");
    }
    server.cli(&["config", "set", "maxmemory", "0"]);
    assert_eq!(text(&link, "GET a").await, "1");
}

#[tokio::test]
async fn a_place_where_nobody_is_is_named_at_once() {
    let said = unavailable(try_open("redis://127.0.0.1:1").await);
    assert!(said.contains("127.0.0.1:1 cannot be reached"), "{said}");
    let said = unavailable(try_open("redis+cluster://127.0.0.1:1,127.0.0.1:2").await);
    assert!(said.contains("cannot be reached"), "{said}");
    let said = unavailable(try_open("redis+sentinel://127.0.0.1:1,127.0.0.1:2/m").await);
    assert!(said.contains("no Sentinel leads to a master 'm'") && said.contains("127.0.0.1:2"), "{said}");
}
