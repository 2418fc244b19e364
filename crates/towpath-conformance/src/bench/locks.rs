//! The verbs of locks and permits.

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use futures_util::FutureExt;
use towpath_core::inspect::{LockView, PermitView};
use towpath_core::lock::{
    AcquireLock, AcquireReply, Busy, BusyWith, CancelLock, CancelReply, EndBy, EndLock, EndReply, Fence, Grant, ReapReply, ReleaseLock,
    ReleaseReply, RenewLock, RenewReply,
};
use towpath_core::names::WaiterId;
use towpath_core::permit::{AcquirePermit, PermitBusy, PermitGrant, PermitKind, PermitReply, ReleaseBy, ReleasePermit, RenewPermit};
use towpath_core::store::{HeldScope, LockNews, LockWakes};

use super::{Bench, sure};
use crate::words::{execution, lock_id, of_lock_id, request, scope, waiter};

/// The length of a renewal of the bench.
const RENEWAL: Duration = Duration::from_secs(10);

/// What has to be heard is heard soon; by the wall, because only a broken store keeps it waiting.
const SOON: Duration = Duration::from_secs(5);

/// Exclusive locks.
impl Bench {
    /// Asks, and returns whatever the store says.
    pub async fn acquire(&self, want: AcquireLock) -> AcquireReply {
        sure(self.store.lock_acquire(want).await)
    }

    /// Asks, and must be granted the lock.
    #[track_caller]
    pub fn granted(&self, want: AcquireLock) -> impl Future<Output = Grant> {
        let at = Location::caller();
        async move {
            match self.acquire(want).await {
                AcquireReply::Granted(grant) => grant,
                other => panic!("{at}: should be granted, but: {other:?}"),
            }
        }
    }

    /// Asks, and must be told that somebody is in the way.
    #[track_caller]
    pub fn busy(&self, want: AcquireLock) -> impl Future<Output = Busy> {
        let at = Location::caller();
        async move {
            match self.acquire(want).await {
                AcquireReply::Busy(busy) => busy,
                other => panic!("{at}: should be busy, but: {other:?}"),
            }
        }
    }

    /// Asks, and must be told that a holder of ours with this lock id has it.
    #[track_caller]
    pub fn held_by(&self, want: AcquireLock, who: &str) -> impl Future<Output = Busy> {
        let at = Location::caller();
        async move {
            let busy = self.busy(want).await;
            assert!(matches!(&busy.with, BusyWith::Towpath(holder) if holder.lock_id == who), "{at}: not held by {who}: {busy:?}");
            busy
        }
    }

    /// Prolongs by ten seconds.
    pub async fn renew_lock(&self, what: &str, fence: Fence) -> RenewReply {
        sure(self.store.lock_renew(RenewLock { scope: scope(what), fence, lease: Some(RENEWAL) }).await)
    }

    /// Prolongs by as long as it was given last.
    pub async fn renew_lock_as_before(&self, what: &str, fence: Fence) -> RenewReply {
        sure(self.store.lock_renew(RenewLock { scope: scope(what), fence, lease: None }).await)
    }

    /// Releases by fence.
    pub async fn release_lock(&self, what: &str, fence: Fence) -> ReleaseReply {
        sure(self.store.lock_release(ReleaseLock { scope: scope(what), fence }).await)
    }

    /// Releases by fence, and must have held it.
    #[track_caller]
    pub fn released(&self, what: &str, fence: Fence) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move {
            let reply = self.release_lock(what, fence).await;
            assert_eq!(reply, ReleaseReply::Released, "{at}: should be released");
        }
    }

    /// Releases by lock id.
    pub async fn release_by_id(&self, what: &str, who: &str) -> EndReply {
        sure(self.store.lock_end(of_lock_id(what, who)).await)
    }

    /// Ends what this execution holds of a scope.
    pub async fn end_by_execution(&self, what: &str, whose: &str) -> EndReply {
        sure(self.store.lock_end(EndLock { scope: scope(what), by: EndBy::Execution(execution(whose)) }).await)
    }

    /// Forces a release of what was seen a moment ago.
    pub async fn force(&self, seen: &LockView) -> EndReply {
        let by = EndBy::Force { counter: seen.counter.clone(), who: "operator".to_owned(), reason: "stuck".to_owned() };
        sure(self.store.lock_end(EndLock { scope: seen.scope.clone(), by }).await)
    }

    /// Takes a question of the bench's node back.
    pub async fn take_back(&self, what: &str, asked_as: &str) -> CancelReply {
        let question = CancelLock { scope: scope(what), request_id: request(asked_as), waiter: Some(waiter(asked_as)) };
        sure(self.store.lock_cancel(question).await)
    }

    /// Looks after a lease that should be over.
    pub async fn reap(&self, what: &str) -> ReapReply {
        sure(self.store.lock_reap(&scope(what)).await)
    }

    /// What an execution holds.
    pub async fn held_by_execution(&self, whose: &str) -> Vec<HeldScope> {
        sure(self.store.held_by_execution(&execution(whose)).await)
    }

    /// All that is known of a lock.
    pub async fn lock(&self, what: &str) -> Option<LockView> {
        sure(self.store.lock(&scope(what)).await)
    }

    /// All that is known of a lock that must be known.
    #[track_caller]
    pub fn known_lock(&self, what: &str) -> impl Future<Output = LockView> {
        let at = Location::caller();
        async move { self.lock(what).await.unwrap_or_else(|| panic!("{at}: nothing is known of lock '{what}'")) }
    }
}

