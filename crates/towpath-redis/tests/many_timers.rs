//! Lists beside many delayed and running calls: each page reads a bounded number of them, and all pages together have every call, also those whose
//! state changes between two pages.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use towpath_conformance::words::{SubmitWords, call_id, definition, failed_not_before, function, new_call, seconds, worker_id};
use towpath_core::call::CallState;
use towpath_core::clock::VirtualClock;
use towpath_core::inspect::{CallFilter, CallView, PageRequest};
use towpath_core::store::{CallStore, ClaimCalls, ClaimFunction, CompleteCalls, InspectStore, RegistryStore, TimerStore};
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::RedisServer;

const MANY: usize = 6_000;
/// One page looks at no more calls than these, whatever there is.
const COMMANDS_MAX: u64 = 1_000;

struct Rig {
    server: RedisServer,
    store: RedisStore,
    clock: VirtualClock,
}

fn key(set: &str, name: &str) -> String {
    format!("towpath:{set}:{{function:stream:__global__:{name}}}")
}

impl Rig {
    async fn start() -> Self {
        let server = RedisServer::start();
        let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
        let clock = VirtualClock::new();
        let store = RedisStore::open_by_clock(options, Arc::new(clock.clone())).await.expect("the server is up");
        for name in ["add", "sub"] {
            store.define(definition(name)).await.expect("the server is up");
        }
        Self { server, store, clock }
    }

    async fn submit(&self, id: &str, name: &str) {
        self.store.submit(new_call(id, name).timeout(seconds(600))).await.expect("the server is up");
    }

    async fn claim(&self, name: &str) -> towpath_core::ids::DeliveryId {
        let functions = [ClaimFunction { function: function(name), max: 1 }].into();
        let (worker, lease, wait) = (worker_id("w1"), seconds(30), Duration::ZERO);
        let want = ClaimCalls { worker, functions, max: 1, lease, wait, takes_any: false };
        self.store.claim(want).await.expect("the server is up").remove(0).id
    }

    /// Makes one call that is delayed for a minute.
    async fn submit_delayed(&self, id: &str) {
        self.submit(id, "add").await;
        let delivery = self.claim("add").await;
        let later = CompleteCalls::one(worker_id("w1"), delivery, failed_not_before("busy", seconds(60)));
        self.store.complete(later).await.expect("the server is up");
    }

    /// Makes many calls of one that is delayed or runs, with instants of which many are the same.
    fn multiply(&self, set: &str, name: &str, id: &str) {
        let copy = format!(
            "local record, at = redis.call('HGET', KEYS[1], ARGV[1]), tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]))
             for i = 1, {MANY} do
               local function later(start, sequence) return start .. string.format('%.0f', sequence + i) end
               redis.call('HSET', KEYS[1], ARGV[1] .. '-' .. i, (record:gsub('^(%w+\\t%d+\\t)(%d+)', later)))
               redis.call('ZADD', KEYS[2], string.format('%.0f', at + (i * 7) % 13), ARGV[1] .. '-' .. i)
             end"
        );
        self.server.cli(&["EVAL", &copy, "2", &key("calls", name), &key(set, name), id]);
        assert_eq!(self.server.cli(&["ZCARD", &key(set, name)]).trim(), (MANY + 1).to_string());
    }

    /// How many commands the server has run, those inside of scripts included.
    fn commands(&self) -> u64 {
        let stats = self.server.cli(&["INFO", "commandstats"]);
        let calls = stats.lines().filter_map(|line| line.split_once(":calls=")?.1.split(',').next()?.parse::<u64>().ok());
        calls.sum()
    }

    /// All pages, each of them bounded.
    async fn all(&self, filter: &CallFilter, limit: u32) -> Vec<Vec<CallView>> {
        self.pages(filter, limit, usize::MAX).await
    }

    /// The first pages.
    async fn pages(&self, filter: &CallFilter, limit: u32, most: usize) -> Vec<Vec<CallView>> {
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let before = self.commands();
            let page = self.store.calls(filter, PageRequest { after, limit }).await.expect("the server is up");
            let cost = self.commands() - before;
            assert!(cost <= COMMANDS_MAX, "page {} ran {cost} commands", pages.len());
            assert!(page.items.len() <= limit as usize);
            pages.push(page.items);
            after = page.next;
            if after.is_none() || pages.len() == most {
                return pages;
            }
        }
    }
}

