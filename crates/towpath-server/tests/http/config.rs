//! The shared configuration: read, replaced, watched.

use serde_json::json;

use crate::support::server;

#[tokio::test]
async fn the_configuration_is_kept_and_its_watchers_wake() {
    let server = server().await;
    let first = server.get("/v1/config").await.with(200);
    assert_eq!(first, json!({ "version": 0, "value": null }));
    let watch = server.get("/v1/config?not_version=0&wait_ms=20000");
    let change = server.put("/v1/config", json!({ "value": { "retries": 5 } }));
    let (seen, changed) = tokio::join!(watch, change);
    let changed = changed.with(200);
    assert_eq!(seen.with(200), changed);
    assert_eq!((&changed["version"], &changed["value"]["retries"]), (&json!(1), &json!(5)));
    assert_eq!(server.get("/v1/config?not_version=1&wait_ms=10").await.with(200), changed, "nothing changed in time");
}

#[tokio::test]
async fn a_change_of_an_older_version_is_refused() {
    let server = server().await;
    server.put("/v1/config", json!({ "value": { "n": 1 } })).await.with(200);
    let error = server.put("/v1/config", json!({ "value": { "n": 2 }, "if_version": 0 })).await.error(409, "config_conflict");
    assert_eq!((&error["field"], &error["details"]["version"]), (&json!("if_version"), &json!(1)));
    server.put("/v1/config", json!({ "value": { "n": 2 }, "if_version": 1 })).await.with(200);
}

#[tokio::test]
async fn a_value_that_is_no_object_is_refused() {
    let server = server().await;
    for value in [json!(1), json!([1]), json!("text"), json!(null)] {
        let error = server.put("/v1/config", json!({ "value": value })).await.error(422, "bad_field");
        assert_eq!(error["field"], "value", "{value}");
    }
    for policies in [json!([1]), json!(null), json!("all")] {
        let error = server.put("/v1/config", json!({ "value": { "limit_policies": policies } })).await.error(422, "bad_field");
        assert_eq!(error["field"], "value.limit_policies", "{policies}");
    }
    assert_eq!(server.get("/v1/config").await.with(200)["version"], 0);
}
