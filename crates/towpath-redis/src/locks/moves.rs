//! The moves of exclusive locks: each is one script, named as the move.

use std::time::Duration;

use redis::Cmd;
use towpath_core::lock::{
    self, AcquireLock, AcquireReply, Busy, BusyWith, CancelLock, CancelReply, EndBy, EndLock, EndReply, Grant, Holder, LastRelease,
    LockState, Previous, ReapReply, ReleaseLock, ReleaseReply, RenewLock, RenewReply,
};
use towpath_core::names::{ExecutionId, LockId, LockScope, WaiterId};
use towpath_core::store::{StoreError, StoreTrouble};
use towpath_core::time::{Timestamp, millis};

use super::keys::{LockKeys, lock_member};
use super::said::Said;
use super::{Indexed, scripts};
use crate::link::{Script, trouble};
use crate::script::Args;
use crate::store::RedisStore;

/// How often the identity of an old workflow's lock may change under our eyes.
const JUDGED_AT_MOST: usize = 8;

impl RedisStore {
    pub(super) async fn acquire_lock(&self, want: &AcquireLock) -> Result<AcquireReply, StoreError> {
        self.shared.guarantee.admit()?;
        let keys = self.lock_keys(&want.scope)?;
        if let Some(execution_id) = &want.identity.execution_id {
            self.note_execution(execution_id, &lock_member(&want.scope), want.max_hold).await?;
        }
        let now = self.shared.now();
        let reply = match self.ask_for(&keys, want, now).await {
            // It happened, but is not kept as well as was asked for: nobody shall hold it.
            Err(StoreError::Unknown(why)) if self.shared.guarantee.asks_replicas() => return Err(self.undo(want, why).await),
            reply => reply?,
        };
        if let AcquireReply::Granted(grant) | AcquireReply::Reentered(grant) = &reply {
            self.shared.locks.note_due(&self.shared.agenda, grant.lease_end, now);
            let is_new = matches!(reply, AcquireReply::Granted(_));
            let meta = is_new.then(|| identity(want, now) + &format!("{},\"towpath\":1}}", grant.fence));
            self.keep_index(&keys, &want.scope, Indexed::Until(grant.lease_end, meta)).await;
        }
        if let AcquireReply::Busy(busy) = &reply
            && let Some(for_long) = listed_for(busy, want)
        {
            self.note_used(&lock_member(&want.scope), now + for_long).await;
        }
        Ok(reply)
    }

    async fn ask_for(&self, keys: &LockKeys, want: &AcquireLock, now: Timestamp) -> Result<AcquireReply, StoreError> {
        if let Some(reply) = self.try_acquire(keys, want, now).await? {
            return Ok(reply);
        }
        let args = acquire_args(self.lock_args(want.scope.as_str(), now), want, now);
        let said = self.run_lock_durably(&scripts::ACQUIRE, &keys.in_order(&self.shared.locks.keys), &args).await?;
        if said.outcome() == "granted" {
            self.shared.locks.remembered.put(&want.scope, said.word(3));
        }
        read_acquired(&said, want, now)
    }

    /// What the caller is told: that nothing is held, if that is sure.
    async fn undo(&self, want: &AcquireLock, why: String) -> StoreError {
        let question = CancelLock { scope: want.scope.clone(), request_id: want.request_id.clone(), waiter: want.waiter.clone() };
        match self.cancel_lock(&question).await {
            Ok(CancelReply::WasGranted { .. }) => StoreError::Unavailable(StoreTrouble::NotDurable(why)),
            Ok(CancelReply::Cancelled | CancelReply::NotQueued) => StoreError::Unknown(why),
            Err(error) => {
                tracing::warn!(%error, scope = %want.scope, "a lock that is not kept well enough stays until its lease ends");
                StoreError::Unknown(why)
            }
        }
    }

    pub(super) async fn renew_lock(&self, lease: &RenewLock) -> Result<RenewReply, StoreError> {
        let keys = self.lock_keys(&lease.scope)?;
        let now = self.shared.now();
        let mut args = self.lock_args(lease.scope.as_str(), now);
        args.shown(lease.fence);
        args.push(lease.lease.map(|lease| millis(lease).to_string()).unwrap_or_default());
        let said = self.run_lock(&scripts::RENEW, &keys, &args).await?;
        match said.outcome() {
            "renewed" => {
                let lease_end = said.instant(1)?;
                self.shared.locks.remembered.put(&lease.scope, said.word(4));
                self.shared.locks.note_due(&self.shared.agenda, lease_end, now);
                self.keep_index(&keys, &lease.scope, Indexed::Until(lease_end, None)).await;
                let legacy_attempts = u64::from(said.count(2)?);
                Ok(RenewReply::Renewed { now, lease_end, legacy_attempts, healed: said.number(3)? == 1 })
            }
            "lost" => {
                if said.number(2)? == 1 {
                    self.keep_index(&keys, &lease.scope, Indexed::Nobody).await;
                }
                Ok(RenewReply::Lost(said.lost(1)?))
            }
            _ => Err(said.strange()),
        }
    }

