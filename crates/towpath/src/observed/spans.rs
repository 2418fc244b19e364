//! How long waits and tenures last, as far as this process sees both of their ends.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use towpath_core::lock::Fence;
use towpath_core::names::{LockId, LockScope, WaiterId};
use towpath_core::permit::PermitKind;
use towpath_core::time::Timestamp;

/// More are not remembered: then all are forgotten, and a few spans are not counted.
const REMEMBERED_MAX: usize = 20_000;

/// A tenure that this process has seen begin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tenure {
    /// Of an exclusive lock.
    Lock(LockScope),
    /// Of units.
    Permit(PermitKind, LockScope, LockId),
}

/// What has begun and is not over.
#[derive(Default)]
pub(super) struct Spans {
    waits: Begun<WaiterId>,
    tenures: Begun<Tenure>,
}

impl Spans {
    /// A waiter asked, maybe not for the first time.
    pub(super) fn waits(&self, waiter: &WaiterId, now: Timestamp) {
        self.waits.begin(waiter, None, now);
    }

    /// It was granted; how long it had waited.
    pub(super) fn waited(&self, waiter: Option<&WaiterId>, now: Timestamp) -> Duration {
        waiter.and_then(|waiter| self.waits.end(waiter, None)).map_or(Duration::ZERO, |since| now.since(since))
    }

    /// It went away.
    pub(super) fn gave_up(&self, waiter: &WaiterId) {
        self.waits.end(waiter, None);
    }

    pub(super) fn begins(&self, tenure: &Tenure, fence: Fence, now: Timestamp) {
        self.tenures.end(tenure, None);
        self.tenures.begin(tenure, Some(fence), now);
    }

    /// It ended; how long it lasted, if it is known. With a fence: only that of this fence.
    pub(super) fn ends(&self, tenure: &Tenure, fence: Option<Fence>, now: Timestamp) -> Option<Duration> {
        self.tenures.end(tenure, fence).map(|since| now.since(since))
    }
}

struct Begun<K>(Mutex<HashMap<K, (Option<Fence>, Timestamp)>>);

impl<K> Default for Begun<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Begun<K> {
    /// Whatever has begun before goes on.
    fn begin(&self, key: &K, fence: Option<Fence>, now: Timestamp) {
        // No code that can panic runs under this lock.
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if begun.len() >= REMEMBERED_MAX && !begun.contains_key(key) {
            begun.clear();
        }
        begun.entry(key.clone()).or_insert((fence, now));
    }

    fn end(&self, key: &K, fence: Option<Fence>) -> Option<Timestamp> {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let meant = begun.get(key).is_some_and(|(of, _)| fence.is_none() || *of == fence);
        if meant { begun.remove(key).map(|(_, since)| since) } else { None }
    }
}
