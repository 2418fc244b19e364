//! What was seen to break in use, one test each: outcomes that changed, answers that lied, counts that drifted, timers that stopped.

#[cfg(debug_assertions)]
mod planted;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use towpath_conformance::words::{SubmitWords, call_id, definition, failed_not_before, function, new_call, ok, seconds, worker_id};
use towpath_core::call::{Answer, CallState, Outcome};
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::ids::DeliveryId;
use towpath_core::store::{
    CallStore, ClaimCalls, ClaimFunction, CompleteCalls, Completed, Delivery, Heartbeat, InspectStore, RegistryStore, StoreError,
    StoreTrouble, Submitted, TimerStore,
};
use towpath_core::worker::{FunctionDefinition, FunctionLimits, Offer, RegisterWorker};
use towpath_redis::{RedisOptions, RedisStore, Timing};
use towpath_redis_testing::{RedisServer, until};

const TAG: &str = "{function:stream:__global__:add}";
const SOON: Duration = Duration::from_secs(30);

struct Rig {
    server: RedisServer,
    clock: VirtualClock,
    store: RedisStore,
}

async fn open(server: &RedisServer, clock: &VirtualClock) -> RedisStore {
    let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    RedisStore::open_by_clock(options, Arc::new(clock.clone())).await.expect("the server is up")
}

impl Rig {
    async fn start() -> Self {
        let (server, clock) = (RedisServer::start(), VirtualClock::new());
        let store = open(&server, &clock).await;
        Self { server, clock, store }
    }

    async fn another_process(&self) -> RedisStore {
        open(&self.server, &self.clock).await
    }

    async fn define(&self, name: &str, limits: FunctionLimits) {
        self.store.define(FunctionDefinition { limits, ..definition(name) }).await.expect("the server is up");
    }

    async fn submit(&self, id: &str) {
        let submitted = self.store.submit(new_call(id, "add").timeout(seconds(60))).await;
        assert!(matches!(submitted, Ok(Submitted::Accepted { .. })), "{submitted:?}");
    }

    async fn claim(&self, worker: &str, max: u32) -> Vec<Delivery> {
        self.try_claim(worker, "add", max).await.expect("the server is up")
    }

    async fn try_claim(&self, worker: &str, name: &str, max: u32) -> Result<Vec<Delivery>, StoreError> {
        let functions = [ClaimFunction { function: function(name), max }].into();
        let (lease, wait) = (seconds(30), Duration::ZERO);
        self.store.claim(ClaimCalls { worker: worker_id(worker), functions, max, lease, wait, takes_any: false }).await
    }

    async fn answer(&self, worker: &str, delivery: &DeliveryId, answer: Answer) -> Completed {
        let answers = CompleteCalls::one(worker_id(worker), delivery.clone(), answer);
        self.store.complete(answers).await.expect("the server is up").pop().expect("one reply")
    }

    async fn outcome(&self, id: &str) -> Option<Outcome> {
        self.store.call(&call_id(id)).await.expect("the server is up").expect("it is kept").call.outcome
    }

    fn count(&self, words: &[&str]) -> u64 {
        self.server.cli(words).trim().parse().expect("a number")
    }
}

/// A1.
#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_that_was_told_does_not_change_whatever_becomes_of_the_stream() {
    let rig = Rig::start().await;
    rig.define("add", FunctionLimits::default()).await;
    for number in 0..50 {
        rig.submit(&format!("c-{number}")).await;
    }
    let held = rig.claim("w1", 50).await;
    assert_eq!(held.len(), 50);
    for delivery in &held {
        let recorded = rig.answer("w1", &delivery.id, ok("1")).await;
        assert!(matches!(recorded, Completed::Recorded { ended: Some(_) }), "{recorded:?}");
    }
    rig.server.try_cli(&["XGROUP", "DESTROY", "function:stream:__global__:add", "group:add"]).expect("the server is up");
    rig.server.cli(&["DEL", "function:stream:__global__:add"]);
    assert_eq!(rig.claim("w2", 50).await, [], "no ended call is delivered again");
    for delivery in &held {
        assert_eq!(rig.answer("w1", &delivery.id, ok("2")).await, Completed::AlreadyRecorded);
        let stolen = rig.answer("w2", &delivery.id, ok("2")).await;
        assert!(matches!(stolen, Completed::Lost(_)), "{stolen:?}");
        let kept = rig.outcome(delivery.id.call_id.as_str()).await;
        assert!(matches!(&kept, Some(Outcome::Ok(data)) if data.as_str() == "1"), "{kept:?}");
    }
}

