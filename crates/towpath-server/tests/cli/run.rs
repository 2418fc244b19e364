//! `towpath run`, beside a server, with the worker of examples/python-worker.

use serde_json::{Value, json};

use crate::run_worker::Worker;
use crate::support::{Server, wait_for};

/// Starts a run of the example's workflow. Returns its id.
fn start(server: &Server, input: &str, more: &[&str]) -> String {
    let mut command = server.command(&["run", "start", "order@1", "--input", input]);
    command.args(more);
    crate::support::run(command).exits(0).stdout.trim().to_owned()
}

fn show(server: &Server, run_id: &str) -> Value {
    server.run(&["run", "show", run_id, "--json"]).exits(0).json()
}

#[test]
fn a_run_is_started_shown_sent_an_event_and_awaited() {
    let server = Server::start();
    let run_id = start(&server, r#"{"item":"tea","price":3,"ask":true}"#, &["--reference", "order-42"]);
    server.run(&["run", "show", &run_id]).exits(0).prints("no worker is known to serve order@1: start one").prints("order-42");
    let _worker = Worker::start(&server, &[]);
    wait_for("the run to wait", || Some(show(&server, &run_id)).filter(|run| run["state"] == "waiting"));
    server.run(&["run", "show", &run_id]).exits(0).prints("waits for event 'approved', or a timer until");
    server.run(&["run", "ls", "--state", "waiting"]).exits(0).prints("order@1").prints(&run_id);
    server.run(&["run", "wait", &run_id, "--timeout", "100ms"]).exits(4).says("waits for event 'approved'");
    let sent = ["run", "send", run_id.as_str(), "approved", "--data", r#"{"granted":true}"#, "--reference", "click-7"];
    server.run(&sent).exits(0).prints("accepted (fsync)");
    let data = server.run(&["run", "wait", &run_id]).exits(0).json();
    assert_eq!(data, json!({ "reserved": "tea is reserved", "paid": 3, "shipped": "parcel for tea" }));
    server.run(&sent).exits(5).says("has closed");
    server.run(&["run", "show", &run_id, "--journal"]).exits(0).prints("reserve").prints("parcel for tea").prints("close");
    let journal = server.run(&["run", "show", &run_id, "--journal", "--json"]).exits(0).json();
    assert_eq!(journal["journal"].as_array().map(Vec::len), Some(10), "{journal}");
}

#[test]
fn the_same_start_again_is_the_same_run() {
    let server = Server::start();
    let arguments = ["run", "start", "order@1", "--input", r#"{"item":"tea"}"#, "--reference", "r"];
    let first = server.run(&arguments).exits(0).says("no worker is known to have served this workflow");
    let again = server.run(&arguments).exits(6).says("had been started before and is ready");
    assert_eq!(first.stdout, again.stdout);
    let other = ["run", "start", "order@1", "--input", "{}", "--reference", "r"];
    server.run(&other).exits(2).says("another input").says("--return-existing");
    let mut taken = other.to_vec();
    taken.push("--return-existing");
    assert_eq!(server.run(&taken).exits(6).stdout, first.stdout);
}

#[test]
fn a_run_that_does_not_end_well_is_a_failure() {
    let server = Server::start();
    let _worker = Worker::start(&server, &[]);
    let failed = server.run(&["run", "start", "order@1", "--input", "{}", "--wait", "--json"]).exits(1);
    assert_eq!((&failed.error()["code"], &failed.error()["details"]["error"]["code"]), (&json!("run_failed"), &json!("KeyError")));
    let waiting = start(&server, r#"{"item":"tea","ask":true}"#, &[]);
    wait_for("the run to wait", || Some(show(&server, &waiting)).filter(|run| run["state"] == "waiting"));
    server.run(&["run", "cancel", &waiting, "--reason", "not wanted"]).exits(0).prints("requested");
    server.run(&["run", "wait", &waiting]).exits(1).says("was cancelled");
    server.run(&["run", "cancel", &waiting]).exits(6).prints("had closed before");
}

#[test]
fn runs_are_paused_resumed_and_terminated() {
    let server = Server::start();
    let (one, two) = (start(&server, "1", &[]), start(&server, "2", &["--delay", "1h"]));
    server.run(&["run", "show", &two]).exits(0).prints("starts at ");
    server.run(&["run", "pause", &one, &two]).exits(0).prints("paused: run");
    server.run(&["run", "show", &one]).exits(0).prints(&format!("paused: go on with `towpath run resume {one}`"));
    server.run(&["run", "resume", &one]).exits(0).prints("resumed: run");
    server.run(&["run", "terminate", &one, &two, "--reason", "enough"]).exits(0).prints("terminated: run");
    server.run(&["run", "show", &one]).exits(0).prints("enough");
    server.run(&["run", "resume", &two]).exits(6);
}

#[test]
fn a_filter_means_all_runs_that_it_matches_and_wants_a_yes() {
    let server = Server::start();
    let (one, two) = (start(&server, "1", &[]), start(&server, "2", &[]));
    let other = server.run(&["run", "start", "mail@1"]).exits(0).stdout.trim().to_owned();
    server.run(&["run", "pause", "--workflow", "order"]).exits(2).says("2 runs would be asked to pause; nothing was done");
    assert_eq!(show(&server, &one)["paused"], false);
    let paused = server.run(&["run", "terminate", "--workflow", "order@1", "--yes"]).exits(0);
    assert!(paused.stdout.contains(&one) && paused.stdout.contains(&two) && !paused.stdout.contains(&other), "{}", paused.stdout);
    server.run(&["run", "terminate", "--workflow", "order", "--yes"]).exits(3).says("no run matches");
    assert_eq!(show(&server, &other)["state"], "ready");
    server.run(&["run", "cancel", &other, "--workflow", "order"]).exits(2);
}

#[test]
fn an_export_is_written_to_a_file_that_was_not_there() {
    let server = Server::start();
    let run_id = start(&server, r#"{"item":"tea"}"#, &[]);
    server.run(&["run", "export", &run_id, "-o", "run.ndjson"]).exits(0).says("3 lines written");
    let text = std::fs::read_to_string(server.path("run.ndjson")).unwrap();
    assert_eq!(server.run(&["run", "export", &run_id]).exits(0).stdout, text);
    server.run(&["run", "export", &run_id, "-o", "run.ndjson"]).exits(2).says("cannot be written");
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let server = Server::start();
    let no_run = "0123456789-0123456789abcdefghjkmnpqrs";
    server.run(&["run", "show", no_run]).exits(3).says("towpath run ls");
    server.run(&["run", "show", "nonsense"]).exits(2).says("is not the id of a run");
    server.run(&["run", "wait", no_run]).exits(3);
    server.run(&["run", "export", no_run]).exits(3);
    server.run(&["run", "send", no_run, "approved"]).exits(3);
    server.run(&["run", "send", no_run, ""]).exits(2).says("event name is empty");
    server.run(&["run", "start", "order"]).exits(3).says("NAME@VERSION");
    server.run(&["run", "start", "order@1", "--input", "{"]).exits(2).says("is not JSON");
    server.run(&["run", "start", "order@1", "--delay", "8d"]).exits(2).says("out of range");
    server.run(&["run", "start", "order@1", "--return-existing"]).exits(2).says("--reference");
    server.run(&["run", "ls", "--state", "queued"]).exits(2).says("'queued' is no state of a run");
    server.run(&["run", "ls", "--cause", "luck"]).exits(2).says("nondeterminism");
    server.run(&["run", "ls"]).exits(0).says("no run matches");
    server.run(&["run", "cancel"]).exits(2);
}
