//! The functions to play with do what they say.

use serde_json::json;
use towpath_server::settings::Settings;

use crate::support::{server_with, settings};

#[tokio::test]
async fn every_demo_function_answers() {
    let server = server_with(Settings { demo: true, ..settings() }).await;
    let cases = [
        ("hello", json!({}), json!("Hello, world!")),
        ("hello", json!({ "name": "Ada" }), json!("Hello, Ada!")),
        ("add", json!({ "a": 1, "b": 2 }), json!(3)),
        ("add", json!({ "a": 0.5, "b": 2 }), json!(2.5)),
        ("fibonacci", json!({ "n": 10 }), json!(55)),
        ("slow", json!({ "seconds": 1 }), json!({ "slept_seconds": 1 })),
        ("flaky", json!({}), json!({ "attempt": 2 })),
    ];
    for (function, params, data) in cases {
        let called = server.post(&format!("/v1/functions/{function}/call"), json!({ "params": params })).await.with(200);
        assert_eq!(called["data"], data, "{function}");
    }
    let listed = server.get("/v1/functions").await.with(200);
    for function in listed["functions"].as_array().unwrap() {
        assert!(function["description"].is_string(), "{function}");
    }
    let error = server.post("/v1/functions/fibonacci/call", json!({ "params": { "n": 1_000 } })).await.error(422, "invalid_params");
    assert_eq!(error["field"], "params.n");
}
