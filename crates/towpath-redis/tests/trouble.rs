//! The trouble of one function, one call or one notification stays its own: everything else is delivered, ends and is told.

mod planted;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use towpath_conformance::words::{SubmitWords, call_id, definition, function, new_call, ok, seconds, worker_id};
use towpath_core::call::CallState;
use towpath_core::clock::VirtualClock;
use towpath_core::inspect::{CallFilter, PageRequest};
use towpath_core::store::{
    CallStore, ClaimCalls, ClaimFunction, CompleteCalls, Completed, Delivery, InspectStore, RegistryStore, RenewCalls, Renewal, StoreError,
    TimerStore,
};
use towpath_core::worker::{FunctionDefinition, FunctionLimits, Offer, RegisterWorker};
use towpath_redis::{RedisOptions, RedisStore, Timing};
use towpath_redis_testing::RedisServer;

const SOON: Duration = Duration::from_secs(30);

fn key(set: &str, name: &str) -> String {
    format!("towpath:{set}:{{function:stream:__global__:{name}}}")
}

/// A Redis and processes that share it and a clock.
struct Rig {
    server: RedisServer,
    clock: VirtualClock,
    store: RedisStore,
}

impl Rig {
    async fn start(functions: &[&str]) -> Self {
        let (server, clock) = (RedisServer::start(), VirtualClock::new());
        let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
        let store = RedisStore::open_by_clock(options, Arc::new(clock.clone())).await.expect("the server is up");
        let rig = Self { server, clock, store };
        for name in functions {
            rig.define(name, FunctionLimits::default()).await;
        }
        rig
    }

    async fn define(&self, name: &str, limits: FunctionLimits) {
        self.store.define(FunctionDefinition { limits, ..definition(name) }).await.expect("the server is up");
    }

    async fn another_process(&self) -> RedisStore {
        let options = RedisOptions::parse(&self.server.url()).expect("a URL of a Redis");
        RedisStore::open_by_clock(options, Arc::new(self.clock.clone())).await.expect("the server is up")
    }

    async fn submit(&self, id: &str, name: &str, timeout: u64) {
        self.store.submit(new_call(id, name).timeout(seconds(timeout))).await.expect("the server is up");
    }

    async fn submit_many(&self, start: &str, count: usize, name: &str, timeout: u64) {
        let ids: Vec<String> = (0..count).map(|number| format!("{start}-{number}")).collect();
        join_all(ids.iter().map(|id| self.submit(id, name, timeout))).await;
    }

    async fn state(&self, id: &str) -> CallState {
        self.store.call(&call_id(id)).await.expect("the server is up").expect("it is kept").call.state
    }
}

fn want(worker: &str, functions: &[&str], max: u32, wait: Duration) -> ClaimCalls {
    let functions = functions.iter().map(|name| ClaimFunction { function: function(name), max }).collect();
    ClaimCalls { worker: worker_id(worker), functions, max, lease: seconds(30), wait, takes_any: false }
}

async fn claim(store: &RedisStore, worker: &str, functions: &[&str], max: u32) -> Vec<Delivery> {
    store.claim(want(worker, functions, max, Duration::ZERO)).await.expect("the server is up")
}

/// A claim that waits, and has begun to.
async fn waiting(store: &RedisStore, worker: &'static str, functions: &'static [&str]) -> tokio::task::JoinHandle<Vec<Delivery>> {
    let claiming = store.clone();
    let waits = tokio::spawn(async move { claiming.claim(want(worker, functions, 1, seconds(3_600))).await.expect("it waits") });
    // Once a process listens to the function's channel, its claim is in the line.
    store.probe().await.expect("the server is up");
    waits
}

async fn served(waits: tokio::task::JoinHandle<Vec<Delivery>>) -> Vec<String> {
    let deliveries = tokio::time::timeout(SOON, waits).await.expect("the claim is served").expect("it does not panic");
    deliveries.into_iter().map(|delivery| delivery.id.call_id.to_string()).collect()
}

