//! A thousand calls while the server is killed.

use super::Caller;
use super::witness::{self, PROGRAM};
use crate::support::Server;

const CALLS: usize = 1_000;
const KILLS: usize = 4;

#[test]
fn every_call_that_was_accepted_ends_though_the_server_was_killed() {
    let mut server = Server::start();
    let caller = Caller::new();
    let _worker = server.worker("witness", &["--exec", PROGRAM, "--concurrency", "16", "--lease", "2s"]);
    let ids: Vec<String> = (0..CALLS).map(|number| format!("call-{number}")).collect();
    let mut unfinished_at_a_kill = 0;
    for part in ids.chunks(CALLS / KILLS) {
        for id in part {
            caller.submit(&server.url, "witness", id);
        }
        unfinished_at_a_kill += unfinished(&caller, &server.url, part);
        let (folder, address) = server.crash();
        server = Server::start_in(folder, &address);
    }
    for id in &ids {
        let call = caller.ended(&server.url, id);
        assert_eq!((&call["state"], &call["outcome"]["data"]), (&"completed".into(), &id.as_str().into()), "{call}");
    }
    let runs = witness::runs(server.folder.path());
    assert!(ids.iter().all(|id| runs.contains_key(id)), "what was answered has run");
    assert!(unfinished_at_a_kill > 0, "every call had ended before the server was killed: this run proved nothing");
}

fn unfinished(caller: &Caller, url: &str, ids: &[String]) -> usize {
    let state = |id: &String| caller.get(url, &format!("/v1/calls/{id}")).map(|(_, call)| call["state"].clone());
    ids.iter().rev().take(20).filter(|id| state(id).is_some_and(|state| state != "completed")).count()
}

#[test]
fn a_caller_that_repeats_an_id_after_a_crash_causes_one_run() {
    let server = Server::start();
    let caller = Caller::new();
    let _worker = server.worker("witness", &["--exec", PROGRAM, "--lease", "2s"]);
    caller.submit(&server.url, "witness", "the-one");
    let (folder, address) = server.crash();
    let server = Server::start_in(folder, &address);
    caller.submit(&server.url, "witness", "the-one");
    assert_eq!(caller.ended(&server.url, "the-one")["state"], "completed");
    caller.submit(&server.url, "witness", "the-one");
    let runs = witness::runs(server.folder.path());
    let call = caller.ended(&server.url, "the-one");
    // The crash may have come between a delivery and its worker; such a delivery is counted as a crash and never ran.
    let deliveries = 1 + u32::try_from(call["crashes"].as_u64().unwrap()).unwrap();
    assert!((1..=deliveries).contains(&runs["the-one"]), "{} runs of {deliveries} deliveries", runs["the-one"]);
}
