//! What is remembered of limits is swept, and nothing that still counts is.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use towpath_core::clock::VirtualClock;
use towpath_core::limit::{Check, Rules};
use towpath_core::names::LimitScope;
use towpath_core::store::{LimitStore, RegistryStore};
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

fn open(folder: &Path, clock: &VirtualClock) -> SqliteStore {
    let options = OpenOptions { location: Location::Path(folder.to_owned()), owner: "the test".to_owned(), renew_leases: false };
    SqliteStore::open(&options, Arc::new(clock.clone())).unwrap()
}

async fn take(store: &SqliteStore, rule: &str) -> bool {
    let rules = Rules::one(rule.parse().unwrap());
    store.take(&Check::take(LimitScope::new("acme").unwrap(), rules, 1, Duration::ZERO).unwrap()).await.unwrap().allowed
}

/// What is committed: the commit before this one has been waited for.
async fn rows(store: &SqliteStore, folder: &Path, table: &str) -> i64 {
    store.config().await.unwrap();
    let conn = Connection::open(folder.join("towpath.db")).unwrap();
    conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn users_that_never_come_back_leave_nothing_for_ever() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    for user in 0..50 {
        assert!(take(&store, &format!("r=gcra:1/60s,key=u{user}")).await);
        assert!(take(&store, &format!("r=sliding_log:1/60s,key=u{user}")).await);
    }
    assert_eq!(rows(&store, folder.path(), "limit_states").await, 100);
    clock.advance(Duration::from_secs(2 * 3_600));
    for user in 100..150 {
        assert!(take(&store, &format!("r=gcra:1/60s,key=u{user}")).await);
    }
    assert_eq!(rows(&store, folder.path(), "limit_states").await, 50);
    assert_eq!(rows(&store, folder.path(), "limit_units").await, 0);
    store.close().await;
}

#[tokio::test]
async fn what_still_counts_is_not_swept() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    assert!(take(&store, "long=gcra:1/10d").await);
    clock.advance(Duration::from_secs(9 * 86_400));
    for user in 0..20 {
        assert!(take(&store, &format!("r=gcra:1/60s,key=u{user}")).await);
    }
    assert!(!take(&store, "long=gcra:1/10d").await);
    store.close().await;
}
