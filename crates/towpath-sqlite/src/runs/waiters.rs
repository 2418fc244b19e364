//! Tasks of this process that wait for runs: for the end of one, for work in a place, or for what comes for a run that they execute. A wake-up
//! says "look again"; losing one costs time, never work.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use towpath_core::names::WorkerId;
use towpath_core::run::{RunId, RunPlace};
use towpath_core::time::Timestamp;

/// An owner that has not asked for this long is forgotten.
const OWNER_KNOWN_FOR: Duration = Duration::from_secs(3_600);

/// All tasks that wait for runs.
#[derive(Debug, Default)]
pub(crate) struct RunWaiters {
    closing: Mutex<HashMap<RunId, Weak<Notify>>>,
    claims: Mutex<Vec<Arc<WaitingClaim>>>,
    owners: Mutex<HashMap<WorkerId, Owner>>,
}

#[derive(Debug)]
struct WaitingClaim {
    places: Arc<[RunPlace]>,
    notify: Notify,
}

/// What an owner has not heard of yet.
#[derive(Debug)]
struct Owner {
    runs: BTreeSet<RunId>,
    notify: Arc<Notify>,
    asked_at: Timestamp,
}

/// A task that waits for the end of a run. What no task waits for is not kept.
pub(crate) struct Closing {
    waiters: Arc<RunWaiters>,
    run_id: RunId,
    /// `None` once it has been dropped.
    heard: Option<Pin<Box<OwnedNotified>>>,
}

impl Closing {
    /// Returns when the run has closed.
    pub(crate) async fn heard(mut self) {
        if let Some(heard) = self.heard.as_mut() {
            heard.as_mut().await;
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let mut closing = lock(&self.waiters.closing);
        // Under the lock, so that of two that go at once the second one sees that no other listens.
        self.heard = None;
        if closing.get(&self.run_id).is_some_and(|notify| notify.strong_count() == 0) {
            closing.remove(&self.run_id);
        }
    }
}

/// A claim that waits for runs of its places.
pub(crate) struct Queued {
    waiters: Arc<RunWaiters>,
    claim: Arc<WaitingClaim>,
}

impl Queued {
    /// Returns when a run of one of the places came into a queue, also if that was before, but after the latest return.
    pub(crate) async fn heard(&self) {
        self.claim.notify.notified().await;
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        lock(&self.waiters.claims).retain(|claim| !Arc::ptr_eq(claim, &self.claim));
    }
}

impl RunWaiters {
    /// Listens for the end of a run from this moment on.
    pub(crate) fn listen_for_close(self: &Arc<Self>, run_id: &RunId) -> Closing {
        let mut closing = lock(&self.closing);
        let known = closing.get(run_id).and_then(Weak::upgrade);
        let notify = known.unwrap_or_else(|| {
            let notify = Arc::new(Notify::new());
            closing.insert(run_id.clone(), Arc::downgrade(&notify));
            notify
        });
        let heard = Arc::clone(&notify).notified_owned();
        Closing { waiters: Arc::clone(self), run_id: run_id.clone(), heard: Some(Box::pin(heard)) }
    }

    pub(crate) fn tell_closed(&self, closed: &[RunId]) {
        for run_id in closed {
            if let Some(notify) = lock(&self.closing).remove(run_id).as_ref().and_then(Weak::upgrade) {
                notify.notify_waiters();
            }
        }
    }

    /// Listens for runs of these places from this moment on.
    pub(crate) fn listen_for_queued(self: &Arc<Self>, places: &Arc<[RunPlace]>) -> Queued {
        let claim = Arc::new(WaitingClaim { places: Arc::clone(places), notify: Notify::new() });
        lock(&self.claims).push(Arc::clone(&claim));
        Queued { waiters: Arc::clone(self), claim }
    }

    pub(crate) fn tell_queued(&self, places: &HashSet<RunPlace>) {
        if places.is_empty() {
            return;
        }
        for claim in lock(&self.claims).iter().filter(|claim| claim.places.iter().any(|place| places.contains(place))) {
            claim.notify.notify_one();
        }
    }

    /// What an owner has not heard of yet, and the signal that there is more. What comes is kept for an owner from its first question on.
    pub(crate) fn news_for(&self, owner: &WorkerId, now: Timestamp) -> (Vec<RunId>, Arc<Notify>) {
        let mut owners = lock(&self.owners);
        if !owners.contains_key(owner) {
            owners.retain(|_, known| Arc::strong_count(&known.notify) > 1 || now.since(known.asked_at) < OWNER_KNOWN_FOR);
        }
        let new = || Owner { runs: BTreeSet::new(), notify: Arc::default(), asked_at: now };
        let known = owners.entry(owner.clone()).or_insert_with(new);
        known.asked_at = now;
        (std::mem::take(&mut known.runs).into_iter().collect(), Arc::clone(&known.notify))
    }

    pub(crate) fn tell_owners(&self, news: &[(WorkerId, RunId)]) {
        for (owner, run_id) in news {
            if let Some(known) = lock(&self.owners).get_mut(owner) {
                known.runs.insert(run_id.clone());
                known.notify.notify_one();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use towpath_core::run::place;

    use super::*;

    fn has_heard(claim: &Queued) -> bool {
        pin!(claim.heard()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_claim_hears_of_runs_of_its_own_places_alone() {
        let waiters = Arc::new(RunWaiters::default());
        let [order, shipping, billing] = ["order", "shipping", "billing"].map(|name| place(name, "1", None).unwrap());
        let claim = waiters.listen_for_queued(&[order.clone(), shipping].into());
        waiters.tell_queued(&HashSet::from([billing.clone()]));
        assert!(!has_heard(&claim));
        waiters.tell_queued(&HashSet::from([order, billing]));
        assert!(has_heard(&claim));
        assert!(!has_heard(&claim), "once");
        drop(claim);
        assert!(lock(&waiters.claims).is_empty());
    }

    #[test]
    fn owners_that_ask_no_more_are_forgotten() {
        let waiters = RunWaiters::default();
        let (owner, run_id) = (|name: &str| WorkerId::new(name).unwrap(), RunId::new(&place("order", "1", None).unwrap(), 1));
        let at = Timestamp::from_millis;
        drop(waiters.news_for(&owner("w1"), at(0)));
        waiters.tell_owners(&[(owner("w1"), run_id.clone()), (owner("w2"), run_id.clone())]);
        assert_eq!(waiters.news_for(&owner("w1"), at(1)).0, [run_id]);
        assert!(waiters.news_for(&owner("w1"), at(2)).0.is_empty(), "it was told once");
        assert!(waiters.news_for(&owner("w2"), at(3_600_002)).0.is_empty(), "it had not asked");
        assert_eq!(lock(&waiters.owners).len(), 1);
    }
}
