//! A partition: all keys of a function share a hash tag, and this is what a process remembers about them. A hot function may be spread
//! over several partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};

use towpath_core::names::FunctionKey;
use towpath_core::store::StoreError;

use super::change::Change;
use super::submit::{Judged, ToSubmit};
use crate::definition::shard_member;
use crate::keys::{Keys, PartitionKeys};
use crate::lane::{Kind, Lane};
use crate::legacy::StreamState;

/// Where submits and changes pile up: one for all functions if one server has all keys, else one for each partition.
#[derive(Clone)]
pub(crate) struct Lanes {
    submits: SubmitLane,
    changes: ChangeLane,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { submits: Arc::new(Lane::wide()), changes: Arc::new(Lane::wide()) }
    }
}

/// Calls of one partition share a section of a script.
impl<T> Kind for (Arc<Partition>, T) {
    fn kind(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

type SubmitLane = Arc<Lane<(Arc<Partition>, ToSubmit), Result<Judged, StoreError>>>;
type ChangeLane = Arc<Lane<(Arc<Partition>, Arc<Change>), Result<bool, StoreError>>>;

/// What limits how many calls run at once, as the latest claim has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Limited {
    /// Nothing.
    No = 0,
    /// The concurrency of a worker, which the store counts.
    ByWorker = 1,
    /// The function's `max_concurrent`, or not known yet.
    ByFunction = 2,
}

/// One function, or one part of a function that is spread, as this process sees it.
pub(crate) struct Partition {
    pub(crate) function: FunctionKey,
    shard: u16,
    /// How many partitions the function is spread over besides the first, as far as is known. Kept in the first alone.
    shards: AtomicU16,
    /// The count of changes of functions when the number of partitions was last read.
    shards_read_at: AtomicU64,
    /// Its name in the set of functions.
    pub(crate) member: String,
    pub(crate) keys: PartitionKeys,
    pub(crate) submits: SubmitLane,
    pub(crate) changes: ChangeLane,
    /// Its queue may have calls for a claim of this process. Set by notifications, cleared by the claim that is about to look.
    may_have_work: AtomicBool,
    /// This process hears when calls come into the queue.
    pub(crate) is_heard: AtomicBool,
    limited: AtomicU8,
    /// Its function is known, so that this process keeps it.
    is_remembered: AtomicBool,
    /// Where the next round of repair goes on.
    repaired_to: AtomicU64,
    /// What is known about the stream that legacy peers use.
    pub(crate) legacy: StreamState,
}

impl Partition {
    pub(crate) fn new(keys: &Keys, function: &FunctionKey, shard: u16, lanes: Lanes) -> Self {
        Self {
            function: function.clone(),
            shard,
            shards: AtomicU16::new(0),
            shards_read_at: AtomicU64::new(u64::MAX),
            member: shard_member(function, shard),
            keys: keys.shard(function, shard),
            submits: lanes.submits,
            changes: lanes.changes,
            may_have_work: AtomicBool::new(true),
            is_heard: AtomicBool::new(false),
            limited: AtomicU8::new(Limited::ByFunction as u8),
            is_remembered: AtomicBool::new(false),
            repaired_to: AtomicU64::new(0),
            legacy: StreamState::default(),
        }
    }

    /// The function has, or had, that many more partitions. What waits there is still delivered.
    pub(crate) fn note_shards(&self, shards: u16) {
        self.shards.fetch_max(shards, Ordering::Relaxed);
    }

    /// Whether the number of partitions is to be read again: functions have changed since. It counts as read from now on.
    pub(crate) fn must_read_shards(&self, changes: u64) -> bool {
        self.shards_read_at.swap(changes, Ordering::Relaxed) != changes
    }

    pub(crate) fn shards(&self) -> u16 {
        self.shards.load(Ordering::Relaxed)
    }

    /// It is not the first partition of its function.
    pub(crate) fn is_shard(&self) -> bool {
        self.shard > 0
    }

    pub(crate) fn note_work(&self) {
        self.may_have_work.store(true, Ordering::Release);
    }

    pub(crate) fn may_have_work(&self) -> bool {
        self.may_have_work.load(Ordering::Acquire)
    }

    /// A claim is about to look: only what comes from now on is news.
    pub(crate) fn take_note_of_work(&self) -> bool {
        self.may_have_work.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn note_limit(&self, limited: Limited) {
        self.limited.store(limited as u8, Ordering::Relaxed);
    }

    /// Whether the end of a running call makes room that a waiting claim cannot see otherwise.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed) > Limited::No as u8
    }

    pub(crate) fn is_remembered(&self) -> bool {
        self.is_remembered.load(Ordering::Acquire)
    }

    pub(super) fn set_remembered(&self, is_remembered: bool) {
        self.is_remembered.store(is_remembered, Ordering::Release);
    }

    pub(crate) fn repaired_to(&self) -> u64 {
        self.repaired_to.load(Ordering::Relaxed)
    }

    pub(crate) fn set_repaired_to(&self, cursor: u64) {
        self.repaired_to.store(cursor, Ordering::Relaxed);
    }
}