/// Rule 1, for claims: a line in a set proves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_runs_is_not_delivered_again_although_the_queue_names_it() {
    let rig = Rig::start().await;
    rig.define("add", FunctionLimits::default()).await;
    rig.submit("c-1").await;
    let held = rig.claim("w1", 1).await.remove(0);
    // What another program, or a person, may leave behind.
    rig.server.cli(&["ZADD", &format!("towpath:queue:{TAG}"), "1", "c-1"]);
    assert_eq!(rig.claim("w2", 1).await, [], "its record says that it runs");
    assert!(matches!(rig.answer("w1", &held.id, ok("1")).await, Completed::Recorded { ended: Some(_) }));
    assert!(matches!(rig.outcome("c-1").await, Some(Outcome::Ok(data)) if data.as_str() == "1"));
}

/// Rule 1, for answers: what a process remembers of a call proves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_is_refused_although_its_process_has_not_heard_that_the_call_went_on() {
    let rig = Rig::start().await;
    rig.define("add", FunctionLimits::default()).await;
    rig.submit("c-1").await;
    let late = rig.claim("w1", 1).await.remove(0);
    let there = rig.another_process().await;
    rig.clock.advance(seconds(30));
    there.fire_due(10).await.expect("the server is up");
    let functions = [ClaimFunction { function: function("add"), max: 1 }].into();
    let (lease, wait) = (seconds(30), Duration::ZERO);
    let want = ClaimCalls { worker: worker_id("w2"), functions, max: 1, lease, wait, takes_any: false };
    let second = there.claim(want).await.expect("the server is up").remove(0);
    let refused = rig.answer("w1", &late.id, ok("1")).await;
    assert!(matches!(refused, Completed::Lost(_)), "{refused:?}");
    let recorded = there.complete(CompleteCalls::one(worker_id("w2"), second.id, ok("2"))).await.expect("the server is up");
    assert!(matches!(recorded[..], [Completed::Recorded { ended: Some(_) }]), "{recorded:?}");
    assert!(matches!(rig.outcome("c-1").await, Some(Outcome::Ok(data)) if data.as_str() == "2"));
}

/// Rule 2: what limits a function is the size of a set.
#[tokio::test(flavor = "multi_thread")]
async fn a_function_has_room_again_as_soon_as_its_call_has_ended() {
    let rig = Rig::start().await;
    rig.define("add", FunctionLimits { max_concurrent: Some(1), ..FunctionLimits::default() }).await;
    for number in 0..5 {
        rig.submit(&format!("c-{number}")).await;
    }
    for number in 0..5 {
        let held = rig.claim("w1", 5).await;
        assert_eq!(held.len(), 1, "in round {number}");
        let recorded = rig.answer("w1", &held[0].id, ok("1")).await;
        assert!(matches!(recorded, Completed::Recorded { ended: Some(_) }), "{recorded:?}");
    }
}

