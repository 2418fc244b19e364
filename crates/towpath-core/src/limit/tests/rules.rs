//! Several rules together, and what is refused before anything is counted.

use std::time::Duration;

use super::{Limiter, ms, scope};
use crate::limit::{Algorithm, Check, InvalidLimit, OnError, Retry, Rule, Rules, Summary};
use crate::names::{LimitScope, RuleName};

fn log(name: &str, limit: u64) -> Rule {
    Rule::sliding_log(name, limit, ms(1_000)).unwrap()
}

#[test]
fn one_rule_that_denies_keeps_all_from_counting() {
    let mut limiter = Limiter::new(vec![log("wide", 5), log("narrow", 1)]);
    assert!(limiter.take(1, 0).allowed);
    let before = limiter.states.clone();
    let denied = limiter.take(1, 0);
    assert_eq!((denied.allowed, denied.rules[0].ok, denied.rules[1].ok), (false, true, false));
    assert_eq!(limiter.states, before);
}

#[test]
fn a_shadow_rule_counts_and_denies_nothing() {
    let mut limiter = Limiter::new(vec![log("real", 3), log("planned", 1).shadow()]);
    assert!(limiter.take(1, 0).allowed);
    let second = limiter.take(1, 0);
    assert!(second.allowed && !second.rules[1].ok);
    let check = Check::take(scope(), limiter.rules.clone(), 1, Duration::ZERO).unwrap();
    assert_eq!(Summary::of(&check, &second).unwrap().would_deny, Some(true));
    limiter.take(1, 0).allowed.then_some(()).unwrap();
    assert!(!limiter.take(1, 0).allowed, "the rule that is no shadow denies");
}

#[test]
fn the_violated_rule_with_the_longest_retry_speaks_else_the_one_with_the_least_left() {
    let mut limiter = Limiter::new(vec![log("five", 5), log("three", 3), Rule::sliding_log("long", 4, ms(9_000)).unwrap()]);
    let check = Check::take(scope(), limiter.rules.clone(), 3, Duration::ZERO).unwrap();
    let first = limiter.put(&check);
    assert_eq!(Summary::of(&check, &first).unwrap().rule.name().as_str(), "three");
    let denied = limiter.put(&check);
    let summary = Summary::of(&check, &denied).unwrap();
    assert_eq!((summary.rule.name().as_str(), summary.retry), ("long", Retry::After(ms(9_000))));
    assert_eq!(summary.violated.iter().map(|rule| rule.name().as_str()).collect::<Vec<_>>(), ["five", "three", "long"]);
    assert_eq!((summary.binding.count, summary.rule.limit(), summary.would_deny), (3, 4, None));
}

#[test]
fn a_refund_after_any_allowed_check_restores_what_remained() {
    for algorithm in Algorithm::ALL {
        let rule = Rule::new("r", algorithm, 10, ms(1_000)).unwrap();
        let rule = if algorithm == Algorithm::Gcra { rule.burst(10).unwrap() } else { rule };
        let mut limiter = Limiter::new(vec![rule]);
        limiter.take(3, 0).allowed.then_some(()).unwrap();
        let before = limiter.peek(0).rules[0].remaining;
        limiter.take(4, 0).allowed.then_some(()).unwrap();
        assert_eq!(limiter.refund(4).rules[0].remaining, before, "{algorithm:?}");
        assert_eq!(limiter.refund(99).rules[0].remaining, 10, "{algorithm:?}: never beyond what fits");
        assert_eq!(limiter.peek(0).rules[0].count, 0);
    }
}

#[test]
fn a_peek_changes_nothing() {
    for algorithm in Algorithm::ALL {
        let mut limiter = Limiter::new(vec![Rule::new("r", algorithm, 2, ms(1_000)).unwrap()]);
        limiter.take(1, 0).allowed.then_some(()).unwrap();
        let before = limiter.states.clone();
        let _shown = limiter.peek(1);
        assert_eq!(limiter.states, before, "{algorithm:?}");
    }
}

#[test]
fn a_changed_rate_keeps_the_time_that_was_used_up() {
    let mut limiter = Limiter::new(vec![Rule::gcra("r", 3, ms(1_000)).unwrap()]);
    limiter.take(1, 0).allowed.then_some(()).unwrap();
    limiter.rules = Rules::one(Rule::gcra("r", 7, ms(1_000)).unwrap());
    // A third of a second was used up, and a unit is now a seventh: 333,333 1/3 µs becomes 333,333 3/7.
    assert_eq!(limiter.peek(0).rules[0].reset, Duration::from_micros(333_334));
    let Retry::After(after) = limiter.take(1, 0).rules[0].retry else { panic!("it is used up") };
    assert_eq!(after, Duration::from_micros(333_334));
}

