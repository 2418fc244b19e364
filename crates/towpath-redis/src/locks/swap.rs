//! Grants and releases that this process decides by itself: it remembers the record as it last wrote it, asks the pure law, and has the server
//! swap the one for the other. When the server has something else, nothing happens and a script decides. Locks that nobody contends for go
//! this way, for less than half the work.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towpath_core::lock::{self, AcquireLock, AcquireReply, Counter, LockState, ReleaseLock, ReleaseReply};
use towpath_core::names::{ExecutionId, LockScope};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::indexes::OUTLIVES;
use super::keys::LockKeys;
use super::record::{read_record, write_record};
use super::{LATE, scripts};
use crate::script::Args;
use crate::store::RedisStore;
use crate::value;

/// More are not remembered; then all are forgotten, and found again.
const REMEMBERED_MAX: usize = 4_096;

/// The records that this process wrote last.
#[derive(Default)]
pub(super) struct Remembered(Mutex<HashMap<LockScope, Arc<str>>>);

impl Remembered {
    pub(super) fn put(&self, scope: &LockScope, record: &str) {
        let mut records = self.lock();
        if records.len() >= REMEMBERED_MAX && !records.contains_key(scope) {
            records.clear();
        }
        records.insert(scope.clone(), Arc::from(record));
    }

    /// What is remembered is used once: whoever succeeds with it remembers what comes next.
    fn take(&self, scope: &LockScope) -> Option<Arc<str>> {
        self.lock().remove(scope)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LockScope, Arc<str>>> {
        // No code that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From one state to another.
struct Swap<'a> {
    before: &'a str,
    counter: Option<Counter>,
    after: LockState,
    now: Timestamp,
    execution: Option<ExecutionId>,
    cap: Duration,
}

impl RedisStore {
    /// The lock, if it can be had without looking.
    pub(super) async fn try_acquire(
        &self,
        keys: &LockKeys,
        want: &AcquireLock,
        now: Timestamp,
    ) -> Result<Option<AcquireReply>, StoreError> {
        let Some((before, mut after)) = self.recall(&want.scope).filter(|(_, state)| state.tenure.is_none()) else { return Ok(None) };
        let reply = lock::acquire(&mut after, want, now).reply;
        if !matches!(reply, AcquireReply::Granted(_)) {
            return Ok(None);
        }
        let (execution, cap) = (want.identity.execution_id.clone(), want.max_hold + OUTLIVES);
        let swap = Swap { before: &before, counter: None, after, now, execution, cap };
        Ok(self.swap(keys, &want.scope, swap).await?.then_some(reply))
    }

    /// Gives back, if it can be done without looking.
    pub(super) async fn try_release(&self, keys: &LockKeys, lease: &ReleaseLock) -> Result<bool, StoreError> {
        let now = self.shared.now();
        let Some((before, mut after)) = self.recall(&lease.scope) else { return Ok(false) };
        let Some(tenure) = after.tenure.clone().filter(|tenure| tenure.fence == lease.fence) else { return Ok(false) };
        (after.counter, after.meta) = (Some(Counter::of(tenure.fence)), Some(Arc::clone(&tenure.meta)));
        let counter = after.counter.clone();
        if lock::release(&mut after, lease, now).reply != ReleaseReply::Released {
            return Ok(false);
        }
        let swap = Swap { before: &before, counter, after, now, execution: tenure.execution_id, cap: Duration::ZERO };
        self.swap(keys, &lease.scope, swap).await
    }

    /// The record as it was written last, if nobody has ever waited: then there is nobody to wake, and nobody to be passed.
    fn recall(&self, scope: &LockScope) -> Option<(Arc<str>, LockState)> {
        let record = self.shared.locks.remembered.take(scope)?;
        let state = read_record(&record)?;
        (state.queue.arrivals == 0 && state.orphan_watch.is_none()).then_some((record, state))
    }

    async fn swap(&self, keys: &LockKeys, scope: &LockScope, swap: Swap<'_>) -> Result<bool, StoreError> {
        let locks = &self.shared.locks;
        let (record, life) = write_record(&swap.after, swap.now);
        let mut args = Args::with_capacity(11);
        args.push(swap.before);
        args.push(swap.counter.as_ref().map_or("", Counter::as_str));
        args.push(&record);
        args.number(locks.lifetime_ms(life));
        let lease_end = swap.after.tenure.as_ref().map_or(swap.now, |tenure| tenure.lease_end);
        args.push(swap.after.counter.as_ref().map_or("", Counter::as_str));
        args.push(swap.after.meta.as_deref().unwrap_or_default());
        args.number(locks.lifetime_ms(lease_end.since(swap.now) + LATE));
        args.number(lease_end.as_millis());
        args.push(scope.as_str());
        let set = swap.execution.filter(|_| !locks.keys.is_cluster).map(|execution_id| locks.keys.execution(&execution_id));
        args.push(set.unwrap_or_default());
        args.number(locks.lifetime_ms(swap.cap));
        let mut named = vec![&*keys.counter, &*keys.meta, &*keys.record];
        if !locks.keys.is_cluster {
            named.push(&locks.keys.index);
        }
        let done = match swap.counter {
            None => self.shared.run_durably(&scripts::SWAP, &named, &args).await.map(|(reply, _)| reply),
            Some(_) => self.shared.link.run_args(&scripts::SWAP, &named, &args).await,
        };
        let done = value::number(&self.or_corrupt(done, &named).await?) == Some(1);
        if done {
            locks.remembered.put(scope, &record);
        }
        Ok(done)
    }
}
