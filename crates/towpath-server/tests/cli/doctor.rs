//! `towpath doctor`: what it finds, what it advises, how it exits.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use towpath_redis_testing::RedisServer;

use crate::support::{Server, run, towpath};

fn finding<'a>(report: &'a Value, check: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("no check {check} in {report}"))
}

/// Findings worse than a remark, but for what this machine's disk is like.
fn troubles(report: &Value) -> Vec<String> {
    let about_the_disk = ["file system", "free space", "fsync"];
    let checks = report["checks"].as_array().unwrap().iter();
    checks
        .filter(|finding| ["warn", "fail"].contains(&finding["level"].as_str().unwrap()))
        .map(|finding| finding["check"].as_str().unwrap().to_owned())
        .filter(|check| !about_the_disk.contains(&check.as_str()))
        .collect()
}

#[test]
fn a_healthy_server_and_folder_are_found_so() {
    let server = Server::start();
    let ran = server.run(&["doctor", "--json"]);
    let report = ran.json();
    assert_eq!(troubles(&report), Vec::<String>::new(), "{report}");
    assert!(report["power_cut"].as_str().unwrap().contains("nothing that was accepted is lost"));
    assert!(finding(&report, "fsync")["message"].as_str().unwrap().contains("99 %"));
    assert_eq!(finding(&report, "store")["level"], "ok");
    assert!(ran.code < 2, "{report}");
    server.run(&["doctor"]).prints("power cut: nothing").prints("server");
}

#[test]
fn the_policy_that_is_missing_is_kept_by_the_command_that_is_advised() {
    let server = Server::start();
    server.run(&["limit", "put", "mailx", "--rule", "r=gcra:10/1s"]).exits(0);
    server.run(&["functions", "define", "mailx", "--rate", "default"]).exits(0);
    server.run(&["limit", "put", "mailx", "--remove"]).exits(0);
    let rates = finding(&server.run(&["doctor", "--json"]).exits(2).json(), "rates").clone();
    let advice = rates["advice"].as_str().unwrap();
    let command: Vec<&str> = advice.split('`').nth(1).unwrap().split_whitespace().skip(1).map(|word| word.trim_matches('\'')).collect();
    server.run(&command).exits(0).says("policy 'default' of scope 'mailx' is kept");
}

#[test]
fn calls_that_nobody_serves_are_a_warning_with_advice() {
    let server = Server::start();
    server.run(&["functions", "define", "orphan"]).exits(0);
    server.submit("orphan", "{}", &[]);
    let ran = server.run(&["doctor", "--json"]).exits(1);
    let backlog = finding(&ran.json(), "backlog").clone();
    assert_eq!(backlog["level"], "warn");
    assert!(backlog["advice"].as_str().unwrap().contains("towpath worker orphan --exec"));
}

#[test]
fn dead_letters_are_mentioned() {
    let server = Server::start();
    let _worker = server.worker("fail", &["--max-attempts", "1", "--exec", "exit 1"]);
    server.run(&["call", "fail"]).exits(1);
    let report = server.run(&["doctor", "--json"]).json();
    assert_eq!(finding(&report, "dead letters")["level"], "info");
    assert!(finding(&report, "dead letters")["advice"].as_str().unwrap().contains("dlq ls"));
}

#[test]
fn an_open_folder_and_an_open_door_are_failures() {
    let server = Server::start();
    let folder = server.path(".towpath");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let report = server.run(&["doctor", "--json", "--listen", "0.0.0.0:8690"]).exits(2).json();
    assert_eq!(finding(&report, "mode")["level"], "fail");
    assert!(finding(&report, "mode")["advice"].as_str().unwrap().contains("chmod 700"));
    assert_eq!(finding(&report, "listen")["level"], "fail");
    assert_eq!(report["status"], "failures");
}

