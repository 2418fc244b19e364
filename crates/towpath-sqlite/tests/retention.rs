//! What is too old or too much is removed, and nothing that a caller may still ask for.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use towpath_core::call::{Answer, CallRequest};
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::names::{CallId, FunctionKey, FunctionName, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::store::{
    CallStore, ClaimCalls, ClaimFunction, CompleteCalls, Forgotten, InspectStore, RegistryStore, Retention, SubmitCall, TimerStore,
};
use towpath_core::worker::FunctionDefinition;
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

const DAY: Duration = Duration::from_secs(86_400);

fn open(folder: &Path, clock: &VirtualClock) -> SqliteStore {
    let options = OpenOptions { location: Location::Path(folder.to_owned()), owner: "the test".to_owned(), renew_leases: false };
    SqliteStore::open(&options, Arc::new(clock.clone())).unwrap()
}

/// A call that has ended, with so many bytes of params.
async fn ended_call(store: &SqliteStore, id: &str, bytes: usize) -> CallId {
    let function = FunctionKey::global(FunctionName::new("add").unwrap());
    store.define(FunctionDefinition::new(function.clone())).await.unwrap();
    let params = Payload::from_json(format!("\"{}\"", "x".repeat(bytes)));
    let request = CallRequest {
        function: function.clone(),
        params,
        input_item: None,
        idempotency_key: None,
        depth: 0,
        parent: None,
        traceparent: None,
    };
    let (call_id, worker) = (CallId::new(id).unwrap(), WorkerId::new("w").unwrap());
    let (timeout, retain) = (Duration::from_secs(30), DAY);
    store
        .submit(SubmitCall {
            call_id: call_id.clone(),
            request,
            timeout,
            retain,
            fail_without_workers: false,
            fresh: true,
            before: towpath_core::call::AttemptsBefore::default(),
            continues: false,
        })
        .await
        .unwrap();
    let functions = [ClaimFunction { function, max: 1 }].into();
    let want = ClaimCalls { worker: worker.clone(), functions, max: 1, lease: timeout, wait: Duration::ZERO, takes_any: false };
    let delivery = store.claim(want).await.unwrap().remove(0);
    store.complete(CompleteCalls::one(worker, delivery.id, Answer::Ok(Payload::null()))).await.unwrap();
    call_id
}

async fn are_kept(store: &SqliteStore, calls: &[CallId]) -> Vec<bool> {
    let mut kept = Vec::new();
    for call_id in calls {
        kept.push(store.call(call_id).await.unwrap().is_some());
    }
    kept
}

#[tokio::test]
async fn ended_calls_beyond_the_number_are_removed_the_oldest_first_but_none_of_the_last_minute() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    let mut calls = Vec::new();
    for number in 0..6 {
        calls.push(ended_call(&store, &format!("c{number}"), 10).await);
        clock.advance(Duration::from_secs(20));
    }
    let keep = Retention { outcomes: Some(1), ..Retention::FOREVER };
    let forgotten = store.forget_old(&keep, 2).await.unwrap();
    assert_eq!((forgotten.outcomes, forgotten.has_more(2)), (2, true));
    assert_eq!(store.forget_old(&keep, 2).await.unwrap().outcomes, 2);
    assert_eq!(are_kept(&store, &calls).await, [false, false, false, false, true, true], "c4 ended 40 s ago, c5 20 s");
    assert_eq!(store.forget_old(&keep, 2).await.unwrap(), Forgotten::default(), "callers may still ask for the others");
    clock.advance(Duration::from_secs(60));
    assert_eq!(store.forget_old(&keep, 2).await.unwrap().outcomes, 1);
    assert_eq!(are_kept(&store, &calls).await, [false, false, false, false, false, true], "as many as are to be kept");
    assert_eq!(store.forget_old(&keep, 2).await.unwrap(), Forgotten::default());
    ended_call(&store, "c0", 10).await;
    store.close().await;
}

#[tokio::test]
async fn a_store_that_is_too_large_gives_up_ended_calls_until_it_is_not() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    let mut calls = Vec::new();
    for number in 0..8 {
        calls.push(ended_call(&store, &format!("c{number}"), 1 << 20).await);
    }
    let keep = Retention { bytes: Some(4 << 20), ..Retention::FOREVER };
    assert_eq!(store.forget_old(&keep, 1).await.unwrap(), Forgotten::default(), "all of them ended just now");
    clock.advance(Duration::from_secs(60));
    let mut removed = 0;
    while store.forget_old(&keep, 1).await.unwrap().outcomes > 0 {
        removed += 1;
    }
    assert!((4..=6).contains(&removed), "{removed} of 8 calls of 1 MiB were removed for 4 MiB");
    let kept = are_kept(&store, &calls).await;
    assert_eq!(kept, (0..8).map(|number| number >= removed).collect::<Vec<_>>(), "the oldest went");
    store.close().await;
}

#[tokio::test]
async fn entries_of_audits_are_kept_for_their_retention() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    let conn = Connection::open(folder.path().join("towpath.db")).unwrap();
    for days in [0, 1, 2] {
        let at = clock.now().as_millis() + days * 86_400_000;
        conn.execute("INSERT INTO lock_audit (at_ms, scope, who, reason) VALUES (?1, 's', 'w', 'r')", [at]).unwrap();
        conn.execute("INSERT INTO dead_letter_audit (at_ms, batcher, who, what) VALUES (?1, 'b', 'w', 'x')", [at]).unwrap();
    }
    clock.advance(DAY * 11);
    let keep = Retention { audits: Some(DAY * 10), ..Retention::FOREVER };
    assert_eq!(store.forget_old(&keep, 3).await.unwrap().audits, 3, "no more than the limit");
    assert_eq!(store.forget_old(&keep, 3).await.unwrap().audits, 1);
    assert_eq!(store.forget_old(&keep, 3).await.unwrap(), Forgotten::default());
    let left = |table: &str| conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((left("lock_audit"), left("dead_letter_audit")), (1, 1));
    store.close().await;
}
