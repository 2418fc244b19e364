//! Timers: ends of delays and leases, deadlines, silent workers, and lock leases. The end of a retention is not a timer.

use async_trait::async_trait;

use super::{Ended, Forgotten, Retention, StoreError};
use crate::time::Timestamp;

/// The timers' moves.
#[async_trait]
pub trait TimerStore: Send + Sync {
    /// Fires the timers that are due by the store's clock, kind by kind: delays (delayed calls whose `not_before` has come), leases
    /// (running calls whose `lease_until` has come), deadlines (open calls whose deadline has come and that this run has not moved
    /// yet), silent workers, lock leases. The limit counts for each kind by itself: 200,000 deadlines that passed in an outage must not
    /// make a retry or a lease wait.
    ///
    /// Within a kind the earliest comes first, then the older submit. [`step`](crate::call::step) decides what becomes of a call,
    /// whichever kind brought it up: a delayed call that is past its deadline expires.
    async fn fire_due(&self, limit: u32) -> Result<Fired, StoreError>;

    /// Ends as soon as something is due earlier than `known` (`None`: anything at all), and says when. The loop sleeps until then.
    async fn due_before(&self, known: Option<Timestamp>) -> Timestamp;

    /// Removes what is too old or too much, at most `limit` of each kind, the oldest first. A dead letter of a call is settled as
    /// [`drop_dead`](super::CallStore::drop_dead) does it. Nothing of this happens by itself: the engine asks for it now and then.
    ///
    /// The bounds of outcomes are those of the embedded store. On Redis an ended call lives in a bucket that Redis expires.
    async fn forget_old(&self, keep: &Retention, limit: u32) -> Result<Forgotten, StoreError>;
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// Calls that ended, in the order of firing: expired, timed out, poisoned, or cancelled by the absence of their worker.
    pub ended: Vec<Ended>,
    /// Leases that were over; their calls wait for another worker.
    pub reclaimed: u64,
    /// Delayed calls that now wait for a worker.
    pub promoted: u64,
    /// Workers taken off the list.
    pub workers_removed: u64,
    /// Locks whose lease was over, and which were looked at.
    pub locks_reaped: u64,
    /// The earliest timer that is left. It lies in the past when the limit left timers that are due. It never names a retention.
    pub next_due: Option<Timestamp>,
}

impl Fired {
    /// How many things were done.
    pub fn total(&self) -> u64 {
        self.ended.len() as u64 + self.reclaimed + self.promoted + self.workers_removed + self.locks_reaped
    }
}
