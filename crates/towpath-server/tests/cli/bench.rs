//! `towpath bench` measures, reports what it promises to report, and leaves nothing behind. No figure is judged here.

use std::path::Path;

use serde_json::Value;
use towpath_redis_testing::RedisServer;

use crate::support::{run, towpath};

/// A short run of the decisive level. Its figures mean nothing.
fn calls(folder: &Path, more: &[&str]) -> Value {
    let mut command = towpath(folder);
    command.args(["--json", "bench", "--quick", "--only", "calls", "--in-flight", "1024", "--seconds", "2"]).args(more);
    run(command).exits(0).json()
}

fn check_level(report: &Value) {
    assert_eq!(report["hint"], true, "{report}");
    let level = &report["calls"][0];
    assert!(level["calls"].as_u64().unwrap() > 0, "{level}");
    let round = &level["over_time"][0];
    let sample = round["samples"].as_array().unwrap().last().unwrap();
    assert!(sample["store_bytes"].as_u64().unwrap() > 0 && sample["kept_computed"].is_number(), "{sample}");
    for kind in ["retry", "deadline"] {
        assert!(level["lateness"][kind]["p99_us"].is_number(), "{level}");
    }
}

fn aims(report: &Value) -> String {
    report["aims"].to_string()
}

#[test]
fn calls_of_the_embedded_store_are_measured_over_time_and_its_folder_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let report = calls(folder.path(), &[]);
    check_level(&report);
    assert!(report["calls"][0]["over_time"][0]["samples"][0]["rss_bytes"].is_number(), "{report}");
    assert!(aims(&report).contains("calls/s against the floor"), "{report}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something is left");
}

#[test]
fn calls_on_a_redis_are_measured_over_time_and_the_server_is_left_as_it_was() {
    let redis = RedisServer::start();
    redis.cli(&["CONFIG", "SET", "slowlog-log-slower-than", "12345"]);
    let folder = tempfile::tempdir().unwrap();
    let report = calls(folder.path(), &["--store", &redis.url()]);
    check_level(&report);
    assert!(report["calls"][0]["over_time"][0]["samples"][0]["kept"].is_number(), "{report}");
    assert!(aims(&report).contains("longest script"), "{report}");
    assert_eq!(redis.cli(&["DBSIZE"]).trim(), "0", "keys are left");
    assert!(redis.cli(&["CONFIG", "GET", "slowlog-log-slower-than"]).contains("12345"));
}

#[test]
fn calls_can_be_left_waiting_in_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let redis = RedisServer::start();
    let store = redis.url();
    let mut fill = towpath(folder.path());
    fill.args(["--store", &store, "bench", "fill", "--tag", "t-", "--calls", "50"]);
    run(fill).exits(0).prints("50 calls wait");
    let mut hurried = towpath(folder.path());
    hurried.args(["--store", &store, "bench", "fill", "--tag", "t-", "--calls", "50", "--due-in", "1"]);
    run(hurried).exits(1).says("give them more time");
}
