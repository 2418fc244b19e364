//! `--store`: the same commands straight on a store, without a server.

use crate::support::{Ran, Server, run, towpath};

fn on_store(folder: &std::path::Path, arguments: &[&str]) -> Ran {
    let mut command = towpath(folder);
    command.args(["--store", "sqlite:./.towpath"]).args(arguments);
    run(command)
}

#[test]
fn client_commands_work_on_a_store_that_no_server_has() {
    let server = Server::start();
    server.run(&["call", "add", r#"{"a":1,"b":2}"#, "--call-id", "sum-1"]).exits(0);
    server.run(&["functions", "define", "orphan"]).exits(0);
    let (folder, _address) = server.crash();
    let folder = folder.path();
    on_store(folder, &["functions"]).exits(0).prints("orphan");
    assert_eq!(on_store(folder, &["calls", "show", "sum-1", "--json"]).exits(0).json()["outcome"]["data"], 3);
    assert_eq!(on_store(folder, &["call", "orphan", "--detach", "--call-id", "x-1"]).exits(0).stdout, "x-1\n");
    on_store(folder, &["call", "orphan", "--timeout", "50ms"]).exits(4);
    on_store(folder, &["calls", "cancel", "x-1"]).exits(0).prints("cancelled");
    on_store(folder, &["config", "set", r#"{"n":1}"#]).exits(0);
    on_store(folder, &["calls", "show", "nobody"]).exits(3);
    on_store(folder, &["call", "orphn", "--wait-for-function", "0"]).exits(3).says("'orphan'");
}

#[test]
fn a_store_that_a_server_has_is_left_alone() {
    let server = Server::start();
    on_store(server.folder.path(), &["functions"]).exits(7).says("in use by").says("leave out --store");
    let error = on_store(server.folder.path(), &["functions", "--json"]).exits(7).error();
    assert_eq!(error["code"], "store_in_use");
}

#[test]
fn a_store_url_that_names_nothing_is_refused() {
    let server = Server::start();
    for url in ["nonsense", "sqlite:", "postgres://x"] {
        server.run(&["functions", "--store", url]).exits(2).says("names no store");
    }
    server.run(&["functions", "--store", "memory:"]).exits(0).says("no function is known yet");
}

#[test]
fn a_store_that_is_not_there_is_neither_read_nor_made() {
    let folder = tempfile::tempdir().unwrap();
    let commands: [&[&str]; 10] = [
        &["functions"],
        &["functions", "show", "mail"],
        &["calls", "ls"],
        &["calls", "show", "c-1"],
        &["dlq", "ls"],
        &["call", "mail", "--detach"],
        &["config", "get"],
        &["limit", "ls"],
        &["batch", "ls"],
        &["export", "calls.jsonl"],
    ];
    for place in ["./typo", "./typo.db", "."] {
        for words in commands {
            let mut command = towpath(folder.path());
            command.args(words).args(["--store", &format!("sqlite:{place}")]);
            run(command).exits(7).says("there is no store at").says("towpath serve");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{words:?} left something at {place}");
        }
    }
    let mut command = towpath(folder.path());
    command.args(["functions", "--store", "sqlite:./typo", "--json"]);
    assert_eq!(run(command).exits(7).error()["code"], "no_store");
}

#[test]
fn a_store_begins_with_what_is_put_into_it() {
    let commands: [&[&str]; 5] = [
        &["functions", "define", "mail"],
        &["config", "set", "{}"],
        &["limit", "put", "mail", "--rule", "r=gcra:10/1s"],
        &["lock", "acquire", "nightly"],
        &["batch", "settings", "orders", "--set", "debounce_seconds=7"],
    ];
    for words in commands {
        let folder = tempfile::tempdir().unwrap();
        on_store(folder.path(), words).exits(0);
        on_store(folder.path(), &["functions"]).exits(0);
    }
}