#[test]
fn without_a_server_the_store_itself_is_looked_at() {
    let server = Server::start();
    server.run(&["functions", "define", "orphan"]).exits(0);
    server.submit("orphan", "{}", &[]);
    let (folder, address) = server.crash();
    let mut command = towpath(folder.path());
    command.args(["doctor", "--json", "--server", &format!("http://{address}")]);
    let report = run(command).exits(2).json();
    assert_eq!(finding(&report, "server")["level"], "fail", "the server was named, so it should be there");
    assert_eq!(finding(&report, "store")["level"], "ok");
    assert_eq!(finding(&report, "backlog")["level"], "warn");
}

#[test]
fn a_folder_that_does_not_exist_is_not_made() {
    let server = Server::start();
    let report = server.run(&["doctor", "--json", "--data", "elsewhere"]).json();
    assert_eq!(finding(&report, "folder")["level"], "info");
    assert!(!server.path("elsewhere").exists());
}

#[test]
fn the_server_examines_its_own_store_whatever_is_chosen_here() {
    const PASSWORD: &str = "hunter2";
    let redis = RedisServer::build().append_only("everysec").line("maxmemory 100mb").password(PASSWORD).start();
    let url = redis.url().replace("://", &format!("://:{PASSWORD}@"));
    let server = Server::start_with(tempfile::tempdir().unwrap(), &["serve", "--store", &url, "--listen", "127.0.0.1:0"]);
    // Another folder, where an embedded store would be chosen.
    let elsewhere = Server::start();
    let mut command = elsewhere.command(&["doctor", "--json"]);
    command.env("TOWPATH_SERVER", &server.url);
    let ran = run(command);
    let report = ran.json();
    let choice = finding(&report, "choice")["message"].as_str().unwrap();
    assert!(choice.starts_with(&redis.url()) && choice.contains(&server.url), "{choice}");
    assert!(finding(&report, "connection")["message"].as_str().unwrap().contains(&redis.url()));
    assert!(finding(&report, "size")["message"].as_str().unwrap().contains("key(s)"), "{report}");
    let address = server.url.trim_start_matches("http://");
    assert!(finding(&report, "listen")["message"].as_str().unwrap().contains(address), "{report}");
    assert!(report["power_cut"].as_str().unwrap().contains("up to about 2 s"), "{report}");
    let checks: Vec<&str> = report["checks"].as_array().unwrap().iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    assert!(!checks.contains(&"folder") && !checks.contains(&"fsync"), "nothing here is looked at: {checks:?}");
    assert!(!ran.stdout.contains(PASSWORD) && !ran.stderr.contains(PASSWORD));

    // A store that is named is looked at, whatever the server uses.
    let mut command = elsewhere.command(&["doctor", "--json", "--data", "elsewhere"]);
    command.env("TOWPATH_SERVER", &server.url);
    let report = run(command).json();
    assert!(finding(&report, "choice")["message"].as_str().unwrap().contains("named on the command line"), "{report}");
    assert_eq!(finding(&report, "folder")["level"], "info");
}

/// Defines the function `paced`, whose policy `calm` is removed afterwards.
fn define_with_a_policy_that_goes(server: &Server) {
    server.run(&["limit", "put", "paced", "--policy", "calm", "--rule", "r=gcra:10/1s"]).exits(0);
    server.run(&["functions", "define", "paced", "--rate", "calm"]).exits(0);
    server.run(&["limit", "put", "paced", "--policy", "calm", "--remove"]).exits(0);
}