/// A4.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_a_wrong_type_is_the_trouble_of_its_function_alone_and_nothing_ran_that_was_refused() {
    let rig = Rig::start().await;
    for set in ["calls", "queue", "deadlines"] {
        let (bad, good) = (format!("bad-{set}"), format!("good-{set}"));
        rig.define(&bad, FunctionLimits::default()).await;
        rig.define(&good, FunctionLimits::default()).await;
        rig.server.cli(&["SET", &format!("towpath:{set}:{{function:stream:__global__:{bad}}}"), "of another program"]);
        let calls = (0..200).map(|number| {
            let name = if number % 2 == 0 { &bad } else { &good };
            rig.store.submit(new_call(&format!("{set}-{number}"), name).timeout(seconds(60)))
        });
        for (number, submitted) in join_all(calls).await.into_iter().enumerate() {
            match submitted {
                Err(StoreError::Unavailable(trouble)) if number % 2 == 0 => {
                    assert!(trouble.to_string().contains("rename or delete it"), "{trouble}");
                }
                Ok(Submitted::Accepted { .. }) if number % 2 == 1 => {}
                other => panic!("{set}, call {number}: {other:?}"),
            }
        }
        assert_eq!(rig.try_claim("w1", &good, 200).await.expect("its keys are fine").len(), 100);
        rig.server.cli(&["DEL", &format!("towpath:{set}:{{function:stream:__global__:{bad}}}")]);
        assert_eq!(rig.try_claim("w1", &bad, 200).await.expect("its keys are fine now"), [], "what was refused was not taken");
        assert_eq!(rig.count(&["HLEN", &format!("towpath:calls:{{function:stream:__global__:{bad}}}")]), 0, "and repair finds no record");
    }
}

/// A4, for answers: those of another function are kept.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_kept_although_another_function_is_in_trouble() {
    let rig = Rig::start().await;
    for name in ["bad", "good"] {
        rig.define(name, FunctionLimits::default()).await;
        rig.store.submit(new_call(name, name).timeout(seconds(60))).await.expect("the server is up");
    }
    let bad = rig.try_claim("w1", "bad", 1).await.expect("the server is up").remove(0);
    let good = rig.try_claim("w1", "good", 1).await.expect("the server is up").remove(0);
    let calls = "towpath:calls:{function:stream:__global__:bad}";
    rig.server.cli(&["RENAME", calls, "aside"]);
    rig.server.cli(&["SET", calls, "of another program"]);
    let answers = vec![(bad.id.clone(), ok("1")), (good.id.clone(), ok("2"))];
    let refused = rig.store.complete(CompleteCalls { worker: worker_id("w1"), answers: answers.clone() }).await;
    assert!(matches!(&refused, Err(StoreError::Unknown(_))), "one of the two was kept: {refused:?}");
    let alone = CompleteCalls { worker: worker_id("w1"), answers: vec![answers[0].clone()] };
    let refused = rig.store.complete(alone).await;
    let is_certain = matches!(&refused, Err(StoreError::Unavailable(StoreTrouble::WrongType(_))));
    assert!(is_certain, "certainly not kept: {refused:?}");
    assert!(matches!(rig.outcome("good").await, Some(Outcome::Ok(_))));
    rig.server.cli(&["RENAME", "aside", calls]);
    assert_eq!(rig.outcome("bad").await, None);
    // The record is the one proof: a set of lines that cannot be written does not keep an outcome from being kept.
    rig.server.cli(&["SET", "towpath:running:{function:stream:__global__:bad}", "of another program"]);
    let replies = rig.store.complete(CompleteCalls { worker: worker_id("w1"), answers }).await.expect("the key is back");
    assert!(matches!(replies[..], [Completed::Recorded { .. }, Completed::AlreadyRecorded]), "{replies:?}");
    assert!(matches!(rig.outcome("bad").await, Some(Outcome::Ok(_))));
}

