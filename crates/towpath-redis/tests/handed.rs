//! Calls that a submit hands to a claim that waits (decision 034): who gets them, and what happens if the message or the worker is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use towpath_conformance::words::{SubmitWords, call_id, definition, function, new_call, ok, seconds, worker_id};
use towpath_core::call::CallState;
use towpath_core::clock::VirtualClock;
use towpath_core::store::{
    CallStore, ClaimCalls, ClaimFunction, CompleteCalls, Completed, Delivery, InspectStore, RegistryStore, StoreError, Submitted,
};
use towpath_core::worker::{FunctionDefinition, Offer, RegisterWorker};
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::{RedisServer, until};

const TAG: &str = "{function:stream:__global__:add}";
const CLAIM: &str = "towpath:claim:w1";
const SOON: Duration = Duration::from_secs(30);

/// A server, a process that calls, and a process whose worker `w1` serves `add`.
struct Rig {
    server: RedisServer,
    caller: RedisStore,
    worker: RedisStore,
}

impl Rig {
    async fn start() -> Self {
        Self::start_with(definition("add")).await
    }

    async fn start_with(add: FunctionDefinition) -> Self {
        let (server, clock) = (RedisServer::start(), VirtualClock::new());
        let options = || RedisOptions::parse(&server.url()).expect("a URL of a Redis");
        let caller = RedisStore::open_by_clock(options(), Arc::new(clock.clone())).await.expect("the server is up");
        let worker = RedisStore::open_by_clock(options(), Arc::new(clock.clone())).await.expect("the server is up");
        let offers = vec![Offer { definition: add, concurrency: None }];
        worker.register(RegisterWorker { worker_id: worker_id("w1"), kind: "rust".to_owned(), offers }).await.expect("the server is up");
        Self { server, caller, worker }
    }

    /// `w1` serves these functions from now on.
    async fn serve(&self, names: &[&str]) {
        let offers = names.iter().map(|name| Offer { definition: definition(name), concurrency: None }).collect();
        let worker = RegisterWorker { worker_id: worker_id("w1"), kind: "rust".to_owned(), offers };
        self.worker.register(worker).await.expect("the server is up");
    }

    /// Begins to wait for calls of `add`, and returns when the claim is written down.
    fn wait_for_calls(&self, max: u32) -> JoinHandle<Vec<Delivery>> {
        self.wait_for_calls_of(&["add"], max)
    }

    fn wait_for_calls_of(&self, names: &[&str], max: u32) -> JoinHandle<Vec<Delivery>> {
        let waiting = self.claim_of(names, max);
        until("the claim is written down", SOON, || self.claim_text().starts_with(|first: char| first.is_ascii_digit()));
        waiting
    }

    fn claim_now(&self, max: u32) -> JoinHandle<Vec<Delivery>> {
        self.claim_of(&["add"], max)
    }

    fn claim_of(&self, names: &[&str], max: u32) -> JoinHandle<Vec<Delivery>> {
        let functions = names.iter().map(|name| ClaimFunction { function: function(name), max }).collect();
        let want = ClaimCalls { worker: worker_id("w1"), functions, max, lease: seconds(30), wait: seconds(600), takes_any: true };
        let store = self.worker.clone();
        tokio::spawn(async move { store.claim(want).await.expect("the server is up") })
    }

    fn claim_text(&self) -> String {
        self.server.cli(&["GET", CLAIM]).trim().to_owned()
    }

    /// Writes the claim down with another word at this place: ticket, process, lease, room.
    fn change_claim(&self, place: usize, word: &str) {
        let text = self.claim_text();
        let mut words: Vec<&str> = text.split('\t').collect();
        words[place] = word;
        self.server.cli(&["SET", CLAIM, &words.join("\t")]);
    }

    async fn submit(&self, id: &str) {
        self.submit_to(id, "add").await;
    }

