//! Calls that workers of this process hold, as they were when they were delivered. Only a shortcut: whoever finds one here decides on it,
//! and the server refuses the decision when the call has changed since.

use std::sync::{Mutex, MutexGuard, PoisonError};

use towpath_core::names::CallId;
use towpath_core::time::Timestamp;

use crate::calls::load::Found;
use crate::quick::QuickMap;

/// Past so many, those whose lease is long over are let go.
const MANY: usize = 16_384;

#[derive(Default)]
pub(crate) struct HeldCalls {
    calls: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    calls: QuickMap<CallId, Found>,
    /// How many of them the server does not know to be delivered.
    unwritten: usize,
    /// When there are more, it is time to clear up.
    clear_at: usize,
    /// Somebody looks from time to time which of them are to be written down.
    is_looked_after: bool,
}

impl HeldCalls {
    pub(crate) fn put(&self, found: Found) {
        self.lock().put(found);
    }

    /// Calls that the server does not know to be delivered. Says whether somebody has to look after them from now on.
    pub(crate) fn put_unwritten(&self, delivered: Vec<Found>) -> bool {
        let mut shelf = self.lock();
        delivered.into_iter().for_each(|found| shelf.put(found));
        !std::mem::replace(&mut shelf.is_looked_after, true)
    }

    /// The same call, now that the server knows. Whoever has dealt with it meanwhile has taken it from here.
    pub(crate) fn is_written(&self, found: Found) {
        let mut shelf = self.lock();
        if shelf.calls.get(&found.life.call.call_id).is_some_and(|known| known.on_server.is_some()) {
            shelf.put(found);
        }
    }

    pub(crate) fn get(&self, call_id: &CallId) -> Option<Found> {
        self.lock().calls.get(call_id).cloned()
    }

    pub(crate) fn remove(&self, call_id: &CallId) -> Option<Found> {
        self.lock().remove(call_id)
    }

    /// This call, if the server does not know that it is delivered.
    pub(crate) fn unwritten(&self, call_id: &CallId) -> Option<Found> {
        let shelf = self.lock();
        if shelf.unwritten == 0 {
            return None;
        }
        shelf.calls.get(call_id).filter(|found| found.on_server.is_some()).cloned()
    }

    /// All calls that the server does not know to be delivered, and were so before this instant.
    pub(crate) fn unwritten_since(&self, before: Timestamp) -> Vec<Found> {
        let shelf = self.lock();
        if shelf.unwritten == 0 {
            return Vec::new();
        }
        let meant = |found: &&Found| found.on_server.is_some() && found.life.call.started_at.is_none_or(|at| at <= before);
        shelf.calls.values().filter(meant).cloned().collect()
    }

    pub(crate) fn has_unwritten(&self) -> bool {
        self.lock().unwritten > 0
    }

    /// Whether there is still something to look after. If not, the next one who puts something here is told to.
    pub(crate) fn is_to_be_looked_after(&self) -> bool {
        let mut shelf = self.lock();
        shelf.is_looked_after = shelf.unwritten > 0;
        shelf.is_looked_after
    }

    /// Whoever looked after them is gone.
    pub(crate) fn is_left_alone(&self) {
        self.lock().is_looked_after = false;
    }

    /// What was delivered is not what is there.
    pub(crate) fn forget_all(&self) {
        *self.lock() = Shelf::default();
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        // Nothing in here can panic half way.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn put(&mut self, found: Found) {
        let now = found.life.call.started_at.unwrap_or_default();
        self.unwritten += usize::from(found.on_server.is_some());
        if let Some(before) = self.calls.insert(found.life.call.call_id.clone(), found) {
            self.unwritten -= usize::from(before.on_server.is_some());
        }
        if self.calls.len() > self.clear_at.max(MANY) {
            self.clear(now);
        }
    }

    fn remove(&mut self, call_id: &CallId) -> Option<Found> {
        let found = self.calls.remove(call_id)?;
        self.unwritten -= usize::from(found.on_server.is_some());
        Some(found)
    }

    fn clear(&mut self, now: Timestamp) {
        self.calls.retain(|_, found| found.life.call.lease_until.is_some_and(|until| until > now));
        self.unwritten = self.calls.values().filter(|found| found.on_server.is_some()).count();
        self.clear_at = self.calls.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_looks_after_them_and_when_it_is_gone_the_next_is_told_to() {
        let held = HeldCalls::default();
        assert!(held.put_unwritten(Vec::new()), "nobody does yet");
        assert!(!held.put_unwritten(Vec::new()), "somebody does");
        assert!(!held.is_to_be_looked_after(), "there is nothing");
        assert!(held.put_unwritten(Vec::new()), "so it has gone");
        held.is_left_alone();
        assert!(held.put_unwritten(Vec::new()), "it went with its runtime");
    }
}
