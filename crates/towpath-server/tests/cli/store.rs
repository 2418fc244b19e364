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
    on_store(folder, &["config", "set", "[1]"]).exits(0);
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
