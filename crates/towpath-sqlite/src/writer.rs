//! The one thread that writes. It takes whatever has piled up, runs it in one transaction, commits once, and then answers all of it:
//! group commit without a timer. Waiting claims are parked here and served in the very transaction that brings them work.

use std::collections::HashSet;
use std::fs::File;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};
use towpath_core::call::Call;
use towpath_core::clock::Clock;
use towpath_core::ids::DeliveryId;
use towpath_core::names::{BatcherName, CallId, WaiterId, WorkerId};
use towpath_core::run::{RunId, RunPlace};
use towpath_core::store::{StoreError, StoreTrouble};
use towpath_core::time::{Micros, Timestamp};

use crate::calls;
use crate::claims::{self, ParkedClaim};
use crate::ears::Ears;
use crate::files::Files;
use crate::gone;
use crate::inspect;
use crate::jobs::{Job, job};
use crate::memory::Memory;
use crate::runs;
use crate::timers;
use crate::trouble::{Moved, Trouble};

/// Orders that one commit takes at most. More would make the first of them wait for the last.
const BATCH: usize = 512;
/// Without orders for so long the writer removes rows of gone calls.
const IDLE: Duration = Duration::from_secs(1);
/// The longest wait before the writer looks for such rows again: the clock may have been set.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// With orders all the time it removes some every so often.
const BUSY: Duration = Duration::from_secs(5);

/// What the writer is asked to do.
pub(crate) enum Order {
    /// Make a move.
    Job(Box<dyn Job>),
    /// Find work for a worker, now or when some comes.
    Claim(ParkedClaim),
    /// Finish what came before, then close the file.
    Close(oneshot::Sender<()>),
}

/// A transaction under way. The clock was read once for all of it.
pub(crate) struct Tx<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) now: Timestamp,
    /// The same instant in microseconds, for limits.
    pub(crate) now_us: Micros,
    pub(crate) memory: &'a mut Memory,
    pub(crate) after: &'a mut AfterCommit,
}

/// What has to be said once the transaction is kept, and not before.
#[derive(Default)]
pub(crate) struct AfterCommit {
    pub(crate) ended: Vec<Call>,
    pub(crate) changed: Vec<CallId>,
    pub(crate) attention: Vec<WorkerId>,
    pub(crate) gone: Vec<WorkerId>,
    /// Workers that let a lease run out: their parked claims end empty, and they get no more until they ask again.
    pub(crate) silent: Vec<WorkerId>,
    /// Waiters of locks whose turn may have come.
    pub(crate) turns: Vec<WaiterId>,
    /// Batchers of which something is due then.
    pub(crate) batch_dues: Vec<(BatcherName, Timestamp)>,
    /// Functions that may have work for a parked claim.
    pub(crate) woken: HashSet<i64>,
    /// Something is due then, perhaps earlier than anything before.
    pub(crate) due: Option<Timestamp>,
    /// The timers looked at everything: this is when something is due next.
    pub(crate) next_due: Option<Option<Timestamp>>,
    pub(crate) functions_changed: bool,
    pub(crate) config_version: Option<u64>,
    pub(crate) batchers_version: Option<u64>,
    /// New runs.
    pub(crate) runs_created: u32,
    /// Places of which a run came into a queue.
    pub(crate) runs_queued: HashSet<RunPlace>,
    /// Owners that should look at a run which they execute.
    pub(crate) runs_notified: Vec<(WorkerId, RunId)>,
    /// Runs that have closed.
    pub(crate) runs_closed: Vec<RunId>,
    /// Records written or rewritten.
    pub(crate) moves: u64,
    /// New calls.
    pub(crate) added: u32,
    /// Total of the clock's jumps ahead, if it has changed: leases were renewed because of it.
    pub(crate) jumped: Option<Duration>,
}

impl AfterCommit {
    pub(crate) fn note_due(&mut self, at: Option<Timestamp>) {
        self.due = [self.due, at].into_iter().flatten().min();
    }
}

