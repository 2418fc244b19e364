//! Each algorithm against its definition, over thousands of random operations.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Limiter, ms, us};
use crate::limit::{LimitReply, Retry, Rule};

/// What is done, and how much later than the thing before.
#[derive(Clone, Debug)]
enum Do {
    Take { cost: u64, wait_us: u64 },
    Look { cost: u64 },
    Refund { cost: u64 },
}

fn operations(waits: bool) -> impl Strategy<Value = Vec<(i64, Do)>> {
    let wait = move || if waits { prop_oneof![3 => Just(0), 1 => 1..40_000_u64].boxed() } else { Just(0).boxed() };
    let what = prop_oneof![
        8 => (1..4_u64, wait()).prop_map(|(cost, wait_us)| Do::Take { cost, wait_us }),
        2 => (0..4_u64).prop_map(|cost| Do::Look { cost }),
        1 => (1..4_u64).prop_map(|cost| Do::Refund { cost }),
    ];
    let pause = prop_oneof![3 => Just(0_i64), 4 => 1..5_000_i64, 3 => 1_000..300_000_i64];
    prop::collection::vec((pause, what), 60)
}

fn check(histories: u32, waits: bool, rule: impl Strategy<Value = Rule>, judge: impl Fn(&Rule, &[(i64, Do)])) {
    let mut runner = TestRunner::new(Config { cases: histories, failure_persistence: None, ..Config::default() });
    let ran = runner.run(&(rule, operations(waits)), |(rule, operations)| {
        judge(&rule, &operations);
        Ok(())
    });
    ran.unwrap();
}

fn put(limiter: &mut Limiter, pause: i64, what: &Do) -> LimitReply {
    limiter.now_us += pause;
    match *what {
        Do::Take { cost, wait_us } => limiter.take(cost, wait_us),
        Do::Look { cost } => limiter.peek(cost),
        Do::Refund { cost } => limiter.refund(cost),
    }
}

/// A denied take is denied a microsecond before its retry, and allowed at it.
fn check_retry_is_exact(limiter: &Limiter, cost: u64, reply: &LimitReply) {
    let Retry::After(after) = reply.rules[0].retry else { return };
    let after = i64::try_from(after.as_micros()).unwrap();
    assert!(after > 0);
    let mut probe = Limiter { rules: limiter.rules.clone(), states: limiter.states.clone(), now_us: limiter.now_us + after - 1 };
    assert!(!probe.peek(cost).allowed, "a microsecond before the retry");
    probe.now_us += 1;
    let again = probe.peek(cost);
    assert!(again.allowed, "at the retry: {again:?}");
}

fn gcra_rules() -> impl Strategy<Value = Rule> {
    let limit = prop_oneof![1..50_u64, Just(7), Just(999), Just(12_345)];
    let window = prop_oneof![1..2_000_u64, Just(1_000), Just(60_000)];
    (limit, window, 1..6_u64).prop_map(|(limit, window, burst)| Rule::gcra("r", limit, ms(window)).unwrap().burst(burst).unwrap())
}

/// The arrival time as an exact rational: microseconds since the start, over the limit.
#[test]
fn gcra_equals_exact_rationals_in_decision_remaining_retry_and_wait() {
    check(120, true, gcra_rules(), |rule, operations| {
        let mut limiter = Limiter::new(vec![rule.clone()]);
        let start = limiter.now_us;
        let (limit, window, burst) = (i128::from(rule.limit()), i128::from(rule.window_us()), i128::from(rule.capacity()));
        let mut due = 0_i128; // in microseconds times limit, from the start
        for (pause, what) in operations {
            let reply = put(&mut limiter, *pause, what);
            let said = reply.rules[0];
            let now = i128::from(limiter.now_us - start) * limit;
            let base = due.max(now);
            let (cost, wait_us, writes) = match *what {
                Do::Take { cost, wait_us } => (i128::from(cost), i128::from(wait_us), true),
                Do::Look { cost } => (i128::from(cost), 0, false),
                Do::Refund { cost } => (-i128::from(cost), 0, true),
            };
            let next = (base + cost * window).max(now);
            let over = next - now - burst * window; // what lies beyond the capacity
            let ceil = |value: i128| (value + limit - 1).div_euclid(limit);
            let wait = if cost > 0 && over > 0 { ceil(over) } else { 0 };
            let allowed = cost <= 0 || over <= 0 || (cost <= burst && wait <= wait_us);
            assert_eq!(said.ok, allowed);
            let shown = if allowed { next } else { base } - now;
            assert_eq!(i128::from(said.remaining), ((burst * window - shown).div_euclid(window)).max(0));
            assert_eq!(said.reset, us(ceil(shown)));
            assert_eq!(said.wait, us(if allowed { wait } else { 0 }));
            match said.retry {
                Retry::NotNeeded => assert!(allowed),
                Retry::Never => assert!(!allowed && cost > burst),
                Retry::After(after) => assert_eq!((allowed, after), (false, us(wait))),
            }
            if allowed && writes {
                due = next;
            }
            if let Do::Take { cost, .. } = what {
                check_retry_is_exact(&limiter, *cost, &reply);
            }
        }
    });
}

