//! Limits over HTTP: the seed's shape, rules, policies, headers, refunds, and every kind of wrong rule.

use serde_json::{Value, json};

use crate::support::server;

const CHECK: &str = "/v1/limits/acme/check";

fn rule(algorithm: &str, limit: u64) -> Value {
    json!({ "name": "r", "algorithm": algorithm, "limit": limit, "window_ms": 60_000 })
}

#[tokio::test]
async fn a_check_without_anything_is_the_seeds_and_counts_denied_calls() {
    let server = server().await;
    for (count, allowed) in [(1, true), (2, true), (3, false), (4, false)] {
        let verdict = server.post(CHECK, json!({ "limit": "2", "windowSeconds": 3_600.0 })).await.with(200);
        assert_eq!((&verdict["allowed"], &verdict["scope"]), (&json!(allowed), &json!("acme")));
        assert_eq!((&verdict["count"], &verdict["limit"]), (&json!(count), &json!(2)));
    }
    let other = server.post("/v1/limits/other%2Fscope/check", json!({})).await.with(200);
    assert_eq!((&other["scope"], &other["limit"], &other["rules"][0]["window_ms"]), (&json!("other/scope"), &json!(10), &json!(60_000)));
}

#[tokio::test]
async fn a_denial_names_the_rule_and_the_time_to_come_back() {
    let server = server().await;
    let body = json!({ "rules": [rule("gcra", 1), { "name": "wide", "limit": 100, "window_ms": 1_000, "burst": 50 }] });
    let allowed = server.post(CHECK, body.clone()).await;
    assert_eq!(allowed.headers["ratelimit-policy"], r#""r";q=1;w=60, "wide";q=100;w=1"#);
    assert_eq!(allowed.headers["ratelimit"], r#""r";r=0;t=60, "wide";r=49;t=1"#);
    assert_eq!(allowed.with(200)["allowed"], true);
    let denied = server.post(CHECK, body.clone()).await.with(200);
    assert_eq!((&denied["allowed"], &denied["rule"], &denied["violated"]), (&json!(false), &json!("r"), &json!(["r"])));
    let retry = denied["retry_after_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&retry), "{retry}");
    assert_eq!(denied["rules"][1]["ok"], true);

    let problem = server.post(&format!("{CHECK}?deny_status=429"), body).await;
    assert_eq!((problem.status.as_u16(), &problem.headers["content-type"]), (429, &"application/problem+json".parse().unwrap()));
    let seconds: u64 = problem.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
    assert_eq!(problem.body["violated-policies"], json!(["r"]));
    assert!(problem.body["type"].as_str().unwrap().ends_with("#quota-exceeded"));
}

#[tokio::test]
async fn cost_wait_peek_refund_and_reset_do_what_they_say() {
    let server = server().await;
    let rules = json!([{ "name": "r", "limit": 10, "window_ms": 1_000, "burst": 10 }]);
    let with = |more: Value| {
        let mut body = json!({ "rules": rules });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    assert_eq!(server.post(CHECK, with(json!({ "cost": 10 }))).await.with(200)["remaining"], 0);
    let reserved = server.post(CHECK, with(json!({ "cost": 10, "max_wait_ms": 5_000 }))).await.with(200);
    let wait = reserved["wait_ms"].as_u64().unwrap();
    assert!(reserved["allowed"] == true && (1..=1_000).contains(&wait), "{reserved}");
    assert_eq!(server.post(CHECK, with(json!({ "cost": 11 }))).await.with(200)["never"], true);
    server.post("/v1/limits/acme/refund", with(json!({ "cost": 1_000 }))).await.with(200);
    assert_eq!(server.post(CHECK, with(json!({ "cost": 10, "mode": "peek" }))).await.with(200)["allowed"], true);
    assert_eq!(server.post(CHECK, with(json!({ "cost": 10 }))).await.with(200)["allowed"], true, "looking took nothing");
    let query = "rules=r%3Dgcra:10/1s,burst%3D10";
    assert_eq!(server.delete(&format!("/v1/limits/acme?{query}")).await.with(200), json!({ "scope": "acme", "reset": 1 }));
    assert_eq!(server.get(&format!("/v1/limits/acme?{query}")).await.with(200)["remaining"], 10);
}

#[tokio::test]
async fn a_policy_is_kept_for_its_scope_and_used_by_name() {
    let server = server().await;
    server.get("/v1/limits/acme").await.error(404, "policy_not_found");
    server.post(CHECK, json!({ "policy": "default" })).await.error(404, "policy_not_found");
    let kept = server.put("/v1/limits/acme", json!({ "rules": [rule("sliding_log", 3)] })).await.with(200);
    assert_eq!((&kept["policy"], &kept["rules"][0]["algorithm"]), (&json!("default"), &json!("sliding_log")));
    server.put("/v1/limits/acme", json!({ "policy": "strict", "rules": [rule("sliding_log", 1)] })).await.with(200);
    assert_eq!(server.post(CHECK, json!({})).await.with(200)["limit"], 3, "without anything the scope's default counts");
    assert_eq!(server.post(CHECK, json!({ "policy": "strict" })).await.with(200)["allowed"], false, "both count in the same place");
    assert_eq!(server.get("/v1/limits/acme").await.with(200)["count"], 1);
    let listed = server.get("/v1/limits").await.with(200);
    let names: Vec<&str> = listed["policies"].as_array().unwrap().iter().map(|policy| policy["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["default", "strict"]);
    server.put("/v1/limits/acme", json!({ "rules": [] })).await.with(200);
    server.get("/v1/limits/acme").await.error(404, "policy_not_found");
    assert_eq!(server.delete("/v1/limits/acme?policy=strict").await.with(200)["reset"], 1);
}

#[tokio::test]
async fn a_rule_that_only_watches_says_what_it_would_do() {
    let server = server().await;
    let body = json!({ "rules": [{ "name": "planned", "algorithm": "sliding_log", "limit": 1, "window_ms": 60_000, "shadow": true }] });
    let first = server.post(CHECK, body.clone()).await.with(200);
    let second = server.post(CHECK, body).await.with(200);
    assert_eq!((&first["would_deny"], &second["would_deny"], &second["shadow"]), (&json!(false), &json!(true), &json!(true)));
    assert_eq!((&second["allowed"], &second["violated"]), (&json!(true), &json!([])));
}

#[tokio::test]
async fn everything_that_cannot_be_is_refused_with_its_name_and_nothing_is_counted() {
    let server = server().await;
    let of = |key: &str, value: Value| {
        let mut rule = rule("gcra", 5);
        rule[key] = value;
        json!({ "rules": [rule] })
    };
    let long = "x".repeat(300);
    let two = json!({ "rules": [rule("gcra", 1), rule("gcra", 2)] });
    let nine: Vec<Value> = (0..9).map(|number| json!({ "name": format!("r{number}"), "limit": 1, "window_ms": 1 })).collect();
    let cases = [
        ("acme", of("limit", json!(0)), 400, "out_of_range", "rules[0].limit"),
        ("acme", of("limit", json!(-1)), 400, "out_of_range", "rules[0].limit"),
        ("acme", of("limit", json!(1.5)), 400, "out_of_range", "rules[0].limit"),
        ("acme", of("limit", json!("ten")), 400, "out_of_range", "rules[0].limit"),
        ("acme", of("limit", json!(1_000_000_001)), 400, "out_of_range", "rules[0].limit"),
        ("acme", of("window_ms", json!(0)), 400, "out_of_range", "rules[0].window_ms"),
        ("acme", of("window_ms", json!(31 * 86_400_000_u64 + 1)), 400, "out_of_range", "rules[0].window_ms"),
        ("acme", of("burst", json!(0)), 400, "out_of_range", "rules[0].burst"),
        ("acme", of("name", json!("")), 400, "invalid_name", "rules[0].name"),
        ("acme", of("name", json!("a:b")), 400, "invalid_name", "rules[0].name"),
        ("acme", of("key", json!(long)), 400, "invalid_name", "rules[0].key"),
        ("acme", of("algorithm", json!("leaky")), 400, "invalid_field", "rules[0].algorithm"),
        ("acme", of("on_error", json!("shrug")), 400, "invalid_field", "rules[0].on_error"),
        ("acme", of("bust", json!(3)), 400, "unknown_field", "rules[0].bust"),
        ("acme", of("count_denied", json!(true)), 422, "bad_rule", "rules[0]"),
        ("acme", json!({ "rules": [rule("sliding_log", 1_001)] }), 422, "bad_rule", "rules[0]"),
        ("acme", two, 422, "bad_rule", "rules"),
        ("acme", json!({ "rules": nine }), 422, "too_many", "rules"),
        ("acme", json!({ "rules": [rule("sliding_log", 5)], "max_wait_ms": 5 }), 422, "bad_rule", "rules"),
        ("acme", json!({ "rules": [rule("gcra", 5)], "policy": "p" }), 422, "ambiguous", "rules"),
        ("acme", json!({ "policy": "p", "limit": 5 }), 422, "ambiguous", "rules"),
        ("acme", json!({ "cost": 0 }), 400, "out_of_range", "cost"),
        ("acme", json!({ "cost": 1_000_001 }), 400, "out_of_range", "cost"),
        ("acme", json!({ "max_wait_ms": 604_800_001 }), 400, "out_of_range", "max_wait_ms"),
        ("acme", json!({ "windowSeconds": 0 }), 400, "out_of_range", "windowSeconds"),
        ("acme", json!({ "limit": "" }), 400, "out_of_range", "limit"),
        ("acme", json!({ "mode": "guess" }), 400, "invalid_field", "mode"),
        ("%20", json!({}), 400, "invalid_name", "scope"),
        ("a%0Ab", json!({}), 400, "invalid_name", "scope"),
        (long.as_str(), json!({}), 400, "invalid_name", "scope"),
    ];
    for (scope, body, status, code, field) in cases {
        let error = server.post(&format!("/v1/limits/{scope}/check"), body.clone()).await.error(status, code);
        assert_eq!(error["field"], field, "{body}");
        if code == "out_of_range" {
            assert!(error["details"]["max"].as_u64().is_some(), "{error}");
        }
    }
    let huge = json!({ "rules": [{ "name": "r", "limit": 1, "window_ms": 31 * 86_400_000_u64, "burst": 1_000_000 }] });
    server.post(CHECK, huge).await.error(422, "rule_too_large");
    server.post(&format!("{CHECK}?deny_status=418"), json!({})).await.error(400, "invalid_field");
    let untouched = server.post(CHECK, json!({ "rules": [rule("gcra", 5)], "cost": 0, "mode": "peek" })).await.with(200);
    assert_eq!(untouched["count"], 0);
}

#[tokio::test]
async fn limits_that_have_something_in_use_are_listed_in_pages() {
    let server = server().await;
    let none = server.get("/v1/limits").await.with(200);
    assert_eq!(none, json!({ "limits": [], "policies": [] }));
    for scope in ["zoo", "acme", "acme%3Aeu", "%D0%B7%D0%B0%D0%BA%D0%B0%D0%B7"] {
        let body = json!({ "rules": [rule("sliding_log", 3), { "name": "wide", "limit": 100, "window_ms": 60_000, "key": "u 17" }] });
        assert_eq!(server.post(&format!("/v1/limits/{scope}/check"), body).await.with(200)["allowed"], true);
    }
    server.put("/v1/limits/acme", json!({ "rules": [rule("gcra", 1)] })).await.with(200);
    let first = server.get("/v1/limits?prefix=acme&limit=3").await.with(200);
    let names = |page: &Value| -> Vec<String> {
        let text = |limit: &Value| format!("{} {}", limit["scope"].as_str().unwrap(), limit["name"].as_str().unwrap());
        page["limits"].as_array().unwrap().iter().map(text).collect()
    };
    assert_eq!(names(&first), ["acme r", "acme wide", "acme:eu r"]);
    assert_eq!(first["policies"].as_array().unwrap().len(), 1);
    let shown = &first["limits"][0];
    assert_eq!(
        (&shown["algorithm"], &shown["limit"], &shown["count"], &shown["remaining"]),
        (&json!("sliding_log"), &json!(3), &json!(1), &json!(2))
    );
    assert!((1..=60_000).contains(&shown["reset_ms"].as_u64().unwrap()));
    assert_eq!(first["limits"][1]["key"], "u 17");
    let cursor = first["next"].as_str().unwrap();
    let second = server.get(&format!("/v1/limits?prefix=acme&limit=3&cursor={cursor}")).await.with(200);
    assert_eq!((names(&second), &second["next"], &second["policies"]), (vec!["acme:eu wide".to_owned()], &Value::Null, &json!([])));
    assert_eq!(server.get("/v1/limits").await.with(200)["limits"].as_array().unwrap().len(), 8);
    for query in ["cursor=nonsense", "cursor=%00", "cursor="] {
        assert_eq!(server.get(&format!("/v1/limits?{query}")).await.error(400, "invalid_field")["field"], "cursor");
    }
    assert_eq!(server.get("/v1/limits?limit=0").await.error(400, "out_of_range")["field"], "limit");
    assert_eq!(server.get("/v1/limits?limit=201").await.error(400, "out_of_range")["field"], "limit");
}

#[tokio::test]
async fn the_older_headers_are_sent_to_who_asks_for_them() {
    let server = server().await;
    let body = json!({ "rules": [rule("sliding_log", 2), { "name": "wide", "limit": 100, "window_ms": 1_000, "burst": 50 }] });
    let plain = server.post(CHECK, body.clone()).await;
    assert!(plain.headers.keys().all(|name| !name.as_str().starts_with("x-ratelimit")));
    let with = server.post(&format!("{CHECK}?x_ratelimit=true"), body.clone()).await;
    let of = |name: &str| with.headers[name].to_str().unwrap().to_owned();
    assert_eq!((of("x-ratelimit-limit"), of("x-ratelimit-remaining"), of("x-ratelimit-reset")), ("2".into(), "0".into(), "60".into()));
    let denied = server.post(&format!("{CHECK}?x_ratelimit=true&deny_status=429"), body.clone()).await;
    assert_eq!((denied.status.as_u16(), &denied.headers["x-ratelimit-remaining"]), (429, &"0".parse().unwrap()));
    server.post(&format!("{CHECK}?x_ratelimit=maybe"), body).await.error(400, "invalid_field");
}

#[tokio::test]
async fn checks_are_counted_for_prometheus() {
    let server = server().await;
    let shadow = json!({ "name": "planned", "algorithm": "sliding_log", "limit": 1, "window_ms": 3_600_000, "shadow": true });
    let kept_in_mind = json!({ "name": "log", "algorithm": "sliding_log", "limit": 1, "window_ms": 3_600_000 });
    for _ in 0..3 {
        server.post(CHECK, json!({ "limit": 1, "windowSeconds": 3_600 })).await.with(200);
        server.post(CHECK, json!({ "rules": [shadow] })).await.with(200);
        server.post(CHECK, json!({ "rules": [kept_in_mind] })).await.with(200);
        server.post(CHECK, json!({ "rules": [kept_in_mind], "mode": "peek" })).await.with(200);
    }
    let text = server.get("/metrics").await.text;
    for (rule, verdict, count) in [
        ("fixed_window", "allowed", 1),
        ("fixed_window", "denied", 2),
        ("planned", "allowed", 1),
        ("planned", "would_deny", 2),
        ("log", "allowed", 1),
        ("log", "denied", 2),
    ] {
        let line = format!(r#"towpath_limit_checks_total{{rule="{rule}",verdict="{verdict}"}} {count}"#);
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
}
