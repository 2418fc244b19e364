//! The promises about limits of rate: who passes, what is left, and when there is room again, to the microsecond.

use std::time::Duration;

use towpath_core::inspect::{LimitPage, LimitQuery};
use towpath_core::limit::{Algorithm, Check, LimitReply, NotedRule, Retry, Rule, RuleReply, Rules};
use towpath_core::names::LimitScope;
use towpath_core::store::StoreError;

use crate::bench::{Bench, sure};
use crate::words::seconds;

const MINUTE: Duration = seconds(60);

fn scope(name: &str) -> LimitScope {
    expected(LimitScope::new(name))
}

#[track_caller]
fn expected<T, E: std::fmt::Display>(made: Result<T, E>) -> T {
    match made {
        Ok(made) => made,
        Err(refused) => panic!("a case uses a rule that the core refuses: {refused}"),
    }
}

fn rule(text: &str) -> Rule {
    expected(text.parse())
}

fn rules(texts: &[&str]) -> Rules {
    expected(Rules::new(texts.iter().map(|text| rule(text)).collect()))
}

fn of_each_algorithm() -> Vec<Rules> {
    let text = |algorithm: Algorithm| match algorithm {
        Algorithm::Gcra => "r=gcra:10/60s,burst=10".to_owned(),
        other => format!("r={}:10/60s", other.as_str()),
    };
    Algorithm::ALL.into_iter().map(|algorithm| rules(&[&text(algorithm)])).collect()
}

async fn put(t: &Bench, check: Check) -> LimitReply {
    sure(t.store().take(&check).await)
}

async fn take_in(t: &Bench, of: &str, rules: &Rules, cost: u64) -> LimitReply {
    put(t, expected(Check::take(scope(of), rules.clone(), cost, Duration::ZERO))).await
}

async fn take(t: &Bench, rules: &Rules, cost: u64) -> LimitReply {
    take_in(t, "acme", rules, cost).await
}

async fn peek(t: &Bench, rules: &Rules, cost: u64) -> LimitReply {
    put(t, expected(Check::peek(scope("acme"), rules.clone(), cost))).await
}

async fn refund(t: &Bench, rules: &Rules, cost: u64) -> LimitReply {
    put(t, expected(Check::refund(scope("acme"), rules.clone(), cost))).await
}

async fn reset(t: &Bench, rules: &Rules) -> u64 {
    sure(t.store().reset(&scope("acme"), rules).await)
}

fn only(reply: &LimitReply) -> RuleReply {
    assert_eq!(reply.rules.len(), 1, "one reply per rule");
    reply.rules[0]
}

/// Fills a rule up with single units, and returns how many there were room for.
async fn fill(t: &Bench, rules: &Rules) -> u64 {
    let mut granted = 0;
    while take(t, rules, 1).await.allowed {
        granted += 1;
        assert!(granted <= 1_000, "it never denies");
    }
    granted
}

fn retry_of(reply: &LimitReply) -> Duration {
    match only(reply).retry {
        Retry::After(after) => after,
        other => panic!("a retry was expected: {other:?}"),
    }
}

pub async fn as_many_pass_as_the_limit_says(t: &mut Bench) {
    for rules in of_each_algorithm() {
        assert_eq!(fill(t, &rules).await, 10, "{}", rules[0]);
    }
}

pub async fn the_reply_counts_what_is_used_and_what_is_left(t: &mut Bench) {
    for rules in of_each_algorithm() {
        let reply = only(&take(t, &rules, 4).await);
        assert_eq!((reply.ok, reply.count, reply.remaining, reply.retry), (true, 4, 6, Retry::NotNeeded), "{}", rules[0]);
        let denied = only(&take(t, &rules, 7).await);
        assert_eq!((denied.ok, denied.count, denied.remaining), (false, 4, 6), "{}: what is denied counts for nothing", rules[0]);
    }
}

pub async fn a_retry_is_exact_to_the_microsecond(t: &mut Bench) {
    for texts in ["r=gcra:7/1s", "r=gcra:3/10s,burst=2", "r=fixed_window:5/7s", "r=sliding_counter:5/3s", "r=sliding_log:5/1s"] {
        let rules = rules(&[texts]);
        t.advance(Duration::from_micros(123_457));
        fill(t, &rules).await;
        t.advance(Duration::from_micros(777));
        let after = retry_of(&take(t, &rules, 1).await);
        t.advance(after - Duration::from_micros(1));
        assert!(!take(t, &rules, 1).await.allowed, "{texts}: a microsecond before its retry");
        t.advance(Duration::from_micros(1));
        assert!(take(t, &rules, 1).await.allowed, "{texts}: at its retry");
    }
}

