//! Limits as a Rust user asks them: verdicts, waits, refusals kept in mind, policies, and a store that is out of reach.

use std::sync::Arc;

use towpath::limits::{LimitError, LimitScope, Rule, RuleName, Rules};
use towpath::testing::TestTowpath;
use towpath::{Payload, SetConfig, StoreTrouble, VirtualClock};
use towpath_conformance::model::ModelStore;

use crate::on_every_store;
use crate::support::faulty::{FaultyStore, When, Which};
use crate::support::{millis, seconds, start};

fn rule(text: &str) -> Rule {
    text.parse().unwrap()
}

fn faulty() -> (Arc<FaultyStore>, TestTowpath) {
    let clock = VirtualClock::new();
    let model = Arc::new(ModelStore::new(Arc::new(clock.clone())));
    let store = FaultyStore::new(model, Which::None, When::Before);
    (Arc::clone(&store), TestTowpath::with_store(store, clock))
}

on_every_store! {
    a_verdict_says_who_denied_and_when_to_come_back
    a_verdict_gives_back_what_it_took
    a_take_with_a_wait_comes_when_there_is_room
    whoever_stops_waiting_gives_its_place_back
    a_policy_of_a_scope_goes_before_the_one_for_all
    policies_leave_the_rest_of_the_configuration_alone
    a_question_without_rules_or_with_too_much_is_refused
}

async fn a_verdict_says_who_denied_and_when_to_come_back(test: TestTowpath) {
    let limit = || test.limit("acme").rule(rule("wide=gcra:100/60s,burst=50")).rule(rule("narrow=sliding_log:2/1s"));
    let first = limit().take().await.unwrap();
    assert_eq!((first.allowed, first.rule.as_str(), first.count, first.limit, first.remaining), (true, "narrow", 1, 2, 1));
    assert!(limit().take().await.unwrap().allowed);
    let denied = limit().take().await.unwrap();
    assert_eq!((denied.allowed, denied.rule.as_str(), denied.retry_after, denied.never), (false, "narrow", Some(seconds(1)), false));
    assert_eq!(denied.violated.iter().map(RuleName::as_str).collect::<Vec<_>>(), ["narrow"]);
    assert_eq!((denied.rules.len(), denied.rules[0].1.ok, denied.would_deny, denied.degraded), (2, true, None, false));
    assert!(limit().cost(3).take().await.unwrap().never);
}

async fn a_verdict_gives_back_what_it_took(test: TestTowpath) {
    let limit = || test.limit("acme").rule(rule("r=sliding_log:2/1s")).cost(2);
    let verdict = limit().take().await.unwrap();
    let denied = limit().take().await.unwrap();
    assert!(!denied.allowed);
    denied.refund().await.unwrap();
    assert!(!limit().take().await.unwrap().allowed, "a refusal has nothing to give back");
    verdict.refund().await.unwrap();
    assert!(limit().take().await.unwrap().allowed);
    assert_eq!(limit().reset().await.unwrap(), 1);
    assert!(limit().take().await.unwrap().allowed);
    assert_eq!(limit().cost(1).refund().await.unwrap().remaining, 1);
}

async fn a_take_with_a_wait_comes_when_there_is_room(test: TestTowpath) {
    let limit = || test.limit("acme").rule(rule("r=gcra:10/1s"));
    assert!(limit().take().await.unwrap().allowed);
    let before = test.now();
    let verdict = test.finish(limit().max_wait(millis(500)).take()).await.unwrap();
    assert_eq!((verdict.allowed, verdict.wait, test.now().since(before)), (true, millis(100), millis(100)));
    let reserved = limit().max_wait(millis(500)).reserve().await.unwrap();
    assert_eq!((reserved.allowed, reserved.wait), (true, millis(100)), "a reserve answers at once");
    let denied = limit().max_wait(millis(150)).take().await.unwrap();
    assert_eq!((denied.allowed, denied.retry_after), (false, Some(millis(200))));
}

