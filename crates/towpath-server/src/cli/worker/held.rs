//! The deliveries that this worker holds: from the claim until the server has taken the result.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use super::program::Stop;
use crate::cli::time;

/// A delivery younger than this is not worth a heartbeat of its own: most calls are over by then.
const COVER_AFTER: Duration = Duration::from_millis(500);

/// What is held.
#[derive(Debug, Default)]
pub(crate) struct Held {
    deliveries: Mutex<HashMap<String, Delivery>>,
    changed: Notify,
}

#[derive(Debug)]
struct Delivery {
    since: Instant,
    stop: watch::Sender<Option<Stop>>,
}

impl Held {
    /// Holds a delivery from now on; the receiver says when its program must stop.
    pub(crate) fn take(&self, delivery_id: &str) -> watch::Receiver<Option<Stop>> {
        let (stop, asked) = watch::channel(None);
        self.lock().insert(delivery_id.to_owned(), Delivery { since: time::now(), stop });
        self.changed.notify_waiters();
        asked
    }

    /// It is over, or no longer ours.
    pub(crate) fn let_go(&self, delivery_id: &str) {
        self.lock().remove(delivery_id);
        self.changed.notify_waiters();
    }

    /// Asks a delivery's program to stop. The first reason counts.
    pub(crate) fn stop(&self, delivery_id: &str, why: Stop) {
        if let Some(delivery) = self.lock().get(delivery_id) {
            delivery.stop.send_if_modified(|stop| {
                let first = stop.is_none();
                *stop = stop.or(Some(why));
                first
            });
        }
    }

    /// Asks all programs to stop.
    pub(crate) fn stop_all(&self, why: Stop) {
        for delivery_id in self.ids() {
            self.stop(&delivery_id, why);
        }
    }

    /// What is held now.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Ends when fewer than `limit` programs are about to stop, and says how many more could be.
    pub(crate) async fn stopping_below(&self, limit: u32) -> u32 {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let stopping = self.lock().values().filter(|delivery| delivery.stop.borrow().is_some()).count();
            match limit.saturating_sub(u32::try_from(stopping).unwrap_or(u32::MAX)) {
                0 => changed.await,
                free => return free,
            }
        }
    }

    /// Ends when nothing is held.
    pub(crate) async fn emptied(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.lock().is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Ends when something that is not in `covered` has been held for long enough to deserve a heartbeat.
    pub(crate) async fn uncovered(&self, covered: &HashSet<String>) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.oldest_outside(covered).map(|since| since + COVER_AFTER) {
                Some(due) if due <= time::now() => return,
                Some(due) => tokio::select! {
                    () = time::sleep_until(due) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    fn oldest_outside(&self, covered: &HashSet<String>) -> Option<Instant> {
        self.lock().iter().filter(|(id, _)| !covered.contains(*id)).map(|(_, delivery)| delivery.since).min()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Delivery>> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_to_stop_counts() {
        let held = Held::default();
        let asked = held.take("1-a");
        held.stop("1-a", Stop::Cancelled);
        held.stop_all(Stop::HandBack);
        assert_eq!(*asked.borrow(), Some(Stop::Cancelled));
        held.stop("1-unknown", Stop::Lost);
    }

    #[tokio::test]
    async fn a_waiter_for_emptiness_wakes_with_the_last_one() {
        let held = Held::default();
        let (_a, _b) = (held.take("1-a"), held.take("1-b"));
        let emptied = held.emptied();
        tokio::pin!(emptied);
        held.let_go("1-a");
        assert!(futures_util::poll!(&mut emptied).is_pending());
        held.let_go("1-b");
        emptied.await;
    }

    #[tokio::test]
    async fn only_what_no_heartbeat_covers_asks_for_one() {
        let held = Held::default();
        let _a = held.take("1-a");
        let covered = HashSet::from(["1-a".to_owned()]);
        let uncovered = held.uncovered(&covered);
        tokio::pin!(uncovered);
        assert!(futures_util::poll!(&mut uncovered).is_pending());
        let _b = held.take("1-b");
        uncovered.await;
    }
}
