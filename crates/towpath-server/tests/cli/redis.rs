//! The command line on a Redis: chosen by URL or by n8n's environment, judged before it is used, looked at by the doctor.

use nix::sys::signal::Signal;
use serde_json::Value;
use towpath_redis_testing::{RedisServer, ServerBuilder};

use crate::support::{Beside, Ran, Server, run, towpath};

const PASSWORD: &str = "hunter2";

fn kept() -> ServerBuilder {
    RedisServer::build().append_only("everysec").line("maxmemory 100mb")
}

/// Runs the binary in a fresh folder with these variables.
fn in_environment(variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let mut command = towpath(folder.path());
    command.envs(variables.iter().copied()).args(arguments);
    run(command)
}

fn findings(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    report["checks"].as_array().unwrap().iter().map(|finding| (text(&finding["check"]), text(&finding["level"]))).collect()
}

fn message(report: &Value, check: &str) -> String {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|finding| finding["check"] == check);
    found.unwrap_or_else(|| panic!("no check {check} in {report}"))["message"].as_str().unwrap().to_owned()
}

#[test]
fn beside_an_n8n_in_queue_mode_serve_uses_its_redis_and_says_so_without_the_password() {
    let redis = kept().password(PASSWORD).start();
    let folder = tempfile::tempdir().unwrap();
    let mut command = towpath(folder.path());
    command.env("EXECUTIONS_MODE", "queue").env("QUEUE_BULL_REDIS_HOST", "127.0.0.1").env("QUEUE_BULL_REDIS_DB", "2");
    command.env("QUEUE_BULL_REDIS_PORT", redis.port().to_string()).env("QUEUE_BULL_REDIS_PASSWORD", PASSWORD);
    command.args(["serve", "--listen", "127.0.0.1:0", "--json", "--drain-timeout", "1s"]);
    let mut serve = Beside::start(command);
    let listening = serve.event("listening", |event| event["event"] == "listening");
    assert_eq!(listening["store"], format!("redis://127.0.0.1:{}/2", redis.port()));
    assert!(listening["store_source"].as_str().unwrap().contains("EXECUTIONS_MODE=queue"), "{listening}");
    let line = serve.remark("EXECUTIONS_MODE=queue");
    assert!(!line.contains(PASSWORD), "{line}");

    let server = listening["url"].as_str().unwrap();
    let client = |arguments: &[&str]| in_environment(&[("TOWPATH_SERVER", server)], arguments);
    client(&["functions", "define", "orphan"]).exits(0);
    let accepted = client(&["call", "orphan", "--detach", "--json"]).exits(0).json();
    assert_eq!(accepted["durability"], "everysec");
    assert!(redis.cli(&["-n", "2", "dbsize"]).trim().parse::<u32>().unwrap() > 0, "it is in database 2");
    serve.signal(Signal::SIGTERM);
    assert_eq!(serve.ends().code(), Some(0));
    assert!(!folder.path().join(".towpath").exists(), "no embedded store was made");
}

#[test]
fn a_wrong_variable_is_refused_by_its_name_with_78() {
    for (name, value) in [
        ("QUEUE_BULL_REDIS_PORT", "abc"),
        ("QUEUE_BULL_REDIS_DB", "one"),
        ("QUEUE_BULL_REDIS_TLS", "maybe"),
        ("QUEUE_BULL_REDIS_CLUSTER_NODES", "a"),
    ] {
        in_environment(&[("EXECUTIONS_MODE", "queue"), (name, value)], &["serve"]).exits(78).says(name);
        in_environment(&[("EXECUTIONS_MODE", "queue"), (name, value)], &["doctor"]).exits(78).says(name);
    }
    in_environment(&[("EXECUTIONS_MODE", "cue")], &["serve"]).exits(78).says("EXECUTIONS_MODE");
}

