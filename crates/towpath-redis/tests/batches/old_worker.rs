//! What an old worker has left open is delivered as it was, and what it expects to find is there.

use std::time::Duration;

use towpath_conformance::bench::texts;
use towpath_conformance::words::{batch_key, claim_batch, message, seconds};
use towpath_core::batch::{CloseReason, IngestReply, ReplayReply, Rules, SealBatch, SealReply, SealVerb};
use towpath_core::clock::Clock;
use towpath_core::inspect::{BatchCounts, DeadLetterQuery};
use towpath_core::store::BatchStore;
use towpath_core::time::Timestamp;

use crate::rig::{Rig, claimed, ingest, input_contour};

const KEY: &str = "a1b2c3d4:telegram:123456789";

fn ms(after_start: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + after_start)
}

/// Three messages, a deadline and a first time, in seconds with a fraction, and nothing else.
fn leave_open(rig: &Rig, key: &str, deadline: &str, first: &str) {
    rig.cli(&["RPUSH", &format!("queue:batch:{key}"), "{\"text\": \"1\"}", "{\"text\": \"2\"}", "not json"]);
    rig.cli(&["ZADD", "batch:deadlines", deadline, key]);
    rig.cli(&["ZADD", "batch:first_seen", "NX", first, key]);
}

#[tokio::test]
async fn an_old_workers_open_batches_are_delivered_at_their_own_deadline_with_their_own_first_time() {
    let rig = Rig::start();
    let (store, of) = (rig.store().await, input_contour());
    leave_open(&rig, KEY, "1800000012.345678", "1799999990.25");
    leave_open(&rig, "late:c:1", "1799999999", "1799999990");
    let due = store.batch_due(&of, 10).await.unwrap();
    assert_eq!((due.keys, due.next), (vec![batch_key("late:c:1")], Some(ms(12_346))));
    rig.clock.advance(Duration::from_millis(12_345));
    assert_eq!(store.batch_due(&of, 10).await.unwrap().keys, [batch_key("late:c:1")]);
    rig.clock.advance(Duration::from_millis(1));
    let batch = claimed(store.batch_claim(claim_batch(&of, KEY, "b-1", &Rules::default())).await);
    assert_eq!((batch.first, batch.reason, batch.attempt), (ms(-9_750), CloseReason::SilenceReached, 1));
    assert_eq!(texts(&batch.messages), ["{\"text\": \"1\"}", "{\"text\": \"2\"}", "not json"]);
    assert_eq!(rig.cli(&["EXISTS", &format!("queue:batch:{KEY}")]), "0");
    assert_eq!(rig.cli(&["ZSCORE", "batch:deadlines", KEY]) + &rig.cli(&["ZSCORE", "batch:first_seen", KEY]), "");
}

#[tokio::test]
async fn more_messages_join_an_old_workers_batch_and_its_longest_wait_counts_from_its_own_first_time() {
    let rig = Rig::start();
    let (store, of) = (rig.store().await, input_contour());
    leave_open(&rig, KEY, "1800000005", "1799999705");
    let reply = ingest(&store, &of, message(KEY, "4")).await.unwrap();
    let reason = CloseReason::MaxWaitReached;
    assert_eq!(reply, IngestReply::Accepted { deadline: ms(5_000), size: 4, reason });
    let counts = store.batch_counts(&of).await.unwrap();
    assert_eq!((counts.open_keys, counts.open_messages), (1, 4));
    let view = store.open_batch(&of, &batch_key(KEY), 0).await.unwrap().unwrap();
    assert_eq!((view.open.bytes, view.open.size, view.open.first), (35, 4, ms(-295_000)));
    rig.clock.advance(seconds(5));
    let batch = claimed(store.batch_claim(claim_batch(&of, KEY, "b-1", &Rules::default())).await);
    assert_eq!((batch.messages.len(), batch.first), (4, ms(-295_000)));
    assert_eq!(store.batch_counts(&of).await.unwrap(), BatchCounts { in_flight: 1, ..BatchCounts::default() });
}

#[tokio::test]
async fn an_old_workers_batch_is_flushed_touched_shown_and_counted_like_any_other() {
    let rig = Rig::start();
    let (store, of) = (rig.store().await, input_contour());
    leave_open(&rig, KEY, "1800000005", "1799999990");
    assert_eq!(store.batch_counts(&of).await.unwrap().open_messages, 0, "nobody has looked at it yet");
    assert_eq!(store.batch_sweep(&of, None).await.unwrap().rearmed, 0);
    assert_eq!(store.batch_counts(&of).await.unwrap().open_messages, 3);
    let seal = async |verb| store.batch_seal(SealBatch { batcher: of.clone(), key: batch_key(KEY), verb, serial: true }).await.unwrap();
    let touch = SealVerb::Touch { debounce: seconds(10), max_wait: seconds(300) };
    assert_eq!(seal(touch).await, SealReply::Touched { deadline: ms(10_000) });
    assert_eq!(seal(SealVerb::Flush).await, SealReply::Flushed { size: 3 });
    let page = store.open_batches(&of, None, 10).await.unwrap();
    assert_eq!((page.items[0].open.deadline, page.items[0].open.first, page.items[0].open.sealed), (rig.clock.now(), ms(-10_000), true));
    assert_eq!(rig.cli(&["GET", "towpath:{batch:deadlines}:n"]), "3", "counted once");
}

#[tokio::test]
async fn an_old_workers_dead_letters_are_listed_under_a_name_of_their_text_and_replayed() {
    let rig = Rig::start();
    let (store, of) = (rig.store().await, input_contour());
    let entry = r#"{"payload": {"channel": "telegram", "external_chat_id": "7", "text": "a"}, "error": "500", "timestamp": "2027-01-15T07:00:00Z"}"#;
    rig.cli(&["RPUSH", "dlq:input_contour", entry, "no json at all"]);
    let query = DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() };
    let letters = store.dead_letters(&of, &query).await.unwrap().items;
    assert!(letters.iter().all(|letter| letter.id.as_str().starts_with("legacy-")), "{letters:?}");
    let ids = letters.iter().map(|letter| letter.id.clone()).collect();
    assert_eq!(store.dead_letter_replay(&of, ids).await.unwrap(), [ReplayReply::Replayed, ReplayReply::NotReplayable]);
    let flights = store.batches_in_flight(&of, None, 10).await.unwrap().items;
    assert_eq!((flights[0].key.as_str(), flights[0].first, flights[0].replayed), ("unknown:telegram:7", ms(-3_600_000), true));
    assert_eq!(rig.cli(&["LRANGE", "dlq:input_contour", "0", "-1"]), "no json at all");
}

#[tokio::test]
async fn what_we_gather_is_where_an_old_worker_looks_for_it() {
    let rig = Rig::start();
    let (store, of) = (rig.store().await, input_contour());
    ingest(&store, &of, message(KEY, "{\"text\": \"Привет\"}")).await.unwrap();
    rig.clock.advance(Duration::from_millis(1_500));
    ingest(&store, &of, message(KEY, "2")).await.unwrap();
    assert_eq!(rig.cli(&["LRANGE", &format!("queue:batch:{KEY}"), "0", "-1"]), "{\"text\": \"Привет\"}\n2");
    assert_eq!(rig.cli(&["ZSCORE", "batch:deadlines", KEY]), "1800000011.5");
    assert_eq!(rig.cli(&["ZSCORE", "batch:first_seen", KEY]), "1800000000");
}
