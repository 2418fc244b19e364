//! Batchers with a rate: batches wait for their turn in the queue, whole, without a lease, and none goes twice.

use std::sync::Arc;

use serde_json::json;
use towpath::batches::{Batch, BatchError, BatchFailure, Batcher, BatcherBuilder, Settle, Settled, Target};
use towpath::limits::{LimitScope, Rule, RuleName, Rules};
use towpath::testing::TestTowpath;
use towpath::{CallContext, FunctionOptions, HandlerError, Store, Towpath, VirtualClock};
use towpath_conformance::model::ModelStore;
use towpath_core::names::BatcherName;
use towpath_core::payload::Payload;

use super::Inbox;
use crate::support::faulty::{FaultyStore, When, Which};
use crate::support::{Count, millis, seconds, start};

crate::on_every_store! {
    batches_of_a_batcher_with_a_rate_go_out_as_its_policy_says
    a_batch_waits_for_its_turn_in_the_queue_without_a_lease_and_uses_no_attempt_up
    another_attempt_takes_another_turn
    batchers_and_functions_that_name_one_scope_share_its_limit
    a_batcher_whose_policy_is_missing_waits_for_it
    a_rate_that_is_put_or_given_up_counts_for_what_already_waits
    dispatchers_of_several_processes_share_a_rate_and_send_each_batch_once
    a_turn_that_nothing_went_out_under_is_given_back
    consumers_fetch_no_more_than_the_policy_lets_through
    a_long_poll_ends_when_it_is_the_batchs_turn
    a_dispatcher_that_stops_takes_no_turn_with_it
    settings_of_another_version_are_read_as_far_as_they_are_known
}

async fn put_policy(test: &Towpath, scope: Option<&str>, rule: &str) {
    let scope = scope.map(|scope| LimitScope::new(scope).unwrap());
    let rules = Rules::one(rule.parse::<Rule>().unwrap());
    test.limit_policies().put(scope.as_ref(), &RuleName::new("calm").unwrap(), &rules).await.unwrap();
}

fn orders() -> BatcherBuilder {
    Batcher::builder("orders").key(["customer"]).debounce(seconds(0))
}

async fn keep(test: &Towpath, batcher: BatcherBuilder) {
    test.batchers().put(&batcher.build().unwrap()).await.unwrap();
}

/// As many batches as customers.
async fn push(test: &Towpath, customers: std::ops::Range<usize>) {
    for customer in customers {
        test.batch("orders").push(&json!({ "customer": customer })).send().await.unwrap();
    }
}

/// When each batch came, counted from the test's beginning.
fn times(inbox: &Inbox, began: towpath::Timestamp) -> Vec<u128> {
    inbox.got().iter().map(|got| got.at.since(began).as_millis()).collect()
}

