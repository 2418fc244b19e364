//! When the timekeeper means to look next, and who tells it that this is too late.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use towpath_core::time::Timestamp;

/// What is due next, as far as it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    /// Of all calls.
    pub(crate) calls: Option<Timestamp>,
    /// Of all workers and locks.
    pub(crate) others: Option<Timestamp>,
    /// How many functions there are.
    pub(crate) functions: usize,
    /// Since when nobody has looked at the calls.
    pub(crate) age: Duration,
}

impl Heads {
    pub(crate) fn first(self) -> Option<Timestamp> {
        self.calls.into_iter().chain(self.others).min()
    }
}

pub(crate) struct Agenda {
    /// The timekeeper looks then, by itself; nothing later needs to be told.
    known: AtomicI64,
    sooner: Notify,
    lease_sooner: Notify,
    /// What the timekeeper saw when it was told that it can sleep longer: it need not look again at once.
    seen: Mutex<Option<Heads>>,
}

impl Default for Agenda {
    fn default() -> Self {
        Self { known: AtomicI64::new(i64::MAX), sooner: Notify::new(), lease_sooner: Notify::new(), seen: Mutex::default() }
    }
}

impl Agenda {
    /// Something of ours is due then.
    pub(crate) fn note(&self, due: Timestamp) {
        if due.as_millis() < self.known.load(Ordering::Acquire) {
            self.sooner.notify_one();
        }
    }

    /// A lease of a lock of ours ends then: nothing else need be looked at.
    pub(crate) fn note_lease(&self, end: Timestamp) {
        if end.as_millis() < self.known.load(Ordering::Acquire) {
            self.lease_sooner.notify_one();
        }
    }

    /// The timekeeper knows of nothing earlier than this.
    pub(crate) fn wait_until(&self, known: Option<Timestamp>) {
        self.known.store(known.map_or(i64::MAX, Timestamp::as_millis), Ordering::Release);
    }

    /// Ends when something earlier than what the timekeeper knows was noted.
    pub(crate) async fn sooner(&self) {
        self.sooner.notified().await;
    }

    /// The same of what is noted of leases of locks.
    pub(crate) async fn lease_sooner(&self) {
        self.lease_sooner.notified().await;
    }

    /// Keeps what was seen for the timekeeper's next question.
    pub(crate) fn keep(&self, seen: Heads) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }

    /// What was kept, if this is what the timekeeper was told then.
    pub(crate) fn kept(&self, known: Option<Timestamp>) -> Option<Heads> {
        let kept = self.seen.lock().unwrap_or_else(PoisonError::into_inner).take();
        kept.filter(|seen| known.is_some() && seen.first() == known)
    }
}
