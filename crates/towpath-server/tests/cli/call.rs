//! `towpath call`, and following a call to its end.

use nix::sys::signal::Signal;

use crate::support::{Beside, Server, run};

#[test]
fn a_call_prints_its_data_and_nothing_else_on_standard_output() {
    let server = Server::start();
    let ran = server.run(&["call", "add", r#"{"a":1,"b":2}"#]).exits(0);
    assert_eq!(ran.stdout, "3\n");
    let answer = server.run(&["call", "add", r#"{"a":1,"b":2}"#, "--json"]).exits(0).json();
    assert_eq!((&answer["success"], &answer["data"], &answer["durability"]), (&true.into(), &3.into(), &"fsync".into()));
}

#[test]
fn parameters_come_from_the_argument_a_file_or_standard_input() {
    let server = Server::start();
    server.write("params.json", "{\n  \"a\": 20, \"b\": 22\n}\n");
    assert_eq!(server.run(&["call", "add", "@params.json"]).exits(0).stdout, "42\n");
    assert_eq!(server.run_with_input(&["call", "add", "-"], r#"{"a":1,"b":1}"#).exits(0).stdout, "2\n");
    server.run(&["call", "add", "@absent.json"]).exits(2).says("absent.json");
}

#[test]
fn a_mistake_in_the_json_is_shown_with_its_place_and_nothing_is_sent() {
    let server = Server::start();
    let ran = server.run(&["call", "add", r#"{"a": 1, "b": oops}"#]).exits(2).says("line 1 column 15");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let caret = lines.iter().position(|line| line.trim() == "^").expect("a caret points at the mistake");
    assert_eq!(lines[caret].find('^'), lines[caret - 1].find("oops"));
    assert_eq!(server.run(&["calls", "--json"]).exits(0).json()["calls"], serde_json::json!([]));
    let error = server.run(&["--json", "call", "add", "{"]).exits(2).error();
    assert_eq!((&error["code"], &error["effect"]), (&"invalid_json".into(), &"none".into()));
}

#[test]
fn an_unknown_function_exits_3_and_names_the_closest() {
    let server = Server::start();
    let ran = server.run(&["call", "helo", "--wait-for-function", "0"]).exits(3).says("hello");
    assert_eq!(ran.stdout, "");
    let error = server.run(&["call", "helo", "--wait-for-function", "1ms", "--json"]).exits(3).error();
    assert_eq!((&error["code"], &error["details"]["closest"][0]), (&"function_not_found".into(), &"hello".into()));
    server.run(&["call", "zzzzzz", "--wait-for-function", "0"]).exits(3).says("towpath worker NAME --exec CMD");
}

#[test]
fn a_function_that_appears_in_time_is_waited_for() {
    let server = Server::start();
    let caller = Beside::start(server.command(&["call", "later", "{}", "--wait-for-function", "1m"]));
    caller.remark("no function 'later' is known yet");
    let _worker = server.worker("later", &["--exec", "echo '\"at last\"'"]);
    assert_eq!(caller.line("at last"), r#""at last""#);
}

#[test]
fn parameters_that_do_not_fit_exit_2_and_are_named() {
    let server = Server::start();
    server.run(&["call", "add", r#"{"a":"one","b":2}"#]).exits(2).says("'a'");
    let error = server.run(&["call", "add", r#"{"a":1}"#, "--json"]).exits(2).error();
    assert_eq!(error["details"]["problems"][0]["parameter"], "b");
}

#[test]
fn progress_and_failed_attempts_are_told_while_waiting() {
    let server = Server::start();
    server.run(&["call", "slow", r#"{"seconds":1}"#]).exits(0).says(r#"progress: {"of":1,"seconds":1}"#);
    server.run(&["call", "flaky"]).exits(0).says("attempt 1 failed: flaky: the first attempt always fails");
    let quiet = server.run(&["call", "slow", r#"{"seconds":1}"#, "--json"]).exits(0);
    assert_eq!(quiet.stderr, "", "programs get the result and nothing else");
}

#[test]
fn a_call_that_nobody_serves_times_out_with_4_and_says_why() {
    let server = Server::start();
    server.run(&["functions", "define", "orphan"]).exits(0);
    server.run(&["call", "orphan", "--no-wait-for-workers"]).exits(4).says("no_wait_for_workers".replace('_', "-").as_str());
    let ran = server.run(&["call", "orphan", "--timeout", "3s"]).exits(4);
    let ran = ran.says("no worker serves 'orphan' now").says("still waiting for a worker at its deadline");
    assert_eq!(ran.stdout, "");
    let error = server.run(&["call", "orphan", "--timeout", "1ms", "--json"]).exits(4).error();
    assert_eq!(
        (&error["code"], &error["details"]["phase"], &error["effect"]),
        (&"call_timed_out".into(), &"queued".into(), &"none".into())
    );
}

#[test]
fn a_detached_call_prints_its_id_and_can_be_awaited_later() {
    let server = Server::start();
    let id = server.submit("add", r#"{"a":2,"b":3}"#, &[]);
    assert_eq!(server.run(&["calls", "wait", &id]).exits(0).stdout, "5\n");
    let accepted = server.run(&["call", "add", r#"{"a":1,"b":1}"#, "--detach", "--json"]).exits(0).json();
    assert_eq!(accepted["existing"], false);
    let answer = server.run(&["calls", "wait", accepted["call_id"].as_str().unwrap(), "--json"]).exits(0).json();
    assert_eq!(answer["data"], 2);
}

#[test]
fn the_same_key_or_id_is_the_same_call_and_another_content_is_refused() {
    let server = Server::start();
    let sum = |b: &str| format!(r#"{{"a":1,"b":{b}}}"#);
    let first = server.submit("add", &sum("2"), &["--idempotency-key", "order-17"]);
    let again = server.run(&["call", "add", &sum("2"), "--detach", "--idempotency-key", "order-17"]).exits(6);
    assert_eq!(again.stdout.trim(), first);
    let waited = server.run(&["call", "add", &sum("2"), "--idempotency-key", "order-17"]).exits(0).says("was made before");
    assert_eq!(waited.stdout, "3\n");
    server.run(&["call", "add", &sum("9"), "--idempotency-key", "order-17"]).exits(2);

    server.run(&["call", "add", &sum("4"), "--call-id", "mine-1"]).exits(0);
    server.run(&["call", "add", &sum("4"), "--call-id", "mine-1", "--detach"]).exits(6).prints("mine-1");
    assert_eq!(server.call("mine-1")["outcome"]["data"], 5);
}

#[test]
fn ctrl_c_leaves_the_call_alone_and_says_how_to_find_it() {
    let server = Server::start();
    let mut caller = Beside::start(server.command(&["call", "slow", r#"{"seconds":30}"#, "--call-id", "long-1"]));
    caller.remark("progress:");
    caller.signal(Signal::SIGINT);
    assert_eq!(caller.ends().code(), Some(130));
    caller.remark("towpath calls cancel long-1");
    assert_eq!(server.call("long-1")["state"], "running");
}

#[test]
fn a_running_call_can_be_cancelled_and_its_caller_exits_1() {
    let server = Server::start();
    let mut caller = Beside::start(server.command(&["call", "slow", r#"{"seconds":60}"#, "--timeout", "2m", "--call-id", "long-2"]));
    caller.remark("progress:");
    server.run(&["calls", "cancel", "long-2"]).exits(0).prints("requested");
    assert_eq!(caller.ends().code(), Some(1));
    caller.remark("was cancelled");
    server.run(&["calls", "cancel", "long-2"]).exits(6);
    server.run(&["calls", "cancel", "nobody"]).exits(3);
    server.run(&["calls", "wait", "long-2"]).exits(1).says("was cancelled");
}

#[test]
fn waiting_can_be_bounded_without_ending_the_call() {
    let server = Server::start();
    let id = server.submit("slow", r#"{"seconds":60}"#, &[]);
    server.run(&["calls", "wait", &id, "--timeout", "10ms"]).exits(4).says("goes on");
    server.run(&["calls", "cancel", &id]).exits(0);
}

#[test]
fn a_caller_survives_a_crash_of_the_server() {
    let server = Server::start();
    let caller =
        Beside::start(server.command(&["call", "later", "{}", "--wait-for-function", "5s", "--timeout", "2m", "--call-id", "kept-1"]));
    server.run(&["functions", "define", "later"]).exits(0);
    wait_until_queued(&server, "kept-1");
    let (folder, address) = server.crash();
    caller.remark("the call goes on, trying again");
    let server = Server::start_in(folder, &address);
    let _worker = server.worker("later", &["--exec", "echo 7"]);
    assert_eq!(caller.line("7"), "7");
}

fn wait_until_queued(server: &Server, call_id: &str) {
    crate::support::wait_for("the call to be accepted", || {
        Some(server.run(&["calls", "show", call_id, "--json"])).filter(|ran| ran.code == 0)
    });
}

#[test]
fn usage_errors_exit_2_and_speak_json_when_asked() {
    let server = Server::start();
    server.run(&["call"]).exits(2).says("<NAME>");
    server.run(&["call", "add", "{}", "--timeout", "30x"]).exits(2).says("or a number and a unit");
    let error = run(server.command(&["call", "--json"])).exits(2).error();
    assert_eq!(error["code"], "usage");
}

#[test]
fn a_misspelt_option_is_named_with_the_closest_one() {
    let server = Server::start();
    server.run(&["call", "add", "--detatch"]).exits(2).says("'--detatch'").says("'--detach'");
    let _worker = server.worker("same", &["--exec", "cat"]);
    assert_eq!(server.run(&["call", "same", "-5"]).exits(0).stdout, "-5\n", "a negative number is JSON");
    assert_eq!(server.run_with_input(&["call", "same", "-"], "[1]").exits(0).stdout, "[1]\n");
}

#[test]
fn a_call_that_waits_does_not_count_itself() {
    let server = Server::start();
    let _worker = server.worker("slowly", &["--exec", &format!("echo up > up; {}", crate::support::UNTIL_GO)]);
    server.submit("slowly", "{}", &[]);
    server.line_of("up");
    let waiting = Beside::start(server.command(&["call", "slowly"]));
    waiting.remark("waiting: 1 call before it or beside it");
    server.write("go", "");
}

#[test]
fn a_call_that_times_out_is_made_again_as_often_as_asked_for() {
    let server = Server::start();
    let script =
        format!("echo $TOWPATH_CALL_ID >> runs; if [ $(wc -l < runs) -ge 2 ]; then echo 2; else {}; fi", crate::support::ON_AND_ON);
    let _worker = server.worker("laggard", &["--exec", &script]);
    let ran = server.run(&["call", "laggard", "--timeout", "1s", "--retries-on-timeout", "3"]).exits(0).says("calling again in 2 s");
    assert_eq!(ran.stdout, "2\n");
    let runs = std::fs::read_to_string(server.path("runs")).unwrap();
    let ids: Vec<&str> = runs.lines().collect();
    assert!(ids.len() == 2 && ids[0] != ids[1], "each is a call of its own: {ids:?}");
    server.run(&["call", "laggard", "--retries-on-timeout", "1", "--detach"]).exits(2).says("--detach");
    server.run(&["call", "laggard", "--retries-on-timeout", "1", "--call-id", "c"]).exits(2).says("--call-id");
    server.run(&["call", "laggard", "--retries-on-timeout", "11"]).exits(2).says("11");
}
