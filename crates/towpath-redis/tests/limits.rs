//! Limits on a real server: beside callers that follow the seed, under a clock that is wrong, and between keys that are not ours.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use towpath::SystemClock;
use towpath::limits::n8n::RateLimitCheck;
use towpath_core::clock::{Clock, Sleep, VirtualClock};
use towpath_core::inspect::LimitQuery;
use towpath_core::limit::{Algorithm, Check, LimitReply, LimitState, Rule, Rules, StateName};
use towpath_core::names::LimitScope;
use towpath_core::store::{InspectStore, LimitStore, StoreError};
use towpath_core::time::{Micros, Timestamp};
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::RedisServer;

fn options(server: &RedisServer) -> RedisOptions {
    RedisOptions::parse(&server.url()).unwrap()
}

fn scope() -> LimitScope {
    LimitScope::new("mail api").unwrap()
}

fn rules(texts: &[&str]) -> Rules {
    Rules::new(texts.iter().map(|text| text.parse().unwrap()).collect()).unwrap()
}

async fn take(store: &RedisStore, rules: &Rules) -> Result<LimitReply, StoreError> {
    store.take(&Check::take(scope(), rules.clone(), 1, Duration::ZERO).unwrap()).await
}

async fn plain_client(server: &RedisServer) -> MultiplexedConnection {
    redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// The check as the seed does it: INCR, then EXPIRE, in a bucket by the caller's own clock.
async fn old_check(mut client: MultiplexedConnection, now: Timestamp, limit: u64, window_s: i64) -> (bool, u64) {
    let bucket = now.as_millis() / (window_s * 1_000);
    let key = format!("n8n-ratelimit-mail api-{bucket}");
    let count: u64 = redis::cmd("INCR").arg(&key).query_async(&mut client).await.unwrap();
    let _set: i64 = redis::cmd("EXPIRE").arg(&key).arg(window_s).query_async(&mut client).await.unwrap();
    (count <= limit, count)
}

async fn our_check(store: &RedisStore, limit: u64, window_s: u64) -> (bool, u64) {
    let reply = take(store, &Rules::one(Rule::seed(limit, Duration::from_secs(window_s)).unwrap())).await.unwrap();
    (reply.allowed, reply.rules[0].count)
}

#[tokio::test(flavor = "multi_thread")]
async fn old_and_new_callers_share_one_bucket_with_the_same_counts_and_verdicts() {
    const CALLS: u64 = 4_000;
    let (server, clock) = (RedisServer::start(), VirtualClock::new());
    let store = RedisStore::open_by_clock(options(&server), Arc::new(clock.clone())).await.unwrap();
    let old = plain_client(&server).await;
    let mut seen = BTreeSet::new();
    for chunk in 0..CALLS / 100 {
        let ours = join_all((0..50).map(|_| our_check(&store, 1_234, 60)));
        let theirs = join_all((0..50).map(|_| old_check(old.clone(), clock.now(), 1_234, 60)));
        let (ours, theirs) = tokio::join!(ours, theirs);
        for (allowed, count) in ours.into_iter().chain(theirs) {
            assert_eq!(allowed, count <= 1_234, "chunk {chunk}");
            assert!(seen.insert(count), "{count} was told twice");
        }
    }
    assert_eq!(seen, (1..=CALLS).collect());
    clock.advance(Duration::from_secs(60));
    assert_eq!(our_check(&store, 1_234, 60).await, (true, 1), "the next window is empty");
    assert_eq!(old_check(old, clock.now(), 1_234, 60).await, (true, 2));
}

#[tokio::test]
async fn the_node_of_workflows_counts_with_them_and_says_the_same() {
    const MONTH_S: u64 = 2_678_400;
    let server = RedisServer::start();
    let (towpath, old) = (towpath::Towpath::open(&server.url()).await.unwrap(), plain_client(&server).await);
    let inputs = |limit| RateLimitCheck { scope: Some("mail api".to_owned()), limit: Some(limit), window_seconds: Some(MONTH_S) };
    for count in [1, 3, 5] {
        let ours = towpath.rate_limit_check(inputs(3)).await.unwrap();
        let theirs = old_check(old.clone(), SystemClock::new().now(), 3, MONTH_S as i64).await;
        let expected = serde_json::json!({ "allowed": count <= 3, "scope": "mail api", "count": count, "limit": 3 });
        assert_eq!(serde_json::to_value(ours).unwrap(), expected);
        assert_eq!(theirs, (count < 3, count + 1));
    }
    let (limit, window) = (towpath.rate_limit_check(inputs(0)).await, RateLimitCheck { window_seconds: Some(0), ..inputs(3) });
    assert_eq!(limit.unwrap_err().to_string(), "limit is 0: it must be from 1 to 1000000000");
    let window = towpath.rate_limit_check(window).await.unwrap_err().to_string();
    assert_eq!(window, "windowSeconds is 0: it must be from 1 to 2678400");
    assert_eq!(towpath.rate_limit_check(inputs(10)).await.unwrap().count, 7, "what was refused counted nothing");
}

/// The system's clock, wrong by as much as the test says.
#[derive(Debug)]
struct WrongClock {
    system: SystemClock,
    ahead_ms: AtomicI64,
}

impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.system.now().as_millis() + self.ahead_ms.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        self.system.sleep_until(at)
    }
}

