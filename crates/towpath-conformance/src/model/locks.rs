//! Locks.
//!
//! - Each move is the pure function of the same name on the state of its scope; whoever it names is woken within the transition.
//! - A lock is due when its lease ends. What is found then is what [`lock::reap`](towpath_core::lock::reap) says.
//! - What an execution holds is what names it and has a lease that is not over; whether an old workflow has broken into it is not looked at.

use async_trait::async_trait;
use towpath_core::lock::{
    self, AcquireLock, AcquireReply, CancelLock, CancelReply, EndLock, EndReply, LockState, ReapReply, ReleaseLock, ReleaseReply,
    RenewLock, RenewReply, Stepped,
};
use towpath_core::names::{ExecutionId, LockScope, NodeId};
use towpath_core::permit::{self, AcquirePermit, PermitReply, ReleasePermit, RenewPermit};
use towpath_core::store::{HeldScope, LockStore, LockWakes, StoreError};
use towpath_core::time::Timestamp;

use super::records::Records;
use super::{ModelStore, State};

#[async_trait]
impl LockStore for ModelStore {
    async fn lock_acquire(&self, want: AcquireLock) -> Result<AcquireReply, StoreError> {
        Ok(self.transition(|state, now| state.put_lock(&want.scope, |lock| lock::acquire(lock, &want, now))))
    }

    async fn lock_renew(&self, lease: RenewLock) -> Result<RenewReply, StoreError> {
        Ok(self.transition(|state, now| state.put_lock(&lease.scope, |lock| lock::renew(lock, &lease, now))))
    }

    async fn lock_release(&self, lease: ReleaseLock) -> Result<ReleaseReply, StoreError> {
        Ok(self.transition(|state, now| state.put_lock(&lease.scope, |lock| lock::release(lock, &lease, now))))
    }

    async fn lock_end(&self, whose: EndLock) -> Result<EndReply, StoreError> {
        Ok(self.transition(|state, now| state.put_lock(&whose.scope, |lock| lock::end(lock, &whose, now))))
    }

    async fn lock_cancel(&self, question: CancelLock) -> Result<CancelReply, StoreError> {
        Ok(self.transition(|state, now| state.put_lock(&question.scope, |lock| lock::cancel(lock, &question, now))))
    }

    async fn lock_reap(&self, scope: &LockScope) -> Result<ReapReply, StoreError> {
        Ok(self.transition(|state, now| state.reap(scope, now)))
    }

    async fn permit_acquire(&self, want: AcquirePermit) -> Result<PermitReply, StoreError> {
        Ok(self.transition(|state, now| state.put_permit(want.kind, &want.scope, |permits| permit::acquire(permits, &want, now))))
    }

    async fn permit_renew(&self, lease: RenewPermit) -> Result<RenewReply, StoreError> {
        Ok(self.transition(|state, now| state.put_permit(lease.kind, &lease.scope, |permits| permit::renew(permits, &lease, now))))
    }

    async fn permit_release(&self, what: ReleasePermit) -> Result<u32, StoreError> {
        Ok(self.transition(|state, now| state.put_permit(what.kind, &what.scope, |permits| permit::release(permits, &what, now))))
    }

    async fn held_by_execution(&self, execution_id: &ExecutionId) -> Result<Vec<HeldScope>, StoreError> {
        Ok(self.look(|state, now| state.records.held_by_execution(execution_id, now)))
    }

    fn lock_wakes(&self, node: &NodeId) -> Box<dyn LockWakes> {
        Box::new(self.look(|state, _| state.ears.listen_for_turns(node)))
    }
}

impl State {
    /// Puts one move to a lock: load, decide, save, wake. A lock of which nothing is known is not kept.
    fn put_lock<R>(&mut self, scope: &LockScope, step: impl FnOnce(&mut LockState) -> Stepped<R>) -> R {
        let mut lock = self.records.locks.remove(scope).unwrap_or_default();
        let Stepped { reply, wakes } = step(&mut lock);
        if lock.is_known() {
            self.records.locks.insert(scope.clone(), lock);
        }
        self.ears.wake(&wakes);
        reply
    }

    pub(super) fn reap(&mut self, scope: &LockScope, now: Timestamp) -> ReapReply {
        self.put_lock(scope, |lock| lock::reap(lock, now))
    }
}

impl Records {
    fn held_by_execution(&self, execution_id: &ExecutionId, now: Timestamp) -> Vec<HeldScope> {
        let names_it = |lock: &LockState| {
            let tenure = lock.tenure.as_ref().filter(|tenure| tenure.lease_end > now);
            tenure.is_some_and(|tenure| tenure.execution_id.as_ref() == Some(execution_id))
        };
        let locks = self.locks.iter().filter(|(_, lock)| names_it(lock)).map(|(scope, _)| HeldScope::Lock(scope.clone()));
        locks.chain(self.permits_held_by(execution_id, now)).collect()
    }

    /// When each lock should be looked at by itself.
    pub(super) fn lock_ends(&self) -> impl Iterator<Item = (Timestamp, &LockScope)> {
        self.locks.iter().filter_map(|(scope, lock)| Some((lock.reap_at?, scope)))
    }
}