    pub(super) async fn release_lock(&self, lease: &ReleaseLock) -> Result<ReleaseReply, StoreError> {
        let keys = self.lock_keys(&lease.scope)?;
        if self.try_release(&keys, lease).await? {
            self.keep_index(&keys, &lease.scope, Indexed::Nobody).await;
            return Ok(ReleaseReply::Released);
        }
        let mut args = self.lock_args(lease.scope.as_str(), self.shared.now());
        args.shown(lease.fence);
        let said = self.run_lock(&scripts::RELEASE, &keys, &args).await?;
        if said.number(1)? == 1 {
            self.keep_index(&keys, &lease.scope, Indexed::Nobody).await;
        }
        Ok(match said.outcome() {
            "released" => {
                self.shared.locks.remembered.put(&lease.scope, said.word(2));
                ReleaseReply::Released
            }
            "still_held" => ReleaseReply::StillHeld { holds: said.count(2)? },
            "already" => ReleaseReply::Already,
            "expired" => ReleaseReply::Expired,
            "lost" => ReleaseReply::Lost { why: said.lost(2)?, holder: said.written_holder(3) },
            _ => return Err(said.strange()),
        })
    }

    pub(super) async fn end_lock(&self, whose: &EndLock) -> Result<EndReply, StoreError> {
        let keys = self.lock_keys(&whose.scope)?;
        let mut approved = Vec::new();
        for _ in 0..JUDGED_AT_MOST {
            let said = self.try_end(&keys, whose, &approved).await?;
            let holder = said.holder(1, 2);
            let reply = match said.outcome() {
                "judge" => match judge(whose, &said, self.shared.now()) {
                    EndReply::Ended { .. } => {
                        approved = said.bytes(1).unwrap_or_default().to_vec();
                        continue;
                    }
                    nothing_was_touched => nothing_was_touched,
                },
                "ended" => {
                    self.keep_index(&keys, &whose.scope, Indexed::Nobody).await;
                    self.note_force(whose, said.bytes(1)).await;
                    EndReply::Ended { holder }
                }
                "still_held" => EndReply::StillHeld { holds: said.count(1)? },
                "already" => EndReply::Already,
                "absent" => EndReply::Absent { counter_without_meta: said.number(1)? == 1 },
                "not_holder" => EndReply::NotHolder(holder.ok_or_else(|| said.strange())?),
                "changed" => EndReply::Changed { counter: said.counter(1) },
                _ => return Err(said.strange()),
            };
            return Ok(reply);
        }
        Err(trouble(format!("the identity beside lock '{}' changes all the time; try again", whose.scope)))
    }

    async fn try_end(&self, keys: &LockKeys, whose: &EndLock, approved: &[u8]) -> Result<Said, StoreError> {
        let mut args = self.lock_args(whose.scope.as_str(), self.shared.now());
        match &whose.by {
            EndBy::LockId(lock_id) => {
                args.push("lock_id");
                args.push(lock_id.as_str());
            }
            EndBy::Execution(execution_id) => {
                args.push("execution_id");
                args.push(execution_id.as_str());
            }
            EndBy::Force { counter, .. } => {
                args.push("counter");
                args.push(counter.as_ref().map(|counter| format!("={counter}")).unwrap_or_default());
            }
        }
        args.push(approved);
        self.run_lock(&scripts::FINISH, keys, &args).await
    }

    /// Keeps a record of a forced release.
    async fn note_force(&self, whose: &EndLock, before: Option<&[u8]>) {
        let EndBy::Force { who, reason, .. } = &whose.by else { return };
        let before = before.map(String::from_utf8_lossy);
        let record = serde_json::json!({
            "at": self.shared.now().to_iso(), "scope": whose.scope, "who": who, "reason": reason, "before": before,
        });
        let audit = &self.shared.locks.keys.audit;
        let (mut push, mut trim) = (Cmd::new(), Cmd::new());
        push.arg("LPUSH").arg(audit).arg(record.to_string());
        trim.arg("LTRIM").arg(audit).arg(0).arg(999);
        if let Err(error) = self.shared.link.ask_all(&[push, trim]).await {
            tracing::error!(%error, record = %record, "a forced release is not on record");
        }
    }

    pub(super) async fn cancel_lock(&self, question: &CancelLock) -> Result<CancelReply, StoreError> {
        let keys = self.lock_keys(&question.scope)?;
        let mut args = self.lock_args(question.scope.as_str(), self.shared.now());
        args.push(question.waiter.as_ref().map_or("", WaiterId::as_str));
        args.push(question.request_id.as_str());
        let said = self.run_lock(&scripts::CANCEL, &keys, &args).await?;
        match said.outcome() {
            "cancelled" => Ok(CancelReply::Cancelled),
            "not_queued" => Ok(CancelReply::NotQueued),
            "was_granted" => {
                self.keep_index(&keys, &question.scope, Indexed::Nobody).await;
                Ok(CancelReply::WasGranted { fence: said.fence(1)? })
            }
            _ => Err(said.strange()),
        }
    }

