//! The rigs do what they say: servers start, come back and end, Sentinels elect, a Cluster shares its slots.

use std::path::PathBuf;
use std::time::Duration;

use towpath_redis_testing::{ClusterRig, FaultProxy, RedisServer, SentinelRig, until};

fn is_alive(process_id: u32) -> bool {
    PathBuf::from(format!("/proc/{process_id}")).exists()
}

#[test]
fn a_server_answers_and_ends_with_its_owner() {
    let server = RedisServer::start();
    assert_eq!(server.cli(&["ping"]), "PONG");
    let process_id = server.process_id();
    drop(server);
    assert!(!is_alive(process_id));
}

#[test]
fn a_server_ends_with_a_test_that_panics() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let server = RedisServer::start();
        sender.send(server.process_id()).expect("somebody listens");
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert!(!is_alive(receiver.recv().expect("it started")));
}

#[test]
fn a_server_with_a_file_keeps_what_it_has_over_a_kill() {
    let mut server = RedisServer::build().append_only("always").databases(2).start();
    server.cli(&["-n", "1", "set", "a", "kept"]);
    server.kill();
    assert!(server.try_cli(&["ping"]).is_err());
    server.start_again();
    assert_eq!(server.cli(&["-n", "1", "get", "a"]), "kept");
    server.restart();
    assert_eq!(server.cli(&["-n", "1", "get", "a"]), "kept");
    assert!(server.cli(&["select", "2"]).contains("out of range"));
}

#[test]
fn a_server_with_password_user_and_tls_is_reached_by_its_own_cli() {
    let server = RedisServer::build().password("secret").user("app", "on >word ~* +@all -config").tls().start();
    assert_eq!(server.cli(&["ping"]), "PONG");
    assert!(server.url().starts_with("rediss://127.0.0.1:"));
    assert!(server.cli(&["acl", "getuser", "app"]).contains("-config"));
}

#[test]
fn a_paused_server_answers_when_it_goes_on() {
    let server = RedisServer::start();
    server.pause();
    let state = std::fs::read_to_string(format!("/proc/{}/stat", server.process_id())).expect("it is there");
    assert!(state.contains(") T "), "{state}");
    server.resume();
    assert_eq!(server.cli(&["ping"]), "PONG");
}

#[test]
fn sentinels_make_the_replica_the_master_when_the_master_is_killed() {
    let mut rig = SentinelRig::start();
    let dead = rig.kill_master();
    rig.wait_for_other_master(dead);
    let now = &rig.servers[rig.master()];
    until("the new master writes", Duration::from_secs(20), || now.cli(&["set", "a", "1"]) == "OK");
}

#[test]
fn a_cluster_shares_its_slots_and_moves_them() {
    let rig = ClusterRig::start();
    let owners: std::collections::BTreeSet<usize> = ["a", "b", "c", "d", "e"].iter().map(|key| rig.owner_of(key)).collect();
    assert_eq!(owners.len(), 3, "five keys should not all lie on {owners:?}");
    let from = rig.owner_of("a");
    rig.nodes[from].cli(&["set", "a", "moved"]);
    let to = (from + 1) % 3;
    rig.move_slot_of("a", to);
    assert_eq!(rig.owner_of("a"), to);
    assert_eq!(rig.nodes[to].cli(&["get", "a"]), "moved");
}

#[test]
fn a_proxy_passes_stalls_cuts_and_refuses() {
    use std::io::{Read, Write};
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.port());
    let connect = || {
        let stream = std::net::TcpStream::connect(("127.0.0.1", proxy.port())).expect("the proxy listens");
        stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a time limit");
        stream
    };
    let ask = |stream: &mut std::net::TcpStream, line: &str| -> Option<String> {
        stream.write_all(line.as_bytes()).ok()?;
        let mut answer = [0; 100];
        let count = stream.read(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer[..count]).into_owned())
    };
    let mut stream = connect();
    assert_eq!(ask(&mut stream, "PING\r\n").as_deref(), Some("+PONG\r\n"));
    proxy.stall();
    assert_eq!(ask(&mut stream, "PING\r\n"), None, "an answer came through");
    proxy.pass();
    assert_eq!(ask(&mut stream, "ECHO x\r\n").as_deref().map(|said| said.starts_with("+PONG")), Some(true), "what was held back is lost");
    proxy.cut();
    assert!(matches!(ask(&mut stream, "PING\r\n").as_deref(), None | Some("")), "the connection lives");
    let mut stream = connect();
    proxy.cut_before_answer();
    assert!(matches!(ask(&mut stream, "SET done yes\r\n").as_deref(), None | Some("")), "the answer came through");
    assert_eq!(server.cli(&["get", "done"]), "yes");
    let mut mute = connect();
    assert_eq!(ask(&mut mute, "PING\r\n").as_deref(), Some("+PONG\r\n"));
    proxy.swallow();
    assert_eq!(ask(&mut mute, "SET lost yes\r\n"), None, "swallowed bytes came through");
    proxy.pass();
    assert_eq!(ask(&mut mute, "PING\r\n"), None, "a connection that lost bytes speaks again");
    assert_eq!(server.cli(&["exists", "lost"]), "0");
    assert_eq!(ask(&mut connect(), "PING\r\n").as_deref(), Some("+PONG\r\n"));
    proxy.refuse();
    assert!(matches!(ask(&mut connect(), "PING\r\n").as_deref(), None | Some("")), "a connection was taken");
    assert_eq!(proxy.accepted(), 5);
}
