//! What `/v1/health`, `/metrics` and the command line say about keys of a wrong type and about streams of legacy peers.

use serde_json::Value;

use crate::caller::Caller;
use crate::rig::{everysec_redis, serve};
use crate::support::wait_for;

const STREAM: &str = "function:stream:__global__:upper";

#[test]
fn health_names_the_function_and_the_key_that_keeps_it_from_its_calls() {
    let (redis, caller) = (everysec_redis(), Caller::new());
    let server = serve(&redis.url());
    for function in ["upper", "good"] {
        server.run(&["functions", "define", function]).exits(0);
    }
    let health = || caller.get(&server.url, "/v1/health").expect("the server answers").1;
    assert_eq!(health()["status"], "ok");
    for key in ["queue", "calls", "buckets", "owed", "legacy"] {
        let key = format!("towpath:{key}:{{{STREAM}}}");
        let was_there = redis.cli(&["exists", &key]).trim() == "1";
        if was_there {
            redis.cli(&["rename", &key, "aside"]);
        }
        redis.cli(&["set", &key, "of another program"]);
        let health = health();
        let problems = health["problems"].as_array().unwrap();
        let names_it = |problem: &Value| problem.as_str().is_some_and(|text| text.contains("'upper'") && text.contains(&key));
        assert!(health["status"] == "degraded" && problems.iter().any(names_it), "{key}: {health}");
        assert!(!problems.iter().any(|problem| problem.as_str().unwrap().contains("'good'")), "{health}");
        let listed = server.run(&["functions", "--json"]).exits(0).stdout;
        assert!(listed.contains(r#""upper""#) && listed.contains(r#""good""#), "{listed}");
        redis.cli(&["del", &key]);
        if was_there {
            redis.cli(&["rename", "aside", &key]);
        }
    }
    assert_eq!(health()["status"], "ok");
}

#[test]
fn the_stream_of_legacy_peers_is_in_the_api_the_metrics_and_the_command_line() {
    let redis = everysec_redis();
    let server = serve(&redis.url());
    server.run(&["functions", "define", "upper"]).exits(0);
    let add = |id: &str| {
        redis.cli(&["xadd", STREAM, "*", "callId", id, "params", r#""hi""#, "responseChannel", &format!("function:response:{id}")])
    };
    for id in ["one", "two", "three"] {
        add(id);
    }
    redis.cli(&["xreadgroup", "group", "group:upper", "worker-1", "count", "1", "streams", STREAM, ">"]);
    let shown = server.run(&["functions", "show", "upper", "--json"]).exits(0).json();
    let stream = &shown["stream"];
    assert_eq!((&stream["length"], &stream["pending"]), (&3.into(), &1.into()), "{shown}");
    assert!(stream["oldest_age_ms"].is_u64() && stream["oldest_pending_age_ms"].is_u64(), "{shown}");
    assert!(stream["groups"].as_array().unwrap().iter().any(|group| group["name"] == "group:upper" && group["pending"] == 1), "{shown}");
    server.run(&["functions", "show", "upper"]).exits(0).prints("legacy stream").prints("3 entries, the oldest").prints("group:upper");
    let metrics = || reqwest::blocking::get(format!("{}/metrics", server.url)).unwrap().text().unwrap();
    let labels = r#"{scope="__global__",function="upper"}"#;
    let text = metrics();
    for line in [format!("towpath_legacy_stream_length{labels} 3"), format!("towpath_legacy_stream_pending{labels} 1")] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    let doctor = server.run(&["doctor", "--json"]).json();
    let streams =
        doctor["checks"].as_array().unwrap().iter().find(|finding| finding["check"] == "streams").unwrap_or_else(|| panic!("{doctor}"));
    assert!(streams["message"].as_str().unwrap().contains("3 entries"), "{streams}");

    // An import is a submit.
    let _worker = server.worker("upper", &["--exec", "tr a-z A-Z"]);
    wait_for("the entries to be imported and counted", || {
        metrics().contains(&format!("towpath_calls_submitted_total{labels} 2")).then_some(())
    });
}
