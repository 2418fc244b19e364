//! The one door: a store, a clock, a source of ids, and the loops that keep time.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use towpath_core::clock::Clock;
use towpath_core::ids::Ids;
use towpath_core::names::{RequestId, WaiterId};
use towpath_core::run::RunPlace;
use towpath_core::store::{BatchSource, BatchStore, Durability, Retention, RunStore, Store};

use crate::batches::{Batches, KnownBatchers};
use crate::call::Patience;
use crate::clock::SystemClock;
use crate::engine::Engine;
use crate::functions::FunctionCache;
use crate::ids::SystemIds;
use crate::limits::Limits;
use crate::locks::Switchboard;
use crate::observed::{Nobody, ObservedBatches, ObservedRuns, ObservedStore, Observer};
use crate::open::{self, CloseStore, Demand, OpenError, OpenStore, Wish};
use crate::worker::WorkerBuilder;

/// A handle on a store. Clones share it; when the last one is gone, its loops stop.
#[derive(Clone)]
pub struct Towpath {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    runs: Option<Arc<dyn RunStore>>,
    served_places: Mutex<HashSet<RunPlace>>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    functions: Arc<FunctionCache>,
    patience: Arc<Patience>,
    limits: Limits,
    batches: Batches,
    observer: Option<Arc<dyn Observer>>,
    retention: Retention,
    broken: watch::Receiver<Option<String>>,
    switchboard: Switchboard,
    engine: Engine,
    closer: Option<Box<dyn CloseStore>>,
}

impl Towpath {
    /// Opens a store: `sqlite:./.towpath` (a folder), `sqlite:orders.db` (a file), `redis://HOST:PORT/DATABASE`, `rediss://…` (TLS),
    /// `redis+sentinel://HOST,HOST/MASTER`, `redis+cluster://HOST,HOST` or `memory:`.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::builder().open(url).await
    }

    /// The same as [`Towpath::open`], for stores that are reached over a network.
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        Self::open(url).await
    }

    /// For those who bring their own clock, ids, observer or store.
    pub fn builder() -> TowpathBuilder {
        TowpathBuilder::default()
    }

    /// A worker to be: add functions, then start it.
    pub fn worker(&self) -> WorkerBuilder {
        WorkerBuilder::new(self.clone())
    }

    /// The store itself, observed.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// The store of workflow runs, if this store keeps any.
    pub fn run_store(&self) -> Option<&Arc<dyn RunStore>> {
        self.inner.runs.as_ref()
    }

    /// Whether a worker of this handle has executed runs of this place since it was opened.
    pub fn has_served(&self, place: &RunPlace) -> bool {
        self.inner.served_places.lock().unwrap_or_else(PoisonError::into_inner).contains(place)
    }

    /// A worker of this handle executes runs of these places.
    pub(crate) fn note_served(&self, places: &[RunPlace]) {
        self.inner.served_places.lock().unwrap_or_else(PoisonError::into_inner).extend(places.iter().cloned());
    }

    /// The clock that judges.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// Where new ids come from.
    pub fn ids(&self) -> &Arc<dyn Ids> {
        &self.inner.ids
    }

    /// Ends when the disk failed in a way that leaves nothing to trust, and says how. The store takes nothing more until it is opened
    /// again, so a process that only serves it should end.
    pub async fn broken(&self) -> String {
        let mut broken = self.inner.broken.clone();
        let cause = broken.wait_for(Option::is_some).await.ok().and_then(|cause| cause.clone());
        match cause {
            Some(cause) => cause,
            // The other end lives in the store, which lives in this handle.
            None => std::future::pending().await,
        }
    }

    /// Whether this handle fires timers and hears of changed functions. `false`: a task of it panics each time that it is started.
    pub fn is_fit(&self) -> bool {
        self.inner.engine.is_fit(self.clock().now())
    }

    /// Stops the loops and closes the store. Drain workers before; what they still hold comes back by its lease.
    pub async fn close(&self) {
        self.inner.engine.stop().await;
        if let Some(closer) = &self.inner.closer {
            closer.close().await;
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    pub(crate) fn batches(&self) -> &Batches {
        &self.inner.batches
    }

    pub(crate) fn observer(&self) -> &dyn Observer {
        self.inner.observer.as_deref().unwrap_or(&Nobody)
    }

    /// What this handle removes: how old dead letters and audits may be, and how many outcomes there may be.
    pub fn retention(&self) -> &Retention {
        &self.inner.retention
    }

    pub(crate) fn switchboard(&self) -> &Switchboard {
        &self.inner.switchboard
    }

    /// The place in any queue of a lock that a question of this process has; it hears of its turn through this process.
    pub fn waiter(&self, request: &RequestId) -> WaiterId {
        self.inner.switchboard.waiter(&self.inner.store, self.inner.ids.as_ref(), request)
    }

    pub(crate) fn patience(&self) -> &Arc<Patience> {
        &self.inner.patience
    }

    pub(crate) fn functions(&self) -> &FunctionCache {
        &self.inner.functions
    }
}

impl fmt::Debug for Towpath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Towpath").field("clock", &self.inner.clock).finish_non_exhaustive()
    }
}

/// A handle to be.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use towpath::{Towpath, VirtualClock};
///
/// let clock = VirtualClock::new();
/// let towpath = Towpath::builder().clock(Arc::new(clock.clone())).open("memory:").await?;
/// # towpath.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct TowpathBuilder {
    clock: Option<Arc<dyn Clock>>,
    ids: Option<Arc<dyn Ids>>,
    observer: Option<Arc<dyn Observer>>,
    owner: Option<String>,
    durability: Option<Durability>,
    retention: Option<Retention>,
    demand: Demand,
    batch_store: Option<Arc<dyn BatchStore>>,
    run_store: Option<Arc<dyn RunStore>>,
    batch_source: Option<Arc<dyn BatchSource>>,
    wrap_runs: Option<WrapRuns>,
}

