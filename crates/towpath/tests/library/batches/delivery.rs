//! Deliveries: order, retries, dead letters, replays, hanging receivers, functions.

use std::sync::Arc;

use serde_json::{Value, json};
use towpath::batches::{
    Admission, Batch, BatchFailure, Batcher, DeadLetterQuery, Delivered, Delivery, FunctionReceiver, Parcel, Receiver, Select, Settings,
    Target,
};
use towpath::testing::TestTowpath;
use towpath::{CallContext, HandlerError};

use super::{Inbox, message, push};
use crate::support::{Count, millis, seconds};

crate::on_every_store! {
    what_comes_during_a_delivery_goes_with_the_next_and_waits_for_its_end
    a_failure_goes_again_under_the_same_id_until_its_attempts_are_used_up
    a_dead_letter_goes_again_under_its_own_id
    a_receiver_that_hangs_holds_back_its_own_key_only
    a_batch_whose_receivers_die_of_it_is_not_sent_for_ever
    a_batch_that_is_handed_over_three_times_is_one_call
    the_next_batch_waits_for_the_outcome_of_the_call_where_that_is_asked_for
    a_receiver_that_panics_is_asked_again
    a_batch_whose_function_is_not_known_waits_for_it_and_uses_no_attempt_up
    a_claimed_batch_whose_function_is_gone_goes_to_the_next_target
}

async fn a_batch_whose_function_is_not_known_waits_for_it_and_uses_no_attempt_up(test: TestTowpath) {
    let target = Target::Function { name: "ship".parse().unwrap(), wait: false };
    let orders = Batcher::builder("orders").key(["customer"]).debounce(seconds(0)).target(target).build().unwrap();
    test.batchers().put(&orders).await.unwrap();
    let _serving = test.serve_batches(Arc::new(FunctionReceiver::new((*test).clone())), seconds(1));
    for customer in 0..3 {
        test.batch("orders").push(&json!({ "customer": customer })).send().await.unwrap();
    }
    test.advance(seconds(24 * 3_600)).await;
    let counts = test.batch("orders").counts().await.unwrap();
    assert_eq!((counts.open_keys, counts.in_flight, counts.dead_letters), (3, 0, 0), "they wait without a lease");
    let attempts = Arc::new(std::sync::Mutex::new(Vec::new()));
    let got = Arc::clone(&attempts);
    let ship = move |batch: Value, _: CallContext| {
        got.lock().unwrap().push(batch["meta"]["attempt"].as_u64().unwrap());
        async { Ok::<_, HandlerError>(()) }
    };
    let _worker = test.worker().function("ship", ship).start().await.unwrap();
    test.advance(seconds(2)).await;
    assert_eq!(*attempts.lock().unwrap(), [1, 1, 1]);
    let counts = test.batch("orders").counts().await.unwrap();
    assert_eq!((counts.open_keys, counts.in_flight, counts.dead_letters), (0, 0, 0));
}

/// Forgets the function "ship" when a batch for it has been claimed.
struct Forgetting {
    towpath: towpath::Towpath,
    calls: FunctionReceiver,
}

#[async_trait::async_trait]
impl Receiver for Forgetting {
    fn takes(&self, settings: &Settings) -> bool {
        self.calls.takes(settings)
    }

    fn try_admit(&self, settings: &Settings) -> Option<Admission> {
        self.calls.try_admit(settings)
    }

    async fn admit(&self, settings: &Settings) -> Admission {
        self.calls.admit(settings).await
    }

    async fn deliver(&self, parcel: &Parcel) -> Delivery {
        let ship = towpath::FunctionKey::global("ship".parse().unwrap());
        self.towpath.store().forget(&ship).await.unwrap();
        self.calls.deliver(parcel).await
    }
}

async fn a_claimed_batch_whose_function_is_gone_goes_to_the_next_target(test: TestTowpath) {
    let to = |name: &str| {
        let target = Target::Function { name: name.parse().unwrap(), wait: false };
        Batcher::builder("orders").key(["customer"]).debounce(seconds(0)).max_attempts(1).target(target).build().unwrap()
    };
    let attempts: Arc<std::sync::Mutex<Vec<u64>>> = Arc::default();
    let got = Arc::clone(&attempts);
    let handle = move |batch: Value, _: CallContext| {
        got.lock().unwrap().push(batch["meta"]["attempt"].as_u64().unwrap());
        async { Ok::<_, HandlerError>(()) }
    };
    // It is known, and has no worker any more.
    test.worker().function("ship", handle.clone()).start().await.unwrap().drain().await;
    test.batchers().put(&to("ship")).await.unwrap();
    let towpath = (*test).clone();
    let receiver = Forgetting { calls: FunctionReceiver::new(towpath.clone()), towpath };
    let _serving = test.serve_batches(Arc::new(receiver), seconds(1));
    test.batch("orders").push(&json!({ "customer": 1 })).send().await.unwrap();
    test.advance(seconds(3_600)).await;
    let counts = test.batch("orders").counts().await.unwrap();
    assert_eq!((counts.open_keys, counts.in_flight, counts.dead_letters), (0, 1, 0), "it was claimed");
    let _worker = test.worker().function("send", handle).start().await.unwrap();
    test.batchers().put(&to("send")).await.unwrap();
    test.advance(seconds(40)).await;
    assert_eq!(*attempts.lock().unwrap(), [1]);
    let counts = test.batch("orders").counts().await.unwrap();
    assert_eq!((counts.open_keys, counts.in_flight, counts.dead_letters), (0, 0, 0));
}

