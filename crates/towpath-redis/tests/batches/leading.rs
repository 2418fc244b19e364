//! One drains an old producer's list while the others stand by; and nothing is lost or doubled when two drain all the same.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use towpath_core::batch::{IngestReply, Message, SourceId};
use towpath_core::clock::Clock;
use towpath_core::store::{BatchSource, BatchStore, DrainReply, Drained, StoreError};
use towpath_redis::RedisStore;

use crate::drainer::{LIST, drain_once};
use crate::rig::{Rig, SOON, check_corrupt, input_contour, settings, until};

const LEASE: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(3_600);

/// Asks without waiting.
async fn leads(rig: &Rig, store: &RedisStore, name: &str) -> bool {
    store.lead(LIST, name, LEASE, rig.clock.now()).await.expect("the server is there")
}

/// Asks, and waits for longer than the test moves its clock.
fn waits(rig: &Rig, store: &RedisStore, name: &'static str) -> BoxFuture<'static, Result<bool, StoreError>> {
    let (store, until) = (store.clone(), rig.clock.now() + LONG);
    let asking = tokio::spawn(async move { store.lead(LIST, name, LEASE, until).await });
    async move { tokio::time::timeout(SOON, asking).await.expect("it does not come").expect("it does not panic") }.boxed()
}

fn times_asked(rig: &Rig) -> usize {
    let stats = rig.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Pushes messages without ids of their own, all of one chat.
fn push(rig: &Rig, numbers: std::ops::Range<usize>) {
    let element = |number: usize| format!(r#"{{"tenant_id":"t","channel":"c","external_chat_id":"1","text":"{number}"}}"#);
    let elements: Vec<String> = numbers.map(element).collect();
    let words: Vec<&str> = ["RPUSH", LIST].into_iter().chain(elements.iter().map(String::as_str)).collect();
    rig.cli(&words);
}

#[tokio::test]
async fn one_leads_for_as_long_as_it_asks_again_and_lists_do_not_share_their_leaders() {
    let rig = Rig::start();
    let (here, there) = (rig.store().await, rig.store().await);
    assert!(leads(&rig, &here, "a").await);
    for _turn in 0..5 {
        rig.clock.advance(LEASE - Duration::from_millis(1));
        assert!(!leads(&rig, &there, "b").await, "the lease is not over");
        assert!(leads(&rig, &here, "a").await);
    }
    assert!(there.lead("queue:other", "b", LEASE, rig.clock.now()).await.unwrap());
    there.resign(LIST, "b").await.unwrap();
    assert!(!leads(&rig, &there, "b").await, "what one does not have one cannot give up");
    rig.clock.advance(LEASE);
    assert!(leads(&rig, &there, "b").await);
    assert!(!leads(&rig, &here, "a").await, "whoever slept too long stands by");
}

#[tokio::test]
async fn who_stands_by_leads_at_once_when_the_place_is_given_up_and_when_the_lease_is_over() {
    let rig = Rig::start();
    let (here, there) = (rig.store().await, rig.store().await);
    assert!(leads(&rig, &here, "a").await);
    let asked = times_asked(&rig);
    let waiting = waits(&rig, &there, "b");
    until("it has asked", || times_asked(&rig) > asked).await;
    here.resign(LIST, "a").await.unwrap();
    assert_eq!(waiting.await, Ok(true), "no time has passed");

    let asked = times_asked(&rig);
    let waiting = waits(&rig, &here, "a");
    until("it has asked", || times_asked(&rig) > asked).await;
    rig.clock.advance(LEASE);
    assert_eq!(waiting.await, Ok(true), "nobody was heard of for the length of a lease");
    assert!(!leads(&rig, &there, "b").await);
}

#[tokio::test]
async fn a_drainer_that_wakes_up_beside_its_successor_loses_nothing_and_doubles_nothing() {
    let rig = Rig::start();
    let (sleeper, successor) = (rig.store().await, rig.store().await);
    push(&rig, 0..30);
    assert!(leads(&rig, &sleeper, "a").await);
    let asleep_with = sleeper.drain(LIST, 20, Duration::ZERO).await.unwrap();
    rig.clock.advance(LEASE);
    assert!(leads(&rig, &successor, "b").await);
    assert_eq!(drain_once(&successor, Duration::ZERO).await, 30);
    push(&rig, 30..40);
    let taken = successor.drain(LIST, 50, Duration::ZERO).await.unwrap();

    // It goes on where it was, and knows nothing of all this.
    assert_eq!((asleep_with.from, asleep_with.elements.len()), (0, 20));
    assert!(ingest(&sleeper, &asleep_with).await.iter().all(|reply| matches!(reply, IngestReply::Duplicate { .. })));
    assert_eq!(sleeper.drained(LIST, 0, 20).await.unwrap(), DrainReply::Moved { at: 30 });
    // Both have the rest in their hands.
    let again = sleeper.drain(LIST, 50, Duration::ZERO).await.unwrap();
    assert_eq!(again, taken);
    assert!(ingest(&sleeper, &again).await.iter().all(|reply| matches!(reply, IngestReply::Accepted { .. })));
    assert!(ingest(&successor, &taken).await.iter().all(|reply| matches!(reply, IngestReply::Duplicate { .. })));
    assert_eq!(successor.drained(LIST, 30, 10).await.unwrap(), DrainReply::Removed { next: 40 });
    assert_eq!(sleeper.drained(LIST, 30, 10).await.unwrap(), DrainReply::Moved { at: 40 });

    let kept = rig.cli(&["LRANGE", "queue:batch:t:c:1", "0", "-1"]);
    let texts = kept.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].as_str().unwrap().to_owned());
    assert_eq!(texts.collect::<Vec<_>>(), (0..40).map(|number| number.to_string()).collect::<Vec<_>>());
}

async fn ingest(store: &RedisStore, drained: &Drained) -> Vec<IngestReply> {
    let read = |(number, element): (u64, &bytes::Bytes)| {
        let source = SourceId { list: LIST.into(), number };
        settings().message(Message::new(element.clone()), Some(source)).expect("a message").message
    };
    let messages = (drained.from..).zip(&drained.elements).map(read).collect();
    store.batch_ingest(&input_contour(), &settings().rules(), messages).await.expect("the server is there")
}

#[tokio::test]
async fn what_waits_is_counted_whether_it_was_taken_aside_or_not() {
    let rig = Rig::start();
    let store = rig.store().await;
    assert_eq!(store.waiting(LIST).await, Ok(0));
    push(&rig, 0..7);
    store.drain(LIST, 3, Duration::ZERO).await.unwrap();
    assert_eq!(store.waiting(LIST).await, Ok(7));
    store.drained(LIST, 0, 2).await.unwrap();
    assert_eq!(store.waiting(LIST).await, Ok(5));
    rig.cli(&["SET", "queue:other", "text"]);
    check_corrupt(store.waiting("queue:other").await, "queue:other");
}
