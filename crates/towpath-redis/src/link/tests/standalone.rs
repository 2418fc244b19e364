//! One server, nothing breaks.

use std::time::Duration;

use futures_util::StreamExt;
use redis::Value;
use towpath_redis_testing::RedisServer;

use super::{ask, command, eventually, open, text};
use crate::link::{Script, checked};

#[tokio::test]
async fn questions_are_answered_in_order_and_an_error_stands_in_its_place() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    assert!(!link.is_cluster());
    assert_eq!(ask(&link, "SET a 1").await, Ok(Value::Okay));
    assert_eq!(text(&link, "GET a").await, "1");
    let replies = link.ask_all(&[command("INCR a"), command("HGET a b"), command("INCR a")]).await.unwrap();
    assert_eq!((&replies[0], &replies[2]), (&Value::Int(2), &Value::Int(3)));
    assert!(checked(replies[1].clone()).unwrap_err().to_string().contains("WRONGTYPE"));
    assert_eq!(link.ask_all(&[]).await, Ok(Vec::new()));
    assert!(ask(&link, "HGET a b").await.is_err(), "an error reply was taken for an answer");
}

#[tokio::test]
async fn a_script_runs_although_the_server_has_forgotten_it() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    let script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    let run = async || link.run(&script, &["sum"], &[b"2".to_vec()]).await;
    assert_eq!(run().await, Ok(Value::Int(2)), "it was never loaded");
    assert_eq!(run().await, Ok(Value::Int(4)));
    server.cli(&["script", "flush"]);
    assert_eq!(run().await, Ok(Value::Int(6)), "it was flushed");
    let broken = Script::new("this is no Lua");
    let said = link.run(&broken, &[], &[]).await.unwrap_err().to_string();
    assert!(said.contains("compiling"), "{said}");
}

#[tokio::test]
async fn a_read_that_blocks_holds_nobody_up_and_can_be_ended() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    let mut exclusive = link.exclusive("jobs").await.unwrap();
    let id = exclusive.id();
    let read = tokio::spawn(async move { exclusive.ask(&command("BLPOP jobs 0")).await });
    eventually("the read blocks", async || text(&link, "INFO clients").await.contains("blocked_clients:1")).await;
    link.unblock(id).await.unwrap();
    assert_eq!(read.await.unwrap(), Ok(crate::link::Reply::Nil));
}

#[tokio::test]
async fn a_read_that_begins_after_the_word_to_end_it_ends_all_the_same() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    let mut exclusive = link.exclusive("jobs").await.unwrap();
    let id = exclusive.id();
    let late = std::pin::pin!(async {
        crate::pause::pause(Duration::from_millis(30)).await; // it was on its way for that long
        exclusive.ask(&command("BLPOP jobs 0")).await
    });
    assert_eq!(link.end(&id, late).await, Ok(crate::link::Reply::Nil));
}

#[tokio::test]
async fn a_read_may_block_for_longer_than_an_answer_may_take() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    let mut exclusive = link.exclusive("jobs").await.unwrap();
    assert_eq!(exclusive.ask(&command("BLPOP jobs 5.2")).await, Ok(crate::link::Reply::Nil));
    ask(&link, "RPUSH jobs a").await.unwrap();
    assert!(matches!(exclusive.ask(&command("BLPOP jobs 0")).await, Ok(crate::link::Reply::Array(_))));
}

#[tokio::test]
async fn an_exclusive_connection_that_is_dropped_blocks_no_longer() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    let mut exclusive = link.exclusive("jobs").await.unwrap();
    let read = tokio::spawn(async move { exclusive.ask(&command("BLPOP jobs 0")).await });
    eventually("the read blocks", async || text(&link, "INFO clients").await.contains("blocked_clients:1")).await;
    read.abort();
    eventually("it is gone", async || text(&link, "INFO clients").await.contains("blocked_clients:0")).await;
    ask(&link, "RPUSH jobs a").await.unwrap();
    assert_eq!(ask(&link, "LLEN jobs").await, Ok(Value::Int(1)), "somebody who is gone has taken it");
}

#[tokio::test]
async fn what_is_published_is_heard() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    let mut heard = link.subscribed("news").await.unwrap();
    assert_eq!(ask(&link, "PUBLISH news hello").await, Ok(Value::Int(1)));
    let message = heard.on_message().next().await.unwrap();
    assert_eq!(message.get_payload_bytes(), b"hello");
}

#[tokio::test]
async fn every_connection_is_in_its_database_and_says_who_it_is() {
    let server = RedisServer::start();
    let link = open(&format!("{}/3", server.url())).await;
    let _exclusive = link.exclusive("a").await.unwrap();
    let _heard = link.subscribed("news").await.unwrap();
    let clients = server.cli(&["client", "list"]);
    let ours = clients.lines().filter(|client| client.contains("name=towpath:a-test ") && client.contains(" db=3 "));
    assert_eq!(ours.count(), 3, "{clients}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_ask_at_once_over_one_connection() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    let before = *link.lives().borrow();
    let asking: Vec<_> = (0..64)
        .map(|number| {
            let link = link.clone();
            tokio::spawn(async move {
                for turn in 0..20 {
                    let said = format!("{number}-{turn}");
                    assert_eq!(text(&link, &format!("ECHO {said}")).await, said);
                }
            })
        })
        .collect();
    let all = async {
        for one in asking {
            one.await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all).await.unwrap();
    assert_eq!(*link.lives().borrow(), before);
}