/// Every batch came once, at its first attempt.
fn check_once(inbox: &Inbox, count: usize) {
    let got = inbox.got();
    let mut keys: Vec<&str> = got.iter().map(|got| got.key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((got.len(), keys.len()), (count, count));
    assert!(got.iter().all(|got| got.attempt == 1), "{got:?}");
}

async fn batches_of_a_batcher_with_a_rate_go_out_as_its_policy_says(test: TestTowpath) {
    for (rule, expected) in [
        ("r=gcra:10/1s", vec![0, 100, 200, 300, 400, 500, 600, 700]),
        ("r=gcra:1/1s,burst=3", vec![0, 0, 0, 1_000, 2_000, 3_000, 4_000, 5_000]),
        ("r=sliding_log:3/1s", vec![0, 0, 0, 1_000, 1_000, 1_000, 2_000, 2_000]),
    ] {
        put_policy(&test, Some(rule), rule).await;
        keep(&test, orders().rate("calm").rate_scope(rule)).await;
        let (inbox, began) = (Inbox::default(), test.now());
        push(&test, 0..expected.len()).await;
        let worker = inbox.receive(&test, "orders", |_, _| Ok(())).await;
        test.advance(seconds(6)).await;
        assert_eq!(times(&inbox, began), expected, "{rule}");
        check_once(&inbox, expected.len());
        test.finish(worker.drain()).await;
    }
}

async fn a_batch_waits_for_its_turn_in_the_queue_without_a_lease_and_uses_no_attempt_up(test: TestTowpath) {
    put_policy(&test, None, "r=sliding_log:1/600s").await;
    keep(&test, orders().rate("calm")).await;
    let (inbox, began) = (Inbox::default(), test.now());
    let worker = inbox.receive(&test, "orders", |_, _| Ok(())).await;
    push(&test, 0..3).await;
    test.advance(seconds(599)).await;
    let counts = test.batch("orders").counts().await.unwrap();
    assert_eq!((inbox.got().len(), counts.open_keys, counts.in_flight), (1, 2, 0), "ten leases would have run out by now");
    push(&test, 2..3).await;
    test.advance(seconds(601)).await;
    assert_eq!(times(&inbox, began), [0, 600_000, 1_200_000]);
    check_once(&inbox, 3);
    let sizes: Vec<_> = inbox.got().iter().map(|got| got.payload["meta"]["batch_size"].clone()).collect();
    assert_eq!(sizes, [1, 1, 2], "what comes before it is fetched still joins it");
    drop(worker);
}

async fn another_attempt_takes_another_turn(test: TestTowpath) {
    put_policy(&test, None, "r=sliding_log:1/60s").await;
    keep(&test, orders().rate("calm")).await;
    let (inbox, began) = (Inbox::default(), test.now());
    let fails_once = |count: usize, _: &Batch| if count == 1 { Err(BatchFailure::from("busy")) } else { Ok(()) };
    let worker = inbox.receive(&test, "orders", fails_once).await;
    push(&test, 0..1).await;
    test.advance(seconds(100)).await;
    assert_eq!(times(&inbox, began), [0, 60_000], "the back-off is a second at most");
    assert_eq!(inbox.got()[1].attempt, 2);
    drop(worker);
}

async fn batchers_and_functions_that_name_one_scope_share_its_limit(test: TestTowpath) {
    put_policy(&test, None, "r=sliding_log:2/60s").await;
    keep(&test, orders().rate("calm").rate_scope("smtp")).await;
    let (inbox, calls) = (Inbox::default(), Count::default());
    let counted = calls.clone();
    let send = move |(): (), _: CallContext| {
        counted.add();
        async { Ok::<_, HandlerError>(()) }
    };
    let _function = test.worker().function_with(FunctionOptions::new("send").rate("calm").rate_scope("smtp"), send).start().await.unwrap();
    let _worker = inbox.receive(&test, "orders", |_, _| Ok(())).await;
    push(&test, 0..2).await;
    for _ in 0..2 {
        test.call::<(), _>("send", &()).timeout(seconds(600)).detach().await.unwrap();
    }
    test.advance(seconds(59)).await;
    assert_eq!(inbox.got().len() + calls.get(), 2, "two in a minute, whoever is first");
    test.advance(seconds(2)).await;
    assert_eq!((inbox.got().len(), calls.get()), (2, 2));
}

async fn a_batcher_whose_policy_is_missing_waits_for_it(test: TestTowpath) {
    let refused = test.batchers().put(&orders().rate("calm").build().unwrap()).await;
    assert!(
        matches!(&refused, Err(BatchError::Rate { batcher, error }) if batcher.as_str() == "orders" && error.code() == "policy_not_found"),
        "{refused:?}"
    );
    put_policy(&test, Some("orders"), "r=gcra:10/1s").await;
    keep(&test, orders().rate("calm")).await;
    test.limit_policies().remove(Some(&LimitScope::new("orders").unwrap()), &RuleName::new("calm").unwrap()).await.unwrap();
    test.advance(seconds(2)).await; // a process sees it within a second
    let inbox = Inbox::default();
    let worker = inbox.receive(&test, "orders", |_, _| Ok(())).await;
    push(&test, 0..2).await;
    test.advance(seconds(5)).await;
    assert_eq!((inbox.got().len(), test.batch("orders").counts().await.unwrap().open_keys), (0, 2));
    put_policy(&test, Some("orders"), "r=gcra:10/1s").await;
    test.advance(seconds(2)).await;
    check_once(&inbox, 2);
    drop(worker);
}

async fn a_rate_that_is_put_or_given_up_counts_for_what_already_waits(test: TestTowpath) {
    put_policy(&test, None, "r=sliding_log:1/600s").await;
    keep(&test, orders().rate("calm")).await;
    let inbox = Inbox::default();
    let worker = inbox.receive(&test, "orders", |_, _| Ok(())).await;
    push(&test, 0..5).await;
    test.advance(seconds(1)).await;
    assert_eq!(inbox.got().len(), 1);
    keep(&test, orders()).await;
    test.advance(seconds(1)).await;
    check_once(&inbox, 5);
    drop(worker);
}

async fn dispatchers_of_several_processes_share_a_rate_and_send_each_batch_once(test: TestTowpath) {
    put_policy(&test, None, "r=gcra:10/1s").await;
    keep(&test, orders().rate("calm")).await;
    let (inbox, began) = (Inbox::default(), test.now());
    let here = inbox.receive(&test, "orders", |_, _| Ok(())).await;
    let other = Towpath::builder().clock(Arc::clone(test.clock())).batch_store(Arc::clone(test.batch_store().unwrap()));
    let other = other.with_store(Arc::clone(test.store()));
    let there = receive_from(&other, &inbox).await;
    push(&test, 0..40).await;
    test.advance(seconds(5)).await;
    check_once(&inbox, 40);
    let times = times(&inbox, began);
    let too_close: Vec<_> = times.windows(2).filter(|pair| pair[1] - pair[0] < 100).collect();
    assert!(too_close.is_empty(), "{times:?}");
    assert!(times[39] <= 4_100, "and nobody waits for a turn that another has given back: {times:?}");
    drop((here, there));
}

async fn a_turn_that_nothing_went_out_under_is_given_back(test: TestTowpath) {
    put_policy(&test, None, "r=sliding_log:2/600s").await;
    // Others die of it: the second claim finds that it must not be sent again.
    keep(&test, orders().rate("calm").max_attempts(1).patch(|patch| patch.lease_seconds = Some(1.0)).target(Target::Pull)).await;
    push(&test, 0..1).await;
    let fetched = test.batch("orders").claim(1, millis(0)).await.unwrap();
    assert_eq!(fetched.len(), 1);
    test.advance(seconds(2)).await;
    assert!(test.batch("orders").claim(1, millis(0)).await.unwrap().is_empty(), "nobody settled it, and it had one attempt");
    assert_eq!(test.batch("orders").counts().await.unwrap().dead_letters, 1);
    let left = test.limit("orders").policy("calm").cost(0).peek().await.unwrap();
    assert_eq!((left.count, left.remaining), (1, 1), "one batch was given out");
}

async fn consumers_fetch_no_more_than_the_policy_lets_through(test: TestTowpath) {
    put_policy(&test, None, "r=sliding_log:3/60s").await;
    keep(&test, orders().rate("calm").target(Target::Pull)).await;
    push(&test, 0..10).await;
    let orders = test.batch("orders");
    let fetched = orders.claim(10, millis(0)).await.unwrap();
    assert_eq!((fetched.len(), orders.claim(10, millis(0)).await.unwrap().len()), (3, 0));
    for one in &fetched {
        assert_eq!(orders.settle(&one.batch.batch_id, &one.token, Settle::Ack).await.unwrap(), Settled::Done);
    }
    let counts = orders.counts().await.unwrap();
    assert_eq!((counts.open_keys, counts.in_flight), (7, 0), "the others wait in the queue");
    test.advance(seconds(60)).await;
    let next = orders.claim(10, millis(0)).await.unwrap();
    assert_eq!((next.len(), next[0].batch.attempt), (3, 1));
}

async fn a_long_poll_ends_when_it_is_the_batchs_turn(test: TestTowpath) {
    for (rule, turn) in [("r=sliding_log:1/20s", 20_000), ("r=gcra:1/20s", 20_000), ("r=gcra:5/1s", 200)] {
        put_policy(&test, Some(rule), rule).await;
        keep(&test, orders().rate("calm").rate_scope(rule).target(Target::Pull)).await;
        push(&test, 0..2).await;
        let (orders, began) = (test.batch("orders"), test.now());
        let first = orders.claim(2, millis(0)).await.unwrap();
        assert_eq!(first.len(), 1, "{rule}");
        let poll = start(async move { orders.claim(2, seconds(100)).await });
        test.advance(millis(turn - 1)).await;
        push(&test, 2..3).await;
        test.settle().await;
        assert!(!poll.is_finished(), "{rule}: what is due later is no reason to come earlier");
        test.advance(millis(1)).await;
        assert!(poll.is_finished(), "{rule}: {:?}", test.now().since(began));
        let second = poll.await.unwrap().unwrap();
        let orders = test.batch("orders");
        for one in first.iter().chain(&second) {
            assert_eq!(orders.settle(&one.batch.batch_id, &one.token, Settle::Ack).await.unwrap(), Settled::Done, "{rule}");
        }
        test.advance(seconds(20)).await;
        let last = orders.claim(2, millis(0)).await.unwrap().remove(0);
        assert_eq!(orders.settle(&last.batch.batch_id, &last.token, Settle::Ack).await.unwrap(), Settled::Done, "{rule}");
    }
}

async fn a_dispatcher_that_stops_takes_no_turn_with_it(test: TestTowpath) {
    put_policy(&test, None, "r=gcra:1/10s").await;
    keep(&test, orders().rate("calm")).await;
    let (inbox, began) = (Inbox::default(), test.now());
    let first = inbox.receive(&test, "orders", |_, _| Ok(())).await;
    push(&test, 0..3).await;
    test.advance(seconds(1)).await;
    test.finish(first.drain()).await;
    let second = inbox.receive(&test, "orders", |_, _| Ok(())).await;
    test.advance(seconds(30)).await;
    assert_eq!(times(&inbox, began), [0, 10_000, 20_000]);
    check_once(&inbox, 3);
    drop(second);
}

async fn settings_of_another_version_are_read_as_far_as_they_are_known(test: TestTowpath) {
    let kept = Payload::from_json(r#"{"key": ["customer"], "debounce_seconds": 7, "colour": "red", "target": {"pull": true}}"#);
    test.batch_store().unwrap().put_batcher(&BatcherName::new("orders").unwrap(), kept).await.unwrap();
    let settings = test.batch("orders").settings().await.unwrap();
    assert_eq!((settings.debounce, &settings.target, &settings.rate), (seconds(7), &Some(Target::Pull), &None));
}

/// Limits that can be brought into trouble, batches that cannot, and whoever moves the clock of both.
fn faulty() -> (Arc<FaultyStore>, TestTowpath, Towpath) {
    let clock = VirtualClock::new();
    let model = Arc::new(ModelStore::new(Arc::new(clock.clone())));
    let store = FaultyStore::new(Arc::clone(&model) as Arc<dyn Store>, Which::None, When::Before);
    let towpath = Towpath::builder().clock(Arc::new(clock.clone())).batch_store(model).with_store(Arc::clone(&store) as Arc<dyn Store>);
    (Arc::clone(&store), TestTowpath::with_store(store, clock), towpath)
}

async fn receive_from(towpath: &Towpath, inbox: &Inbox) -> towpath::RunningWorker {
    let (got, clock) = (inbox.clone(), Arc::clone(towpath.clock()));
    let receiver = towpath.worker().batches("orders", move |batch: Batch| {
        super::note(&got.0, clock.now(), &batch);
        async { Ok(()) }
    });
    receiver.start().await.unwrap()
}

#[tokio::test]
async fn while_limits_are_out_of_reach_each_policy_says_what_happens_to_batches() {
    for (rule, sent) in [("r=gcra:1/1s", 0), ("r=gcra:1/1s,on_error=open", 3), ("r=sliding_log:2/60s,on_error=local", 2)] {
        let (store, test, towpath) = faulty();
        put_policy(&towpath, None, rule).await;
        keep(&towpath, orders().rate("calm")).await;
        store.set_trouble_of(Some("take"));
        let inbox = Inbox::default();
        let _worker = receive_from(&towpath, &inbox).await;
        push(&towpath, 0..3).await;
        test.advance(seconds(5)).await;
        assert_eq!(inbox.got().len(), sent, "{rule}");
        assert_eq!(towpath.batch("orders").counts().await.unwrap().in_flight, 0, "{rule}: what waits is in the queue");
        store.set_trouble_of(None);
        test.advance(seconds(60)).await;
        check_once(&inbox, 3);
    }
}

#[tokio::test]
async fn nobody_asks_again_before_a_batchs_turn_can_come() {
    let (store, test, towpath) = faulty();
    put_policy(&towpath, None, "r=sliding_log:1/60s").await;
    keep(&towpath, orders().rate("calm")).await;
    let inbox = Inbox::default();
    let _worker = receive_from(&towpath, &inbox).await;
    push(&towpath, 0..20).await;
    test.advance(seconds(1)).await;
    let takes = store.count("take");
    assert!(takes <= 4, "{takes}");
    test.advance(seconds(58)).await;
    assert!(store.count("take") - takes <= 6, "a look every ten seconds");
    test.advance(seconds(1)).await;
    assert_eq!(inbox.got().len(), 2);
}
