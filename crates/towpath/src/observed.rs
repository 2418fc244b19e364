//! A store that is listened to: counts for the observer, the alarm when the disk failed, and definitions that this process has changed.
//! Written once, for every store.

mod batches;
mod locks;
mod runs;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use towpath_core::batch::{ClaimedBatch, IngestReply};
use towpath_core::call::LostLease;
use towpath_core::clock::Clock;
use towpath_core::ids::DeliveryId;
use towpath_core::inspect::{
    CallFilter, CallView, FunctionView, LimitPage, LimitQuery, LockPage, LockQuery, LockView, Page, PageRequest, PermitPage, PermitView,
    StoreStatus,
};
use towpath_core::limit::{Check, LimitReply, Rules};
use towpath_core::lock::{LostLock, Previous, RenewReply};
use towpath_core::names::{BatcherName, CallId, FunctionKey, LimitScope, LockScope, WorkerId, WorkflowName};
use towpath_core::payload::Payload;
use towpath_core::permit::PermitKind;
use towpath_core::store::{
    CallStore, CallWatch, Cancelled, ClaimCalls, CompleteCalls, Completed, ConfigView, Delivery, Ended, Fired, Forgotten, Heartbeat,
    InspectStore, LimitStore, PrepareParams, RegistryStore, RenewCalls, Renewal, Replayed, Retention, SetConfig, Store, StoreError,
    StoreTrouble, SubmitCall, Submitted, TimerStore,
};
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, RegisterWorker, WorkerView};

use crate::functions::FunctionCache;
pub(crate) use batches::ObservedBatches;
pub(crate) use runs::ObservedRuns;
use spans::Spans;

/// Somebody who counts what happens in this process. Every method does nothing unless it is written; none may block.
///
/// A call that a claim finds to be expired or poisoned ends without being told here: the store's reply does not name it.
pub trait Observer: Send + Sync {
    /// A new call was taken.
    fn submitted(&self, _function: &FunctionKey) {}
    /// A call ended.
    fn ended(&self, _ended: &Ended) {}
    /// A worker learnt that a delivery is no longer its own, or its late answer was refused.
    fn lost_lease(&self, _why: LostLease) {}
    /// So many leases ran out; their calls wait for another worker.
    fn reclaimed(&self, _count: u64) {}
    /// The store has removed what was too old or too much.
    fn forgot(&self, _what: &Forgotten) {}
    /// A handler failed and its call will be tried again.
    fn retried(&self, _function: &FunctionKey) {}
    /// The store has judged a check of a limit that takes something.
    fn limit_checked(&self, _check: &Check, _reply: &LimitReply) {}
    /// A check of a limit that takes something was answered in this process: the refusal was known, or the store is out of reach (`degraded`).
    fn limit_answered_here(&self, _check: &Check, _reply: &LimitReply, _degraded: bool) {}
    /// A lock was granted, not merely once more to the one that has it.
    fn lock_granted(&self, _previous: Previous) {}
    /// Units of a semaphore or read/write lock were granted.
    fn permits_granted(&self, _kind: PermitKind) {}
    /// How long somebody had waited for what it was granted; nothing for who did not have to wait. `None`: an exclusive lock.
    fn lock_waited(&self, _kind: Option<PermitKind>, _for_long: Duration) {}
    /// How long somebody had held what it has released, if both went through this process. `None`: an exclusive lock.
    fn lock_held(&self, _kind: Option<PermitKind>, _for_long: Duration) {}
    /// A holder learnt that its lock, or its units, are no longer its own.
    fn lock_lost(&self, _why: LostLock) {}
    /// Old workflows have tried so often to get in beside a holder of ours.
    fn old_attempts(&self, _count: u64) {}
    /// A message was taken, or not.
    fn batch_ingested(&self, _batcher: &BatcherName, _reply: &IngestReply) {}
    /// A batch was closed and claimed.
    fn batch_closed(&self, _batcher: &BatcherName, _batch: &ClaimedBatch) {}
    /// A batch was claimed so long after its deadline.
    fn batch_late(&self, _batcher: &BatcherName, _late: Duration) {}
    /// A batch was taken over: its lease had ended, or its retry was due.
    fn batch_reclaimed(&self, _batcher: &BatcherName) {}
    /// A delivery was tried, and went like this.
    fn batch_attempted(&self, _batcher: &BatcherName, _label: &'static str) {}
    /// A batch goes again.
    fn batch_retried(&self, _batcher: &BatcherName) {}
    /// A batch was settled or prolonged by somebody who had no right to it any more.
    fn batch_token_stale(&self, _batcher: &BatcherName) {}
    /// So many dead letters of a batcher were too old and are removed.
    fn batch_dead_forgotten(&self, _batcher: &BatcherName, _count: u64) {}
    /// Something became a dead letter, for this reason.
    fn batch_dead(&self, _batcher: &BatcherName, _reason: &str) {}
    /// The store was in trouble.
    fn store_error(&self, _error: &StoreError) {}
    /// An attempt of a task of a workflow begins.
    fn task_started(&self, _workflow: &WorkflowName, _task: &str) {}
    /// The store has answered once more, well or badly.
    fn replied(&self) {}
}

/// An observer that looks away.
pub(crate) struct Nobody;

impl Observer for Nobody {}

/// The store with an ear at its door.
pub(crate) struct ObservedStore {
    store: Arc<dyn Store>,
    /// `None`: nobody counts, so nothing is read for counting's sake.
    observer: Option<Arc<dyn Observer>>,
    broken: watch::Sender<Option<String>>,
    clock: Arc<dyn Clock>,
    spans: Spans,
    /// Definitions that this process changes are read again at once, without waiting for the notification.
    functions: Arc<FunctionCache>,
}

impl ObservedStore {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        observer: Option<Arc<dyn Observer>>,
        functions: Arc<FunctionCache>,
    ) -> Self {
        Self { store, observer, broken: watch::Sender::new(None), clock, spans: Spans::default(), functions }
    }

