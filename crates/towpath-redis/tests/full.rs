//! A Redis whose memory is full takes nothing new, and whatever it has accepted is finished all the same.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use towpath::SystemClock;
use towpath_conformance::words::{
    MessageWords, SubmitWords, batch_id, batcher, call_id, claim_batch, definition, failed_not_before, function, given_up, json, message,
    new_call, ok, semaphore, unreadable, want, worker_id,
};
use towpath_core::batch::{ClaimReply, FinishBatch, Rules as BatchRules, Verb};
use towpath_core::call::{CallState, Outcome};
use towpath_core::inspect::LockQuery;
use towpath_core::limit::{Check, Rules};
use towpath_core::names::{CallId, LimitScope};
use towpath_core::store::{
    BatchStore, CallNews, CallStore, ClaimCalls, ClaimFunction, CompleteCalls, Completed, Delivery, Heartbeat, InspectStore, LimitStore,
    LockStore, RegistryStore, RenewCalls, Renewal, SetConfig, StoreError, StoreTrouble, SubmitCall, Submitted, TimerStore,
};
use towpath_core::worker::{Offer, RegisterWorker};
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::{RedisServer, until};

const SOON: Duration = Duration::from_secs(20);
const CALLS: usize = 40; // more than go with one script alone

async fn process(server: &RedisServer) -> RedisStore {
    let options = RedisOptions::parse(&server.url()).expect("a URL of a Redis");
    RedisStore::open(options, Arc::new(SystemClock::new())).await.expect("the server is up")
}

/// Leaves the server no room at all, or as much as it wants.
fn set_room(server: &RedisServer, maxmemory: &str) {
    assert_eq!(server.cli(&["config", "set", "maxmemory", maxmemory]).trim(), "OK");
}

async fn serve(store: &RedisStore, worker: &str) {
    let offers = vec![Offer { definition: definition("add"), concurrency: None }];
    let registered = store.register(RegisterWorker { worker_id: worker_id(worker), kind: "rust".to_owned(), offers }).await;
    registered.expect("a worker may come at any time");
}

async fn claim(store: &RedisStore, worker: &str, many: usize) -> Vec<Delivery> {
    let max = u32::try_from(many).expect("a few");
    let functions: Arc<[ClaimFunction]> = [ClaimFunction { function: function("add"), max }].into();
    let (worker, lease) = (worker_id(worker), Duration::from_secs(30));
    let mut held = Vec::new();
    while held.len() < many {
        let want = ClaimCalls { worker: worker.clone(), functions: functions.clone(), max, lease, wait: SOON, takes_any: false };
        held.extend(store.claim(want).await.expect("what waits is given to whoever asks"));
    }
    held
}

async fn submit_all(store: &RedisStore, ids: impl IntoIterator<Item = String>) {
    for submitted in join_all(ids.into_iter().map(|id| store.submit(new_call(&id, "add")))).await {
        assert!(matches!(submitted, Ok(Submitted::Accepted { .. })), "{submitted:?}");
    }
}

