//! The verbs of the cases. Each is one move of a store, with whatever a case does not care about filled in.
//!
//! A verb that expects something says where in the case it was disappointed; every other verb returns the reply as it came.

mod batches;
mod locks;
mod runs;

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use towpath_core::batch::Layout;
use towpath_core::call::{Answer, Call, CallState, Outcome};
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::ids::DeliveryId;
use towpath_core::inspect::{CallView, FunctionView};
use towpath_core::names::{CallId, WorkerId};
use towpath_core::store::{
    Cancelled, ClaimCalls, ClaimFunction, CompleteCalls, Completed, Delivery, Fired, RenewCalls, Renewal, Store, StoreError, SubmitCall,
    Submitted,
};
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, Offer, RegisterWorker};

pub use batches::texts;
pub use runs::{Execution, RUN_DELIVERIES_MAX};

use crate::backend::{Backend, OldCaller, UnderTest};
use crate::waiting::Waiting;
use crate::words::{definition, function, json, new_call, offer, seconds, worker_id};

/// How long a claim of the bench may be silent.
pub const LEASE: Duration = seconds(30);

/// A store on the bench, and the clock that it lives by.
pub struct Bench {
    clock: VirtualClock,
    under_test: Box<dyn UnderTest>,
    store: Arc<dyn Store>,
    calls_made: AtomicU64,
    layout: Option<Layout>,
    hears_exactly: bool,
}

/// A delivery together with the worker that holds it.
#[derive(Clone, Debug)]
pub struct Work {
    /// Who holds it.
    pub worker: WorkerId,
    /// What it was given.
    pub delivery: Delivery,
}

impl Work {
    /// Which delivery.
    pub fn id(&self) -> DeliveryId {
        self.delivery.id.clone()
    }

    /// Which call.
    pub fn call_id(&self) -> CallId {
        self.delivery.id.call_id.clone()
    }

    /// The same delivery, as another worker would claim to hold it.
    pub fn in_the_hands_of(&self, worker: &str) -> Self {
        Self { worker: worker_id(worker), delivery: self.delivery.clone() }
    }

    /// The same worker, as if its delivery had another number.
    pub fn numbered(&self, number: u64) -> Self {
        let mut other = self.clone();
        other.delivery.id.number = number;
        other
    }
}

impl Bench {
    /// Puts an empty store on the bench.
    pub async fn new(backend: &dyn Backend) -> Self {
        let clock = VirtualClock::new();
        let under_test = backend.fresh(Arc::new(clock.clone())).await;
        let store = under_test.store();
        let (layout, hears_exactly) = (backend.layout(), backend.hears_exactly());
        Self { clock, under_test, store, calls_made: AtomicU64::new(0), layout, hears_exactly }
    }

    /// The store itself, for what has no verb.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The commands of an old caller on the same keys.
    #[track_caller]
    pub fn old_caller(&self) -> Arc<dyn OldCaller> {
        self.under_test.old_caller().expect("cases of old callers run on stores that old callers can reach")
    }

    /// The present instant.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Moves the clock. Nothing that comes due happens before [`Bench::fire`].
    pub fn advance(&self, length: Duration) {
        self.clock.advance(length);
    }

    /// Moves the clock by seconds.
    pub fn advance_s(&self, count: u64) {
        self.advance(seconds(count));
    }

    /// Moves the clock by milliseconds.
    pub fn advance_ms(&self, count: u64) {
        self.advance(Duration::from_millis(count));
    }

    /// Does all that is due.
    pub async fn fire(&self) -> Fired {
        sure(self.store.fire_due(1_000).await)
    }

    /// Moves the clock by seconds and does all that is due then.
    pub async fn pass_s(&self, count: u64) -> Fired {
        self.advance_s(count);
        self.fire().await
    }

    /// Stops the store and opens what it has kept.
    pub async fn reopen(&mut self) {
        self.under_test.reopen().await;
        self.store = self.under_test.store();
    }

    /// Lets everything that was set going come to rest: the store has done what it was asked, and its askers have heard.
    pub async fn settle(&self) {
        for _ in 0..3 {
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            sure(self.store.probe().await);
        }
    }

    /// Sets something going that may have to wait, and lets it come as far as it can.
    pub async fn start<T, F>(&self, work: impl FnOnce(Arc<dyn Store>) -> F) -> Waiting<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let waiting = Waiting::start(work(Arc::clone(&self.store)));
        self.settle().await;
        waiting
    }

    /// Fails unless that, once everything has come to rest, still waits.
    #[track_caller]
    pub fn check_waits<T: Send + 'static>(&self, waiting: &Waiting<T>) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move {
            self.settle().await;
            assert!(!waiting.has_ended(), "{at}: this should still wait, but has ended");
        }
    }
}