pub async fn gcra_without_a_burst_spaces_calls_evenly(t: &mut Bench) {
    let rules = rules(&["r=gcra:4/1s"]);
    for _ in 0..8 {
        assert!(take(t, &rules, 1).await.allowed);
        assert_eq!(retry_of(&take(t, &rules, 1).await), Duration::from_millis(250));
        t.advance_ms(250);
    }
}

pub async fn a_burst_refills_evenly(t: &mut Bench) {
    let rules = rules(&["r=gcra:4/1s,burst=3"]);
    assert_eq!(fill(t, &rules).await, 3);
    t.advance_ms(500);
    assert_eq!(fill(t, &rules).await, 2);
    t.advance_s(60);
    assert_eq!(fill(t, &rules).await, 3, "however long nobody came");
}

pub async fn a_rate_that_does_not_divide_loses_nothing(t: &mut Bench) {
    let rules = rules(&["r=gcra:7/1s,burst=7"]);
    assert_eq!(fill(t, &rules).await, 7);
    // Seven units are due after exactly a second, though none of them is due at a whole microsecond.
    t.advance(Duration::from_micros(999_999));
    assert_eq!(fill(t, &rules).await, 6);
    t.advance(Duration::from_micros(1));
    assert_eq!(fill(t, &rules).await, 1);
}

pub async fn a_fixed_window_starts_at_a_multiple_of_its_length(t: &mut Bench) {
    let rules = rules(&["r=fixed_window:3/60s"]);
    let into = t.now().as_millis() % 60_000;
    t.advance_ms(u64::try_from(60_000 - into + 59_000).unwrap_or_default());
    assert_eq!(fill(t, &rules).await, 3);
    assert_eq!(retry_of(&take(t, &rules, 1).await), seconds(1));
    t.advance_s(1);
    assert_eq!(fill(t, &rules).await, 3, "twice the limit across the edge, as the seed has it");
}

pub async fn the_seeds_check_counts_denied_calls(t: &mut Bench) {
    let rules = Rules::one(expected(Rule::seed(2, MINUTE)));
    for (count, allowed) in [(1, true), (2, true), (3, false), (4, false)] {
        let reply = take(t, &rules, 1).await;
        assert_eq!((reply.allowed, only(&reply).count, only(&reply).remaining), (allowed, count, 2_u64.saturating_sub(count)));
    }
    assert_eq!(only(&peek(t, &rules, 1).await).count, 4, "looking counts for nothing");
}

pub async fn rules_of_one_fixed_window_share_its_counter(t: &mut Bench) {
    let (one, other) = (rules(&["a=fixed_window:10/60s"]), rules(&["b=fixed_window:5/60s"]));
    assert!(take(t, &one, 4).await.allowed);
    assert_eq!(only(&take(t, &other, 1).await).count, 5);
    let apart = rules(&["a=fixed_window:10/60s,key=u1"]);
    assert_eq!(only(&take(t, &apart, 1).await).count, 1, "a key has a counter of its own");
}

pub async fn the_last_window_of_a_sliding_counter_fades(t: &mut Bench) {
    let rules = rules(&["r=sliding_counter:10/10s"]);
    let into = t.now().as_millis() % 10_000;
    t.advance_ms(u64::try_from(10_000 - into).unwrap_or_default());
    assert_eq!(fill(t, &rules).await, 10);
    t.advance_s(10);
    assert_eq!(fill(t, &rules).await, 0, "at the edge the whole last window counts");
    t.advance_s(5);
    assert_eq!(fill(t, &rules).await, 5, "half of it is still within ten seconds");
    t.advance_s(20);
    assert_eq!(fill(t, &rules).await, 10);
}

pub async fn a_sliding_log_forgets_each_unit_after_its_window(t: &mut Bench) {
    let rules = rules(&["r=sliding_log:3/10s"]);
    for _ in 0..3 {
        assert!(take(t, &rules, 1).await.allowed);
        t.advance_s(2);
    }
    assert_eq!(retry_of(&take(t, &rules, 1).await), seconds(4));
    assert_eq!(retry_of(&take(t, &rules, 2).await), seconds(6), "two must leave for two to come");
    t.advance_s(4);
    assert_eq!(fill(t, &rules).await, 1);
}

pub async fn more_than_there_can_ever_be_is_never(t: &mut Bench) {
    for texts in ["r=gcra:10/1s,burst=3", "r=fixed_window:3/1s", "r=sliding_counter:3/1s", "r=sliding_log:3/1s"] {
        let rules = rules(&[texts]);
        let reply = take(t, &rules, 4).await;
        assert_eq!((reply.allowed, only(&reply).retry, only(&reply).count), (false, Retry::Never, 0), "{texts}");
        assert!(take(t, &rules, 3).await.allowed, "{texts}");
    }
}