#[tokio::test]
async fn a_host_whose_clock_is_in_another_window_counts_in_the_servers_window() {
    const WINDOW_S: i64 = 86_400;
    let server = RedisServer::start();
    let clock = Arc::new(WrongClock { system: SystemClock::new(), ahead_ms: AtomicI64::new(0) });
    let judge: Arc<dyn Clock> = Arc::<WrongClock>::clone(&clock);
    let store = RedisStore::open(options(&server), judge).await.unwrap();
    let old = plain_client(&server).await;
    let today = SystemClock::new().now();
    assert_eq!(our_check(&store, 3, WINDOW_S as u64).await, (true, 1));
    clock.ahead_ms.store(WINDOW_S * 1_000 * 7, Ordering::Relaxed);
    assert_eq!(our_check(&store, 3, WINDOW_S as u64).await, (true, 2));
    assert_eq!(old_check(old.clone(), today, 3, WINDOW_S).await, (true, 3));
    assert_eq!(our_check(&store, 3, WINDOW_S as u64).await, (false, 4));
    for count in 5..2_000 {
        clock.ahead_ms.store(WINDOW_S * 1_000 * (count % 7 - 3), Ordering::Relaxed);
        let both = tokio::join!(our_check(&store, 3, WINDOW_S as u64), old_check(old.clone(), today, 3, WINDOW_S));
        let mut counts = [both.0, both.1];
        counts.sort_unstable();
        let first = u64::try_from(count * 2 - 5).unwrap();
        assert_eq!(counts, [(false, first), (false, first + 1)], "the same count for nobody, the same verdict for all");
    }
    let buckets = server.cli(&["KEYS", "n8n-ratelimit-*"]);
    assert_eq!(buckets.lines().count(), 1, "{buckets}");
}

/// Every key and what it holds, byte for byte.
fn content(server: &RedisServer) -> Vec<String> {
    let keys = server.cli(&["KEYS", "*"]);
    // The pulse rises whenever a process looks at the data set.
    let keys = keys.lines().filter(|key| *key != "towpath:pulse");
    let mut content: Vec<String> = keys.map(|key| format!("{key} {}", server.cli(&["DUMP", key]))).collect();
    content.sort();
    content
}

