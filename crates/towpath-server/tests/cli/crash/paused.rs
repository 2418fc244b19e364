//! A worker that stands still past its lease and comes back.

use nix::sys::signal::Signal;

use super::Caller;
use super::careless::Careless;
use crate::support::Server;

#[test]
fn the_late_answer_of_a_paused_worker_is_refused_and_the_caller_saw_one_outcome() {
    let server = Server::start();
    let caller = Caller::new();
    let careless = Careless::start(&server, "slow-one");
    let id = server.submit("slow-one", "{}", &["--timeout", "60s", "--wait-for-function", "50s"]);
    assert_eq!(careless.claimed(&server), format!("1-{id}"));
    careless.process.signal(Signal::SIGSTOP);
    let _other = server.worker("slow-one", &["--exec", r#"echo '"from the other"'"#]);
    let seen = caller.ended(&server.url, &id);
    assert_eq!(seen["outcome"]["data"], "from the other", "{seen}");
    assert_eq!(seen["crashes"], 1, "the lease of the paused worker ran out");

    careless.process.signal(Signal::SIGCONT);
    let refused = careless.answers(&server);
    assert_eq!((&refused["result"], &refused["reason"]), (&"lost".into(), &"ended".into()), "{refused}");
    assert_eq!(caller.ended(&server.url, &id)["outcome"], seen["outcome"], "the late answer changed nothing");
    assert!(caller.counter(&server, "towpath_lost_leases_total") > 0.0);
}

#[test]
fn a_worker_that_was_paused_stops_the_program_whose_call_it_lost() {
    let server = Server::start();
    let caller = Caller::new();
    let slow = "echo up > up; while [ -e up ]; do sleep 0.01; done; echo never > never";
    let paused = server.worker("slow-one", &["--exec", slow, "--lease", "1s"]);
    let id = server.submit("slow-one", "{}", &["--timeout", "60s"]);
    server.line_of("up");
    paused.signal(Signal::SIGSTOP);
    let _other = server.worker("slow-one", &["--exec", r#"echo '"from the other"'"#]);
    assert_eq!(caller.ended(&server.url, &id)["outcome"]["data"], "from the other");
    paused.signal(Signal::SIGCONT);
    paused.event("lost", |event| event["event"] == "ended" && event["result"] == "lost");
    assert!(!server.path("never").exists());
}

#[test]
fn a_worker_that_was_paused_does_not_start_a_call_that_it_claimed_before_and_lost() {
    let server = Server::start();
    let paused = server.worker("once", &["--lease", "3s", "--exec", "echo paused >> runs; echo '\"from the paused\"'"]);
    // While its first program runs, the worker asks for the next call already. So its claim waits at the server, which gives it the
    // second call although the process stands still.
    server.run(&["call", "once"]).exits(0);
    paused.event("the end of the first", |event| event["event"] == "ended");
    paused.signal(Signal::SIGSTOP);
    let id = server.submit("once", "{}", &["--timeout", "60s"]);
    server.call_in_state(&id, "running");
    let _other = server.worker("once", &["--exec", "echo other >> runs; echo '\"from the other\"'"]);
    assert_eq!(server.run(&["calls", "wait", &id]).exits(0).stdout, "\"from the other\"\n");
    paused.signal(Signal::SIGCONT);
    paused.event("dropped", |event| event["event"] == "dropped" && event["call_id"] == id.as_str());
    assert_eq!(std::fs::read_to_string(server.path("runs")).unwrap(), "paused\nother\n");
    assert_eq!(server.call(&id)["crashes"], 1);
}

#[test]
fn a_claim_that_waited_longer_than_the_lease_is_confirmed_and_started() {
    let server = Server::start();
    let paused = server.worker("late", &["--lease", "300ms", "--exec", "echo 1"]);
    paused.signal(Signal::SIGSTOP);
    std::thread::park_timeout(std::time::Duration::from_millis(600)); // the length itself is what is tested: the claim is older than a lease
    paused.signal(Signal::SIGCONT);
    assert_eq!(server.run(&["call", "late"]).exits(0).stdout, "1\n");
    assert_eq!(server.run(&["calls", "ls", "--function", "late", "--json"]).exits(0).json()["calls"][0]["crashes"], 0);
}
