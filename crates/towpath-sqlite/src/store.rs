//! The store as the engine sees it: the traits, handed to the writer or the reader.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use async_trait::async_trait;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};
use towpath_core::clock::Clock;
use towpath_core::ids::DeliveryId;
use towpath_core::inspect::{
    CallFilter, CallView, FunctionView, LimitPage, LimitQuery, LockPage, LockQuery, LockView, Page, PageRequest, PermitPage, PermitView,
    StoreStatus,
};
use towpath_core::limit::{Check, LimitReply, Rules};
use towpath_core::names::{CallId, FunctionKey, LimitScope, LockScope, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::permit::PermitKind;
use towpath_core::store::{
    CallStore, CallWatch, Cancelled, ClaimCalls, CompleteCalls, Completed, ConfigView, Delivery, Durability, Fired, Forgotten, Heartbeat,
    InspectStore, LimitStore, RegistryStore, RenewCalls, Renewal, Replayed, Retention, SetConfig, StoreError, StoreTrouble, SubmitCall,
    Submitted, TimerStore,
};
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, RegisterWorker, WorkerView};

use crate::claims::ParkedClaim;
use crate::ears::Ears;
use crate::jobs::{early_job, job};
use crate::memory::Memory;
use crate::open::{self, OpenError, OpenOptions, Readers};
use crate::trouble::{Moved, Trouble};
use crate::unreadable::Unreadable;
use crate::writer::{Housekeeping, Order, Signals, Stats, Tx, Writer};
use crate::{ahead, batches, calls, inspect, limits, lists, locks, permits, registry, retention, timers};

/// Orders that may wait for the writer. A later caller waits for room, so a slow disk is felt and not buffered.
const ORDERS: usize = 4_096;

type Read = Box<dyn FnOnce(&Connection) + Send>;

/// The embedded store.
pub struct SqliteStore {
    orders: mpsc::Sender<Order>,
    /// Where reads go: those of calls and batches, and lists for people. `None`: in memory there is only the writer.
    reads: Option<Reads>,
    pub(crate) ears: Arc<Ears>,
    due: watch::Receiver<Option<Timestamp>>,
    functions: watch::Receiver<u64>,
    config: watch::Receiver<u64>,
    pub(crate) batchers: watch::Receiver<u64>,
    pub(crate) unreadable: Arc<Unreadable>,
    pub(crate) clock: Arc<dyn Clock>,
    stats: Arc<Stats>,
    name: String,
    pub(crate) durability: Durability,
    /// Somebody closed it. A writer that is gone without that has failed.
    closing: AtomicBool,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqliteStore({})", self.name)
    }
}

impl SqliteStore {
    /// Opens the store and starts its threads. Blocks for as long as the disk takes.
    pub fn open(options: &OpenOptions, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let opened = open::open(options)?;
        let unreadable = |cause| OpenError::Sqlite { path: opened.name.clone().into(), cause };
        let load = |conn: &Connection| {
            ahead::bring_back(conn, clock.now())?;
            let mut memory = Memory::load(conn)?;
            if options.renew_leases
                && let Err(trouble) = timers::renew_leases(conn, &mut memory, clock.now())
            {
                // A full disk, say. Without it calls are only taken back sooner than need be.
                tracing::warn!(%trouble, "leases could not be renewed at the opening");
                conn.execute_batch("ROLLBACK")?;
                memory = Memory::load(conn)?;
            }
            let next_due = timers::next_of_all(conn, &memory)?;
            Ok((memory, next_due, batches::settings_version(conn)?))
        };
        let (memory, next_due, batchers_version) = load(&opened.writer).map_err(|trouble: Trouble| unreadable(trouble.to_string()))?;
        let durability = if opened.readers.is_some() { Durability::Fsync } else { Durability::Memory };
        let (ears, stats) = (Arc::new(Ears::default()), Arc::new(Stats::default()));
        let (due, due_seen) = watch::channel(next_due);
        // A task that starts at 0 shall hear of the functions that are already there.
        let (functions, functions_seen) = watch::channel(u64::from(memory.functions().next().is_some()));
        let (config, config_seen) = watch::channel(0);
        let (batchers, batchers_seen) = watch::channel(batchers_version);
        let signals = Signals { ears: Arc::clone(&ears), due, functions, config, batchers, stats: Arc::clone(&stats) };
        let unreadable = Arc::clone(&memory.unreadable);
        let (orders, inbox) = mpsc::channel(ORDERS);
        let name = opened.name.clone();
        let writer = Writer {
            conn: opened.writer,
            lock: opened.lock,
            files: opened.files,
            clock: Arc::clone(&clock),
            memory,
            signals,
            parked: Vec::new(),
            broken: None,
            housekeeping: Housekeeping::default(),
            jumped: clock.jumps().unwrap_or_default().ahead,
        };
        spawn("towpath-writer", move || writer.run(inbox)).map_err(|cause| OpenError::Sqlite { path: name.into(), cause })?;
        let start = |readers: Readers| Reads { for_work: start_reader(readers.for_work), for_lists: start_reader(readers.for_lists) };
        let reads = opened.readers.map(start);
        let (due, functions, config) = (due_seen, functions_seen, config_seen);
        Ok(Self {
            orders,
            reads,
            ears,
            due,
            functions,
            config,
            batchers: batchers_seen,
            unreadable,
            clock,
            stats,
            name: opened.name,
            durability,
            closing: AtomicBool::new(false),
        })
    }

