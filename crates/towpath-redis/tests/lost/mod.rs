//! The set of all functions, when another program has replaced or removed it: functions are put back, and the doctor names it.

use std::sync::Arc;

use towpath_conformance::words::{definition, function, worker_id};
use towpath_core::clock::VirtualClock;
use towpath_core::store::{Heartbeat, InspectStore, RegistryStore};
use towpath_core::time::Timestamp;
use towpath_redis::RedisOptions;
use towpath_redis::doctor::{Verdict, examine};
use towpath_redis_testing::RedisServer;

use crate::register;
use crate::registry_rig::Rig;

const ADD_IN_THE_SET: &str = "__global__\nadd";

#[tokio::test]
async fn a_heartbeat_puts_a_function_back_into_the_set_of_all_functions() {
    let rig = Rig::start();
    let store = rig.open().await;
    register(&store, "w1", &["add"]).await;
    assert_eq!(store.heartbeat(&worker_id("w1")).await.unwrap(), Heartbeat::Known);
    rig.cli(&["SET", "towpath:functions", "of another program"]);
    rig.advance_s(10);
    assert_eq!(store.heartbeat(&worker_id("w1")).await.unwrap(), Heartbeat::Known);
    assert_eq!(rig.cli(&["GET", "towpath:functions"]), "of another program", "it is not Towpath's to remove");
    rig.cli(&["DEL", "towpath:functions"]);
    rig.advance_s(10);
    assert_eq!(store.heartbeat(&worker_id("w1")).await.unwrap(), Heartbeat::Known);
    assert_eq!(rig.cli(&["SMEMBERS", "towpath:functions"]), ADD_IN_THE_SET);
}

#[tokio::test]
async fn old_callers_hear_of_a_worker_also_while_another_program_holds_the_set_of_all_functions() {
    let rig = Rig::start();
    let store = rig.open().await;
    register(&store, "w1", &["add"]).await;
    rig.cli(&["SET", "towpath:functions", "of another program"]);
    rig.cli(&["DEL", "function:meta:w1:add", "function:add"]);
    assert_eq!(store.heartbeat(&worker_id("w1")).await.unwrap(), Heartbeat::Known);
    assert_eq!(rig.cli(&["SMEMBERS", "function:add"]), "w1");
}

#[tokio::test]
async fn a_process_that_knows_a_function_puts_it_back_into_the_set_of_all_functions() {
    let rig = Rig::start();
    let store = rig.open().await;
    store.define(definition("add")).await.unwrap();
    assert_eq!(store.functions().await.unwrap().len(), 1);
    rig.cli(&["DEL", "towpath:functions"]);
    assert_eq!(store.functions().await.unwrap().len(), 1, "it is listed");
    assert_eq!(rig.cli(&["SMEMBERS", "towpath:functions"]), ADD_IN_THE_SET);
    assert!(rig.open().await.forget(&function("add")).await.unwrap());
    assert_eq!(store.functions().await.unwrap().len(), 0, "one that another process has forgotten is not put back");
    assert_eq!(rig.cli(&["EXISTS", "towpath:functions"]), "0");
}

#[tokio::test]
async fn a_process_that_starts_finds_functions_without_the_set_of_all_functions() {
    let rig = Rig::start();
    let mut spread = definition("wf-7:spread");
    spread.limits.shards = Some(2);
    for definition in [definition("add"), spread] {
        rig.open().await.define(definition).await.unwrap();
    }
    let members = || rig.cli(&["SORT", "towpath:functions", "ALPHA"]);
    let before = members();
    rig.cli(&["DEL", "towpath:functions"]);
    assert_eq!(rig.open().await.functions().await.unwrap().len(), 2);
    assert_eq!(members(), before);
    rig.cli(&["SET", "towpath:functions", "of another program"]);
    assert_eq!(rig.open().await.functions().await.unwrap().len(), 2, "also while another program holds it");
}

#[tokio::test]
async fn a_set_of_functions_that_another_program_has_replaced_is_named_and_hides_no_other_finding() {
    let server = RedisServer::start();
    let now: i64 = server.cli(&["TIME"]).lines().next().and_then(|line| line.trim().parse().ok()).expect("TIME begins with the seconds");
    server.cli(&["SET", "towpath:functions", "of another program"]);
    server.cli(&["HSET", "towpath:losses", "a-loss", &format!("{} it was flushed", now * 1_000)]);
    let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    let examination = examine(&options, Arc::new(VirtualClock::starting_at(Timestamp::from_millis(now * 1_000)))).await;
    let found = |name: &str| examination.checks.iter().find(|check| check.name == name).expect("it is looked at");
    let kinds = found("kinds of keys");
    assert_eq!(kinds.verdict, Verdict::Fail, "{kinds:#?}");
    assert!(kinds.says.contains("towpath:functions is a string and should be a set"), "{}", kinds.says);
    assert_eq!(found("losses").verdict, Verdict::Fail);
    assert_eq!(examination.checks.iter().find(|check| check.verdict == Verdict::Unknown), None, "the user may look");
}