/// A4, for entries of legacy callers.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_imported_as_a_whole_or_not_at_all() {
    const STREAM: &str = "function:stream:__global__:add";
    let rig = Rig::start().await;
    rig.define("add", FunctionLimits::default()).await;
    let deadlines = format!("towpath:deadlines:{TAG}");
    rig.server.cli(&["SET", &deadlines, "of another program"]);
    let entry = format!("{}-0", rig.clock.now().as_millis());
    rig.server.cli(&["XADD", STREAM, &entry, "callId", "old-1", "params", "{}", "responseChannel", "function:response:old-1"]);
    assert_eq!(rig.claim("w1", 1).await, [], "a call without a deadline must not run");
    assert_eq!(rig.count(&["HLEN", &format!("towpath:calls:{TAG}")]), 0);
    assert_eq!(rig.count(&["ZCARD", &format!("towpath:queue:{TAG}")]), 0);
    assert!(rig.server.cli(&["XPENDING", STREAM, "group:add"]).starts_with('1'), "and it is not lost");
}

/// A3, A5.
#[tokio::test(flavor = "multi_thread")]
async fn counts_are_sizes_of_sets_and_a_stale_member_blocks_a_function_only_until_it_is_repaired() {
    let server = RedisServer::start();
    let mut options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    options.timing = Timing { repair_every: Duration::from_millis(100), ..Timing::default() };
    let store = RedisStore::open(options, Arc::new(towpath::SystemClock::new())).await.expect("the server is up");
    let limits = FunctionLimits { max_concurrent: Some(1), max_backlog: Some(2), ..FunctionLimits::default() };
    let offers = vec![Offer { definition: FunctionDefinition { limits, ..definition("add") }, concurrency: Some(1) }];
    let worker = RegisterWorker { worker_id: worker_id("w1"), kind: "http".to_owned(), offers };
    store.register(worker).await.expect("the server is up");
    // What another program, or a person, may leave behind.
    server.cli(&["ZADD", &format!("towpath:queue:{TAG}"), "1", "gone-1", "2", "gone-2"]);
    server.cli(&["ZADD", &format!("towpath:running:{TAG}"), "1", "gone-3"]);
    server.cli(&["SADD", &format!("towpath:parked:{TAG}"), "gone-4"]);
    server.cli(&["SADD", &format!("towpath:held:{TAG}:w1"), "gone-5"]);
    let shown = store.functions().await.expect("a page that people look at never breaks");
    assert_eq!(shown.len(), 1);
    store.fire_due(100).await.expect("the server is up");
    let sets = [("ZCARD", format!("towpath:running:{TAG}")), ("SCARD", format!("towpath:parked:{TAG}"))];
    let held = ("SCARD", format!("towpath:held:{TAG}:w1"));
    until("the stale members are gone", SOON, || {
        sets.iter().chain([&held]).all(|(command, key)| server.cli(&[command, key]).trim() == "0")
    });
    let claim = |wait| {
        let functions = [ClaimFunction { function: function("add"), max: 5 }].into();
        ClaimCalls { worker: worker_id("w1"), functions, max: 5, lease: seconds(30), wait, takes_any: false }
    };
    assert_eq!(store.claim(claim(Duration::ZERO)).await.expect("the server is up"), [], "lines that name nothing are no calls");
    let submitted = store.submit(new_call("c-1", "add").timeout(seconds(60))).await;
    assert!(matches!(submitted, Ok(Submitted::Accepted { .. })), "{submitted:?}");
    assert_eq!(store.claim(claim(seconds(20))).await.expect("the server is up").len(), 1, "and there is room to run it");
}

/// A call whose lines were all removed is found by its record.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_missing_in_every_set_is_put_back_by_repair() {
    let server = RedisServer::start();
    let mut options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    options.timing = Timing { repair_every: Duration::from_millis(100), ..Timing::default() };
    let store = RedisStore::open(options, Arc::new(towpath::SystemClock::new())).await.expect("the server is up");
    store.define(definition("add")).await.expect("the server is up");
    store.submit(new_call("c-1", "add").timeout(seconds(60))).await.expect("the server is up");
    server.cli(&["DEL", &format!("towpath:queue:{TAG}"), &format!("towpath:deadlines:{TAG}")]);
    let functions = [ClaimFunction { function: function("add"), max: 1 }].into();
    let want = ClaimCalls { worker: worker_id("w1"), functions, max: 1, lease: seconds(30), wait: seconds(20), takes_any: false };
    assert_eq!(store.claim(want).await.expect("the server is up").len(), 1);
    assert_eq!(server.cli(&["ZCARD", &format!("towpath:deadlines:{TAG}")]).trim(), "1");
}