/// Counted for `towpath bench`, which gives the bare loop the same batch sizes.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) commits: AtomicU64,
    pub(crate) moves: AtomicU64,
    /// The latest failure was a full disk.
    pub(crate) is_full: AtomicBool,
}

/// The ends of the channels that tell the async side what changed.
pub(crate) struct Signals {
    pub(crate) ears: Arc<Ears>,
    pub(crate) due: watch::Sender<Option<Timestamp>>,
    pub(crate) functions: watch::Sender<u64>,
    pub(crate) config: watch::Sender<u64>,
    pub(crate) batchers: watch::Sender<u64>,
    pub(crate) stats: Arc<Stats>,
}

pub(crate) struct Writer {
    pub(crate) conn: Connection,
    /// Held, never read: dropping it lets the next process in.
    pub(crate) lock: Option<File>,
    /// Where the files are, unless the store is in memory.
    pub(crate) files: Option<Files>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) memory: Memory,
    pub(crate) signals: Signals,
    pub(crate) parked: Vec<ParkedClaim>,
    pub(crate) broken: Option<String>,
    pub(crate) housekeeping: Housekeeping,
    /// Total of the clock's jumps ahead up to the latest transaction that was kept.
    pub(crate) jumped: Duration,
}

/// When the writer removes rows of gone calls beside its orders.
pub(crate) struct Housekeeping {
    /// How long no order must have come.
    pause: Duration,
    /// When the writer last did it.
    done_at: Option<Timestamp>,
    /// Something was written since free pages were last looked at.
    pages_may_be_free: bool,
    /// Wakes the writer while it waits for orders with a time limit.
    waker: Waker,
}

impl Default for Housekeeping {
    fn default() -> Self {
        Self { pause: IDLE, done_at: None, pages_may_be_free: true, waker: Waker::noop().clone() }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Where a transaction failed. Before its commit, certainly nothing is kept; in it, nobody can tell.
pub(crate) enum Failed {
    BeforeCommit(Trouble),
    InCommit(Trouble),
}

impl Writer {
    pub(crate) fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut batch = Vec::with_capacity(BATCH);
        self.housekeeping.waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            match self.receive(&mut orders, &mut batch) {
                Some(0) => break,
                Some(_some) => {}
                None => {
                    self.keep_house();
                    continue;
                }
            }
            let (mut jobs, mut claims) = (Vec::new(), Vec::new());
            for order in batch.drain(..) {
                match order {
                    Order::Job(job) => jobs.push(job),
                    Order::Claim(claim) => claims.push(claim),
                    Order::Close(done) => {
                        self.serve(std::mem::take(&mut jobs), std::mem::take(&mut claims));
                        self.close();
                        let _nobody_waits_any_more = done.send(());
                        return;
                    }
                }
            }
            self.serve(jobs, claims);
            if self.is_housekeeping_overdue() {
                self.keep_house();
            }
        }
        self.close();
    }

    /// Waits for orders and returns how many came; 0 when there will be none. `None`: there is time to remove rows of gone calls.
    fn receive(&self, orders: &mut mpsc::Receiver<Order>, batch: &mut Vec<Order>) -> Option<usize> {
        let Some(at_most) = self.time_until_housekeeping() else { return Some(orders.blocking_recv_many(batch, BATCH)) };
        let mut context = Context::from_waker(&self.housekeeping.waker);
        if let Poll::Ready(count) = pin!(orders.recv_many(batch, BATCH)).poll(&mut context) {
            return Some(count);
        }
        // Being woken for nothing costs one early look.
        thread::park_timeout(at_most);
        match pin!(orders.recv_many(batch, BATCH)).poll(&mut context) {
            Poll::Ready(count) => Some(count),
            Poll::Pending => None,
        }
    }

