//! What a process keeps in mind about one function: its keys, and the queues in which questions about it pile up.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::store::ClaimCalls;
use towpath_core::time::Timestamp;

use crate::calls::moves::Move;
use crate::calls::shape::ToSubmit;
use crate::calls::submit::Judged;
use crate::definition::shard_member;
use crate::keys::{FunctionKeys, Keys};
use crate::lane::{Kind, Lane};
use crate::link::Exclusive;

/// So long it is taken for granted that nobody has set a limit. Whoever sets one tells everybody; this is for those who did not hear it.
const LIMITS_KNOWN_FOR: Duration = Duration::from_secs(5);

/// Where questions about calls pile up: one for all functions if one server has all keys, else one for each.
#[derive(Clone)]
pub(crate) struct Lanes {
    submits: SubmitLane,
    moves: MoveLane,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { submits: Arc::new(Lane::wide()), moves: Arc::new(Lane::wide()) }
    }
}

/// Calls of one function share what is written for it.
impl<T> Kind for (Arc<Room>, T) {
    fn kind(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

type SubmitLane = Arc<Lane<(Arc<Room>, ToSubmit), Judged>>;
type MoveLane = Arc<Lane<(Arc<Room>, Arc<Move>), bool>>;

/// One function, as this process sees it.
pub(crate) struct Room {
    pub(crate) function: FunctionKey,
    shard: u16,
    /// How many streams the function is spread over besides this one, as far as is known. Of these nothing is known.
    shards: AtomicU16,
    /// The function as it stands in `where` and in the set of functions. Each of its streams has another.
    pub(crate) member: String,
    pub(crate) keys: FunctionKeys,
    pub(crate) submits: SubmitLane,
    pub(crate) moves: MoveLane,
    /// Counts what may have brought work outside the stream, or room for it.
    bell: watch::Sender<u64>,
    /// Counts what a reader should look up for.
    nudges: watch::Sender<u64>,
    /// How far the bell was when the last look found nothing outside the stream.
    looked_at: watch::Sender<u64>,
    /// How many calls run at once is limited, so that the end of one is news for those who wait.
    limit: AtomicU8,
    /// The list on which this process hears about the function's calls, once it has one.
    pub(crate) inbox: OnceLock<Arc<str>>,
    pub(crate) inbox_is_read: AtomicBool,
    /// Workers that may be given as many calls as they want, and when that was last seen.
    unlimited: Mutex<HashMap<WorkerId, Timestamp>>,
    /// A reader is at work.
    pub(crate) reading: AtomicBool,
    /// A reader has been at work since this process came.
    pub(crate) read_before: AtomicBool,
    /// The stream will be looked after in a moment.
    pub(crate) swept_soon: AtomicBool,
    /// The stream will be looked after when the first lease of what is pending is over.
    pub(crate) sweep_planned: AtomicBool,
    /// Workers of this process that may have been given something which did not arrive.
    bereft: Mutex<HashSet<String>>,
    /// The connection that the last reader blocked on, for the next one.
    line: Mutex<Option<Exclusive>>,
    /// How often the stream was swept.
    pub(crate) sweeps: AtomicU64,
    /// The submit sequence up to which the latest walk through the calls went.
    pub(crate) walked_to: AtomicU64,
    /// Entries acknowledged since the stream was last trimmed.
    pub(crate) acks: AtomicU64,
}

impl Room {
    pub(crate) fn new(keys: &Keys, function: &FunctionKey, shard: u16, lanes: Lanes) -> Self {
        Self {
            function: function.clone(),
            shard,
            shards: AtomicU16::new(0),
            member: shard_member(function, shard),
            keys: keys.shard(function, shard),
            submits: lanes.submits,
            moves: lanes.moves,
            // What was there before this process came is to be looked at first.
            bell: watch::Sender::new(1),
            looked_at: watch::Sender::new(0),
            nudges: watch::Sender::new(0),
            limit: AtomicU8::new(0),
            inbox: OnceLock::new(),
            inbox_is_read: AtomicBool::new(false),
            unlimited: Mutex::default(),
            reading: AtomicBool::new(false),
            read_before: AtomicBool::new(false),
            swept_soon: AtomicBool::new(false),
            sweep_planned: AtomicBool::new(false),
            bereft: Mutex::default(),
            line: Mutex::new(None),
            sweeps: AtomicU64::new(0),
            walked_to: AtomicU64::new(0),
            acks: AtomicU64::new(0),
        }
    }

    /// The function has, or had, so many streams besides this one. What waits there is read for ever.
    pub(crate) fn note_shards(&self, shards: u16) {
        self.shards.fetch_max(shards, Ordering::Relaxed);
    }

    /// It is not the first of its function's streams.
    pub(crate) fn is_shard(&self) -> bool {
        self.shard > 0
    }

    pub(crate) fn shards(&self) -> u16 {
        self.shards.load(Ordering::Relaxed)
    }

    /// Something may wait outside the stream, or there may be room for it.
    pub(crate) fn ring(&self) {
        self.unlimited().clear();
        self.bell.send_modify(|count| *count += 1);
        self.nudge();
    }

    /// The reader shall look again for whom it reads.
    pub(crate) fn nudge(&self) {
        self.nudges.send_modify(|count| *count += 1);
    }

    /// Changes at every nudge from now on.
    pub(crate) fn nudges(&self) -> watch::Receiver<u64> {
        self.nudges.subscribe()
    }

    /// Where the bell stands, if there is something to look for outside the stream.
    pub(crate) fn worth_a_look(&self) -> Option<u64> {
        let rung = *self.bell.borrow();
        (rung != *self.looked_at.borrow()).then_some(rung)
    }

    /// Nothing was left outside the stream when the bell stood there.
    pub(crate) fn nothing_since(&self, rung: u64) {
        self.looked_at.send_modify(|looked| *looked = (*looked).max(rung));
    }

    /// The connection stays with the function between two reads: claims come and go, and connecting takes longer than most calls.
    pub(crate) fn kept_line(&self) -> MutexGuard<'_, Option<Exclusive>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker of this process may have been given something that did not arrive.
    pub(crate) fn bereave(&self, worker: &WorkerId) {
        self.bereft.lock().unwrap_or_else(PoisonError::into_inner).insert(worker.to_string());
    }

    pub(crate) fn take_bereft(&self) -> HashSet<String> {
        std::mem::take(&mut *self.bereft.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a take of a worker said about limits: 1 it has one, 2 the function itself has, -1 calls that wait are counted.
    pub(crate) fn set_limit(&self, worker: &WorkerId, limit: i64, now: Timestamp) {
        self.limit.store(u8::try_from(limit).unwrap_or(0), Ordering::Relaxed);
        let mut unlimited = self.unlimited();
        if limit == 0 {
            unlimited.insert(worker.clone(), now);
        } else {
            unlimited.remove(worker);
        }
    }

    /// Whether a worker may be given as many calls as it wants, as far as is known.
    pub(crate) fn is_unlimited_for(&self, want: &ClaimCalls, now: Timestamp) -> bool {
        self.unlimited().get(&want.worker).is_some_and(|seen| now < *seen + LIMITS_KNOWN_FOR && *seen <= now)
    }

    fn unlimited(&self) -> MutexGuard<'_, HashMap<WorkerId, Timestamp>> {
        // Nothing in here can panic half way.
        self.unlimited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anybody may have to wait for the end of another call.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > 0
    }

    /// Whether workers of other processes may have to.
    pub(crate) fn is_limited_for_all(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > 1
    }
}
