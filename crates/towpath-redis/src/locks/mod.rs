//! Locks, semaphores and read/write locks: one script per move, wakes through the process's one subscription.
//!
//! | file | what it does |
//! |---|---|
//! | `keys` | every key, built in one place |
//! | `scripts` | the Lua files of `lua/locks` and `lua/permits` |
//! | `moves` | exclusive locks |
//! | `permits` | semaphores and read/write locks |
//! | `indexes` | what a Cluster's scripts cannot reach: which locks there are, and what an execution holds |
//! | `look` | reads for people, through `record` |
//! | `said` | reading what a script answers |
//! | `swap` | grants and releases that are decided here and only compared there |
//! | `turns` | whose turn it is |

mod indexes;
pub(crate) mod keys;
mod look;
mod moves;
mod permits;
mod record;
mod said;
mod scripts;
mod swap;
mod turns;

use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use towpath_core::lock::{
    AcquireLock, AcquireReply, CancelLock, CancelReply, EndLock, EndReply, ReapReply, ReleaseLock, ReleaseReply, RenewLock, RenewReply,
};
use towpath_core::names::{ExecutionId, LockScope, NodeId};
use towpath_core::permit::{AcquirePermit, PermitKind, PermitReply, ReleasePermit, RenewPermit};
use towpath_core::store::{HeldScope, LockStore, LockWakes, StoreError, StoreTrouble};
use towpath_core::time::{Timestamp, millis};

use crate::calls::agenda::Agenda;
use crate::link::{Script, trouble};
use crate::script::Args;
use crate::store::RedisStore;
use crate::unreadable::WHAT_TO_DO;
use indexes::Indexed;
use keys::{LockKeys, PermitKeys, SharedKeys, unfit_for_cluster};
use said::Said;
use swap::Remembered;
use turns::NodesEar;

/// Where time is moved by hand, keys stay for so long by the server's own: no test takes longer.
const KEPT_BY_HAND: Duration = Duration::from_secs(86_400);

/// Counter and sidecar are swept so long after the lease: the numbers judge, and a server's clock is read in whole milliseconds.
const LATE: Duration = Duration::from_secs(1);

/// The timekeeper looks by itself at least so often; what is due later needs not be told.
const FOUND_BY_ITSELF: Duration = Duration::from_secs(6);

/// What an open store keeps in mind about locks.
pub(crate) struct Locks {
    pub(crate) keys: SharedKeys,
    /// How long keys are kept whatever they hold, ms; 0 where they expire when they are of no use.
    keep_ms: i64,
    /// What every script is told about the store.
    surroundings: String,
    remembered: Remembered,
}

impl Locks {
    /// `by_hand`: the clock is moved by a test, and the server's own time means nothing.
    pub(crate) fn new(keys: SharedKeys, by_hand: bool) -> Self {
        let keep_ms = if by_hand { millis(KEPT_BY_HAND) } else { 0 };
        let executions = if keys.is_cluster { "" } else { &*keys.executions };
        let surroundings = format!("{keep_ms} {} {executions}", keys.channels);
        Self { keys, keep_ms, surroundings, remembered: Remembered::default() }
    }

    /// How long a key is kept that is of use for so long.
    fn lifetime_ms(&self, length: Duration) -> i64 {
        if self.keep_ms > 0 { self.keep_ms } else { millis(length).max(1) }
    }

    /// Tells the timekeeper of a lease that may end before it looks again.
    fn note_due(&self, agenda: &Agenda, lease_end: Timestamp, now: Timestamp) {
        if self.keep_ms > 0 || lease_end.since(now) < FOUND_BY_ITSELF {
            agenda.note_lease(lease_end);
        }
    }
}

impl RedisStore {
    /// Refuses a scope that cannot be kept here.
    fn lock_keys(&self, scope: &LockScope) -> Result<LockKeys, StoreError> {
        match unfit_for_cluster(scope).filter(|_| self.shared.locks.keys.is_cluster) {
            Some(why) => Err(trouble(why)),
            None => Ok(self.shared.locks.keys.lock(scope)),
        }
    }

    fn permit_keys(&self, kind: PermitKind, scope: &LockScope) -> PermitKeys {
        self.shared.locks.keys.permits(kind, scope)
    }

    /// What all scripts are handed first. `member` is how the indexes name the scope.
    fn lock_args(&self, member: &str, now: Timestamp) -> Args {
        let mut args = Args::with_capacity(14);
        args.number(now.as_millis());
        args.push(member);
        args.push(&self.shared.locks.surroundings);
        args
    }

    async fn run_scope(&self, script: &Script, keys: &[&str], args: &Args) -> Result<Said, StoreError> {
        Said::new(self.run_value(script, keys, args).await?)
    }

    async fn run_value(&self, script: &Script, keys: &[&str], args: &Args) -> Result<Value, StoreError> {
        self.or_corrupt(self.shared.link.run_args(script, keys, args).await, keys).await
    }

    /// A reply, unless one of its keys holds something else than it should: then no repetition helps, and the error names the key.
    pub(crate) async fn or_corrupt<T>(&self, reply: Result<T, StoreError>, keys: &[&str]) -> Result<T, StoreError> {
        match reply {
            Err(StoreError::Unavailable(StoreTrouble::WrongType(why))) => Err(StoreError::Corrupt(match self.odd_key(keys).await {
                Some(odd) => odd,
                None => format!("one of the keys {} is not Towpath's: {WHAT_TO_DO}; {why}", keys.join(", ")),
            })),
            reply => reply,
        }
    }

    /// The same for what is granted, which is to be kept as well as was asked for.
    async fn run_lock_durably(&self, script: &Script, keys: &[&str], args: &Args) -> Result<Said, StoreError> {
        let reply = self.or_corrupt(self.shared.run_durably(script, keys, args).await, keys).await?;
        Said::new(reply.0)
    }
}

#[async_trait]
impl LockStore for RedisStore {
    async fn lock_acquire(&self, want: AcquireLock) -> Result<AcquireReply, StoreError> {
        self.acquire_lock(&want).await
    }

    async fn lock_renew(&self, lease: RenewLock) -> Result<RenewReply, StoreError> {
        self.renew_lock(&lease).await
    }

    async fn lock_release(&self, lease: ReleaseLock) -> Result<ReleaseReply, StoreError> {
        self.release_lock(&lease).await
    }

    async fn lock_end(&self, whose: EndLock) -> Result<EndReply, StoreError> {
        self.end_lock(&whose).await
    }

    async fn lock_cancel(&self, question: CancelLock) -> Result<CancelReply, StoreError> {
        self.cancel_lock(&question).await
    }

    async fn lock_reap(&self, scope: &LockScope) -> Result<ReapReply, StoreError> {
        self.reap_lock(scope).await
    }

    async fn permit_acquire(&self, want: AcquirePermit) -> Result<PermitReply, StoreError> {
        self.acquire_permit(&want).await
    }

    async fn permit_renew(&self, lease: RenewPermit) -> Result<RenewReply, StoreError> {
        self.renew_permit(&lease).await
    }

    async fn permit_release(&self, what: ReleasePermit) -> Result<u32, StoreError> {
        self.release_permit(&what).await
    }

    async fn held_by_execution(&self, execution_id: &ExecutionId) -> Result<Vec<HeldScope>, StoreError> {
        self.what_execution_holds(execution_id).await
    }

    fn lock_wakes(&self, node: &NodeId) -> Box<dyn LockWakes> {
        Box::new(NodesEar(self.shared.news.listening().listen(format!("{}{node}", self.shared.locks.keys.channels))))
    }
}
