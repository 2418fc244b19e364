//! What the model keeps, and the plain counts that its decisions rest on. Everything is found by looking at all there is.

use std::collections::{BTreeMap, BTreeSet};

use towpath_core::call::{Call, CallRequest, CallState, RetryPolicy};
use towpath_core::inspect::{CallView, FunctionCounts, FunctionView};
use towpath_core::limit::{LimitState, NotedRule, StateName};
use towpath_core::lock::LockState;
use towpath_core::names::{CallId, FunctionKey, IdempotencyKey, LimitScope, LockScope, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::permit::{PermitKind, PermitState};
use towpath_core::store::ConfigView;
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, HEALTHY_FOR, REMEMBERED_FOR, WorkerView};

use super::batches::BatchRecords;
use super::runs::RunRecords;

/// Everything that survives a restart.
#[derive(Clone)]
pub(super) struct Records {
    /// All calls by submit sequence, which starts at 1 and is never used again: walking this map is walking from old to new.
    pub(super) calls: BTreeMap<u64, Record>,
    /// Where each call stands in `calls`.
    sequences: BTreeMap<CallId, u64>,
    /// The latest sequence given out.
    last_sequence: u64,
    /// Which call a function's idempotency key leads to. An entry goes when its call is gone.
    pub(super) keys: BTreeMap<(FunctionKey, IdempotencyKey), CallId>,
    /// The functions that are known.
    pub(super) functions: BTreeMap<FunctionKey, FunctionDefinition>,
    /// How often the set of functions or a definition has changed.
    pub(super) function_changes: u64,
    /// The workers that are known.
    pub(super) workers: BTreeMap<WorkerId, Worker>,
    /// The locks of which anything is known.
    pub(super) locks: BTreeMap<LockScope, LockState>,
    /// The semaphores and read/write locks of which anything is known.
    pub(super) permits: BTreeMap<(PermitKind, LockScope), PermitState>,
    /// Batches and batchers.
    pub(super) batches: BatchRecords,
    /// Runs of workflows.
    pub(super) runs: RunRecords,
    /// The shared configuration.
    pub(super) config: ConfigView,
    /// What is remembered of rules. Nothing is ever swept: what is over counts for nothing.
    pub(super) limits: BTreeMap<(LimitScope, StateName), LimitState>,
    /// Rules that have counted something.
    pub(super) limits_noted: BTreeSet<NotedRule>,
}

/// A call with all that belongs to it.
#[derive(Clone)]
pub(super) struct Record {
    pub(super) call: Call,
    pub(super) request: CallRequest,
    /// The latest report and its number; the first is 1, and a retry goes on counting.
    pub(super) progress: Option<(u32, Payload)>,
}

/// A worker as it introduced itself.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) kind: String,
    /// What it serves, as it named it, and how many calls of it at once by the store's count.
    pub(super) offers: Vec<(FunctionKey, Option<u32>)>,
    pub(super) registered_at: Timestamp,
    pub(super) last_heartbeat: Timestamp,
}

impl Default for Records {
    fn default() -> Self {
        Self {
            calls: BTreeMap::new(),
            sequences: BTreeMap::new(),
            last_sequence: 0,
            keys: BTreeMap::new(),
            functions: BTreeMap::new(),
            function_changes: 0,
            workers: BTreeMap::new(),
            locks: BTreeMap::new(),
            permits: BTreeMap::new(),
            batches: BatchRecords::default(),
            runs: RunRecords::default(),
            config: ConfigView { version: 0, value: Payload::null(), updated_at: None },
            limits: BTreeMap::new(),
            limits_noted: BTreeSet::new(),
        }
    }
}

impl Records {
    pub(super) fn record(&self, call_id: &CallId) -> Option<&Record> {
        self.calls.get(self.sequences.get(call_id)?)
    }

    pub(super) fn record_mut(&mut self, call_id: &CallId) -> Option<&mut Record> {
        self.calls.get_mut(self.sequences.get(call_id)?)
    }

    /// Keeps a new call behind all others. Its key, if it has one, leads to it from now on.
    pub(super) fn add_call(&mut self, call: Call, request: CallRequest) {
        self.last_sequence += 1;
        self.sequences.insert(call.call_id.clone(), self.last_sequence);
        if let Some(key) = &request.idempotency_key {
            self.keys.insert((request.function.clone(), key.clone()), call.call_id.clone());
        }
        self.calls.insert(self.last_sequence, Record { call, request, progress: None });
    }

