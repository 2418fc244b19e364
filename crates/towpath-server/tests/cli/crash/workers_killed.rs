//! A thousand calls while workers are killed and paused.

use nix::sys::signal::Signal;

use super::Caller;
use super::careless::Careless;
use super::witness::{self, PROGRAM};
use crate::support::{Beside, Server, wait_for};

const CALLS: usize = 1_000;

fn worker(server: &Server) -> Beside {
    server.worker("witness", &["--exec", PROGRAM, "--concurrency", "8", "--lease", "1s"])
}

/// Waits until a program of this worker has noted that it runs.
fn runs_a_program(server: &Server, worker: &Beside) {
    let started = worker.event("started", |event| event["event"] == "started");
    let call_id = started["call_id"].as_str().unwrap();
    wait_for("its program to run", || witness::runs(server.folder.path()).contains_key(call_id).then_some(()));
}

#[test]
fn a_thousand_calls_end_once_each_while_workers_are_killed_and_paused() {
    let server = Server::start();
    let caller = Caller::new();
    let ids: Vec<String> = (0..CALLS).map(|number| format!("call-{number}")).collect();
    caller.define(&server.url, "witness");
    for id in &ids {
        caller.submit(&server.url, "witness", id);
    }
    let careless = Careless::start(&server, "witness");
    careless.claimed(&server);
    careless.process.signal(Signal::SIGSTOP);
    let (mut doomed, paused, _steady) = (worker(&server), worker(&server), worker(&server));
    for _ in 0..3 {
        // Killed while a program runs, and its program with it: another worker runs the call again.
        runs_a_program(&server, &doomed);
        doomed.signal(Signal::SIGKILL);
        doomed = worker(&server);
    }
    runs_a_program(&server, &paused);
    paused.signal(Signal::SIGSTOP);
    let reclaims = || caller.counter(&server, "towpath_reclaims_total");
    let before = reclaims();
    wait_for("the calls of the paused worker to be taken back", || (reclaims() > before).then_some(()));
    paused.signal(Signal::SIGCONT);

    let mut crashes = 0;
    for id in &ids {
        let call = caller.ended(&server.url, id);
        assert_eq!(call["state"], "completed", "{call}");
        assert_eq!(call["outcome"]["data"], id.as_str(), "each call has its own answer");
        assert_eq!(caller.ended(&server.url, id)["outcome"], call["outcome"], "every reader sees the same");
        crashes += call["crashes"].as_u64().unwrap();
    }
    careless.process.signal(Signal::SIGCONT);
    assert_eq!(careless.answers(&server)["result"], "lost", "the late answer is refused");
    let runs = witness::runs(server.folder.path());
    assert!(ids.iter().all(|id| runs.contains_key(id)), "what was answered has run");
    assert!(crashes > 0 && reclaims() > 0.0, "no lease ran out: this run proved nothing");
    assert!(runs.values().any(|times| *times > 1), "no call ran twice: nobody was killed in the middle, this run proved nothing");
    assert!(caller.counter(&server, "towpath_lost_leases_total") > 0.0, "no late answer was refused: this run proved nothing");
}