    /// How long to wait for orders before there is something else to do. `None`: there is nothing.
    fn time_until_housekeeping(&self) -> Option<Duration> {
        if self.broken.is_some() {
            return None;
        }
        if self.housekeeping.pages_may_be_free {
            return Some(self.housekeeping.pause);
        }
        let kept_until = self.memory.first_kept?;
        Some(kept_until.since(self.clock.now()).max(self.housekeeping.pause).min(IDLE_MAX))
    }

    /// Orders have come without a pause for a while.
    fn is_housekeeping_overdue(&self) -> bool {
        let now = self.clock.now();
        let is_needed = self.broken.is_none() && self.memory.first_kept.is_some_and(|at| at <= now);
        is_needed && self.housekeeping.done_at.is_none_or(|at| now.since(at) >= BUSY)
    }

    /// Removes a chunk of rows of gone calls, in a transaction of its own: if that fails, no order fails with it.
    fn keep_house(&mut self) {
        let now = self.clock.now();
        self.housekeeping.pause = IDLE;
        if self.memory.first_kept.is_none_or(|at| now < at) {
            return self.give_back_pages();
        }
        let (order, mut removed) = job(|tx| gone::remove(tx, gone::CHUNK));
        let Order::Job(job) = order else { return };
        self.serve(vec![job], Vec::new());
        self.housekeeping.done_at = Some(now);
        self.housekeeping.pause = match removed.try_recv() {
            Ok(Ok(gone::CHUNK)) => Duration::ZERO, // there may be more
            Ok(Ok(_all)) => IDLE,
            _failed => IDLE_MAX,
        };
    }

    fn give_back_pages(&mut self) {
        match gone::give_back(&self.conn) {
            Ok(true) => self.housekeeping.pause = Duration::ZERO,
            Ok(false) => self.housekeeping.pages_may_be_free = false,
            Err(trouble) => {
                tracing::debug!(%trouble, "free pages were not given back to the disk");
                self.housekeeping.pages_may_be_free = false;
            }
        }
    }

    fn close(self) {
        // Folds the log into the file, so that a copy of the file alone is whole. If it fails the log stays, which is as good.
        let _log_stays = self.conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
        drop(self.conn);
        drop(self.lock);
    }

    pub(crate) fn serve(&mut self, mut jobs: Vec<Box<dyn Job>>, fresh: Vec<ParkedClaim>) {
        if let Some(cause) = &self.broken {
            let refusal = StoreError::Unavailable(StoreTrouble::Broken(cause.clone()));
            return refuse(jobs, fresh, &refusal);
        }
        if let Some(cause) = self.files.as_ref().and_then(Files::removed) {
            return refuse(jobs, fresh, &StoreError::Unavailable(StoreTrouble::Removed(cause)));
        }
        self.parked.retain(ParkedClaim::is_wanted);
        let mut claims = std::mem::take(&mut self.parked);
        claims.extend(fresh);
        match self.attempt(&mut jobs, &mut claims) {
            Ok(after) => {
                // News first: whoever has a reply in hand may expect that watchers have heard.
                self.announce(&after);
                jobs.into_iter().for_each(|job| job.answer(None));
                self.hand_out(claims);
            }
            Err(failed) => self.serve_one_by_one(&failed, jobs, claims),
        }
    }

    /// One of many moves failed: run each alone, so that it spoils no other. A full disk may have room for a small move still.
    fn serve_one_by_one(&mut self, failed: &Failed, jobs: Vec<Box<dyn Job>>, mut claims: Vec<ParkedClaim>) {
        let refusal = self.after_failure(failed);
        let only_one = jobs.len() + claims.iter().filter(|claim| claim.is_fresh()).count() <= 1;
        if only_one || self.broken.is_some() || matches!(refusal, StoreError::Unknown(_)) {
            jobs.into_iter().for_each(|job| job.answer(Some(refusal.clone())));
            return self.refuse_fresh(claims, &refusal);
        }
        for job in jobs {
            let mut alone = vec![job];
            let outcome = self.attempt(&mut alone, &mut []);
            let error = match outcome {
                Ok(after) => {
                    self.announce(&after);
                    None
                }
                Err(failed) => Some(self.after_failure(&failed)),
            };
            alone.into_iter().for_each(|job| job.answer(error.clone()));
        }
        claims.iter_mut().for_each(ParkedClaim::look_again);
        match self.attempt(&mut [], &mut claims) {
            Ok(after) => {
                self.announce(&after);
                self.hand_out(claims);
            }
            Err(failed) => {
                let refusal = self.after_failure(&failed);
                self.refuse_fresh(claims, &refusal);
            }
        }
    }

