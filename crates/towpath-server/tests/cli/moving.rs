//! `towpath export` and `towpath import`: open calls go from one store to another, and come twice as once.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use towpath_redis_testing::RedisServer;

use crate::support::{Beside, Ran, Server, UNTIL_GO, run, towpath, wait_for};

const FILE: &str = "calls.jsonl";

/// Runs the binary on a store, without a server.
fn on(folder: &TempDir, store: &str, arguments: &[&str]) -> Ran {
    let mut command = towpath(folder.path());
    command.args(arguments).args(["--store", store]);
    run(command)
}

fn kept_redis() -> RedisServer {
    RedisServer::build().append_only("everysec").line("maxmemory 100mb").start()
}

/// The calls of a store, newest first, with what moves.
fn calls(folder: &TempDir, store: &str) -> Vec<Value> {
    let list = on(folder, store, &["calls", "list", "--payloads", "--json", "--limit", "5000"]).exits(0).json();
    let moved = |call: &Value| {
        let fields = ["call_id", "function_name", "scope", "state", "params", "idempotency_key"];
        Value::from_iter(fields.map(|field| (field.to_owned(), call[field].clone())))
    };
    list["calls"].as_array().unwrap().iter().map(moved).collect()
}

fn deadlines(folder: &TempDir, store: &str) -> Vec<i64> {
    let list = on(folder, store, &["calls", "list", "--json"]).exits(0).json();
    list["calls"].as_array().unwrap().iter().map(|call| call["deadline"].as_i64().unwrap()).collect()
}

fn imported(ran: &Ran) -> Value {
    ran.json()["imported"].clone()
}

