//! The pull workers of runs that this server knows: what they serve, and which runs it gave them. It is kept in memory: a worker that is
//! not known (after a restart of the server) is told so and registers again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towpath_core::names::{BuildId, WorkerId};
use towpath_core::run::{RunId, RunPlace};
use towpath_core::time::Timestamp;

/// A worker that was silent for longer is not counted on. A claim waits up to 60 s.
const COUNTED_FOR: Duration = Duration::from_secs(90);
/// A worker that was silent for longer is forgotten when another one registers.
const REMEMBERED_FOR: Duration = Duration::from_secs(3_600);
/// More workers are not taken.
pub(super) const WORKERS_MAX: usize = 10_000;

/// Pull workers of runs.
#[derive(Debug, Default)]
pub(crate) struct RunRoster(Mutex<HashMap<WorkerId, Known>>);

#[derive(Debug)]
struct Known {
    terms: RunWorker,
    heard: Timestamp,
    held: HashSet<RunId>,
}

/// What a worker said when it registered.
#[derive(Clone, Debug)]
pub(super) struct RunWorker {
    pub(super) build: BuildId,
    pub(super) places: Arc<[RunPlace]>,
    pub(super) lease: Duration,
}

impl RunRoster {
    /// Remembers a worker. `false`: there are too many.
    pub(super) fn remember(&self, worker: WorkerId, terms: RunWorker, now: Timestamp) -> bool {
        let mut known = self.lock();
        known.retain(|_, worker| now.since(worker.heard) < REMEMBERED_FOR);
        if known.len() >= WORKERS_MAX && !known.contains_key(&worker) {
            return false;
        }
        let held = known.remove(&worker).map(|before| before.held).unwrap_or_default();
        known.insert(worker, Known { terms, heard: now, held });
        true
    }

    /// What a worker serves. It is alive: it asks.
    pub(super) fn hear(&self, worker: &WorkerId, now: Timestamp) -> Option<RunWorker> {
        let mut known = self.lock();
        let worker = known.get_mut(worker)?;
        worker.heard = now;
        Some(worker.terms.clone())
    }

    /// Notes runs that a worker has from now on.
    pub(super) fn note_claimed(&self, worker: &WorkerId, runs: impl Iterator<Item = RunId>) {
        if let Some(worker) = self.lock().get_mut(worker) {
            worker.held.extend(runs);
        }
    }

    /// Notes that a worker has a run no longer.
    pub(super) fn note_left(&self, worker: &WorkerId, run_id: &RunId) {
        if let Some(worker) = self.lock().get_mut(worker) {
            worker.held.remove(run_id);
        }
    }

    /// Forgets a worker. Returns the runs that it was given and has not finished.
    pub(super) fn forget(&self, worker: &WorkerId) -> Option<HashSet<RunId>> {
        self.lock().remove(worker).map(|worker| worker.held)
    }

    /// How many living workers serve a place.
    pub(super) fn serving(&self, place: &RunPlace, now: Timestamp) -> u64 {
        let is_serving = |worker: &&Known| now.since(worker.heard) < COUNTED_FOR && worker.terms.places.contains(place);
        self.lock().values().filter(is_serving).count() as u64
    }

    /// The places that living workers serve.
    pub(super) fn places(&self, now: Timestamp) -> HashSet<RunPlace> {
        let known = self.lock();
        let living = known.values().filter(|worker| now.since(worker.heard) < COUNTED_FOR);
        living.flat_map(|worker| worker.terms.places.iter().cloned()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkerId, Known>> {
        // Nothing in here can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use towpath_core::run::place;

    use super::*;

    #[test]
    fn a_silent_worker_is_not_counted_and_one_that_registers_again_keeps_its_runs() {
        let (roster, order) = (RunRoster::default(), place("order", "1", None).unwrap());
        let terms = RunWorker { build: BuildId::new("b").unwrap(), places: Arc::from([order.clone()]), lease: Duration::from_secs(15) };
        let (worker, run) = (WorkerId::new("w").unwrap(), RunId::new(&order, 1));
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        assert!(roster.remember(worker.clone(), terms.clone(), at(0)));
        roster.note_claimed(&worker, std::iter::once(run.clone()));
        assert_eq!((roster.serving(&order, at(89)), roster.serving(&order, at(90))), (1, 0));
        assert!(roster.hear(&worker, at(100)).is_some());
        assert_eq!(roster.serving(&order, at(101)), 1);
        assert!(roster.remember(worker.clone(), terms, at(102)));
        assert_eq!(roster.forget(&worker), Some(HashSet::from([run])));
        assert!(roster.forget(&worker).is_none());
    }
}
