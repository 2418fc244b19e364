//! Locks, semaphores and read/write locks on the wire. `locked_at` is a date as text, as old workflows write it.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::decimal::Decimal;
use super::lenient;

/// A question for a lock. Every field may be left out; numbers may be decimal text, ids of executions and workflows may be numbers, `wait` may be text.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcquireBody {
    /// `exclusive` (default), `read`, `write` or `semaphore`. Kinds do not contend with each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Who asks. Default: the request id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_id: Option<String>,
    /// The execution that the lock belongs to, so that cleaning up after it frees the lock.
    #[serde(default, deserialize_with = "lenient::optional_text", skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// For people who find the lock held.
    #[serde(default, deserialize_with = "lenient::optional_text", skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    /// For people who find the lock held.
    #[serde(default, deserialize_with = "lenient::optional_text", skip_serializing_if = "Option::is_none")]
    pub workflow_name: Option<String>,
    /// How long it can be held at the longest: 0.1 s to 7 days. Default 86,400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub ttl_seconds: Option<Decimal>,
    /// How long the holder may be silent before others get it. Default: as long as `ttl_seconds`, so that no renewal is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub lease_ms: Option<Decimal>,
    /// Whether to wait, first come first served. Default true. Workflows say `wait_till_lock_released`.
    #[serde(
        default,
        alias = "wait_till_lock_released",
        deserialize_with = "lenient::optional_flag",
        skip_serializing_if = "Option::is_none"
    )]
    pub wait: Option<bool>,
    /// How long to wait. Default 86,400. The server holds a request for 55 seconds; then the answer is 202, and the same request again
    /// within 60 seconds keeps its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub max_wait_seconds: Option<Decimal>,
    /// The same for every repetition of one question. Default: a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// How often the same lock id may enter an exclusive lock. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub max_holds: Option<Decimal>,
    /// How many units a semaphore has. Needed for `semaphore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub limit: Option<Decimal>,
    /// How many units are wanted. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub weight: Option<Decimal>,
}

/// A lock that is the caller's (`granted`, `replayed`, `reentered`), or for which it still waits (`waiting`, status 202).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AcquireAnswer {
    /// `granted`, `replayed`, `reentered` or `waiting`.
    pub outcome: String,
    /// Whether the lock is the caller's.
    pub acquired: bool,
    /// What is locked.
    pub scope: String,
    /// `exclusive`, `read`, `write` or `semaphore`.
    pub kind: String,
    /// Who asked: needed to release without a fence.
    pub lock_id: String,
    /// Send it again with the same question.
    pub request_id: String,
    /// 1 when the lock is the caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The name under which workflows on the same Redis know an exclusive lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The name under which they find who holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_key: Option<String>,
    /// As it was given, else `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    /// As it was given, else `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_name: Option<String>,
    /// As it was given, else `unknown`.
    pub execution_id: String,
    /// When it was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_at: Option<String>,
    /// The number that the protected resource compares: it refuses a smaller one than it has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The end of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_end: Option<i64>,
    /// How long that is from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_remaining_ms: Option<u64>,
    /// The end of all renewals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_hold_end: Option<i64>,
    /// How often its holder has entered without leaving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<u32>,
    /// While waiting: how many are ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// While waiting: when it may be free, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_in_ms: Option<u64>,
}

/// A lease to prolong.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewLockBody {
    /// The fence of the grant.
    pub fence: u64,
    /// How long the holder may be silent from now on. Default: as long as it was given last, at the grant or at a renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub lease_ms: Option<Decimal>,
    /// As it was asked for. Default `exclusive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Needed unless the lock is exclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_id: Option<String>,
}

/// A lease that was prolonged.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RenewLockAnswer {
    /// `renewed`.
    pub outcome: String,
    /// The new end of the lease, never beyond the lock's `ttl_seconds`.
    pub lease_end: i64,
    /// How long that is from now.
    pub lease_remaining_ms: u64,
    /// How often old workflows have tried to get the lock since the last renewal.
    pub legacy_attempts: u64,
    /// An old workflow had damaged what others see of the lock; it is as it should be again.
    pub healed: bool,
}

