//! Starts an actor again when it has panicked. A panic is a bug, of this library or of a store; it must not stop what others depend on.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use towpath_core::clock::Clock;
use towpath_core::time::Timestamp;

use super::backoff::Backoff;

/// An actor that ran for so long without a panic is healthy again.
const HEALTHY_AFTER: Duration = Duration::from_secs(30);
/// An actor that panicked so often in a row cannot do its work.
const PANICS_IN_A_ROW: u32 = 5;

/// Number of panics of actors of this process.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Logs and counts a panic of a task that goes on.
pub(crate) fn note_panic(actor: &'static str) {
    let panics = PANICS.fetch_add(1, Ordering::Relaxed) + 1;
    tracing::error!(actor, panics, "a task panicked and is started again; please report this");
}

/// Whether all actors of a worker, or of a store handle, can do their work.
#[derive(Debug)]
pub(crate) struct Health {
    /// One of them cannot until this instant, in milliseconds.
    unfit_until: AtomicI64,
}

impl Default for Health {
    fn default() -> Self {
        Self { unfit_until: AtomicI64::new(i64::MIN) }
    }
}

impl Health {
    pub(crate) fn is_fit(&self, now: Timestamp) -> bool {
        now.as_millis() >= self.unfit_until.load(Ordering::Acquire)
    }

    fn note_unfit(&self, until: Timestamp) {
        self.unfit_until.fetch_max(until.as_millis(), Ordering::AcqRel);
    }
}

/// Runs an actor until it returns. After a panic it is started again, each time after a longer pause; one that panics again and again makes
/// `health` say so.
pub(crate) async fn supervise<F: Future<Output = ()>>(
    actor: &'static str,
    clock: Arc<dyn Clock>,
    health: Arc<Health>,
    start: impl Fn() -> F,
) {
    let mut backoff = Backoff::new(&clock, actor);
    let mut in_a_row = 0;
    loop {
        let started_at = clock.now();
        // In the same task, so that the actor ends with its worker.
        if AssertUnwindSafe(async { start().await }).catch_unwind().await.is_ok() {
            return;
        }
        note_panic(actor);
        if clock.now().since(started_at) >= HEALTHY_AFTER {
            (backoff, in_a_row) = (Backoff::new(&clock, actor), 0);
        }
        in_a_row += 1;
        if in_a_row >= PANICS_IN_A_ROW {
            tracing::error!(actor, in_a_row, "a task panics each time that it is started: its work is not done");
            health.note_unfit(clock.now() + HEALTHY_AFTER);
        }
        clock.sleep_until(clock.now() + backoff.next_pause()).await;
    }
}