/// Functions and workers.
impl Bench {
    /// Makes a function known, with all defaults and no worker.
    pub async fn define(&self, name: &str) {
        self.define_with(name, |_| ()).await;
    }

    /// Makes a function known, or changes it.
    pub async fn define_with(&self, name: &str, change: impl FnOnce(&mut FunctionDefinition)) {
        let mut function = definition(name);
        change(&mut function);
        sure(self.store.define(function).await);
    }

    /// Registers a worker that counts for itself how much it runs at once.
    pub async fn register(&self, worker: &str, functions: &[&str]) {
        self.register_with(worker, functions.iter().map(|name| offer(name)).collect()).await;
    }

    /// Registers a worker with these offers.
    pub async fn register_with(&self, worker: &str, offers: Vec<Offer>) {
        let worker = RegisterWorker { worker_id: worker_id(worker), kind: "rust".to_owned(), offers };
        sure(self.store.register(worker).await);
    }

    /// What is known of a function now.
    pub async fn function(&self, name: &str) -> Option<FunctionView> {
        sure(self.store.find(&function(name), self.now()).await)
    }

    /// What is known of a function that must be known.
    #[track_caller]
    pub fn known_function(&self, name: &str) -> impl Future<Output = FunctionView> {
        let at = Location::caller();
        async move { self.function(name).await.unwrap_or_else(|| panic!("{at}: function '{name}' is not known")) }
    }
}

/// Calls, from submit to outcome.
impl Bench {
    /// A call to submit, under an id that no other has.
    pub fn new_call(&self, of: &str) -> SubmitCall {
        let number = self.calls_made.fetch_add(1, Ordering::Relaxed) + 1;
        new_call(&format!("call-{number}"), of)
    }

    /// Submits a call and returns whatever the store says.
    pub async fn try_submit(&self, call: SubmitCall) -> Submitted {
        sure(self.store.submit(call).await)
    }

    /// Submits a call that must be accepted.
    #[track_caller]
    pub fn submit_this(&self, call: SubmitCall) -> impl Future<Output = CallId> {
        let at = Location::caller();
        async move {
            let call_id = call.call_id.clone();
            let reply = self.try_submit(call).await;
            assert!(matches!(reply, Submitted::Accepted { .. }), "{at}: submit of {call_id}: {reply:?}");
            call_id
        }
    }

    /// Submits a plain call of a function.
    #[track_caller]
    pub fn submit(&self, of: &str) -> impl Future<Output = CallId> {
        self.submit_this(self.new_call(of))
    }

    /// Claims up to `max` calls of one function, without waiting.
    pub async fn claim(&self, worker: &str, of: &str, max: u32) -> Vec<Work> {
        self.claim_this(claim_of(worker, &[(of, max)], max)).await
    }

    /// Claims as asked.
    pub async fn claim_this(&self, want: ClaimCalls) -> Vec<Work> {
        let worker = want.worker.clone();
        let deliveries = sure(self.store.claim(want).await);
        deliveries.into_iter().map(|delivery| Work { worker: worker.clone(), delivery }).collect()
    }

    /// Claims one call, which must be there.
    #[track_caller]
    pub fn claim_one(&self, worker: &str, of: &str) -> impl Future<Output = Work> {
        let at = Location::caller();
        async move {
            let work = self.claim(worker, of, 1).await.pop();
            work.unwrap_or_else(|| panic!("{at}: worker '{worker}' found no call of '{of}'"))
        }
    }

    /// Submits a call and claims it: the function must have no other that waits.
    #[track_caller]
    pub fn submit_and_claim(&self, worker: &str, of: &str) -> impl Future<Output = Work> {
        let at = Location::caller();
        async move {
            let call_id = self.submit(of).await;
            let work = self.claim_one(worker, of).await;
            assert_eq!(work.call_id(), call_id, "{at}: another call of '{of}' was waiting");
            work
        }
    }

