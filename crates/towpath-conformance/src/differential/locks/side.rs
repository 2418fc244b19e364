//! One of the two stores that are compared: it takes operations and says what came of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use towpath_core::clock::VirtualClock;
use towpath_core::inspect::{LockPage, LockView, PermitPage, PermitView};
use towpath_core::lock::{AcquireReply, CancelReply, EndReply, ReapReply, ReleaseReply, RenewReply};
use towpath_core::names::{LockScope, WaiterId};
use towpath_core::permit::PermitReply;
use towpath_core::store::{Fired, HeldScope, LockNews, LockWakes, Store, StoreError};

use super::op::Op;
use crate::backend::{Backend, OldCaller, UnderTest};
use crate::words::node;

/// What has to come comes soon; by the wall, because only a broken store keeps it waiting.
const SOON: Duration = Duration::from_secs(10);

/// What came of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Done,
    Acquired(AcquireReply),
    Renewed(RenewReply),
    Released(ReleaseReply),
    Ended(EndReply),
    Cancelled(CancelReply),
    Reaped(ReapReply),
    Taken(PermitReply),
    Count(u32),
    Held(Vec<HeldScope>),
    Lock(Option<Box<LockView>>),
    Locks(LockPage),
    Permits(Option<PermitView>),
    PermitList(PermitPage),
    Heard(Vec<WaiterId>),
    Fired(Fired),
    Number(i64),
    Keys(Option<String>, Option<String>),
    /// No operation provokes a store's trouble.
    Trouble(StoreError),
}

pub(super) struct Side {
    under_test: Box<dyn UnderTest>,
    store: Arc<dyn Store>,
    ear: Box<dyn LockWakes>,
}

impl Side {
    pub(super) async fn new(backend: &dyn Backend, clock: &VirtualClock) -> Self {
        let under_test = backend.fresh(Arc::new(clock.clone())).await;
        let store = under_test.store();
        let ear = listen(&store).await;
        Self { under_test, store, ear }
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Does one operation. `expected` is what the model said, so that what must come can be waited for; the model itself knows at once.
    pub(super) async fn apply(&mut self, op: &Op, expected: Option<&Reply>) -> Reply {
        let reply = match op {
            Op::Reopen => {
                self.under_test.reopen().await;
                self.store = self.under_test.store();
                self.ear = listen(&self.store).await;
                Ok(Reply::Done)
            }
            // The clock is moved for both sides at once.
            Op::Advance { .. } => Ok(Reply::Done),
            Op::Listen => {
                let wanted = if let Some(Reply::Heard(turns)) = expected { turns.as_slice() } else { &[] };
                self.heard(wanted).await
            }
            Op::OldIncr(scope) => Ok(Reply::Number(self.old().incr(&counter(scope)).await)),
            Op::OldSet(scope, value) => {
                self.old().set(&meta(scope), value).await;
                Ok(Reply::Done)
            }
            Op::OldDelCounter(scope) => {
                self.old().del(&counter(scope)).await;
                Ok(Reply::Done)
            }
            Op::OldDelMeta(scope) => {
                self.old().del(&meta(scope)).await;
                Ok(Reply::Done)
            }
            Op::OldGet(scope) => Ok(Reply::Keys(self.old().get(&counter(scope)).await, self.old().get(&meta(scope)).await)),
            op => ask(&*self.store, op).await,
        };
        reply.unwrap_or_else(Reply::Trouble)
    }

    fn old(&self) -> Arc<dyn OldCaller> {
        self.under_test.old_caller().expect("old callers take part only where they can reach the store")
    }

    /// Hears on until all that is wanted was heard, and then whatever else is there.
    async fn heard(&mut self, wanted: &[WaiterId]) -> Result<Reply, StoreError> {
        self.store.probe().await?;
        let mut turns = Vec::new();
        loop {
            let next = if has_all(&turns, wanted) {
                tokio::task::unconstrained(self.ear.next()).now_or_never()
            } else {
                tokio::time::timeout(SOON, self.ear.next()).await.ok()
            };
            match next {
                Some(LockNews::Turn(waiter)) => turns.push(waiter),
                Some(LockNews::Doubtful) => {}
                None => return Ok(Reply::Heard(turns)),
            }
        }
    }
}

/// Whether all that was meant was heard, each as often.
pub(super) fn has_all(heard: &[WaiterId], meant: &[WaiterId]) -> bool {
    let count = |turns: &[WaiterId], turn: &WaiterId| turns.iter().filter(|one| *one == turn).count();
    meant.iter().all(|turn| count(meant, turn) <= count(heard, turn))
}

async fn listen(store: &Arc<dyn Store>) -> Box<dyn LockWakes> {
    let ear = store.lock_wakes(&node("bench"));
    // At rest, so that the ear is open.
    let _status = store.probe().await;
    ear
}

fn counter(scope: &LockScope) -> String {
    format!("n8n-lock-{scope}")
}

fn meta(scope: &LockScope) -> String {
    format!("n8n-lock-{scope}:meta")
}

async fn ask(store: &dyn Store, op: &Op) -> Result<Reply, StoreError> {
    Ok(match op {
        Op::Acquire(want) => Reply::Acquired(store.lock_acquire(want.clone()).await?),
        Op::Renew(lease) => Reply::Renewed(store.lock_renew(lease.clone()).await?),
        Op::Release(lease) => Reply::Released(store.lock_release(lease.clone()).await?),
        Op::End(whose) => Reply::Ended(store.lock_end(whose.clone()).await?),
        Op::Cancel(question) => Reply::Cancelled(store.lock_cancel(question.clone()).await?),
        Op::Reap(scope) => Reply::Reaped(store.lock_reap(scope).await?),
        Op::Take(want) => Reply::Taken(store.permit_acquire(want.clone()).await?),
        Op::RenewPermit(lease) => Reply::Renewed(store.permit_renew(lease.clone()).await?),
        Op::GiveBack(what) => Reply::Count(store.permit_release(what.clone()).await?),
        Op::HeldBy(execution_id) => Reply::Held(store.held_by_execution(execution_id).await?),
        Op::Lock(scope) => Reply::Lock(store.lock(scope).await?.map(Box::new)),
        Op::Locks(query) => Reply::Locks(store.locks(query).await?),
        Op::Permits(kind, scope) => Reply::Permits(store.permits(*kind, scope).await?),
        Op::PermitList(kind, query) => Reply::PermitList(store.permit_list(*kind, query).await?),
        Op::Fire { limit } => Reply::Fired(store.fire_due(*limit).await?),
        _ => Reply::Done,
    })
}
