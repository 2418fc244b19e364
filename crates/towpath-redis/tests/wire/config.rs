//! The shared configuration, which legacy peers write too, without versions and for a day.

use serde_json::{Value, json};
use towpath::{Payload, SetConfig};

use crate::rig::Rig;

const LEGACY: &str = "{\"queueMode\":true,\"redisHost\":\"127.0.0.1\",\"timestamp\":\"2026-11-15T18:28:15.568Z\"}";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_legacy_peer_configures_is_seen_by_ours() {
    let rig = Rig::start();
    rig.cli(&["SET", "function:global_config", LEGACY, "EX", "86400"]);
    let towpath = rig.towpath().await;
    let first = towpath.config().await.expect("the server is there");
    assert_eq!(first.value, Payload::from_json(LEGACY));
    rig.cli(&["SET", "function:global_config", "{\"queueMode\":false}", "EX", "86400"]);
    let second = towpath.config().await.expect("the server is there");
    assert_eq!(second.value, Payload::from_json("{\"queueMode\":false}"));
    assert!(second.version > first.version, "each value has a version of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_seeds_fields_that_we_configure_are_read_by_legacy_peers_and_the_others_stay_ours() {
    let rig = Rig::start();
    rig.cli(&["SET", "function:global_config", LEGACY, "EX", "86400"]);
    let towpath = rig.towpath().await;
    let seen = towpath.config().await.expect("the server is there").version;
    let value = Payload::from_json("{\"queueMode\": false, \"mode\": \"night\"}");
    let set = towpath.set_config(SetConfig { value, if_version: Some(seen) }).await.expect("the server is there");
    assert!(set.is_some_and(|view| view.version > seen));
    let read: Value = serde_json::from_str(&rig.cli(&["GET", "function:global_config"])).expect("JSON");
    assert_eq!(read, json!({"queueMode": false, "redisHost": "127.0.0.1", "timestamp": "2026-11-15T18:28:15.568Z"}), "merged, not wiped");
    assert_eq!(rig.cli(&["TTL", "function:global_config"]), "-1", "what we set does not go by itself");
    let view: Value = serde_json::from_slice(towpath.config().await.expect("the server is there").value.as_bytes()).expect("JSON");
    assert_eq!((&view["mode"], &view["queueMode"], &view["redisHost"]), (&json!("night"), &json!(false), &json!("127.0.0.1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_scopes_and_rate_policies_outlive_a_legacy_peer_that_configures() {
    let rig = Rig::start();
    rig.cli(&["SET", "function:global_config", LEGACY, "EX", "86400"]);
    let towpath = rig.towpath().await;
    let ours = "{\"lockScopes\": {\"a\": 1}, \"ratePolicies\": {\"b\": 2}}";
    towpath.set_config(SetConfig { value: Payload::from_json(ours), if_version: None }).await.expect("the server is there");
    assert_eq!(rig.cli(&["GET", "function:global_config"]), LEGACY, "a value without seeds' fields leaves the peers' key alone");
    rig.cli(&["SET", "function:global_config", "{\"queueMode\":false}", "EX", "86400"]);
    let view: Value = serde_json::from_slice(towpath.config().await.expect("the server is there").value.as_bytes()).expect("JSON");
    assert_eq!(view, json!({"lockScopes": {"a": 1}, "ratePolicies": {"b": 2}, "queueMode": false}));
    rig.cli(&["DEL", "function:global_config"]);
    let left = towpath.config().await.expect("the server is there");
    assert_eq!(left.value, Payload::from_json(ours), "and its expiry");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_based_on_what_a_legacy_peer_has_replaced_is_refused() {
    let rig = Rig::start();
    let towpath = rig.towpath().await;
    let ours = SetConfig { value: Payload::from_json("{\"mode\":\"night\"}"), if_version: None };
    let version = towpath.set_config(ours.clone()).await.expect("the server is there").expect("nobody else sets it").version;
    rig.cli(&["SET", "function:global_config", LEGACY, "EX", "86400"]);
    let late = towpath.set_config(SetConfig { if_version: Some(version), ..ours }).await.expect("the server is there");
    assert_eq!(late, None);
    assert_eq!(rig.cli(&["GET", "function:global_config"]), LEGACY);
}