#[tokio::test]
async fn a_denied_check_of_eight_rules_leaves_every_byte_as_it_was() {
    let server = RedisServer::start();
    let store = RedisStore::open_by_clock(options(&server), Arc::new(VirtualClock::new())).await.unwrap();
    let rules = rules(&[
        "a=gcra:10/1s,burst=5",
        "b=sliding_log:5/1s",
        "c=sliding_counter:5/1s",
        "d=fixed_window:5/1s",
        "e=gcra:10/1s,burst=5,key=u1",
        "f=sliding_log:5/1s,key=u1",
        "g=fixed_window:5/1s,key=u1",
        "narrow=sliding_log:2/1s",
    ]);
    assert!(take(&store, &rules).await.unwrap().allowed);
    assert!(take(&store, &rules).await.unwrap().allowed);
    // What is in use is written down by and by.
    while server.cli(&["ZCARD", "towpath:limit:index:{limits}"]).trim() != "8" {
        tokio::task::yield_now().await;
    }
    let before = content(&server);
    assert!(before.iter().filter(|key| key.contains("n8n-ratelimit-mail api")).count() == 8, "{before:?}");
    assert!(!take(&store, &rules).await.unwrap().allowed);
    let another = RedisStore::open_by_clock(options(&server), Arc::new(VirtualClock::new())).await.unwrap();
    assert!(!take(&another, &rules).await.unwrap().allowed, "nor does the first check of another process");
    assert_eq!(content(&server), before);
}

#[tokio::test]
async fn what_is_in_use_is_listed_without_a_look_at_all_keys_and_written_down_once() {
    let server = RedisServer::start();
    let store = RedisStore::open(options(&server), Arc::new(SystemClock::new())).await.unwrap();
    server.cli(&["CONFIG", "RESETSTAT"]); // a process that starts looks once for functions that are missing in their set
    let rules = rules(&["r=gcra:1000/60s,burst=1000", "s=sliding_log:1000/60s"]);
    for _ in 0..50 {
        assert!(take(&store, &rules).await.unwrap().allowed);
    }
    let query = LimitQuery { prefix: "mail".to_owned(), after: None, limit: 10 };
    let listed = store.limits(&query).await.unwrap();
    assert_eq!(listed.items.iter().map(|view| view.limit.rule().clone()).collect::<Vec<_>>(), rules.to_vec());
    assert_eq!(listed.items[1].said.count, 50);
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = |name: &str| {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:")));
        line.map_or(0, |line| line.split(['=', ',']).nth(1).unwrap().parse::<u64>().unwrap())
    };
    assert_eq!((calls("keys"), calls("scan")), (0, 0));
    let index = server.cli(&["ZCARD", "towpath:limit:index:{limits}"]);
    assert_eq!((index.trim(), server.cli(&["ZCARD", "towpath:limit:over:{limits}"]).trim()), ("2", "2"));
    assert_eq!(calls("zcard"), 3, "two rules were written down with one script, once");
}

#[tokio::test]
async fn the_list_forgets_what_is_over_and_does_not_grow_for_ever() {
    let (server, clock) = (RedisServer::start(), VirtualClock::new());
    let store = RedisStore::open_by_clock(options(&server), Arc::new(clock.clone())).await.unwrap();
    let one =
        |number: u32| Check::take(LimitScope::new(format!("user-{number}")).unwrap(), rules(&["r=gcra:1/1s"]), 1, Duration::ZERO).unwrap();
    for number in 0..100 {
        assert!(store.take(&one(number)).await.unwrap().allowed);
    }
    let query = LimitQuery { limit: 200, ..LimitQuery::default() };
    assert_eq!(store.limits(&query).await.unwrap().items.len(), 100);
    clock.advance(Duration::from_secs(2 * 3_600));
    assert_eq!(store.limits(&query).await.unwrap().items.len(), 0);
    for number in 100..150 {
        assert!(store.take(&one(number)).await.unwrap().allowed);
    }
    assert_eq!(store.limits(&query).await.unwrap().items.len(), 50);
    for index in ["towpath:limit:index:{limits}", "towpath:limit:over:{limits}"] {
        assert_eq!(server.cli(&["ZCARD", index]).trim(), "50", "each one that came has swept two");
    }
}