    pub(crate) async fn reap_lock(&self, scope: &LockScope) -> Result<ReapReply, StoreError> {
        let keys = self.lock_keys(scope)?;
        let args = self.lock_args(scope.as_str(), self.shared.now());
        let said = self.run_lock(&scripts::REAP, &keys, &args).await?;
        let (reply, indexed) = match said.outcome() {
            "freed" => (ReapReply::Freed, Indexed::Nobody),
            "free" => (ReapReply::Free, Indexed::Nobody),
            "legacy" => (ReapReply::Legacy, Indexed::Nobody),
            "live" => {
                let lease_end = said.instant(1)?;
                (ReapReply::Live { lease_end }, Indexed::Until(lease_end, None))
            }
            _ => return Err(said.strange()),
        };
        self.keep_index(&keys, scope, indexed).await;
        Ok(reply)
    }

    pub(super) async fn run_lock(&self, script: &Script, keys: &LockKeys, args: &Args) -> Result<Said, StoreError> {
        self.run_scope(script, &keys.in_order(&self.shared.locks.keys), args).await
    }
}

/// How long a list shall have a lock that is not ours, or not yet.
fn listed_for(busy: &Busy, want: &AcquireLock) -> Option<Duration> {
    let theirs = matches!(busy.with, BusyWith::Legacy(_)).then(|| busy.free_in.unwrap_or(super::indexes::OUTLIVES));
    theirs.max(busy.rank.map(|_| want.waiter_ttl))
}

/// The sidecar up to its fence, which the script knows.
fn identity(want: &AcquireLock, now: Timestamp) -> String {
    format!(r#"{},"locked_at":"{}","fence":"#, want.identity.open_json(&want.lock_id), now.to_iso())
}

fn acquire_args(mut args: Args, want: &AcquireLock, now: Timestamp) -> Args {
    args.push(want.lock_id.as_str());
    args.push(want.identity.execution_id.as_ref().map_or("", ExecutionId::as_str));
    args.push(want.request_id.as_str());
    args.push(want.waiter.as_ref().map_or("", WaiterId::as_str));
    args.push(identity(want, now));
    args.number(millis(want.lease));
    args.number(millis(want.max_hold));
    args.number(want.max_holds);
    let (waiter_ttl, claim, grace) = (millis(want.waiter_ttl), millis(want.claim), millis(want.orphan_grace));
    args.shown(format_args!("{waiter_ttl} {} {claim} {grace}", want.waiters_max));
    args
}

fn read_acquired(said: &Said, want: &AcquireLock, now: Timestamp) -> Result<AcquireReply, StoreError> {
    Ok(match said.outcome() {
        "granted" => {
            let previous = match said.word(2) {
                "none" => Previous::None,
                "released" => Previous::Released,
                "expired" => Previous::Expired,
                "orphan" => Previous::Orphan,
                _ => return Err(said.strange()),
            };
            let max_hold_end = now + want.max_hold;
            let lease_end = (now + want.lease).min(max_hold_end);
            AcquireReply::Granted(Grant { fence: said.fence(1)?, now, lease_end, max_hold_end, holds: 1, previous, locked_at: now })
        }
        "replayed" => AcquireReply::Replayed(read_tenure(said, now)?),
        "reentered" => AcquireReply::Reentered(read_tenure(said, now)?),
        "self" => AcquireReply::SelfHeld { fence: said.fence(1)?, lease_end: said.instant(2)? },
        "spent" => AcquireReply::Spent,
        "full" => AcquireReply::QueueFull { waiters: said.count(1)? },
        "busy" => AcquireReply::Busy(read_busy(said)?),
        _ => return Err(said.strange()),
    })
}

/// A tenure that was there before.
fn read_tenure(said: &Said, now: Timestamp) -> Result<Grant, StoreError> {
    Ok(Grant {
        fence: said.fence(1)?,
        now,
        lease_end: said.instant(2)?,
        max_hold_end: said.instant(3)?,
        holds: said.count(4)?,
        previous: Previous::None,
        locked_at: said.instant(5)?,
    })
}

fn read_busy(said: &Said) -> Result<Busy, StoreError> {
    let with = match said.word(1) {
        "towpath" => BusyWith::Towpath(said.holder(5, 6).ok_or_else(|| said.strange())?),
        "legacy" => BusyWith::Legacy(said.written_holder(5).unwrap_or_else(|| Holder::from_meta(None))),
        "queue" => BusyWith::Queue,
        _ => return Err(said.strange()),
    };
    Ok(Busy { with, free_in: said.length(2)?, rank: said.rank(3)?, counter: said.counter(4) })
}

/// What the law says to an identity that is not ours.
fn judge(whose: &EndLock, said: &Said, now: Timestamp) -> EndReply {
    let text = |at: usize| said.bytes(at).map(String::from_utf8_lossy);
    let lock_id = text(2).and_then(|text| LockId::new(text).ok());
    let last = LastRelease { lock_id, ..LastRelease::default() };
    let mut state = LockState { meta: text(1).map(|meta| meta.into()), last, ..LockState::default() };
    lock::end(&mut state, whose, now).reply
}