    async fn submit_to(&self, id: &str, name: &str) {
        let submitted = self.caller.submit(new_call(id, name).timeout(seconds(60))).await;
        assert!(matches!(submitted, Ok(Submitted::Accepted { .. })), "{submitted:?}");
    }

    async fn state(&self, id: &str) -> CallState {
        self.caller.call(&call_id(id)).await.expect("the server is up").expect("it is kept").call.state
    }

    fn count(&self, words: &[&str]) -> u64 {
        self.server.cli(words).trim().parse().expect("a number")
    }

    /// Nothing runs, one call waits, and it was delivered before.
    fn worker_took_and_gave_back(&self) -> bool {
        let waits = self.count(&["ZCARD", &format!("towpath:queue:{TAG}")]) == 1;
        let delivery = self.server.cli(&["HGET", &format!("towpath:calls:{TAG}"), "c-1"]);
        waits && delivery.split('\t').nth(5) == Some("1")
    }

    /// How often a command was run since the counts began anew.
    fn runs(&self, command: &str) -> u64 {
        let stats = self.server.cli(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
    }
}

async fn soon(waiting: JoinHandle<Vec<Delivery>>) -> Vec<Delivery> {
    tokio::time::timeout(SOON, waiting).await.expect("the claim is served").expect("it does not panic")
}

fn ids(deliveries: &[Delivery]) -> Vec<(String, u64)> {
    deliveries.iter().map(|delivery| (delivery.id.call_id.to_string(), delivery.id.number)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_runs_when_it_is_taken_and_no_claim_is_asked() {
    let rig = Rig::start().await;
    let waiting = rig.wait_for_calls(5);
    rig.server.cli(&["CONFIG", "RESETSTAT"]);
    rig.submit("c-1").await;
    let held = soon(waiting).await;
    assert_eq!(ids(&held), [("c-1".to_owned(), 1)]);
    assert_eq!(rig.runs("zrem"), 0, "nothing was taken out of the queue");
    assert_eq!(rig.state("c-1").await, CallState::Running);
    assert_eq!(rig.count(&["ZCARD", &format!("towpath:running:{TAG}")]), 1);
    let recorded = rig.worker.complete(CompleteCalls::one(worker_id("w1"), held[0].id.clone(), ok("1"))).await;
    assert!(matches!(&recorded.expect("the server is up")[..], [Completed::Recorded { ended: Some(_) }]));
    assert_eq!(rig.state("c-1").await, CallState::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_claim_has_no_room_for_waits_in_the_queue() {
    let rig = Rig::start().await;
    let waiting = rig.wait_for_calls(5);
    rig.change_claim(3, "0");
    rig.server.cli(&["CONFIG", "RESETSTAT"]);
    rig.submit("c-1").await;
    assert_eq!(ids(&soon(waiting).await), [("c-1".to_owned(), 1)]);
    assert_eq!(rig.runs("zrem"), 1, "it was taken out of the queue by a claim");
}

/// Submits a call that is handed to a claim of this process, which hears nothing of it: as if its subscription were cut at that moment.
async fn hand_over_unheard(rig: &Rig, id: &str) {
    let process = rig.claim_text().split('\t').nth(1).expect("the claim names its process").to_owned();
    let client = redis::Client::open(rig.server.url()).expect("a URL of a Redis");
    let mut stranger = client.get_async_pubsub().await.expect("the server is up");
    stranger.subscribe("towpath:replies:stranger").await.expect("the server is up");
    rig.change_claim(1, "stranger");
    rig.submit(id).await;
    assert_eq!(rig.state(id).await, CallState::Running, "the stranger heard it, and the worker did not");
    let mut connection = client.get_connection().expect("the server is up");
    let handed: String = redis::cmd("GET").arg(CLAIM).query(&mut connection).expect("the server is up");
    let as_ours = handed.replacen("p8:stranger", &format!("p{}:{process}", process.len()), 1);
    assert_ne!(as_ours, handed);
    redis::cmd("SET").arg(CLAIM).arg(as_ours).query::<()>(&mut connection).expect("the server is up");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_whose_message_was_lost_are_found_with_the_next_subscription() {
    let rig = Rig::start().await;
    let waiting = rig.wait_for_calls(5);
    hand_over_unheard(&rig, "c-1").await;
    assert!(!waiting.is_finished());
    rig.server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(ids(&soon(waiting).await), [("c-1".to_owned(), 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_whose_message_was_lost_are_found_when_their_claim_was_served_otherwise() {
    let rig = Rig::start().await;
    let waiting = rig.wait_for_calls(5);
    hand_over_unheard(&rig, "c-1").await;
    rig.submit("c-2").await;
    assert_eq!(ids(&soon(waiting).await), [("c-2".to_owned(), 1)], "it was queued, and the worker was notified");
    let again = rig.claim_now(5);
    assert_eq!(ids(&soon(again).await), [("c-1".to_owned(), 2)], "it came back to the queue, without waiting for the end of its lease");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_handed_to_a_ticket_which_was_served_before_goes_back() {
    let rig = Rig::start().await;
    let waiting = rig.wait_for_calls(5);
    let written = rig.claim_text();
    rig.submit("c-1").await;
    let held = soon(waiting).await;
    assert_eq!(ids(&held), [("c-1".to_owned(), 1)]);
    // As if the claim were written down again, after a cut subscription, at the moment of the hand-over.
    until("the claim is withdrawn or used", SOON, || rig.claim_text() != written);
    rig.server.cli(&["SET", CLAIM, &written]);
    rig.submit("c-2").await;
    let again = rig.claim_now(5);
    assert_eq!(ids(&soon(again).await), [("c-2".to_owned(), 2)], "it came back to the queue, without waiting for the end of its lease");
    assert_eq!(rig.state("c-1").await, CallState::Running, "what the ticket was served with stays with its worker");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_claim_whose_reply_was_lost_go_back_before_their_leases_end() {
    let rig = Rig::start().await;
    let functions = [ClaimFunction { function: function("add"), max: 1 }].into();
    let want = ClaimCalls { worker: worker_id("w1"), functions, max: 1, lease: seconds(600), wait: Duration::ZERO, takes_any: false };
    // What has to be asked once is asked here.
    assert_eq!(rig.worker.claim(want.clone()).await.expect("the server is up"), []);
    rig.submit("c-1").await;
    rig.server.pause();
    let lost = rig.worker.claim(want).await;
    assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
    rig.server.resume();
    until("it goes back to the queue", SOON, || rig.worker_took_and_gave_back());
    let view = rig.caller.call(&call_id("c-1")).await.expect("the server is up").expect("it is kept");
    assert_eq!((view.call.delivery, view.call.crashes), (1, 0), "it was delivered, and no worker crashed");
}

/// A worker that is started again under its name, beside the process that had it.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_handed_to_another_process_is_not_accepted() {
    let rig = Rig::start().await;
    let waiting = rig.wait_for_calls(5);
    let ticket = rig.claim_text().split('\t').next().expect("a ticket").to_owned();
    let record = "3R\t2\t1\t9794786695153\t0\t1\t1\t30000\t2\t0\tw1\n1\t9\t000\t0\t0\t\t\t\n\n\n0\t1\n=";
    let handed = format!("dt{}:{ticket}p5:otherw2:w1f14:__global__\naddi3:c-0r{}:{record}", ticket.len(), record.len());
    rig.server.cli(&["SET", CLAIM, &handed]);
    rig.server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    until("the claim is written down again", SOON, || rig.claim_text().starts_with(&ticket));
    rig.submit("c-1").await;
    assert_eq!(ids(&soon(waiting).await), [("c-1".to_owned(), 1)], "c-0 is run by the other process");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_refused_is_not_handed_over_and_its_neighbours_are() {
    for key in ["calls", "deadlines"] {
        let rig = Rig::start().await;
        rig.serve(&["add", "sub"]).await;
        rig.server.cli(&["SET", &format!("towpath:{key}:{TAG}"), "of another program"]);
        let waiting = rig.wait_for_calls_of(&["add", "sub"], 5);
        let (refused, taken) = tokio::join!(
            rig.caller.submit(new_call("c-1", "add").timeout(seconds(60))),
            rig.caller.submit(new_call("s-1", "sub").timeout(seconds(60)))
        );
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{key}: {refused:?}");
        assert!(matches!(taken, Ok(Submitted::Accepted { .. })), "{key}: {taken:?}");
        assert_eq!(ids(&soon(waiting).await), [("s-1".to_owned(), 1)], "{key}: nothing runs that was refused");
    }
}

/// The worker was registered for one function more after its claim began to wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_function_that_the_claim_does_not_name_goes_back() {
    let rig = Rig::start().await;
    let waiting = rig.wait_for_calls(5);
    rig.serve(&["add", "sub"]).await;
    rig.submit_to("s-1", "sub").await;
    let queue = "towpath:queue:{function:stream:__global__:sub}";
    until("it is back in its queue", SOON, || rig.count(&["ZCARD", queue]) == 1);
    assert!(!waiting.is_finished());
    rig.submit("c-1").await;
    assert_eq!(ids(&soon(waiting).await), [("c-1".to_owned(), 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_handed_to_a_claim_that_waits_no_more_goes_back() {
    let rig = Rig::start().await;
    let waiting = rig.wait_for_calls(5);
    rig.change_claim(0, "999");
    rig.submit("c-1").await;
    assert_eq!(ids(&soon(waiting).await), [("c-1".to_owned(), 2)], "it came back to the queue, and the claim that waits took it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_gone_is_handed_nothing() {
    let rig = Rig::start().await;
    let waiting = rig.wait_for_calls(5);
    rig.change_claim(1, "gone");
    rig.submit("c-1").await;
    assert_eq!(ids(&soon(waiting).await), [("c-1".to_owned(), 1)], "it was queued, and the worker that is there was notified");
    until("the claim that was served otherwise is withdrawn", SOON, || rig.claim_text().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_a_wrong_type_or_text_keeps_no_call_from_its_worker() {
    let rig = Rig::start().await;
    for (id, write) in [("c-1", &["LPUSH", CLAIM, "x"][..]), ("c-2", &["SET", CLAIM, "1\tx"]), ("c-3", &["SET", CLAIM, "dt1:1"])] {
        let waiting = rig.wait_for_calls(5);
        rig.server.cli(&["DEL", CLAIM]);
        rig.server.cli(write);
        rig.submit(id).await;
        assert_eq!(ids(&soon(waiting).await), [(id.to_owned(), 1)]);
        rig.server.cli(&["DEL", CLAIM]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_dropped_is_handed_nothing() {
    let rig = Rig::start().await;
    let waiting = rig.wait_for_calls(5);
    waiting.abort();
    until("the claim is withdrawn", SOON, || rig.claim_text().is_empty());
    rig.submit("c-1").await;
    assert_eq!(rig.state("c-1").await, CallState::Queued);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_function_with_a_limit_or_of_other_workers_are_not_handed_over() {
    let mut one_at_a_time = definition("add");
    one_at_a_time.limits.max_concurrent = Some(1);
    let rig = Rig::start_with(one_at_a_time).await;
    rig.caller.define(definition("sub")).await.expect("the server is up");
    let waiting = rig.wait_for_calls(5);
    rig.submit_to("s-1", "sub").await;
    assert_eq!(rig.state("s-1").await, CallState::Queued, "its worker does not serve that function");
    rig.server.cli(&["CONFIG", "RESETSTAT"]);
    rig.submit("c-1").await;
    assert_eq!(ids(&soon(waiting).await), [("c-1".to_owned(), 1)]);
    assert_eq!(rig.runs("zrem"), 1, "it was taken out of the queue by a claim, which counts what runs");
}
