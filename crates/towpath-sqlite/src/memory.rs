//! What the writer knows by heart, so that the hot path reads no registry: functions, workers, counts. The file is the truth. After a
//! rollback this is read from it again, but for the counts of calls and messages: to count millions takes long, so what a transaction changed
//! of them is noted, and taken back.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rusqlite::{Connection, Row};
use towpath_core::call::{Call, CallState};
use towpath_core::inspect::FunctionCounts;
use towpath_core::limit::Noted;
use towpath_core::names::{CallId, FunctionKey, WorkerId};
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, HEALTHY_FOR, REMEMBERED_FOR};

use crate::batches::BatchMemory;
use crate::gone;
use crate::rows::{self, Stored, call_columns};
use crate::runs::RunMemory;
use crate::trouble::{Moved, Trouble};
use crate::unreadable::Unreadable;

const FUNCTIONS: &str = "SELECT id, scope, name, description, parameters, retry, limits, target, forgotten FROM functions";
const WORKERS: &str = "SELECT worker_id, kind, registered_ms, last_heartbeat_ms FROM workers";
const OFFERS: &str = "SELECT worker_id, function_id, concurrency FROM offers ORDER BY worker_id, position";
pub(crate) const COUNT: &str = "SELECT count(*) FROM calls WHERE function_id = ?1 AND state = ?2";
const RUNNING: &str = concat!("SELECT ", call_columns!(), " FROM calls c WHERE c.lease_until_ms IS NOT NULL AND c.state = 'running'");
const NEXT_SEQ: &str =
    "SELECT max(coalesce((SELECT max(seq) + 1 FROM calls), 1), coalesce((SELECT value FROM meta WHERE key = 'next_seq'), 1))";

/// A function and its place in the file.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) id: i64,
    pub(crate) definition: FunctionDefinition,
    /// Not known any more, but ended calls still name it.
    pub(crate) forgotten: bool,
}

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) kind: String,
    pub(crate) registered_at: Timestamp,
    pub(crate) last_heartbeat: Timestamp,
    /// Function id, and how many of its calls the worker may hold at once.
    pub(crate) offers: Vec<(i64, Option<u32>)>,
}

impl Worker {
    pub(crate) fn is_healthy(&self, now: Timestamp) -> bool {
        now.since(self.last_heartbeat) < HEALTHY_FOR
    }

    pub(crate) fn is_removed_at(&self) -> Timestamp {
        self.last_heartbeat + REMEMBERED_FOR
    }

    fn offers(&self, function_id: i64) -> bool {
        self.offers.iter().any(|(id, _)| *id == function_id)
    }
}

#[derive(Debug, Clone, Copy)]
struct HeldCall {
    function_id: i64,
    parked: bool,
}

/// The part of a call that is counted.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    state: CallState,
    parked: bool,
    holder: Option<WorkerId>,
}

impl Seat {
    pub(crate) fn of(call: &Call) -> Self {
        Self { state: call.state, parked: call.parked, holder: call.holder.clone() }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    functions: BTreeMap<FunctionKey, Arc<Function>>,
    functions_by_id: HashMap<i64, Arc<Function>>,
    counts: HashMap<i64, FunctionCounts>,
    /// The counts that the transaction under way has changed, as they were before it.
    counts_before: HashMap<i64, FunctionCounts>,
    pub(crate) workers: BTreeMap<WorkerId, Worker>,
    held: HashMap<WorkerId, BTreeMap<i64, HeldCall>>,
    /// Calls in workers' hands: each will be answered soon, and need not be read again for that.
    running: HashMap<CallId, Stored>,
    next_seq: i64,
    /// When the first of all kept calls is gone, or earlier. `None`: none has a retention.
    pub(crate) first_kept: Option<Timestamp>,
    /// Rules of limits that were written down lately.
    pub(crate) noted: Noted,
    pub(crate) batches: BatchMemory,
    /// When locks that no holder uses were last looked for.
    pub(crate) locks_swept_at: Option<Timestamp>,
    pub(crate) runs: RunMemory,
    /// Rows that cannot be read.
    pub(crate) unreadable: Arc<Unreadable>,
    /// The disk was full, and has not proved since that it has room.
    pub(crate) was_full: bool,
}

impl Memory {
    pub(crate) fn load(conn: &Connection) -> Moved<Self> {
        let known = Self { batches: BatchMemory::load(conn)?, runs: RunMemory::load(conn)?, ..Self::default() };
        let mut memory = known.load_the_rest(conn)?;
        let mut statement = conn.prepare_cached(COUNT)?;
        for function_id in memory.functions_by_id.keys() {
            let counts = memory.counts.entry(*function_id).or_default();
            for state in [CallState::Queued, CallState::Delayed, CallState::Dead] {
                if let Some(count) = counted(counts, state) {
                    *count = statement.query_row((function_id, state.as_str()), |row| row.get(0))?;
                }
            }
        }
        drop(statement);
        Ok(memory)
    }

