//! `towpath doctor`: what it finds, what it advises, how it exits.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

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
    assert!(finding(&report, "dead letters")["advice"].as_str().unwrap().contains("dlq list"));
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
