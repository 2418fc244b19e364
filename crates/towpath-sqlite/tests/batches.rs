//! Batches in the file: what is left of them, and who threw dead letters away.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_core::batch::{
    BatcherId, ClaimBatch, ClaimReply, ClaimedBatch, DeadLetter, ExtendBatch, ExtendReply, FinishBatch, FinishReply, IngestReply, Message,
    MessageId, NewDeadLetter, NewMessage, ReclaimBatch, Rules, Seal, Verb,
};
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::names::{BatchId, BatchKey, BatchToken, BatcherName};
use towpath_core::payload::Payload;
use towpath_core::store::BatchStore;
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

const LEASE: Duration = Duration::from_secs(60);

fn open(folder: &Path, clock: &VirtualClock) -> SqliteStore {
    let options = OpenOptions { location: Location::Path(folder.to_owned()), owner: "the test".to_owned(), renew_leases: true };
    SqliteStore::open(&options, Arc::new(clock.clone())).unwrap()
}

fn orders() -> BatcherId {
    BatcherId::new(BatcherName::new("orders").unwrap())
}

fn message(key: &str, id: u64) -> NewMessage {
    NewMessage {
        key: BatchKey::new(key).unwrap(),
        body: Message::new(format!(r#"{{"n":{id}}}"#)),
        message_id: MessageId::new(id.to_string()),
        source: None,
        debounce: Duration::ZERO,
        seal: Some(Seal::Immediate),
    }
}

async fn push(store: &SqliteStore, messages: Vec<NewMessage>) {
    let replies = store.batch_ingest(&orders(), &Rules::default(), messages).await.unwrap();
    assert!(replies.iter().all(|reply| matches!(reply, IngestReply::Accepted { .. })));
}

async fn claim(store: &SqliteStore, key: &str, id: &str, max_messages: u64) -> ClaimedBatch {
    let want = ClaimBatch {
        batcher: orders(),
        key: BatchKey::new(key).unwrap(),
        batch_id: BatchId::new(id).unwrap(),
        token: BatchToken::new("t").unwrap(),
        lease: LEASE,
        rules: Rules { max_messages, ..Rules::default() },
    };
    match store.batch_claim(want).await.unwrap() {
        ClaimReply::Claimed(batch) => batch,
        ClaimReply::Skip(why) => panic!("{why:?}"),
    }
}

async fn finish(store: &SqliteStore, batch: &ClaimedBatch, verb: Verb) {
    let (batch_id, token) = (batch.batch_id.clone(), batch.token.clone());
    let reply = store.batch_finish(FinishBatch { batcher: orders(), batch_id, key: None, token, verb }).await.unwrap();
    assert_eq!(reply, FinishReply::Done);
}

fn given_up(batch: &ClaimedBatch, clock: &VirtualClock) -> Verb {
    let payload = Payload::from_json("{}");
    let (batcher, at) = (orders().name, clock.now());
    Verb::Dead(DeadLetter::of_batch(NewDeadLetter { batcher: &batcher, batch, payload: Some(&payload), reason: "r", error: "e", at }))
}

fn count(folder: &Path, table: &str) -> i64 {
    let file = rusqlite::Connection::open(folder.join("towpath.db")).unwrap();
    file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn no_message_outlives_its_batch() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    push(&store, (0..5).map(|id| message("a", id)).collect()).await;
    push(&store, vec![message("b", 9)]).await;
    for id in ["b-1", "b-2", "b-3"] {
        let batch = claim(&store, "a", id, 2).await;
        let verb = if id == "b-2" { given_up(&batch, &clock) } else { Verb::Ack };
        finish(&store, &batch, verb).await;
    }
    let batch = claim(&store, "b", "b-4", 2).await;
    assert_eq!(count(folder.path(), "batch_message"), 1, "only what is in flight");
    finish(&store, &batch, Verb::Ack).await;
    for table in ["batch_message", "batch_open", "batch_flight"] {
        assert_eq!(count(folder.path(), table), 0, "{table}");
    }
    assert_eq!(count(folder.path(), "dead_letter"), 1);
}

#[tokio::test]
async fn batches_from_before_a_restart_and_from_after_it_do_not_share_messages() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    push(&store, vec![message("a", 1), message("b", 2)]).await;
    let flying = claim(&store, "b", "b-1", 10).await;
    store.close().await;

    let store = open(folder.path(), &clock);
    push(&store, vec![message("c", 3)]).await;
    finish(&store, &flying, Verb::Ack).await;
    for (key, id, text) in [("a", "b-2", r#"{"n":1}"#), ("c", "b-3", r#"{"n":3}"#)] {
        assert_eq!(claim(&store, key, id, 10).await.messages, [Message::new(text)]);
    }
}

/// A batch that somebody holds, and the store opened again long after its lease.
async fn held_over_an_absence(folder: &Path, clock: &VirtualClock) -> (SqliteStore, ClaimedBatch) {
    let store = open(folder, clock);
    push(&store, vec![message("a", 1)]).await;
    let held = claim(&store, "a", "b-1", 10).await;
    store.close().await;
    clock.advance(LEASE * 10);
    (open(folder, clock), held)
}

async fn extend(store: &SqliteStore, batch: &ClaimedBatch) -> ExtendReply {
    let (batch_id, token) = (batch.batch_id.clone(), batch.token.clone());
    store.batch_extend(ExtendBatch { batcher: orders(), batch_id, token, lease: LEASE }).await.unwrap()
}

#[tokio::test]
async fn a_batch_whose_lease_ended_while_the_store_was_closed_is_due_at_the_opening() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let (store, held) = held_over_an_absence(folder.path(), &clock).await;
    assert_eq!(
        store.batch_due(&orders(), 10).await.unwrap().flights,
        std::slice::from_ref(&held.batch_id),
        "most likely its dispatcher went with the store"
    );
    let token = BatchToken::new("another").unwrap();
    let want = ReclaimBatch { batcher: orders(), batch_id: held.batch_id.clone(), token, lease: LEASE };
    let ClaimReply::Claimed(again) = store.batch_reclaim(want).await.unwrap() else { panic!("nobody has it") };
    assert_eq!((&again.batch_id, &again.messages, again.attempt), (&held.batch_id, &held.messages, 2));
    assert_eq!(extend(&store, &held).await, ExtendReply::Lost, "whoever held it before must stop");
}

#[tokio::test]
async fn a_consumer_that_lived_on_keeps_its_batch_if_it_comes_before_another() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let (store, held) = held_over_an_absence(folder.path(), &clock).await;
    assert_eq!(extend(&store, &held).await, ExtendReply::Extended { lease_end: clock.now() + LEASE });
    assert_eq!(store.batch_due(&orders(), 10).await.unwrap().flights, []);
    finish(&store, &held, Verb::Ack).await;
}

