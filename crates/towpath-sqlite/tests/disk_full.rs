//! A full disk: refused clearly, nothing accepted lost, and work goes on when there is room. On a real file system of a few megabytes.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use towpath_core::call::{AttemptsBefore, CallRequest};
use towpath_core::clock::VirtualClock;
use towpath_core::names::{CallId, FunctionKey, FunctionName};
use towpath_core::payload::Payload;
use towpath_core::store::{CallStore, InspectStore, RegistryStore, StoreError, StoreTrouble, SubmitCall, Submitted};
use towpath_core::worker::FunctionDefinition;
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

/// A small file system that goes away with the test. Mounting needs root, which the tests have.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(folder.path()).status().unwrap();
        assert!(mounted.success(), "a tmpfs could not be mounted: run the tests as root");
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _left_to_the_system = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn function() -> FunctionKey {
    FunctionKey::global(FunctionName::new("add").unwrap())
}

fn call(number: usize, bytes: usize) -> SubmitCall {
    let request = CallRequest {
        function: function(),
        params: Payload::from_json(format!("\"{}\"", "x".repeat(bytes))),
        input_item: None,
        idempotency_key: None,
        depth: 0,
        parent: None,
        traceparent: None,
    };
    let call_id = CallId::new(format!("call-{number}")).unwrap();
    let day = Duration::from_secs(86_400);
    SubmitCall {
        call_id,
        request,
        timeout: day,
        retain: day,
        fail_without_workers: false,
        fresh: false,
        before: AttemptsBefore::default(),
        continues: false,
    }
}

#[tokio::test]
async fn a_full_disk_refuses_loses_nothing_and_recovers() {
    let disk = SmallDisk::mount();
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![0_u8; 2 * 1024 * 1024]).unwrap();
    let options = OpenOptions { location: Location::Path(disk.path().join("data")), owner: "the test".to_owned(), renew_leases: false };
    let store = SqliteStore::open(&options, Arc::new(VirtualClock::new())).unwrap();
    store.define(FunctionDefinition::new(function())).await.unwrap();

    let mut accepted = Vec::new();
    let refusal = loop {
        let number = accepted.len();
        assert!(number < 1_000, "two megabytes cannot hold a thousand calls of 20 kB");
        match store.submit(call(number, 20_000)).await {
            Ok(Submitted::Accepted { .. }) => accepted.push(number),
            Ok(other) => panic!("unexpected {other:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(refusal, StoreError::Unavailable(StoreTrouble::Full(_))), "{refusal:?}");
    assert!(!accepted.is_empty());
    check_all_there(&store, &accepted).await;
    let lost = CallId::new(format!("call-{}", accepted.len())).unwrap();
    assert!(store.call(&lost).await.unwrap().is_none(), "what was refused must leave nothing behind");

    fs::remove_file(&filler).unwrap();
    let again = accepted.len();
    assert!(matches!(store.submit(call(again, 20_000)).await, Ok(Submitted::Accepted { .. })), "there is room again");
    accepted.push(again);
    check_all_there(&store, &accepted).await;
    let counts = store.functions().await.unwrap()[0].counts;
    assert_eq!(counts.queued, accepted.len() as u64, "what is counted is what is kept");
    store.close().await;
    let store = SqliteStore::open(&options, Arc::new(VirtualClock::new())).unwrap();
    check_all_there(&store, &accepted).await;
}

async fn check_all_there(store: &SqliteStore, accepted: &[usize]) {
    for number in accepted {
        let call_id = CallId::new(format!("call-{number}")).unwrap();
        assert!(store.call(&call_id).await.unwrap().is_some(), "{call_id} was accepted and is gone");
    }
}

#[tokio::test]
async fn a_probe_says_that_a_disk_without_a_byte_is_full_and_that_there_is_room_again() {
    let disk = SmallDisk::mount();
    let options = OpenOptions { location: Location::Path(disk.path().join("data")), owner: "the test".to_owned(), renew_leases: false };
    let store = SqliteStore::open(&options, Arc::new(VirtualClock::new())).unwrap();
    store.define(FunctionDefinition::new(function())).await.unwrap();
    store.probe().await.unwrap();
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![0_u8; 5 * 1024 * 1024]).unwrap_err();
    let mut number = 0;
    while store.submit(call(number, 60_000)).await.is_ok() {
        number += 1; // the log has some room of its own
        assert!(number < 1_000, "a full disk goes on taking calls");
    }
    for _ in 0..3 {
        let told = store.probe().await.unwrap_err();
        assert!(matches!(told, StoreError::Unavailable(StoreTrouble::Full(_))), "{told:?}");
    }
    fs::remove_file(&filler).unwrap();
    store.probe().await.unwrap();
    assert!(matches!(store.submit(call(1_000, 20_000)).await, Ok(Submitted::Accepted { .. })), "there is room again");
}

#[tokio::test]
async fn every_call_that_a_disk_without_a_byte_refuses_has_certainly_left_nothing() {
    let disk = SmallDisk::mount();
    let options = OpenOptions { location: Location::Path(disk.path().join("data")), owner: "the test".to_owned(), renew_leases: false };
    let store = SqliteStore::open(&options, Arc::new(VirtualClock::new())).unwrap();
    store.define(FunctionDefinition::new(function())).await.unwrap();
    fs::write(disk.path().join("filler"), vec![0_u8; 5 * 1024 * 1024]).unwrap_err();
    let mut refused = 0;
    // Small calls leave no room for a page beside the log, so the commit that would overwrite a failed one fails, too.
    for number in 0..1_000 {
        match store.submit(call(number, 100)).await {
            Ok(_) => assert!(number < 999, "a full disk goes on taking calls"),
            Err(error) => {
                assert!(matches!(error, StoreError::Unavailable(StoreTrouble::Full(_))), "{error:?}");
                assert!(store.call(&CallId::new(format!("call-{number}")).unwrap()).await.unwrap().is_none());
                refused += 1;
            }
        }
        if refused == 20 {
            return;
        }
    }
    panic!("only {refused} of 1,000 calls were refused");
}
