//! The model with one bug, put in front of it: each flaw is a few lines in the move that it spoils.

mod locks;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use towpath_conformance::backend::{Backend, OldCaller, UnderTest};
use towpath_conformance::model::ModelStore;
use towpath_core::call::CallState;
use towpath_core::clock::Clock;
use towpath_core::ids::DeliveryId;
use towpath_core::inspect::{
    CallFilter, CallView, FunctionView, LimitPage, LimitQuery, LockPage, LockQuery, LockView, Page, PageRequest, PermitPage, PermitView,
    StoreStatus,
};
use towpath_core::names::{CallId, FunctionKey, LockScope, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::permit::PermitKind;
use towpath_core::store::{
    CallNews, CallStore, CallWatch, Cancelled, ClaimCalls, ClaimFunction, CompleteCalls, Completed, ConfigView, Delivery, Durability,
    Fired, Forgotten, Heartbeat, InspectStore, RegistryStore, RenewCalls, Renewal, Replayed, Retention, SetConfig, Store, StoreError,
    SubmitCall, Submitted, TimerStore,
};
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, RegisterWorker, WorkerView};

macro_rules! flaws {
    ($($flaw:ident),* $(,)?) => {
        /// What is wrong with the store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Flaw { $($flaw),* }

        impl Flaw {
            pub(crate) const ALL: [Self; [$(Self::$flaw),*].len()] = [$(Self::$flaw),*];
        }
    };
}

flaws! {
    AcceptsStaleAnswers,
    CountsNoCrashes,
    DeliversNewestFirst,
    IgnoresMaxConcurrent,
    SharesKeysBetweenFunctions,
    TakesRepeatedAnswersForNew,
    LosesConfigurationInRestart,
    NeverWaitsForWork,
    KeepsWorkOfDroppedClaims,
    TellsNoWatcher,
    IgnoresTheLimitOfTimers,
    RepeatsTheCursorsCall,
    TakesSilenceForHealth,
    TrimsPayloads,
    SaysCancelledTooSoon,
    IgnoresTheVersionExpected,
    AddsAMicrosecond,
    CountsWhereOneRuleDenies,
    DeniesByShadowRules,
    ForgetsRefunds,
    MixesKeysOfARule,
    ResetsNothing,
    TakesALapsedCounterForFree,
    LetsAnyonePassTheQueue,
    RaisesNoFence,
    TakesASilentHolderForLive,
    IgnoresTheWeightOfTheQueue,
    TellsNoWaiter,
    DeletesWithoutIdentity,
    ShowsGoneCalls,
    MakesRetriesWaitBehindDeadlines,
}

pub(crate) struct FlawedBackend(pub(crate) Option<Flaw>);

#[async_trait]
impl Backend for FlawedBackend {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        let store = FlawedStore {
            inner: ModelStore::new(Arc::clone(&clock)),
            clock,
            flaw: self.0,
            restarted: AtomicBool::new(false),
            ended: Mutex::default(),
        };
        Box::new(FlawedUnderTest { store: Arc::new(store) })
    }
}

struct FlawedUnderTest {
    store: Arc<FlawedStore>,
}

#[async_trait]
impl UnderTest for FlawedUnderTest {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    async fn reopen(&mut self) {
        let FlawedStore { inner, clock, flaw, .. } = &*self.store;
        let (inner, clock) = (inner.reopened(), Arc::clone(clock));
        self.store = Arc::new(FlawedStore { inner, clock, flaw: *flaw, restarted: AtomicBool::new(true), ended: Mutex::default() });
    }

    fn old_caller(&self) -> Option<Arc<dyn OldCaller>> {
        Some(Arc::new(self.store.inner.clone()))
    }
}

pub(crate) struct FlawedStore {
    pub(crate) inner: ModelStore,
    clock: Arc<dyn Clock>,
    pub(crate) flaw: Option<Flaw>,
    restarted: AtomicBool,
    /// Calls that workers have ended, for a store that shows them after their retention.
    ended: Mutex<BTreeMap<CallId, CallView>>,
}