    /// Finishes what was asked before, folds the log into the file and lets the next process in.
    pub async fn close(&self) {
        self.closing.store(true, Ordering::Release);
        let (done, closed) = oneshot::channel();
        if self.orders.send(Order::Close(done)).await.is_ok() {
            let _closed_either_way = closed.await;
        }
    }

    /// What is said when the writer is not there any more.
    pub(crate) fn gone(&self) -> StoreError {
        StoreError::Unavailable(if self.closing.load(Ordering::Acquire) {
            StoreTrouble::Closed
        } else {
            StoreTrouble::Broken("the thread that writes has stopped".to_owned())
        })
    }

    /// Runs a move on the writer and waits until it is kept.
    pub(crate) async fn make<R: Send + 'static>(&self, run: impl FnMut(&mut Tx<'_>) -> Moved<R> + Send + 'static) -> Result<R, StoreError> {
        let (order, reply) = job(run);
        self.orders.send(order).await.map_err(|_| self.gone())?;
        reply.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Runs a move on the writer and waits until it is applied, not until it is kept.
    async fn make_early<R: Send + 'static>(&self, run: impl FnMut(&mut Tx<'_>) -> Moved<R> + Send + 'static) -> Result<R, StoreError> {
        let (order, reply) = early_job(run);
        self.orders.send(order).await.map_err(|_| self.gone())?;
        reply.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Runs a read beside the writer, or on it where there is only its connection.
    pub(crate) async fn read<R: Send + 'static>(&self, run: impl FnMut(&Connection) -> Moved<R> + Send + 'static) -> Result<R, StoreError> {
        self.read_on(self.reads.as_ref().map(|reads| &reads.for_work), run).await
    }

    /// Runs a list for people beside the writer, and beside what calls and batches read.
    pub(crate) async fn list<R: Send + 'static>(
        &self,
        mut run: impl FnMut(&Connection) -> Moved<R> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.read_on(self.reads.as_ref().map(|reads| &reads.for_lists), move |conn| at_one_instant(conn, &mut run)).await
    }

    async fn read_on<R: Send + 'static>(
        &self,
        reads: Option<&mpsc::Sender<Read>>,
        mut run: impl FnMut(&Connection) -> Moved<R> + Send + 'static,
    ) -> Result<R, StoreError> {
        let Some(reads) = reads else { return self.make(move |tx| run(tx.conn)).await };
        let (to, reply) = oneshot::channel();
        let read: Read = Box::new(move |conn| {
            let _nobody_waits_any_more = to.send(run(conn).map_err(|trouble| trouble.nothing_written()));
        });
        reads.send(read).await.map_err(|_| self.gone())?;
        reply.await.unwrap_or_else(|_| Err(self.gone()))
    }
}