/// Waits until a process listens to the work of a function.
fn until_listened_to(server: &RedisServer, name: &str) {
    let channel = format!("towpath:work:0:{{function:stream:__global__:{name}}}");
    towpath_redis_testing::until("a claim to wait", SOON, || server.cli(&["PUBSUB", "NUMSUB", &channel]).trim().ends_with('1'));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_claim_finds_a_call_behind_thousands_that_expired() {
    let rig = Rig::start(&["add"]).await;
    rig.submit_many("late", 3_000, "add", 1).await;
    rig.submit("live", "add", 600).await;
    rig.clock.advance(seconds(2));
    let waits = waiting(&rig.store, "w1", &["add"]).await;
    assert_eq!(served(waits).await, ["live"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_claim_follows_a_function_that_is_spread() {
    let rig = Rig::start(&["add"]).await;
    let worker = rig.another_process().await;
    let waits = waiting(&worker, "w1", &["add"]).await;
    until_listened_to(&rig.server, "add");
    rig.define("add", FunctionLimits { shards: Some(4), ..FunctionLimits::default() }).await;
    rig.submit("spread", "add", 600).await;
    assert_eq!(rig.server.cli(&["ZCARD", &key("queue", "add")]).trim(), "0", "it went to another partition");
    assert_eq!(served(waits).await, ["spread"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_in_trouble_holds_up_no_claim_of_another() {
    let rig = Rig::start(&["bad", "good"]).await;
    let bad = waiting(&rig.store, "w1", &["bad"]).await;
    until_listened_to(&rig.server, "bad");
    let good = waiting(&rig.store, "w2", &["good"]).await;
    until_listened_to(&rig.server, "good");
    rig.server.cli(&["SET", &key("queue", "bad"), "of another program"]);
    rig.server.cli(&["PUBLISH", "towpath:work:0:{function:stream:__global__:bad}", ""]);
    rig.another_process().await.submit(new_call("c-1", "good").timeout(seconds(60))).await.expect("the server is up");
    assert_eq!(served(good).await, ["c-1"]);
    // When the key is right again, its claim is served, too.
    rig.server.cli(&["DEL", &key("queue", "bad")]);
    rig.another_process().await.submit(new_call("c-2", "bad").timeout(seconds(60))).await.expect("its keys are fine");
    assert_eq!(served(bad).await, ["c-2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_two_functions_waits_although_one_is_in_trouble() {
    let rig = Rig::start(&["bad", "good"]).await;
    rig.server.cli(&["SET", &key("queue", "bad"), "of another program"]);
    let waits = waiting(&rig.store, "w1", &["bad", "good"]).await;
    until_listened_to(&rig.server, "good");
    rig.submit("c-1", "good", 60).await;
    assert_eq!(served(waits).await, ["c-1"]);
    let alone = rig.another_process().await.claim(want("w1", &["bad"], 1, seconds(60))).await;
    assert!(matches!(alone, Err(StoreError::Unavailable(_))), "a claim of that function alone says why: {alone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_cannot_be_read_is_the_only_one_that_is_not_delivered() {
    let rig = Rig::start(&["add"]).await;
    let large = format!("\"{}\"", "x".repeat(2_000));
    for number in 0..10 {
        rig.store.submit(new_call(&format!("c-{number}"), "add").params(&large)).await.expect("the server is up");
    }
    rig.server.cli(&["HDEL", &key("calls", "add"), "\u{1}rc-4"]);
    let delivered = claim(&rig.store, "w1", &["add"], 10).await;
    assert_eq!(delivered.len(), 9);
    assert!(delivered.iter().all(|delivery| delivery.id.call_id.as_str() != "c-4"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_another_version_stops_neither_timers_nor_lists_nor_workers() {
    let rig = Rig::start(&["add"]).await;
    let offers = vec![Offer { definition: definition("add"), concurrency: None }];
    let register = RegisterWorker { worker_id: worker_id("w1"), kind: "rust".to_owned(), offers };
    rig.store.register(register).await.expect("the server is up");
    rig.submit("held", "add", 600).await;
    rig.submit("strange", "add", 600).await;
    let held = claim(&rig.store, "w1", &["add"], 2).await;
    rig.submit("c-1", "add", 10).await;
    rig.server.cli(&["HSET", &key("calls", "add"), "strange", "3R of a later version"]);
    for set in ["deadlines", "running"] {
        rig.server.cli(&["ZADD", &key(set, "add"), "1", "strange"]);
    }
    let another = rig.another_process().await;
    let ids: Vec<_> = held.iter().map(|delivery| delivery.id.clone()).collect();
    let renewed = another.renew(RenewCalls { worker: worker_id("w1"), deliveries: ids, lease: seconds(30) }).await;
    let renewed = renewed.expect("the other call is renewed");
    assert_eq!(renewed.iter().filter(|renewal| matches!(renewal, Renewal::Held { .. })).count(), 1, "{renewed:?}");
    rig.clock.advance(seconds(11));
    let fired = rig.store.fire_due(256).await.expect("the server is up");
    assert_eq!(fired.ended.iter().map(|ended| ended.call_id.as_str()).collect::<Vec<_>>(), ["c-1"]);
    let listed = rig.store.calls(&CallFilter::default(), PageRequest { limit: 10, after: None }).await.expect("the others are listed");
    assert_eq!(listed.items.len(), 2);
    assert_eq!(rig.store.workers().await.expect("workers are listed").len(), 1);
    assert_eq!(rig.store.unregister(&worker_id("w1")).await.expect("it may leave"), 1);
    assert!(matches!(rig.store.call(&call_id("strange")).await, Err(StoreError::Corrupt(_))), "asked for by its id, it is not absent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_notification_is_made_up_for() {
    let server = RedisServer::start();
    let mut options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    options.timing = Timing { repair_every: Duration::from_millis(100), ..Timing::default() };
    let store = RedisStore::open(options, Arc::new(towpath::SystemClock::new())).await.expect("the server is up");
    store.define(definition("add")).await.expect("the server is up");
    store.submit(new_call("c-1", "add").timeout(seconds(60))).await.expect("the server is up");
    // The call waits, and no notification says so.
    let sequence = server.cli(&["ZSCORE", &key("queue", "add"), "c-1"]);
    server.cli(&["RENAME", &key("calls", "add"), "aside"]);
    server.cli(&["DEL", &key("queue", "add")]);
    let waits = waiting(&store, "w1", &["add"]).await;
    until_listened_to(&server, "add");
    server.cli(&["RENAME", "aside", &key("calls", "add")]);
    server.cli(&["ZADD", &key("queue", "add"), sequence.trim(), "c-1"]);
    assert_eq!(served(waits).await, ["c-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_comes_behind_lines_of_no_call_wakes_a_worker_at_once() {
    let rig = Rig::start(&["add"]).await;
    let worker = rig.another_process().await;
    for number in 0..2 {
        let waits = waiting(&worker, "w1", &["add"]).await;
        until_listened_to(&rig.server, "add");
        // Stores that live by a test's clock have no repair.
        rig.server.cli(&["ZADD", &key("queue", "add"), "1", "junk", "2", "more junk"]);
        rig.submit(&format!("c-{number}"), "add", 60).await;
        assert_eq!(served(waits).await, [format!("c-{number}")]);
        assert_eq!(rig.server.cli(&["ZCARD", &key("queue", "add")]).trim(), "0", "the claim has removed what names no call");
        rig.clock.advance(seconds(1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_into_a_queue_that_is_not_empty_notify_once_a_second() {
    let rig = Rig::start(&["add"]).await;
    let notified = || {
        let stats = rig.server.cli(&["INFO", "commandstats"]);
        let publish = stats.lines().find_map(|line| line.strip_prefix("cmdstat_publish:calls=")?.split(',').next()?.parse::<u64>().ok());
        publish.unwrap_or(0)
    };
    rig.submit("first", "add", 60).await;
    let before = notified();
    for second in 1..=3 {
        rig.clock.advance(seconds(1));
        for number in 0..20 {
            rig.submit(&format!("c-{second}-{number}"), "add", 60).await;
        }
        assert_eq!(notified() - before, second);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_may_not_notify_says_so() {
    let server = RedisServer::start();
    let mut options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    options.timing = Timing { repair_every: Duration::from_millis(50), ..Timing::default() };
    let store = RedisStore::open(options.clone(), Arc::new(towpath::SystemClock::new())).await.expect("the server is up");
    store.define(definition("add")).await.expect("the server is up");
    assert_eq!(store.probe().await.expect("the server is up").problems, Vec::<String>::new());
    server.cli(&["ACL", "SETUSER", "default", "-publish"]);
    let says_so = async || store.probe().await.expect("the server is up").problems.iter().any(|problem| problem.contains("PUBLISH"));
    towpath_redis_testing::until("the process to say so", SOON, || {
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(says_so()))
    });
    let found = towpath_redis::doctor::examine(&options, Arc::new(towpath::SystemClock::new())).await;
    let rights = found.checks.iter().find(|check| check.name == "rights").expect("the rights are tried");
    assert!(rights.verdict == towpath_redis::doctor::Verdict::Fail && rights.says.contains("publish"), "{rights:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn room_that_a_call_leaves_is_announced_by_a_process_that_met_no_limit() {
    let rig = Rig::start(&[]).await;
    rig.define("add", FunctionLimits { max_concurrent: Some(3), ..FunctionLimits::default() }).await;
    rig.submit_many("c", 5, "add", 600).await;
    let (second, third) = (rig.another_process().await, rig.another_process().await);
    let first = claim(&rig.store, "w1", &["add"], 2).await;
    assert_eq!((first.len(), claim(&third, "w3", &["add"], 1).await.len()), (2, 1));
    let waits = waiting(&second, "w2", &["add"]).await;
    until_listened_to(&rig.server, "add");
    let answer = CompleteCalls::one(worker_id("w1"), first[0].id.clone(), ok("1"));
    assert!(matches!(rig.store.complete(answer).await.expect("the server is up")[..], [Completed::Recorded { .. }]));
    assert_eq!(served(waits).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_claim_is_bounded_in_lines_whatever_the_number_of_functions() {
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let rig = Rig::start(&NAMES).await;
    for name in NAMES {
        rig.submit_many(name, 200, name, 1).await;
    }
    rig.clock.advance(seconds(2));
    let waiting = || NAMES.iter().map(|name| rig.server.cli(&["ZCARD", &key("queue", name)]).trim().parse::<u64>().unwrap()).sum::<u64>();
    assert_eq!(waiting(), 1_600);
    assert_eq!(claim(&rig.store, "w1", &NAMES, 1_000).await, []);
    assert_eq!(waiting(), 1_600 - 512);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_claim_is_bounded_in_bytes_and_nothing_is_left_behind() {
    let rig = Rig::start(&["add"]).await;
    let large = format!("\"{}\"", "x".repeat(300_000));
    for number in 0..8 {
        rig.store.submit(new_call(&format!("c-{number}"), "add").params(&large)).await.expect("the server is up");
    }
    for _claim in 0..2 {
        assert_eq!(claim(&rig.store, "w1", &["add"], 100).await.len(), 4);
    }
    assert_eq!(claim(&rig.store, "w1", &["add"], 100).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_made_although_its_notification_is_refused() {
    let rig = Rig::start(&["add"]).await;
    let caller = rig.another_process().await;
    let _waiter = caller.watch(&call_id("c-1"));
    caller.submit(new_call("c-1", "add").timeout(seconds(60))).await.expect("the server is up");
    let delivery = claim(&rig.store, "w1", &["add"], 1).await.remove(0);
    rig.server.cli(&["ACL", "SETUSER", "default", "resetchannels"]);
    let answer = CompleteCalls::one(worker_id("w1"), delivery.id, ok("1"));
    let answered = rig.store.complete(answer).await;
    assert!(matches!(answered.as_deref(), Ok([Completed::Recorded { .. }])), "{answered:?}");
    assert_eq!(rig.state("c-1").await, CallState::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_in_trouble_hides_no_other_in_a_list_and_its_errors_name_the_key() {
    let rig = Rig::start(&["bad", "good"]).await;
    let offers = ["bad", "good"].map(|name| Offer { definition: definition(name), concurrency: None }).to_vec();
    let register = RegisterWorker { worker_id: worker_id("w1"), kind: "rust".to_owned(), offers };
    rig.store.register(register).await.expect("the server is up");
    rig.submit("c-1", "good", 600).await;
    for set in ["calls", "queue", "running", "delayed", "exported", "buckets", "function", "workers"] {
        let bad = key(set, "bad");
        if rig.server.cli(&["EXISTS", &bad]).trim() == "1" {
            rig.server.cli(&["RENAME", &bad, "aside"]);
        }
        rig.server.cli(&["SET", &bad, "of another program"]);
        let listed = rig.store.calls(&CallFilter::default(), PageRequest { limit: 10, after: None }).await;
        assert_eq!(listed.unwrap_or_else(|error| panic!("{set}: {error}")).items.len(), 1, "{set}");
        let functions = rig.store.functions().await.unwrap_or_else(|error| panic!("{set}: {error}"));
        let view = |name: &str| functions.iter().find(|view| view.definition.key == function(name));
        assert!(view("good").is_some_and(|view| view.problems.is_empty()), "{set}: {functions:?}");
        let in_trouble = view("bad").unwrap_or_else(|| panic!("{set}: it is listed, too"));
        assert!(in_trouble.problems.iter().any(|problem| problem.contains(&bad)), "{set}: {in_trouble:?}");
        assert_eq!(rig.store.workers().await.unwrap_or_else(|error| panic!("{set}: {error}")).len(), 1, "{set}");
        if ["calls", "queue"].contains(&set) {
            let refused = rig.store.submit(new_call("c-2", "bad")).await.expect_err("it cannot be kept").to_string();
            assert!(refused.contains(&format!("the key {bad} is a string and should be a")), "{refused}");
        }
        rig.another_process().await;
        rig.server.cli(&["DEL", &bad]);
        if rig.server.cli(&["EXISTS", "aside"]).trim() == "1" {
            rig.server.cli(&["RENAME", "aside", &bad]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_of_a_wrong_type_stops_its_kind_of_timer_alone() {
    let rig = Rig::start(&["add"]).await;
    rig.submit("c-1", "add", 10).await;
    rig.server.cli(&["SET", &key("running", "add"), "of another program"]);
    rig.clock.advance(seconds(11));
    let fired = rig.store.fire_due(256).await.expect("the server is up");
    assert_eq!(fired.ended.iter().map(|ended| ended.call_id.as_str()).collect::<Vec<_>>(), ["c-1"], "its deadline came");
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_that_cannot_be_fired_make_no_server_busy() {
    let rig = Rig::start(&["add"]).await;
    rig.submit("c-1", "add", 10).await;
    rig.server.cli(&["RENAME", &key("calls", "add"), "aside"]);
    rig.server.cli(&["SET", &key("calls", "add"), "of another program"]);
    rig.clock.advance(seconds(11));
    let now = towpath_core::clock::Clock::now(&rig.clock);
    let fired = rig.store.fire_due(256).await.expect("the server is up");
    assert_eq!(fired.next_due, Some(now + seconds(2)), "its deadline is past, and it is not looked at again at once");
    rig.server.cli(&["RENAME", "aside", &key("calls", "add")]);
    rig.clock.advance(seconds(2));
    assert_eq!(rig.store.fire_due(256).await.expect("the server is up").ended.len(), 1, "the deadline comes when the key is right again");
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_an_earlier_format_is_refused_and_left_alone() {
    for key in ["towpath:sequence", "towpath:where"] {
        let server = RedisServer::start();
        server.cli(&["SET", key, "1"]);
        let options = || RedisOptions::parse(&server.url()).expect("a URL of a Redis");
        let refused = RedisStore::open_by_clock(options(), Arc::new(VirtualClock::new())).await.expect_err("it cannot be read").to_string();
        assert!(refused.contains(key) && refused.contains("choose another prefix"), "{refused}");
        assert_eq!(server.cli(&["DBSIZE"]).trim(), "1", "nothing was written");
        let other = RedisOptions { prefix: "fresh".to_owned(), ..options() };
        RedisStore::open_by_clock(other, Arc::new(VirtualClock::new())).await.expect("another prefix is free");
    }
    let server = RedisServer::start();
    // Locks and permits are written in another way since 3.
    for format in ["3", "9"] {
        server.cli(&["SET", "towpath:format", format]);
        let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
        let refused =
            RedisStore::open_by_clock(options, Arc::new(VirtualClock::new())).await.expect_err("it is of another version").to_string();
        assert!(refused.contains(&format!("format {format}")) && refused.contains("another prefix"), "{refused}");
    }
}

/// A server before Redis 7 looks only at each write of a script whether it may be made.
#[test]
fn what_a_server_refuses_from_the_first_write_on_is_not_in_doubt() {
    let server = RedisServer::start();
    let section = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("lua/calls/section.lua");
    let section = std::fs::read_to_string(section).expect("the script is there");
    let run = |code: &str, written: bool| {
        let script = format!(
            "local find, sub = string.find, string.sub
             {section}
             local reply = run_section(function() has_written = {written}; error({{ err = '{code} says the server' }}) end)
             return {{ reply and reply[1] or 'refused', refused and refused.err or '' }}"
        );
        server.cli(&["EVAL", &script, "0"]).trim().replace('\n', ": ")
    };
    for code in ["READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN"] {
        assert_eq!([false, true].map(|written| run(code, written)), [(); 2].map(|()| format!("refused: {code} says the server")));
    }
    assert_eq!([false, true].map(|written| run("OOM", written)), ["refused: OOM says the server", "X"]);
    assert_eq!([false, true].map(|written| run("WRONGTYPE", written)), ["T", "X"]);
}

planted::planted! {
    a_claim_that_does_not_look_behind_expired_calls_is_noticed:
        "calls/claim.lua", "is_empty and 0 or call('ZCARD', queue)" => "0",
        "a_waiting_claim_finds_a_call_behind_thousands_that_expired";
    a_claim_that_fails_with_one_of_its_functions_is_noticed:
        "calls/section.lua", "pcall(section, ...)" => "true, section(...)",
        "a_claim_of_two_functions_waits_although_one_is_in_trouble";
    a_claim_with_a_bound_for_each_function_is_noticed:
        "calls/claim.lua", "local reply, late, looked =" => "to_look = 512; local reply, late, looked =",
        "one_claim_is_bounded_in_lines_whatever_the_number_of_functions";
    a_claim_that_is_not_bounded_in_bytes_is_noticed:
        "calls/claim.lua", "512, 1024 * 1024" => "512, 1024 * 1024 * 1024",
        "one_claim_is_bounded_in_bytes_and_nothing_is_left_behind";
    a_change_that_fails_with_its_notification_is_noticed:
        "calls/apply.lua", "redis.pcall('PUBLISH', channel, told" => "redis.call('PUBLISH', channel, told",
        "a_change_is_made_although_its_notification_is_refused";
    a_kind_of_timer_that_stops_the_others_is_noticed:
        "calls/due.lua", "pcall(due, lines, states, limit)" => "true, due(lines, states, limit)",
        "a_set_of_a_wrong_type_stops_its_kind_of_timer_alone";
    a_submit_that_believes_that_a_queue_has_calls_is_noticed:
        "calls/submit.lua", "waiting == 0 or ARGV[at + 4] == '1' then" => "waiting == 0 then",
        "a_call_that_comes_behind_lines_of_no_call_wakes_a_worker_at_once";
    a_submit_that_always_notifies_is_noticed:
        "calls/submit.lua", "waiting == 0 or ARGV[at + 4] == '1' then" => "true then",
        "calls_into_a_queue_that_is_not_empty_notify_once_a_second";
}
