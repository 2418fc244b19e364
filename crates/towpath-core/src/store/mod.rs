//! The store seam: one trait per capability, one method per atomic move. The store's clock judges: lengths go in, instants come out.
//!
//! What a caller must be ready for is a value of the reply: a lost lease, a duplicate, an overload. A [`StoreError`] is for what the
//! caller did not cause.

mod batches;
mod calls;
mod error;
mod inspect;
mod limits;
mod locks;
mod registry;
mod retention;
mod runs;
mod timers;

pub use batches::{BatchNews, BatchSource, BatchStore, BatchWakes, BatcherPut, DrainReply, Drained, DueBatches, StoredBatcher, Swept};
pub use calls::{
    CallNews, CallStore, CallWatch, Cancelled, ClaimCalls, ClaimFunction, CompleteCalls, Completed, Delivery, Ended, RenewCalls, Renewal,
    Replayed, SubmitCall, Submitted,
};
pub use error::{StoreError, StoreTrouble};
pub use inspect::InspectStore;
pub use limits::LimitStore;
pub use locks::{HeldScope, LockNews, LockStore, LockWakes};
pub use registry::{ConfigView, Heartbeat, PrepareParams, RegistryStore, SetConfig};
pub use retention::{Forgotten, Retention};
pub use runs::{
    ClaimRuns, ClaimedRun, EVENT_KNOWN_FOR, EventSent, FACTS_BYTES_MAX, FACTS_MAX, FiredRuns, JournalEntry, NewEvent, OnConflict,
    POST_AGAIN_AFTER, POST_AGAIN_MAX, POST_KEPT_FOR, RUNS_PAGE_MAX, Reuse, RunCommitted, RunFilter, RunPage, RunPageRequest, RunPlaceView,
    RunRenewal, RunRequest, RunRequested, RunStore, RunView, StartRun, Started, TakeOverRuns, TakenOver, end_without_code, event_of_start,
    post_again_after,
};
pub use timers::{Fired, TimerStore};

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A whole store.
pub trait Store: CallStore + RegistryStore + LockStore + LimitStore + TimerStore + InspectStore {}

impl<T: CallStore + RegistryStore + LockStore + LimitStore + TimerStore + InspectStore + ?Sized> Store for T {}

/// What an acknowledgement is worth. Named in every answer. A later one is worth more than an earlier one.
///
/// ```
/// use towpath_core::store::Durability;
///
/// assert!(Durability::Everysec < Durability::Always);
/// assert_eq!("replicated".parse(), Ok(Durability::Replicated));
/// assert!("twice".parse::<Durability>().unwrap_err().to_string().contains("everysec"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Durability {
    /// Gone with the store's process.
    Memory,
    /// Redis writes it to disk within a second: a killed process keeps it, a power cut may lose up to about two seconds.
    Everysec,
    /// Redis has it on disk before the answer: a killed process and a power cut keep it. A replica that takes over may not have it.
    Always,
    /// As many replicas as were asked for have confirmed it: it is kept when one of them takes over, too.
    Replicated,
    /// On disk before the answer: a killed process and a power cut keep it, and there is no replica that could take over without it.
    Fsync,
}

impl Durability {
    /// All of them, by worth.
    pub const ALL: [Self; 5] = [Self::Memory, Self::Everysec, Self::Always, Self::Replicated, Self::Fsync];

    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Everysec => "everysec",
            Self::Always => "always",
            Self::Replicated => "replicated",
            Self::Fsync => "fsync",
        }
    }

    /// What a power cut costs at this level, in words.
    pub const fn power_cut(self) -> &'static str {
        match self {
            Self::Memory => "everything is lost: this store is in memory",
            Self::Everysec => "up to about 2 s of accepted work can be lost: the store writes it to disk once a second",
            Self::Always => "nothing that was accepted is lost: it is on disk before it is acknowledged",
            Self::Replicated => "nothing that was accepted is lost, as long as a replica that confirmed it has other power",
            Self::Fsync => "nothing that was accepted is lost: it is on disk before it is acknowledged",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no level of durability.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no level of durability: write memory, everysec, always, replicated or fsync")]
pub struct UnknownDurability(pub String);

impl FromStr for Durability {
    type Err = UnknownDurability;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|level| level.as_str() == word).ok_or_else(|| UnknownDurability(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_by_worth_and_read_by_their_words() {
        assert!(Durability::ALL.is_sorted());
        for level in Durability::ALL {
            assert_eq!(level.as_str().parse(), Ok(level));
        }
        assert_eq!("Fsync".parse::<Durability>(), Err(UnknownDurability("Fsync".to_owned())));
    }
}
