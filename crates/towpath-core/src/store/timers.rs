//! What happens by itself: deadlines, the ends of leases, delays and retentions, and workers that fell silent.

use async_trait::async_trait;

use super::{Ended, StoreError};
use crate::time::Timestamp;

/// The timers' moves.
#[async_trait]
pub trait TimerStore: Send + Sync {
    /// Does what is due by the store's clock, at most `limit` things, earliest first.
    async fn fire_due(&self, limit: u32) -> Result<Fired, StoreError>;

    /// Ends as soon as something is due earlier than `known` (`None`: anything at all), and says when. The loop sleeps until then.
    async fn due_before(&self, known: Option<Timestamp>) -> Timestamp;
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// Calls that ended: expired, timed out, or cancelled by the absence of their worker.
    pub ended: Vec<Ended>,
    /// Leases that were over; their calls wait for another worker.
    pub reclaimed: u64,
    /// Delayed calls that now wait for a worker.
    pub promoted: u64,
    /// Ended calls whose retention was over.
    pub forgotten: u64,
    /// Workers taken off the list.
    pub workers_removed: u64,
    /// Locks whose lease was over, and which were looked at.
    pub locks_reaped: u64,
    /// When something is due next.
    pub next_due: Option<Timestamp>,
}

impl Fired {
    /// How many things were done.
    pub fn total(&self) -> u64 {
        self.ended.len() as u64 + self.reclaimed + self.promoted + self.forgotten + self.workers_removed + self.locks_reaped
    }
}