impl FlawedStore {
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    async fn all_calls(&self) -> Result<Vec<CallView>, StoreError> {
        Ok(self.inner.calls(&CallFilter::default(), PageRequest::first(PageRequest::LIMIT_MAX)).await?.items)
    }

    fn unlimited(&self, mut function: FunctionDefinition) -> FunctionDefinition {
        if self.has(Flaw::IgnoresMaxConcurrent) {
            function.limits.max_concurrent = None;
        }
        function
    }

    fn cheerful(&self, mut function: FunctionView) -> FunctionView {
        if self.has(Flaw::TakesSilenceForHealth) {
            function.healthy_workers = function.workers;
        }
        function
    }

    /// A call of another function that was submitted under the same key.
    async fn same_key_elsewhere(&self, call: &SubmitCall) -> Result<Option<CallView>, StoreError> {
        let key = call.idempotency_key();
        let same = |view: &CallView| key.is_some() && view.request.idempotency_key.as_ref() == key;
        Ok(self.all_calls().await?.into_iter().find(|view| same(view) && view.request.function != call.request.function))
    }

    /// Takes what is due back as if it had been handed back, which nobody counts.
    async fn hand_back_overdue(&self) -> Result<(), StoreError> {
        let now = self.clock.now();
        for CallView { call, .. } in self.all_calls().await? {
            let overdue = call.state == CallState::Running && call.lease_until.is_some_and(|until| until <= now) && now < call.deadline;
            if let (true, Some(holder)) = (overdue, &call.holder) {
                self.inner.release(holder, vec![DeliveryId { call_id: call.call_id, number: call.delivery }]).await?;
            }
        }
        Ok(())
    }

    async fn claim_newest(&self, want: ClaimCalls) -> Result<Vec<Delivery>, StoreError> {
        let (max, mut greedy) = (want.max as usize, want.clone());
        greedy.max = if want.max == 0 { 0 } else { u32::MAX };
        let all_of = |entry: &ClaimFunction| ClaimFunction { max: if entry.max > 0 { u32::MAX } else { 0 }, ..entry.clone() };
        greedy.functions = want.functions.iter().map(all_of).collect();
        let mut claimed = self.inner.claim(greedy).await?;
        let newest = claimed.split_off(claimed.len().saturating_sub(max));
        self.inner.release(&want.worker, claimed.into_iter().map(|delivery| delivery.id).collect()).await?;
        Ok(newest)
    }
}

/// A watcher that hears nothing.
struct Deaf;

#[async_trait]
impl CallWatch for Deaf {
    async fn next(&mut self) -> CallNews {
        std::future::pending().await
    }
}

#[async_trait]
impl CallStore for FlawedStore {
    async fn submit(&self, mut call: SubmitCall) -> Result<Submitted, StoreError> {
        if self.has(Flaw::TrimsPayloads) {
            call.request.params = Payload::from_json(call.request.params.as_str().trim().to_owned());
        }
        if self.has(Flaw::TakesSilenceForHealth) {
            call.fail_without_workers = false;
        }
        if self.has(Flaw::SharesKeysBetweenFunctions)
            && let Some(CallView { call, .. }) = self.same_key_elsewhere(&call).await?
        {
            let durability = Durability::Memory;
            return Ok(Submitted::Existing { call_id: call.call_id, state: call.state, deadline: call.deadline, durability });
        }
        self.inner.submit(call).await
    }

    async fn claim(&self, mut want: ClaimCalls) -> Result<Vec<Delivery>, StoreError> {
        match self.flaw {
            Some(Flaw::DeliversNewestFirst) => self.claim_newest(want).await,
            Some(Flaw::KeepsWorkOfDroppedClaims) => {
                let inner = self.inner.clone();
                tokio::spawn(async move { inner.claim(want).await }).await.expect("a claim does not panic")
            }
            Some(Flaw::NeverWaitsForWork) => {
                want.wait = Duration::ZERO;
                self.inner.claim(want).await
            }
            _ => self.inner.claim(want).await,
        }
    }

