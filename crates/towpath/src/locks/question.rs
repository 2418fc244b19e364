//! One question for a lock or for permits, as it is put to the store again and again until it is answered.

use std::time::Duration;

use towpath_core::lock::{
    AcquireLock, AcquireReply, Busy, BusyWith, CancelLock, Fence, Grant, ReleaseLock, ReleaseReply, RenewLock, RenewReply,
};
use towpath_core::names::{LockScope, WaiterId};
use towpath_core::permit::{AcquirePermit, PermitBusy, PermitGrant, PermitReply, ReleaseBy, ReleasePermit, RenewPermit};
use towpath_core::store::{Store, StoreError};
use towpath_core::time::Timestamp;

use super::answer::Blocked;

/// A waiter asks again at least so often, to keep its place.
const ASK_AT_LEAST_EVERY: Duration = Duration::from_secs(10);
/// Old workflows tell nobody when they leave: the first in the queue looks so often.
const LOOK_AFTER_OLD_WORKFLOWS_EVERY: Duration = Duration::from_secs(1);
/// Waiters that become due together spread out over so many milliseconds.
const JITTER_MS: u64 = 20;

/// A question for an exclusive lock, a semaphore or a read/write lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// For an exclusive lock.
    Lock(AcquireLock),
    /// For units of a semaphore or read/write lock.
    Permit(AcquirePermit),
}

/// What the store said to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    Granted(Terms),
    /// Ask again after the pause, or when woken.
    NotYet {
        blocked: Blocked,
        pause: Duration,
    },
    SelfHeld {
        fence: Fence,
        lease_end: Timestamp,
    },
    Spent,
    Never,
    QueueFull {
        waiters: u32,
    },
}

/// Under which terms it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What the protected resource compares.
    pub fence: Fence,
    /// The store's clock when it answered.
    pub now: Timestamp,
    /// The end of the lease.
    pub lease_end: Timestamp,
    /// The end of all renewals.
    pub max_hold_end: Timestamp,
    /// When it was granted first.
    pub locked_at: Timestamp,
    /// How often its holder has entered.
    pub holds: u32,
    /// How it came to that.
    pub entry: Entry,
}

/// How a lock came to be the asker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It was free.
    Granted,
    /// This very question was granted before; its answer may have been lost.
    Replayed,
    /// The holder has entered once more.
    Reentered,
}

impl Terms {
    fn of_lock(grant: &Grant, entry: Entry) -> Self {
        let Grant { fence, now, lease_end, max_hold_end, locked_at, holds, .. } = *grant;
        Self { fence, now, lease_end, max_hold_end, locked_at, holds, entry }
    }

    fn of_permit(grant: PermitGrant, entry: Entry) -> Self {
        let PermitGrant { fence, now, lease_end, max_hold_end, .. } = grant;
        Self { fence, now, lease_end, max_hold_end, locked_at: now, holds: 1, entry }
    }
}

impl Question {
    /// What is asked for.
    pub fn scope(&self) -> &LockScope {
        match self {
            Self::Lock(want) => &want.scope,
            Self::Permit(want) => &want.scope,
        }
    }

    pub(super) fn waiter(&self) -> Option<&WaiterId> {
        match self {
            Self::Lock(want) => want.waiter.as_ref(),
            Self::Permit(want) => want.waiter.as_ref(),
        }
    }

    pub(super) fn lease(&self) -> Duration {
        match self {
            Self::Lock(want) => want.lease,
            Self::Permit(want) => want.lease,
        }
    }

