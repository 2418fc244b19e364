//! Entries of legacy callers for a worker of any kind: their params are checked and filled in like those of every caller.

use serde_json::{Value, json};
use towpath_redis_testing::RedisServer;

use crate::rig::{everysec_redis, serve};
use crate::support::wait_for;

/// Writes an entry as a legacy caller does, and waits for its reply.
fn legacy_call(redis: &RedisServer, call_id: &str, params: &str) -> Value {
    let list = format!("function:response:{call_id}");
    redis.cli(&["XADD", "function:stream:__global__:weigh", "*", "callId", call_id, "params", params, "responseChannel", &list]);
    let reply = wait_for("the reply", || Some(redis.cli(&["LINDEX", &list, "0"])).filter(|reply| !reply.trim().is_empty()));
    serde_json::from_str(&reply).unwrap()
}

#[test]
fn a_legacy_caller_of_a_program_is_told_which_parameter_is_missing() {
    let redis = everysec_redis();
    let server = serve(&redis.url());
    let parameters = r#"[{"name":"n","type":"integer","required":true},{"name":"unit","type":"string","default":"kg"}]"#;
    let _worker = server.worker("weigh", &["--parameters", parameters, "--exec", "tee -a runs"]);

    let refused = legacy_call(&redis, "c-1", r#"{"unit":"g"}"#);
    assert_eq!((&refused["success"], &refused["code"]), (&json!(false), &json!("invalid_params")), "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("parameter 'n': expected an integer, got nothing"), "{refused}");
    assert!(!server.path("runs").exists(), "the program was not started");

    assert_eq!(legacy_call(&redis, "c-2", r#"{"n":2}"#)["data"], json!({ "n": 2, "unit": "kg" }));
    assert_eq!(std::fs::read_to_string(server.path("runs")).unwrap().lines().count(), 1);
}
