//! A store that fails on command: before a move has its effect, or after it, with the reply lost. It also writes down what it was asked.

mod locks;

use std::collections::HashMap;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use towpath_core::ids::DeliveryId;
use towpath_core::inspect::{
    CallFilter, CallView, FunctionView, LimitPage, LimitQuery, LockPage, LockQuery, LockView, Page, PageRequest, PermitPage, PermitView,
    StoreStatus,
};
use towpath_core::limit::{Check, LimitReply, Rules};
use towpath_core::names::{CallId, FunctionKey, LimitScope, LockScope, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::permit::PermitKind;
use towpath_core::store::*;
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, RegisterWorker, WorkerView};

/// When a move fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Nothing is written.
    Before,
    /// It is written, and the reply is lost.
    After,
}

/// Which moves fail.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    None,
    /// This one alone, counted from 1.
    Only(usize),
    /// This one, and from then on one of so many, spread without a pattern but always the same way: faults at equal distances would keep pace with a loop of the
    /// engine and meet the same move of it each time.
    Every(usize),
}

impl Which {
    fn means(self, number: usize) -> bool {
        match self {
            Self::None => false,
            Self::Only(only) => number == only,
            Self::Every(every) => {
                let mut hasher = DefaultHasher::new();
                (number, every).hash(&mut hasher);
                number == every || number > every && hasher.finish().is_multiple_of(every as u64)
            }
        }
    }
}

pub(crate) struct FaultyStore {
    store: Arc<dyn Store>,
    which: Which,
    when: When,
    /// What everything fails with at present.
    trouble: Mutex<Option<StoreTrouble>>,
    /// The one move that fails at present.
    trouble_of: Mutex<Option<&'static str>>,
    /// The move that panics, and how many times it still does.
    panic_of: Mutex<Option<(&'static str, u32)>>,
    /// No call is taken, as if its function were not known.
    knows_no_function: AtomicBool,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    moves: Vec<&'static str>,
    /// Submits: under which id, and whether it was said to be fresh.
    submits: Vec<(CallId, bool)>,
    faults: usize,
    /// How often the store itself said that a call has ended.
    ends: HashMap<CallId, usize>,
}

impl FaultyStore {
    pub(crate) fn new(store: Arc<dyn Store>, which: Which, when: When) -> Arc<Self> {
        Arc::new(Self {
            store,
            which,
            when,
            trouble: Mutex::default(),
            trouble_of: Mutex::default(),
            panic_of: Mutex::default(),
            knows_no_function: AtomicBool::new(false),
            log: Mutex::default(),
        })
    }

    /// From now on everything fails with this, or nothing.
    pub(crate) fn set_trouble(&self, trouble: Option<StoreTrouble>) {
        *self.trouble.lock().unwrap() = trouble;
    }

    /// From now on this move fails, or none.
    pub(crate) fn set_trouble_of(&self, name: Option<&'static str>) {
        *self.trouble_of.lock().unwrap() = name;
    }

    /// This move panics so many times from now on.
    pub(crate) fn panic_of(&self, name: &'static str, times: u32) {
        *self.panic_of.lock().unwrap() = Some((name, times));
    }

    /// How many times a move still has to panic.
    pub(crate) fn panics_left(&self) -> u32 {
        self.panic_of.lock().unwrap().map_or(0, |(_, times)| times)
    }

    /// From now on no call is taken, as if its function were not known.
    pub(crate) fn know_no_function(&self) {
        self.knows_no_function.store(true, Ordering::Relaxed);
    }

    pub(crate) fn inner(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// All that was asked, in order.
    pub(crate) fn moves(&self) -> Vec<&'static str> {
        self.log.lock().unwrap().moves.clone()
    }

    /// Under which ids calls were submitted, and whether each was said to be fresh.
    pub(crate) fn submits(&self) -> Vec<(CallId, bool)> {
        self.log.lock().unwrap().submits.clone()
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        self.moves().iter().filter(|asked| **asked == name).count()
    }

    pub(crate) fn faults(&self) -> usize {
        self.log.lock().unwrap().faults
    }

    pub(crate) fn ends(&self) -> HashMap<CallId, usize> {
        self.log.lock().unwrap().ends.clone()
    }

