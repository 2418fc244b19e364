//! Output that cannot be written: what it was about stands on standard error.

use std::fs::File;
use std::process::Stdio;

use crate::support::{Ran, Server, run};

/// Runs a command whose standard output is a full disk.
fn on_full_disk(server: &Server, arguments: &[&str]) -> Ran {
    let full = File::options().write(true).open("/dev/full").expect("the system has /dev/full");
    let mut command = server.command(arguments);
    command.stdout(Stdio::from(full));
    run(command)
}

#[test]
fn what_cannot_be_written_is_an_error_that_names_the_call() {
    let server = Server::start();
    on_full_disk(&server, &["call", "add", r#"{"a":1,"b":2}"#, "--detach", "--call-id", "sum-1"]).exits(1).says("error:").says("sum-1");
    on_full_disk(&server, &["call", "add", r#"{"a":1,"b":2}"#, "--call-id", "sum-2"]).exits(1).says("error:").says("sum-2");
    on_full_disk(&server, &["calls", "wait", "sum-1"]).exits(1).says("sum-1");
    let error = on_full_disk(&server, &["call", "add", r#"{"a":1,"b":2}"#, "--call-id", "sum-3", "--json"]).exits(1).error();
    assert_eq!(error["code"], "output_not_written");
    assert!(error["message"].as_str().unwrap().contains("sum-3"), "{error}");
}

#[test]
fn what_cannot_be_written_is_an_error_that_names_the_fence() {
    let server = Server::start();
    let said = on_full_disk(&server, &["lock", "acquire", "excel", "--lock-id", "me"]).exits(1).says("error:").stderr;
    let held = server.run(&["lock", "show", "excel", "--json"]).exits(0).json()["holder"]["fence"].to_string();
    assert!(said.contains(&held), "fence {held}: {said}");
}
