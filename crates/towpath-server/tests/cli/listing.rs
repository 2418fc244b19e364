//! Looking at things, and changing them: functions, workers, calls, dead letters, the shared configuration.

use crate::support::{Beside, Server};

#[test]
fn functions_are_listed_shown_defined_and_forgotten() {
    let server = Server::start();
    server.run(&["functions"]).exits(0).prints("FUNCTION").prints("fibonacci");
    let list = server.run(&["functions", "list", "--json"]).exits(0).json();
    let names: Vec<&str> = list["functions"].as_array().unwrap().iter().map(|function| function["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"add") && names.is_sorted(), "{names:?}");
    server.run(&["functions", "show", "add"]).exits(0).prints("3 attempts, 2 s apart");
    server.run(&["functions", "show", "ad"]).exits(3).says("'add'");

    let defined = server.run(&["functions", "define", "mail", "--target", "http://127.0.0.1:1/hook", "--max-attempts", "7", "--json"]);
    let defined = defined.exits(0).json();
    assert_eq!((&defined["target"]["concurrency"], &defined["retry"]["max_attempts"]), (&16.into(), &7.into()));
    server.run(&["functions", "forget", "add"]).exits(4).says("has 1 worker, 0 waiting calls");
    server.run(&["functions", "forget", "nothing"]).exits(3);
    server.run(&["functions", "define", "idle", "--max-backlog", "0"]).exits(0);
    server.run(&["call", "idle", "--timeout", "1s"]).exits(4).says("overloaded");
    server.run(&["functions", "forget", "idle"]).exits(0).prints("forgot 'idle'");
    server.run(&["functions", "show", "idle"]).exits(3);
}

#[test]
fn workers_are_listed_with_what_they_serve() {
    let server = Server::start();
    let _worker = server.worker("upper", &["--scope", "shop", "--exec", "cat"]);
    server.run(&["workers"]).exits(0).prints("healthy").prints("shop:upper");
    let workers = server.run(&["workers", "list", "--json"]).exits(0).json();
    let kinds: Vec<&str> = workers["workers"].as_array().unwrap().iter().map(|worker| worker["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"demo") && kinds.contains(&"exec"), "{kinds:?}");
}

#[test]
fn calls_are_listed_by_filter_newest_first_and_shown() {
    let server = Server::start();
    for n in 1..=3 {
        server.run(&["call", "add", &format!(r#"{{"a":{n},"b":0}}"#), "--call-id", &format!("sum-{n}")]).exits(0);
    }
    server.run(&["call", "hello"]).exits(0);
    let ids = |more: &[&str]| {
        let mut command = server.command(&["calls", "list", "--json"]);
        command.args(more);
        let list = crate::support::run(command).exits(0).json();
        list["calls"].as_array().unwrap().iter().map(|call| call["call_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&["--function", "add"]), ["sum-3", "sum-2", "sum-1"]);
    assert_eq!(ids(&["--function", "add", "--limit", "2"]), ["sum-3", "sum-2"]);
    assert_eq!(ids(&["--state", "queued,running"]), Vec::<String>::new());
    assert_eq!(ids(&["--scope", "elsewhere"]), Vec::<String>::new());
    server.run(&["calls", "list", "--limit", "1"]).exits(0).prints("CALL").says("there are more");
    server.run(&["calls", "list", "--state", "finished"]).exits(2).says("completed");
    server.run(&["calls", "show", "sum-2"]).exits(0).prints("function").prints("\"a\": 2").prints("data");
    server.run(&["calls", "show", "sum-9"]).exits(3);
}

#[test]
fn more_calls_than_a_page_holds_are_listed() {
    let server = Server::start();
    server.run(&["functions", "define", "many"]).exits(0);
    let worker = server.worker(
        "fan",
        &["--exec", &format!("for n in $(seq 205); do {} call many '{{}}' --detach; done | wc -l", env!("CARGO_BIN_EXE_towpath"))],
    );
    assert_eq!(server.run(&["call", "fan", "--timeout", "2m"]).exits(0).stdout.trim(), "205");
    drop(worker);
    let list = server.run(&["calls", "list", "--function", "many", "--limit", "1000", "--json"]).exits(0).json();
    assert_eq!(list["calls"].as_array().unwrap().len(), 205);
    assert_eq!(list["calls"][0]["parent_call_id"], list["calls"][204]["parent_call_id"], "they know who made them");
}

/// Three dead letters of `fail`, one of `fail2`, and a worker that would now succeed.
fn with_dead_letters() -> (Server, Vec<Beside>) {
    let server = Server::start();
    let script = "[ -e fixed ] && echo well || exit 1";
    let workers = vec![
        server.worker("fail", &["--max-attempts", "1", "--exec", script]),
        server.worker("fail2", &["--max-attempts", "1", "--exec", script]),
    ];
    for (name, id) in [("fail", "a"), ("fail", "b"), ("fail", "c"), ("fail2", "d")] {
        server.run(&["call", name, "--call-id", id]).exits(1);
    }
    server.write("fixed", "");
    (server, workers)
}

#[test]
fn dead_letters_are_listed_shown_and_replayed() {
    let (server, _workers) = with_dead_letters();
    server.run(&["dlq", "list"]).exits(0).prints("exit_1");
    let list = server.run(&["dlq", "list", "--function", "fail", "--json"]).exits(0).json();
    assert_eq!(list["calls"].as_array().unwrap().len(), 3);
    server.run(&["dlq", "show", "a"]).exits(0).prints("exit_1");
    server.run(&["dlq", "show", "nobody"]).exits(3);

    let replay = server.run(&["dlq", "replay", "a", "--json"]).exits(0).json();
    let new = replay["replayed"][0]["replayed_as"].as_str().unwrap();
    assert_eq!(server.run(&["calls", "wait", new]).exits(0).stdout, "\"well\"\n");
    server.run(&["dlq", "replay", "a"]).exits(3);
    server.run(&["dlq", "replay", "b", "c"]).exits(0).prints("b runs again as").prints("c runs again as");
    let left = server.run(&["dlq", "list", "--json"]).exits(0).json();
    assert_eq!(left["calls"][0]["call_id"], "d");
    server.run(&["dlq", "drop", "d"]).exits(0).prints("d dropped");
    server.run(&["dlq", "list"]).exits(0).says("no dead letters");
}

#[test]
fn many_dead_letters_need_a_filter_or_all() {
    let (server, _workers) = with_dead_letters();
    server.run(&["dlq", "drop"]).exits(2).says("--all");
    server.run(&["dlq", "replay", "--yes"]).exits(2).says("--all");
    server.run(&["dlq", "drop", "a", "--all"]).exits(2);
    let replayed = server.run(&["dlq", "replay", "--function", "fail2", "--json"]).exits(0).json();
    assert_eq!(replayed["replayed"].as_array().unwrap().len(), 1);
    for words in [&["dlq", "drop", "--all"][..], &["dlq", "drop", "--function", "fail"], &["dlq", "drop", "--batches"]] {
        server.run(words).exits(2).says("--yes");
    }
    assert_eq!(server.run(&["dlq", "drop", "--all", "--yes", "--json"]).exits(0).json()["dropped"], 3);
    server.run(&["dlq", "drop", "--all", "--yes"]).exits(3).says("no dead letter matches");
}

#[test]
fn every_list_is_called_ls_and_list_works_too() {
    let server = Server::start();
    for command in ["calls", "dlq", "functions", "workers", "lock", "limit", "batch"] {
        for word in ["ls", "list"] {
            server.run(&[command, word]).exits(0);
        }
        let help = server.run(&[command, "--help"]).exits(0).stdout;
        assert!(help.lines().any(|line| line.trim_start().starts_with("ls ")), "{command}: {help}");
    }
}
