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
    partitions: QuickMap<String, Earliest>,
    /// Silent workers and leases of locks are not looked at before this: one of them could not be dealt with.
    others_from: Option<Timestamp>,
    /// The timekeeper looks then by itself; nothing later needs to be told.
    timekeeper: Option<Timestamp>,
    /// Everything was looked at then.
    looked_at: Option<Timestamp>,
}

/// The earliest timer of a partition.
struct Earliest {
    partition: Arc<Partition>,
    /// `None`: it has none, as far as is known.
    due: Option<Timestamp>,
    /// The earliest that was noted since the partition's timers are being read.
    noted: Option<Timestamp>,
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

impl Known {
    fn of(&mut self, partition: &Arc<Partition>) -> &mut Earliest {
        let unknown = || Earliest { partition: Arc::clone(partition), due: None, noted: None };
        self.partitions.entry(partition.member.clone()).or_insert_with(unknown)
    }
}

impl Agenda {
    /// A call of this partition is due then.
    pub(crate) fn note(&self, partition: &Arc<Partition>, due: Timestamp) {
        let mut known = self.lock();
        match known.partitions.get_mut(&partition.member) {
            Some(earliest) => {
                earliest.due = earlier(earliest.due, Some(due));
                earliest.noted = earlier(earliest.noted, Some(due));
            }
            None => *known.of(partition) = Earliest { partition: Arc::clone(partition), due: Some(due), noted: Some(due) },
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
        let is_due = |earliest: &&Earliest| earliest.due.is_some_and(|due| due <= now);
        known.partitions.values().filter(is_due).map(|earliest| Arc::clone(&earliest.partition)).collect()
    }

    /// The earliest timers of these partitions are about to be read. What is noted from now on may be earlier.
    pub(crate) fn begin_reading(&self, partitions: &[Arc<Partition>]) {
        let mut known = self.lock();
        partitions.iter().for_each(|partition| known.of(partition).noted = None);
    }

    /// The earliest timer of a partition, as it was read since [`Agenda::begin_reading`]. What was noted before that counts no more.
    pub(crate) fn set(&self, partition: &Arc<Partition>, read: Option<Timestamp>) {
        let mut known = self.lock();
        let earliest = known.of(partition);
        earliest.due = earlier(read, earliest.noted);
        if earliest.due.is_none() {
            known.partitions.remove(&partition.member);
        }
    }

    /// The timers of a partition are not looked at before this.
    pub(crate) fn put_off(&self, partition: &Arc<Partition>, until: Timestamp) {
        let mut known = self.lock();
        let earliest = known.of(partition);
        earliest.due = Some(earliest.due.map_or(until, |due| due.max(until)));
    }

    /// Silent workers and leases of locks are not looked at before this.
    pub(crate) fn put_others_off(&self, until: Timestamp) {
        self.lock().others_from = Some(until);
    }

    /// From when on silent workers and leases of locks are looked at.
    pub(crate) fn others_from(&self) -> Option<Timestamp> {
        self.lock().others_from
    }

    /// The earliest timer of all partitions.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        self.lock().partitions.values().filter_map(|earliest| earliest.due).min()
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

#[cfg(test)]
mod tests {
    use towpath_core::names::{FunctionKey, FunctionName};

    use super::super::partition::Lanes;
    use super::*;
    use crate::keys::Keys;
    use crate::options::RedisOptions;

    fn partition() -> Arc<Partition> {
        let keys = Keys::of(&RedisOptions::standalone("127.0.0.1", 6379));
        let function = FunctionKey::global(FunctionName::new("add").unwrap());
        Arc::new(Partition::new(&keys, &function, 0, Lanes::default()))
    }

    #[test]
    fn a_timer_that_is_noted_while_the_others_are_read_is_not_forgotten() {
        let (agenda, partition, at) = (Agenda::default(), partition(), Timestamp::from_millis);
        agenda.note(&partition, at(100));
        agenda.begin_reading(std::slice::from_ref(&partition));
        agenda.note(&partition, at(50));
        agenda.set(&partition, Some(at(900)));
        assert_eq!(agenda.earliest(), Some(at(50)));
        agenda.begin_reading(std::slice::from_ref(&partition));
        agenda.set(&partition, Some(at(900)));
        assert_eq!(agenda.earliest(), Some(at(900)), "what was noted before the reading counts no more");
        agenda.begin_reading(std::slice::from_ref(&partition));
        agenda.set(&partition, None);
        assert_eq!(agenda.earliest(), None);
    }
}
