//! The moves of locks with one bug.

use async_trait::async_trait;
use towpath_core::lock::{
    AcquireLock, AcquireReply, Busy, BusyWith, CancelLock, CancelReply, EndBy, EndLock, EndReply, Fence, Grant, ReapReply, ReleaseLock,
    ReleaseReply, RenewLock, RenewReply,
};
use towpath_core::names::{ExecutionId, LockScope, NodeId, RequestId};
use towpath_core::permit::{AcquirePermit, PermitReply, ReleaseBy, ReleasePermit, RenewPermit};
use towpath_core::store::{HeldScope, InspectStore, LockNews, LockStore, LockWakes, StoreError};

use super::{Flaw, FlawedStore};

struct Silence;

#[async_trait]
impl LockWakes for Silence {
    async fn next(&mut self) -> LockNews {
        std::future::pending().await
    }
}

impl FlawedStore {
    /// Ends whatever is there.
    async fn force(&self, scope: &LockScope) -> Result<EndReply, StoreError> {
        let counter = self.inner.lock(scope).await?.and_then(|view| view.counter);
        let by = EndBy::Force { counter, who: "flaw".to_owned(), reason: "flaw".to_owned() };
        self.inner.lock_end(EndLock { scope: scope.clone(), by }).await
    }
}

#[async_trait]
impl LockStore for FlawedStore {
    async fn lock_acquire(&self, want: AcquireLock) -> Result<AcquireReply, StoreError> {
        let view = self.inner.lock(&want.scope).await?;
        if let Some(view) = &view {
            if self.has(Flaw::TakesALapsedCounterForFree) && view.counter.is_none() && view.holder.is_some() {
                let _ended = self.force(&want.scope).await?;
            }
            if self.has(Flaw::TakesASilentHolderForLive) && view.counter.is_some() && view.holder.is_none() {
                return Ok(AcquireReply::Busy(Busy { with: BusyWith::Queue, free_in: None, rank: None, counter: None }));
            }
        }
        let reply = self.inner.lock_acquire(want.clone()).await?;
        match reply {
            AcquireReply::Busy(Busy { with: BusyWith::Queue, .. }) if self.has(Flaw::LetsAnyonePassTheQueue) => {
                for place in view.map_or(Vec::new(), |view| view.waiters) {
                    let request_id = RequestId::new("nobody").expect("a word");
                    let question = CancelLock { scope: want.scope.clone(), request_id, waiter: Some(place.waiter) };
                    let _cancelled = self.inner.lock_cancel(question).await?;
                }
                self.inner.lock_acquire(want).await
            }
            AcquireReply::Granted(grant) if self.has(Flaw::RaisesNoFence) => {
                Ok(AcquireReply::Granted(Grant { fence: Fence::new(1), ..grant }))
            }
            reply => Ok(reply),
        }
    }

    async fn lock_renew(&self, lease: RenewLock) -> Result<RenewReply, StoreError> {
        self.inner.lock_renew(lease).await
    }

    async fn lock_release(&self, lease: ReleaseLock) -> Result<ReleaseReply, StoreError> {
        self.inner.lock_release(lease).await
    }

    async fn lock_end(&self, whose: EndLock) -> Result<EndReply, StoreError> {
        let (scope, by_lock_id) = (whose.scope.clone(), matches!(whose.by, EndBy::LockId(_)));
        let reply = self.inner.lock_end(whose).await?;
        let no_identity = matches!(reply, EndReply::Absent { .. });
        if self.has(Flaw::DeletesWithoutIdentity) && by_lock_id && no_identity {
            return self.force(&scope).await;
        }
        Ok(reply)
    }

    async fn lock_cancel(&self, question: CancelLock) -> Result<CancelReply, StoreError> {
        self.inner.lock_cancel(question).await
    }

    async fn lock_reap(&self, scope: &LockScope) -> Result<ReapReply, StoreError> {
        self.inner.lock_reap(scope).await
    }

    async fn permit_acquire(&self, want: AcquirePermit) -> Result<PermitReply, StoreError> {
        let reply = self.inner.permit_acquire(want.clone()).await?;
        match reply {
            PermitReply::Busy(busy) if self.has(Flaw::IgnoresTheWeightOfTheQueue) && busy.units_left >= want.weight => {
                let view = self.inner.permits(want.kind, &want.scope).await?;
                for place in view.map_or(Vec::new(), |view| view.waiters) {
                    let by = ReleaseBy::Waiter(place.waiter);
                    self.inner.permit_release(ReleasePermit { kind: want.kind, scope: want.scope.clone(), by }).await?;
                }
                self.inner.permit_acquire(want).await
            }
            reply => Ok(reply),
        }
    }

    async fn permit_renew(&self, lease: RenewPermit) -> Result<RenewReply, StoreError> {
        self.inner.permit_renew(lease).await
    }

    async fn permit_release(&self, what: ReleasePermit) -> Result<u32, StoreError> {
        self.inner.permit_release(what).await
    }

    async fn held_by_execution(&self, execution_id: &ExecutionId) -> Result<Vec<HeldScope>, StoreError> {
        self.inner.held_by_execution(execution_id).await
    }

    fn lock_wakes(&self, node: &NodeId) -> Box<dyn LockWakes> {
        if self.has(Flaw::TellsNoWaiter) { Box::new(Silence) } else { self.inner.lock_wakes(node) }
    }
}