    async fn renew(&self, leases: RenewCalls) -> Result<Vec<Renewal>, StoreError> {
        self.inner.renew(leases).await
    }

    async fn complete(&self, answers: CompleteCalls) -> Result<Vec<Completed>, StoreError> {
        let CompleteCalls { worker, answers } = answers;
        let mut replies = Vec::new();
        for (mut delivery, answer) in answers {
            let mut worker = worker.clone();
            if let (true, Some(view)) = (self.has(Flaw::AcceptsStaleAnswers), self.inner.call(&delivery.call_id).await?) {
                delivery.number = view.call.delivery;
                worker = view.call.holder.unwrap_or(worker);
            }
            let call_id = delivery.call_id.clone();
            let reply = self.inner.complete(CompleteCalls::one(worker, delivery, answer)).await?.remove(0);
            if let (Completed::Recorded { ended: Some(_) }, Some(view)) = (&reply, self.inner.call(&call_id).await?) {
                self.ended.lock().expect("no test panics while it holds this").insert(call_id, view);
            }
            let forgetful = self.has(Flaw::TakesRepeatedAnswersForNew) && reply == Completed::AlreadyRecorded;
            replies.push(if forgetful { Completed::Recorded { ended: None } } else { reply });
        }
        Ok(replies)
    }

    async fn release(&self, worker: &WorkerId, deliveries: Vec<DeliveryId>) -> Result<u64, StoreError> {
        self.inner.release(worker, deliveries).await
    }

    async fn park(&self, worker: &WorkerId, delivery: &DeliveryId, parked: bool) -> Result<Renewal, StoreError> {
        self.inner.park(worker, delivery, parked).await
    }

    async fn report_progress(&self, worker: &WorkerId, delivery: &DeliveryId, progress: Payload) -> Result<Renewal, StoreError> {
        self.inner.report_progress(worker, delivery, progress).await
    }

    async fn cancel(&self, call_id: &CallId) -> Result<Cancelled, StoreError> {
        let cancelled = self.inner.cancel(call_id).await?;
        let too_soon = self.has(Flaw::SaysCancelledTooSoon) && cancelled == Cancelled::Requested;
        Ok(if too_soon { Cancelled::Done } else { cancelled })
    }

    async fn replay_dead(&self, call_id: &CallId, replay_id: CallId) -> Result<Replayed, StoreError> {
        self.inner.replay_dead(call_id, replay_id).await
    }

    async fn drop_dead(&self, call_id: &CallId) -> Result<bool, StoreError> {
        self.inner.drop_dead(call_id).await
    }

    fn watch(&self, call_id: &CallId) -> Box<dyn CallWatch> {
        if self.has(Flaw::TellsNoWatcher) { Box::new(Deaf) } else { self.inner.watch(call_id) }
    }

    async fn attention(&self, worker: &WorkerId) {
        self.inner.attention(worker).await;
    }
}

#[async_trait]
impl RegistryStore for FlawedStore {
    async fn register(&self, mut worker: RegisterWorker) -> Result<(), StoreError> {
        for offer in &mut worker.offers {
            offer.definition = self.unlimited(offer.definition.clone());
        }
        self.inner.register(worker).await
    }

    async fn heartbeat(&self, worker: &WorkerId) -> Result<Heartbeat, StoreError> {
        self.inner.heartbeat(worker).await
    }

    async fn unregister(&self, worker: &WorkerId) -> Result<u64, StoreError> {
        self.inner.unregister(worker).await
    }

    async fn define(&self, function: FunctionDefinition) -> Result<(), StoreError> {
        self.inner.define(self.unlimited(function)).await
    }

    async fn redefine(&self, before: &FunctionDefinition, after: FunctionDefinition) -> Result<bool, StoreError> {
        self.inner.redefine(&self.unlimited(before.clone()), self.unlimited(after)).await
    }

    async fn forget(&self, function: &FunctionKey) -> Result<bool, StoreError> {
        self.inner.forget(function).await
    }