#[tokio::test]
async fn what_is_remembered_is_swept_by_itself() {
    let server = RedisServer::start();
    let store = RedisStore::open(options(&server), Arc::new(SystemClock::new())).await.unwrap();
    let rules = rules(&["a=gcra:10/10s,burst=5", "b=sliding_log:5/10s", "c=sliding_counter:5/10s", "d=fixed_window:5/10s"]);
    assert!(take(&store, &rules).await.unwrap().allowed);
    for key in server.cli(&["KEYS", "*n8n-ratelimit-*"]).lines() {
        let left: i64 = server.cli(&["PTTL", key]).trim().parse().unwrap();
        assert!(left > 0 && left <= 21_000, "{key} is swept in {left} ms");
    }
}

#[tokio::test]
async fn checks_that_come_together_share_script_runs() {
    let server = RedisServer::start();
    let store = RedisStore::open(options(&server), Arc::new(SystemClock::new())).await.unwrap();
    let rules = rules(&["r=gcra:1000000/1s,burst=1000"]);
    assert!(take(&store, &rules).await.unwrap().allowed);
    server.cli(&["CONFIG", "RESETSTAT"]);
    let replies = join_all((0..500).map(|_| take(&store, &rules))).await;
    assert!(replies.iter().all(|reply| reply.as_ref().unwrap().allowed));
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
    let runs: u64 = line.split(['=', ',']).nth(1).unwrap().parse().unwrap();
    // At most 256 go together; a few scripts of the process's own may come beside.
    assert!(runs <= 10, "500 checks took {runs} script runs");
}

/// The law in this process's memory: what each check is to be told.
#[derive(Default)]
struct Law(HashMap<(LimitScope, StateName), LimitState>);