pub async fn all_rules_allow_or_none_counts(t: &mut Bench) {
    let texts = ["wide=gcra:60/60s,burst=20", "log=sliding_log:4/60s", "counter=sliding_counter:9/60s", "window=fixed_window:9/60s"];
    let rules = rules(&texts);
    assert!(take(t, &rules, 3).await.allowed);
    let before = peek(t, &rules, 0).await;
    let denied = take(t, &rules, 2).await;
    assert_eq!(denied.rules.iter().map(|rule| rule.ok).collect::<Vec<_>>(), [true, false, true, true]);
    assert!(!denied.allowed);
    assert_eq!(peek(t, &rules, 0).await, before);
    assert!(take(t, &rules, 1).await.allowed);
}

pub async fn a_reserve_promises_room_within_its_wait(t: &mut Bench) {
    let rules = rules(&["r=gcra:10/1s"]);
    let reserve = |wait_ms| expected(Check::take(scope("acme"), rules.clone(), 1, Duration::from_millis(wait_ms)));
    let waits: Vec<_> = [put(t, reserve(250)).await, put(t, reserve(250)).await, put(t, reserve(250)).await]
        .iter()
        .map(|reply| (reply.allowed, only(reply).wait.as_millis()))
        .collect();
    assert_eq!(waits, [(true, 0), (true, 100), (true, 200)]);
    let denied = put(t, reserve(250)).await;
    assert_eq!((denied.allowed, only(&denied).retry), (false, Retry::After(Duration::from_millis(300))));
    assert_eq!(only(&refund(t, &rules, 1).await).reset, Duration::from_millis(200), "whoever does not want to wait gives it back");
}

pub async fn the_other_rules_of_a_reserve_must_allow_now(t: &mut Bench) {
    let rules = rules(&["r=gcra:10/1s", "log=sliding_log:1/1s"]);
    let reserve = || expected(Check::take(scope("acme"), rules.clone(), 1, seconds(5)));
    assert!(put(t, reserve()).await.allowed);
    let denied = put(t, reserve()).await;
    assert_eq!((denied.allowed, denied.rules[0].ok, denied.rules[1].ok), (false, true, false));
}

pub async fn a_refund_restores_what_was_left(t: &mut Bench) {
    for rules in of_each_algorithm() {
        assert!(take(t, &rules, 3).await.allowed);
        let left = only(&peek(t, &rules, 0).await).remaining;
        assert!(take(t, &rules, 4).await.allowed);
        assert_eq!(only(&refund(t, &rules, 4).await).remaining, left, "{}", rules[0]);
        assert_eq!(only(&refund(t, &rules, 500).await).remaining, 10, "{}: never beyond what fits", rules[0]);
        assert_eq!(fill(t, &rules).await, 10, "{}", rules[0]);
    }
}

pub async fn a_refund_goes_to_the_present_window_only(t: &mut Bench) {
    for texts in ["r=fixed_window:5/10s", "r=sliding_counter:5/10s"] {
        let rules = rules(&[texts]);
        assert!(take(t, &rules, 5).await.allowed);
        t.advance_s(10);
        let before = only(&peek(t, &rules, 0).await);
        assert_eq!(only(&refund(t, &rules, 5).await), before, "{texts}");
    }
}

pub async fn a_look_changes_nothing_and_answers_the_same(t: &mut Bench) {
    for rules in of_each_algorithm() {
        assert!(take(t, &rules, 5).await.allowed);
        for cost in [0, 5, 6] {
            let shown = peek(t, &rules, cost).await;
            assert_eq!(peek(t, &rules, cost).await, shown, "{}", rules[0]);
        }
        let (shown, taken) = (peek(t, &rules, 2).await, take(t, &rules, 2).await);
        assert_eq!(shown, taken, "{}", rules[0]);
    }
}

pub async fn a_reset_makes_a_limit_as_good_as_new(t: &mut Bench) {
    for rules in of_each_algorithm() {
        assert_eq!(reset(t, &rules).await, 0, "{}: there was nothing", rules[0]);
        fill(t, &rules).await;
        assert_eq!(reset(t, &rules).await, 1, "{}", rules[0]);
        assert_eq!(fill(t, &rules).await, 10, "{}", rules[0]);
        t.advance_s(121);
        assert_eq!(reset(t, &rules).await, 0, "{}: what is over is not in use", rules[0]);
    }
}

