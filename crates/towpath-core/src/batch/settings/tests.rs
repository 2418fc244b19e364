//! What may be set, and what may not.

use serde_json::{Value, json};

use super::*;

fn patch(json: &Value) -> Result<Settings, String> {
    let patch: SettingsPatch = serde_json::from_value(json.clone()).map_err(|refused| refused.to_string())?;
    let settings = Settings::of(&BatcherName::new("orders").unwrap());
    settings.patched(&patch).map_err(|refused| format!("{}: {refused}", refused.code()))
}

#[test]
fn the_old_workers_batcher_behaves_as_it_did_and_others_are_exact() {
    let old = Settings::of(&BatcherName::new("input_contour").unwrap());
    assert_eq!((old.merge.strategy, old.order, old.reason_style), (Strategy::Text, Order::Timestamp, ReasonStyle::Seed));
    assert_eq!((old.debounce, old.max_wait), (Duration::from_secs(10), Duration::from_secs(300)));
    assert_eq!(old.error_field.as_deref(), Some("error"));
    let without = old.clone().patched(&serde_json::from_value(json!({ "error_field": "" })).unwrap()).unwrap();
    assert_eq!(without.error_field, None);
    assert_eq!(old.patched(&without.to_patch()).unwrap(), without, "what is switched off stays off when it is written and read");
    let other = Settings::of(&BatcherName::new("orders").unwrap());
    assert_eq!(other.error_field, None);
    assert_eq!((other.merge.strategy, other.order, other.reason_style), (Strategy::List, Order::Arrival, ReasonStyle::Exact));
}

#[test]
fn all_settings_survive_being_written_and_read() {
    let given = json!({
        "debounce_seconds": 0.25, "max_wait_seconds": 60.0, "max_messages": 2, "max_bytes": 2048, "flush_keywords": ["да"],
        "idempotency_seconds": 0.0, "duplicates": "accept", "key": ["/a/b"], "split_unknown": false, "serial": false,
        "order": "timestamp", "merge": "template", "voice_template": "<{text}>", "separator": "", "identity_from": "last",
        "media_merge": "concat", "template": {"x": "{{/first}}"}, "reason_style": "seed", "max_attempts": 3, "backoff_base_ms": 5,
        "backoff_cap_ms": 50, "timeout_seconds": 1.5, "lease_seconds": 5.0, "concurrency": 1, "per_host": 2,
        "rate": {"policy": "calm", "scope": "smtp"},
        "target": {"function": "Process Order", "await": true}, "secrets": ["env:SECRET"], "allow_targets": ["127.0.0.0/8", "n8n"],
        "error_field": "error", "sources": [{"list": "queue:incoming"}], "max_open": 5, "dlq_keep_days": 30, "layout": "own",
        "partitions": 8
    });
    let settings = patch(&given).unwrap();
    assert_eq!(serde_json::to_value(settings.to_patch()).unwrap(), given);
    assert_eq!(settings.rules().idempotency, Duration::ZERO, "where duplicates are taken nothing is remembered");
    assert_eq!(patch(&serde_json::to_value(settings.to_patch()).unwrap()), Ok(settings));
}