async fn what_comes_during_a_delivery_goes_with_the_next_and_waits_for_its_end(test: TestTowpath) {
    let inbox = Inbox::default();
    let (got, clock) = (inbox.0.clone(), test.virtual_clock().clone());
    let worker = test
        .worker()
        .batches("input_contour", move |batch: Batch| {
            super::note(&got, towpath::Clock::now(&clock), &batch);
            let until = towpath::Clock::now(&clock) + seconds(100);
            let slow = towpath::Clock::sleep_until(&clock, until);
            async move {
                slow.await;
                Ok(())
            }
        })
        .start()
        .await
        .unwrap();
    let start = test.now();
    push(&test, &message("1", "one")).await;
    test.advance(seconds(20)).await;
    push(&test, &message("1", "two")).await;
    test.advance(seconds(89)).await;
    assert_eq!(inbox.got().len(), 1, "the first is still under way, although its lease was 60 s");
    test.advance(seconds(2)).await;
    let got = inbox.got();
    assert_eq!(got.len(), 2);
    assert_eq!((got[1].at, &got[1].payload["text"]), (start + seconds(110), &json!("two")));
    assert_eq!(got[0].attempt, 1, "a lease that is kept alive is not taken over");
    drop(worker);
}

async fn a_failure_goes_again_under_the_same_id_until_its_attempts_are_used_up(test: TestTowpath) {
    let inbox = Inbox::default();
    let worker = inbox.receive(&test, "input_contour", |_, _| Err("not today".into())).await;
    push(&test, &message("1", "hi")).await;
    test.advance(seconds(300)).await;
    let got = inbox.got();
    assert_eq!(got.iter().map(|one| one.attempt).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert!(got.iter().all(|one| one.id == got[0].id), "one batch, one id");
    let letters = test.dead_letters().list(&DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() }).await.unwrap();
    let (batcher, letter) = &letters.items[0];
    assert_eq!(
        (batcher.as_str(), letter.id.as_str(), letter.reason.as_deref()),
        ("input_contour", got[0].id.as_str(), Some("max_retries_exceeded"))
    );
    let entry: Value = serde_json::from_slice(letter.entry.as_bytes()).unwrap();
    assert_eq!((&entry["error"], &entry["attempts"], &entry["payload"]["text"]), (&json!("not today"), &json!(5), &json!("hi")));
    drop(worker);
}

async fn a_dead_letter_goes_again_under_its_own_id(test: TestTowpath) {
    let inbox = Inbox::default();
    let worker = inbox.receive(&test, "input_contour", |count, _| if count == 1 { Err(BatchFailure::fatal("bad")) } else { Ok(()) }).await;
    push(&test, &message("1", "hi")).await;
    test.advance(seconds(11)).await;
    let letters = test.dead_letters().batcher("input_contour");
    let page = letters.list(&DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() }).await.unwrap();
    let id = page.items[0].1.id.clone();
    let replays = letters.replay(&Select::Ids(vec![id.clone()]), None).await.unwrap();
    assert_eq!(replays.replayed, std::slice::from_ref(&id));
    test.advance(seconds(1)).await;
    let got = inbox.got();
    assert_eq!(got.len(), 2);
    assert_eq!((got[1].id.as_str(), got[1].payload.clone()), (got[0].id.as_str(), got[0].payload.clone()));
    let again = letters.replay(&Select::Ids(vec![id]), None).await.unwrap();
    assert_eq!((again.replayed.len(), again.gone.len()), (0, 1));
    drop(worker);
}