fn is_full<T: std::fmt::Debug>(reply: &Result<T, StoreError>) -> bool {
    matches!(reply, Err(StoreError::Unavailable(StoreTrouble::Full(_))))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_is_worked_off_and_nothing_new_is_taken() {
    let server = RedisServer::start();
    let (caller, worker) = (process(&server).await, process(&server).await);
    serve(&worker, "w-1").await;
    // The first of a worker are always written down, to learn of limits.
    submit_all(&caller, ["first".to_owned()]).await;
    let first = claim(&worker, "w-1", 1).await.pop().expect("it waits");
    worker.complete(CompleteCalls::one(worker_id("w-1"), first.id, ok("1"))).await.expect("there is room");
    let ids: Vec<_> = (0..CALLS).map(|number| format!("c-{number}")).collect();
    let mut listeners: Vec<_> = ids.iter().map(|id| caller.watch(&call_id(id))).collect();
    submit_all(&caller, ids.clone()).await;

    set_room(&server, "1");
    let refused = caller.submit(new_call("late", "add")).await;
    assert!(is_full(&refused), "{refused:?}");
    assert!(caller.call(&call_id("late")).await.expect("reading needs no room").is_none(), "nothing is left of it");

    let held = claim(&worker, "w-1", CALLS).await;
    let answers = held.into_iter().map(|delivery| (delivery.id, ok("2"))).collect();
    let replies = worker.complete(CompleteCalls { worker: worker_id("w-1"), answers }).await.expect("an answer makes room");
    assert!(replies.iter().all(|reply| matches!(reply, Completed::Recorded { ended: Some(_) })), "{replies:?}");
    for (id, listener) in ids.iter().zip(&mut listeners) {
        let heard = tokio::time::timeout(SOON, listener.next()).await.unwrap_or_else(|_| panic!("{id} hears nothing"));
        assert!(matches!(&heard, CallNews::Ended(outcome) if matches!(**outcome, Outcome::Ok(_))), "{id} hears {heard:?}");
    }

    set_room(&server, "0");
    submit_all(&caller, ["late".to_owned()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_come_stay_hand_back_and_try_again() {
    let server = RedisServer::start();
    let store = process(&server).await;
    serve(&store, "w-1").await;
    submit_all(&store, (0..4).map(|number| format!("c-{number}"))).await;
    let held = claim(&store, "w-1", 2).await;

    set_room(&server, "1");
    assert_eq!(store.heartbeat(&worker_id("w-1")).await, Ok(Heartbeat::Known));
    let leases = RenewCalls { worker: worker_id("w-1"), deliveries: vec![held[0].id.clone()], lease: Duration::from_secs(30) };
    let renewed = store.renew(leases).await.expect("a lease needs no room");
    assert!(matches!(renewed[..], [Renewal::Held { .. }]), "{renewed:?}");
    let later = CompleteCalls::one(worker_id("w-1"), held[0].id.clone(), failed_not_before("busy", Duration::from_millis(10)));
    store.complete(later).await.expect("a failure is an answer");
    let it_waits_again = async || {
        store.fire_due(100).await.expect("time goes on");
        store.call(&held[0].id.call_id).await.expect("reading needs no room").expect("it is kept").call.state == CallState::Queued
    };
    until("it is tried again", SOON, || tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(it_waits_again())));

    // Its worker leaves, another comes for the first time, and does all that is left.
    store.unregister(&worker_id("w-1")).await.expect("whoever goes gives back");
    serve(&store, "w-2").await;
    for delivery in claim(&store, "w-2", 4).await {
        let reply = store.complete(CompleteCalls::one(worker_id("w-2"), delivery.id, ok("3"))).await.expect("an answer makes room");
        assert!(matches!(reply[..], [Completed::Recorded { ended: Some(_) }]), "{reply:?}");
    }
    let refused = store.submit(new_call("late", "add")).await;
    assert!(is_full(&refused), "it was full all the time: {refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlines_and_retentions_make_room_and_a_server_may_begin_there() {
    let server = RedisServer::start();
    let store = process(&server).await;
    serve(&store, "w-1").await;
    let ids: Vec<String> = (0..4).map(|number| format!("c-{number}")).collect();
    let short = Duration::from_millis(200);
    for submitted in join_all(ids.iter().map(|id| store.submit(new_call(id, "add").timeout(short).retain(short)))).await {
        assert!(matches!(submitted, Ok(Submitted::Accepted { .. })), "{submitted:?}");
    }
    drop(store);

    set_room(&server, "1");
    let next = process(&server).await;
    next.probe().await.expect("it can work off what is there");
    let all_are_forgotten = async || {
        next.fire_due(100).await.expect("time goes on");
        let kept = join_all(ids.iter().map(|id| async { next.call(&call_id(id)).await.expect("reading needs no room") })).await;
        kept.iter().all(Option::is_none)
    };
    until("they have ended and are forgotten", SOON, || {
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(all_are_forgotten()))
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_any_data_may_begin_there() {
    let server = RedisServer::build().line("maxmemory 1").start();
    let store = process(&server).await;
    serve(&store, "w-1").await;
    assert!(is_full(&store.submit(new_call("c-1", "add")).await));
}

/// What a Redis without any room says to each move: either the move needs none, or the refusal says that there is no room.
#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_of_a_full_server_says_that_it_is_full() {
    let server = RedisServer::start();
    let store = process(&server).await;
    serve(&store, "w-1").await;
    let of = batcher("orders");
    store.put_batcher(&of.name, json("{}")).await.expect("there is room");
    for key in ["claimed", "dead"] {
        store.batch_ingest(&of, &BatchRules::default(), vec![message(key, "1").immediate()]).await.expect("there is room");
    }
    let ClaimReply::Claimed(batch) =
        store.batch_claim(claim_batch(&of, "dead", "b-1", &BatchRules::default())).await.expect("there is room")
    else {
        panic!("it is open")
    };
    let letter = given_up(&of, &batch, "rejected_404", store.clock().now());
    let settle = FinishBatch { batcher: of.clone(), batch_id: batch.batch_id, key: None, token: batch.token, verb: Verb::Dead(letter) };
    store.batch_finish(settle).await.expect("there is room");
    submit_all(&store, ["c-1".to_owned(), "c-2".to_owned()]).await;
    let held = claim(&store, "w-1", 1).await.remove(0).id;

    set_room(&server, "1");
    let check = |rule: &str| {
        let rules = Rules::new(vec![rule.parse().expect("a rule")]).expect("rules");
        Check::take(LimitScope::new("mail").expect("a scope"), rules, 1, Duration::ZERO).expect("a check")
    };
    let keyed = new_call("c-4", "add").key("k");
    // An id that Towpath makes needs no reservation: the script of submits itself is refused.
    let fresh = |id: &str| SubmitCall { call_id: CallId::for_function(&call_id(id), &function("add")), fresh: true, ..new_call(id, "add") };
    let mut said = vec![
        ("submit", store.submit(new_call("c-3", "add")).await.map(drop)),
        ("submit with an id of ours", store.submit(fresh("c-5")).await.map(drop)),
        (
            "submit of many",
            join_all((0..200).map(|number| store.submit(fresh(&format!("m-{number}")))))
                .await
                .into_iter()
                .find(Result::is_err)
                .unwrap_or(Ok(Submitted::NoWorkers))
                .map(drop),
        ),
        ("submit with a key", store.submit(keyed).await.map(drop)),
        ("define", store.define(definition("other")).await),
        ("progress", store.report_progress(&worker_id("w-1"), &held, json("1")).await.map(drop)),
        ("park", store.park(&worker_id("w-1"), &held, true).await.map(drop)),
        ("cancel", store.cancel(&call_id("c-2")).await.map(drop)),
        ("config", store.set_config(SetConfig { value: json("{\"a\":1}"), if_version: None }).await.map(drop)),
        ("lock", store.lock_acquire(want("s", "a")).await.map(drop)),
        ("semaphore", store.permit_acquire(semaphore("s", "a", 1)).await.map(drop)),
        ("put batcher", store.put_batcher(&batcher("other").name, json("{}")).await.map(drop)),
        ("ingest", store.batch_ingest(&of, &BatchRules::default(), vec![message("k", "1").debounce(SOON)]).await.map(drop)),
        ("claim a batch", store.batch_claim(claim_batch(&of, "claimed", "b-2", &BatchRules::default())).await.map(drop)),
        ("replay a dead letter", store.dead_letter_replay(&of, vec![batch_id("b-1")]).await.map(drop)),
        ("add a dead letter", store.dead_letter_add(&of, unreadable(&of, "{", None, store.clock().now()), None).await.map(drop)),
        ("sweep", store.batch_sweep(&of, Some(SOON)).await.map(drop)),
        ("release", store.release(&worker_id("w-1"), vec![held]).await.map(drop)),
        ("unregister", store.unregister(&worker_id("w-1")).await.map(drop)),
        ("probe", store.probe().await.map(drop)),
        ("functions", store.functions().await.map(drop)),
        ("locks", store.locks(&LockQuery { prefix: String::new(), after: None, limit: 10, also: Vec::new(), scan: false }).await.map(drop)),
    ];
    for rule in ["a=gcra:1/1s", "b=fixed_window:1/1s", "c=sliding_counter:1/1s", "d=sliding_log:1/1s"] {
        said.push((rule, store.take(&check(rule)).await.map(drop)));
    }
    let wrong: Vec<_> = said.iter().filter(|(_, said)| said.is_err() && !is_full(said)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(said.iter().filter(|(_, said)| is_full(said)).count() > 5, "it is full: {said:?}");
}
