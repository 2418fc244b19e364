//! The worker of examples/python-worker, killed in the middle of a task: each step has one recorded result all the same.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Beside, Server};

/// The example, as a process.
pub(crate) struct Worker {
    process: Beside,
    /// As the server knows it.
    pub(crate) id: String,
}

impl Worker {
    /// Starts it with these variables, and waits until it serves.
    pub(crate) fn start(server: &Server, variables: &[(&str, &str)]) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python-worker/worker.py");
        let mut command = Command::new("python3");
        command.arg(program).arg(&server.url).envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = Beside::start(command);
        let serving = process.event("serving", |event| event["event"] == "serving");
        Self { process, id: serving["worker"].as_str().unwrap().to_owned() }
    }

    /// Waits until it has begun a task.
    fn begins(&self, task: &str) {
        self.process.event(task, |event| event["event"] == "task" && event["name"] == task);
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        self.process.signal(signal);
    }
}

/// How many entries of each kind a journal has for each step: `(name, open, done)`.
fn steps(run: &Value) -> Vec<(String, usize, usize)> {
    let journal = run["journal"].as_array().unwrap();
    let opened = journal.iter().filter(|entry| entry["kind"] == "open");
    opened
        .map(|open| {
            let count = |kind: &str| journal.iter().filter(|entry| entry["kind"] == kind && entry["step_id"] == open["step_id"]).count();
            (open["body"]["name"].as_str().unwrap().to_owned(), count("open"), count("done"))
        })
        .collect()
}

fn start(server: &Server) -> String {
    let input = r#"{"item":"tea","price":3}"#;
    server.run(&["run", "start", "order@1", "--input", input]).exits(0).stdout.trim().to_owned()
}

fn journal(server: &Server, run_id: &str) -> Value {
    server.run(&["run", "show", run_id, "--journal", "--json"]).exits(0).json()
}

#[test]
fn a_worker_that_is_killed_in_a_task_leaves_one_result_per_step() {
    let server = Server::start();
    let first = Worker::start(&server, &[("LEASE_MS", "1000"), ("CHARGE_SECONDS", "600")]);
    let run_id = start(&server);
    first.begins("charge");
    assert_eq!(steps(&journal(&server, &run_id)), [("reserve".to_owned(), 1, 1)]);
    first.signal(nix::sys::signal::Signal::SIGKILL);
    let second = Worker::start(&server, &[("LEASE_MS", "1000")]);
    let data = server.run(&["run", "wait", &run_id, "--timeout", "60s"]).exits(0).json();
    assert_eq!(data, json!({ "reserved": "tea is reserved", "paid": 3, "shipped": "parcel for tea" }));
    second.begins("charge"); // the result of the first one was never recorded
    second.begins("ship");
    let run = journal(&server, &run_id);
    assert_eq!(steps(&run), [("reserve".to_owned(), 1, 1), ("charge".to_owned(), 1, 1), ("ship".to_owned(), 1, 1)]);
    assert_eq!((&run["state"], &run["deliveries"]), (&json!("completed"), &json!(0)));
}

#[test]
fn a_worker_that_stood_still_cannot_write_over_its_successor() {
    let server = Server::start();
    let paused = Worker::start(&server, &[("LEASE_MS", "1000"), ("CHARGE_SECONDS", "5")]);
    let run_id = start(&server);
    paused.begins("charge");
    paused.signal(nix::sys::signal::Signal::SIGSTOP);
    let successor = Worker::start(&server, &[("LEASE_MS", "1000")]);
    server.run(&["run", "wait", &run_id, "--timeout", "60s"]).exits(0);
    let before = journal(&server, &run_id);
    paused.signal(nix::sys::signal::Signal::SIGCONT);
    let late = paused.process.event("refused", |event| event["event"] == "done");
    assert_eq!(late["refused"][0]["result"], "lost", "{late}");
    assert_eq!(journal(&server, &run_id), before);
    assert!(!successor.id.is_empty() && successor.id != paused.id);
}

#[test]
fn a_worker_that_is_asked_to_stop_releases_its_run_at_once() {
    let server = Server::start();
    let mut first = Worker::start(&server, &[("LEASE_MS", "600000"), ("CHARGE_SECONDS", "600")]);
    let run_id = start(&server);
    first.begins("charge");
    first.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(first.process.ends().success());
    let _second = Worker::start(&server, &[]);
    server.run(&["run", "wait", &run_id, "--timeout", "60s"]).exits(0);
}

#[test]
fn a_run_goes_on_after_the_server_was_killed() {
    let server = Server::start();
    let worker = Worker::start(&server, &[("LEASE_MS", "1000"), ("CHARGE_SECONDS", "1")]);
    let run_id = start(&server);
    worker.begins("charge");
    let (folder, listen) = server.crash();
    let server = Server::start_in(folder, &listen);
    let data = server.run(&["run", "wait", &run_id, "--timeout", "60s"]).exits(0).json();
    assert_eq!(data["paid"], 3);
    let run = journal(&server, &run_id);
    assert_eq!(steps(&run), [("reserve".to_owned(), 1, 1), ("charge".to_owned(), 1, 1), ("ship".to_owned(), 1, 1)]);
}