async fn whoever_stops_waiting_gives_its_place_back(test: TestTowpath) {
    let limit = || test.limit("acme").rule(rule("r=gcra:1/1s"));
    assert!(limit().take().await.unwrap().allowed);
    let waiting = start(limit().max_wait(seconds(5)).take());
    test.settle().await;
    assert_eq!(limit().cost(0).peek().await.unwrap().reset, seconds(2));
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    test.settle().await;
    assert_eq!(limit().cost(0).peek().await.unwrap().reset, seconds(1));
}

async fn a_policy_of_a_scope_goes_before_the_one_for_all(test: TestTowpath) {
    let (policies, name) = (test.limit_policies(), RuleName::new("default").unwrap());
    let acme = LimitScope::new("acme").unwrap();
    let missing = test.limit("acme").policy("default").take().await.unwrap_err();
    assert_eq!(missing.code(), "policy_not_found", "{missing}");
    assert!(policies.put(None, &name, &Rules::one(rule("r=sliding_log:1/60s"))).await.unwrap());
    assert_eq!(test.limit("acme").policy("default").take().await.unwrap().limit, 1);
    assert!(policies.put(Some(&acme), &name, &Rules::one(rule("r=sliding_log:9/60s"))).await.unwrap());
    assert!(!policies.put(Some(&acme), &name, &Rules::one(rule("r=sliding_log:7/60s"))).await.unwrap());
    assert_eq!(test.limit("acme").policy("default").take().await.unwrap().limit, 7);
    assert_eq!(test.limit("other").policy("default").take().await.unwrap().limit, 1);
    let listed = policies.list().await.unwrap();
    assert_eq!(listed.iter().map(|policy| policy.scope.as_ref().map(LimitScope::as_str)).collect::<Vec<_>>(), [None, Some("acme")]);
    assert!(policies.remove(Some(&acme), &name).await.unwrap());
    assert!(!policies.remove(Some(&acme), &name).await.unwrap());
    assert_eq!(test.limit("acme").policy("default").peek().await.unwrap().limit, 1);
}