/// A lock to release: by fence, or by lock id.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseLockBody {
    /// The fence of the grant. Safe to repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Who holds it. For semaphores and read/write locks needed in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_id: Option<String>,
    /// As it was asked for. Default `exclusive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// A lock that is the caller's no longer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReleaseLockAnswer {
    /// `released`, `still_held`, `already`, `expired` or `absent`.
    pub outcome: String,
    /// Always true: it is not the caller's, or `holds` says how often it still is.
    pub released: bool,
    /// Whether there was nothing to do.
    pub idempotent: bool,
    /// What was locked.
    pub scope: String,
    /// As it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_id: Option<String>,
    /// How often its holder must still leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<u32>,
    /// `counter_without_meta`: an old workflow holds it without having said who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// A question to take back.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelLockBody {
    /// The question.
    pub request_id: String,
    /// As it was asked for. Default `exclusive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// As it was given with the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_id: Option<String>,
}

/// What became of a question that was taken back.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CancelLockAnswer {
    /// `cancelled`, `not_queued`, or `was_granted`: granted unseen, and released now.
    pub outcome: String,
    /// The fence of a grant that no caller learnt of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
}

/// Who holds a lock, as far as it is written down.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HolderBody {
    /// `towpath`, or `legacy` for an old workflow.
    pub kind: String,
    /// What it must show to release.
    pub lock_id: String,
    /// Its workflow.
    pub workflow_id: String,
    /// Its workflow's name.
    pub workflow_name: String,
    /// Its execution.
    pub execution_id: String,
    /// Since when.
    pub locked_at: String,
    /// Its fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The end of its lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_end: Option<i64>,
}

/// Who holds units of a semaphore or read/write lock.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UnitsBody {
    /// What it must show to release.
    pub lock_id: String,
    /// How many. A writer has all of a read/write lock's 1,048,576.
    pub weight: u32,
    /// Its fence.
    pub fence: u64,
    /// The end of its lease.
    pub lease_end: i64,
    /// The end of all renewals.
    pub max_hold_end: i64,
    /// Its execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
}

/// Everything that is known of a lock.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LockBody {
    /// What is locked.
    pub scope: String,
    /// `exclusive`, `semaphore` or `rw`.
    pub kind: String,
    /// Who holds an exclusive lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderBody>,
    /// Who holds units of a semaphore or read/write lock, by fence; in a list the first 20, in any case at most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<UnitsBody>,
    /// How many hold units.
    #[serde(default)]
    pub holder_count: u64,
    /// How often its holder has entered without leaving.
    pub holds: u32,
    /// The end of all renewals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_hold_end: Option<i64>,
    /// What a forced release must show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<String>,
    /// The highest fence that was ever given out.
    pub fence_high: u64,
    /// Who waits, first come first; in a list the first 20, in any case at most 1,000.
    pub waiters: Vec<WaiterBody>,
    /// How many wait.
    #[serde(default)]
    pub waiter_count: u64,
}

/// A waiter.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WaiterBody {
    /// `<node>|<request id>`.
    pub waiter: String,
    /// Its place is lost unless it asks again before.
    pub alive_until: i64,
}

/// A page of locks that are held or waited for, by scope.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LockList {
    /// The locks.
    pub locks: Vec<LockBody>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which locks to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LockQueryBody {
    /// Only scopes that begin so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Where the page before ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most this many, 1 to 200. Default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `exclusive` (default), `semaphore` or `rw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Also find locks of legacy workflows that were never met or named, by looking at the names of all keys. Slow, and the store's user
    /// must be allowed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<bool>,
}

/// Which kind of lock to show.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LockKindQuery {
    /// `exclusive` (default), `semaphore` or `rw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// A lock to force open.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForceLockBody {
    /// The counter as it was seen; left out when there was none. It is refused if it has changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<String>,
    /// Why, for the record.
    pub reason: String,
}

/// A lock that was forced open.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ForceLockAnswer {
    /// `ended`.
    pub outcome: String,
    /// Who had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderBody>,
}

/// An execution to clean up after.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CleanupBody {
    /// The execution that failed.
    #[serde(deserialize_with = "lenient::text")]
    pub execution_id: String,
    /// Scopes that old workflows of it may hold.
    #[serde(default, alias = "lockScopes")]
    pub lock_scopes: Vec<String>,
    /// Look at every lock there is.
    #[serde(default)]
    pub scan: bool,
}

/// What was freed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CleanupAnswer {
    /// Whether anything was.
    pub cleaned: bool,
    /// How many locks and permits.
    pub cleaned_count: u64,
    /// Which: a scope, `sem:<scope>` or `rw:<scope>`.
    pub scopes: Vec<String>,
    /// Why nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
