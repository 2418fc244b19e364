//! Rows of calls whose retention is over: they are removed under load and at rest, and their numbers are not given out again.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use towpath_conformance::words::{SubmitWords, definition, new_call, seconds};
use towpath_core::clock::VirtualClock;
use towpath_core::store::{CallStore, Cancelled, InspectStore, RegistryStore, Submitted};
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

const TABLES: [&str; 5] = ["calls", "call_requests", "call_outcomes", "call_progress", "idempotency_keys"];
/// More than the store removes in one transaction.
const MANY: u32 = 300;

fn open(folder: &Path, clock: &VirtualClock) -> SqliteStore {
    let options = OpenOptions { location: Location::Path(folder.to_owned()), owner: "the test".to_owned(), renew_leases: false };
    SqliteStore::open(&options, Arc::new(clock.clone())).unwrap()
}

/// Submits a call under a key and cancels it: from the end of its retention on it is gone.
async fn end_a_call(store: &SqliteStore, number: u32, retain: Duration) {
    let call = new_call(&format!("call-{number}"), "add").key(&format!("key-{number}")).retain(retain);
    let id = call.call_id.clone();
    assert!(matches!(store.submit(call).await.unwrap(), Submitted::Accepted { .. }));
    assert_eq!(store.cancel(&id).await.unwrap(), Cancelled::Done);
}

fn rows(folder: &Path) -> Vec<i64> {
    let reader = rusqlite::Connection::open(folder.join("towpath.db")).unwrap();
    let count = |table: &&str| reader.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
    TABLES.iter().map(count).collect()
}

/// Looks again and again, by the wall, because the store removes rows at rest by the wall.
fn until_no_row_is_left(folder: &Path) {
    let (_never_used, pause) = channel::<()>();
    for _ in 0..400 {
        if rows(folder) == [0; 5] {
            return;
        }
        let _nothing_comes = pause.recv_timeout(Duration::from_millis(50));
    }
    panic!("rows are left: {:?}", rows(folder));
}

#[tokio::test]
async fn rows_are_removed_when_nothing_else_happens_and_numbers_are_not_used_again() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    store.define(definition("add")).await.unwrap();
    let store = Arc::new(store);
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..MANY {
        let store = Arc::clone(&store);
        calls.spawn(async move { end_a_call(&store, number, seconds(1)).await });
    }
    calls.join_all().await;
    assert_eq!(rows(folder.path())[0], i64::from(MANY));
    clock.advance(seconds(1));
    until_no_row_is_left(folder.path());

    store.close().await;
    let store = open(folder.path(), &clock);
    store.submit(new_call("next", "add")).await.unwrap();
    let reader = rusqlite::Connection::open(folder.path().join("towpath.db")).unwrap();
    let seq: i64 = reader.query_row("SELECT seq FROM calls", [], |row| row.get(0)).unwrap();
    assert_eq!(seq, i64::from(MANY) + 1);
    assert_eq!(store.functions().await.unwrap()[0].counts.queued, 1);
}

/// Looks again and again, by the wall, because the store gives space back at rest by the wall.
fn until_the_file_is_smaller_than(bytes: u64, folder: &Path) {
    let (_never_used, pause) = channel::<()>();
    let size = || ["towpath.db", "towpath.db-wal"].map(|name| std::fs::metadata(folder.join(name)).map_or(0, |file| file.len()));
    for _ in 0..1_200 {
        if size().iter().sum::<u64>() < bytes {
            return;
        }
        let _nothing_comes = pause.recv_timeout(Duration::from_millis(50));
    }
    panic!("the file and its log have {:?} bytes", size());
}

#[tokio::test]
async fn the_file_is_small_again_when_large_calls_are_gone() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    store.define(definition("add")).await.unwrap();
    let large = format!("\"{}\"", "x".repeat(900_000));
    for number in 0..60 {
        let call = new_call(&format!("large-{number}"), "add").params(&large).retain(seconds(1));
        let id = call.call_id.clone();
        store.submit(call).await.unwrap();
        assert_eq!(store.cancel(&id).await.unwrap(), Cancelled::Done);
    }
    assert!(std::fs::metadata(folder.path().join("towpath.db")).unwrap().len() > 40_000_000, "so much was kept");
    clock.advance(seconds(1));
    until_the_file_is_smaller_than(30_000_000, folder.path());
}

#[tokio::test]
async fn rows_are_removed_as_fast_as_calls_come() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    store.define(definition("add")).await.unwrap();
    for number in 0..100 {
        end_a_call(&store, number, seconds(10)).await;
        clock.advance(Duration::from_millis(500));
    }
    // Twenty are kept at a time; the rest is what no transaction has come to yet.
    let left = rows(folder.path())[0];
    assert!(left <= 22, "{left} calls have rows");
}
