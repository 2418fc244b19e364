//! `towpath serve` and `towpath dev`: starting, refusing to start, stopping.

use nix::sys::signal::Signal;

use crate::support::{Beside, Ran, Server, run, towpath};

fn in_fresh_folder(arguments: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let mut command = towpath(folder.path());
    command.args(arguments);
    run(command)
}

#[test]
fn dev_greets_with_commands_to_try() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = towpath(folder.path());
    command.args(["dev", "--listen", "127.0.0.1:0", "--data", "play"]);
    let mut dev = Beside::start(command);
    dev.line("is running at http://127.0.0.1:");
    dev.line("export TOWPATH_SERVER=http://127.0.0.1:");
    dev.line("call hello");
    dev.line("worker upper --exec 'tr a-z A-Z'");
    assert!(folder.path().join("play/towpath.db").exists());
    dev.signal(Signal::SIGINT);
    assert_eq!(dev.ends().code(), Some(0));
}

#[test]
fn a_public_address_without_a_key_is_refused_with_78() {
    in_fresh_folder(&["serve", "--listen", "0.0.0.0:0"]).exits(78).says("--api-key");
    let error = in_fresh_folder(&["serve", "--listen", "[::]:0", "--json"]);
    assert!(error.exits(78).stderr.contains("refused_configuration"));
    in_fresh_folder(&["serve", "--store", "postgres://x"]).exits(78).says("sqlite:PATH");
    in_fresh_folder(&["serve", "--listen", "nonsense"]).exits(2);
    in_fresh_folder(&["serve", "--allow-target", "not a host"]).exits(2);
}

#[test]
fn a_server_with_keys_lets_in_whoever_has_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), "key-two\n").unwrap();
    let server = Server::start_with(folder, &["dev", "--listen", "127.0.0.1:0", "--api-key", "key-one", "--api-key", "@key"]);
    let refused = server.run(&["functions"]).exits(2).says("TOWPATH_API_KEY");
    assert!(!refused.stderr.contains("key-one"));
    server.run(&["functions", "--api-key", "wrong"]).exits(2);
    server.run(&["functions", "--api-key", "key-one"]).exits(0).prints("add");
    server.run(&["--api-key", "@key", "functions"]).exits(0).prints("add");
    let mut command = server.command(&["call", "add", r#"{"a":1,"b":2}"#]);
    command.env("TOWPATH_API_KEY", "key-two");
    assert_eq!(run(command).exits(0).stdout, "3\n");
    server.run(&["functions", "--api-key", "one", "--api-key", "two"]).exits(2).says("more than once");
}

#[test]
fn a_second_server_on_the_same_folder_says_who_has_it_and_exits_7() {
    let server = Server::start();
    let mut command = towpath(server.folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    run(command).exits(7).says("in use by towpath serve on");
}

#[test]
fn a_taken_address_is_named() {
    let server = Server::start();
    let address = server.url.trim_start_matches("http://");
    in_fresh_folder(&["dev", "--listen", address]).exits(1).says(address);
}

#[test]
fn sigterm_lets_what_runs_finish_and_a_second_one_does_not() {
    let server = Server::start();
    let mut caller = Beside::start(server.command(&["call", "slow", r#"{"seconds":2}"#]));
    caller.remark("progress:");
    let Server { mut process, folder, .. } = server;
    process.signal(Signal::SIGTERM);
    assert_eq!(process.ends().code(), Some(0));
    drop(process);
    let server = Server::start_in(folder, "127.0.0.1:0");
    let calls = server.run(&["calls", "--json"]).exits(0).json();
    assert_eq!(calls["calls"][0]["state"], "completed", "it was finished before the server left");
    caller.signal(Signal::SIGINT);
    caller.ends();

    let id = server.submit("slow", r#"{"seconds":600}"#, &[]);
    server.call_in_state(&id, "running");
    let Server { mut process, .. } = server;
    process.signal(Signal::SIGTERM);
    process.signal(Signal::SIGTERM);
    assert_eq!(process.ends().code(), Some(0));
}

#[test]
fn serve_tells_programs_where_it_listens_and_logs_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(folder, &["serve", "--listen", "127.0.0.1:0", "--store", "sqlite:data.db", "--drain-timeout", "1s"]);
    assert!(server.path("data.db").exists());
    let log = server.process.remark("listening");
    assert!(serde_json::from_str::<serde_json::Value>(&log).is_ok(), "with --json the log is JSON, too: {log}");
    server.run(&["functions", "--json"]).exits(0);
}

#[test]
fn a_closed_terminal_stops_a_server_in_good_order() {
    let Server { mut process, folder, .. } = Server::start();
    process.signal(Signal::SIGHUP);
    assert_eq!(process.ends().code(), Some(0));
    drop(folder);
}

#[test]
fn a_server_whose_log_has_no_reader_answers_every_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = towpath(folder.path());
    command.args(["dev", "--listen", "127.0.0.1:0", "--json"]).env("TOWPATH_LOG", "debug");
    let (process, first) = Beside::start_unread(command);
    let listening: serde_json::Value = serde_json::from_str(&first).unwrap();
    let server = Server { process, url: listening["url"].as_str().unwrap().to_owned(), folder };
    for n in 0..20 {
        let answer = server.run(&["call", "add", &format!(r#"{{"a":{n},"b":1}}"#)]).exits(0);
        assert_eq!(answer.stdout, format!("{}\n", n + 1));
    }
    server.run(&["call", "add", r#"{"a":"x"}"#]).exits(2);
}

#[test]
fn a_retention_under_an_hour_is_warned_of_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(folder, &["serve", "--listen", "127.0.0.1:0", "--keep-dead-letters", "90", "--keep-audits", "59m"]);
    let warning = server.process.remark("--keep-dead-letters");
    for part in ["WARN", "1 min 30 s", "TOWPATH_KEEP_DEAD_LETTERS", "90d"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    assert!(server.process.remark("--keep-audits").contains("59 min"));
}

#[test]
fn a_retention_of_an_hour_or_more_is_not_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = towpath(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--keep-dead-letters", "1h"]).env("TOWPATH_KEEP_AUDITS", "forever");
    let mut server = Beside::start(command);
    server.remark("listening");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ends().code(), Some(0));
    assert_eq!(server.remarks("--keep-"), Vec::<String>::new());
}
