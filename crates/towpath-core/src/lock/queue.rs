//! Who waits for a lock, first come first served. A waiter that has not been heard of for too long is as good as gone.

use crate::names::WaiterId;
use crate::time::Timestamp;

/// A place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Who waits.
    pub waiter: WaiterId,
    /// The number of its arrival, which orders the queue.
    pub arrival: u64,
    /// It is gone unless it asks again before.
    pub alive_until: Timestamp,
    /// How many units it wants; 1 for an exclusive lock.
    pub weight: u32,
}

/// The queue of one scope, by arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// All who wait, by arrival. Some may be gone.
    pub waiters: Vec<Waiter>,
    /// How many have ever queued.
    pub arrivals: u64,
}

/// How many are told when the turn passes on: the second, too, in case the first is gone.
const WOKEN: usize = 2;

impl Queue {
    /// How many waiters are ahead.
    pub fn rank(&self, waiter: &WaiterId) -> Option<usize> {
        self.waiters.iter().position(|place| place.waiter == *waiter)
    }

    /// Joins at the end, or says that one still waits.
    pub(crate) fn join(&mut self, waiter: &WaiterId, alive_until: Timestamp, weight: u32) -> usize {
        let rank = self.rank(waiter).unwrap_or_else(|| {
            self.arrivals += 1;
            self.waiters.push(Waiter { waiter: waiter.clone(), arrival: self.arrivals, alive_until, weight });
            self.waiters.len() - 1
        });
        (self.waiters[rank].alive_until, self.waiters[rank].weight) = (alive_until, weight);
        rank
    }

    /// Takes a waiter out. `false`: it was not there.
    pub(crate) fn leave(&mut self, waiter: &WaiterId) -> bool {
        let rank = self.rank(waiter);
        rank.map(|rank| self.waiters.remove(rank)).is_some()
    }

    /// The first that is not gone. Those before it are dropped.
    pub(super) fn live_head(&mut self, now: Timestamp) -> Option<&WaiterId> {
        let gone = self.waiters.iter().take_while(|place| place.alive_until <= now).count();
        self.waiters.drain(..gone);
        self.waiters.first().map(|place| &place.waiter)
    }

    /// Who is to be told that the turn passes on.
    pub(crate) fn wakes(&self) -> Vec<WaiterId> {
        self.waiters.iter().take(WOKEN).map(|place| place.waiter.clone()).collect()
    }
}