#[test]
fn a_sliding_counter_equals_its_definition() {
    let rules = (1..20_u64, 1..400_u64).prop_map(|(limit, window)| Rule::sliding_counter("r", limit, ms(window)).unwrap());
    check(150, false, rules, |rule, operations| {
        let mut limiter = Limiter::new(vec![rule.clone()]);
        let (limit, a) = (i128::from(rule.limit()), i128::from(rule.window_us()));
        let mut counts: BTreeMap<i128, i128> = BTreeMap::new();
        for (pause, what) in operations {
            let reply = put(&mut limiter, *pause, what);
            let now = i128::from(limiter.now_us);
            let window = now / a;
            let (current, previous) = (counts.get(&window).copied().unwrap_or(0), counts.get(&(window - 1)).copied().unwrap_or(0));
            let used = previous * (a - now % a) + current * a;
            let cost = match *what {
                Do::Take { cost, .. } | Do::Look { cost } => i128::from(cost),
                Do::Refund { cost } => -i128::from(cost),
            };
            let allowed = cost <= 0 || used + cost * a <= limit * a;
            assert_eq!(reply.allowed, allowed);
            let shown = if allowed { previous * (a - now % a) + (current + cost).max(0) * a } else { used };
            assert_eq!(i128::from(reply.rules[0].remaining), ((limit * a - shown).div_euclid(a)).max(0));
            assert_eq!(i128::from(reply.rules[0].count), (shown + a - 1) / a);
            if allowed && !matches!(what, Do::Look { .. }) {
                counts.insert(window, (current + cost).max(0));
            }
            if let Do::Take { cost, .. } = what {
                check_retry_is_exact(&limiter, *cost, &reply);
            }
        }
    });
}

#[test]
fn a_sliding_log_equals_its_definition() {
    let rules = (1..12_u64, 1..400_u64).prop_map(|(limit, window)| Rule::sliding_log("r", limit, ms(window)).unwrap());
    check(100, false, rules, |rule, operations| {
        let mut limiter = Limiter::new(vec![rule.clone()]);
        let (limit, window) = (rule.limit() as usize, rule.window_us());
        let mut taken: Vec<i64> = Vec::new();
        for (pause, what) in operations {
            let reply = put(&mut limiter, *pause, what);
            let now = limiter.now_us;
            taken.retain(|at| *at > now - window);
            match *what {
                Do::Take { cost, .. } | Do::Look { cost } => {
                    let allowed = cost == 0 || taken.len() + cost as usize <= limit;
                    assert_eq!(reply.allowed, allowed);
                    let shown = taken.len() + if allowed { cost as usize } else { 0 };
                    assert_eq!((reply.rules[0].count, reply.rules[0].remaining), (shown as u64, limit.saturating_sub(shown) as u64));
                    if allowed && matches!(what, Do::Take { .. }) {
                        taken.extend(std::iter::repeat_n(now, cost as usize));
                    }
                }
                Do::Refund { cost } => taken.truncate(taken.len().saturating_sub(cost as usize)),
            }
            if let Do::Take { cost, .. } = what {
                check_retry_is_exact(&limiter, *cost, &reply);
            }
        }
    });
}

#[test]
fn a_fixed_window_counts_as_the_seed_does() {
    let seed = prop::bool::ANY;
    let rules = (1..12_u64, 1..400_u64, seed).prop_map(|(limit, window, seed)| match seed {
        true => Rule::seed(limit, ms(window)).unwrap(),
        false => Rule::fixed_window("r", limit, ms(window)).unwrap(),
    });
    check(100, false, rules, |rule, operations| {
        let mut limiter = Limiter::new(vec![rule.clone()]);
        let window_ms = i64::try_from(rule.window().as_millis()).unwrap();
        let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
        let mut bucket_before = None;
        for (pause, what) in operations {
            // The state is that of one bucket: whoever keeps it finds none for the next one.
            let bucket = (limiter.now_us + pause) / 1_000 / window_ms;
            if bucket_before.is_some_and(|before| before != bucket) {
                limiter.states = vec![None];
            }
            bucket_before = Some(bucket);
            let reply = put(&mut limiter, *pause, what);
            let count = counts.entry(bucket).or_default();
            match *what {
                Do::Take { cost, .. } => {
                    let allowed = *count + cost <= rule.limit();
                    if allowed || rule.counts_denied() {
                        *count += cost;
                    }
                    assert_eq!((reply.allowed, reply.rules[0].count), (allowed, *count));
                    let edge = Duration::from_micros(u64::try_from((bucket + 1) * window_ms * 1_000 - limiter.now_us).unwrap());
                    let retry = if cost > rule.limit() { Retry::Never } else { Retry::After(edge) };
                    assert_eq!(reply.rules[0].retry, if allowed { Retry::NotNeeded } else { retry });
                }
                Do::Look { cost } => assert_eq!(reply.allowed, cost == 0 || *count + cost <= rule.limit()),
                Do::Refund { cost } => *count = count.saturating_sub(cost),
            }
        }
    });
}
