//! A Cluster of three masters.

use futures_util::StreamExt;
use redis::{Cmd, Value};
use towpath_redis_testing::ClusterRig;

use super::{ask, command, eventually, open, text, try_open, unavailable};
use crate::link::Script;

/// Keys in slots of three nodes, by node.
fn keys(rig: &ClusterRig) -> [String; 3] {
    [0, 1, 2].map(|node| {
        let mut keys = (0..1000).map(|number| format!("towpath:calls:{{function-{number}}}"));
        keys.find(|key| rig.owner_of(key) == node).expect("a thousand keys meet each node")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_all_nodes_are_reached_by_commands_scripts_and_blocking_reads() {
    let rig = ClusterRig::start();
    let keys = keys(&rig);
    let link = open(&rig.url()).await;
    assert!(link.is_cluster());
    for key in &keys {
        assert_eq!(ask(&link, &format!("SET {key} 1")).await, Ok(Value::Okay));
    }
    let mut mixed: Vec<Cmd> = Vec::new();
    for _ in 0..2 {
        for key in &keys {
            mixed.extend([command(&format!("INCR {key}")), command("WAIT 0 0")]);
        }
    }
    let int = |number| vec![Value::Int(number), Value::Int(0)];
    let expected: Vec<Value> = [2, 2, 2, 3, 3, 3].into_iter().flat_map(int).collect();
    assert_eq!(link.ask_all(&mixed).await, Ok(expected));
    let script = Script::new("return redis.call('INCR', KEYS[1])");
    for key in &keys {
        assert_eq!(link.run(&script, &[key], &[]).await, Ok(Value::Int(4)), "no node but one knows the script");
    }
    for (node, key) in keys.iter().enumerate() {
        let list = format!("list:{key}");
        let mut exclusive = link.exclusive(&list).await.unwrap();
        let id = exclusive.id();
        let pop = command(&format!("BLPOP {list} 0"));
        let read = tokio::spawn(async move { (exclusive.ask(&pop).await, exclusive.ask(&pop).await) });
        let blocked = async || rig.nodes[node].cli(&["info", "clients"]).contains("blocked_clients:1");
        eventually("the read blocks on its node", blocked).await;
        ask(&link, &format!("RPUSH {list} x")).await.unwrap();
        let is_empty = async || rig.nodes[node].cli(&["exists", &list]) == "0";
        eventually("the first read is over", is_empty).await;
        eventually("the second read blocks", blocked).await;
        link.unblock(id).await.unwrap();
        let (first, second) = read.await.unwrap();
        assert!(matches!(first, Ok(crate::link::Reply::Array(_))), "{first:?}");
        assert_eq!(second, Ok(crate::link::Reply::Nil));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_on_one_node_is_heard_on_another() {
    let rig = ClusterRig::start();
    let link = open(&rig.url()).await;
    let mut heard = link.subscribed("news").await.unwrap();
    for node in &rig.nodes {
        node.cli(&["publish", "news", "hello"]);
        assert_eq!(heard.on_message().next().await.unwrap().get_payload_bytes(), b"hello");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_followed_while_it_moves_and_when_it_has_moved() {
    let rig = ClusterRig::start();
    let [moving, staying, _] = keys(&rig);
    // Entering through one node is enough.
    let link = open(&format!("redis+cluster://127.0.0.1:{}", rig.nodes[2].port())).await;
    let script = Script::new("return redis.call('INCR', KEYS[1])");
    let slot = rig.nodes[0].cli(&["cluster", "keyslot", &moving]);
    let id = |node: usize| rig.nodes[node].cli(&["cluster", "myid"]);
    rig.nodes[1].cli(&["cluster", "setslot", &slot, "importing", &id(0)]);
    rig.nodes[0].cli(&["cluster", "setslot", &slot, "migrating", &id(1)]);
    assert_eq!(link.run(&script, &[&moving], &[]).await, Ok(Value::Int(1)), "a key that is not there yet is asked for at the new node");
    let both = [command(&format!("INCR {moving}")), command(&format!("INCR {staying}")), command("PING")];
    let replies = link.ask_all(&both).await.unwrap();
    assert_eq!(replies[..2], [Value::Int(2), Value::Int(1)]);
    let mut blocked = link.exclusive(&format!("list:{moving}")).await.unwrap();
    let unreachable = unavailable(blocked.ask(&command(&format!("BLPOP list:{moving} 0"))).await);
    assert!(unreachable.contains("ASK"), "{unreachable}");
    for node in [1, 0, 2] {
        rig.nodes[node].cli(&["cluster", "setslot", &slot, "node", &id(1)]);
    }
    assert_eq!(rig.owner_of(&moving), 1);
    assert_eq!(link.run(&script, &[&moving], &[]).await, Ok(Value::Int(3)));
    assert_eq!(link.ask_all(&both).await.unwrap()[..2], [Value::Int(4), Value::Int(2)]);
    rig.move_slot_of(&moving, 2);
    assert_eq!(link.ask_all(&both).await.unwrap()[..2], [Value::Int(5), Value::Int(3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_read_whose_slot_moves_away_leads_to_the_new_node() {
    let rig = ClusterRig::start();
    let [key, _, _] = keys(&rig);
    let link = open(&rig.url()).await;
    let mut exclusive = link.exclusive(&key).await.unwrap();
    let pop = command(&format!("BLPOP {key} 0"));
    let read = tokio::spawn(async move { exclusive.ask(&pop).await });
    eventually("the read blocks", async || rig.nodes[0].cli(&["info", "clients"]).contains("blocked_clients:1")).await;
    rig.move_slot_of(&key, 1);
    let said = unavailable(read.await.unwrap());
    assert!(said.contains("MOVED"), "{said}");
    let mut exclusive = link.exclusive(&key).await.unwrap();
    ask(&link, &format!("RPUSH {key} x")).await.unwrap();
    assert!(matches!(exclusive.ask(&command(&format!("BLPOP {key} 0"))).await, Ok(crate::link::Reply::Array(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_away_keeps_its_slots_until_it_is_back() {
    let mut rig = ClusterRig::start();
    let keys = keys(&rig);
    let link = open(&rig.url()).await;
    rig.nodes[1].kill();
    eventually("its keys are unavailable", async || {
        matches!(ask(&link, &format!("SET {} 1", keys[1])).await, Err(towpath_core::store::StoreError::Unavailable(_)))
    })
    .await;
    rig.nodes[1].start_again();
    for key in &keys {
        eventually("the key is written", async || ask(&link, &format!("SET {key} back")).await.is_ok()).await;
        assert_eq!(text(&link, &format!("GET {key}")).await, "back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_is_no_cluster() {
    let server = towpath_redis_testing::RedisServer::start();
    let said = unavailable(try_open(&server.url().replace("redis://", "redis+cluster://")).await);
    assert!(said.contains("cluster support disabled"), "{said}");
}