    /// Fails if there is anything to claim.
    #[track_caller]
    pub fn check_nothing_to_claim(&self, worker: &str, of: &str) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move {
            let found = self.claim(worker, of, 1).await;
            assert!(found.is_empty(), "{at}: worker '{worker}' was given {}", found[0].id());
        }
    }

    /// Sets a claim going that waits for its first call.
    pub async fn start_claim(&self, worker: &str, functions: &[&str], wait: Duration) -> Waiting<Vec<Work>> {
        let functions: Vec<_> = functions.iter().map(|name| (*name, 10)).collect();
        let want = ClaimCalls { wait, ..claim_of(worker, &functions, 10) };
        let worker = want.worker.clone();
        let hold = move |delivery| Work { worker: worker.clone(), delivery };
        self.start(|store| async move { sure(store.claim(want).await).into_iter().map(hold).collect() }).await
    }

    /// Prolongs a lease by [`LEASE`].
    pub async fn renew(&self, work: &Work) -> Renewal {
        let leases = RenewCalls { worker: work.worker.clone(), deliveries: vec![work.id()], lease: LEASE };
        one(sure(self.store.renew(leases).await))
    }

    /// Answers.
    pub async fn complete(&self, work: &Work, answer: Answer) -> Completed {
        one(sure(self.store.complete(CompleteCalls::one(work.worker.clone(), work.id(), answer)).await))
    }

    /// Answers, and must be heard.
    #[track_caller]
    pub fn answer(&self, work: &Work, answer: Answer) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move {
            let reply = self.complete(work, answer).await;
            assert!(matches!(reply, Completed::Recorded { .. }), "{at}: answer to {}: {reply:?}", work.id());
        }
    }

    /// Hands a delivery back. Returns how many were still the worker's.
    pub async fn release(&self, work: &Work) -> u64 {
        sure(self.store.release(&work.worker, vec![work.id()]).await)
    }

    /// Starts (or stops) waiting for a nested call.
    pub async fn park(&self, work: &Work, parked: bool) -> Renewal {
        sure(self.store.park(&work.worker, &work.id(), parked).await)
    }

    /// Reports progress.
    pub async fn progress(&self, work: &Work, report: &str) -> Renewal {
        sure(self.store.report_progress(&work.worker, &work.id(), json(report)).await)
    }

    /// Cancels.
    pub async fn cancel(&self, call_id: &CallId) -> Cancelled {
        sure(self.store.cancel(call_id).await)
    }

    /// Brings a new call to its end as a dead letter, by one failed attempt. The function may be tried once only.
    #[track_caller]
    pub fn dead_letter(&self, call: SubmitCall) -> impl Future<Output = CallId> {
        let at = Location::caller();
        async move {
            let of = call.request.function.to_string();
            let call_id = self.submit_this(call).await;
            let work = self.claim_one("undertaker", &of).await;
            self.answer(&work, crate::words::failed("hopeless")).await;
            let state = self.state(&call_id).await;
            assert_eq!(state, Some(CallState::Dead), "{at}: '{of}' must be defined with max_attempts 1, and nothing else waiting");
            call_id
        }
    }
}

/// Looking.
impl Bench {
    /// All that is known of a call.
    pub async fn view(&self, call_id: &CallId) -> Option<CallView> {
        sure(self.store.call(call_id).await)
    }

    /// A call that must be there.
    #[track_caller]
    pub fn call(&self, call_id: &CallId) -> impl Future<Output = Call> {
        let at = Location::caller();
        async move { self.view(call_id).await.map(|view| view.call).unwrap_or_else(|| panic!("{at}: there is no call {call_id}")) }
    }

    /// Where a call stands; `None` when there is none.
    pub async fn state(&self, call_id: &CallId) -> Option<CallState> {
        self.view(call_id).await.map(|view| view.call.state)
    }

    /// Fails unless the call is in this state.
    #[track_caller]
    pub fn check_state(&self, call_id: &CallId, expected: CallState) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move {
            let state = self.state(call_id).await;
            assert_eq!(state, Some(expected), "{at}: call {call_id} is in the wrong state");
        }
    }

    /// How a call ended, if it did.
    pub async fn outcome(&self, call_id: &CallId) -> Option<Outcome> {
        self.view(call_id).await.and_then(|view| view.call.outcome)
    }
}

/// A claim that does not wait: so many of each function, so many in all.
pub fn claim_of(worker: &str, functions: &[(&str, u32)], max: u32) -> ClaimCalls {
    let functions = functions.iter().map(|(name, max)| ClaimFunction { function: function(name), max: *max }).collect();
    ClaimCalls { worker: worker_id(worker), functions, max, lease: LEASE, wait: Duration::ZERO, takes_any: false }
}

/// No case provokes a store's trouble: any is a failure.
#[track_caller]
pub fn sure<T>(reply: Result<T, StoreError>) -> T {
    match reply {
        Ok(reply) => reply,
        Err(error) => panic!("the store had trouble: {error}"),
    }
}

fn one<T>(mut replies: Vec<T>) -> T {
    assert_eq!(replies.len(), 1, "one reply per question");
    replies.remove(0)
}
