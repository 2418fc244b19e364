//! The system's clock: never goes back, and a sleep outlasts a suspended machine by no more than one chunk.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use towpath_core::clock::{Clock, Jumps, Sleep};
use towpath_core::time::{Micros, Timestamp, micros};

/// The timers of the runtime stand still while the machine is suspended, so no timer is trusted for longer than this.
const CHUNK: Duration = Duration::from_secs(10);

/// A step of the wall clock by no more than this is not a jump: clocks are corrected by a moment all the time.
const A_MOMENT_US: i64 = 2_000_000;

/// The time of the operating system.
///
/// When the wall clock is set back, time goes on from where it was. When it is set forward, or the machine was suspended, time follows.
/// [`Clock::jumps`] tells of both.
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
    /// Total of all jumps ahead.
    jumped_us: AtomicI64,
    /// Time goes on by the steady clock alone, whatever becomes of the wall clock.
    is_steady: bool,
}

impl SystemClock {
    /// A clock that starts at the present instant.
    pub fn new() -> Self {
        Self::starting_now(false)
    }

    /// A clock that starts at the present instant and then goes on without looking at the wall clock: for a store whose server's clock
    /// judges, so that a wall clock that is set on this machine ends no lease there.
    pub fn steady() -> Self {
        Self::starting_now(true)
    }

    fn starting_now(is_steady: bool) -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the clock that everyone else asks")]
        let started = Instant::now();
        Self { inner: Arc::new(Inner { started, started_at_us: AtomicI64::new(wall_us()), jumped_us: AtomicI64::new(0), is_steady }) }
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
        if self.inner.is_steady {
            return Micros::new(self.inner.started_at_us.load(Ordering::Relaxed).saturating_add(elapsed_us));
        }
        let started_at_us = wall_us().saturating_sub(elapsed_us);
        let before = self.inner.started_at_us.fetch_max(started_at_us, Ordering::Relaxed);
        let step_us = started_at_us.saturating_sub(before);
        if step_us > A_MOMENT_US {
            self.inner.jumped_us.fetch_add(step_us, Ordering::Relaxed);
        }
        Micros::new(before.max(started_at_us).saturating_add(elapsed_us))
    }

    fn jumps(&self) -> Option<Jumps> {
        if self.inner.is_steady {
            return None;
        }
        let now_us = self.now_us().get(); // notes a jump ahead
        let behind_us = now_us.saturating_sub(wall_us());
        let length = |us: i64| Duration::from_micros(u64::try_from(us).unwrap_or(0));
        Some(Jumps {
            ahead: length(self.inner.jumped_us.load(Ordering::Relaxed)),
            behind: length(if behind_us > A_MOMENT_US { behind_us } else { 0 }),
        })
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

    #[test]
    fn jumps_of_the_wall_clock_are_told_and_a_moment_is_not() {
        let clock = SystemClock::new();
        assert_eq!(clock.jumps(), Some(Jumps::default()));
        clock.inner.started_at_us.fetch_sub(3_600_000_000, Ordering::Relaxed);
        let ahead = clock.jumps().unwrap().ahead;
        assert!(ahead.abs_diff(Duration::from_secs(3_600)) < Duration::from_secs(1), "{ahead:?}");
        clock.inner.started_at_us.fetch_sub(1_000_000, Ordering::Relaxed);
        assert_eq!(clock.jumps().unwrap().ahead, ahead, "a second is no jump");
        clock.inner.started_at_us.fetch_add(7_200_000_000, Ordering::Relaxed);
        let behind = clock.jumps().unwrap().behind;
        assert!(behind.abs_diff(Duration::from_secs(7_200)) < Duration::from_secs(2), "{behind:?}");
    }

    #[test]
    fn a_steady_clock_does_not_follow_the_wall_clock() {
        let clock = SystemClock::steady();
        clock.inner.started_at_us.store(1_000_000, Ordering::Relaxed);
        assert!(clock.now_us().get() < 60_000_000, "the wall clock is decades ahead");
        assert_eq!(clock.jumps(), None);
    }

    #[tokio::test]
    async fn a_sleep_ends_when_the_clock_has_reached_its_instant() {
        let clock = SystemClock::new();
        let at = clock.now() + Duration::from_millis(5);
        clock.sleep_until(at).await;
        assert!(clock.now() >= at);
    }
}