/// A claim that somebody waits for. When that one goes away with the answer already on its way, the calls in it go back.
struct PendingClaim<'a> {
    reply: oneshot::Receiver<Result<Vec<Delivery>, StoreError>>,
    worker: WorkerId,
    orders: &'a mpsc::Sender<Order>,
}

impl Drop for PendingClaim<'_> {
    fn drop(&mut self) {
        self.reply.close(); // from here on the writer sees that nobody listens
        let Ok(Ok(unheard)) = self.reply.try_recv() else { return };
        let worker = self.worker.clone();
        let deliveries: Vec<DeliveryId> = unheard.into_iter().map(|delivery| delivery.id).collect();
        let (order, _nobody_waits) = job(move |tx| calls::release(tx, &worker, &deliveries));
        if self.orders.try_send(order).is_err() {
            tracing::warn!(worker = %self.worker, "calls of a dropped claim could not be handed back; they come back when their lease is over");
        }
    }
}

/// The threads that read.
struct Reads {
    for_work: mpsc::Sender<Read>,
    for_lists: mpsc::Sender<Read>,
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), String> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop).map_err(|cause| cause.to_string())
}

fn start_reader(conn: Connection) -> mpsc::Sender<Read> {
    let (reads, mut inbox) = mpsc::channel::<Read>(64);
    let run = move || {
        while let Some(read) = inbox.blocking_recv() {
            read(&conn);
        }
    };
    if let Err(cause) = spawn("towpath-reader", run) {
        tracing::error!(cause, "no thread for reads: lists will not be available");
    }
    reads
}

/// Reads with all statements at one instant: a call that moves in between is neither listed twice nor left out.
fn at_one_instant<R>(conn: &Connection, run: &mut impl FnMut(&Connection) -> Moved<R>) -> Moved<R> {
    // On the writer's connection a transaction is under way.
    let snapshot = if conn.is_autocommit() { Some(conn.unchecked_transaction()?) } else { None };
    let read = run(conn)?;
    if let Some(snapshot) = snapshot {
        snapshot.commit()?;
    }
    Ok(read)
}

#[async_trait]
impl CallStore for SqliteStore {
    async fn submit(&self, call: SubmitCall) -> Result<Submitted, StoreError> {
        let durability = self.durability;
        self.make(move |tx| calls::submit(tx, &call, durability)).await
    }

    async fn claim(&self, want: ClaimCalls) -> Result<Vec<Delivery>, StoreError> {
        if want.max == 0 || want.functions.iter().all(|wish| wish.max == 0) {
            return Ok(Vec::new()); // no call could ever satisfy it
        }
        let until = self.clock.now() + want.wait;
        let worker = want.worker.clone();
        let (claim, reply) = ParkedClaim::new(want, until);
        self.orders.send(Order::Claim(claim)).await.map_err(|_| self.gone())?;
        let mut reply = PendingClaim { reply, worker, orders: &self.orders };
        tokio::select! {
            biased;
            found = &mut reply.reply => return found.unwrap_or_else(|_| Err(self.gone())),
            () = self.clock.sleep_until(until) => {}
        }
        // The time is over, but only the writer knows whether it has just found something: have it look, and answer either way.
        let (look, _no_reply_needed) = job(|_| Ok(()));
        self.orders.send(look).await.map_err(|_| self.gone())?;
        (&mut reply.reply).await.unwrap_or_else(|_| Err(self.gone()))
    }

    async fn renew(&self, leases: RenewCalls) -> Result<Vec<Renewal>, StoreError> {
        self.make(move |tx| calls::renew(tx, &leases)).await
    }

    async fn complete(&self, answers: CompleteCalls) -> Result<Vec<Completed>, StoreError> {
        self.make(move |tx| calls::complete(tx, &answers)).await
    }

    async fn release(&self, worker: &WorkerId, deliveries: Vec<DeliveryId>) -> Result<u64, StoreError> {
        let worker = worker.clone();
        self.make(move |tx| calls::release(tx, &worker, &deliveries)).await
    }