/// Puts a store of runs into another one.
pub(crate) type WrapRuns = Box<dyn FnOnce(Arc<dyn RunStore>) -> Arc<dyn RunStore> + Send>;

impl TowpathBuilder {
    /// The clock that judges. Default: the system's, and for a store on Redis that of its server.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Where new ids come from. Default: the system.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn Ids>) -> Self {
        self.ids = Some(ids);
        self
    }

    /// Somebody who counts.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Who opens the store, for the message that the next one gets who tries to: `towpath serve on 127.0.0.1:8690`.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// What an acknowledgement must be worth at least. A store that gives less is not opened. Default: whatever the store gives.
    #[must_use]
    pub fn durability(mut self, at_least: Durability) -> Self {
        self.durability = Some(at_least);
        self
    }

    /// Makes this handle a keeper: it removes dead letters and audits that are older, and outcomes beyond the number and size.
    /// Default: [`Retention::FOREVER`], so that a process which shares a Redis with a server removes nothing that the server keeps. A service
    /// with a store of its own, which no server serves, sets it: [`Retention::default`] has the bounds of `towpath serve`.
    #[must_use]
    pub fn retention(mut self, keep: Retention) -> Self {
        self.retention = Some(keep);
        self
    }

    /// Opens a Redis only if it loses nothing that it has acknowledged and lets us do whatever a server does. One that keeps nothing on disk,
    /// or throws keys away when memory is short, is refused, unless [`durability`](Self::durability) or the URL asks for no more than
    /// `memory`. Default: such things are warned of in the log.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.demand = Demand::Keeps;
        self
    }

    /// Opens a store: `sqlite:./.towpath` (a folder), `sqlite:orders.db` (a file), `redis://…` or `memory:`.
    pub async fn open(mut self, url: &str) -> Result<Towpath, OpenError> {
        let owner = self.owner.take().unwrap_or_else(|| format!("a program using towpath, process {}", std::process::id()));
        let wish = Wish { owner, clock: self.clock.take(), durability: self.durability, demand: self.demand };
        Ok(self.start(open::open(url, wish).await?))
    }

    /// Who keeps batches beside a store that is open already: most often the same one. [`open`](Self::open) finds it by itself.
    #[must_use]
    pub fn batch_store(mut self, store: Arc<dyn BatchStore>) -> Self {
        self.batch_store = Some(store);
        self
    }

    /// The store that keeps runs of workflows beside a store that is open already: most often the same one. [`open`](Self::open) finds it by
    /// itself.
    #[must_use]
    pub fn run_store(mut self, store: Arc<dyn RunStore>) -> Self {
        self.run_store = Some(store);
        self
    }

    /// Puts the store of runs into one of the test kit's.
    #[must_use]
    pub(crate) fn wrap_runs(mut self, wrap: WrapRuns) -> Self {
        self.wrap_runs = Some(wrap);
        self
    }

    /// Where the lists of old producers are. It may be elsewhere than the store. Default: on the store, if that has lists.
    #[must_use]
    pub fn batch_source(mut self, source: Arc<dyn BatchSource>) -> Self {
        self.batch_source = Some(source);
        self
    }

    /// Uses a store that is open already. The store must judge by the same clock. Call it inside a Tokio runtime: loops start here.
    pub fn with_store(mut self, store: Arc<dyn Store>) -> Towpath {
        let clock = self.clock.take().unwrap_or_else(|| Arc::new(SystemClock::new()));
        let (batches, runs) = (self.batch_store.take(), self.run_store.take());
        self.start(OpenStore { store, batches, runs, source: None, clock, closer: None })
    }

    fn start(self, open: OpenStore) -> Towpath {
        let limits = Limits::heard_by(self.observer.clone());
        let clock = open.clock;
        let ids = self.ids.unwrap_or_else(|| Arc::new(SystemIds::new()));
        let functions = Arc::new(FunctionCache::default());
        open.store.prepare_params_with(functions.compiled());
        let observed = Arc::new(ObservedStore::new(open.store, Arc::clone(&clock), self.observer.clone(), Arc::clone(&functions)));
        let broken = observed.broken();
        let batch_store = open.batches.map(|batches| Arc::new(ObservedBatches::new(batches, Arc::clone(&observed))) as Arc<dyn BatchStore>);
        let batches = Batches { store: batch_store, source: self.batch_source.or(open.source), known: KnownBatchers::default() };
        let wrap = self.wrap_runs;
        let runs = open.runs.map(|runs| wrap.map_or_else(|| Arc::clone(&runs), |wrap| wrap(Arc::clone(&runs))));
        let runs = runs.map(|runs| Arc::new(ObservedRuns::new(runs, Arc::clone(&observed))) as Arc<dyn RunStore>);
        let store: Arc<dyn Store> = observed;
        let retention = self.retention.unwrap_or(Retention::FOREVER);
        let engine = Engine::start(&store, runs.as_ref(), &clock, &functions, retention);
        let switchboard = Switchboard::default();
        let inner = Inner {
            store,
            runs,
            served_places: Mutex::default(),
            clock,
            ids,
            functions,
            patience: Arc::default(),
            limits,
            batches,
            observer: self.observer,
            retention,
            broken,
            switchboard,
            engine,
            closer: open.closer,
        };
        Towpath { inner: Arc::new(inner) }
    }
}

impl fmt::Debug for TowpathBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TowpathBuilder").field("clock", &self.clock).field("owner", &self.owner).finish_non_exhaustive()
    }
}