    /// The transaction under way was rolled back: what this has to be now.
    pub(crate) fn after_rollback(mut self, conn: &Connection) -> Moved<Self> {
        self.counts.extend(self.counts_before);
        // Calls in workers' hands are counted as they are read.
        self.counts.values_mut().for_each(|counts| (counts.running, counts.parked) = (0, 0));
        self.batches.roll_back();
        self.runs.roll_back();
        let Self { counts, batches, runs, unreadable, was_full, .. } = self;
        Self { counts, batches, runs, unreadable, was_full, ..Self::default() }.load_the_rest(conn)
    }

    /// The transaction under way is kept.
    pub(crate) fn keep_changes(&mut self) {
        self.counts_before.clear();
        self.batches.keep_changes();
        self.runs.keep_changes();
    }

    fn load_the_rest(mut self, conn: &Connection) -> Moved<Self> {
        self.next_seq = conn.query_row(NEXT_SEQ, [], |row| row.get(0))?;
        each(conn, FUNCTIONS, |row| {
            self.put_function(rows::read_definition(row)?);
            Ok(())
        })?;
        each(conn, WORKERS, |row| self.load_worker(row))?;
        each(conn, OFFERS, |row| self.load_offer(row))?;
        each(conn, RUNNING, |row| self.load_running(row))?;
        self.counts_before.clear();
        self.first_kept = gone::first(conn)?;
        Ok(self)
    }

    /// The counts of a function, about to be changed.
    fn counts_mut(&mut self, function_id: i64) -> &mut FunctionCounts {
        let counts = self.counts.entry(function_id).or_default();
        self.counts_before.entry(function_id).or_insert(*counts);
        counts
    }

    fn load_worker(&mut self, row: &Row<'_>) -> Moved<()> {
        let worker = Worker {
            kind: row.get(1)?,
            registered_at: Timestamp::from_millis(row.get(2)?),
            last_heartbeat: Timestamp::from_millis(row.get(3)?),
            offers: Vec::new(),
        };
        self.workers.insert(rows::name(row, 0)?, worker);
        Ok(())
    }

    fn load_offer(&mut self, row: &Row<'_>) -> Moved<()> {
        if let Some(worker) = self.workers.get_mut(&rows::name(row, 0)?) {
            worker.offers.push((row.get(1)?, row.get(2)?));
        }
        Ok(())
    }

    fn load_running(&mut self, row: &Row<'_>) -> Moved<()> {
        self.enter(&rows::read_call(row)?);
        Ok(())
    }

    /// The place of the next call.
    pub(crate) fn next_seq(&self) -> i64 {
        self.next_seq
    }

    /// The next place is taken.
    pub(crate) fn advance_seq(&mut self) {
        self.next_seq += 1;
    }

    /// A call ended and is gone from then on.
    pub(crate) fn note_kept(&mut self, until: Option<Timestamp>) {
        self.first_kept = self.first_kept.into_iter().chain(until).min();
    }

    pub(crate) fn function(&self, key: &FunctionKey) -> Option<Arc<Function>> {
        self.function_even_forgotten(key).filter(|function| !function.forgotten)
    }

    pub(crate) fn function_even_forgotten(&self, key: &FunctionKey) -> Option<Arc<Function>> {
        self.functions.get(key).cloned()
    }

    /// The function of a stored call. A call without one cannot be: a function is forgotten only after its calls.
    pub(crate) fn function_of(&self, stored: &Stored) -> Moved<Arc<Function>> {
        let unknown =
            || Trouble::Corrupt(format!("call {} belongs to function {}, which is not there", stored.call.call_id, stored.function_id));
        self.functions_by_id.get(&stored.function_id).cloned().ok_or_else(unknown)
    }

    pub(crate) fn function_by_id(&self, id: i64) -> Option<Arc<Function>> {
        self.functions_by_id.get(&id).cloned()
    }

    pub(crate) fn functions(&self) -> impl Iterator<Item = &Arc<Function>> {
        self.functions.values().filter(|function| !function.forgotten)
    }

    pub(crate) fn put_function(&mut self, function: Function) {
        let function = Arc::new(function);
        self.functions_by_id.insert(function.id, Arc::clone(&function));
        self.functions.insert(function.definition.key.clone(), function);
    }

