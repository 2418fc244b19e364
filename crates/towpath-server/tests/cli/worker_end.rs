//! A worker that ends in bad order, or whose terminal or log is gone: its programs end with it, or go on with it.

use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Beside, ON_AND_ON, Server, UNTIL_GO, is_alive, wait_for};

/// A program with a child in a pipe and one in a session of its own; the process ids are in the files.
fn family() -> String {
    format!(
        "setsid sh -c 'echo $$ > session.pid; {ON_AND_ON}' & sh -c 'echo $$ > child.pid; {ON_AND_ON}' | cat & \
         echo $PPID > guard.pid; echo $$ > leader.pid; wait"
    )
}

/// The process ids of the family, once all of it runs: leader, child, session, guard.
fn members(server: &Server) -> [String; 4] {
    ["leader.pid", "child.pid", "session.pid", "guard.pid"].map(|name| server.line_of(name))
}

fn all_end(pids: &[String]) {
    for pid in pids {
        wait_for("the program and all that it started to end", || (!is_alive(pid)).then_some(()));
    }
}

#[test]
fn a_program_and_all_that_it_started_end_with_a_worker_that_is_killed() {
    let server = Server::start();
    let worker = server.worker("family", &["--exec", &family()]);
    server.submit("family", "{}", &[]);
    let members = members(&server);
    assert!(members.iter().all(|pid| is_alive(pid)));
    worker.signal(Signal::SIGKILL);
    all_end(&members);
}

#[test]
fn a_program_whose_guard_is_killed_is_stopped_and_the_call_fails() {
    let server = Server::start();
    let _worker = server.worker("family", &["--max-attempts", "1", "--exec", &family()]);
    let id = server.submit("family", "{}", &[]);
    let [leader, child, _session, guard] = members(&server);
    kill(Pid::from_raw(guard.parse().unwrap()), Signal::SIGKILL).unwrap();
    all_end(&[leader, child]);
    assert_eq!(server.call_in_state(&id, "dead")["outcome"]["error"]["code"], "program_unwatched");
}

#[test]
fn a_program_that_cannot_be_started_fails_the_call_and_says_why() {
    let server = Server::start();
    server.write("tool", "#!/bin/sh\necho 1\n");
    Command::new("chmod").args(["+x", "tool"]).current_dir(server.folder.path()).status().unwrap();
    let _worker = server.worker("tool", &["--max-attempts", "1", "--exec", "./tool", "one"]);
    assert_eq!(server.run(&["call", "tool"]).exits(0).stdout, "1\n");
    std::fs::remove_file(server.path("tool")).unwrap();
    server.run(&["call", "tool"]).exits(1).says("cannot_start").says("No such file or directory");
}

#[test]
fn a_worker_whose_terminal_is_closed_finishes_what_runs_and_leaves() {
    let server = Server::start();
    let mut worker = server.worker("drain", &["--exec", &format!("echo up > up; {UNTIL_GO}; echo finished")]);
    let id = server.submit("drain", "{}", &[]);
    server.line_of("up");
    worker.signal(Signal::SIGHUP);
    worker.event("draining", |event| event["event"] == "draining" && event["signal"] == "SIGHUP" && event["running"] == 1);
    server.write("go", "");
    assert_eq!(worker.ends().code(), Some(0));
    assert_eq!(server.call(&id)["outcome"]["data"], "finished");
}

#[test]
fn under_nohup_a_closed_terminal_ends_nothing() {
    let server = Server::start();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" worker upper --json --exec 'tr a-z A-Z'"]).arg(env!("CARGO_BIN_EXE_towpath"));
    command.env("TOWPATH_SERVER", &server.url).current_dir(server.folder.path());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut worker = Beside::start(command);
    worker.event("serving", |event| event["event"] == "serving");
    worker.signal(Signal::SIGHUP);
    // Signals of one process are taken in order of their numbers, so SIGHUP was seen when SIGTERM is.
    assert_eq!(server.run(&["call", "upper", r#""hi""#]).exits(0).stdout, "\"HI\"\n");
    worker.signal(Signal::SIGTERM);
    worker.event("draining", |event| event["event"] == "draining" && event["signal"] == "SIGTERM");
    assert_eq!(worker.ends().code(), Some(0));
}

#[test]
fn programs_ignore_the_signals_that_their_owner_was_started_to_ignore() {
    let server = Server::start();
    let ignoring = |words: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' HUP QUIT; exec \"$0\" \"$@\""]).arg(server.command(&[]).get_program()).args(words);
        command.env("TOWPATH_SERVER", &server.url).current_dir(server.folder.path()).stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command
    };
    let ignored = |status: &str| {
        let mask = status.trim().trim_matches('"').strip_prefix("SigIgn:").unwrap().trim_start_matches("\\t").trim();
        (1..=15).filter(|signal| u64::from_str_radix(mask, 16).unwrap() >> (signal - 1) & 1 == 1).collect::<Vec<_>>()
    };
    let (hang_up, quit) = (Signal::SIGHUP as i32, Signal::SIGQUIT as i32);
    let of_lock = crate::support::run(ignoring(&["lock", "run", "nightly", "--", "grep", "SigIgn", "/proc/self/status"])).exits(0);
    assert_eq!(ignored(&of_lock.stdout), [hang_up, quit]);
    let worker = Beside::start(ignoring(&["worker", "mask", "--json", "--exec", "grep SigIgn /proc/self/status"]));
    worker.event("serving", |event| event["event"] == "serving");
    let of_worker = server.run(&["call", "mask"]).exits(0);
    assert_eq!(ignored(&of_worker.stdout), [hang_up, quit]);
}

#[test]
fn a_worker_goes_on_when_its_output_has_no_reader_any_more() {
    for json in [&[][..], &["--json"]] {
        let server = Server::start();
        let script = format!("echo run >> runs; echo up > up; {UNTIL_GO}; echo a remark >&2; echo 42");
        let mut command = server.command(&["worker", "quiet", "--exec", &script]);
        let mut worker = command.args(json).spawn().unwrap();
        drop((worker.stdout.take(), worker.stderr.take()));
        let id = server.submit("quiet", "{}", &["--wait-for-function", "50s"]);
        server.line_of("up");
        server.write("go", "");
        assert_eq!(server.run(&["calls", "wait", &id]).exits(0).stdout, "42\n");
        assert_eq!(server.run(&["call", "quiet"]).exits(0).stdout, "42\n");
        assert_eq!(std::fs::read_to_string(server.path("runs")).unwrap(), "run\nrun\n", "each ran once");
        kill(Pid::from_raw(i32::try_from(worker.id()).unwrap()), Signal::SIGTERM).unwrap();
        assert_eq!(worker.wait().unwrap().code(), Some(0));
    }
}