    /// Removes the calls and runs whose retention is over. Their ids and the keys that lead to them are free from then on.
    pub(super) fn remove_gone(&mut self, now: Timestamp) {
        for (_, gone) in self.calls.extract_if(.., |_, record| record.call.is_gone(now)) {
            self.sequences.remove(&gone.call.call_id);
            self.keys.retain(|_, leads_to| *leads_to != gone.call.call_id);
        }
        self.runs.remove_gone(now);
    }

    /// All calls of a function, oldest first.
    pub(super) fn calls_of(&self, function: &FunctionKey) -> impl Iterator<Item = &Record> {
        self.calls.values().filter(move |record| record.request.function == *function)
    }

    /// All calls that a worker holds, oldest first.
    pub(super) fn held_by(&self, worker: &WorkerId) -> impl Iterator<Item = &Record> {
        self.calls.values().filter(move |record| record.call.state == CallState::Running && record.call.holder.as_ref() == Some(worker))
    }

    /// How a function's calls are retried.
    pub(super) fn retry_policy(&self, function: &FunctionKey) -> RetryPolicy {
        self.functions.get(function).map(|definition| definition.retry.clone()).unwrap_or_default()
    }

    pub(super) fn counts(&self, function: &FunctionKey) -> FunctionCounts {
        let mut counts = FunctionCounts::default();
        for Record { call, .. } in self.calls_of(function) {
            match call.state {
                CallState::Queued => counts.queued += 1,
                CallState::Delayed => counts.delayed += 1,
                CallState::Running => counts.running += 1,
                CallState::Dead => counts.dead += 1,
                _over => {}
            }
            counts.parked += u64::from(call.parked);
        }
        counts
    }

    pub(super) fn function_view(&self, function: &FunctionKey, now: Timestamp) -> Option<FunctionView> {
        let definition = self.functions.get(function)?.clone();
        let waiting = self.calls_of(function).filter(|record| record.call.state == CallState::Queued);
        Some(FunctionView {
            definition,
            counts: self.counts(function),
            workers: self.workers_of(function).count() as u64,
            healthy_workers: self.workers_of(function).filter(|worker| worker.is_healthy(now)).count() as u64,
            oldest_queued_at: waiting.map(|record| record.call.submitted_at).min(),
            stream: None,
            problems: Vec::new(),
        })
    }

    pub(super) fn workers_of(&self, function: &FunctionKey) -> impl Iterator<Item = &Worker> {
        self.workers.values().filter(move |worker| worker.offers(function))
    }

    pub(super) fn worker_view(&self, worker_id: &WorkerId, worker: &Worker, now: Timestamp) -> WorkerView {
        WorkerView {
            worker_id: worker_id.clone(),
            kind: worker.kind.clone(),
            functions: worker.offers.iter().map(|(function, _)| function.clone()).collect(),
            registered_at: worker.registered_at,
            last_heartbeat: worker.last_heartbeat,
            healthy: worker.is_healthy(now),
            running: self.held_by(worker_id).count() as u64,
        }
    }
}

impl Record {
    pub(super) fn view(&self) -> CallView {
        CallView { call: self.call.clone(), request: self.request.clone(), progress: self.progress.clone() }
    }
}

impl Worker {
    pub(super) fn offers(&self, function: &FunctionKey) -> bool {
        self.offers.iter().any(|(offered, _)| offered == function)
    }

    /// How many calls of a function it may hold at once, if it left that to the store.
    pub(super) fn offered_concurrency(&self, function: &FunctionKey) -> Option<u32> {
        self.offers.iter().find(|(offered, _)| offered == function).and_then(|(_, concurrency)| *concurrency)
    }

    /// Healthy means: heard of less than 30 seconds ago.
    pub(super) fn is_healthy(&self, now: Timestamp) -> bool {
        now.since(self.last_heartbeat) < HEALTHY_FOR
    }

    /// When its silence has lasted so long that it is taken off the list.
    pub(super) fn removed_at(&self) -> Timestamp {
        self.last_heartbeat + REMEMBERED_FOR
    }
}
