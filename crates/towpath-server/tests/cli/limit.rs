//! `towpath limit`: exit codes and output that a script can rely on.

use crate::support::{Server, wait_for};

const RULE: &str = "per_minute=sliding_log:2/60s";

#[test]
fn a_call_that_waits_for_a_policy_that_does_not_exist_says_so() {
    let server = Server::start();
    server.run(&["limit", "put", "paced", "--policy", "calm", "--rule", "r=gcra:10/1s"]).exits(0);
    server.run(&["functions", "define", "paced", "--rate", "calm"]).exits(0);
    server.run(&["config", "set", r#"{"limit_policies":{}}"#]).exits(0);
    let waiting = server.submit("paced", "{}", &[]);
    // The server remembers policies for a moment.
    let shown = wait_for("the server to notice", || {
        let shown = server.run(&["calls", "show", &waiting]).exits(0);
        shown.stdout.contains("waits because").then_some(shown)
    });
    shown.prints("there is no policy 'calm'");
    server.run(&["call", "paced", "--timeout", "1s"]).exits(4).says("there is no policy 'calm'");
    server.run(&["limit", "put", "paced", "--policy", "calm", "--rule", "r=gcra:10/1s"]).exits(0);
    assert_eq!(server.call(&waiting)["waits_because"], serde_json::Value::Null);
}

#[test]
fn a_check_exits_0_while_there_is_room_and_4_when_there_is_none() {
    let server = Server::start();
    server.run(&["limit", "check", "mail", "--rule", RULE]).exits(0).prints("allowed: 1 more by 'per_minute'");
    let verdict = server.run(&["limit", "check", "mail", "--rule", RULE, "--json"]).exits(0).json();
    assert_eq!((&verdict["allowed"], &verdict["count"], &verdict["limit"]), (&true.into(), &2.into(), &2.into()));
    server.run(&["limit", "check", "mail", "--rule", RULE]).exits(4).prints("denied: 'per_minute' of scope 'mail' has room in");
    server.run(&["limit", "check", "mail", "--rule", RULE, "--cost", "3"]).exits(4).prints("never allows that much");
    server.run(&["limit", "peek", "mail", "--rule", RULE, "--cost", "1"]).exits(4);
    server.run(&["limit", "refund", "mail", "--rule", RULE]).exits(0).prints("allowed: 1 more");
    server.run(&["limit", "check", "mail", "--rule", RULE]).exits(0);
    assert_eq!(server.run(&["limit", "reset", "mail", "--rule", RULE, "--json"]).exits(0).json()["reset"], 1);
    server.run(&["limit", "peek", "mail", "--rule", RULE]).exits(0).prints("allowed: 2 more");
}

#[test]
fn a_check_with_a_wait_ends_when_it_is_its_turn() {
    let server = Server::start();
    let check = || server.run(&["limit", "check", "mail", "--rule", "r=gcra:20/1s", "--max-wait", "5s", "--json"]);
    let waits: Vec<u64> = (0..3).map(|_| check().exits(0).json()["wait_ms"].as_u64().unwrap()).collect();
    assert!(waits.iter().all(|wait| *wait <= 50), "each one comes after the one before has waited: {waits:?}");
}

#[test]
fn the_check_of_the_seed_counts_denied_calls() {
    let server = Server::start();
    for (count, exit) in [(1, 0), (2, 4), (3, 4)] {
        let verdict = server.run(&["limit", "check", "mail", "--limit", "1", "--window", "1h", "--json"]).exits(exit).json();
        assert_eq!(verdict["count"], count);
    }
}

#[test]
fn a_policy_is_put_listed_used_and_removed() {
    let server = Server::start();
    server.run(&["limit", "peek", "mail", "--policy", "default"]).exits(3).says("there is no policy 'default'");
    server.run(&["limit", "put", "mail", "--rule", RULE, "--rule", "per_hour=gcra:5/1h,burst=5"]).exits(0).says("is kept");
    server.run(&["limit", "ls", "--policies"]).exits(0).prints("per_minute: 2 in 1 min by sliding_log");
    server.run(&["limit", "check", "mail", "--cost", "2"]).exits(0);
    server.run(&["limit", "check", "mail"]).exits(4);
    server.run(&["limit", "reset", "mail"]).exits(0).says("2 rules had something in use");
    server.run(&["limit", "put", "mail", "--remove"]).exits(0).says("is removed");
    server.run(&["limit", "reset", "mail"]).exits(3);
}

#[test]
fn a_policy_is_removed_only_where_that_is_asked_for() {
    let server = Server::start();
    server.run(&["limit", "put", "mail", "--rule", RULE]).exits(0);
    server.run(&["limit", "put", "mail"]).exits(2).says("--rule").says("--remove");
    server.run(&["limit", "put", "mail", "--rule", RULE, "--remove"]).exits(2);
    server.run(&["limit", "ls", "--policies"]).exits(0).prints("per_minute: 2 in 1 min by sliding_log");
    server.run(&["limit", "put", "mail", "--policy", "other", "--remove"]).exits(3).says("scope 'mail' has no policy 'other'");
    server.run(&["limit", "put", "mai", "--remove"]).exits(3).says("scope 'mai' has no policy 'default'");
    server.run(&["limit", "put", "mail", "--remove"]).exits(0).says("is removed");
    server.run(&["limit", "put", "mail", "--remove"]).exits(3).says("has no policy 'default'");
}

#[test]
fn a_window_without_a_unit_is_seconds() {
    let server = Server::start();
    server.run(&["limit", "check", "mail", "--rule", "r=sliding_log:10/60"]).exits(0);
    server.run(&["limit", "ls"]).exits(0).prints("10 in 1 min");
    server.run(&["limit", "reset", "mail", "--rule", "r=sliding_log:10/60"]).exits(0).says("1 rule had something in use");
}

#[test]
fn wrong_rules_exit_2_and_say_what_a_rule_looks_like() {
    let server = Server::start();
    for rule in ["100/60s", "r=leaky:1/1s", "r=gcra:0/1s", "r=gcra:1/0s", "r=gcra:1/1s,bust=2"] {
        server.run(&["limit", "check", "mail", "--rule", rule]).exits(2);
    }
    server.run(&["limit", "check", "mail", "--rule", "100/60s"]).exits(2).says("NAME=ALGORITHM:LIMIT/WINDOW");
    server.run(&["limit", "check", " "]).exits(2);
    server.run(&["limit", "check", "mail", "--rule", RULE, "--policy", "p"]).exits(2);
    server.run(&["limit", "check", "mail", "--rule", RULE, "--cost", "0"]).exits(2).says("cost");
}

#[test]
fn limits_that_have_something_in_use_are_listed() {
    let server = Server::start();
    server.run(&["limit", "ls"]).exits(0).says("no limit has anything in use");
    server.run(&["limit", "check", "mail:out", "--rule", "per_minute=sliding_log:2/60s,key=u17"]).exits(0);
    server.run(&["limit", "check", "other", "--rule", "per_hour=gcra:100/1h,burst=5"]).exits(0);
    server.run(&["limit", "ls"]).exits(0).prints("mail:out").prints("u17").prints("2 in 1 min").prints("per_hour");
    let listed = server.run(&["limit", "ls", "--prefix", "mail", "--json"]).exits(0).json();
    assert_eq!((listed["limits"].as_array().unwrap().len(), &listed["limits"][0]["remaining"]), (1, &1.into()));
    server.run(&["limit", "ls", "--policies"]).exits(0).says("there are no policies");
}

#[test]
fn what_cannot_be_exits_2_and_counts_nothing() {
    let server = Server::start();
    let long = "x".repeat(300);
    let rule = ["--rule", "r=gcra:5/1s"];
    for (what, arguments) in [
        ("limit 0", vec!["limit", "check", "mail", "--rule", "r=gcra:0/1s"]),
        ("limit 0 of the seed", vec!["limit", "check", "mail", "--limit", "0"]),
        ("a negative limit", vec!["limit", "check", "mail", "--limit", "-1"]),
        ("window 0", vec!["limit", "check", "mail", "--rule", "r=gcra:5/0s"]),
        ("window 0 of the seed", vec!["limit", "check", "mail", "--window", "0s"]),
        ("half a second for the seed", vec!["limit", "check", "mail", "--window", "500ms"]),
        ("a window of 32 days", vec!["limit", "check", "mail", "--rule", "r=gcra:5/32d"]),
        ("cost 0", vec!["limit", "check", "mail", rule[0], rule[1], "--cost", "0"]),
        ("a huge cost", vec!["limit", "check", "mail", rule[0], rule[1], "--cost", "99999999999999999999"]),
        ("a cost over the range", vec!["limit", "refund", "mail", rule[0], rule[1], "--cost", "1000001"]),
        ("a wait of 8 days", vec!["limit", "check", "mail", rule[0], rule[1], "--max-wait", "8d"]),
        ("two rules of one name", vec!["limit", "check", "mail", rule[0], rule[1], "--rule", "r=gcra:6/1s"]),
        ("an empty scope", vec!["limit", "check", "", rule[0], rule[1]]),
        ("a blank scope", vec!["limit", "reset", " ", rule[0], rule[1]]),
        ("a scope of 300 bytes", vec!["limit", "peek", long.as_str(), rule[0], rule[1]]),
        ("a line break in a scope", vec!["limit", "put", "a\nb", rule[0], rule[1]]),
        ("a policy without a name", vec!["limit", "check", "mail", "--policy", ""]),
    ] {
        let ran = server.run(&arguments);
        assert_eq!(ran.code, 2, "{what}: {}", ran.stderr);
    }
    for scope in ["a:meta", "замок", "🔒 a/b"] {
        server.run(&["limit", "check", scope, "--rule", "r=sliding_log:1/60s"]).exits(0);
        server.run(&["limit", "check", scope, "--rule", "r=sliding_log:1/60s"]).exits(4);
    }
    assert_eq!(server.run(&["limit", "ls", "--json"]).exits(0).json()["limits"].as_array().unwrap().len(), 3);
}

#[test]
fn a_worker_with_a_rate_runs_what_its_policy_lets_through() {
    let server = Server::start();
    server.run(&["limit", "put", "smtp", "--policy", "calm", "--rule", "r=sliding_log:1/1h"]).exits(0);
    let worker = server.worker("mail", &["--exec", "cat", "--rate", "calm", "--rate-scope", "smtp"]);
    server.run(&["functions", "show", "mail"]).exits(0).prints("turns by policy 'calm' of scope 'smtp'");
    let (first, second) = (server.submit("mail", "1", &[]), server.submit("mail", "2", &[]));
    worker.event("started", |event| event["event"] == "started" && event["call_id"] == first.as_str());
    server.run(&["limit", "ls", "--prefix", "smtp"]).exits(0).prints("1 in 1 h");
    assert_eq!(server.run(&["calls", "show", &second, "--json"]).exits(0).json()["state"], "queued");
    server.run(&["functions", "define", "other", "--target", "https://example.org/", "--rate-scope", "smtp"]).exits(2).says("--rate");
}