/// Calls, a function, a batcher, a policy and a configuration.
fn fill(folder: &TempDir, store: &str) {
    let parameters = r#"[{"name":"to","type":"string","required":true}]"#;
    on(folder, store, &["functions", "define", "mail", "--parameters", parameters, "--max-attempts", "7"]).exits(0);
    on(folder, store, &["functions", "define", "mail", "--scope", "w-1"]).exits(0);
    on(folder, store, &["config", "set", r#"{"mode":"careful"}"#]).exits(0);
    on(folder, store, &["limit", "put", "mail", "--rule", "r=gcra:10/1s"]).exits(0);
    on(folder, store, &["batch", "settings", "orders", "--set", "debounce_seconds=7"]).exits(0);
    on(folder, store, &["call", "mail", r#"{"to":"ada","n":12345678901234567890123}"#, "--detach", "--timeout", "2h"]).exits(0);
    on(folder, store, &["call", "mail", r#"{"to":"bob"}"#, "--detach", "--idempotency-key", "order-17"]).exits(0);
    on(folder, store, &["call", "mail", "[1, 2]", "--detach", "--scope", "w-1", "--call-id", "my-own-id"]).exits(0);
}

/// What a store says about the settings that calls need.
fn settings(folder: &TempDir, store: &str) -> Vec<Value> {
    let asked: [&[&str]; 4] = [
        &["functions", "show", "mail"],
        &["functions", "show", "mail", "--scope", "w-1"],
        &["config", "get"],
        &["batch", "settings", "orders"],
    ];
    let told = asked.map(|arguments| on(folder, store, &[arguments, &["--json"]].concat()).exits(0).json());
    let drop_counts = |mut value: Value| {
        for field in ["oldest_queued_age_ms", "updated_at", "version", "stream"] {
            value.as_object_mut().unwrap().remove(field);
        }
        value
    };
    told.map(drop_counts).into()
}

#[test]
fn open_calls_move_from_one_store_to_the_other_and_back_and_twice_is_once() {
    let (folder, redis) = (tempfile::tempdir().unwrap(), kept_redis());
    let back = "sqlite:./back";
    for (from, to) in [("sqlite:./first".to_owned(), redis.url()), (redis.url(), back.to_owned())] {
        if from.starts_with("sqlite") {
            fill(&folder, &from);
        }
        let file = if to == back { "second.jsonl" } else { FILE };
        let report = on(&folder, &from, &["export", file, "--json"]).exits(0).json();
        let expected = json!({"file": file, "calls": 3, "left_out": 0, "dead_letters": 0, "functions": 2, "batchers": 1, "config": true});
        assert_eq!(report["exported"], expected);
        let path = folder.path().join(file);
        assert!(std::fs::read_to_string(&path).unwrap().contains("12345678901234567890123"), "digits are kept");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "params stand in it");
        let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| name.ends_with(".partial")).count(), 0);

        let report = imported(&on(&folder, &to, &["import", file, "--json"]).exits(0));
        assert_eq!(
            (&report["calls"], &report["functions"], &report["batchers"], &report["config"]),
            (&3.into(), &2.into(), &1.into(), &true.into())
        );
        let (before, after) = (calls(&folder, &from), calls(&folder, &to));
        assert_eq!(before, after, "the same calls in the same order");
        assert_eq!(settings(&folder, &from), settings(&folder, &to));
        for (one, other) in deadlines(&folder, &from).iter().zip(deadlines(&folder, &to)) {
            assert!((one - other).abs() < 10_000, "the deadline is the same instant: {one} and {other}");
        }

        let report = imported(&on(&folder, &to, &["import", file, "--json"]).exits(0));
        assert_eq!((&report["calls"], &report["duplicates"], &report["kept"]), (&0.into(), &3.into(), &4.into()), "{report}");
        assert_eq!(calls(&folder, &to), after, "twice is once");
    }
}

#[test]
fn a_call_that_ran_after_the_first_import_does_not_run_again_after_the_second() {
    let folder = tempfile::tempdir().unwrap();
    on(&folder, "sqlite:./first", &["functions", "define", "mail"]).exits(0);
    on(&folder, "sqlite:./first", &["call", "mail", "--detach", "--call-id", "one"]).exits(0);
    on(&folder, "sqlite:./first", &["export", FILE]).exits(0);
    let server = Server::start_with(folder, &["dev", "--listen", "127.0.0.1:0", "--data", "second"]);
    server.run(&["import", FILE]).exits(0).prints("1 call imported");
    let _worker = server.worker("mail", &["--exec", "echo ran >> runs; echo ok"]);
    server.call_in_state("one", "completed");
    server.run(&["import", FILE]).exits(0).prints("0 calls imported, 1 already there");
    assert_eq!(server.call("one")["state"], "completed");
    assert_eq!(std::fs::read_to_string(server.path("runs")).unwrap(), "ran\n");
}

#[test]
fn a_file_that_was_cut_or_changed_is_refused_and_nothing_is_imported() {
    let folder = tempfile::tempdir().unwrap();
    fill(&folder, "sqlite:./first");
    on(&folder, "sqlite:./first", &["export", FILE]).exits(0);
    let whole = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
    let last_line = whole.trim_end().rfind('\n').unwrap() + 1;
    let without_third = whole.lines().enumerate().filter(|(index, _)| *index != 2).map(|(_, line)| format!("{line}\n")).collect();
    let cases = [
        (whole[..last_line].to_owned(), "cut_export"),
        (whole[..whole.len() - 1].to_owned(), "cut_export"),
        (whole[..whole.len() / 2].to_owned(), "cut_export"),
        (String::new(), "cut_export"),
        (without_third, "invalid_export"),
        (whole.replace("\"format\":1", "\"format\":2"), "invalid_export"),
        (whole.replace("\"call_id\"", "\"call_ID\""), "invalid_export"),
        (format!("{whole}{whole}"), "invalid_export"),
        ("{}\n".to_owned(), "invalid_export"),
        ("not an export\n".to_owned(), "invalid_export"),
    ];
    for (text, code) in cases {
        std::fs::write(folder.path().join("broken"), &text).unwrap();
        let error = on(&folder, "sqlite:./second", &["import", "broken", "--json"]).exits(2).error();
        assert_eq!(error["code"], code, "{text}\n{error}");
    }
    on(&folder, "sqlite:./second", &["import", "not-there"]).exits(2).says("cannot be read");
    assert_eq!(calls(&folder, "sqlite:./second"), Vec::<Value>::new());
    let known = on(&folder, "sqlite:./second", &["functions", "--json"]).exits(0).json();
    assert_eq!(known["functions"], json!([]), "nothing was defined either");
}

#[test]
fn calls_that_run_are_named_and_move_only_when_that_is_asked_for() {
    let server = Server::start();
    // It does not heed the request to stop, so that the call stays in that state.
    let worker = server.worker("slowly", &["--exec", &format!("trap '' TERM; {UNTIL_GO}; echo ok")]);
    let id = server.submit("slowly", "{}", &[]);
    server.call_in_state(&id, "running");
    let waits = server.submit("slowly", "{}", &[]);
    server.run(&["export", FILE]).exits(4).says(&id).says("--running-may-run-twice").prints("1 call,");
    let text = std::fs::read_to_string(server.path(FILE)).unwrap();
    assert!(
        text.contains(&format!(r#"{{"left_out":{{"call_id":"{id}""#)) && text.contains(&format!(r#"{{"call":{{"call_id":"{waits}""#)),
        "{text}"
    );

    server.run(&["export", "twice.jsonl", "--running-may-run-twice"]).exits(0).prints("2 calls,");
    let other = |arguments: &[&str]| on(&server.folder, "sqlite:./other", arguments);
    let report = imported(&other(&["import", FILE, "--json"]).exits(0));
    assert_eq!((&report["calls"], &report["skipped"]), (&1.into(), &1.into()), "{report}");
    other(&["import", "twice.jsonl"]).exits(0).prints("1 call imported, 1 already there");

    // One that shall stop must not begin anew elsewhere.
    server.run(&["calls", "cancel", &id]).exits(0);
    server.run(&["export", "cancelled.jsonl", "--running-may-run-twice"]).exits(4).says(&id);
    server.write("go", "");
    drop(worker);
}

#[test]
fn failed_attempts_count_on_in_the_other_store() {
    let server = Server::start();
    let worker = server.worker("broken", &["--max-attempts", "2", "--exec", "exit 1"]);
    let id = server.submit("broken", "{}", &[]);
    wait_for("the first failure", || Some(server.call(&id)).filter(|call| call["failures"] == 1 && call["state"] == "delayed"));
    server.run(&["export", FILE]).exits(0).prints("1 call,");
    drop(worker);
    let text = std::fs::read_to_string(server.path(FILE)).unwrap();
    assert!(text.contains(r#""attempts_before":{"failures":1,"crashes":0}"#), "{text}");
    let redis = kept_redis();
    on(&server.folder, &redis.url(), &["import", FILE]).exits(0).prints("1 call imported");
    let there = Server::start_with(tempfile::tempdir().unwrap(), &["dev", "--listen", "127.0.0.1:0", "--store", &redis.url()]);
    assert_eq!(there.call(&id)["failures"], 1);
    let _worker = there.worker("broken", &["--max-attempts", "2", "--exec", "exit 1"]);
    assert_eq!(there.call_in_state(&id, "dead")["failures"], 2, "the second attempt was the last");
}

#[test]
fn dead_letters_move_only_when_asked_for_and_run_only_when_asked_for() {
    let server = Server::start();
    let _worker = server.worker("broken", &["--max-attempts", "1", "--exec", "exit 1"]);
    let id = server.submit("broken", "{}", &[]);
    server.call_in_state(&id, "dead");
    server.run(&["export", "without.jsonl"]).exits(0).prints("0 calls,");
    server.run(&["export", FILE, "--dead-letters"]).exits(0).prints("1 dead letter");
    let other = |arguments: &[&str]| on(&server.folder, "sqlite:./other", arguments);
    assert_eq!(imported(&other(&["import", FILE, "--json"]).exits(0))["skipped"], 1);
    other(&["import", FILE, "--run-dead-letters"]).exits(0).prints("1 call imported");
    other(&["import", FILE, "--run-dead-letters"]).exits(0).prints("1 already there");
    assert_eq!(calls(&server.folder, "sqlite:./other")[0]["call_id"], id);
}

#[test]
fn what_cannot_be_imported_is_counted_and_named_and_the_rest_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = ("sqlite:./first", "sqlite:./second");
    on(&folder, from, &["functions", "define", "mail"]).exits(0);
    for id in ["fine", "late", "used", "unfit"] {
        on(&folder, from, &["call", "mail", r#"{"to":"ada"}"#, "--detach", "--call-id", id]).exits(0);
    }
    on(&folder, from, &["export", FILE]).exits(0);
    let path = folder.path().join(FILE);
    let lines = std::fs::read_to_string(&path).unwrap();
    let changed = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        match value["call"]["call_id"].as_str() {
            Some("late") => value["call"]["deadline"] = json!(1),
            Some("unfit") => value["call"]["params"] = json!({"to": 7}),
            _ => return format!("{line}\n"),
        }
        format!("{value}\n")
    };
    std::fs::write(&path, lines.lines().map(changed).collect::<String>()).unwrap();
    // The other store knows the function already, in its own way, and has used an id.
    on(&folder, to, &["functions", "define", "mail", "--parameters", r#"[{"name":"to","type":"string"}]"#]).exits(0);
    on(&folder, to, &["call", "mail", r#"{"to":"eve"}"#, "--detach", "--call-id", "used"]).exits(0);
    let ran = on(&folder, to, &["import", FILE, "--json"]).exits(1).says("call used of 'mail'").says("call unfit of 'mail'");
    let report = imported(&ran);
    let counts = ["calls", "duplicates", "expired", "conflicts", "refused", "kept"].map(|field| report[field].as_u64().unwrap());
    assert_eq!(counts, [1, 0, 1, 1, 1, 1], "{report}");
    let found: Vec<Value> = calls(&folder, to).iter().map(|call| call["call_id"].clone()).collect();
    assert_eq!(found, ["fine", "used"]);
}

#[test]
fn a_full_backlog_ends_the_import_which_goes_on_when_it_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = ("sqlite:./first", "sqlite:./second");
    on(&folder, from, &["functions", "define", "mail"]).exits(0);
    for id in ["a", "b", "c"] {
        on(&folder, from, &["call", "mail", "--detach", "--call-id", id]).exits(0);
    }
    on(&folder, from, &["export", FILE]).exits(0);
    on(&folder, to, &["functions", "define", "mail", "--max-backlog", "2"]).exits(0);
    on(&folder, to, &["import", FILE]).exits(4).says("call c of 'mail' was not imported").says("import it again");
    on(&folder, to, &["functions", "define", "mail"]).exits(0);
    on(&folder, to, &["import", FILE]).exits(0).prints("1 call imported, 2 already there");
}

#[test]
fn an_export_overwrites_nothing_and_a_store_in_use_is_not_touched() {
    let server = Server::start();
    server.write(FILE, "mine");
    server.run(&["export", FILE]).exits(2).says("is there already");
    assert_eq!(std::fs::read_to_string(server.path(FILE)).unwrap(), "mine");
    on(&server.folder, "sqlite:./.towpath", &["export", "other.jsonl"]).exits(7);
    server.run(&["export", "no/such/folder.jsonl"]).exits(1).says("cannot be written");
    assert!(!server.path("other.jsonl").exists());
}

/// An export with this many calls, as if it came from a large store.
fn large_file(path: &Path, count: usize, deadline: i64) {
    let mut lines = vec![json!({"towpath_export": {"format": 1, "version": "0", "from": "here", "exported_at": 1}})];
    lines.push(json!({"function": {"name": "mail", "definition": {}}}));
    let call = |n: usize| json!({"call_id": format!("call-{n:05}"), "function_name": "mail", "scope": "__global__", "deadline": deadline, "params": n});
    lines.extend((0..count).rev().map(|n| json!({ "call": call(n) })));
    lines.push(json!({"end": {"lines": count + 3}}));
    std::fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

#[test]
fn all_functions_and_batchers_are_exported_and_not_only_those_of_the_first_page() {
    const COUNT: usize = 201;
    let folder = tempfile::tempdir().unwrap();
    let mut lines = vec![json!({"towpath_export": {"format": 1, "version": "0", "from": "here", "exported_at": 1}})];
    lines.extend((0..COUNT).map(|n| json!({"function": {"name": format!("f{n}"), "definition": {}}})));
    lines.extend((0..COUNT).map(|n| json!({"batcher": {"name": format!("b{n}"), "settings": {"debounce_seconds": 7}}})));
    lines.push(json!({"end": {"lines": 2 * COUNT + 2}}));
    std::fs::write(folder.path().join(FILE), lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    on(&folder, "sqlite:./first", &["import", FILE]).exits(0);
    let report = on(&folder, "sqlite:./first", &["export", "again.jsonl", "--json"]).exits(0).json();
    let counted = (&report["exported"]["functions"], &report["exported"]["batchers"]);
    assert_eq!(counted, (&COUNT.into(), &COUNT.into()), "{report}");
    let text = std::fs::read_to_string(folder.path().join("again.jsonl")).unwrap();
    for n in 0..COUNT {
        assert!(text.contains(&format!(r#""name":"f{n}""#)) && text.contains(&format!(r#""name":"b{n}""#)), "{n}");
    }
}

#[test]
fn a_deadline_that_no_call_can_have_is_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    large_file(&folder.path().join(FILE), 1, i64::MAX);
    on(&folder, "sqlite:./other", &["import", FILE]).exits(1).says("call-00000").says("timeout");
    large_file(&folder.path().join(FILE), 1, i64::MIN);
    on(&folder, "sqlite:./other", &["import", FILE]).exits(0).prints("1 past their deadline");
}

#[test]
fn an_import_that_is_killed_in_the_middle_is_finished_by_the_next() {
    const COUNT: usize = 1_000;
    let server = Server::start();
    let some_call = server.submit("hello", "{}", &["--timeout", "1h"]);
    let in_an_hour = server.call(&some_call)["deadline"].as_i64().unwrap();
    large_file(&server.path(FILE), COUNT, in_an_hour);
    let waiting = || server.run(&["functions", "show", "mail", "--json"]).json()["queued"].as_u64();
    server.run(&["functions", "define", "mail"]).exits(0);
    let mut first = Beside::start(server.command(&["import", FILE, "--json"]));
    wait_for("some calls", || waiting().filter(|count| *count > 0));
    first.signal(Signal::SIGKILL);
    first.ends();
    let there = waiting().unwrap();
    assert!(there < COUNT as u64, "it was killed in the middle, at {there}");
    let report = imported(&server.run(&["import", FILE, "--json"]).exits(0));
    assert_eq!(report["calls"].as_u64().unwrap() + report["duplicates"].as_u64().unwrap(), COUNT as u64, "{report}");
    assert_eq!(waiting(), Some(COUNT as u64));
    let list = server.run(&["calls", "list", "--function", "mail", "--json", "--limit", "1000"]).json();
    assert_eq!(list["calls"][COUNT - 1]["call_id"], "call-00000", "the oldest was submitted first");
}

#[test]
fn an_export_that_may_not_write_does_not_speak_of_room() {
    let server = Server::start();
    let said = server.run(&["export", "/proc/calls.jsonl"]).exits(1).says("cannot be written").stderr;
    assert!(!said.contains("room") && said.contains("folder"), "{said}");
}
