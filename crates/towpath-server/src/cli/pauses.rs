//! The pauses between tries of something that the network or a restart spoiled.

use std::time::Duration;

use towpath_core::call::Backoff;
use towpath_core::names::CallId;

/// Doubling from a tenth of a second to five seconds, jittered by who tries, so that many who fail in step do not return in step.
const BACKOFF: Backoff = Backoff::Exponential { delay_ms: 100, delay_ms_max: 5_000 };

/// A row of pauses.
#[derive(Debug)]
pub(crate) struct Pauses {
    who: CallId,
    failures: u32,
}

impl Pauses {
    /// Pauses of the one who tries. Any text will do, as long as others have another.
    pub(crate) fn of(who: &str) -> Self {
        let who = CallId::new(who).or_else(|_| CallId::new("somebody")).expect("'somebody' is a valid id");
        Self { who, failures: 0 }
    }

    /// The next pause, each longer than the one before; at least as long as the other side asked for.
    pub(crate) fn next(&mut self, asked_for: Option<Duration>) -> Duration {
        self.failures = self.failures.saturating_add(1);
        BACKOFF.delay(self.failures, &self.who).max(asked_for.unwrap_or_default().min(Duration::from_secs(60)))
    }

    /// It worked: the next trouble starts with a short pause again.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Whether the last try worked.
    pub(crate) fn is_fresh(&self) -> bool {
        self.failures == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_five_seconds_and_start_anew() {
        let mut pauses = Pauses::of("worker-1");
        assert!(pauses.next(None) <= Duration::from_millis(100));
        for _ in 0..20 {
            let pause = pauses.next(None);
            assert!(pause <= Duration::from_secs(5), "{pause:?}");
        }
        assert!(pauses.next(None) >= Duration::from_millis(2_500));
        assert_eq!(pauses.next(Some(Duration::from_secs(9))), Duration::from_secs(9));
        pauses.reset();
        assert!(pauses.is_fresh() && pauses.next(None) <= Duration::from_millis(100));
    }
}
