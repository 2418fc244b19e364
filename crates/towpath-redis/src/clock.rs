//! The server's clock, carried on by the local one: whoever shares a Redis judges by the same time, however wrong their own clocks are.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::FromRedisValue;
use tokio::sync::watch;
use towpath_core::clock::{Clock, Sleep};
use towpath_core::store::StoreError;
use towpath_core::time::{Timestamp, millis};

use crate::link::{Link, trouble};

/// What a measurement can be wrong by besides the way there and back: both clocks are read in whole milliseconds.
const ROUNDING_MS: i64 = 1;

/// The server's clock. Clones share it.
///
/// A measurement that says "later" is believed at once. One that says "earlier" makes the clock run at half speed until the server has
/// caught up, because time never goes back.
#[derive(Clone)]
pub struct ServerClock {
    inner: Arc<Inner>,
}

struct Inner {
    base: Arc<dyn Clock>,
    pace: Mutex<Pace>,
    /// Counts corrections, so that sleepers reckon anew.
    corrections: watch::Sender<u64>,
}

/// How the time follows from the base clock's. At the latest correction the base said `base_ms` and we said `told_ms`.
#[derive(Clone, Copy)]
struct Pace {
    /// The server's time minus the base's, once it was measured.
    offset_ms: Option<i64>,
    base_ms: i64,
    told_ms: i64,
}

impl Pace {
    /// Both terms never go back while the base does not, and at a correction the second is what was said last.
    fn now(self, base_ms: i64) -> i64 {
        let servers = base_ms.saturating_add(self.offset_ms.unwrap_or(0));
        let at_half_speed = self.told_ms.saturating_add(base_ms.saturating_sub(self.base_ms) / 2);
        servers.max(at_half_speed)
    }
}

impl ServerClock {
    /// A clock that tells the base's time until the server's is known.
    pub fn new(base: Arc<dyn Clock>) -> Self {
        let base_ms = base.now().as_millis();
        let pace = Mutex::new(Pace { offset_ms: None, base_ms, told_ms: base_ms });
        Self { inner: Arc::new(Inner { base, pace, corrections: watch::Sender::new(0) }) }
    }

    /// The server just said what time it is, and the answer took `round_trip` in all.
    ///
    /// The first measurement starts the clock there, wherever the machine's own clock stands. Later ones count only when the clock is off by more than they can be
    /// wrong by, so that a slow answer spoils nothing.
    pub fn set_server_time(&self, server_ms: i64, round_trip: Duration) {
        let base_ms = self.inner.base.now().as_millis();
        let half_way = millis(round_trip) / 2;
        let measured = server_ms.saturating_add(half_way).saturating_sub(base_ms);
        {
            let mut pace = self.lock();
            match pace.offset_ms {
                Some(known) if measured.abs_diff(known) <= half_way.saturating_add(ROUNDING_MS).unsigned_abs() => return,
                Some(known) => {
                    tell_of_a_jump(measured.saturating_sub(known));
                    *pace = Pace { offset_ms: Some(measured), base_ms, told_ms: pace.now(base_ms) };
                }
                // Nobody has been told anything by this clock that could be taken back.
                None => *pace = Pace { offset_ms: Some(measured), base_ms, told_ms: base_ms.saturating_add(measured) },
            }
        }
        self.inner.corrections.send_modify(|corrections| *corrections += 1);
    }

    /// Asks the server what time it is.
    pub(crate) async fn measure(&self, link: &Link) -> Result<(), StoreError> {
        let before = self.inner.base.now();
        let reply = link.ask(redis::Cmd::new().arg("TIME")).await?;
        let round_trip = self.inner.base.now().since(before);
        let (seconds, micros): (i64, i64) =
            FromRedisValue::from_redis_value(reply).map_err(|error| trouble(format!("the Redis server's TIME cannot be read: {error}")))?;
        self.set_server_time(seconds.saturating_mul(1_000).saturating_add(micros / 1_000), round_trip);
        Ok(())
    }

    /// How far the server's clock is ahead of this machine's, in milliseconds; `None` before the first measurement.
    pub fn offset_ms(&self) -> Option<i64> {
        self.lock().offset_ms
    }

    fn lock(&self) -> MutexGuard<'_, Pace> {
        // A panic while the lock was held leaves plain numbers behind, which are still true.
        self.inner.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Clocks are corrected by a moment all the time; that is not worth a word.
const A_MOMENT_MS: i64 = 2_000;

fn tell_of_a_jump(by_ms: i64) {
    if by_ms > A_MOMENT_MS {
        tracing::warn!(by_ms, "the Redis server's clock was set ahead: leases end and deadlines come as much earlier");
    } else if by_ms < -A_MOMENT_MS {
        tracing::warn!(
            by_ms,
            "the Redis server's clock was set back: time passes at half speed here until it has caught up, so that nothing is held for more \
             than twice its length while this process lives"
        );
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        let pace = *self.lock();
        Timestamp::from_millis(pace.now(self.inner.base.now().as_millis()))
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        let clock = self.clone();
        let mut corrections = clock.inner.corrections.subscribe();
        Box::pin(async move {
            loop {
                corrections.mark_unchanged();
                let left = at.since(clock.now());
                if left.is_zero() {
                    return;
                }
                let base = &clock.inner.base;
                tokio::select! {
                    () = base.sleep_until(base.now() + left) => {}
                    // The sender lives in `clock`, so this ends by a correction only.
                    _ = corrections.changed() => {}
                }
            }
        })
    }
}

impl fmt::Debug for ServerClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerClock").field("base", &self.inner.base).field("offset_ms", &self.offset_ms()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use towpath_core::clock::VirtualClock;

