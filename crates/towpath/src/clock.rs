//! The system's clock: never goes back, and a sleep outlasts a suspended machine by no more than one chunk.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use towpath_core::clock::{Clock, Sleep};
use towpath_core::time::{Micros, Timestamp, micros};

/// The timers of the runtime stand still while the machine is suspended, so no timer is trusted for longer than this.
const CHUNK: Duration = Duration::from_secs(10);

/// The time of the operating system.
///
/// When the wall clock is set back, time goes on from where it was. When it is set forward, or the machine was suspended, time follows.
///
/// ```
/// use towpath::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// let before = clock.now();
/// assert!(clock.now() >= before);
/// ```
#[derive(Clone, Debug)]
pub struct SystemClock {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    started: Instant,
    /// The wall clock at `started`, as the wall clock tells it now. It only rises: that is what keeps `now` from going back.
    started_at_us: AtomicI64,
}

impl SystemClock {
    /// A clock that starts at the present instant.
    pub fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the clock that everyone else asks")]
        let started = Instant::now();
        Self { inner: Arc::new(Inner { started, started_at_us: AtomicI64::new(wall_us()) }) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.now_us().to_millis()
    }

    fn now_us(&self) -> Micros {
        let elapsed_us = micros(self.inner.started.elapsed());
        let started_at_us = wall_us().saturating_sub(elapsed_us);
        let latest = self.inner.started_at_us.fetch_max(started_at_us, Ordering::Relaxed).max(started_at_us);
        Micros::new(latest.saturating_add(elapsed_us))
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        let clock = self.clone();
        Box::pin(async move {
            loop {
                let left = at.since(clock.now());
                if left.is_zero() {
                    return;
                }
                #[expect(clippy::disallowed_methods, reason = "this is the clock that everyone else asks")]
                tokio::time::sleep(left.min(CHUNK)).await;
            }
        })
    }
}

fn wall_us() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everyone else asks")]
    let now = SystemTime::now();
    // A machine whose clock stands before 1970 is at 1970 as far as anyone here can tell.
    now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_was_set_back_does_not_take_time_back() {
        let clock = SystemClock::new();
        let an_hour_ahead = clock.now_us() + Duration::from_secs(3_600);
        clock.inner.started_at_us.fetch_add(3_600_000_000, Ordering::Relaxed);
        assert!(clock.now_us() >= an_hour_ahead, "the wall clock is an hour behind what was told before");
    }

    #[test]
    fn a_wall_clock_that_was_set_forward_takes_time_along() {
        let clock = SystemClock::new();
        let true_start = clock.inner.started_at_us.swap(0, Ordering::Relaxed);
        assert!(clock.now_us().get() >= true_start, "time follows the wall clock");
    }

    #[tokio::test]
    async fn a_sleep_ends_when_the_clock_has_reached_its_instant() {
        let clock = SystemClock::new();
        let at = clock.now() + Duration::from_millis(5);
        clock.sleep_until(at).await;
        assert!(clock.now() >= at);
    }
}