    pub(super) async fn ask(&self, store: &dyn Store) -> Result<Said, StoreError> {
        Ok(match self {
            Self::Lock(want) => match store.lock_acquire(want.clone()).await? {
                AcquireReply::Granted(grant) => Said::Granted(Terms::of_lock(&grant, Entry::Granted)),
                AcquireReply::Replayed(grant) => Said::Granted(Terms::of_lock(&grant, Entry::Replayed)),
                AcquireReply::Reentered(grant) => Said::Granted(Terms::of_lock(&grant, Entry::Reentered)),
                AcquireReply::SelfHeld { fence, lease_end } => Said::SelfHeld { fence, lease_end },
                AcquireReply::Spent => Said::Spent,
                AcquireReply::QueueFull { waiters } => Said::QueueFull { waiters },
                AcquireReply::Busy(busy) => self.not_yet(busy, want.claim),
            },
            Self::Permit(want) => match store.permit_acquire(want.clone()).await? {
                PermitReply::Granted(grant) => Said::Granted(Terms::of_permit(grant, Entry::Granted)),
                PermitReply::Replayed(grant) => Said::Granted(Terms::of_permit(grant, Entry::Replayed)),
                PermitReply::Never => Said::Never,
                PermitReply::QueueFull { waiters } => Said::QueueFull { waiters },
                PermitReply::Busy(PermitBusy { free_in, rank, .. }) => {
                    let pause = free_in.map_or(ASK_AT_LEAST_EVERY, |free_in| free_in + self.jitter());
                    Said::NotYet { blocked: Blocked { holder: None, free_in, ahead: rank }, pause: pause.min(ASK_AT_LEAST_EVERY) }
                }
            },
        })
    }

    fn not_yet(&self, busy: Busy, claim: Duration) -> Said {
        let Busy { with, free_in, rank, .. } = busy;
        let (holder, pause) = match with {
            BusyWith::Towpath(holder) => {
                let behind = claim.saturating_mul(rank.unwrap_or(0));
                (Some(holder), free_in.map(|free_in| free_in + behind + self.jitter()))
            }
            BusyWith::Queue => (None, free_in),
            BusyWith::Legacy(holder) => (Some(holder), (rank == Some(0)).then_some(LOOK_AFTER_OLD_WORKFLOWS_EVERY)),
        };
        let pause = pause.unwrap_or(ASK_AT_LEAST_EVERY).min(ASK_AT_LEAST_EVERY);
        Said::NotYet { blocked: Blocked { holder, free_in, ahead: rank }, pause }
    }

    /// The same for the same question, so that a random seed reproduces a whole history.
    fn jitter(&self) -> Duration {
        let bytes = self.waiter().map_or("", WaiterId::as_str).bytes();
        let mix = bytes.fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        Duration::from_millis(mix % (JITTER_MS + 1))
    }

    /// Takes the question back, and a grant that nobody learnt of.
    pub(crate) async fn withdraw(&self, store: &dyn Store) -> Result<(), StoreError> {
        match self {
            Self::Lock(want) => {
                let question = CancelLock { scope: want.scope.clone(), request_id: want.request_id.clone(), waiter: want.waiter.clone() };
                store.lock_cancel(question).await.map(|_whatever_it_was| ())
            }
            Self::Permit(want) => {
                let release = |by| ReleasePermit { kind: want.kind, scope: want.scope.clone(), by };
                if let Some(waiter) = &want.waiter {
                    store.permit_release(release(ReleaseBy::Waiter(waiter.clone()))).await?;
                }
                let granted = ReleaseBy::Permit { lock_id: want.lock_id.clone(), fence: None };
                store.permit_release(release(granted)).await.map(|_whatever_it_was| ())
            }
        }
    }

    pub(super) async fn renew(&self, store: &dyn Store, fence: Fence) -> Result<RenewReply, StoreError> {
        match self {
            Self::Lock(want) => store.lock_renew(RenewLock { scope: want.scope.clone(), fence, lease: Some(want.lease) }).await,
            Self::Permit(want) => {
                let (kind, scope, lock_id) = (want.kind, want.scope.clone(), want.lock_id.clone());
                store.permit_renew(RenewPermit { kind, scope, lock_id, fence, lease: Some(want.lease) }).await
            }
        }
    }

    pub(super) async fn release(&self, store: &dyn Store, fence: Fence) -> Result<ReleaseReply, StoreError> {
        match self {
            Self::Lock(want) => store.lock_release(ReleaseLock { scope: want.scope.clone(), fence }).await,
            Self::Permit(want) => {
                let by = ReleaseBy::Permit { lock_id: want.lock_id.clone(), fence: Some(fence) };
                let given_back = store.permit_release(ReleasePermit { kind: want.kind, scope: want.scope.clone(), by }).await?;
                Ok(if given_back > 0 { ReleaseReply::Released } else { ReleaseReply::Already })
            }
        }
    }
}
