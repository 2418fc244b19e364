//! What this process remembers of runs that its workers execute, so that a commit or a renewal needs no read. The script compares the version: what
//! is not true any more is read again.

use std::sync::Mutex;

use towpath_core::run::{RunId, RunState};

use super::places::lock;
use super::rows::Loaded;
use crate::quick::QuickMap;

/// Beyond this many runs of a place all are forgotten: those that are still executed come back with their next move.
const RUNS_MAX: usize = 4_096;

/// The runs of one place that are executed here.
#[derive(Default)]
pub(super) struct Remembered(Mutex<QuickMap<RunId, Loaded>>);

impl Remembered {
    pub(super) fn get(&self, run_id: &RunId) -> Option<Loaded> {
        lock(&self.0).get(run_id).cloned()
    }

    /// The store has this now. It is remembered if an owner here has made it so, or if it was remembered before.
    pub(super) fn note(&self, loaded: Option<Loaded>, is_owners: bool) {
        let Some(loaded) = loaded else { return };
        let mut runs = lock(&self.0);
        let is_wanted = is_owners || runs.contains_key(&loaded.run.run_id);
        if loaded.run.state != RunState::Running || !is_wanted {
            runs.remove(&loaded.run.run_id);
            return;
        }
        if runs.len() >= RUNS_MAX {
            runs.clear();
        }
        runs.insert(loaded.run.run_id.clone(), loaded);
    }

    pub(super) fn forget(&self, run_id: &RunId) {
        lock(&self.0).remove(run_id);
    }
}