    /// Hears why the store is broken, once it is.
    pub(crate) fn broken(&self) -> watch::Receiver<Option<String>> {
        self.broken.subscribe()
    }

    fn observer(&self) -> &dyn Observer {
        self.observer.as_deref().unwrap_or(&Nobody)
    }

    /// Every reply goes through here.
    fn heard<T>(&self, reply: Result<T, StoreError>) -> Result<T, StoreError> {
        self.observer().replied();
        if let Err(error) = &reply {
            self.observer().store_error(error);
            if let StoreError::Unavailable(StoreTrouble::Broken(cause)) = error {
                self.broken.send_if_modified(|known| {
                    let is_news = known.is_none();
                    known.get_or_insert_with(|| cause.clone());
                    is_news
                });
            }
        }
        reply
    }

    fn heard_renewal(&self, reply: Result<Renewal, StoreError>) -> Result<Renewal, StoreError> {
        if let Ok(Renewal::Lost(why)) = &reply {
            self.observer().lost_lease(*why);
        }
        self.heard(reply)
    }

    fn heard_lock_renewal(&self, reply: Result<RenewReply, StoreError>) -> Result<RenewReply, StoreError> {
        match &reply {
            Ok(RenewReply::Renewed { legacy_attempts, .. }) => self.observer().old_attempts(*legacy_attempts),
            Ok(RenewReply::Lost(why)) => self.observer().lock_lost(*why),
            Err(_) => {}
        }
        self.heard(reply)
    }

    async fn heard_completed(&self, observer: &dyn Observer, call_id: &CallId, reply: &Completed) {
        match reply {
            Completed::Recorded { ended: Some(ended) } => observer.ended(ended),
            // The reply does not say which function it was. Failures are rare enough to look it up.
            Completed::Recorded { ended: None } => {
                if let Ok(Some(view)) = self.store.call(call_id).await {
                    observer.retried(&view.request.function);
                }
            }
            Completed::AlreadyRecorded => {}
            Completed::Lost(why) => observer.lost_lease(*why),
        }
    }

    async fn heard_cancelled(&self, call_id: &CallId) {
        let Some(observer) = &self.observer else { return };
        if let Ok(Some(CallView { call, request, .. })) = self.store.call(call_id).await
            && let Some(ended_at) = call.ended_at
        {
            let took = ended_at.since(call.submitted_at);
            observer.ended(&Ended { call_id: call.call_id, function: request.function, state: call.state, took });
        }
    }
}

