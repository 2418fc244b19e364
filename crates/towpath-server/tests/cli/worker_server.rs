//! A worker whose server goes away, forgets it, or comes back.

use nix::sys::signal::Signal;

use crate::support::{Beside, Server, UNTIL_GO, is_alive, wait_for};

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
    let script = format!("echo run >> runs; echo up > up; {UNTIL_GO}; echo 42; echo down > down");
    let worker = server.worker("patient", &["--exec", &script]);
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

/// A worker with a short lease, once its program runs for a call and waits for a file; and the program's process id.
fn holding(server: &Server, call_id: &str) -> (Beside, String) {
    let script = format!("echo $$ > up-$TOWPATH_CALL_ID; {UNTIL_GO}; echo late; echo over > over");
    let worker = server.worker("held", &["--lease", "500ms", "--exec", &script]);
    server.submit("held", "{}", &["--call-id", call_id]);
    let program = server.line_of(&format!("up-{call_id}"));
    (worker, program)
}

#[test]
fn a_call_outlives_a_worker_that_was_killed() {
    let server = Server::start();
    let (killed, program) = holding(&server, "c-1");
    killed.signal(Signal::SIGKILL);
    wait_for("its program to end", || (!is_alive(&program)).then_some(()));
    let _successor = server.worker("held", &["--exec", "echo first"]);
    assert_eq!(server.run(&["calls", "wait", "c-1"]).exits(0).stdout, "\"first\"\n");
    assert_eq!(server.call("c-1")["crashes"], 1);
}

#[test]
fn the_late_answer_of_a_worker_that_stood_still_is_refused() {
    let server = Server::start();
    let (still, _program) = holding(&server, "c-1");
    still.signal(Signal::SIGSTOP);
    let _successor = server.worker("held", &["--exec", "echo first"]);
    assert_eq!(server.run(&["calls", "wait", "c-1"]).exits(0).stdout, "\"first\"\n");
    server.write("go", "");
    server.line_of("over");
    still.signal(Signal::SIGCONT);
    still.event("refused", |event| event["event"] == "refused" && event["delivery_id"] == "1-c-1");
    assert_eq!(server.call("c-1")["outcome"]["data"], "first");
}