#[test]
fn the_doctor_says_what_chose_the_store() {
    let queue = [("EXECUTIONS_MODE", "queue"), ("QUEUE_BULL_REDIS_HOST", "127.0.0.1"), ("QUEUE_BULL_REDIS_PORT", "1")];
    for (variables, arguments, chosen) in [
        (&queue[..], &["doctor", "--json"][..], "redis://127.0.0.1:1: chosen by EXECUTIONS_MODE=queue"),
        (&queue[..], &["doctor", "--json", "--store", "memory:"][..], "memory:: named on the command line"),
        (&[("EXECUTIONS_MODE", "regular")][..], &["doctor", "--json"][..], "sqlite:./.towpath: chosen by EXECUTIONS_MODE=regular"),
        (&[("TOWPATH_STORE", "memory:")][..], &["doctor", "--json"][..], "memory:: named by TOWPATH_STORE"),
    ] {
        let report = in_environment(variables, arguments).json();
        assert!(message(&report, "choice").starts_with(chosen), "{report}");
    }
}

#[test]
fn a_redis_that_keeps_less_than_was_asked_for_is_refused_with_78() {
    let redis = RedisServer::build().password(PASSWORD).start();
    let url = redis.url().replace("://", &format!("://:{PASSWORD}@"));
    let refused = in_environment(&[], &["serve", "--store", &url, "--durability", "always"]).exits(78).says("appendfsync always");
    assert!(!refused.stderr.contains(PASSWORD), "{}", refused.stderr);
    in_environment(&[("TOWPATH_DURABILITY", "everysec")], &["serve", "--store", &url]).exits(78).says("appendonly yes");
    in_environment(&[], &["serve", "--store", &format!("{url}?durability=replicated")]).exits(78).says("replicas");
    in_environment(&[], &["functions", "--store", &url, "--durability", "always"]).exits(78).says("appendfsync always");
    in_environment(&[], &["serve", "--store", "memory:", "--durability", "everysec"]).exits(78).says("sqlite:");
    in_environment(&[], &["serve", "--durability", "twice"]).exits(2).says("everysec");
    in_environment(&[], &["serve", "--store", "redis://127.0.0.1:1"]).exits(7).says("127.0.0.1:1");
}

#[test]
fn a_redis_that_would_lose_calls_is_refused_with_78_and_all_that_is_to_be_changed() {
    let serve = |url: &str| in_environment(&[], &["serve", "--listen", "127.0.0.1:0", "--store", url]);
    let forgetful = RedisServer::build().start();
    serve(&forgetful.url()).exits(78).says("appendonly yes").says("--durability memory");
    forgetful.cli(&["config", "set", "maxmemory-policy", "volatile-lru"]);
    serve(&forgetful.url()).exits(78).says("appendonly yes").says("noeviction");
    let evicting = kept().line("maxmemory-policy allkeys-lru").start();
    let refused = serve(&evicting.url()).exits(78).says("accepted calls are thrown away").says("noeviction");
    assert!(!refused.stderr.contains("appendonly"), "nothing is wrong with that: {}", refused.stderr);
    assert_eq!(evicting.cli(&["dbsize"]).trim(), "0", "and nothing was written");
}

#[test]
fn whoever_accepts_that_calls_are_lost_gets_a_server_and_a_loud_warning() {
    let redis = RedisServer::build().line("maxmemory-policy allkeys-lru").start();
    let accepted = format!("{}?durability=memory", redis.url());
    for arguments in [
        &["serve", "--listen", "127.0.0.1:0", "--store", &redis.url(), "--durability", "memory"][..],
        &["serve", "--listen", "127.0.0.1:0", "--store", &accepted][..],
        &["dev", "--listen", "127.0.0.1:0", "--store", &redis.url()][..], // nothing of worth is there to be lost
    ] {
        let server = Server::start_with(tempfile::tempdir().unwrap(), arguments);
        let warning = server.process.remark("allkeys-lru");
        assert!(warning.contains("WARN") && warning.contains("noeviction"), "{warning}");
    }
}

#[test]
fn a_server_whose_user_may_not_do_what_it_needs_is_refused_with_78_and_what_that_is_for() {
    let redis = kept().user("app", &format!("on >{PASSWORD} ~* &* +@all -xautoclaim -xadd")).start();
    let url = redis.url().replace("://", &format!("://app:{PASSWORD}@"));
    let refused = in_environment(&[], &["serve", "--store", &url]).exits(78).says("must not send xadd").says("--print-acl");
    assert!(!refused.stderr.contains(PASSWORD), "{}", refused.stderr);
}

