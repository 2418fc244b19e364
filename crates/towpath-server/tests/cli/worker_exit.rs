//! How a program's end becomes a call's end: exit codes, deadlines, cancellation, and what is left of its processes.

use nix::sys::signal::Signal;

use crate::support::{ON_AND_ON, Server, UNTIL_GO, is_alive, wait_for};

#[test]
fn a_failing_program_fails_the_call_with_its_exit_code_and_the_end_of_its_stderr() {
    let server = Server::start();
    let _worker = server.worker("fail", &["--max-attempts", "1", "--exec", "seq 5000 >&2; echo 'no such order' >&2; exit 3"]);
    let ran = server.run(&["call", "fail"]).exits(1).says("exit_3").says("no such order").says("dlq replay");
    assert_eq!(ran.stdout, "");
    let error = server.run(&["call", "fail", "--json"]).exits(1).error();
    let message = error["details"]["error"]["message"].as_str().unwrap();
    assert_eq!((&error["code"], &error["details"]["error"]["code"]), (&"call_failed".into(), &"exit_3".into()));
    assert!(message.ends_with("5000\nno such order") && message.len() <= 4_096, "{} bytes: {message}", message.len());
}

#[test]
fn a_program_is_tried_again_unless_it_says_that_this_is_useless() {
    let server = Server::start();
    let _again = server.worker("again", &["--exec", "echo $TOWPATH_ATTEMPT >> attempts; [ $TOWPATH_ATTEMPT = 2 ] && echo 2"]);
    let ran = server.run(&["call", "again"]).exits(0).says("attempt 1 failed: exit_1").says("next attempt in");
    assert_eq!(ran.stdout, "2\n");
    let _final = server.worker("bad", &["--exec", "echo x >> tries; echo 'not a number' >&2; exit 65"]);
    server.run(&["call", "bad"]).exits(1).says("exit_65: not a number");
    assert_eq!(std::fs::read_to_string(server.path("tries")).unwrap(), "x\n", "it ran once");
    assert_eq!(server.run(&["dlq", "list", "--json"]).exits(0).json()["calls"], serde_json::json!([]), "a final failure is no dead letter");
}

#[test]
fn a_program_ended_by_a_signal_says_by_which() {
    let server = Server::start();
    let _worker = server.worker("shot", &["--max-attempts", "1", "--exec", "kill -SEGV $$"]);
    let error = server.run(&["call", "shot", "--json"]).exits(1).error();
    assert_eq!(error["details"]["error"]["code"], "killed_by_signal");
    assert!(error["details"]["error"]["message"].as_str().unwrap().contains("SIGSEGV"));
}

#[test]
fn too_much_output_ends_the_program_and_fails_for_good() {
    let server = Server::start();
    let _worker = server.worker("flood", &["--exec", "echo $$ > flood.pid; yes"]);
    let error = server.run(&["call", "flood", "--json"]).exits(1).error();
    assert_eq!(error["details"]["error"]["code"], "output_too_large");
    let pid = server.line_of("flood.pid");
    wait_for("the program to end", || (!is_alive(&pid)).then_some(()));
}

/// A program with a child of its own that ignores SIGTERM: only the group's SIGKILL ends it.
fn stubborn() -> String {
    format!("sh -c 'trap \"\" TERM; echo $$ > child.pid; {ON_AND_ON}' & echo $$ > leader.pid; wait")
}

#[test]
fn at_the_deadline_the_whole_process_group_is_ended() {
    let server = Server::start();
    let worker = server.worker("stubborn", &["--exec", &stubborn()]);
    let id = server.submit("stubborn", "{}", &["--timeout", "1s"]);
    let (leader, child) = (server.line_of("leader.pid"), server.line_of("child.pid"));
    assert!(is_alive(&child));
    assert_eq!(server.call_in_state(&id, "timed_out")["outcome"]["kind"], "timed_out");
    wait_for("the leader to end", || (!is_alive(&leader)).then_some(()));
    wait_for("its child to end", || (!is_alive(&child)).then_some(()));
    worker.event("deadline", |event| event["event"] == "ended" && event["result"] == "deadline");
    server.run(&["calls", "wait", &id]).exits(4).says("still running at its deadline");
}