async fn a_receiver_that_hangs_holds_back_its_own_key_only(test: TestTowpath) {
    let (done, hanging) = (Count::default(), Count::default());
    let (done_too, hanging_too) = (done.clone(), hanging.clone());
    let worker = test
        .worker()
        .batches("input_contour", move |batch: Batch| {
            let (done, hanging) = (done_too.clone(), hanging_too.clone());
            async move {
                if batch.key().ends_with(":hang") {
                    hanging.add();
                    std::future::pending::<()>().await;
                }
                done.add();
                Ok(())
            }
        })
        .start()
        .await
        .unwrap();
    push(&test, &message("hang", "x")).await;
    for n in 0..100 {
        push(&test, &message(&n.to_string(), "x")).await;
    }
    test.advance(seconds(11)).await;
    assert_eq!((done.get(), hanging.get()), (100, 1));
    drop(worker);
}

async fn a_batch_whose_receivers_die_of_it_is_not_sent_for_ever(test: TestTowpath) {
    let chats = test.batch("input_contour");
    push(&test, &message("1", "poison")).await;
    test.advance(seconds(10)).await;
    for attempt in 1..=5 {
        let pulled = chats.claim(1, millis(0)).await.unwrap();
        assert_eq!(pulled[0].batch.attempt, attempt, "whoever had it before said nothing more");
        test.advance(seconds(61)).await;
    }
    assert!(chats.claim(1, millis(0)).await.unwrap().is_empty());
    let letters = test.dead_letters().list(&DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() }).await.unwrap();
    assert_eq!(letters.items[0].1.reason.as_deref(), Some("crash_loop"));
    assert_eq!(chats.counts().await.unwrap().in_flight, 0);
}

async fn a_receiver_that_panics_is_asked_again(test: TestTowpath) {
    let inbox = Inbox::default();
    let worker = inbox
        .receive(&test, "input_contour", |count, _| {
            assert!(count > 1, "at first it breaks");
            Ok(())
        })
        .await;
    push(&test, &message("1", "hi")).await;
    test.advance(seconds(20)).await;
    assert_eq!(inbox.got().iter().map(|one| one.attempt).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(test.batch("input_contour").counts().await.unwrap().in_flight, 0);
    drop(worker);
}

fn to_function(wait: bool) -> Batcher {
    let target = Target::Function { name: towpath::FunctionName::new("handle").unwrap(), wait };
    Batcher::builder("orders").key(["/customer"]).debounce(millis(0)).target(target).build().unwrap()
}

async fn a_batch_that_is_handed_over_three_times_is_one_call(test: TestTowpath) {
    let calls = Count::default();
    let counted = calls.clone();
    let worker = test
        .worker()
        .function("handle", move |_: Value, _: CallContext| {
            counted.add();
            async move { Ok::<_, HandlerError>(()) }
        })
        .start()
        .await
        .unwrap();
    let batcher = to_function(false);
    let orders = test.batch(&batcher);
    orders.push(&json!({"customer": "anna"})).send().await.unwrap();
    let receiver = FunctionReceiver::new(test.towpath().clone());
    for _ in 0..3 {
        // Handed over, and the dispatcher dies before it can say so.
        let pulled = orders.claim(1, seconds(0)).await.unwrap().remove(0);
        let settings: Arc<Settings> = Arc::clone(batcher.settings());
        let parcel = Parcel { batcher: batcher.name().clone(), settings, batch: pulled.batch, payload: pulled.payload };
        let delivery = test.finish(async { Ok::<_, ()>(receiver.deliver(&parcel).await) }).await.unwrap();
        assert!(matches!(delivery.delivered, Delivered::Answered { status: 202, .. }), "{delivery:?}");
        test.advance(seconds(61)).await;
    }
    assert_eq!(calls.get(), 1);
    drop(worker);
}

async fn the_next_batch_waits_for_the_outcome_of_the_call_where_that_is_asked_for(test: TestTowpath) {
    let running = Count::default();
    let counted = running.clone();
    let clock = test.virtual_clock().clone();
    let worker = test
        .worker()
        .function("handle", move |_: Value, _: CallContext| {
            counted.add();
            let slow = towpath::Clock::sleep_until(&clock, towpath::Clock::now(&clock) + seconds(200));
            async move {
                slow.await;
                Ok::<_, HandlerError>(())
            }
        })
        .start()
        .await
        .unwrap();
    test.batchers().put(&to_function(true)).await.unwrap();
    let serving = test.serve_batches(Arc::new(FunctionReceiver::new(test.towpath().clone())), seconds(30));
    let orders = test.batch("orders");
    for _ in 0..2 {
        orders.push(&json!({"customer": "anna"})).send().await.unwrap();
        test.advance(seconds(5)).await;
    }
    assert_eq!(running.get(), 1, "the second batch waits for the first call");
    test.advance(seconds(250)).await;
    assert_eq!(running.get(), 2);
    drop((worker, serving));
}
