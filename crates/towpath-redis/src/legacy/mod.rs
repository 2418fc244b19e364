//! Legacy peers: callers and workers built from the seeds, on the same Redis. Everything that exists for them is in here, so that the rest
//! of the store reads as if they did not exist. The rest calls the methods in this file, and nothing else.
//!
//! | file | what it does |
//! |---|---|
//! | `announce` | what a Towpath worker says in the seeds' keys, so that legacy callers find it |
//! | `peers`, `meta` | legacy workers, seen through the seeds' registry |
//! | `entry`, `reply` | how entries and replies are read and written |
//! | `import` | entries of legacy callers become calls |
//! | `export` | calls become entries for legacy workers |
//! | `replies` | replies of legacy workers end calls |
//! | `answers` | ended calls are answered to legacy callers |
//! | `doorbell`, `reader` | blocking reads: an entry has come, a reply has come |
//! | `tick` | what is looked at, and how often |
//! | `tend`, `look`, `consumers` | the stream of one function: what is looked at, what is taken over, which consumers are gone |
//! | `fate` | what became of exported calls |
//! | `missed` | entries that a new group begins behind |
//! | `lists` | legacy workers and their functions, for people |
//! | `health` | the stream of a function, for people: what waits in it, what is held |

pub(crate) mod announce;
mod answers;
mod consumers;
mod doorbell;
mod entry;
mod export;
mod fate;
mod health;
mod import;
mod lists;
mod look;
mod meta;
mod missed;
mod peers;
mod reader;
mod replies;
mod reply;
mod scripts;
mod tend;
mod tick;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::store::{PrepareParams, StoreError};
use towpath_core::time::Timestamp;

use crate::calls::partition::Partition;
use crate::store::RedisStore;

pub(crate) use fate::Looks;
pub(crate) use peers::is_legacy_worker;

/// The consumer under which Towpath reads streams.
const CONSUMER: &str = "towpath";
/// The holder of a call that a legacy worker runs, if its consumer's name is not a worker id.
const LEGACY: &str = "legacy";

/// What this process knows about legacy peers.
#[derive(Default)]
pub(crate) struct Legacy {
    peers: peers::PeersSeen,
    doorbell: doorbell::Doorbell,
    replies: replies::AwaitedReplies,
    rounds: Mutex<tick::Rounds>,
    /// When this process last searched for functions of legacy workers.
    searched: Mutex<Option<Timestamp>>,
    /// What the params of a call go through before a legacy worker gets them.
    prepare: OnceLock<Arc<dyn PrepareParams>>,
    /// Calls made of entries of legacy callers, that were not counted yet.
    imported: Mutex<HashMap<FunctionKey, u64>>,
}

impl Legacy {
    /// Calls were made of entries of legacy callers.
    fn note_imported(&self, function: &FunctionKey, count: usize) {
        // No code that can panic runs under this lock.
        let mut imported = self.imported.lock().unwrap_or_else(PoisonError::into_inner);
        *imported.entry(function.clone()).or_default() += count as u64;
    }

    /// How many calls were made of entries of legacy callers since this was asked last.
    pub(crate) fn take_imported(&self) -> Vec<(FunctionKey, u64)> {
        std::mem::take(&mut *self.imported.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
    }

    /// The workers of these functions have just changed.
    pub(crate) fn forget(&self, functions: &[FunctionKey]) {
        self.peers.forget(functions);
    }

    pub(crate) fn prepare_params_with(&self, prepare: Arc<dyn PrepareParams>) {
        let _first_counts = self.prepare.set(prepare);
    }
}

/// What this process knows about the stream of one partition.
pub(crate) struct StreamState {
    /// The stream may have entries that were not imported yet.
    may_have_entries: AtomicBool,
    /// The doorbell has it.
    is_listened_to: AtomicBool,
    /// The tick looks after it.
    is_tended: AtomicBool,
    /// Calls were submitted that legacy workers alone can run; a task exports them.
    wants_export: AtomicBool,
    is_exporting: AtomicBool,
    /// Where the next look at calls that legacy workers run goes on.
    notes_next: AtomicU64,
    without_entry: Mutex<fate::WithoutEntry>,
}

impl Default for StreamState {
    /// Until the stream was looked at once, it may have anything.
    fn default() -> Self {
        Self {
            may_have_entries: AtomicBool::new(true),
            is_listened_to: AtomicBool::new(false),
            is_tended: AtomicBool::new(true),
            wants_export: AtomicBool::new(false),
            is_exporting: AtomicBool::new(false),
            notes_next: AtomicU64::new(0),
            without_entry: Mutex::default(),
        }
    }
}

impl StreamState {
    /// The stream may have entries: the next claim looks.
    pub(crate) fn note_entries(&self) {
        self.may_have_entries.store(true, Ordering::Release);
    }

    fn tend(&self) {
        self.is_tended.store(true, Ordering::Release);
    }

    fn without_entry(&self) -> MutexGuard<'_, fate::WithoutEntry> {
        // No code that can panic runs under this lock.
        self.without_entry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a reply channel of a record is the list of a legacy caller.
pub(crate) fn is_reply_list(channel: &str) -> bool {
    channel.starts_with("function:response:")
}

/// The holder of a call that a legacy worker runs.
fn holder(consumer: &str) -> Option<WorkerId> {
    WorkerId::new(format!("{LEGACY} {consumer}")).or_else(|_| WorkerId::new(LEGACY)).ok()
}

/// The consumer of a legacy worker that runs a call, as far as the name of the holder tells it.
fn consumer_of(holder: &WorkerId) -> &str {
    holder.as_str().strip_prefix("legacy ").unwrap_or(LEGACY)
}

/// Whether a call is run by a legacy worker, by the name of its holder.
pub(crate) fn is_legacy_holder(holder: &WorkerId) -> bool {
    holder.as_str().strip_prefix(LEGACY).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

impl RedisStore {
    /// Whether a healthy worker of either kind serves a function, as the seeds' registry shows it.
    pub(crate) async fn has_legacy_workers(&self, function: &FunctionKey) -> Result<bool, StoreError> {
        self.look_at_peers_now(std::slice::from_ref(function)).await?;
        Ok(self.last_serving(function).is_some_and(|serving| serving.has_legacy || serving.has_towpath))
    }

    /// Whether a healthy legacy worker serves a function, as seen a few seconds ago at most.
    pub(crate) async fn is_served_by_legacy(&self, function: &FunctionKey) -> Result<bool, StoreError> {
        self.look_at_peers(std::slice::from_ref(function)).await?;
        Ok(self.last_serving(function).is_some_and(|serving| serving.has_legacy))
    }

    /// A legacy worker may have destroyed the group of a function: the tick looks, and makes it again.
    pub(crate) fn make_group_again(&self, function: &FunctionKey) {
        self.partition(function).legacy.tend();
    }

    /// The stream of a partition may have changed: a claim imports from it, and the tick looks after it.
    fn stream_may_have_entries(&self, partition: &Arc<Partition>) {
        partition.legacy.note_entries();
        partition.legacy.tend();
        self.work_came(partition);
    }
}