fn ids(pages: &[Vec<CallView>]) -> Vec<&str> {
    pages.iter().flatten().map(|view| view.call.call_id.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_delayed_calls_are_listed_page_by_page_each_once() {
    let rig = Rig::start().await;
    rig.submit_delayed("slow").await;
    rig.multiply("delayed", "add", "slow");
    // Another function has a few of its own.
    for number in 0..3 {
        rig.submit(&format!("run-{number}"), "sub").await;
        rig.claim("sub").await;
    }
    let timers = CallFilter { states: vec![CallState::Delayed, CallState::Running], brief: true, ..CallFilter::default() };
    let pages = rig.all(&timers, 200).await;
    let listed = ids(&pages);
    assert_eq!((listed.len(), listed.iter().collect::<BTreeSet<_>>().len()), (MANY + 4, MANY + 4), "each once");
    let delayed = CallFilter { states: vec![CallState::Delayed], ..timers.clone() };
    assert_eq!(ids(&rig.all(&delayed, 150).await).len(), MANY + 1);
    let of_sub = CallFilter { function: Some(function("sub").name), ..timers.clone() };
    assert_eq!(ids(&rig.all(&of_sub, 10).await), ["run-2", "run-1", "run-0"], "few calls are listed newest first");
    let with_payloads = CallFilter { brief: false, ..delayed };
    let first = rig.store.calls(&with_payloads, PageRequest::first(20)).await.expect("the server is up");
    assert!((10..=20).contains(&first.items.len()) && first.next.is_some(), "{} calls", first.items.len());
    assert!(first.items.iter().all(|view| !view.request.params.as_bytes().is_empty()), "with payloads");
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_many_running_calls_ended_calls_are_listed_newest_first_behind_all_others() {
    let rig = Rig::start().await;
    rig.submit("busy", "add").await;
    rig.claim("add").await;
    rig.multiply("running", "add", "busy");
    for number in 0..5 {
        rig.submit(&format!("queued-{number}"), "sub").await;
    }
    for number in [1, 3] {
        rig.store.cancel(&call_id(&format!("queued-{number}"))).await.expect("the server is up");
    }
    let all = CallFilter { brief: true, ..CallFilter::default() };
    let pages = rig.all(&all, 200).await;
    let listed = ids(&pages);
    assert_eq!((listed.len(), listed.iter().collect::<BTreeSet<_>>().len()), (MANY + 6, MANY + 6), "each once");
    assert_eq!(listed[MANY + 4..], ["queued-3", "queued-1"]);
    let newest_first = |page: &Vec<CallView>| page.is_sorted_by_key(|view| std::cmp::Reverse(view.call.submitted_at));
    assert!(pages.iter().all(newest_first), "on each page");
    let ended = CallFilter { states: vec![CallState::Cancelled], ..all.clone() };
    assert_eq!(ids(&rig.all(&ended, 1).await), ["queued-3", "queued-1"]);
    // When there are few again, a list that was begun before goes on without leaving a call out.
    let first = rig.store.calls(&all, PageRequest::first(2)).await.expect("the server is up");
    rig.server.cli(&["ZREMRANGEBYRANK", &key("running", "add"), "0", "-4"]);
    let mut seen: BTreeSet<String> = first.items.iter().map(|view| view.call.call_id.to_string()).collect();
    let mut after = first.next;
    while let Some(cursor) = after {
        let page = rig.store.calls(&all, PageRequest { after: Some(cursor), limit: 200 }).await.expect("the server is up");
        seen.extend(page.items.iter().map(|view| view.call.call_id.to_string()));
        after = page.next;
    }
    assert_eq!(seen.len(), MANY + 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_state_changes_between_two_pages_is_listed() {
    let rig = Rig::start().await;
    rig.submit_delayed("slow").await;
    rig.multiply("delayed", "add", "slow");
    rig.submit("waits", "sub").await;
    // As `towpath export` asks.
    let open = CallFilter { states: vec![CallState::Queued, CallState::Delayed, CallState::Running], ..CallFilter::default() };
    let first = rig.store.calls(&open, PageRequest::first(200)).await.expect("the server is up");
    rig.clock.advance(seconds(61));
    let fired = rig.store.fire_due(1_000).await.expect("the server is up");
    assert!(fired.promoted > 500, "{} calls are queued now", fired.promoted);
    let mut listed: BTreeSet<String> = first.items.iter().map(|view| view.call.call_id.to_string()).collect();
    let mut after = first.next;
    while let Some(cursor) = after {
        let page = rig.store.calls(&open, PageRequest { after: Some(cursor), limit: 200 }).await.expect("the server is up");
        assert!(page.items.iter().all(|view| !view.request.params.as_bytes().is_empty()), "with payloads");
        listed.extend(page.items.iter().map(|view| view.call.call_id.to_string()));
        after = page.next;
    }
    assert_eq!(listed.len(), MANY + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_passes_over_a_function_in_trouble() {
    let rig = Rig::start().await;
    rig.submit_delayed("slow").await;
    rig.multiply("delayed", "add", "slow");
    rig.server.cli(&["SET", &key("calls", "sub"), "junk"]);
    rig.server.cli(&["HSET", &key("calls", "add"), "odd", "junk"]);
    let delayed = CallFilter { states: vec![CallState::Delayed], brief: true, ..CallFilter::default() };
    assert_eq!(ids(&rig.all(&delayed, 200).await).len(), MANY + 1);
    assert_eq!(rig.store.probe().await.expect("the server is up").problems.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_walk_is_bounded_in_bytes() {
    let rig = Rig::start().await;
    rig.submit_delayed("slow").await;
    rig.multiply("delayed", "add", "slow");
    let large = format!("[\"{}\"]", "x".repeat(300_000));
    for number in 0..12 {
        let call = new_call(&format!("large-{number}"), "sub").params(&large).timeout(seconds(600));
        rig.store.submit(call).await.expect("the server is up");
    }
    let open = CallFilter { states: vec![CallState::Queued, CallState::Delayed], ..CallFilter::default() };
    let pages = rig.all(&open, 200).await;
    assert_eq!(ids(&pages).len(), MANY + 13);
    for page in &pages {
        let bytes: usize = page.iter().map(CallView::payload_bytes).sum();
        assert!(bytes <= PageRequest::BYTES_MAX, "a page of {} calls has {bytes} bytes", page.len());
    }
}
