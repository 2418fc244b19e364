//! `towpath batch` and dead letters of batches: exit codes and output that a script can rely on.

use serde_json::json;

use crate::support::{Server, run, towpath, wait_for};

const MESSAGE: &str = r#"{"customer":"anna","item":"tea","message_id":"m-1"}"#;

fn server() -> Server {
    let server = Server::start();
    let set = ["--set", r#"key=["customer"]"#, "--set", "debounce_seconds=100", "--set", "order=arrival"];
    server.run(&[&["batch", "settings", "orders"][..], &set].concat()).exits(0).prints("\"debounce_seconds\": 100");
    server
}

#[test]
fn a_message_is_pushed_once_looked_at_and_flushed() {
    let server = server();
    server.run(&["batch", "push", "orders", MESSAGE]).exits(0).prints("taken for 'anna': 1 message, closes at");
    server.run(&["batch", "push", "orders", MESSAGE]).exits(6).prints("duplicate");
    server.write("order.json", r#"{"customer":"anna","item":"milk"}"#);
    let second = server.run(&["batch", "push", "orders", "--file", "order.json", "--debounce", "50s", "--json"]).exits(0).json();
    assert_eq!((&second["size"], &second["accepted"]), (&json!(2), &json!(true)));
    server.run(&["batch", "ls"]).exits(0).prints("orders");
    server.run(&["batch", "ls", "orders"]).exits(0).prints("silence_reached");
    server.run(&["batch", "show", "orders", "anna"]).exits(0).prints("\"item\":\"milk\"");
    server.run(&["batch", "touch", "orders", "anna"]).exits(0).prints("touched: 'anna', closes at");
    server.run(&["batch", "flush", "orders", "anna"]).exits(0).prints("flushed: 'anna', 2 messages");
    server.run(&["batch", "flush", "orders", "nobody"]).exits(3).says("nothing is open");
    server.run(&["batch", "flush", "orders", "--all"]).exits(0);
    server.run(&["batch", "ls", "orders", "--in-flight"]).exits(0).says("nothing is in flight");
    server.run(&["batch", "push", "nobody", "{}"]).exits(3).says("`towpath batch settings 'nobody' --set ");
    server.run(&["batch", "push", "orders", "{}"]).exits(2).says("customer is missing");
    server.run(&["batch", "push", "orders", "tea"]).exits(2);
    server.run(&["batch", "settings", "orders", "--set", "max_messages=0"]).exits(2).says("max_messages");
    server.run(&["batch", "settings", "orders", "--set", "nonsense"]).exits(2).says("NAME=VALUE");
}

#[test]
fn settings_are_changed_one_by_one_and_given_up() {
    let server = server();
    let kept = server.run(&["batch", "settings", "orders", "--set", "max_messages=7", "--json"]).exits(0).json();
    assert_eq!((&kept["settings"]["max_messages"], &kept["settings"]["debounce_seconds"]), (&json!(7), &json!(100.0)));
    let kept = server.run(&["batch", "settings", "orders", "--unset", "debounce_seconds", "--json"]).exits(0).json();
    assert_eq!(kept["settings"]["debounce_seconds"], 10.0);
    server.run(&["batch", "settings", "orders", "--rate", "calm", "--rate-scope", "smtp"]).says("towpath limit put 'smtp' --policy 'calm'");
    server.run(&["limit", "put", "smtp", "--policy", "calm", "--rule", "r=gcra:1/1s"]).exits(0);
    let kept = server.run(&["batch", "settings", "orders", "--rate", "calm", "--rate-scope", "smtp", "--json"]).exits(0).json();
    assert_eq!((&kept["stored"]["rate"], &kept["stored"]["max_messages"]), (&json!({ "policy": "calm", "scope": "smtp" }), &json!(7)));
    server.run(&["batch", "settings", "orders", "--rate", "a:b"]).exits(2).says("rule name 'a:b'");
    server.run(&["batch", "settings", "orders", "--rate-scope", "smtp"]).exits(2);
    let kept = server.run(&["batch", "settings", "orders", "--unset", "rate", "--json"]).exits(0).json();
    assert_eq!(kept["settings"]["rate"], json!(null));
    server.run(&["batch", "settings", "nobody"]).exits(3);
}

#[test]
fn dead_letters_of_batches_are_listed_shown_replayed_and_dropped_beside_those_of_calls() {
    let server = server();
    // Nobody listens there, and one attempt is enough.
    let target = r#"target={"url":"http://127.0.0.1:9/"}"#;
    server.run(&["batch", "settings", "orders", "--set", target, "--set", "max_attempts=1"]).exits(0);
    server.run(&["batch", "push", "orders", MESSAGE, "--debounce", "0"]).exits(0);
    let listed = wait_for("the dead letter", || {
        let listed = server.run(&["dlq", "list", "--batcher", "orders", "--json"]).exits(0).json();
        (listed["dead_letters"].as_array().map(Vec::len) == Some(1)).then_some(listed)
    });
    let id = listed["dead_letters"][0]["id"].as_str().unwrap();
    server.run(&["dlq", "ls", "--batches"]).exits(0).prints("max_retries_exceeded");
    server.run(&["dlq", "list"]).exits(0).says("no dead letters");
    server.run(&["dlq", "show", id]).exits(0).prints("\"batch_key\": \"anna\"");
    server.run(&["dlq", "replay", id, "--rate", "10/s"]).exits(0).prints("is delivered again");
    wait_for("the dead letter to come back", || (server.run(&["dlq", "show", id]).code == 0).then_some(()));
    server.run(&["dlq", "drop", "--batcher", "orders", "--reason", "rejected_404", "--yes"]).exits(3);
    server.run(&["dlq", "drop", "--batcher", "orders", "--yes"]).exits(0).says("1 dead letter dropped");
    server.run(&["dlq", "show", id]).exits(3);
    server.run(&["dlq", "replay", "--batches", "--yes"]).exits(3);
    server.run(&["dlq", "list", "--batcher", "nobody"]).exits(3);
}

#[test]
fn batchers_of_the_configuration_file_are_served_and_what_is_wrong_in_it_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("towpath.json"), r#"{"batchers": {"mail": {"key": ["to"], "target": {"pull": true}}}}"#).unwrap();
    let server = Server::start_with(folder, &["dev", "--listen", "127.0.0.1:0", "--config", "towpath.json"]);
    server.run(&["batch", "push", "mail", r#"{"to":"a"}"#]).exits(0);
    assert_eq!(server.run(&["batch", "settings", "mail", "--json"]).exits(0).json().get("stored"), None);
    let wrong = tempfile::tempdir().unwrap();
    for (text, says) in
        [(r#"{"batchers": {"mail": {"keys": []}}}"#, "batchers.mail"), ("{", "EOF"), (r#"{"batchers": {"a:b": {}}}"#, "batchers")]
    {
        std::fs::write(wrong.path().join("towpath.json"), text).unwrap();
        let mut command = towpath(wrong.path());
        command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--config", "towpath.json"]);
        run(command).exits(78).says(says);
    }
    std::fs::write(wrong.path().join("towpath.json"), r#"{"batchers": {"mail": {"target": {"url": "http://10.0.0.1/"}}}}"#).unwrap();
    let mut command = towpath(wrong.path());
    command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--config", "towpath.json"]);
    run(command).exits(78).says("private address");
}

#[test]
fn the_doctor_says_which_batcher_has_no_target() {
    let server = server();
    server.run(&["batch", "push", "orders", MESSAGE]).exits(0);
    let report = server.run(&["doctor", "--json"]).json();
    let found = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .any(|check| check["level"] == "warn" && check["message"] == "batcher 'orders' has no target and holds 1 message");
    assert!(found, "{report}");
}
