//! How a loop bears a store in trouble: it says so once, tries again more and more slowly, and says when it is over.

use std::sync::Arc;
use std::time::Duration;

use towpath_core::clock::Clock;
use towpath_core::store::{StoreError, StoreTrouble};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// The patience of one loop.
pub(crate) struct Backoff {
    clock: Arc<dyn Clock>,
    /// What the loop was trying to do, for the log.
    purpose: &'static str,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(clock: &Arc<dyn Clock>, purpose: &'static str) -> Self {
        Self { clock: Arc::clone(clock), purpose, failures: 0 }
    }

    /// The store answered.
    pub(crate) fn succeeded(&mut self) {
        if self.failures > 0 {
            tracing::info!(failures = self.failures, "could {} again", self.purpose);
            self.failures = 0;
        }
    }

    /// The store did not answer: waits before the next try. Gives the error back when there is no point in another one.
    pub(crate) async fn failed(&mut self, error: StoreError) -> Result<(), StoreError> {
        if is_over(&error) {
            return Err(error);
        }
        if self.failures == 0 {
            tracing::warn!(%error, "could not {}; trying again", self.purpose);
        }
        let pause = self.next_pause();
        self.clock.sleep_until(self.clock.now() + pause).await;
        Ok(())
    }

    /// How long to wait after one more failure.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let doublings = self.failures.min(6);
        self.failures = self.failures.saturating_add(1);
        (FIRST * (1 << doublings)).min(LONGEST)
    }
}

/// Whether the store will never answer again, so that a loop may end.
fn is_over(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(StoreTrouble::Closed))
}

#[cfg(test)]
mod tests {
    use towpath_core::clock::VirtualClock;

    use super::*;

    fn backoff() -> Backoff {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new());
        Backoff::new(&clock, "test")
    }

    #[test]
    fn pauses_grow_to_a_limit_and_start_anew_after_a_success() {
        let mut backoff = backoff();
        let pauses: Vec<u128> = (0..8).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        backoff.succeeded();
        assert_eq!(backoff.next_pause(), FIRST);
    }

    #[tokio::test]
    async fn a_closed_store_ends_the_loop_at_once() {
        let closed = StoreError::Unavailable(StoreTrouble::Closed);
        assert_eq!(backoff().failed(closed.clone()).await, Err(closed));
    }
}