    use super::*;

    const HOUR_MS: i64 = 3_600_000;
    const NO_TIME: Duration = Duration::ZERO;

    fn clocks() -> (VirtualClock, ServerClock) {
        let base = VirtualClock::new();
        let clock = ServerClock::new(Arc::new(base.clone()));
        (base, clock)
    }

    fn ahead_ms(clock: &ServerClock, base: &VirtualClock) -> i64 {
        clock.now().as_millis() - base.now().as_millis()
    }

    #[test]
    fn a_machine_whose_clock_is_an_hour_off_tells_the_servers_time() {
        for off in [HOUR_MS, -HOUR_MS] {
            let (base, clock) = clocks();
            clock.set_server_time(base.now().as_millis() + off, NO_TIME);
            assert_eq!(ahead_ms(&clock, &base), off);
            base.advance(Duration::from_secs(5));
            assert_eq!(ahead_ms(&clock, &base), off, "it goes on by the base clock");
        }
    }

    #[test]
    fn half_of_the_way_there_and_back_counts_as_time_since() {
        let (base, clock) = clocks();
        clock.set_server_time(base.now().as_millis(), Duration::from_millis(80));
        assert_eq!(ahead_ms(&clock, &base), 40);
    }

    #[test]
    fn a_measurement_that_could_be_wrong_by_more_than_the_difference_changes_nothing() {
        let (base, clock) = clocks();
        clock.set_server_time(base.now().as_millis(), NO_TIME);
        clock.set_server_time(base.now().as_millis() - 900, Duration::from_secs(2));
        assert_eq!(ahead_ms(&clock, &base), 0);
        clock.set_server_time(base.now().as_millis() + 100, Duration::from_millis(10));
        assert_eq!(ahead_ms(&clock, &base), 105, "this one proves that we are behind");
    }

    #[test]
    fn a_server_that_was_set_back_slows_time_down_until_it_has_caught_up() {
        let (base, clock) = clocks();
        clock.set_server_time(base.now().as_millis() + 1_000, NO_TIME);
        let mut latest = clock.now();
        clock.set_server_time(base.now().as_millis(), NO_TIME);
        for _ in 0..2_000 {
            assert!(clock.now() >= latest, "time went back");
            latest = clock.now();
            base.advance(Duration::from_millis(1));
        }
        assert_eq!(ahead_ms(&clock, &base), 0, "a second is caught up within two");
        base.advance(Duration::from_secs(60));
        assert_eq!(ahead_ms(&clock, &base), 0);
    }

    #[test]
    fn after_a_server_was_two_hours_ahead_and_is_set_back_a_lease_lasts_twice_its_length_at_most() {
        let (base, clock) = clocks();
        clock.set_server_time(base.now().as_millis(), NO_TIME);
        clock.set_server_time(base.now().as_millis() + 2 * HOUR_MS, NO_TIME);
        assert_eq!(ahead_ms(&clock, &base), 2 * HOUR_MS, "what is later counts at once");
        let lease_end = clock.now() + Duration::from_secs(30);
        clock.set_server_time(base.now().as_millis(), NO_TIME);
        base.advance(Duration::from_secs(59));
        assert!(clock.now() < lease_end);
        base.advance(Duration::from_secs(1));
        assert!(clock.now() >= lease_end, "and not two hours later");
    }

    #[test]
    fn corrections_in_either_direction_never_take_time_back() {
        let (base, clock) = clocks();
        clock.set_server_time(base.now().as_millis(), NO_TIME);
        let mut latest = clock.now();
        for step in 0..1_000_i64 {
            let wobble = (step * 7_919) % 401 - 200;
            clock.set_server_time(base.now().as_millis() + wobble, NO_TIME);
            assert!(clock.now() >= latest, "step {step}");
            latest = clock.now();
            base.advance(Duration::from_millis(3));
        }
    }

    #[test]
    fn a_sleeper_wakes_by_the_servers_time() {
        let (base, clock) = clocks();
        clock.set_server_time(base.now().as_millis() - HOUR_MS, NO_TIME);
        let mut sleep = clock.sleep_until(clock.now() + Duration::from_secs(10));
        assert!((&mut sleep).now_or_never().is_none());
        base.advance(Duration::from_millis(9_999));
        assert!((&mut sleep).now_or_never().is_none());
        base.advance(Duration::from_millis(1));
        assert!(sleep.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_correction_wakes_a_sleeper_that_has_become_due() {
        let (base, clock) = clocks();
        clock.set_server_time(base.now().as_millis(), NO_TIME);
        let sleep = tokio::spawn(clock.sleep_until(clock.now() + Duration::from_secs(10)));
        tokio::task::yield_now().await;
        clock.set_server_time(base.now().as_millis() + 10_000, NO_TIME);
        sleep.await.unwrap();
    }
}