    pub(crate) fn counts(&self, function_id: i64) -> FunctionCounts {
        self.counts.get(&function_id).copied().unwrap_or_default()
    }

    /// All workers of a function, and the healthy ones.
    pub(crate) fn workers_of(&self, function_id: i64, now: Timestamp) -> (u64, u64) {
        let offering = self.workers.values().filter(|worker| worker.offers(function_id));
        offering.fold((0, 0), |(all, healthy), worker| (all + 1, healthy + u64::from(worker.is_healthy(now))))
    }

    /// What a worker holds, oldest submit first.
    pub(crate) fn held_by(&self, worker: &WorkerId) -> Vec<i64> {
        self.held.get(worker).map(|held| held.keys().copied().collect()).unwrap_or_default()
    }

    /// How many more calls of a function this worker may be given.
    pub(crate) fn room(&self, function: &Function, worker: &WorkerId) -> u32 {
        let counts = self.counts(function.id);
        let running = counts.running - counts.parked;
        let by_function = function.definition.limits.max_concurrent.map_or(u32::MAX, |max| left(max, running));
        let offer = self.workers.get(worker).and_then(|known| known.offers.iter().find(|(id, _)| *id == function.id));
        let by_worker = offer.and_then(|(_, max)| *max).map_or(u32::MAX, |max| left(max, self.active(worker, function.id)));
        by_function.min(by_worker)
    }

    fn active(&self, worker: &WorkerId, function_id: i64) -> u64 {
        let held = self.held.get(worker).into_iter().flat_map(BTreeMap::values);
        held.filter(|call| call.function_id == function_id && !call.parked).count() as u64
    }

    /// A call in a worker's hands.
    pub(crate) fn running(&self, call_id: &CallId) -> Option<&Stored> {
        self.running.get(call_id)
    }

    /// All calls in workers' hands.
    pub(crate) fn running_mut(&mut self) -> impl Iterator<Item = &mut Stored> {
        self.running.values_mut()
    }

    /// Moves a call from its old seat to where it is now, in all counts.
    pub(crate) fn recount(&mut self, before: &Seat, now: &Stored) {
        self.leave(now, before);
        self.enter(now);
    }

    pub(crate) fn enter(&mut self, stored: &Stored) {
        let call = &stored.call;
        let counts = self.counts_mut(stored.function_id);
        if let Some(count) = counted(counts, call.state) {
            *count += 1;
        }
        if call.state == CallState::Running {
            counts.parked += u64::from(call.parked);
            if let Some(holder) = &call.holder {
                let held = HeldCall { function_id: stored.function_id, parked: call.parked };
                self.held.entry(holder.clone()).or_default().insert(stored.seq, held);
            }
            self.running.insert(call.call_id.clone(), stored.clone());
        }
    }

    /// Takes a call out of the counts of the seat that it had.
    pub(crate) fn leave(&mut self, stored: &Stored, seat: &Seat) {
        let counts = self.counts_mut(stored.function_id);
        if let Some(count) = counted(counts, seat.state) {
            *count -= 1;
        }
        if seat.state == CallState::Running {
            counts.parked -= u64::from(seat.parked);
            if let Some(held) = seat.holder.as_ref().and_then(|holder| self.held.get_mut(holder)) {
                held.remove(&stored.seq);
            }
            self.running.remove(&stored.call.call_id);
        }
    }

    /// Drops the empty shelf of a worker that is gone.
    pub(crate) fn forget_worker(&mut self, worker: &WorkerId) {
        self.workers.remove(worker);
        if self.held.get(worker).is_some_and(BTreeMap::is_empty) {
            self.held.remove(worker);
        }
    }
}

fn counted(counts: &mut FunctionCounts, state: CallState) -> Option<&mut u64> {
    match state {
        CallState::Queued => Some(&mut counts.queued),
        CallState::Delayed => Some(&mut counts.delayed),
        CallState::Running => Some(&mut counts.running),
        CallState::Dead => Some(&mut counts.dead),
        _over => None,
    }
}

fn left(max: u32, used: u64) -> u32 {
    u32::try_from(u64::from(max).saturating_sub(used)).unwrap_or(0)
}

fn each(conn: &Connection, sql: &str, mut take: impl FnMut(&Row<'_>) -> Moved<()>) -> Moved<()> {
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        take(row)?;
    }
    Ok(())
}

/// A function's full name out of two columns.
pub(crate) fn read_key(row: &Row<'_>, scope: usize, name: usize) -> Moved<FunctionKey> {
    Ok(FunctionKey { scope: rows::name(row, scope)?, name: rows::name(row, name)? })
}