    async fn park(&self, worker: &WorkerId, delivery: &DeliveryId, parked: bool) -> Result<Renewal, StoreError> {
        let (worker, delivery) = (worker.clone(), delivery.clone());
        self.make(move |tx| calls::park(tx, &worker, &delivery, parked)).await
    }

    async fn report_progress(&self, worker: &WorkerId, delivery: &DeliveryId, progress: Payload) -> Result<Renewal, StoreError> {
        let (worker, delivery) = (worker.clone(), delivery.clone());
        self.make(move |tx| calls::report_progress(tx, &worker, &delivery, &progress)).await
    }

    async fn cancel(&self, call_id: &CallId) -> Result<Cancelled, StoreError> {
        let call_id = call_id.clone();
        self.make(move |tx| calls::cancel(tx, &call_id)).await
    }

    async fn replay_dead(&self, call_id: &CallId, replay_id: CallId) -> Result<Replayed, StoreError> {
        let call_id = call_id.clone();
        self.make(move |tx| calls::replay_dead(tx, &call_id, &replay_id)).await
    }

    async fn drop_dead(&self, call_id: &CallId) -> Result<bool, StoreError> {
        let call_id = call_id.clone();
        self.make(move |tx| calls::drop_dead(tx, &call_id)).await
    }

    fn watch(&self, call_id: &CallId) -> Box<dyn CallWatch> {
        self.ears.watch(call_id)
    }

    async fn attention(&self, worker: &WorkerId) {
        self.ears.attention(worker).notified().await;
    }
}

#[async_trait]
impl RegistryStore for SqliteStore {
    async fn register(&self, worker: RegisterWorker) -> Result<(), StoreError> {
        self.make(move |tx| registry::register(tx, &worker)).await
    }

    async fn heartbeat(&self, worker: &WorkerId) -> Result<Heartbeat, StoreError> {
        let worker = worker.clone();
        self.make(move |tx| registry::heartbeat(tx, &worker)).await
    }

    async fn unregister(&self, worker: &WorkerId) -> Result<u64, StoreError> {
        let worker = worker.clone();
        self.make(move |tx| registry::unregister(tx, &worker)).await
    }

    async fn define(&self, function: FunctionDefinition) -> Result<(), StoreError> {
        self.make(move |tx| registry::define(tx, &function).map(drop)).await
    }

    async fn redefine(&self, before: &FunctionDefinition, after: FunctionDefinition) -> Result<bool, StoreError> {
        let before = before.clone();
        self.make(move |tx| registry::redefine(tx, &before, &after)).await
    }

    async fn forget(&self, function: &FunctionKey) -> Result<bool, StoreError> {
        let function = function.clone();
        self.make(move |tx| registry::forget(tx, &function)).await
    }

    async fn find(&self, function: &FunctionKey, until: Timestamp) -> Result<Option<FunctionView>, StoreError> {
        let mut changes = self.functions.clone();
        loop {
            changes.mark_unchanged();
            let key = function.clone();
            let found = self.make(move |tx| tx.memory.function(&key).map(|known| registry::view(tx, &known)).transpose()).await?;
            if found.is_some() || self.clock.now() >= until {
                return Ok(found);
            }
            tokio::select! {
                changed = changes.changed() => changed.map_err(|_| self.gone())?,
                () = self.clock.sleep_until(until) => {}
            }
        }
    }

    async fn functions_changed(&self, seen: u64) -> Result<u64, StoreError> {
        let mut changes = self.functions.clone();
        changes.wait_for(|count| *count != seen).await.map(|count| *count).map_err(|_| self.gone())
    }

    async fn config(&self) -> Result<ConfigView, StoreError> {
        self.make(|tx| registry::config(tx)).await
    }

    async fn set_config(&self, change: SetConfig) -> Result<Option<ConfigView>, StoreError> {
        self.make(move |tx| registry::set_config(tx, &change)).await
    }

    async fn config_changed(&self, seen: u64, until: Timestamp) -> Result<ConfigView, StoreError> {
        let mut changes = self.config.clone();
        loop {
            changes.mark_unchanged();
            let view = self.config().await?;
            if view.version != seen || self.clock.now() >= until {
                return Ok(view);
            }
            tokio::select! {
                changed = changes.changed() => changed.map_err(|_| self.gone())?,
                () = self.clock.sleep_until(until) => {}
            }
        }
    }
}