#[test]
fn on_cancel_the_whole_process_group_is_ended_and_the_call_is_cancelled() {
    let server = Server::start();
    let worker = server.worker("stubborn", &["--exec", &stubborn()]);
    let id = server.submit("stubborn", "{}", &[]);
    let child = server.line_of("child.pid");
    server.run(&["calls", "cancel", &id]).exits(0).prints("requested");
    server.call_in_state(&id, "cancelled");
    wait_for("the child to end", || (!is_alive(&child)).then_some(()));
    worker.event("cancelled", |event| event["event"] == "ended" && event["result"] == "cancelled");
}

#[test]
fn a_program_may_clean_up_when_it_is_asked_to_stop() {
    let server = Server::start();
    let script = format!("trap 'echo cleaned > cleaned; exit 0' TERM; echo up > up; {ON_AND_ON}");
    let _worker = server.worker("tidy", &["--exec", &script]);
    let id = server.submit("tidy", "{}", &[]);
    server.line_of("up");
    server.run(&["calls", "cancel", &id]).exits(0);
    assert_eq!(server.line_of("cleaned"), "cleaned");
    server.call_in_state(&id, "cancelled");
}

#[test]
fn what_a_program_leaves_behind_ends_with_its_call() {
    let server = Server::start();
    let _worker = server.worker("leaky", &["--exec", "sleep 1000 > /dev/null 2>&1 & echo $! > left.pid; echo 1"]);
    assert_eq!(server.run(&["call", "leaky"]).exits(0).stdout, "1\n");
    let left = server.line_of("left.pid");
    wait_for("the forgotten process to end", || (!is_alive(&left)).then_some(()));
}

#[test]
fn a_process_that_left_the_group_and_keeps_the_pipes_does_not_hold_the_call_up() {
    let server = Server::start();
    let _worker = server.worker("escape", &["--exec", "setsid sh -c 'echo $$ > escaped.pid; sleep 20' & echo 1"]);
    assert_eq!(server.run(&["call", "escape"]).exits(0).stdout, "1\n");
    assert_eq!(server.run(&["call", "escape"]).exits(0).stdout, "1\n", "its place is free again");
}

#[test]
fn a_leaving_worker_finishes_what_runs_and_takes_nothing_new() {
    let server = Server::start();
    let script = format!("echo up > up-$TOWPATH_CALL_ID; {UNTIL_GO}; echo finished");
    let mut worker = server.worker("drain", &["--exec", &script]);
    let (first, second) = (server.submit("drain", "{}", &["--call-id", "first"]), server.submit("drain", "{}", &["--call-id", "second"]));
    server.line_of("up-first");
    worker.signal(Signal::SIGTERM);
    worker.event("draining", |event| event["event"] == "draining" && event["running"] == 1);
    server.write("go", "");
    assert_eq!(worker.ends().code(), Some(0));
    let left = worker.event("left", |event| event["event"] == "left");
    assert_eq!((&left["finished"], &left["handed_back"]), (&1.into(), &0.into()));
    assert_eq!(server.call(&first)["outcome"]["data"], "finished");
    assert_eq!(server.call(&second)["state"], "queued");
    assert!(!server.run(&["workers"]).exits(0).stdout.contains("exec"), "it has signed off");
}

#[test]
fn what_takes_too_long_to_finish_is_handed_back_unharmed() {
    let server = Server::start();
    let endless = format!("echo $$ > up; {ON_AND_ON}");
    let mut worker = server.worker("long", &["--drain-timeout", "10ms", "--exec", &endless]);
    let id = server.submit("long", "{}", &[]);
    let pid = server.line_of("up");
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ends().code(), Some(0));
    assert!(!is_alive(&pid), "its program is gone before the call is another's");
    assert_eq!(worker.event("left", |event| event["event"] == "left")["handed_back"], 1);
    let call = server.call(&id);
    assert_eq!((&call["state"], &call["failures"], &call["crashes"]), (&"queued".into(), &0.into(), &0.into()));
    let _successor = server.worker("long", &["--exec", "echo 5"]);
    assert_eq!(server.run(&["calls", "wait", &id]).exits(0).stdout, "5\n");
}

#[test]
fn a_second_signal_does_not_wait() {
    let server = Server::start();
    let mut worker = server.worker("long", &["--drain-timeout", "1h", "--exec", &format!("echo up > up; {ON_AND_ON}")]);
    let id = server.submit("long", "{}", &[]);
    server.line_of("up");
    worker.signal(Signal::SIGINT);
    worker.event("draining", |event| event["event"] == "draining");
    worker.signal(Signal::SIGINT);
    assert_eq!(worker.ends().code(), Some(0));
    assert_eq!(server.call(&id)["state"], "queued");
}
