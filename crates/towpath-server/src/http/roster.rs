//! What each pull worker serves, so that a claim needs no read of the registry.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::app::App;

/// A worker may have registered again with another server: what is older than this is looked up anew.
const REMEMBERED_FOR: Duration = Duration::from_secs(30);
/// Claims and heartbeats say that their worker lives. Said again within this it is not passed on: all that matters is that the store hears it
/// every ten seconds or so.
const HEARD_FOR: Duration = Duration::from_secs(9);
/// More workers than this are not remembered; the registry knows them all.
const WORKERS_MAX: usize = 10_000;

/// The functions of workers that claimed lately.
#[derive(Debug, Default)]
pub(crate) struct Roster(Mutex<HashMap<WorkerId, Known>>);

#[derive(Debug)]
struct Known {
    at: Timestamp,
    functions: Vec<FunctionKey>,
    /// When the store was last told that it lives.
    heard: Timestamp,
}

impl Roster {
    pub(crate) fn remember(&self, worker: WorkerId, functions: Vec<FunctionKey>, now: Timestamp) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= WORKERS_MAX {
            known.retain(|_, worker| now.since(worker.at) < REMEMBERED_FOR);
        }
        if known.len() < WORKERS_MAX {
            // Learnt by a look and not from itself, a worker was heard when the store says so.
            let heard = known.get(&worker).map_or(now, |known| known.heard);
            known.insert(worker, Known { at: now, functions, heard });
        }
    }

    pub(crate) fn forget(&self, worker: &WorkerId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(worker);
    }

    /// A claim of this worker was full: the next one begins with another function, so that the backlog of the first does not starve the others.
    pub(crate) fn next_turn(&self, worker: &WorkerId) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(worker) = known.get_mut(worker)
            && !worker.functions.is_empty()
        {
            worker.functions.rotate_left(1);
        }
    }

    /// Whether the store was told a moment ago that this worker lives. If not, the request that asks tells it next.
    pub(crate) fn was_just_heard(&self, worker: &WorkerId, now: Timestamp) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(worker) = known.get_mut(worker) else { return false };
        let just = now.since(worker.heard) < HEARD_FOR;
        if !just {
            worker.heard = now;
        }
        just
    }

    /// What a worker serves; `None` when the registry does not know it.
    pub(crate) async fn functions_of(&self, app: &App, worker: &WorkerId) -> Result<Option<Vec<FunctionKey>>, StoreError> {
        let now = app.clock().now();
        if let Some(functions) = self.recall(worker, now) {
            return Ok(Some(functions));
        }
        let found = app.store().offered_by(worker).await?;
        if let Some(functions) = &found {
            self.remember(worker.clone(), functions.clone(), now);
        }
        Ok(found)
    }

    fn recall(&self, worker: &WorkerId, now: Timestamp) -> Option<Vec<FunctionKey>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = known.get(worker)?;
        (now.since(worker.at) < REMEMBERED_FOR).then(|| worker.functions.clone())
    }
}