    async fn find(&self, function: &FunctionKey, until: Timestamp) -> Result<Option<FunctionView>, StoreError> {
        Ok(self.inner.find(function, until).await?.map(|view| self.cheerful(view)))
    }

    async fn functions_changed(&self, seen: u64) -> Result<u64, StoreError> {
        self.inner.functions_changed(seen).await
    }

    async fn config(&self) -> Result<ConfigView, StoreError> {
        if self.has(Flaw::LosesConfigurationInRestart) && self.restarted.load(Ordering::Relaxed) {
            return Ok(ConfigView { version: 0, value: Payload::null(), updated_at: None });
        }
        self.inner.config().await
    }

    async fn set_config(&self, mut change: SetConfig) -> Result<Option<ConfigView>, StoreError> {
        self.restarted.store(false, Ordering::Relaxed);
        if self.has(Flaw::IgnoresTheVersionExpected) {
            change.if_version = None;
        }
        self.inner.set_config(change).await
    }

    async fn config_changed(&self, seen: u64, until: Timestamp) -> Result<ConfigView, StoreError> {
        self.inner.config_changed(seen, until).await
    }
}

#[async_trait]
impl TimerStore for FlawedStore {
    async fn fire_due(&self, limit: u32) -> Result<Fired, StoreError> {
        if self.has(Flaw::CountsNoCrashes) && limit > 0 {
            self.hand_back_overdue().await?;
        }
        let greedy = self.has(Flaw::IgnoresTheLimitOfTimers) && limit > 0;
        let mut fired = self.inner.fire_due(if greedy { u32::MAX } else { limit }).await?;
        if self.has(Flaw::MakesRetriesWaitBehindDeadlines) && fired.ended.len() >= limit as usize {
            fired.promoted = 0; // the deadlines have used up the limit
        }
        Ok(fired)
    }

    async fn due_before(&self, known: Option<Timestamp>) -> Timestamp {
        self.inner.due_before(known).await
    }

    async fn forget_old(&self, keep: &Retention, limit: u32) -> Result<Forgotten, StoreError> {
        self.inner.forget_old(keep, limit).await
    }
}

#[async_trait]
impl InspectStore for FlawedStore {
    async fn call(&self, call_id: &CallId) -> Result<Option<CallView>, StoreError> {
        let found = self.inner.call(call_id).await?;
        let gone = || self.ended.lock().expect("no test panics while it holds this").get(call_id).cloned();
        Ok(found.or_else(|| if self.has(Flaw::ShowsGoneCalls) { gone() } else { None }))
    }

    async fn calls(&self, filter: &CallFilter, mut page: PageRequest) -> Result<Page<CallView>, StoreError> {
        if self.has(Flaw::RepeatsTheCursorsCall) {
            page.after = page.after.map(|after| after + 1);
        }
        self.inner.calls(filter, page).await
    }

    async fn functions(&self) -> Result<Vec<FunctionView>, StoreError> {
        Ok(self.inner.functions().await?.into_iter().map(|view| self.cheerful(view)).collect())
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        let mut workers = self.inner.workers().await?;
        workers.iter_mut().for_each(|worker| worker.healthy |= self.has(Flaw::TakesSilenceForHealth));
        Ok(workers)
    }

    async fn lock(&self, scope: &LockScope) -> Result<Option<LockView>, StoreError> {
        self.inner.lock(scope).await
    }

    async fn locks(&self, query: &LockQuery) -> Result<LockPage, StoreError> {
        self.inner.locks(query).await
    }

    async fn permits(&self, kind: PermitKind, scope: &LockScope) -> Result<Option<PermitView>, StoreError> {
        self.inner.permits(kind, scope).await
    }

    async fn limits(&self, query: &LimitQuery) -> Result<LimitPage, StoreError> {
        self.inner.limits(query).await
    }

    async fn permit_list(&self, kind: PermitKind, query: &LockQuery) -> Result<PermitPage, StoreError> {
        self.inner.permit_list(kind, query).await
    }

    async fn probe(&self) -> Result<StoreStatus, StoreError> {
        self.inner.probe().await
    }
}