    async fn make<T>(&self, name: &'static str, run: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let fails = {
            let mut log = self.log.lock().unwrap();
            log.moves.push(name);
            let fails = self.which.means(log.moves.len());
            log.faults += usize::from(fails);
            fails
        };
        self.panic_if_asked_to(name);
        if let Some(trouble) = self.trouble.lock().unwrap().clone() {
            return Err(StoreError::Unavailable(trouble));
        }
        let fails_at_present = *self.trouble_of.lock().unwrap() == Some(name);
        if fails && self.when == When::Before || fails_at_present {
            return Err(StoreError::Unavailable(StoreTrouble::Other(format!("{name} was made to fail"))));
        }
        let reply = run.await;
        if fails {
            return Err(StoreError::Unknown(format!("the reply to {name} was made to be lost")));
        }
        reply
    }

    fn panic_if_asked_to(&self, name: &str) {
        let panics = match &mut *self.panic_of.lock().unwrap() {
            Some((of, times)) if *of == name && *times > 0 => {
                *times -= 1;
                true
            }
            _ => false,
        };
        assert!(!panics, "{name} was made to panic");
    }

    fn note_end(&self, ended: &Ended) {
        *self.log.lock().unwrap().ends.entry(ended.call_id.clone()).or_default() += 1;
    }
}

#[async_trait]
impl CallStore for FaultyStore {
    async fn submit(&self, call: SubmitCall) -> Result<Submitted, StoreError> {
        self.log.lock().unwrap().submits.push((call.call_id.clone(), call.fresh));
        if self.knows_no_function.load(Ordering::Relaxed) {
            assert!(self.submits().len() < 1_000, "the call is sent without a pause");
            return Ok(Submitted::UnknownFunction);
        }
        self.make("submit", self.store.submit(call)).await
    }

    async fn claim(&self, want: ClaimCalls) -> Result<Vec<Delivery>, StoreError> {
        self.make("claim", self.store.claim(want)).await
    }

    async fn renew(&self, leases: RenewCalls) -> Result<Vec<Renewal>, StoreError> {
        self.make("renew", self.store.renew(leases)).await
    }

    async fn complete(&self, answers: CompleteCalls) -> Result<Vec<Completed>, StoreError> {
        let noted = async {
            let replies = self.store.complete(answers).await?;
            for reply in &replies {
                if let Completed::Recorded { ended: Some(ended) } = reply {
                    self.note_end(ended);
                }
            }
            Ok(replies)
        };
        self.make("complete", noted).await
    }

    async fn release(&self, worker: &WorkerId, deliveries: Vec<DeliveryId>) -> Result<u64, StoreError> {
        self.make("release", self.store.release(worker, deliveries)).await
    }

    async fn park(&self, worker: &WorkerId, delivery: &DeliveryId, parked: bool) -> Result<Renewal, StoreError> {
        self.make("park", self.store.park(worker, delivery, parked)).await
    }

    async fn report_progress(&self, worker: &WorkerId, delivery: &DeliveryId, progress: Payload) -> Result<Renewal, StoreError> {
        self.make("report_progress", self.store.report_progress(worker, delivery, progress)).await
    }

    async fn cancel(&self, call_id: &CallId) -> Result<Cancelled, StoreError> {
        self.make("cancel", self.store.cancel(call_id)).await
    }

    async fn replay_dead(&self, call_id: &CallId, replay_id: CallId) -> Result<Replayed, StoreError> {
        self.make("replay_dead", self.store.replay_dead(call_id, replay_id)).await
    }

    async fn drop_dead(&self, call_id: &CallId) -> Result<bool, StoreError> {
        self.make("drop_dead", self.store.drop_dead(call_id)).await
    }

    fn watch(&self, call_id: &CallId) -> Box<dyn CallWatch> {
        self.store.watch(call_id)
    }

    async fn attention(&self, worker: &WorkerId) {
        self.store.attention(worker).await;
    }
}

#[async_trait]
impl RegistryStore for FaultyStore {
    async fn register(&self, worker: RegisterWorker) -> Result<(), StoreError> {
        self.make("register", self.store.register(worker)).await
    }

    async fn heartbeat(&self, worker: &WorkerId) -> Result<Heartbeat, StoreError> {
        self.make("heartbeat", self.store.heartbeat(worker)).await
    }

