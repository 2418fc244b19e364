//! A worker whose server goes away, forgets it, or comes back.

use crate::support::{Server, wait_for};

#[test]
fn a_worker_without_a_server_exits_7_at_once() {
    let server = Server::start();
    let (folder, address) = server.crash();
    let mut command = crate::support::towpath(folder.path());
    command.args(["worker", "x", "--exec", "cat", "--server", &format!("http://{address}")]);
    crate::support::run(command).exits(7).says("towpath dev");
}

#[test]
fn a_result_that_could_not_be_sent_is_sent_when_the_server_is_back() {
    let server = Server::start();
    let script = "echo run >> runs; echo up > up; while [ ! -e go ]; do sleep 0.01; done; echo 42; echo down > down";
    let worker = server.worker("patient", &["--exec", script]);
    let id = server.submit("patient", "{}", &[]);
    server.line_of("up");
    let (folder, address) = server.crash();
    worker.event("cut off", |event| event["event"] == "cut_off");
    std::fs::write(folder.path().join("go"), "").unwrap();
    let down = folder.path().join("down");
    wait_for("the program to end", || down.exists().then_some(()));
    let server = Server::start_in(folder, &address);
    assert_eq!(server.run(&["calls", "wait", &id]).exits(0).stdout, "42\n");
    assert_eq!(std::fs::read_to_string(server.path("runs")).unwrap(), "run\n", "it ran once");
    let call = server.call(&id);
    assert_eq!((&call["crashes"], &call["attempt"]), (&0.into(), &1.into()));
}

#[test]
fn a_worker_goes_on_with_a_server_that_was_away() {
    let server = Server::start();
    let _worker = server.worker("upper", &["--exec", "tr a-z A-Z"]);
    let (folder, address) = server.crash();
    let server = Server::start_in(folder, &address);
    let ran = server.run(&["call", "upper", r#"{"text":"again"}"#, "--timeout", "50s"]).exits(0);
    assert_eq!(ran.stdout, "{\"TEXT\":\"AGAIN\"}\n");
}

#[test]
fn a_worker_that_the_server_forgot_registers_again() {
    // A store in memory forgets everything, so the new server has never heard of the worker.
    let server = Server::start_in_memory("127.0.0.1:0");
    let _worker = server.worker("upper", &["--exec", "tr a-z A-Z"]);
    let (_folder, address) = server.crash();
    let server = Server::start_in_memory(&address);
    let ran = server.run(&["call", "upper", r#"{"text":"anew"}"#, "--timeout", "50s", "--wait-for-function", "50s"]).exits(0);
    assert_eq!(ran.stdout, "{\"TEXT\":\"ANEW\"}\n");
}