#[test]
fn numbers_outside_their_range_are_refused_with_the_range() {
    let second = ms(1_000);
    for refused in [
        Rule::gcra("r", 0, second),
        Rule::gcra("r", 1_000_000_001, second),
        Rule::gcra("r", 1, Duration::ZERO),
        Rule::gcra("r", 1, Duration::from_micros(1_500)),
        Rule::gcra("r", 1, ms(31 * 86_400_000 + 1)),
        Rule::gcra("r", 1, second).and_then(|rule| rule.burst(0)),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), "out_of_range", "{refused}");
        assert!(refused.to_string().contains("it must be from 1 to"), "{refused}");
    }
    let rules = || Rules::one(Rule::gcra("r", 1, second).unwrap());
    for refused in [
        Check::take(scope(), rules(), 0, Duration::ZERO),
        Check::take(scope(), rules(), 1_000_001, Duration::ZERO),
        Check::take(scope(), rules(), 1, Duration::from_secs(7 * 86_400 + 1)),
        Check::peek(scope(), rules(), 1_000_001),
        Check::refund(scope(), rules(), 0),
    ] {
        assert_eq!(refused.unwrap_err().code(), "out_of_range");
    }
}

#[test]
fn rules_that_do_not_go_together_are_refused() {
    let second = ms(1_000);
    let window = |name: &str, length: Duration| Rule::fixed_window(name, 5, length).unwrap();
    let bad = [
        Rules::new(vec![log("a", 1), log("a", 2)]),
        Rules::new(vec![window("a", second), window("b", second)]),
        Rules::new(vec![window("a", ms(31 * 86_400_000)), window("b", ms(31 * 86_400_000 - 1_000))]),
        Rules::new(vec![Rule::seed(5, second).unwrap(), log("b", 1)]),
        Rule::sliding_log("r", 1_001, second).map(Rules::one),
        log("r", 1).burst(2).map(Rules::one),
        log("r", 1).count_denied().map(Rules::one),
    ];
    for refused in bad {
        assert_eq!(refused.unwrap_err().code(), "bad_rule");
    }
    assert_eq!(Check::take(scope(), Rules::one(log("r", 1)), 1, ms(1)).unwrap_err().code(), "bad_rule", "only gcra can promise");
    assert!(Rules::new(vec![log("a", 1), log("a", 2).key("u17").unwrap()]).is_ok());
    assert!(Rules::new(vec![window("minute", ms(60_000)), window("hour", ms(3_600_000))]).is_ok());
    let nine = (0..9).map(|number| log(&format!("r{number}"), 1)).collect();
    assert_eq!(Rules::new(nine).unwrap_err().code(), "too_many");
    assert_eq!(Rules::new(Vec::new()).unwrap_err().code(), "too_many");
}

#[test]
fn what_could_not_be_computed_exactly_is_refused() {
    let month = ms(31 * 86_400_000);
    assert_eq!(Rule::gcra("r", 1, month).unwrap().burst(1_000_000).unwrap_err().code(), "rule_too_large");
    assert_eq!(Rule::sliding_counter("r", 1_000_000_000, month).unwrap_err().code(), "rule_too_large");
    let odd = Rules::one(Rule::gcra("r", 999_999_937, ms(1_000)).unwrap());
    assert_eq!(Check::take(scope(), odd.clone(), 1, Duration::from_secs(86_400)).unwrap_err().code(), "rule_too_large");
    assert!(Check::take(scope(), odd, 1, Duration::ZERO).is_ok());
}

#[test]
fn names_are_refused_when_they_are_empty_blank_long_or_garbled() {
    for scope in ["", "   ", "a\nb", "x".repeat(257).as_str()] {
        assert!(LimitScope::new(scope).is_err(), "{scope:?}");
    }
    for scope in ["заказ 🚢", "a:meta", "{a}", "100%", "x".repeat(256).as_str()] {
        assert!(LimitScope::new(scope).is_ok(), "{scope:?}");
    }
    assert!(RuleName::new("a:b").is_err(), "a colon separates a rule from its key");
    assert_eq!(Rule::gcra(" ", 1, ms(1)).unwrap_err().code(), "invalid_name");
}

#[test]
fn rules_are_read_as_they_are_written() {
    for text in [
        "per_minute=gcra:100/60s,burst=20",
        "per_user=sliding_log:5/1s,key=u17",
        "seed=fixed_window:10/60s,count_denied",
        "half=sliding_counter:7/500ms,on_error=local,shadow",
    ] {
        let rule: Rule = text.parse().unwrap();
        assert_eq!(rule.to_string(), text);
    }
    let short: Rule = "r=10/2m".parse().unwrap();
    assert_eq!((short.algorithm(), short.window(), short.when_unreachable()), (Algorithm::Gcra, ms(120_000), OnError::Closed));
    for (text, says) in [
        ("100/60s", "there is no '='"),
        ("r=leaky:1/1s", "'leaky' is no algorithm"),
        ("r=gcra:1", "there is no '/'"),
        ("r=gcra:1/1w", "no length of time"),
        ("r=gcra:ten/1s", "limit is 'ten'"),
        ("r=gcra:-1/1s", "limit is '-1'"),
        ("r=gcra:1/0s", "window_ms"),
        ("r=gcra:1/1s,bust=3", "no option 'bust'"),
        ("r=gcra:99999999999999999999/1s", "from 1 to"),
    ] {
        let refused: Result<Rule, InvalidLimit> = text.parse();
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(says), "{text}: {refused}");
    }
}
