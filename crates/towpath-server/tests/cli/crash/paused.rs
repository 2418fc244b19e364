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
