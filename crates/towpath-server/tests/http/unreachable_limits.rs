//! Limits whose store is out of reach: each rule says what happens then.

use serde_json::{Value, json};
use towpath_redis_testing::RedisServer;
use towpath_server::settings::Settings;

use crate::support::{Server, server_with, settings};

async fn check(server: &Server, scope: &str, on_error: &str) -> crate::support::Answer {
    let rule = json!({ "name": "r", "algorithm": "sliding_log", "limit": 2, "window_ms": 3_600_000, "on_error": on_error });
    server.post(&format!("/v1/limits/{scope}/check"), json!({ "rules": [rule] })).await
}

#[tokio::test]
async fn a_closed_rule_answers_503_and_the_others_answer_for_themselves() {
    let redis = RedisServer::build().append_only("everysec").start();
    let server = server_with(Settings { store: redis.url(), ..settings() }).await;
    let policy = json!([{ "name": "r", "limit": 1, "window_ms": 1_000, "on_error": "open" }]);
    server.put("/v1/limits/acme", json!({ "policy": "soft", "rules": policy })).await.with(200);
    assert_eq!(server.post("/v1/limits/acme/check", json!({ "policy": "soft" })).await.with(200)["allowed"], true);
    assert_eq!(check(&server, "acme", "closed").await.with(200)["allowed"], true);
    drop(redis);

    let closed = check(&server, "acme", "closed").await;
    let seconds: u64 = closed.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(seconds >= 1);
    closed.error(503, "store_unavailable");
    let open: Vec<Value> = [check(&server, "acme", "open").await, check(&server, "acme", "open").await].map(|said| said.with(200)).into();
    assert!(open.iter().all(|said| said["allowed"] == true && said["degraded"] == true), "{open:?}");
    for allowed in [true, true, false] {
        let local = check(&server, "local", "local").await.with(200);
        assert_eq!((&local["allowed"], &local["degraded"]), (&json!(allowed), &json!(true)));
    }
    let by_policy = server.post("/v1/limits/acme/check", json!({ "policy": "soft" })).await.with(200);
    assert_eq!((&by_policy["allowed"], &by_policy["degraded"]), (&json!(true), &json!(true)), "what the policy was is still known");
}
