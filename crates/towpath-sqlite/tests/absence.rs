//! A store that was closed for a while: workers that have lived on keep their calls.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_core::call::{Answer, AttemptsBefore, CallRequest, LostLease};
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::ids::DeliveryId;
use towpath_core::names::{CallId, FunctionKey, FunctionName, LockId, LockScope, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::permit::{AcquirePermit, PermitKind, PermitReply};
use towpath_core::store::{
    CallStore, ClaimCalls, ClaimFunction, CompleteCalls, Completed, InspectStore, LockStore, RegistryStore, RenewCalls, Renewal,
    SubmitCall, TimerStore,
};
use towpath_core::worker::FunctionDefinition;
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

const LEASE: Duration = Duration::from_secs(30);
const AWAY: Duration = Duration::from_secs(600);

fn open(folder: &Path, clock: &VirtualClock, renew_leases: bool) -> SqliteStore {
    let options = OpenOptions { location: Location::Path(folder.to_owned()), owner: "the test".to_owned(), renew_leases };
    SqliteStore::open(&options, Arc::new(clock.clone())).unwrap()
}

fn worker() -> WorkerId {
    WorkerId::new("w1").unwrap()
}

/// Submits a call and gives it to a worker.
async fn hold_a_call(store: &SqliteStore, timeout: Duration) -> DeliveryId {
    let function = FunctionKey::global(FunctionName::new("add").unwrap());
    store.define(FunctionDefinition::new(function.clone())).await.unwrap();
    let request = CallRequest {
        function: function.clone(),
        params: Payload::null(),
        input_item: None,
        idempotency_key: None,
        depth: 0,
        parent: None,
        traceparent: None,
    };
    let call_id = CallId::new("c1").unwrap();
    store
        .submit(SubmitCall {
            call_id,
            request,
            timeout,
            retain: AWAY * 10,
            fail_without_workers: false,
            fresh: false,
            before: AttemptsBefore::default(),
            continues: false,
        })
        .await
        .unwrap();
    let functions = [ClaimFunction { function, max: 1 }].into();
    let claimed = store
        .claim(ClaimCalls { worker: worker(), functions, max: 1, lease: LEASE, wait: Duration::ZERO, takes_any: false })
        .await
        .unwrap();
    claimed[0].id.clone()
}

#[tokio::test]
async fn a_lease_counts_from_the_opening_so_that_a_living_worker_keeps_its_call() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock, true);
    let held = hold_a_call(&store, AWAY * 10).await;
    store.close().await;
    clock.advance(AWAY);

    let store = open(folder.path(), &clock, true);
    clock.advance(LEASE - Duration::from_millis(1));
    assert_eq!(store.fire_due(10).await.unwrap().reclaimed, 0, "its worker has had no chance to renew yet");
    let renewal = store.renew(RenewCalls { worker: worker(), deliveries: vec![held.clone()], lease: LEASE }).await.unwrap();
    assert!(matches!(renewal[0], Renewal::Held { .. }));
    let answer = CompleteCalls::one(worker(), held, Answer::Ok(Payload::null()));
    assert!(matches!(store.complete(answer).await.unwrap()[0], Completed::Recorded { .. }));
}

#[tokio::test]
async fn a_worker_that_did_not_live_on_loses_its_call_one_lease_after_the_opening() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock, true);
    let held = hold_a_call(&store, AWAY * 10).await;
    store.close().await;
    clock.advance(AWAY);

    let store = open(folder.path(), &clock, true);
    assert_eq!(store.due_before(None).await, clock.now() + LEASE);
    clock.advance(LEASE);
    assert_eq!(store.fire_due(10).await.unwrap().reclaimed, 1);
    let answer = CompleteCalls::one(worker(), held, Answer::Ok(Payload::null()));
    assert_eq!(store.complete(answer).await.unwrap(), [Completed::Lost(LostLease::Expired)]);
}

#[tokio::test]
async fn a_deadline_that_passed_meanwhile_has_passed() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock, true);
    hold_a_call(&store, AWAY / 2).await;
    store.close().await;
    clock.advance(AWAY);
    let store = open(folder.path(), &clock, true);
    assert_eq!(store.fire_due(10).await.unwrap().ended.len(), 1);
}

fn scope() -> LockScope {
    LockScope::new("jobs").unwrap()
}

async fn hold_a_permit(store: &SqliteStore, kind: PermitKind) {
    let want = AcquirePermit {
        kind,
        scope: scope(),
        lock_id: LockId::new("holder").unwrap(),
        execution_id: None,
        limit: 5,
        weight: 1,
        lease: LEASE,
        max_hold: AWAY * 10,
        waiter: None,
        waiter_ttl: LEASE,
        waiters_max: 5,
        claim: LEASE,
    };
    assert!(matches!(store.permit_acquire(want).await.unwrap(), PermitReply::Granted(_)));
}

async fn holders(store: &SqliteStore, kind: PermitKind) -> usize {
    store.permits(kind, &scope()).await.unwrap().map_or(0, |view| view.permits.len())
}

#[tokio::test]
async fn semaphores_and_read_write_locks_are_held_after_a_restart_as_locks_are() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock, true);
    for kind in PermitKind::ALL {
        hold_a_permit(&store, kind).await;
    }
    store.close().await;
    clock.advance(AWAY);
    let store = open(folder.path(), &clock, true);
    clock.advance(LEASE - Duration::from_millis(1));
    for kind in PermitKind::ALL {
        assert_eq!(holders(&store, kind).await, 1, "its holder has had no chance to renew yet");
    }
    clock.advance(Duration::from_millis(1));
    for kind in PermitKind::ALL {
        assert_eq!(holders(&store, kind).await, 0, "its holder has not renewed it");
    }
    // The store is used after that, so what was over stays over.
    store.probe().await.unwrap();
    store.close().await;
    let store = open(folder.path(), &clock, true);
    for kind in PermitKind::ALL {
        assert_eq!(holders(&store, kind).await, 0, "it had ended before");
    }
}

#[tokio::test]
async fn after_a_clock_that_was_ahead_nothing_is_held_longer_than_its_own_length() {
    let (folder, ahead) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let right = VirtualClock::new();
    ahead.advance(Duration::from_secs(7_200));
    let store = open(folder.path(), &ahead, false);
    hold_a_call(&store, AWAY).await;
    hold_a_permit(&store, PermitKind::Semaphore).await;
    store.close().await;

    let store = open(folder.path(), &right, false);
    right.advance(LEASE);
    assert_eq!(store.fire_due(10).await.unwrap().reclaimed, 1, "the lease of the call is over");
    assert_eq!(holders(&store, PermitKind::Semaphore).await, 0, "so is that of the semaphore");
    right.advance(AWAY - LEASE);
    assert_eq!(store.fire_due(10).await.unwrap().ended.len(), 1, "and the deadline of the call");
}

#[tokio::test]
async fn leases_are_left_alone_when_nobody_asked() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock, false);
    hold_a_call(&store, AWAY * 10).await;
    store.close().await;
    clock.advance(AWAY);
    let store = open(folder.path(), &clock, false);
    assert_eq!(store.fire_due(10).await.unwrap().reclaimed, 1);
}
