//! The clock that judges. Stores and engine loops are handed one and ask nothing else; tests hand in one that they move.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::time::{Micros, Timestamp};

/// A sleep that ends when the clock says so.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How the machine's clock was set while a clock ran. A step of two seconds or less is not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jumps {
    /// Total by which this clock has jumped ahead: the machine's clock was set ahead, or the machine was suspended.
    pub ahead: Duration,
    /// How far the machine's clock is behind this one now, because it was set back. This clock has gone on.
    pub behind: Duration,
}

/// Tells the time and wakes sleepers. `now` never goes back.
pub trait Clock: Debug + Send + Sync {
    /// The present instant.
    fn now(&self) -> Timestamp;

    /// The same instant as finely as this clock can tell, for what counts in microseconds.
    fn now_us(&self) -> Micros {
        self.now().into()
    }

    /// How the machine's clock was set meanwhile, for a clock that follows it. `None`: this clock does not jump.
    fn jumps(&self) -> Option<Jumps> {
        None
    }

    /// Ends once `now()` has reached `at`.
    fn sleep_until(&self, at: Timestamp) -> Sleep;
}

/// A clock that stands still until it is told to move. Sleepers wake in the order in which they are due.
///
/// ```
/// use std::time::Duration;
/// use towpath_core::clock::{Clock, VirtualClock};
///
/// let clock = VirtualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3_600));
/// assert_eq!(clock.now().since(before), Duration::from_secs(3_600));
/// ```
#[derive(Clone, Debug, Default)]
pub struct VirtualClock {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    now: Micros,
    next_sleeper: u64,
    /// Keyed by due instant, then by arrival, so that waking in key order is waking in due order.
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
}

impl VirtualClock {
    /// A clock that starts at an arbitrary fixed instant, the same in every test.
    pub fn new() -> Self {
        Self::starting_at(Timestamp::from_millis(1_800_000_000_000))
    }

    /// A clock that starts at `now`.
    pub fn starting_at(now: Timestamp) -> Self {
        let clock = Self::default();
        clock.lock().now = now.into();
        clock
    }

    /// Moves the clock forward and wakes all who are due by then.
    pub fn advance(&self, length: Duration) {
        let due: Vec<Waker> = {
            let mut inner = self.lock();
            inner.now = inner.now + length;
            let later = (Timestamp::from_millis(inner.now.to_millis().as_millis().saturating_add(1)), 0);
            let still_asleep = inner.sleepers.split_off(&later);
            std::mem::replace(&mut inner.sleepers, still_asleep).into_values().collect()
        };
        for waker in due {
            waker.wake();
        }
    }

    /// When the next sleeper is due, if anyone sleeps. A test can jump exactly there.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.lock().sleepers.keys().next().map(|(at, _)| *at)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while the lock was held leaves plain numbers behind, which are still true.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.lock().now.to_millis()
    }

    fn now_us(&self) -> Micros {
        self.lock().now
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        Box::pin(VirtualSleep { clock: self.clone(), at, seat: None })
    }
}

struct VirtualSleep {
    clock: VirtualClock,
    at: Timestamp,
    seat: Option<(Timestamp, u64)>,
}

impl Future for VirtualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut inner = clock.lock();
        if inner.now.to_millis() >= self.at {
            return Poll::Ready(());
        }
        let seat = self.seat.unwrap_or_else(|| {
            inner.next_sleeper += 1;
            (self.at, inner.next_sleeper)
        });
        self.seat = Some(seat);
        inner.sleepers.insert(seat, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for VirtualSleep {
    fn drop(&mut self) {
        if let Some(seat) = self.seat {
            self.clock.lock().sleepers.remove(&seat);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll_once(sleep: &mut Sleep) -> Poll<()> {
        sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_sleeper_wakes_when_its_instant_is_reached_and_not_before() {
        let clock = VirtualClock::new();
        let mut sleep = clock.sleep_until(clock.now() + Duration::from_millis(10));
        assert!(poll_once(&mut sleep).is_pending());
        clock.advance(Duration::from_millis(9));
        assert!(poll_once(&mut sleep).is_pending());
        clock.advance(Duration::from_millis(1));
        assert!(poll_once(&mut sleep).is_ready());
    }

    #[test]
    fn microseconds_pass_and_add_up_to_milliseconds() {
        let clock = VirtualClock::new();
        let (start, start_us) = (clock.now(), clock.now_us());
        clock.advance(Duration::from_micros(999));
        assert_eq!((clock.now(), clock.now_us()), (start, start_us + Duration::from_micros(999)));
        clock.advance(Duration::from_micros(1));
        assert_eq!(clock.now(), start + Duration::from_millis(1));
    }

    #[test]
    fn a_dropped_sleeper_leaves_no_seat_behind() {
        let clock = VirtualClock::new();
        let mut sleep = clock.sleep_until(Timestamp::MAX);
        assert!(poll_once(&mut sleep).is_pending());
        assert_eq!(clock.next_due(), Some(Timestamp::MAX));
        drop(sleep);
        assert_eq!(clock.next_due(), None);
    }
}