    /// A parked claim has promised nothing and goes on waiting; a fresh one is told what is wrong.
    fn refuse_fresh(&mut self, claims: Vec<ParkedClaim>, refusal: &StoreError) {
        for claim in claims {
            if claim.is_fresh() || self.broken.is_some() { claim.refuse(refusal.clone()) } else { self.parked.push(claim) }
        }
    }

    fn attempt(&mut self, jobs: &mut [Box<dyn Job>], claims: &mut [ParkedClaim]) -> Result<AfterCommit, Failed> {
        let mut after = AfterCommit::default();
        self.run_all(jobs, claims, &mut after).map_err(Failed::BeforeCommit)?;
        self.commit().map_err(Failed::InCommit)?;
        self.jumped = after.jumped.unwrap_or(self.jumped);
        self.memory.keep_changes();
        self.housekeeping.pages_may_be_free |= !jobs.is_empty();
        self.signals.stats.commits.fetch_add(u64::from(after.moves > 0), Ordering::Relaxed);
        self.signals.stats.moves.fetch_add(after.moves, Ordering::Relaxed);
        Ok(after)
    }

    fn run_all(&mut self, jobs: &mut [Box<dyn Job>], claims: &mut [ParkedClaim], after: &mut AfterCommit) -> Moved<()> {
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let now_us = self.clock.now_us();
        let mut tx = Tx { conn: &self.conn, now: now_us.to_millis(), now_us, memory: &mut self.memory, after };
        after_jumps(&mut tx, self.clock.as_ref(), self.jumped)?;
        for job in jobs {
            job.run(&mut tx)?;
        }
        // Last, so that what the jobs brought is handed out in the same commit, to whoever has waited longest.
        for claim in claims {
            claims::serve(&mut tx, claim)?;
        }
        runs::keep_up(&mut tx)?;
        gone::keep_up(&mut tx)
    }