impl Law {
    fn take(&mut self, check: &Check, now: Micros) -> LimitReply {
        let names = check.rules().iter().map(|rule| (check.scope().clone(), StateName::of(rule, now)));
        let names: Vec<(LimitScope, StateName)> = names.collect();
        let states: Vec<Option<LimitState>> = names.iter().map(|name| self.0.get(name).cloned()).collect();
        let (after, reply) = towpath_core::limit::take(check, &states, now);
        self.0.extend(names.into_iter().zip(after).filter_map(|(name, state)| Some((name, state?))));
        reply
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_of_many_kinds_that_come_together_are_answered_as_if_each_came_alone() {
    const KINDS: [&[&str]; 6] = [
        &["r=gcra:7/3s,burst=2"],
        &["r=gcra:7/3s,burst=2", "wide=gcra:100/1s,burst=9", "watch=gcra:1/60s,shadow"],
        &["r=fixed_window:3/60s,count_denied"],
        &["log=sliding_log:2/5s", "r=gcra:7/3s,burst=2", "watch=sliding_log:1/5s,shadow"],
        &["r=sliding_counter:3/2s"],
        &["r=gcra:7/3s,burst=2"],
    ];
    let (server, clock, mut law) = (RedisServer::start(), VirtualClock::new(), Law::default());
    let store = RedisStore::open_by_clock(options(&server), Arc::new(clock.clone())).await.unwrap();
    let (mut allowed, mut denied) = (0, 0);
    for round in 0..40_usize {
        // Several ask the same one after the other, and others come between them.
        let check = |number: usize| {
            let (scope, rules) = (LimitScope::new(format!("s{number}")).unwrap(), rules(KINDS[number / 7 % KINDS.len()]));
            match (round + number / 3) % 7 {
                0 => Check::refund(scope, rules, 1),
                1 => Check::peek(scope, rules, 2),
                2 if rules.iter().any(|rule| rule.algorithm() == Algorithm::Gcra) => {
                    Check::take(scope, rules, 1, Duration::from_millis(400))
                }
                _ => Check::take(scope, rules, 1, Duration::ZERO),
            }
        };
        let checks: Vec<Check> = (0..200).map(|number| check(number).unwrap()).collect();
        let replies = join_all(checks.iter().map(|check| store.take(check))).await;
        for (check, reply) in checks.iter().zip(replies) {
            let expected = law.take(check, clock.now_us());
            *if expected.allowed { &mut allowed } else { &mut denied } += 1;
            assert_eq!(reply.unwrap(), expected, "round {round}: {check:?}");
        }
        clock.advance(Duration::from_millis(130 * (round as u64 % 5)));
    }
    assert!(allowed > 1_000 && denied > 1_000, "{allowed} {denied}");
}

#[tokio::test]
async fn a_key_that_holds_something_else_is_named_and_spoils_no_other_check() {
    let server = RedisServer::start();
    let clock = VirtualClock::new();
    let store = RedisStore::open_by_clock(options(&server), Arc::new(clock.clone())).await.unwrap();
    let bucket = format!("n8n-ratelimit-mail api-{}", clock.now().as_millis() / 60_000);
    let strange = [
        ("r=gcra:5/1s", "towpath:{n8n-ratelimit-mail api}:g:r"),
        ("r=sliding_log:5/1s", "towpath:{n8n-ratelimit-mail api}:l:r"),
        ("r=sliding_counter:5/1s", "towpath:{n8n-ratelimit-mail api}:c:r"),
        ("r=fixed_window:5/60s", bucket.as_str()),
    ];
    for (_, key) in strange {
        server.cli(&["SET", key, "not ours"]);
    }
    let good = rules(&["good=sliding_log:5/1s"]);
    for (rule, key) in strange {
        let (bad, both) = (rules(&[rule]), rules(&[rule, "good=sliding_log:5/1s"]));
        let (spoilt, fine, together) = tokio::join!(take(&store, &bad), take(&store, &good), take(&store, &both));
        for refused in [spoilt, together] {
            let refused = refused.unwrap_err();
            assert!(matches!(&refused, StoreError::Corrupt(why) if why.contains(key)), "{refused}");
        }
        assert!(fine.unwrap().allowed);
        assert_eq!(server.cli(&["GET", key]).trim(), "not ours");
    }
    let four = store.take(&Check::peek(scope(), good, 0).unwrap()).await.unwrap();
    assert_eq!(four.rules[0].count, 4, "a check with a strange key took nothing from its other rule");
}

/// Commands that the server has run, those of scripts included.
async fn commands_run(mut client: MultiplexedConnection) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut client).await.unwrap();
    let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
    stats.lines().filter_map(calls).sum()
}

/// Waits until the rules of all checks so far are in the list.
async fn written_down(store: &RedisStore) {
    store.limits(&LimitQuery { limit: 1, ..LimitQuery::default() }).await.unwrap();
}

#[tokio::test]
async fn a_check_for_the_three_thousandth_key_sends_as_many_commands_as_one_for_the_first() {
    const KEYS: usize = 100;
    let server = RedisServer::start();
    let store = RedisStore::open(options(&server), Arc::new(SystemClock::new())).await.unwrap();
    let (client, mut run) = (plain_client(&server).await, Vec::new());
    for begin in [0, KEYS, 3_000] {
        let before = commands_run(client.clone()).await;
        for user in begin..begin + KEYS {
            assert!(take(&store, &rules(&[&format!("per_user=gcra:5/1h,key=u{user}")])).await.unwrap().allowed);
        }
        written_down(&store).await;
        run.push(commands_run(client.clone()).await - before);
        if begin == KEYS {
            join_all((2 * KEYS..3_000).map(|user| {
                let (store, rules) = (&store, rules(&[&format!("per_user=gcra:5/1h,key=u{user}")]));
                async move { take(store, &rules).await.unwrap() }
            }))
            .await;
            written_down(&store).await;
        }
    }
    assert!(run[1] >= KEYS as u64, "the counter counts");
    assert!(run[2] <= run[1] + 20, "{run:?} commands for the first hundred keys, the second, and the thirty-first");
}