pub async fn scopes_rules_keys_and_algorithms_count_apart(t: &mut Bench) {
    let used = rules(&["r=sliding_log:1/60s,key=u1"]);
    assert!(take_in(t, "acme", &used, 1).await.allowed);
    assert!(!take_in(t, "acme", &used, 1).await.allowed);
    for (of, texts) in [
        ("acme2", "r=sliding_log:1/60s,key=u1"),
        ("acme", "r=sliding_log:1/60s,key=u2"),
        ("acme", "r=sliding_log:1/60s"),
        ("acme", "s=sliding_log:1/60s,key=u1"),
        ("acme", "r=gcra:1/60s,key=u1"),
        ("acme", "r=sliding_counter:1/60s,key=u1"),
        ("acme:r", "u1=sliding_log:1/60s"),
        ("заказ 🚢", "r=sliding_log:1/60s,key=u1"),
    ] {
        assert!(take_in(t, of, &rules(&[texts]), 1).await.allowed, "{of} {texts}");
    }
}

pub async fn a_shadow_rule_counts_and_denies_nothing(t: &mut Bench) {
    let rules = rules(&["real=sliding_log:3/60s", "planned=sliding_log:2/60s,shadow"]);
    let seen: Vec<_> = [take(t, &rules, 1).await, take(t, &rules, 1).await, take(t, &rules, 1).await, take(t, &rules, 1).await]
        .iter()
        .map(|reply| (reply.allowed, reply.rules[0].count, reply.rules[1].ok, reply.rules[1].count))
        .collect();
    assert_eq!(seen, [(true, 1, true, 1), (true, 2, true, 2), (true, 3, false, 2), (false, 3, false, 2)]);
}

pub async fn shadow_rules_count_also_what_is_denied(t: &mut Bench) {
    let rules = rules(&["real=sliding_log:1/60s", "planned=sliding_log:9/60s,shadow"]);
    assert!(take(t, &rules, 1).await.allowed);
    let denied = take(t, &rules, 1).await;
    assert_eq!((denied.allowed, denied.rules[1].ok, denied.rules[1].count), (false, true, 2));
}

pub async fn a_changed_rate_keeps_the_time_that_was_used(t: &mut Bench) {
    assert!(take(t, &rules(&["r=gcra:3/1s"]), 1).await.allowed);
    // A third of a second is used up: 333,333 1/3 µs, which in sevenths rounds up to 333,333 3/7.
    let changed = rules(&["r=gcra:7/1s"]);
    assert_eq!(only(&peek(t, &changed, 0).await).reset, Duration::from_micros(333_334));
    assert_eq!(retry_of(&take(t, &changed, 1).await), Duration::from_micros(333_334));
    t.advance(Duration::from_micros(333_334));
    assert!(take(t, &changed, 1).await.allowed);
}

pub async fn fractions_of_large_denominators_are_exact(t: &mut Bench) {
    // The product of the two denominators is far above what a double holds.
    assert!(take(t, &rules(&["r=gcra:999999937/1s,burst=5"]), 3).await.allowed);
    let reply = only(&take(t, &rules(&["r=gcra:999999929/1s,burst=5"]), 2).await);
    assert_eq!((reply.ok, reply.remaining, reply.reset), (true, 0, Duration::from_micros(1)));
    // A month is used up at one unit in it, and then the rate is changed to one of a thousand million.
    assert!(take(t, &rules(&["s=gcra:1/31d"]), 1).await.allowed);
    let month = seconds(31 * 86_400);
    let changed = rules(&["s=gcra:999999937/1s"]);
    assert_eq!(only(&take(t, &changed, 1).await).retry, Retry::After(month));
    assert_eq!(only(&peek(t, &changed, 0).await).reset, month);
}

pub async fn counts_of_another_window_mean_nothing(t: &mut Bench) {
    let (long, short) = (rules(&["r=sliding_counter:5/10s"]), rules(&["r=sliding_counter:5/7s"]));
    assert_eq!(fill(t, &long).await, 5);
    assert_eq!(fill(t, &short).await, 5);
}

pub async fn a_lowered_limit_counts_what_was_taken_before(t: &mut Bench) {
    for algorithm in ["sliding_log", "sliding_counter", "fixed_window"] {
        let wide = rules(&[&format!("r={algorithm}:9/10s")]);
        let narrow = rules(&[&format!("r={algorithm}:4/10s")]);
        assert!(take(t, &wide, 8).await.allowed);
        let reply = only(&take(t, &narrow, 1).await);
        assert_eq!((reply.ok, reply.count, reply.remaining), (false, 8, 0), "{algorithm}");
        t.advance(retry_of(&take(t, &narrow, 1).await) - Duration::from_micros(1));
        assert!(!take(t, &narrow, 1).await.allowed, "{algorithm}");
        t.advance(Duration::from_micros(1));
        assert!(take(t, &narrow, 1).await.allowed, "{algorithm}");
    }
}

