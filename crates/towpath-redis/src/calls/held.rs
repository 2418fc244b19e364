//! Calls that workers of this process hold, as they were when they were last seen. Only a shortcut: a decision on one of them is compared
//! with the record like any other.

use std::sync::{Mutex, MutexGuard, PoisonError};

use towpath_core::names::CallId;

use super::find::Found;
use crate::quick::QuickMap;

/// Past so many, those whose lease is over are dropped.
const MANY: usize = 16_384;

#[derive(Default)]
pub(crate) struct HeldCalls {
    calls: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    calls: QuickMap<CallId, Found>,
    clear_at: usize,
}

impl HeldCalls {
    pub(crate) fn put(&self, found: Found) {
        let mut shelf = self.lock();
        let now = found.record.call.started_at.unwrap_or_default();
        shelf.calls.insert(found.record.call.call_id.clone(), found);
        if shelf.calls.len() > shelf.clear_at.max(MANY) {
            shelf.calls.retain(|_, found| found.record.call.lease_until.is_some_and(|until| until > now));
            shelf.clear_at = shelf.calls.len() * 2;
        }
    }

    pub(crate) fn get(&self, call_id: &CallId) -> Option<Found> {
        self.lock().calls.get(call_id).cloned()
    }

    pub(crate) fn remove(&self, call_id: &CallId) -> Option<Found> {
        self.lock().calls.remove(call_id)
    }

    /// The data set was replaced.
    pub(crate) fn forget_all(&self) {
        *self.lock() = Shelf::default();
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        // No code under this lock can panic half way.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