#[async_trait]
impl LimitStore for SqliteStore {
    async fn take(&self, check: &Check) -> Result<LimitReply, StoreError> {
        let check = check.clone();
        self.make_early(move |tx| limits::put(tx, &check)).await
    }

    async fn reset(&self, scope: &LimitScope, rules: &Rules) -> Result<u64, StoreError> {
        let (scope, rules) = (scope.clone(), rules.clone());
        self.make(move |tx| limits::reset(tx, &scope, &rules)).await
    }
}

#[async_trait]
impl TimerStore for SqliteStore {
    async fn fire_due(&self, limit: u32) -> Result<Fired, StoreError> {
        self.make(move |tx| timers::fire_due(tx, limit)).await
    }

    async fn due_before(&self, known: Option<Timestamp>) -> Timestamp {
        let mut due = self.due.clone();
        let earlier = due.wait_for(|due| due.is_some_and(|due| known.is_none_or(|known| due < known))).await;
        match earlier.ok().and_then(|due| *due) {
            Some(at) => at,
            None => std::future::pending().await, // the store is closed: nothing will ever be due
        }
    }

    async fn forget_old(&self, keep: &Retention, limit: u32) -> Result<Forgotten, StoreError> {
        let keep = *keep;
        let excess = self.list(move |conn| retention::excess(conn, keep.outcomes)).await?;
        self.make(move |tx| retention::forget_old(tx, &keep, excess, limit)).await
    }
}

#[async_trait]
impl InspectStore for SqliteStore {
    async fn call(&self, call_id: &CallId) -> Result<Option<CallView>, StoreError> {
        let (call_id, now) = (call_id.clone(), self.clock.now());
        self.read(move |conn| inspect::call(conn, &call_id, now)).await
    }

    async fn calls(&self, filter: &CallFilter, page: PageRequest) -> Result<Page<CallView>, StoreError> {
        let (filter, now) = (filter.clone(), self.clock.now());
        self.list(move |conn| lists::calls(conn, &filter, &page, now)).await
    }

    async fn functions(&self) -> Result<Vec<FunctionView>, StoreError> {
        self.make(|tx| inspect::functions(tx)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        self.make(|tx| Ok(inspect::workers(tx))).await
    }

    async fn lock(&self, scope: &LockScope) -> Result<Option<LockView>, StoreError> {
        let scope = scope.clone();
        self.make(move |tx| locks::view(tx, &scope)).await
    }

    async fn locks(&self, query: &LockQuery) -> Result<LockPage, StoreError> {
        let query = query.clone();
        self.make(move |tx| locks::page(tx, &query)).await
    }

    async fn permits(&self, kind: PermitKind, scope: &LockScope) -> Result<Option<PermitView>, StoreError> {
        let scope = scope.clone();
        self.make(move |tx| permits::view(tx, kind, &scope)).await
    }

    async fn limits(&self, query: &LimitQuery) -> Result<LimitPage, StoreError> {
        let query = query.clone();
        self.make(move |tx| limits::page(tx, &query)).await
    }

    async fn permit_list(&self, kind: PermitKind, query: &LockQuery) -> Result<PermitPage, StoreError> {
        let query = query.clone();
        self.make(move |tx| permits::page(tx, kind, &query)).await
    }

    async fn probe(&self) -> Result<StoreStatus, StoreError> {
        let is_full = |error| inspect::told_by_a_probe(error, self.stats.is_full.load(Ordering::Relaxed));
        self.make(inspect::probe).await.map_err(is_full)?;
        let (commits, moves) = (self.stats.commits.load(Ordering::Relaxed), self.stats.moves.load(Ordering::Relaxed));
        Ok(StoreStatus {
            location: self.name.clone(),
            durability: self.durability,
            now: self.clock.now(),
            commits,
            moves,
            refuses: None,
            problems: self.unreadable.problems(self.clock.now()),
        })
    }
}
