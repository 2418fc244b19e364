//! The moves of locks, listened to.

use async_trait::async_trait;
use towpath_core::lock::{
    AcquireLock, AcquireReply, CancelLock, CancelReply, EndLock, EndReply, Fence, ReapReply, ReleaseLock, ReleaseReply, RenewLock,
    RenewReply,
};
use towpath_core::names::{ExecutionId, LockScope, NodeId};
use towpath_core::permit::{AcquirePermit, PermitKind, PermitReply, ReleaseBy, ReleasePermit, RenewPermit};
use towpath_core::store::{HeldScope, LockStore, LockWakes, StoreError};
use towpath_core::time::Timestamp;

use super::ObservedStore;
use super::spans::Tenure;

impl ObservedStore {
    /// `asked_at`: a wait begins when it is asked for. When the answer comes, the next one may have let go already.
    fn heard_acquired(&self, want: &AcquireLock, asked_at: Timestamp, reply: &AcquireReply) {
        let Some(observer) = &self.observer else { return };
        let now = self.clock.now();
        match reply {
            AcquireReply::Granted(grant) => {
                observer.lock_granted(grant.previous);
                observer.lock_waited(None, self.spans.waited(want.waiter.as_ref(), now));
                self.spans.begins(&Tenure::Lock(want.scope.clone()), grant.fence, now);
            }
            AcquireReply::Busy(_) => want.waiter.iter().for_each(|waiter| self.spans.waits(waiter, asked_at)),
            _ => want.waiter.iter().for_each(|waiter| self.spans.gave_up(waiter)),
        }
    }

    fn heard_taken(&self, want: &AcquirePermit, asked_at: Timestamp, reply: &PermitReply) {
        let Some(observer) = &self.observer else { return };
        let now = self.clock.now();
        match reply {
            PermitReply::Granted(grant) => {
                observer.permits_granted(want.kind);
                observer.lock_waited(Some(want.kind), self.spans.waited(want.waiter.as_ref(), now));
                self.spans.begins(&Tenure::Permit(want.kind, want.scope.clone(), want.lock_id.clone()), grant.fence, now);
            }
            PermitReply::Busy(_) => want.waiter.iter().for_each(|waiter| self.spans.waits(waiter, asked_at)),
            _ => want.waiter.iter().for_each(|waiter| self.spans.gave_up(waiter)),
        }
    }

    /// A tenure was ended by who held it, or for it.
    fn heard_ended(&self, kind: Option<PermitKind>, tenure: &Tenure, fence: Option<Fence>) {
        let Some(observer) = &self.observer else { return };
        if let Some(for_long) = self.spans.ends(tenure, fence, self.clock.now()) {
            observer.lock_held(kind, for_long);
        }
    }
}

#[async_trait]
impl LockStore for ObservedStore {
    async fn lock_acquire(&self, want: AcquireLock) -> Result<AcquireReply, StoreError> {
        let asked_at = self.clock.now();
        let reply = self.heard(self.store.lock_acquire(want.clone()).await)?;
        self.heard_acquired(&want, asked_at, &reply);
        Ok(reply)
    }

    async fn lock_renew(&self, lease: RenewLock) -> Result<RenewReply, StoreError> {
        self.heard_lock_renewal(self.store.lock_renew(lease).await)
    }

    async fn lock_release(&self, lease: ReleaseLock) -> Result<ReleaseReply, StoreError> {
        let (tenure, fence) = (Tenure::Lock(lease.scope.clone()), lease.fence);
        let reply = self.heard(self.store.lock_release(lease).await)?;
        match &reply {
            ReleaseReply::Released => self.heard_ended(None, &tenure, Some(fence)),
            ReleaseReply::Lost { why, .. } => self.observer().lock_lost(*why),
            _ => {}
        }
        Ok(reply)
    }

    async fn lock_end(&self, whose: EndLock) -> Result<EndReply, StoreError> {
        let tenure = Tenure::Lock(whose.scope.clone());
        let reply = self.heard(self.store.lock_end(whose).await)?;
        if let EndReply::Ended { .. } = &reply {
            self.heard_ended(None, &tenure, None);
        }
        Ok(reply)
    }

    async fn lock_cancel(&self, question: CancelLock) -> Result<CancelReply, StoreError> {
        question.waiter.iter().for_each(|waiter| self.spans.gave_up(waiter));
        self.heard(self.store.lock_cancel(question).await)
    }

    async fn lock_reap(&self, scope: &LockScope) -> Result<ReapReply, StoreError> {
        self.heard(self.store.lock_reap(scope).await)
    }

    async fn permit_acquire(&self, want: AcquirePermit) -> Result<PermitReply, StoreError> {
        let asked_at = self.clock.now();
        let reply = self.heard(self.store.permit_acquire(want.clone()).await)?;
        self.heard_taken(&want, asked_at, &reply);
        Ok(reply)
    }

    async fn permit_renew(&self, lease: RenewPermit) -> Result<RenewReply, StoreError> {
        self.heard_lock_renewal(self.store.permit_renew(lease).await)
    }

    async fn permit_release(&self, what: ReleasePermit) -> Result<u32, StoreError> {
        let by = what.by.clone();
        let (kind, scope) = (what.kind, what.scope.clone());
        let gone = self.heard(self.store.permit_release(what).await)?;
        match by {
            ReleaseBy::Permit { lock_id, fence } if gone > 0 => {
                self.heard_ended(Some(kind), &Tenure::Permit(kind, scope, lock_id), fence);
            }
            ReleaseBy::Waiter(waiter) => self.spans.gave_up(&waiter),
            _ => {}
        }
        Ok(gone)
    }

    async fn held_by_execution(&self, execution_id: &ExecutionId) -> Result<Vec<HeldScope>, StoreError> {
        self.heard(self.store.held_by_execution(execution_id).await)
    }

    fn only_node(&self) -> Option<NodeId> {
        self.store.only_node()
    }

    fn lock_wakes(&self, node: &NodeId) -> Box<dyn LockWakes> {
        self.store.lock_wakes(node)
    }
}