#[test]
fn a_number_outside_its_range_is_refused_by_name() {
    for (field, wrong) in [
        ("debounce_seconds", json!(-0.1)),
        ("debounce_seconds", json!(3600.5)),
        ("max_wait_seconds", json!(0)),
        ("max_wait_seconds", json!(86_401)),
        ("max_messages", json!(0)),
        ("max_messages", json!(10_001)),
        ("max_bytes", json!(1023)),
        ("max_bytes", json!(16_777_217)),
        ("max_attempts", json!(0)),
        ("max_attempts", json!(51)),
        ("concurrency", json!(0)),
        ("lease_seconds", json!(0)),
        ("partitions", json!(0)),
        ("key", json!([])),
        ("flush_keywords", json!(vec!["x"; 33])),
    ] {
        let refused = patch(&json!({ field: wrong })).unwrap_err();
        assert!(refused.starts_with(&format!("out_of_range: {field} is ")), "{refused}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_what_would() {
    for (wrong, hint) in [
        (json!({"merge": "template"}), "needs a template"),
        (json!({"template": "{{/first"}), "no }} behind"),
        (json!({"template": {"a": ["{{/second/x}}"]}}), "must begin with /first"),
        (json!({"template": "{{first}}"}), "must begin with /first"),
        (json!({"voice_template": "voice"}), "{text}"),
        (json!({"secrets": ["whsec_c2VjcmV0"]}), "env:NAME"),
        (json!({"key": ["/"]}), "cannot stand here"),
        (json!({"target": {"url": "ftp://x"}}), "http://"),
        (json!({"target": {"url": "http://user:pw@host/"}}), "without a user name"),
        (json!({"target": {"url": "http://h", "pull": true}}), "a target is"),
        (json!({"target": {"pull": false}}), "a target is"),
        (json!({"target": "http://h"}), "expected an object such as"),
        (json!({"sources": ["queue:incoming"]}), "expected an object such as"),
        (json!({"rate": "calm"}), "expected an object such as"),
        (json!("debounce"), "expected an object of settings"),
        (json!({"target": {"function": ""}}), "empty"),
        (json!({"sources": [{"stream": "x"}]}), "unknown field"),
        (json!({"debounce": 1}), "unknown field `debounce`"),
        (json!({"order": "random"}), "unknown variant"),
        (json!({"rate": {"policy": ""}}), "invalid_name: rate.policy: rule name is empty"),
        (json!({"rate": {"policy": "a:b"}}), "invalid_name: rate.policy: "),
        (json!({"rate": {"policy": "p", "scope": " "}}), "invalid_name: rate.scope: "),
        (json!({"rate": {"scope": "smtp"}}), "missing field `policy`"),
        (json!({"rate": {"policy": "p", "scop": "s"}}), "unknown field `scop`"),
    ] {
        let refused = patch(&wrong).unwrap_err();
        assert!(refused.contains(hint), "{wrong}: {refused}");
        assert!(!refused.contains("c2VjcmV0"), "a secret is never repeated");
    }
}

#[test]
fn a_later_patch_overrides_an_earlier_one_and_leaves_the_rest() {
    let settings = patch(&json!({"debounce_seconds": 1, "serial": false})).unwrap();
    let stored: SettingsPatch = serde_json::from_value(json!({"debounce_seconds": 2})).unwrap();
    let settings = settings.patched(&stored).unwrap();
    assert_eq!((settings.debounce, settings.serial), (Duration::from_secs(2), false));
}

#[test]
fn a_rate_counts_under_the_batchers_own_name_unless_another_scope_is_named() {
    let orders = BatcherName::new("orders").unwrap();
    let scope = |rate: Value| patch(&json!({ "rate": rate })).unwrap().rate.unwrap().scope_of(&orders).unwrap();
    assert_eq!(scope(json!({"policy": "calm"})).as_str(), "orders");
    assert_eq!(scope(json!({"policy": "calm", "scope": "smtp"})).as_str(), "smtp");
    let blank = BatchRate { policy: "calm".parse().unwrap(), scope: None }.scope_of(&BatcherName::new(" ").unwrap()).unwrap_err();
    assert_eq!((blank.code(), blank.field()), ("invalid_name", "rate.scope"));
}

#[test]
fn what_another_version_kept_is_read_as_far_as_it_is_known() {
    let old = br#"{"debounce_seconds": 2, "colour": "red", "target": {"pull": true}, "batch_pause": {"ms": 5}}"#;
    let kept = SettingsPatch::read_kept(old).unwrap();
    assert_eq!(kept.unknown, ["batch_pause", "colour"]);
    let expected = json!({"debounce_seconds": 2.0, "target": {"pull": true}});
    assert_eq!(serde_json::to_value(&kept.patch).unwrap(), expected, "without a rate it has none");
    let whole = serde_json::to_vec(&json!({"rate": {"policy": "calm"}})).unwrap();
    assert_eq!(SettingsPatch::read_kept(&whole).unwrap().unknown, [] as [&str; 0]);
    for wrong in [&br#"{"rate": {"policy": 7}}"#[..], br#"{"max_messages": "many"}"#, b"[]", b"{"] {
        assert!(SettingsPatch::read_kept(wrong).is_err(), "a value that cannot be is no unknown setting");
    }
}
