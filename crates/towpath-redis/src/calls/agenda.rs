//! When timers of calls are due, as far as this process knows: it fires what it has had a hand in, and looks at everything now and then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use towpath_core::time::Timestamp;

use super::partition::Partition;
use crate::quick::QuickMap;

/// The timers that this process knows of.
#[derive(Default)]
pub(crate) struct Agenda {
    known: Mutex<Known>,
    sooner: Notify,
    lease_sooner: Notify,
}

#[derive(Default)]
struct Known {
    /// The earliest timer of each partition.
    partitions: QuickMap<String, (Arc<Partition>, Timestamp)>,
    /// The timekeeper looks then by itself; nothing later needs to be told.
    timekeeper: Option<Timestamp>,
    /// Everything was looked at then.
    looked_at: Option<Timestamp>,
}

impl Agenda {
    /// A call of this partition is due then.
    pub(crate) fn note(&self, partition: &Arc<Partition>, due: Timestamp) {
        let mut known = self.lock();
        match known.partitions.get_mut(&partition.member) {
            Some((_, earliest)) => *earliest = due.min(*earliest),
            None => drop(known.partitions.insert(partition.member.clone(), (Arc::clone(partition), due))),
        }
        if known.timekeeper.is_none_or(|timekeeper| due < timekeeper) {
            self.sooner.notify_one();
        }
    }

    /// A lease of a lock ends then.
    pub(crate) fn note_lease(&self, end: Timestamp) {
        if self.lock().timekeeper.is_none_or(|timekeeper| end < timekeeper) {
            self.lease_sooner.notify_one();
        }
    }

    /// The partitions that have something due, as far as is known.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<Arc<Partition>> {
        let known = self.lock();
        known.partitions.values().filter(|(_, due)| *due <= now).map(|(partition, _)| Arc::clone(partition)).collect()
    }

    /// The earliest timer of a partition, as it was just read. What was noted before that counts no more.
    pub(crate) fn set(&self, partition: &Arc<Partition>, earliest: Option<Timestamp>) {
        let mut known = self.lock();
        match earliest {
            Some(earliest) => drop(known.partitions.insert(partition.member.clone(), (Arc::clone(partition), earliest))),
            None => drop(known.partitions.remove(&partition.member)),
        }
    }

    /// The earliest timer of all partitions.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        self.lock().partitions.values().map(|(_, due)| *due).min()
    }

    /// All partitions were looked at now.
    pub(crate) fn has_looked(&self, now: Timestamp) {
        self.lock().looked_at = Some(now);
    }

    /// When all partitions were last looked at.
    pub(crate) fn looked_at(&self) -> Option<Timestamp> {
        self.lock().looked_at
    }

    /// All partitions are to be looked at again.
    pub(crate) fn doubt(&self) {
        self.lock().looked_at = None;
        self.sooner.notify_one();
    }

    /// The timekeeper knows of nothing earlier than this.
    pub(crate) fn wait_until(&self, known: Option<Timestamp>) {
        self.lock().timekeeper = known;
    }

    /// Ends when something earlier than the timekeeper knows was noted.
    pub(crate) async fn sooner(&self) {
        self.sooner.notified().await;
    }

    /// The same for leases of locks.
    pub(crate) async fn lease_sooner(&self) {
        self.lease_sooner.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // No code under this lock can panic half way.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