/// Repair alone reads here; no worker sends heartbeats.
#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_is_missing_in_the_set_of_all_functions_is_put_back_by_repair() {
    let server = RedisServer::start();
    let mut options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    options.timing = Timing { repair_every: Duration::from_millis(100), ..Timing::default() };
    let store = RedisStore::open(options, Arc::new(towpath::SystemClock::new())).await.expect("the server is up");
    store.define(definition("add")).await.expect("the server is up");
    server.cli(&["DEL", "towpath:functions"]);
    until("the function is back", SOON, || server.cli(&["SMEMBERS", "towpath:functions"]).trim() == "__global__\nadd");
}

/// A6.
#[tokio::test(flavor = "multi_thread")]
async fn lines_that_name_nothing_are_removed_and_hold_up_no_timer() {
    let rig = Rig::start().await;
    rig.define("add", FunctionLimits::default()).await;
    for set in ["delayed", "running", "deadlines"] {
        let key = format!("towpath:{set}:{TAG}");
        for chunk in 0..5 {
            let ids: Vec<String> = (0..200).map(|number| format!("gone-{chunk}-{number}")).collect();
            let words: Vec<&str> = ["ZADD", &key].into_iter().chain(ids.iter().flat_map(|id| ["1", id.as_str()])).collect();
            rig.server.cli(&words);
        }
    }
    rig.submit("c-1").await;
    rig.clock.advance(seconds(60));
    let mut ended = Vec::new();
    for _round in 0..6 {
        ended.extend(rig.store.fire_due(256).await.expect("the server is up").ended);
    }
    assert_eq!(ended.iter().map(|ended| ended.call_id.as_str()).collect::<Vec<_>>(), ["c-1"], "its deadline came");
    for set in ["delayed", "running", "deadlines"] {
        assert_eq!(rig.count(&["ZCARD", &format!("towpath:{set}:{TAG}")]), 0, "{set}");
    }
    assert_eq!(rig.store.fire_due(256).await.expect("the server is up").next_due, None, "there is nothing to wake up for");
}

/// A6: the trouble of one function, worker or lock keeps no other from its timer.
#[tokio::test(flavor = "multi_thread")]
async fn the_trouble_of_one_function_holds_up_no_timer_of_another() {
    let rig = Rig::start().await;
    for name in ["bad", "good"] {
        rig.define(name, FunctionLimits::default()).await;
        rig.store.submit(new_call(name, name).timeout(seconds(60))).await.expect("the server is up");
    }
    // Its definition cannot be read, so that the retry policy of its calls is not known.
    rig.server.cli(&["HSET", "towpath:function:{function:stream:__global__:bad}", "definition", "of a later version"]);
    rig.clock.advance(seconds(60));
    let mut ended = Vec::new();
    for _round in 0..3 {
        ended.extend(rig.store.fire_due(256).await.expect("the trouble of one function is not that of all").ended);
        rig.clock.advance(seconds(2));
    }
    assert_eq!(ended.iter().map(|ended| ended.call_id.as_str()).collect::<Vec<_>>(), ["good"]);
}

