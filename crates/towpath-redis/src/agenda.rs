//! When the timekeeper means to look next, and who tells it that this is too late.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::Notify;
use towpath_core::time::Timestamp;

pub(crate) struct Agenda {
    /// The timekeeper looks then, by itself; nothing later needs to be told.
    known: AtomicI64,
    sooner: Notify,
}

impl Default for Agenda {
    fn default() -> Self {
        Self { known: AtomicI64::new(i64::MAX), sooner: Notify::new() }
    }
}

impl Agenda {
    /// Something of ours is due then.
    pub(crate) fn note(&self, due: Timestamp) {
        if due.as_millis() < self.known.load(Ordering::Acquire) {
            self.sooner.notify_one();
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
}
