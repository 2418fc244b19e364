//! Calls that come together are listed on one page. Nobody who looks at them can tell.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use towpath_conformance::words::{SubmitWords, call_id, definition, function, new_call, seconds, worker_id};
use towpath_core::call::{Answer, CallState};
use towpath_core::clock::VirtualClock;
use towpath_core::inspect::{CallFilter, PageRequest};
use towpath_core::names::CallId;
use towpath_core::store::{
    CallStore, ClaimCalls, ClaimFunction, CompleteCalls, InspectStore, RegistryStore, Replayed, Submitted, TimerStore,
};
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::RedisServer;

const MANY: usize = 40;

struct Rig {
    server: RedisServer,
    store: RedisStore,
    clock: VirtualClock,
}

impl Rig {
    async fn start() -> Self {
        let (server, clock) = (RedisServer::start(), VirtualClock::new());
        let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
        let store = RedisStore::open_by_clock(options, Arc::new(clock.clone())).await.expect("the server is up");
        store.define(definition("add")).await.expect("the server is up");
        Self { server, store, clock }
    }

    /// Submits all at once, so that they go in few batches.
    async fn submit_many(&self) -> Vec<CallId> {
        let ids: Vec<CallId> = (0..MANY).map(|number| call_id(&format!("c-{number}"))).collect();
        let call = |id: &CallId| self.store.submit(new_call(id.as_str(), "add").timeout(seconds(30)).retain(seconds(600)));
        for submitted in join_all(ids.iter().map(call)).await {
            assert!(matches!(submitted.expect("the server is up"), Submitted::Accepted { .. }));
        }
        assert!(self.count("ZCARD", "index") < MANY / 2, "most of them are on a page");
        ids
    }

    fn count(&self, command: &str, room: &str) -> usize {
        let of_all = matches!(room, "calls" | "pages");
        let key = if of_all { format!("towpath:{room}") } else { format!("towpath:{room}:{{function:stream:__global__:add}}") };
        self.server.cli(&[command, &key]).trim().parse().expect("a number")
    }

    /// All calls, newest first, a few at a time.
    async fn listed(&self) -> Vec<(CallId, CallState)> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.calls(&CallFilter::default(), PageRequest { after, limit: 7 }).await.expect("the server is up");
            all.extend(page.items.into_iter().map(|view| (view.call.call_id, view.call.state)));
            match page.next {
                Some(next) => after = Some(next),
                None => return all,
            }
        }
    }

    async fn claim(&self) -> Vec<towpath_core::store::Delivery> {
        let functions = vec![ClaimFunction { function: function("add"), max: 100 }];
        let wait = Duration::ZERO;
        let want = ClaimCalls { worker: worker_id("w-1"), functions, max: 100, lease: seconds(10), wait, in_process: false };
        self.store.claim(want).await.expect("the server is up")
    }
}

#[tokio::test]
async fn every_call_of_a_page_is_listed_once_and_in_order() {
    let rig = Rig::start().await;
    let ids = rig.submit_many().await;
    let listed = rig.listed().await;
    let seen: HashSet<&CallId> = listed.iter().map(|(id, _)| id).collect();
    assert_eq!((listed.len(), seen.len()), (MANY, MANY));
    assert_eq!(seen, ids.iter().collect());
    let claimed: Vec<CallId> = rig.claim().await.into_iter().map(|delivery| delivery.id.call_id).collect();
    let newest_first: Vec<CallId> = listed.into_iter().map(|(id, _)| id).collect();
    assert_eq!(claimed.into_iter().rev().collect::<Vec<_>>(), newest_first, "the order of the list is the order of the queue");
}

#[tokio::test]
async fn calls_of_a_page_expire_at_their_deadline_and_are_forgotten_after_their_retention() {
    let rig = Rig::start().await;
    rig.submit_many().await;
    rig.clock.advance(seconds(29));
    assert_eq!(rig.store.fire_due(1_000).await.expect("the server is up").total(), 0);
    rig.clock.advance(seconds(1));
    assert_eq!(rig.store.fire_due(1_000).await.expect("the server is up").ended.len(), MANY);
    assert!(rig.listed().await.iter().all(|(_, state)| *state == CallState::Expired));
    rig.clock.advance(seconds(599));
    assert_eq!(rig.store.fire_due(1_000).await.expect("the server is up").total(), 0, "each outcome is kept as long as was asked for");
    rig.clock.advance(seconds(2));
    assert_eq!(rig.store.fire_due(1_000).await.expect("the server is up").forgotten, MANY as u64);
    for (command, room) in [("ZCARD", "index"), ("ZCARD", "due"), ("HLEN", "pages"), ("HLEN", "calls")] {
        assert_eq!(rig.count(command, room), 0, "{room}");
    }
}

#[tokio::test]
async fn what_is_due_is_done_a_few_at_a_time_if_that_is_the_limit() {
    let rig = Rig::start().await;
    rig.submit_many().await;
    rig.clock.advance(seconds(30));
    let mut ended = 0;
    for _ in 0..MANY.div_ceil(9) {
        let fired = rig.store.fire_due(9).await.expect("the server is up");
        assert!(fired.ended.len() <= 9);
        ended += fired.ended.len();
    }
    assert_eq!(ended, MANY);
}

#[tokio::test]
async fn leases_and_dead_letters_of_a_page_go_their_own_way() {
    let rig = Rig::start().await;
    rig.submit_many().await;
    let deliveries = rig.claim().await;
    assert_eq!(deliveries.len(), MANY);
    let dead = deliveries[3].id.clone();
    let failed = Answer::Failed { failure: towpath_conformance::words::failure("broken"), retry: towpath_core::call::Retry::ByPolicy };
    let mut held = dead.clone();
    // Until its attempts are used up.
    for _ in 0..3 {
        rig.store.complete(CompleteCalls::one(worker_id("w-1"), held.clone(), failed.clone())).await.expect("the server is up");
        rig.clock.advance(seconds(2));
        rig.store.fire_due(1_000).await.expect("the server is up");
        held = rig.claim().await.into_iter().find(|delivery| delivery.id.call_id == dead.call_id).map_or(held, |delivery| delivery.id);
    }
    assert_eq!(rig.store.call(&dead.call_id).await.expect("the server is up").unwrap().call.state, CallState::Dead);
    rig.clock.advance(seconds(10));
    let fired = rig.store.fire_due(1_000).await.expect("the server is up");
    assert_eq!(fired.reclaimed, MANY as u64 - 1, "the leases of all others are over");
    rig.clock.advance(seconds(2_000));
    rig.store.fire_due(1_000).await.expect("the server is up");
    rig.clock.advance(seconds(2_000));
    rig.store.fire_due(1_000).await.expect("the server is up");
    let left = rig.listed().await;
    assert_eq!(left, [(dead.call_id.clone(), CallState::Dead)], "a dead letter waits for somebody");
    assert_eq!(rig.store.replay_dead(&dead.call_id, call_id("again")).await.expect("the server is up"), Replayed::Submitted);
    rig.clock.advance(seconds(2_000));
    rig.store.fire_due(1_000).await.expect("the server is up");
    rig.clock.advance(seconds(2_000));
    rig.store.fire_due(1_000).await.expect("the server is up");
    assert_eq!(rig.listed().await, []);
}