/// A6: another program keeps something under a name that the seeds use for their registry.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_key_in_the_seeds_registry_keeps_no_worker_from_coming_or_going() {
    let rig = Rig::start().await;
    let offer = |name: &str| Offer { definition: definition(name), concurrency: None };
    rig.server.cli(&["SET", "function:bad", "of another program"]);
    rig.server.cli(&["SADD", "function:meta:w1:bad", "of another program"]);
    let offers = vec![offer("bad"), offer("good")];
    rig.store.register(RegisterWorker { worker_id: worker_id("w1"), kind: "rust".to_owned(), offers }).await.expect("it is registered");
    assert!(rig.server.cli(&["SMEMBERS", "function:good"]).contains("w1"));
    rig.clock.advance(seconds(20));
    assert_eq!(rig.store.heartbeat(&worker_id("w1")).await.expect("it is heard"), Heartbeat::Known);
    for name in ["bad", "good"] {
        rig.store.submit(new_call(name, name).timeout(seconds(60))).await.expect("the server is up");
        assert_eq!(rig.try_claim("w1", name, 1).await.expect("its own keys are fine").len(), 1);
    }
    rig.clock.advance(seconds(3_600));
    let fired = rig.store.fire_due(256).await.expect("the server is up");
    assert_eq!((fired.ended.len(), fired.workers_removed), (2, 1));
    assert_eq!(rig.store.fire_due(256).await.expect("the server is up").next_due, None, "there is nothing to wake up for");
    assert_eq!(rig.server.cli(&["GET", "function:bad"]), "of another program");
}

/// A7: a retry comes in the first round, whatever else is overdue.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_does_not_wait_behind_calls_that_expired_in_an_outage() {
    let rig = Rig::start().await;
    rig.define("add", FunctionLimits::default()).await;
    rig.define("retried", FunctionLimits::default()).await;
    rig.store.submit(new_call("again", "retried").timeout(seconds(600))).await.expect("the server is up");
    let work = rig.try_claim("w1", "retried", 1).await.expect("the server is up").remove(0);
    let delayed = rig.answer("w1", &work.id, failed_not_before("busy", seconds(61))).await;
    assert_eq!(delayed, Completed::Recorded { ended: None });
    let ids: Vec<String> = (0..2_000).map(|number| format!("c-{number}")).collect();
    join_all(ids.iter().map(|id| rig.submit(id))).await;
    rig.clock.advance(seconds(61));
    let fired = rig.store.fire_due(256).await.expect("the server is up");
    assert_eq!((fired.promoted, fired.ended.len()), (1, 256));
}

/// A9: one claim looks at a bounded number of lines.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_after_an_outage_looks_at_a_bounded_number_of_expired_calls() {
    let rig = Rig::start().await;
    rig.define("add", FunctionLimits::default()).await;
    let ids: Vec<String> = (0..3_000).map(|number| format!("c-{number}")).collect();
    join_all(ids.iter().map(|id| rig.submit(id))).await;
    rig.clock.advance(seconds(61));
    assert_eq!(rig.claim("w1", 10).await, []);
    let left = rig.count(&["ZCARD", &format!("towpath:queue:{TAG}")]);
    assert!((1_900..3_000).contains(&left), "{left} lines are left for the next claims");
    rig.submit("live").await;
    let mut claimed = Vec::new();
    for _claim in 0..6 {
        claimed.extend(rig.claim("w1", 10).await);
    }
    assert_eq!(claimed.iter().map(|delivery| delivery.id.call_id.as_str()).collect::<Vec<_>>(), ["live"]);
    let mut ended = 0;
    while ended < 3_000 {
        let fired = rig.store.fire_due(256).await.expect("the server is up");
        ended += fired.ended.len();
        if fired.ended.is_empty() {
            break;
        }
    }
    let view = rig.store.call(&call_id("c-2999")).await.expect("the server is up").expect("it is kept");
    assert_eq!(view.call.state, CallState::Expired);
}