#[async_trait]
impl CallStore for ObservedStore {
    async fn submit(&self, call: SubmitCall) -> Result<Submitted, StoreError> {
        let function = call.request.function.clone();
        let reply = self.heard(self.store.submit(call).await)?;
        if let Submitted::Accepted { .. } = &reply {
            self.observer().submitted(&function);
        }
        Ok(reply)
    }

    async fn claim(&self, want: ClaimCalls) -> Result<Vec<Delivery>, StoreError> {
        self.heard(self.store.claim(want).await)
    }

    async fn renew(&self, leases: RenewCalls) -> Result<Vec<Renewal>, StoreError> {
        let replies = self.heard(self.store.renew(leases).await)?;
        for reply in &replies {
            if let Renewal::Lost(why) = reply {
                self.observer().lost_lease(*why);
            }
        }
        Ok(replies)
    }

    async fn complete(&self, answers: CompleteCalls) -> Result<Vec<Completed>, StoreError> {
        let Some(observer) = &self.observer else {
            return self.heard(self.store.complete(answers).await);
        };
        let call_ids: Vec<CallId> = answers.answers.iter().map(|(delivery, _)| delivery.call_id.clone()).collect();
        let replies = self.heard(self.store.complete(answers).await)?;
        for (call_id, reply) in call_ids.iter().zip(&replies) {
            self.heard_completed(observer.as_ref(), call_id, reply).await;
        }
        Ok(replies)
    }

    async fn release(&self, worker: &WorkerId, deliveries: Vec<DeliveryId>) -> Result<u64, StoreError> {
        self.heard(self.store.release(worker, deliveries).await)
    }

    async fn park(&self, worker: &WorkerId, delivery: &DeliveryId, parked: bool) -> Result<Renewal, StoreError> {
        self.heard_renewal(self.store.park(worker, delivery, parked).await)
    }

    async fn report_progress(&self, worker: &WorkerId, delivery: &DeliveryId, progress: Payload) -> Result<Renewal, StoreError> {
        self.heard_renewal(self.store.report_progress(worker, delivery, progress).await)
    }

    async fn cancel(&self, call_id: &CallId) -> Result<Cancelled, StoreError> {
        let reply = self.heard(self.store.cancel(call_id).await)?;
        if reply == Cancelled::Done {
            self.heard_cancelled(call_id).await;
        }
        Ok(reply)
    }

    async fn replay_dead(&self, call_id: &CallId, replay_id: CallId) -> Result<Replayed, StoreError> {
        self.heard(self.store.replay_dead(call_id, replay_id).await)
    }

    async fn drop_dead(&self, call_id: &CallId) -> Result<bool, StoreError> {
        self.heard(self.store.drop_dead(call_id).await)
    }

    fn watch(&self, call_id: &CallId) -> Box<dyn CallWatch> {
        self.store.watch(call_id)
    }

    async fn attention(&self, worker: &WorkerId) {
        self.store.attention(worker).await;
    }
}

#[async_trait]
impl RegistryStore for ObservedStore {
    async fn register(&self, worker: RegisterWorker) -> Result<(), StoreError> {
        let reply = self.store.register(worker).await;
        self.functions.doubt_all();
        self.heard(reply)
    }

    async fn heartbeat(&self, worker: &WorkerId) -> Result<Heartbeat, StoreError> {
        self.heard(self.store.heartbeat(worker).await)
    }

    async fn unregister(&self, worker: &WorkerId) -> Result<u64, StoreError> {
        self.heard(self.store.unregister(worker).await)
    }

    async fn define(&self, function: FunctionDefinition) -> Result<(), StoreError> {
        let reply = self.store.define(function).await;
        self.functions.doubt_all();
        self.heard(reply)
    }

    async fn redefine(&self, before: &FunctionDefinition, after: FunctionDefinition) -> Result<bool, StoreError> {
        let reply = self.store.redefine(before, after).await;
        self.functions.doubt_all();
        self.heard(reply)
    }

    async fn forget(&self, function: &FunctionKey) -> Result<bool, StoreError> {
        self.heard(self.store.forget(function).await)
    }

