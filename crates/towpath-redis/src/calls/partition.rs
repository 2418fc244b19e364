//! A partition: all keys of a function share a hash tag, and this is what a process remembers about them. A hot function may be spread
//! over several partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use towpath_core::names::FunctionKey;
use towpath_core::store::StoreError;
use towpath_core::time::{Timestamp, millis};

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

/// A submit into a queue that is not empty notifies workers once in this time.
const NOTIFIED_EVERY: Duration = Duration::from_secs(1);

/// A round of repair looks at this many calls of a function, fewer if they are large.
const REPAIR_FEWEST: u64 = 8;
const REPAIR_MOST: u64 = 200;
const REPAIR_BYTES: usize = 256 * 1024;

/// How large something is that goes with a script.
pub(crate) trait Weighed {
    /// About how many bytes it adds to the script.
    fn bytes(&self) -> usize;
}

/// Calls of one partition share a section of a script.
impl<T: Weighed> Kind for (Arc<Partition>, T) {
    fn kind(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn bytes(&self) -> usize {
        self.1.bytes()
    }
}

type SubmitLane = Arc<Lane<(Arc<Partition>, ToSubmit), Result<Judged, StoreError>>>;
type ChangeLane = Arc<Lane<(Arc<Partition>, Arc<Change>), Result<bool, StoreError>>>;

/// Limits on how many calls run at once, as a claim has met them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits(i64);

impl Limits {
    pub(crate) fn read(bits: i64) -> Self {
        Self(bits)
    }

    /// The store counts the calls of the worker, or those of the function.
    fn has_any(self) -> bool {
        self.0 & 3 != 0
    }

    /// The function had no room for more.
    pub(crate) fn ended_by_function(self) -> bool {
        self.0 & 4 != 0
    }

    /// The worker had no room for more.
    pub(crate) fn ended_by_worker(self) -> bool {
        self.0 & 8 != 0
    }
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
    /// When a submit of this process last notified workers although the queue was not empty, ms.
    notified_at: AtomicI64,
    /// This process hears when calls come into the queue.
    pub(crate) is_heard: AtomicBool,
    /// No limit was met by the latest claim, made when functions had changed this many times. `u64::MAX`: a limit was met, or none was made.
    unlimited_at: AtomicU64,
    /// Its function is known, so that this process keeps it.
    is_remembered: AtomicBool,
    /// Where the next round of repair goes on, and how many calls it looks at.
    repaired_to: AtomicU64,
    repair_count: AtomicU64,
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
            notified_at: AtomicI64::new(0),
            is_heard: AtomicBool::new(false),
            unlimited_at: AtomicU64::new(u64::MAX),
            is_remembered: AtomicBool::new(false),
            repaired_to: AtomicU64::new(0),
            repair_count: AtomicU64::new(REPAIR_FEWEST),
            legacy: StreamState::default(),
        }
    }

    /// The function has, or had, that many more partitions. What waits there is still delivered. Whether that is news.
    pub(crate) fn note_shards(&self, shards: u16) -> bool {
        self.shards.fetch_max(shards, Ordering::Relaxed) < shards
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

    /// Whether a submit notifies workers in any case, now and then: a queue that is not empty may hold nothing but lines that name no call, of which
    /// no worker was notified.
    pub(crate) fn must_notify(&self, now: Timestamp) -> bool {
        let (now, last) = (now.as_millis(), self.notified_at.load(Ordering::Relaxed));
        let is_due = now < last || now - last >= millis(NOTIFIED_EVERY);
        // Of several submits at once one does it.
        is_due && self.notified_at.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Notes the limits that a claim has met, and how often functions had changed before it.
    pub(crate) fn note_limits(&self, limits: Limits, changes: u64) {
        self.unlimited_at.store(if limits.has_any() { u64::MAX } else { changes }, Ordering::Relaxed);
    }

    /// Whether the end of a running call makes room that a waiting claim cannot see otherwise. A limit may have come with a change of functions.
    pub(crate) fn is_limited(&self, changes: u64) -> bool {
        self.unlimited_at.load(Ordering::Relaxed) != changes
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

    /// How many calls the next round of repair looks at.
    pub(crate) fn repair_count(&self) -> u64 {
        self.repair_count.load(Ordering::Relaxed)
    }

    /// A round of repair got this far, and read that many bytes. Calls with large requests are looked at a few at a time.
    pub(crate) fn note_repair(&self, cursor: u64, bytes: usize) {
        self.repaired_to.store(cursor, Ordering::Relaxed);
        let count = self.repair_count();
        let next = if bytes > REPAIR_BYTES { count / 4 } else { count * 2 };
        self.repair_count.store(next.clamp(REPAIR_FEWEST, REPAIR_MOST), Ordering::Relaxed);
    }
}