/// A10, and rule 4: nothing stays of calls that have ended, and no command removes them.
#[tokio::test(flavor = "multi_thread")]
async fn ended_calls_and_dead_letters_that_were_dealt_with_leave_nothing_behind() {
    let server = RedisServer::start();
    let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    let store = RedisStore::open(options, Arc::new(towpath::SystemClock::new())).await.expect("the server is up");
    let mut once = definition("add");
    once.retry.max_attempts = 1;
    store.define(once).await.expect("the server is up");
    let ids: Vec<String> = (0..100).map(|number| format!("c-{number}")).collect();
    let retain = Duration::from_millis(200);
    join_all(ids.iter().map(|id| store.submit(new_call(id, "add").timeout(seconds(60)).retain(retain).key(id)))).await;
    let functions = [ClaimFunction { function: function("add"), max: 100 }].into();
    let want = ClaimCalls { worker: worker_id("w1"), functions, max: 100, lease: seconds(30), wait: seconds(20), takes_any: false };
    let held = store.claim(want).await.expect("the server is up");
    assert_eq!(held.len(), 100);
    for (number, delivery) in held.into_iter().enumerate() {
        let is_dead = number % 10 == 0;
        let answer = if is_dead { failed_not_before("busy", Duration::ZERO) } else { ok("1") };
        let id = delivery.id.call_id.clone();
        store.complete(CompleteCalls::one(worker_id("w1"), delivery.id, answer)).await.expect("the server is up");
        if is_dead {
            assert!(store.drop_dead(&id).await.expect("the server is up"), "{id} is a dead letter");
        }
    }
    let left = || server.cli(&["KEYS", "towpath:*:{function:stream:__global__:add}*"]);
    until("Redis has expired all that was kept", SOON, || {
        let of_no_call = ["towpath:function:", "towpath:buckets:", "towpath:legacy:"];
        left().lines().all(|key| of_no_call.iter().any(|kind| key.starts_with(kind)))
    });
}

#[cfg(debug_assertions)]
planted::planted! {
    rule_1_a_claim_that_believes_the_queue_is_noticed:
        "calls/record.lua", "'^3Q\\t(%d+)(" => "'^3.\\t(%d+)(",
        "a_call_that_runs_is_not_delivered_again_although_the_queue_names_it";
    rule_1_an_answer_that_does_not_compare_the_record_is_noticed:
        "calls/apply.lua", "fits = old and sub(old, 1, #start) == start and" => "fits = old or",
        "a_late_answer_is_refused_although_its_process_has_not_heard_that_the_call_went_on";
    rule_2_a_counter_beside_the_set_of_running_calls_is_noticed:
        "calls/claim.lua", "call('ZCARD', running)" => "(call('HINCRBY', about, 'running', 1) - 1)",
        "a_function_has_room_again_as_soon_as_its_call_has_ended";
    rule_2_stale_members_that_are_not_repaired_are_noticed:
        "calls/mend.lua", "if not fits then" => "if false then",
        "counts_are_sizes_of_sets_and_a_stale_member_blocks_a_function_only_until_it_is_repaired";
    rule_3_a_functions_trouble_that_reaches_another_is_noticed:
        "calls/section.lua", "pcall(section, ...)" => "true, section(...)",
        "an_answer_is_kept_although_another_function_is_in_trouble";
    rule_3_a_refused_call_that_leaves_its_record_is_noticed:
        "calls/submit.lua", "call('HDEL', calls, new[i])" => "",
        "a_key_of_a_wrong_type_is_the_trouble_of_its_function_alone_and_nothing_ran_that_was_refused";
    rule_3_a_script_that_writes_before_it_has_looked_at_every_key_is_noticed:
        "legacy/group.lua", "if kind ~= keys[i + 1] and" => "if false and",
        "an_entry_is_imported_as_a_whole_or_not_at_all";
    rule_4_a_bucket_that_does_not_expire_is_noticed:
        "calls/apply.lua", "call('PEXPIRE', ended .. bucket, lives)" => "",
        "ended_calls_and_dead_letters_that_were_dealt_with_leave_nothing_behind";
    rule_5_a_line_that_names_nothing_and_stays_is_noticed:
        "calls/due.lua", "all('ZREM', lines, stale)" => "",
        "lines_that_name_nothing_are_removed_and_hold_up_no_timer";
    rule_5_a_claim_that_walks_all_expired_calls_is_noticed:
        "calls/claim.lua", "to_look, bytes = 512" => "to_look, bytes = 100000",
        "a_claim_after_an_outage_looks_at_a_bounded_number_of_expired_calls";
}
