//! Calls that workers of this process hold, as they were when they were delivered. Only a shortcut: whoever finds one here decides on it,
//! and the server refuses the decision when the call has changed since.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use towpath_core::names::CallId;
use towpath_core::time::Timestamp;

use crate::calls::load::Found;

/// Past so many, those whose lease is long over are let go.
const MANY: usize = 16_384;

#[derive(Default)]
pub(crate) struct HeldCalls {
    calls: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    calls: HashMap<CallId, Found>,
    /// When there are more, it is time to clear up.
    clear_at: usize,
}

impl HeldCalls {
    pub(crate) fn put(&self, found: Found) {
        let mut shelf = self.lock();
        let now = found.life.call.started_at.unwrap_or_default();
        shelf.calls.insert(found.life.call.call_id.clone(), found);
        if shelf.calls.len() > shelf.clear_at.max(MANY) {
            shelf.clear(now);
        }
    }

    pub(crate) fn get(&self, call_id: &CallId) -> Option<Found> {
        self.lock().calls.get(call_id).cloned()
    }

    pub(crate) fn remove(&self, call_id: &CallId) -> Option<Found> {
        self.lock().calls.remove(call_id)
    }

    /// What was delivered is not what is there.
    pub(crate) fn forget_all(&self) {
        self.lock().calls.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        // Nothing in here can panic half way.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn clear(&mut self, now: Timestamp) {
        self.calls.retain(|_, found| found.life.call.lease_until.is_some_and(|until| until > now));
        self.clear_at = self.calls.len() * 2;
    }
}
