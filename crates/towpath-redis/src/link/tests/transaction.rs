//! A script and what is written beside it.

use redis::Value;
use towpath_core::store::StoreError;
use towpath_redis_testing::RedisServer;

use super::{ask, open, text, unavailable, unknown};
use crate::link::{Beside, Link, Script};
use crate::script::Args;

/// A script that says what it was told, a field beside it, and a script that counts how often it ran.
async fn transact(link: &Link, said: &str, field: &str) -> Option<Result<Value, StoreError>> {
    let script = Script::new("redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1]");
    let restore = Script::new("return redis.call('INCR', KEYS[1])");
    let transaction = link.transaction().await?;
    let (mut args, mut words) = (Args::default(), Args::default());
    args.push(said);
    [field, "1"].into_iter().for_each(|word| words.push(word));
    let beside = Beside { command: ["HSET", "h"], words: &words, restore: &restore, restore_keys: &["ran"] };
    Some(transaction.run(&script, &["said"], &args, &beside).await)
}

#[tokio::test]
async fn the_script_the_command_and_the_second_script_are_done_in_this_order() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    for number in 1..=2 {
        let reply = transact(&link, "yes", &format!("f{number}")).await.expect("it is allowed");
        assert_eq!(reply, Ok(Value::BulkString(b"yes".to_vec())));
        server.cli(&["SCRIPT", "FLUSH"]);
    }
    assert_eq!(
        (text(&link, "GET said").await, text(&link, "HLEN h").await, text(&link, "GET ran").await),
        ("yes".into(), "2".into(), "2".into())
    );
}

#[tokio::test]
async fn nothing_is_done_when_one_of_them_is_not_allowed() {
    let server = RedisServer::build().user("app", "on >secret ~* &* +@all -hset").start();
    let link = open(&server.url().replacen("://", "://app:secret@", 1)).await;
    let said = unavailable(transact(&link, "yes", "f").await.expect("transactions are allowed"));
    assert!(said.contains("NOPERM") && said.contains("--print-acl"), "{said}");
    assert_eq!((ask(&link, "GET said").await, ask(&link, "GET ran").await), (Ok(Value::Nil), Ok(Value::Nil)));
    assert!(transact(&link, "yes", "f").await.is_some(), "the connection is of use");
}

#[tokio::test]
async fn who_may_have_none_is_not_asked_again_also_when_that_changes_later() {
    let server = RedisServer::build().user("app", "on >secret ~* &* +@all").user("poor", "on >secret ~* &* +@all -exec").start();
    let poor = open(&server.url().replacen("://", "://poor:secret@", 1)).await;
    assert!(transact(&poor, "yes", "f").await.is_none());
    // It could begin one and not end it. Redis gives up what it refuses to end, and here the connection is given up too: whoever runs a
    // script next is not in there.
    let script = Script::new("return 'alone'");
    let ran = poor.run_args(&script, &[], &Args::default()).await;
    assert_eq!(ran, Ok(Value::BulkString(b"alone".to_vec())));
    let link = open(&server.url().replacen("://", "://app:secret@", 1)).await;
    transact(&link, "yes", "f").await.expect("it is allowed").expect("it is done");
    server.cli(&["ACL", "SETUSER", "app", "-multi"]);
    let said = unknown(transact(&link, "no", "f").await.expect("it was allowed"));
    assert!(said.contains("no transactions any more"), "{said}");
    assert!(transact(&link, "no", "f").await.is_none());
    assert_eq!(text(&link, "GET said").await, "no", "it was done, one after the other");
}

#[tokio::test]
async fn an_error_of_the_script_is_the_error_of_all() {
    let server = RedisServer::start();
    let link = open(&server.url()).await;
    ask(&link, "RPUSH ran a").await.unwrap();
    let said = unavailable(transact(&link, "yes", "f").await.expect("it is allowed"));
    assert!(said.contains("WRONGTYPE"), "{said}");
}
