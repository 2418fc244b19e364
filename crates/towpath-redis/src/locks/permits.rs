//! The moves of semaphores and read/write locks: each is one script, named as the move.

use towpath_core::lock::RenewReply;
use towpath_core::names::{ExecutionId, WaiterId};
use towpath_core::permit::{AcquirePermit, PermitBusy, PermitGrant, PermitReply, ReleaseBy, ReleasePermit, RenewPermit};
use towpath_core::store::{StoreError, StoreTrouble};
use towpath_core::time::{Timestamp, millis};

use super::said::Said;
use super::scripts;
use crate::script::Args;
use crate::store::RedisStore;
use crate::value;

impl RedisStore {
    pub(super) async fn acquire_permit(&self, want: &AcquirePermit) -> Result<PermitReply, StoreError> {
        self.shared.guarantee.admit()?;
        let keys = self.permit_keys(want.kind, &want.scope);
        if let Some(execution_id) = &want.execution_id {
            self.note_execution(execution_id, &keys.member, want.max_hold).await?;
        }
        let now = self.shared.now();
        let args = acquire_args(self.lock_args(&keys.member, now), want);
        let said = match self.run_lock_durably(&scripts::ACQUIRE_PERMIT, &keys.in_order(&self.shared.locks.keys), &args).await {
            // It happened, but is not kept as well as was asked for: nobody shall hold it.
            Err(StoreError::Unknown(why)) if self.shared.guarantee.asks_replicas() => return Err(self.undo_permit(want, why).await),
            said => said?,
        };
        let reply = read_acquired(&said, now)?;
        match &reply {
            PermitReply::Granted(grant) => self.note_used(&keys.member, grant.lease_end).await,
            PermitReply::Busy(busy) if busy.rank.is_some() => self.note_used(&keys.member, now + want.waiter_ttl).await,
            _ => {}
        }
        Ok(reply)
    }

    /// What the caller is told: that nothing is held, if that is sure.
    async fn undo_permit(&self, want: &AcquirePermit, why: String) -> StoreError {
        let by = ReleaseBy::Permit { lock_id: want.lock_id.clone(), fence: None };
        match self.release_permit(&ReleasePermit { kind: want.kind, scope: want.scope.clone(), by }).await {
            Ok(1..) => StoreError::Unavailable(StoreTrouble::NotDurable(why)),
            Ok(0) => StoreError::Unknown(why),
            Err(error) => {
                tracing::warn!(%error, scope = %want.scope, "units that are not kept well enough stay taken until their lease ends");
                StoreError::Unknown(why)
            }
        }
    }

    pub(super) async fn renew_permit(&self, lease: &RenewPermit) -> Result<RenewReply, StoreError> {
        let keys = self.permit_keys(lease.kind, &lease.scope);
        let now = self.shared.now();
        let mut args = self.lock_args(&keys.member, now);
        args.push(lease.lock_id.as_str());
        args.shown(lease.fence);
        args.push(lease.lease.map(|lease| millis(lease).to_string()).unwrap_or_default());
        let said = self.run_scope(&scripts::RENEW_PERMIT, &keys.in_order(&self.shared.locks.keys), &args).await?;
        match said.outcome() {
            "renewed" => {
                let lease_end = said.instant(1)?;
                self.note_used(&keys.member, lease_end).await;
                Ok(RenewReply::Renewed { now, lease_end, legacy_attempts: 0, healed: false })
            }
            "lost" => Ok(RenewReply::Lost(said.lost(1)?)),
            _ => Err(said.strange()),
        }
    }

    pub(super) async fn release_permit(&self, what: &ReleasePermit) -> Result<u32, StoreError> {
        let keys = self.permit_keys(what.kind, &what.scope);
        let mut args = self.lock_args(&keys.member, self.shared.now());
        match &what.by {
            ReleaseBy::Permit { lock_id, fence } => {
                args.push("permit");
                args.push(lock_id.as_str());
                args.push(fence.map(|fence| fence.to_string()).unwrap_or_default());
            }
            ReleaseBy::Execution(execution_id) => {
                args.push("execution_id");
                args.push(execution_id.as_str());
                args.push("");
            }
            ReleaseBy::Waiter(waiter) => {
                args.push("waiter");
                args.push(waiter.as_str());
                args.push("");
            }
        }
        let gone = self.run_value(&scripts::RELEASE_PERMIT, &keys.in_order(&self.shared.locks.keys), &args).await?;
        let count = value::number(&gone).ok_or_else(|| value::strange("a release of permits", &gone))?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }
}

fn acquire_args(mut args: Args, want: &AcquirePermit) -> Args {
    args.push(want.lock_id.as_str());
    args.push(want.execution_id.as_ref().map_or("", ExecutionId::as_str));
    args.push(want.waiter.as_ref().map_or("", WaiterId::as_str));
    args.number(want.limit);
    args.number(want.weight);
    args.number(millis(want.lease));
    args.number(millis(want.max_hold));
    args.number(millis(want.waiter_ttl));
    args.number(want.waiters_max);
    args.number(millis(want.claim));
    args
}

fn read_acquired(said: &Said, now: Timestamp) -> Result<PermitReply, StoreError> {
    let grant = || {
        Ok::<_, StoreError>(PermitGrant {
            fence: said.fence(1)?,
            now,
            lease_end: said.instant(2)?,
            max_hold_end: said.instant(3)?,
            units_left: said.count(4)?,
        })
    };
    Ok(match said.outcome() {
        "granted" => PermitReply::Granted(grant()?),
        "replayed" => PermitReply::Replayed(grant()?),
        "never" => PermitReply::Never,
        "full" => PermitReply::QueueFull { waiters: said.count(1)? },
        "busy" => PermitReply::Busy(PermitBusy { free_in: said.length(1)?, rank: said.rank(2)?, units_left: said.count(3)? }),
        _ => return Err(said.strange()),
    })
}
