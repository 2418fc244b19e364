//! How many deliveries go to one host at once, and whether it is worth asking it at all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use towpath::{Clock, Timestamp};

/// So many failures in a row open the breaker.
const FAILURES_MAX: u32 = 10;
/// While it is open, one delivery in so long finds out whether the host is back.
const PROBE_EVERY: Duration = Duration::from_secs(5);

/// All hosts that batches go to.
#[derive(Debug, Default)]
pub(super) struct Hosts(Mutex<HashMap<(String, u32), Arc<Host>>>);

/// One host, as those see it who send so many at once to it.
#[derive(Debug)]
pub(super) struct Host {
    places: Arc<Semaphore>,
    breaker: Mutex<Breaker>,
    closed: Notify,
}

#[derive(Debug, Default)]
struct Breaker {
    failures: u32,
    /// When the next probe may go; `None` while the breaker is closed.
    probe_at: Option<Timestamp>,
}

/// A place at a host.
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Hosts {
    pub(super) fn get(&self, host: &str, places: u32) -> Arc<Host> {
        let mut hosts = lock(&self.0);
        let host = hosts.entry((host.to_owned(), places)).or_insert_with(|| {
            Arc::new(Host { places: Arc::new(Semaphore::new(places as usize)), breaker: Mutex::default(), closed: Notify::new() })
        });
        Arc::clone(host)
    }
}

impl Host {
    /// A place, if there is one and the host is worth asking.
    pub(super) fn try_admit(&self, clock: &dyn Clock) -> Option<Place> {
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        self.wait_for_probe(clock.now()).is_none().then_some(Place { _permit: permit })
    }

    /// A place, as soon as there is one and the host is worth asking.
    pub(super) async fn admit(&self, clock: &dyn Clock) -> Place {
        let Ok(permit) = Arc::clone(&self.places).acquire_owned().await else { return std::future::pending().await };
        loop {
            let closed = self.closed.notified();
            let Some(probe_at) = self.wait_for_probe(clock.now()) else { return Place { _permit: permit } };
            tokio::select! {
                () = clock.sleep_until(probe_at) => {}
                () = closed => {}
            }
        }
    }

    /// When to ask again; `None`: now. The request that may go while the breaker is open is the probe: the next one has to wait.
    fn wait_for_probe(&self, now: Timestamp) -> Option<Timestamp> {
        let mut breaker = lock(&self.breaker);
        match breaker.probe_at {
            None => None,
            Some(at) if at <= now => {
                breaker.probe_at = Some(now + PROBE_EVERY);
                None
            }
            Some(at) => Some(at),
        }
    }

    /// Says how a delivery went.
    pub(super) fn heard(&self, was_well: bool, now: Timestamp) {
        let mut breaker = lock(&self.breaker);
        if was_well {
            *breaker = Breaker::default();
            drop(breaker);
            self.closed.notify_waiters();
            return;
        }
        breaker.failures = breaker.failures.saturating_add(1);
        if breaker.failures >= FAILURES_MAX && breaker.probe_at.is_none() {
            breaker.probe_at = Some(now + PROBE_EVERY);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here can panic half way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use towpath::VirtualClock;

    use super::*;

    #[test]
    fn a_host_that_only_fails_is_asked_once_in_five_seconds_until_it_answers() {
        let (hosts, clock) = (Hosts::default(), VirtualClock::new());
        let host = hosts.get("client.example", 8);
        for _ in 0..FAILURES_MAX {
            assert!(host.try_admit(&clock).is_some());
            host.heard(false, clock.now());
        }
        assert!(host.try_admit(&clock).is_none(), "ten in a row are enough");
        clock.advance(PROBE_EVERY);
        assert!(host.try_admit(&clock).is_some(), "the probe");
        assert!(host.try_admit(&clock).is_none(), "one probe at a time");
        host.heard(false, clock.now());
        clock.advance(PROBE_EVERY);
        assert!(host.try_admit(&clock).is_some());
        host.heard(true, clock.now());
        assert!(host.try_admit(&clock).is_some() && host.try_admit(&clock).is_some(), "it is back");
    }

    #[test]
    fn a_host_has_so_many_places_and_no_more() {
        let (hosts, clock) = (Hosts::default(), VirtualClock::new());
        let places: Vec<_> = (0..3).map(|_| hosts.get("a", 2).try_admit(&clock)).collect();
        assert_eq!(places.iter().filter(|place| place.is_some()).count(), 2);
        assert!(hosts.get("b", 2).try_admit(&clock).is_some());
    }
}