    fn commit(&self) -> Moved<()> {
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    /// Rolls back, reads again what is known by heart, and says what the callers hear.
    pub(crate) fn after_failure(&mut self, failed: &Failed) -> StoreError {
        let (Failed::BeforeCommit(trouble) | Failed::InCommit(trouble)) = failed;
        tracing::warn!(%trouble, "a transaction failed");
        if trouble.is_failed_sync() {
            let cause = trouble.to_string();
            self.broken = Some(cause.clone());
            return StoreError::Unknown(cause);
        }
        if !self.conn.is_autocommit() && self.conn.execute_batch("ROLLBACK").is_err() {
            self.broken = Some(format!("a rollback failed after: {trouble}"));
        }
        match std::mem::take(&mut self.memory).after_rollback(&self.conn) {
            Ok(memory) => self.memory = memory,
            Err(unreadable) => self.broken = Some(format!("the file cannot be read: {unreadable}")),
        }
        self.memory.was_full |= trouble.is_full();
        self.signals.stats.is_full.store(trouble.is_full(), Ordering::Relaxed);
        if matches!(failed, Failed::InCommit(_)) && !self.is_certainly_undone(trouble) {
            return StoreError::Unknown(format!("a commit failed: {trouble}"));
        }
        trouble.nothing_written()
    }

    /// A commit that failed may have left all its frames in the log, and after a crash they would count. Another commit overwrites the first of
    /// them, and without it the others are not valid. If both commits find the disk full, that is as certain: `SQLITE_FULL` is an incomplete write
    /// of a frame, and the frame that makes a transaction count is written last; the second attempt either overwrote the first frame or found no
    /// room for it, as the first attempt did.
    fn is_certainly_undone(&self, trouble: &Trouble) -> bool {
        let overwrite = || -> Moved<()> {
            self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            inspect::write_probe(&self.conn, self.clock.now())?;
            self.commit()
        };
        let is_undone =
            self.broken.is_none() && overwrite().map_or_else(|second| trouble.is_short_write() && second.is_short_write(), |()| true);
        if !self.conn.is_autocommit() {
            // The next transaction says what is wrong if this fails, too.
            let _it_is_said_later = self.conn.execute_batch("ROLLBACK");
        }
        is_undone
    }

    fn announce(&self, after: &AfterCommit) {
        let signals = &self.signals;
        for call in &after.ended {
            signals.ears.tell_ended(call);
        }
        for call_id in &after.changed {
            signals.ears.tell_changed(call_id);
        }
        for worker in &after.attention {
            signals.ears.call_for_attention(worker);
        }
        for worker in &after.gone {
            signals.ears.forget_worker(worker);
        }
        signals.ears.tell_turns(&after.turns);
        signals.ears.tell_dues(&after.batch_dues);
        if let Some(next) = after.next_due {
            signals.due.send_replace(next);
        }
        if let Some(at) = after.due {
            signals.due.send_if_modified(|due| {
                let earlier = due.is_none_or(|due| at < due);
                if earlier {
                    *due = Some(at);
                }
                earlier
            });
        }
        if after.functions_changed {
            signals.functions.send_modify(|count| *count += 1);
        }
        if let Some(version) = after.config_version {
            signals.config.send_replace(version);
        }
        if let Some(version) = after.batchers_version {
            signals.batchers.send_replace(version);
        }
        signals.ears.runs.tell_queued(&after.runs_queued);
        signals.ears.runs.tell_owners(&after.runs_notified);
        signals.ears.runs.tell_closed(&after.runs_closed);
    }

    /// Gives every served claim its calls. Whoever is gone by now gets none, and the calls go back for the next.
    fn hand_out(&mut self, claims: Vec<ParkedClaim>) {
        let (now, mut undelivered) = (self.clock.now(), Vec::new());
        for claim in claims {
            match claim.deliver(now) {
                claims::Handed::Over => {}
                claims::Handed::Waits(claim) => self.parked.push(claim),
                claims::Handed::Back { worker, deliveries } => undelivered.push((worker, deliveries)),
            }
        }
        if !undelivered.is_empty() {
            self.take_back(undelivered);
        }
    }

    fn take_back(&mut self, undelivered: Vec<(WorkerId, Vec<DeliveryId>)>) {
        let release = undelivered.into_iter().map(|(worker, deliveries)| {
            let (order, _nobody_waits) = job(move |tx| calls::release(tx, &worker, &deliveries));
            order
        });
        let jobs = release.filter_map(|order| if let Order::Job(job) = order { Some(job) } else { None }).collect();
        self.serve(jobs, Vec::new());
    }
}

/// The clock has jumped ahead since the last transaction: leases count from now on, before a timer ends them.
fn after_jumps(tx: &mut Tx<'_>, clock: &dyn Clock, known: Duration) -> Moved<()> {
    let Some(jumped) = clock.jumps().map(|jumps| jumps.ahead).filter(|jumped| *jumped > known) else { return Ok(()) };
    timers::after_jump(tx, jumped - known)?;
    tx.after.jumped = Some(jumped);
    Ok(())
}

fn refuse(jobs: Vec<Box<dyn Job>>, claims: Vec<ParkedClaim>, refusal: &StoreError) {
    jobs.into_iter().for_each(|job| job.answer(Some(refusal.clone())));
    claims.into_iter().for_each(|claim| claim.refuse(refusal.clone()));
}
