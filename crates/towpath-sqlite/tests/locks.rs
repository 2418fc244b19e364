//! Locks in the file: an absence, the record of a forced release, and what is forgotten.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::lock::{AcquireLock, AcquireReply, EndBy, EndLock, EndReply, Fence, LostLock, ReleaseLock, RenewLock, RenewReply};
use towpath_core::names::{LockId, LockScope, RequestId};
use towpath_core::permit::{AcquirePermit, PermitKind, PermitReply, ReleaseBy, ReleasePermit};
use towpath_core::store::{InspectStore, LockStore, TimerStore};
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

const AWAY: Duration = Duration::from_secs(600);

fn open(folder: &Path, clock: &VirtualClock, renew_leases: bool) -> SqliteStore {
    let options = OpenOptions { location: Location::Path(folder.to_owned()), owner: "the test".to_owned(), renew_leases };
    SqliteStore::open(&options, Arc::new(clock.clone())).unwrap()
}

fn scope() -> LockScope {
    LockScope::new("s").unwrap()
}

fn want(who: &str) -> AcquireLock {
    AcquireLock::new(scope(), LockId::new(who).unwrap(), RequestId::new(who).unwrap())
}

async fn hold(store: &SqliteStore, want: AcquireLock) -> Fence {
    match store.lock_acquire(want).await.unwrap() {
        AcquireReply::Granted(grant) => grant.fence,
        other => panic!("{other:?}"),
    }
}

fn renewal(fence: Fence) -> RenewLock {
    RenewLock { scope: scope(), fence, lease: Some(AcquireLock::LEASE) }
}

#[tokio::test]
async fn a_lease_counts_from_the_opening_so_that_a_living_holder_keeps_its_lock() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock, true);
    let fence = hold(&store, want("a")).await;
    assert!(matches!(store.lock_acquire(want("b")).await.unwrap(), AcquireReply::Busy(_)));
    store.close().await;
    clock.advance(AWAY);

    let store = open(folder.path(), &clock, true);
    assert_eq!(store.due_before(None).await, clock.now() + AcquireLock::LEASE);
    assert!(matches!(store.lock_acquire(want("b")).await.unwrap(), AcquireReply::Busy(_)));
    assert!(matches!(store.lock_renew(renewal(fence)).await.unwrap(), RenewReply::Renewed { .. }));
}

#[tokio::test]
async fn an_absence_prolongs_nothing_beyond_the_cap() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock, true);
    let fence = hold(&store, AcquireLock { max_hold: AWAY / 2, ..want("a") }).await;
    store.close().await;
    clock.advance(AWAY);
    let store = open(folder.path(), &clock, true);
    assert_eq!(store.lock_renew(renewal(fence)).await.unwrap(), RenewReply::Lost(LostLock::MaxHold));
}

#[tokio::test]
async fn leases_are_left_alone_when_nobody_asked() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock, false);
    let fence = hold(&store, want("a")).await;
    store.close().await;
    clock.advance(AWAY);
    let store = open(folder.path(), &clock, false);
    assert_eq!(store.lock_renew(renewal(fence)).await.unwrap(), RenewReply::Lost(LostLock::Expired));
}

#[tokio::test]
async fn a_forced_release_is_on_record_with_who_and_why_and_whose_it_was() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock, true);
    hold(&store, want("a")).await;
    let force = |counter| {
        let by = EndBy::Force { counter, who: "ops".to_owned(), reason: "its host burnt down".to_owned() };
        store.lock_end(EndLock { scope: scope(), by })
    };
    assert!(matches!(force(None).await.unwrap(), EndReply::Changed { .. }));
    let seen = store.lock(&scope()).await.unwrap().unwrap().counter;
    assert!(matches!(force(seen).await.unwrap(), EndReply::Ended { .. }));
    store.close().await;

    let file = rusqlite::Connection::open(folder.path().join("towpath.db")).unwrap();
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?));
    let rows = file
        .prepare("SELECT at_ms, scope, who, reason, before FROM lock_audit")
        .unwrap()
        .query_map([], read)
        .unwrap()
        .collect::<Result<Vec<(i64, String, String, String, String)>, _>>()
        .unwrap();
    assert_eq!(rows.len(), 1, "a refused one is not on record");
    let (at, what, who, reason, before) = &rows[0];
    assert_eq!((*at, what.as_str(), who.as_str(), reason.as_str()), (clock.now().as_millis(), "s", "ops", "its host burnt down"));
    assert!(before.contains("\"lock_id\":\"a\""), "{before}");
}

#[tokio::test]
async fn what_nobody_uses_is_forgotten_after_a_day_and_what_is_held_is_not() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock, true);
    let fence = hold(&store, want("a")).await;
    let _released = store.lock_release(ReleaseLock { scope: scope(), fence }).await.unwrap();
    let held = LockScope::new("held").unwrap();
    let week = Duration::from_secs(7 * 86_400);
    hold(&store, AcquireLock { scope: held.clone(), lease: week, max_hold: week, ..want("a") }).await;
    let permits = |who: &str, lease| AcquirePermit {
        lease,
        max_hold: week,
        ..AcquirePermit::new(PermitKind::Semaphore, LockScope::new(who).unwrap(), LockId::new(who).unwrap(), 1)
    };
    for (who, lease) in [("idle", AWAY), ("busy", week)] {
        assert!(matches!(store.permit_acquire(permits(who, lease)).await.unwrap(), PermitReply::Granted(_)));
    }
    let by = ReleaseBy::Permit { lock_id: LockId::new("idle").unwrap(), fence: None };
    store.permit_release(ReleasePermit { kind: PermitKind::Semaphore, scope: LockScope::new("idle").unwrap(), by }).await.unwrap();

    clock.advance(Duration::from_secs(86_399));
    store.fire_due(10).await.unwrap();
    assert!(store.lock(&scope()).await.unwrap().is_some());
    clock.advance(Duration::from_secs(3_601));
    store.fire_due(10).await.unwrap();
    assert_eq!(store.lock(&scope()).await.unwrap(), None);
    assert!(store.lock(&held).await.unwrap().unwrap().holder.is_some());
    for (what, kept) in [("idle", false), ("busy", true)] {
        let view = store.permits(PermitKind::Semaphore, &LockScope::new(what).unwrap()).await.unwrap();
        assert_eq!(view.is_some(), kept, "{what}");
    }
    let later = hold(&store, want("a")).await;
    assert!(later > fence, "a fence never goes back, not even of a lock that was forgotten");
}