#[test]
fn functions_and_policies_that_are_named_and_missing_are_failures_on_both_stores() {
    let redis = RedisServer::build().append_only("everysec").line("maxmemory 100mb").start();
    let on_redis = ["serve", "--store", &redis.url(), "--listen", "127.0.0.1:0"];
    for server in [Server::start(), Server::start_with(tempfile::tempdir().unwrap(), &on_redis)] {
        define_with_a_policy_that_goes(&server);
        server.run(&["batch", "settings", "orders", "--set", r#"key=["customer"]"#, "--set", r#"target={"function":"nowhere"}"#]).exits(0);
        let report = server.run(&["doctor", "--json"]).exits(2).json();
        let says = |check: &str| -> Vec<String> {
            let checks =
                report["checks"].as_array().unwrap().iter().filter(|finding| finding["check"] == check && finding["level"] == "fail");
            checks.map(|finding| finding["message"].as_str().unwrap().to_owned()).collect()
        };
        let waits = |one: &str| one.contains("'orders'") && one.contains("'nowhere'") && one.ends_with("its batches wait");
        assert!(matches!(&says("batches")[..], [one] if waits(one)), "{report}");
        assert!(matches!(&says("rates")[..], [one] if one.contains("'paced'") && one.contains("'calm'")), "{report}");

        server.run(&["limit", "put", "w-1:scoped", "--policy", "own", "--rule", "r=gcra:10/1s"]).exits(0);
        server.run(&["functions", "define", "scoped", "--scope", "w-1", "--rate", "own"]).exits(0);
        server.run(&["functions", "define", "nowhere"]).exits(0);
        server.run(&["limit", "put", "paced", "--policy", "calm", "--rule", "r=gcra:10/1s"]).exits(0);
        let report = server.run(&["doctor", "--json"]).json();
        assert_eq!(finding(&report, "names")["level"], "ok", "{report}");
    }
}

/// The verdicts of one check.
fn levels(report: &Value, check: &str) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap().iter().filter(|finding| finding["check"] == check);
    checks.map(|finding| finding["level"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_store_that_is_named_beside_its_server_is_judged_as_the_server_judges_it() {
    let server = Server::start();
    server.run(&["batch", "settings", "orders", "--set", r#"key=["customer"]"#, "--set", r#"target={"function":"nowhere"}"#]).exits(0);
    for arguments in [&["doctor", "--json"][..], &["doctor", "--json", "--store", "sqlite:.towpath"]] {
        let report = server.run(arguments).exits(2).json();
        assert_eq!(levels(&report, "batches"), ["fail"], "one verdict: {report}");
    }
}

#[test]
fn a_server_that_does_not_say_which_store_it_has_leaves_it_open_what_a_power_cut_costs() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(folder, &["serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--api-key", "key-one"]);
    let report = server.run(&["doctor", "--json"]).exits(2).json();
    assert_eq!(finding(&report, "server")["level"], "fail", "{report}");
    assert!(report["power_cut"].as_str().unwrap().starts_with("not known"), "{report}");
}

#[test]
fn a_store_that_cannot_be_opened_leaves_it_open_what_a_power_cut_costs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.db"), "of another program, and long enough to be looked at").unwrap();
    let mut command = towpath(folder.path());
    command.args(["doctor", "--json", "--server", "http://127.0.0.1:1", "--data", "notes.db"]);
    let report = run(command).exits(2).json();
    assert_eq!(finding(&report, "store")["level"], "fail", "{report}");
    assert!(report["power_cut"].as_str().unwrap().starts_with("not known"), "{report}");
}

#[test]
fn a_server_whose_folder_was_removed_accepts_nothing_and_the_doctor_says_so() {
    let server = Server::start();
    server.run(&["functions", "define", "orphan"]).exits(0);
    std::fs::remove_dir_all(server.path(".towpath")).unwrap();
    server.run(&["call", "orphan", "--detach"]).exits(7).says("was removed or replaced");
    let report = server.run(&["doctor", "--json"]).exits(2).json();
    assert_eq!(levels(&report, "store"), ["fail"], "{report}");
    assert!(finding(&report, "store")["message"].as_str().unwrap().contains("was removed or replaced"), "{report}");
    assert!(report["power_cut"].as_str().unwrap().starts_with("not known"), "{report}");
    assert!(server.path(".towpath").symlink_metadata().is_err(), "nothing makes it again");
}

#[test]
fn without_a_server_names_that_lead_nowhere_are_found_in_the_store() {
    let server = Server::start();
    define_with_a_policy_that_goes(&server);
    let (folder, address) = server.crash();
    let mut command = towpath(folder.path());
    command.args(["doctor", "--json", "--server", &format!("http://{address}")]);
    let report = run(command).exits(2).json();
    assert!(finding(&report, "rates")["message"].as_str().unwrap().contains("'calm'"), "{report}");
    assert!(finding(&report, "size")["message"].as_str().unwrap().contains("KiB"), "{report}");
}