    async fn unregister(&self, worker: &WorkerId) -> Result<u64, StoreError> {
        self.make("unregister", self.store.unregister(worker)).await
    }

    async fn define(&self, function: FunctionDefinition) -> Result<(), StoreError> {
        self.make("define", self.store.define(function)).await
    }

    async fn redefine(&self, before: &FunctionDefinition, after: FunctionDefinition) -> Result<bool, StoreError> {
        self.make("redefine", self.store.redefine(before, after)).await
    }

    async fn forget(&self, function: &FunctionKey) -> Result<bool, StoreError> {
        self.make("forget", self.store.forget(function)).await
    }

    async fn find(&self, function: &FunctionKey, until: Timestamp) -> Result<Option<FunctionView>, StoreError> {
        self.make("find", self.store.find(function, until)).await
    }

    async fn functions_changed(&self, seen: u64) -> Result<u64, StoreError> {
        self.make("functions_changed", self.store.functions_changed(seen)).await
    }

    async fn config(&self) -> Result<ConfigView, StoreError> {
        self.make("config", self.store.config()).await
    }

    async fn set_config(&self, change: SetConfig) -> Result<Option<ConfigView>, StoreError> {
        self.make("set_config", self.store.set_config(change)).await
    }

    async fn config_changed(&self, seen: u64, until: Timestamp) -> Result<ConfigView, StoreError> {
        self.make("config_changed", self.store.config_changed(seen, until)).await
    }
}

#[async_trait]
impl LimitStore for FaultyStore {
    async fn take(&self, check: &Check) -> Result<LimitReply, StoreError> {
        self.make("take", self.store.take(check)).await
    }

    async fn reset(&self, scope: &LimitScope, rules: &Rules) -> Result<u64, StoreError> {
        self.make("reset", self.store.reset(scope, rules)).await
    }
}

#[async_trait]
impl TimerStore for FaultyStore {
    async fn fire_due(&self, limit: u32) -> Result<Fired, StoreError> {
        let noted = async {
            let fired = self.store.fire_due(limit).await?;
            fired.ended.iter().for_each(|ended| self.note_end(ended));
            Ok(fired)
        };
        self.make("fire_due", noted).await
    }

    async fn due_before(&self, known: Option<Timestamp>) -> Timestamp {
        self.store.due_before(known).await
    }

    async fn forget_old(&self, keep: &Retention, limit: u32) -> Result<Forgotten, StoreError> {
        self.make("forget_old", self.store.forget_old(keep, limit)).await
    }
}

#[async_trait]
impl InspectStore for FaultyStore {
    async fn call(&self, call_id: &CallId) -> Result<Option<CallView>, StoreError> {
        self.make("call", self.store.call(call_id)).await
    }

    async fn calls(&self, filter: &CallFilter, page: PageRequest) -> Result<Page<CallView>, StoreError> {
        self.make("calls", self.store.calls(filter, page)).await
    }

    async fn functions(&self) -> Result<Vec<FunctionView>, StoreError> {
        self.make("functions", self.store.functions()).await
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        self.make("workers", self.store.workers()).await
    }

    async fn lock(&self, scope: &LockScope) -> Result<Option<LockView>, StoreError> {
        self.make("lock", self.store.lock(scope)).await
    }

    async fn locks(&self, query: &LockQuery) -> Result<LockPage, StoreError> {
        self.make("locks", self.store.locks(query)).await
    }

    async fn permits(&self, kind: PermitKind, scope: &LockScope) -> Result<Option<PermitView>, StoreError> {
        self.make("permits", self.store.permits(kind, scope)).await
    }

    async fn limits(&self, query: &LimitQuery) -> Result<LimitPage, StoreError> {
        self.make("limits", self.store.limits(query)).await
    }

    async fn permit_list(&self, kind: PermitKind, query: &LockQuery) -> Result<PermitPage, StoreError> {
        self.make("permit_list", self.store.permit_list(kind, query)).await
    }

    /// Tests ask this to see whether all is quiet, so it neither counts nor fails.
    async fn probe(&self) -> Result<StoreStatus, StoreError> {
        self.store.probe().await
    }
}