async fn policies_leave_the_rest_of_the_configuration_alone(test: TestTowpath) {
    let name = RuleName::new("default").unwrap();
    test.set_config(SetConfig { value: Payload::from_json(r#"{"mode":"night"}"#), if_version: None }).await.unwrap();
    test.limit_policies().put(None, &name, &Rules::one(rule("r=gcra:1/1s"))).await.unwrap();
    let text = test.config().await.unwrap().value;
    let kept: serde_json::Value = serde_json::from_str(text.as_str()).unwrap();
    assert_eq!((kept["mode"].as_str(), kept["limit_policies"]["for_all"]["default"][0]["name"].as_str()), (Some("night"), Some("r")));
    for value in ["[1]", r#"{"limit_policies": {"for_all": {"default": [{"name": "r", "limit": 0, "window_ms": 1}]}}}"#] {
        test.set_config(SetConfig { value: Payload::from_json(value), if_version: None }).await.unwrap();
        test.advance(seconds(1)).await;
        let refused = test.limit("acme").policy("default").take().await.unwrap_err();
        assert_eq!(refused.code(), "bad_policies", "{refused}");
    }
}

async fn a_question_without_rules_or_with_too_much_is_refused(test: TestTowpath) {
    assert!(matches!(test.limit("acme").take().await, Err(LimitError::NoRules { .. })));
    let both = test.limit("acme").rule(rule("r=gcra:1/1s")).policy("default").take().await;
    assert!(matches!(both, Err(LimitError::Ambiguous { .. })));
    for (scope, cost, code) in
        [("", 1, "invalid_name"), (" ", 1, "invalid_name"), ("acme", 0, "out_of_range"), ("acme", 1_000_001, "out_of_range")]
    {
        let refused = test.limit(scope).rule(rule("r=gcra:1/1s")).cost(cost).take().await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    }
}

#[tokio::test]
async fn a_refusal_is_not_asked_again_before_its_retry() {
    let (store, test) = faulty();
    let limit = || test.limit("acme").rule(rule("r=sliding_log:1/1s"));
    assert!(limit().take().await.unwrap().allowed);
    for ms in [0, 400, 599] {
        test.advance(millis(ms)).await;
        assert!(!limit().take().await.unwrap().allowed);
    }
    assert_eq!(store.count("take"), 2, "only the first refusal was asked for");
    assert_eq!(limit().take().await.unwrap().retry_after, Some(millis(1)));
    assert!(!limit().cost(1).peek().await.unwrap().allowed, "looking is asked");
    test.advance(millis(1)).await;
    assert!(limit().take().await.unwrap().allowed);
    assert_eq!(store.count("take"), 4);
}

#[tokio::test]
async fn a_refusal_is_asked_again_where_denied_calls_count_or_something_was_given_back() {
    let (store, test) = faulty();
    let seed = || test.limit("acme").rule(Rule::seed(1, seconds(60)).unwrap());
    for count in 1..=4 {
        assert_eq!(seed().take().await.unwrap().count, count);
    }
    assert_eq!(store.count("take"), 4);
    let limit = || test.limit("acme").rule(rule("r=sliding_log:1/60s"));
    assert!(limit().take().await.unwrap().allowed);
    assert!(!limit().take().await.unwrap().allowed);
    let _emptied = limit().refund().await.unwrap();
    assert!(limit().take().await.unwrap().allowed, "what was given back is there at once");
}

#[tokio::test]
async fn each_rule_says_what_to_do_when_the_store_is_out_of_reach() {
    let (store, test) = faulty();
    store.set_trouble(Some(StoreTrouble::Other("gone".to_owned())));
    let closed = test.limit("acme").rule(rule("r=gcra:1/1s")).take().await;
    assert!(matches!(closed, Err(LimitError::Store(_))), "nothing passes uncounted");
    for _ in 0..3 {
        let open = test.limit("acme").rule(rule("r=gcra:1/1s,on_error=open")).take().await.unwrap();
        assert!(open.allowed && open.degraded);
    }
    let local = || test.limit("acme").rule(rule("r=sliding_log:10/1s,on_error=local")).rule(rule("o=gcra:1/1s,on_error=open")).nodes(5);
    let granted: Vec<bool> = [local().take().await, local().take().await, local().take().await].map(|said| said.unwrap().allowed).to_vec();
    assert_eq!(granted, [true, true, false], "a fifth of ten");
    let denied = local().take().await.unwrap();
    assert_eq!((denied.degraded, denied.retry_after), (true, Some(seconds(1))));
    test.advance(seconds(1)).await;
    assert!(local().take().await.unwrap().allowed);
    let strict = local().rule(rule("c=gcra:1/1s")).take().await;
    assert!(matches!(strict, Err(LimitError::Store(_))), "one rule that is closed closes the check");
    store.set_trouble(None);
    assert!(!test.limit("acme").rule(rule("r=gcra:1/1s,on_error=open")).take().await.unwrap().degraded);
}

#[tokio::test]
async fn a_policy_is_remembered_while_the_store_is_out_of_reach() {
    let (store, test) = faulty();
    let name = RuleName::new("soft").unwrap();
    test.limit_policies().put(None, &name, &Rules::one(rule("r=gcra:1/1s,on_error=open"))).await.unwrap();
    store.set_trouble(Some(StoreTrouble::Other("gone".to_owned())));
    test.advance(seconds(60)).await;
    let verdict = test.limit("acme").policy("soft").take().await.unwrap();
    assert!(verdict.allowed && verdict.degraded);
    let unknown = test.limit("acme").policy("other").take().await.unwrap_err();
    assert_eq!(unknown.code(), "policy_not_found", "{unknown}");
}