pub async fn what_was_taken_is_remembered_after_a_restart(t: &mut Bench) {
    let all = of_each_algorithm();
    for rules in &all {
        assert!(take(t, rules, 7).await.allowed);
    }
    let mut before = Vec::new();
    for rules in &all {
        before.push(peek(t, rules, 1).await);
    }
    t.reopen().await;
    for (rules, before) in all.iter().zip(before) {
        assert_eq!(peek(t, rules, 1).await, before, "{}", rules[0]);
    }
}

pub async fn checks_that_come_together_never_pass_more_than_the_limit(t: &mut Bench) {
    for rules in of_each_algorithm() {
        let checks: Vec<_> = (0..40)
            .map(|_| {
                let check = expected(Check::take(scope("crowd"), rules.clone(), 1, Duration::ZERO));
                async { t.store().take(&{ check }).await }
            })
            .collect();
        let replies: Vec<Result<LimitReply, StoreError>> = futures_util::future::join_all(checks).await;
        let granted = replies.into_iter().filter(|reply| reply.as_ref().is_ok_and(|reply| reply.allowed)).count();
        assert_eq!(granted, 10, "{}", rules[0]);
    }
}

async fn listed(t: &Bench, prefix: &str, after: Option<NotedRule>, limit: u32) -> LimitPage {
    sure(t.store().limits(&LimitQuery { prefix: prefix.to_owned(), after, limit }).await)
}

fn shown(page: &LimitPage) -> Vec<String> {
    page.items.iter().map(|view| format!("{} {}: {}", view.limit.scope(), view.limit.rule().name(), view.said.count)).collect()
}

pub async fn limits_that_have_something_in_use_are_listed_by_scope_and_rule_in_pages(t: &mut Bench) {
    let pair = rules(&["b=sliding_log:9/60s", "a=gcra:100/60s,burst=9"]);
    for (name, rules) in [("zoo", &pair), ("acme", &pair), ("acme:eu", &rules(&["w=fixed_window:5/60s"])), ("заказ", &pair)] {
        let check = expected(Check::take(scope(name), rules.clone(), 2, Duration::ZERO));
        assert!(sure(t.store().take(&check).await).allowed);
    }
    let user = expected(Check::take(scope("acme"), rules(&["a=gcra:100/60s,burst=9,key=u17"]), 3, Duration::ZERO));
    assert!(sure(t.store().take(&user).await).allowed);
    let looked_at = expected(Check::peek(scope("acme"), rules(&["only_looked_at=gcra:1/1s"]), 1));
    assert!(sure(t.store().take(&looked_at).await).allowed);

    let all = ["acme a: 2", "acme a: 3", "acme b: 2", "acme:eu w: 2", "zoo a: 2", "zoo b: 2", "заказ a: 2", "заказ b: 2"];
    let page = listed(t, "", None, 50).await;
    assert_eq!((shown(&page), page.next), (all.map(str::to_owned).to_vec(), None));
    assert_eq!(shown(&listed(t, "acme", None, 50).await), all[..4]);
    assert_eq!(shown(&listed(t, "acme:", None, 50).await), all[3..4]);
    assert_eq!(shown(&listed(t, "b", None, 50).await), all[..0]);
    assert_eq!(shown(&listed(t, "acme\n", None, 50).await), all[..0], "no scope has a line break");

    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = listed(t, "", after, 3).await;
        found.extend(shown(&page));
        after = page.next;
        if after.is_none() {
            break;
        }
        assert_eq!(page.items.len(), 3);
    }
    assert_eq!(found, all);
    t.reopen().await;
    assert_eq!(shown(&listed(t, "", None, 50).await), all);
}

pub async fn a_limit_leaves_the_list_when_nothing_of_it_is_in_use_any_more(t: &mut Bench) {
    let all = of_each_algorithm();
    for rules in &all {
        assert!(take(t, rules, 1).await.allowed);
    }
    let count = listed(t, "", None, 50).await.items.len();
    assert_eq!(count, all.len());
    assert_eq!(reset(t, &all[0]).await, 1);
    assert_eq!(listed(t, "", None, 50).await.items.len(), count - 1);
    t.advance(MINUTE * 2);
    assert_eq!(listed(t, "", None, 50).await.items, []);
    assert!(take(t, &all[0], 1).await.allowed);
    assert_eq!(listed(t, "", None, 50).await.items.len(), 1, "and comes back when it is used again");
}