#[tokio::test]
async fn ids_that_count_no_more_are_swept_by_those_that_come() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    push(&store, (0..100).map(|id| message("a", id)).collect()).await;
    assert_eq!(count(folder.path(), "batch_seen"), 100);
    clock.advance(Duration::from_secs(3_600));
    push(&store, (200..220).map(|id| message("a", id)).collect()).await;
    assert_eq!(count(folder.path(), "batch_seen"), 100 - 80 + 20);
    store.batch_sweep(&orders(), None).await.unwrap();
    assert_eq!(count(folder.path(), "batch_seen"), 20);
}

#[tokio::test]
async fn who_drops_dead_letters_is_on_record() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    for id in ["b-1", "b-2", "b-3"] {
        push(&store, vec![NewMessage { message_id: None, ..message("a", 1) }]).await;
        let batch = claim(&store, "a", id, 10).await;
        finish(&store, &batch, given_up(&batch, &clock)).await;
    }
    let ids = ["b-1", "b-9"].map(|id| BatchId::new(id).unwrap()).to_vec();
    assert_eq!(store.dead_letter_drop(&orders(), ids, "ops").await.unwrap(), [true, false]);
    assert_eq!(store.dead_letter_clear(&orders(), "root").await.unwrap(), 2);
    store.close().await;

    let file = rusqlite::Connection::open(folder.path().join("towpath.db")).unwrap();
    let mut statement = file.prepare("SELECT who, what FROM dead_letter_audit WHERE batcher = 'orders'").unwrap();
    let rows =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<Result<Vec<(String, String)>, _>>().unwrap();
    assert_eq!(rows, [("ops".to_owned(), "b-1".to_owned()), ("root".to_owned(), "all 2".to_owned())]);
}