    fn prepare_params_with(&self, prepare: Arc<dyn PrepareParams>) {
        self.store.prepare_params_with(prepare);
    }

    async fn find(&self, function: &FunctionKey, until: Timestamp) -> Result<Option<FunctionView>, StoreError> {
        self.heard(self.store.find(function, until).await)
    }

    async fn functions_changed(&self, seen: u64) -> Result<u64, StoreError> {
        self.heard(self.store.functions_changed(seen).await)
    }

    async fn config(&self) -> Result<ConfigView, StoreError> {
        self.heard(self.store.config().await)
    }

    async fn set_config(&self, change: SetConfig) -> Result<Option<ConfigView>, StoreError> {
        self.heard(self.store.set_config(change).await)
    }

    async fn config_changed(&self, seen: u64, until: Timestamp) -> Result<ConfigView, StoreError> {
        self.heard(self.store.config_changed(seen, until).await)
    }
}

#[async_trait]
impl LimitStore for ObservedStore {
    async fn take(&self, check: &Check) -> Result<LimitReply, StoreError> {
        let reply = self.heard(self.store.take(check).await)?;
        if check.writes() && check.cost() > 0 {
            self.observer().limit_checked(check, &reply);
        }
        Ok(reply)
    }

    async fn reset(&self, scope: &LimitScope, rules: &Rules) -> Result<u64, StoreError> {
        self.heard(self.store.reset(scope, rules).await)
    }
}

#[async_trait]
impl TimerStore for ObservedStore {
    async fn fire_due(&self, limit: u32) -> Result<Fired, StoreError> {
        let fired = self.heard(self.store.fire_due(limit).await)?;
        for ended in &fired.ended {
            self.observer().ended(ended);
        }
        if fired.reclaimed > 0 {
            self.observer().reclaimed(fired.reclaimed);
        }
        Ok(fired)
    }

    async fn due_before(&self, known: Option<Timestamp>) -> Timestamp {
        self.store.due_before(known).await
    }

    async fn forget_old(&self, keep: &Retention, limit: u32) -> Result<Forgotten, StoreError> {
        let forgotten = self.heard(self.store.forget_old(keep, limit).await)?;
        if !forgotten.is_empty() {
            self.observer().forgot(&forgotten);
        }
        Ok(forgotten)
    }
}

#[async_trait]
impl InspectStore for ObservedStore {
    async fn call(&self, call_id: &CallId) -> Result<Option<CallView>, StoreError> {
        self.heard(self.store.call(call_id).await)
    }

    async fn calls(&self, filter: &CallFilter, page: PageRequest) -> Result<Page<CallView>, StoreError> {
        self.heard(self.store.calls(filter, page).await)
    }

    fn take_imported(&self) -> Vec<(FunctionKey, u64)> {
        self.store.take_imported()
    }

    async fn functions(&self) -> Result<Vec<FunctionView>, StoreError> {
        self.heard(self.store.functions().await)
    }

    async fn offered_by(&self, worker: &WorkerId) -> Result<Option<Vec<FunctionKey>>, StoreError> {
        self.heard(self.store.offered_by(worker).await)
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        self.heard(self.store.workers().await)
    }

    async fn lock(&self, scope: &LockScope) -> Result<Option<LockView>, StoreError> {
        self.heard(self.store.lock(scope).await)
    }

    async fn locks(&self, query: &LockQuery) -> Result<LockPage, StoreError> {
        self.heard(self.store.locks(query).await)
    }

    async fn permits(&self, kind: PermitKind, scope: &LockScope) -> Result<Option<PermitView>, StoreError> {
        self.heard(self.store.permits(kind, scope).await)
    }

    async fn limits(&self, query: &LimitQuery) -> Result<LimitPage, StoreError> {
        self.heard(self.store.limits(query).await)
    }

    async fn permit_list(&self, kind: PermitKind, query: &LockQuery) -> Result<PermitPage, StoreError> {
        self.heard(self.store.permit_list(kind, query).await)
    }

    async fn probe(&self) -> Result<StoreStatus, StoreError> {
        self.heard(self.store.probe().await)
    }
}