/// Semaphores and read/write locks.
impl Bench {
    /// Asks, and returns whatever the store says.
    pub async fn take(&self, want: AcquirePermit) -> PermitReply {
        sure(self.store.permit_acquire(want).await)
    }

    /// Asks, and must be granted the units.
    #[track_caller]
    pub fn taken(&self, want: AcquirePermit) -> impl Future<Output = PermitGrant> {
        let at = Location::caller();
        async move {
            match self.take(want).await {
                PermitReply::Granted(grant) => grant,
                other => panic!("{at}: should be granted, but: {other:?}"),
            }
        }
    }

    /// Asks, and must be told that there are not enough.
    #[track_caller]
    pub fn scarce(&self, want: AcquirePermit) -> impl Future<Output = PermitBusy> {
        let at = Location::caller();
        async move {
            match self.take(want).await {
                PermitReply::Busy(busy) => busy,
                other => panic!("{at}: should be busy, but: {other:?}"),
            }
        }
    }

    /// Prolongs by ten seconds.
    pub async fn renew_permit(&self, kind: PermitKind, what: &str, who: &str, fence: Fence) -> RenewReply {
        let lease = RenewPermit { kind, scope: scope(what), lock_id: lock_id(who), fence, lease: Some(RENEWAL) };
        sure(self.store.permit_renew(lease).await)
    }

    /// Prolongs by as long as it was given last.
    pub async fn renew_permit_as_before(&self, kind: PermitKind, what: &str, who: &str, fence: Fence) -> RenewReply {
        let lease = RenewPermit { kind, scope: scope(what), lock_id: lock_id(who), fence, lease: None };
        sure(self.store.permit_renew(lease).await)
    }

    /// Gives back, or leaves the queue.
    pub async fn give_back(&self, kind: PermitKind, what: &str, by: ReleaseBy) -> u32 {
        sure(self.store.permit_release(ReleasePermit { kind, scope: scope(what), by }).await)
    }

    /// Gives back all that a lock id has.
    pub async fn give_back_of(&self, kind: PermitKind, what: &str, who: &str) -> u32 {
        self.give_back(kind, what, ReleaseBy::Permit { lock_id: lock_id(who), fence: None }).await
    }

    /// All that is known of a semaphore or read/write lock.
    pub async fn permits(&self, kind: PermitKind, what: &str) -> Option<PermitView> {
        sure(self.store.permits(kind, &scope(what)).await)
    }
}

/// Hearing whose turn it is.
impl Bench {
    /// Listens for the bench's node from now on.
    pub async fn listen(&self) -> Box<dyn LockWakes> {
        let ear = self.store.lock_wakes(&crate::words::node("bench"));
        self.settle().await;
        ear
    }

    /// Fails unless exactly these turns are heard next, and nothing else once everything has come to rest.
    #[track_caller]
    pub fn check_turns(&self, ear: &mut Box<dyn LockWakes>, expected: &[&str]) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move {
            let mut heard: Vec<WaiterId> = Vec::new();
            while heard.len() < expected.len() {
                match tokio::time::timeout(SOON, ear.next()).await {
                    Ok(LockNews::Turn(waiter)) => heard.push(waiter),
                    Ok(LockNews::Doubtful) => {}
                    Err(_silence) => break,
                }
            }
            self.settle().await;
            while let Some(LockNews::Turn(waiter)) = ear.next().now_or_never() {
                heard.push(waiter);
            }
            let expected: Vec<WaiterId> = expected.iter().map(|name| waiter(name)).collect();
            assert_eq!(heard, expected, "{at}: other turns were heard");
        }
    }
}
