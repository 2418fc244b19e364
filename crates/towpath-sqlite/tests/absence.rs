//! A store that was closed for a while: workers that have lived on keep their calls.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_core::call::{Answer, AttemptsBefore, CallRequest, Failure, LostLease, Retry};
use towpath_core::clock::{Clock, Jumps, VirtualClock};
use towpath_core::ids::DeliveryId;
use towpath_core::limit::{Check, Rules};
use towpath_core::names::{CallId, FunctionKey, FunctionName, LimitScope, LockId, LockScope, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::permit::{AcquirePermit, PermitKind, PermitReply};
use towpath_core::store::{
    CallStore, ClaimCalls, ClaimFunction, CompleteCalls, Completed, InspectStore, LimitStore, LockStore, RegistryStore, RenewCalls,
    Renewal, SubmitCall, TimerStore,
};
use towpath_core::worker::{FunctionDefinition, Offer, RegisterWorker};
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

/// A clock that the test lets jump, beside the passing of time.
#[derive(Clone, Debug, Default)]
struct JumpyClock {
    clock: VirtualClock,
    jumped: Arc<std::sync::Mutex<Duration>>,
}

impl JumpyClock {
    fn jump(&self, by: Duration) {
        *self.jumped.lock().unwrap() += by;
        self.clock.advance(by);
    }
}

impl Clock for JumpyClock {
    fn now(&self) -> towpath_core::time::Timestamp {
        self.clock.now()
    }

    fn jumps(&self) -> Option<Jumps> {
        Some(Jumps { ahead: *self.jumped.lock().unwrap(), behind: Duration::ZERO })
    }

    fn sleep_until(&self, at: towpath_core::time::Timestamp) -> towpath_core::clock::Sleep {
        self.clock.sleep_until(at)
    }
}

#[tokio::test]
async fn a_clock_that_jumps_ahead_while_the_store_is_open_ends_no_lease() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), JumpyClock::default());
    let options = OpenOptions { location: Location::Path(folder.path().to_owned()), owner: "the test".to_owned(), renew_leases: false };
    let store = SqliteStore::open(&options, Arc::new(clock.clone())).unwrap();
    let offers =
        vec![Offer { definition: FunctionDefinition::new(FunctionKey::global(FunctionName::new("add").unwrap())), concurrency: None }];
    store.register(RegisterWorker { worker_id: worker(), kind: "rust".to_owned(), offers }).await.unwrap();
    let held = hold_a_call(&store, AWAY * 100).await;
    hold_a_permit(&store, PermitKind::Semaphore).await;
    clock.clock.advance(LEASE / 2);
    clock.jump(AWAY * 5);
    let fired = store.fire_due(10).await.unwrap();
    assert_eq!((fired.reclaimed, fired.workers_removed), (0, 0), "no time has passed");
    assert_eq!(holders(&store, PermitKind::Semaphore).await, 1);
    assert!(store.workers().await.unwrap()[0].healthy);
    clock.clock.advance(LEASE - Duration::from_millis(1));
    assert_eq!(store.fire_due(10).await.unwrap().reclaimed, 0, "the lease counts from the jump");
    let renewal = store.renew(RenewCalls { worker: worker(), deliveries: vec![held], lease: LEASE }).await.unwrap();
    assert!(matches!(renewal[0], Renewal::Held { .. }));
    clock.clock.advance(LEASE);
    assert_eq!(store.fire_due(10).await.unwrap().reclaimed, 1, "and it ends after its length");
    assert_eq!(holders(&store, PermitKind::Semaphore).await, 0);
}

#[tokio::test]
async fn what_a_clock_ahead_wrote_about_older_and_ended_calls_is_brought_back_once() {
    let (folder, ahead) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let right = VirtualClock::new();
    let store = open(folder.path(), &right, false);
    let held = hold_a_call(&store, AWAY * 100).await;
    store.close().await;
    ahead.advance(Duration::from_secs(7_200));
    let store = open(folder.path(), &ahead, false);
    let failure = Failure { code: "x".to_owned(), message: "x".to_owned(), details: None };
    let failed = Answer::Failed { failure, retry: Retry::NotBefore(LEASE) };
    assert!(matches!(store.complete(CompleteCalls::one(worker(), held, failed)).await.unwrap()[0], Completed::Recorded { ended: None }));
    store.probe().await.unwrap();
    store.close().await;

    let store = open(folder.path(), &right, false);
    right.advance(LEASE);
    assert_eq!(store.fire_due(10).await.unwrap().promoted, 1, "the call is tried again after its pause");
    let rule =
        || Check::take(LimitScope::new("acme").unwrap(), Rules::one("r=sliding_log:1/1h".parse().unwrap()), 1, Duration::ZERO).unwrap();
    assert!(store.take(&rule()).await.unwrap().allowed);
    store.close().await;
    let store = open(folder.path(), &right, false);
    assert!(!store.take(&rule()).await.unwrap().allowed, "limits begin anew once, not at every opening");
}