#[test]
fn the_doctor_finds_what_is_wrong_with_a_redis_and_shows_no_password() {
    let redis = RedisServer::build().password(PASSWORD).line("maxmemory-policy allkeys-lru").start();
    let url = redis.url().replace("://", &format!("://:{PASSWORD}@"));
    let ran = in_environment(&[], &["doctor", "--json", "--store", &url]).exits(2);
    assert!(!ran.stdout.contains(PASSWORD) && !ran.stderr.contains(PASSWORD), "{} {}", ran.stdout, ran.stderr);
    let report = ran.json();
    let found = findings(&report);
    for (check, level) in [("connection", "ok"), ("version", "ok"), ("durability", "fail"), ("eviction", "fail"), ("store", "ok")] {
        assert!(found.contains(&(check.to_owned(), level.to_owned())), "{check} is not {level}: {report}");
    }
    assert!(report["power_cut"].as_str().unwrap().starts_with("everything is lost"), "{report}");
    let wrong = in_environment(&[], &["doctor", "--store", &url.replace(PASSWORD, "guess1")]).exits(2).prints("WRONGPASS");
    assert!(!wrong.stdout.contains("guess1"), "{}", wrong.stdout);
}

#[test]
fn the_printed_user_can_do_all_that_is_needed() {
    let redis = kept().start();
    let printed = in_environment(&[], &["doctor", "--print-acl", "--user", "app"]).exits(0);
    let rule = printed.stdout.trim().replace("PASSWORD", PASSWORD);
    assert_eq!(redis.cli(&rule.split(' ').collect::<Vec<_>>()).trim(), "OK");
    let url = redis.url().replace("://", &format!("://app:{PASSWORD}@"));
    let server = Server::start_with(tempfile::tempdir().unwrap(), &["dev", "--listen", "127.0.0.1:0", "--store", &url]);
    assert_eq!(server.run(&["call", "add", r#"{"a":1,"b":2}"#]).exits(0).stdout, "3\n");
    let _worker = server.worker("upper", &["--exec", "tr a-z A-Z"]);
    server.run(&["call", "upper", r#""hi""#]).exits(0).prints("HI");
    server.run(&["lock", "acquire", "excel"]).exits(0);
    server.run(&["lock", "ls"]).exits(0).prints("excel");
    assert!(redis.cli(&["acl", "log"]).trim().is_empty(), "something was refused: {}", redis.cli(&["acl", "log"]));
    // What only a wish needs is refused with what to do, and allowed by the lines that are printed for it.
    server.run(&["lock", "ls", "--scan"]).exits(2).says("+scan");
    server.run(&["lock", "cleanup", "4711", "--scan"]).exits(2).says("+scan");
    let options = printed.stderr.lines().filter_map(|line| line.strip_prefix("# optional: ")?.split("   ").next());
    let options: Vec<&str> = options.collect();
    assert_eq!(options.len(), 2, "{}", printed.stderr);
    for option in options {
        assert_eq!(redis.cli(&option.split(' ').collect::<Vec<_>>()).trim(), "OK");
    }
    redis.cli(&["acl", "log", "reset"]);
    redis.cli(&["incr", "n8n-lock-of-nobody-we-know"]);
    server.run(&["lock", "ls", "--scan"]).exits(0).prints("of-nobody-we-know");
    let report = server.run(&["doctor", "--json", "--store", &url]).json();
    let failed: Vec<_> = findings(&report).into_iter().filter(|(_, level)| level == "fail").collect();
    assert_eq!(failed, [], "{report}");
    assert!(redis.cli(&["acl", "log"]).trim().is_empty(), "something was refused: {}", redis.cli(&["acl", "log"]));
}

#[test]
fn the_printed_rule_carries_the_stores_prefix_and_refuses_odd_names() {
    let ran = in_environment(&[], &["doctor", "--print-acl", "--store", "redis://h?prefix=team-a", "--json"]).exits(0).json();
    let rule = ran["rule"].as_str().unwrap();
    assert!(rule.contains(" ~team-a:* ") && rule.contains(" &team-a:* ") && !rule.contains("~towpath:"), "{rule}");
    in_environment(&[], &["doctor", "--print-acl", "--user", "a b"]).exits(2).says("name of a user");
    in_environment(&[], &["doctor", "--user", "a"]).exits(2).says("--print-acl");
}
