//! Locks between wire and core.

use std::time::Duration;

use serde_json::json;
use towpath::locks::Question;
use towpath_core::inspect::{LockPage, LockView, PermitPage, PermitView};
use towpath_core::lock::{AcquireLock, Counter, Holder, HolderKind, Identity, OutOfRange, Waiter, check_lease, check_ttl, check_wait};
use towpath_core::names::{ExecutionId, InvalidName, LockId, LockScope, RequestId, WaiterId, WorkflowLabel};
use towpath_core::permit::{AcquirePermit, Permit, PermitKind, RW_LIMIT};

use crate::http::codes::Code;
use crate::http::error::{ApiError, invalid_name};
use crate::http::wire::decimal::Decimal;
use crate::http::wire::locks::{AcquireBody, HolderBody, LockBody, LockList, UnitsBody, WaiterBody};

/// The place of a caller that is told to come back is kept for longer than the 60 seconds it has.
const WAITER_TTL: Duration = Duration::from_secs(75);
const LIMIT_MAX: u32 = 1_000_000_000;
const WEIGHT_MAX: u32 = 1_000_000;

/// What kind of lock is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Exclusive,
    Read,
    Write,
    Semaphore,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Exclusive, Self::Read, Self::Write, Self::Semaphore];

    pub(crate) fn parse(word: Option<&str>) -> Result<Self, ApiError> {
        let Some(word) = word else { return Ok(Self::Exclusive) };
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == word);
        known.ok_or_else(|| {
            let message = format!("'kind': '{word}' is no kind of lock; it must be exclusive, read, write or semaphore");
            ApiError::new(Code::InvalidField, message).field("kind")
        })
    }

    /// A kind as lists tell them apart: readers and writers of a scope stand together, as `rw`.
    pub(crate) fn listed(word: Option<&str>) -> Result<Self, ApiError> {
        match word {
            Some("rw") => Ok(Self::Read),
            Some("read" | "write") | None => Self::parse(word),
            Some(word) => Self::parse(Some(word)).map_err(|_| {
                let message = format!("'kind': '{word}' is no kind of lock; it must be exclusive, semaphore or rw");
                ApiError::new(Code::InvalidField, message).field("kind")
            }),
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Read => "read",
            Self::Write => "write",
            Self::Semaphore => "semaphore",
        }
    }

    /// The kind of its permits; nothing for an exclusive lock.
    pub(crate) const fn permits(self) -> Option<PermitKind> {
        match self {
            Self::Exclusive => None,
            Self::Read | Self::Write => Some(PermitKind::ReadWrite),
            Self::Semaphore => Some(PermitKind::Semaphore),
        }
    }
}

/// A question as it will be asked, and how long its asker wants to wait for the answer.
pub(crate) struct Asked {
    pub(crate) kind: Kind,
    pub(crate) question: Question,
    pub(crate) lock_id: LockId,
    pub(crate) identity: Identity,
    pub(crate) max_wait: Option<Duration>,
}

/// The question that a body asks. `waiter` gives its place in the queue, should it wait.
pub(crate) fn asked(scope: &str, body: &AcquireBody, request_id: &RequestId, waiter: impl FnOnce() -> WaiterId) -> Result<Asked, ApiError> {
    let kind = Kind::parse(body.kind.as_deref())?;
    let scope = lock_scope(scope)?;
    let lock_id = lock_id(body.lock_id.as_deref().unwrap_or(request_id.as_str()))?;
    let identity = identity(body)?;
    let ttl = seconds("ttl_seconds", body.ttl_seconds)?.unwrap_or(AcquireLock::MAX_HOLD);
    check_ttl(ttl).map_err(|refused| out_of_range("ttl_seconds", &refused))?;
    let lease = lease(body.lease_ms)?.unwrap_or(ttl);
    check_lease(lease, ttl).map_err(|refused| out_of_range("lease_ms", &refused))?;
    let max_wait = max_wait(body)?;
    let waiter = max_wait.map(|_| waiter());
    let question = match kind.permits() {
        None => Question::Lock(AcquireLock {
            identity: identity.clone(),
            lease,
            max_hold: ttl,
            max_holds: whole("max_holds", body.max_holds, 1, WEIGHT_MAX)?.unwrap_or(1),
            waiter,
            waiter_ttl: WAITER_TTL,
            ..AcquireLock::new(scope, lock_id.clone(), request_id.clone())
        }),
        Some(permits) => {
            let (limit, weight) = units(kind, body)?;
            Question::Permit(AcquirePermit {
                execution_id: identity.execution_id.clone(),
                weight,
                lease,
                max_hold: ttl,
                waiter,
                waiter_ttl: WAITER_TTL,
                ..AcquirePermit::new(permits, scope, lock_id.clone(), limit)
            })
        }
    };
    Ok(Asked { kind, question, lock_id, identity, max_wait })
}

fn identity(body: &AcquireBody) -> Result<Identity, ApiError> {
    let label = |field: &'static str, text: &Option<String>| match text {
        Some(text) => WorkflowLabel::new(text).map_err(|refused| invalid_name(field, &refused)),
        None => Ok(WorkflowLabel::default()),
    };
    Ok(Identity {
        execution_id: body.execution_id.as_deref().map(execution_id).transpose()?,
        workflow_id: label("workflow_id", &body.workflow_id)?,
        workflow_name: label("workflow_name", &body.workflow_name)?,
    })
}

/// How long to wait; nothing for a caller that does not.
fn max_wait(body: &AcquireBody) -> Result<Option<Duration>, ApiError> {
    let given = seconds("max_wait_seconds", body.max_wait_seconds)?;
    let wait = given.unwrap_or(AcquireLock::MAX_HOLD);
    check_wait(wait).map_err(|refused| out_of_range("max_wait_seconds", &refused))?;
    Ok(body.wait.unwrap_or(true).then_some(wait))
}

fn units(kind: Kind, body: &AcquireBody) -> Result<(u32, u32), ApiError> {
    match kind {
        Kind::Read => Ok((RW_LIMIT, 1)),
        Kind::Write => Ok((RW_LIMIT, RW_LIMIT)),
        Kind::Exclusive | Kind::Semaphore => {
            let missing =
                || ApiError::new(Code::MissingField, "missing field `limit`: how many units does the semaphore have?").field("limit");
            let limit = whole("limit", body.limit, 1, LIMIT_MAX)?.ok_or_else(missing)?;
            Ok((limit, whole("weight", body.weight, 1, WEIGHT_MAX.min(limit))?.unwrap_or(1)))
        }
    }
}

/// A lease of so many milliseconds.
pub(crate) fn lease(given: Option<Decimal>) -> Result<Option<Duration>, ApiError> {
    let Some(Decimal(ms)) = given else { return Ok(None) };
    length("lease_ms", ms / 1_000.0).map(Some)
}

fn seconds(field: &'static str, given: Option<Decimal>) -> Result<Option<Duration>, ApiError> {
    given.map(|Decimal(seconds)| length(field, seconds)).transpose()
}

/// A length that is none at all is refused like one that is too short or too long.
fn length(field: &'static str, seconds: f64) -> Result<Duration, ApiError> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        let (min, max) = if field == "max_wait_seconds" { ("0 s", "604800 s") } else { ("0.1 s", "604800 s") };
        let refused = OutOfRange { field, given: format!("{seconds} s"), min: min.to_owned(), max: max.to_owned() };
        out_of_range(field, &refused)
    })
}

fn whole(field: &'static str, given: Option<Decimal>, min: u32, max: u32) -> Result<Option<u32>, ApiError> {
    let Some(Decimal(number)) = given else { return Ok(None) };
    if number.fract() == 0.0 && (f64::from(min)..=f64::from(max)).contains(&number) {
        return Ok(Some(number as u32));
    }
    let refused = OutOfRange { field, given: number.to_string(), min: min.to_string(), max: max.to_string() };
    Err(out_of_range(field, &refused))
}

pub(crate) fn out_of_range(field: &'static str, refused: &OutOfRange) -> ApiError {
    let message = format!("'{field}': {} is out of range; it must be from {} to {}", refused.given, refused.min, refused.max);
    ApiError::new(Code::OutOfRange, message).field(field).details(json!({ "min": refused.min, "max": refused.max }))
}

pub(crate) fn lock_scope(text: &str) -> Result<LockScope, ApiError> {
    LockScope::new(text).map_err(|refused| invalid_name("scope", &refused))
}

pub(crate) fn lock_id(text: &str) -> Result<LockId, ApiError> {
    LockId::new(text).map_err(|refused| invalid_name("lock_id", &refused))
}

pub(crate) fn execution_id(text: &str) -> Result<ExecutionId, ApiError> {
    ExecutionId::new(text).map_err(|refused| invalid_name("execution_id", &refused))
}

pub(crate) fn request_id(text: &str) -> Result<RequestId, ApiError> {
    RequestId::new(text).map_err(|refused: InvalidName| invalid_name("request_id", &refused))
}

impl From<&Holder> for HolderBody {
    fn from(holder: &Holder) -> Self {
        let kind = match holder.kind {
            HolderKind::Towpath => "towpath",
            HolderKind::Legacy => "legacy",
        };
        Self {
            kind: kind.to_owned(),
            lock_id: holder.lock_id.clone(),
            workflow_id: holder.workflow_id.clone(),
            workflow_name: holder.workflow_name.clone(),
            execution_id: holder.execution_id.clone(),
            locked_at: holder.locked_at.clone(),
            fence: holder.fence.map(towpath_core::lock::Fence::as_u64),
            lease_end: holder.lease_end.map(towpath_core::time::Timestamp::as_millis),
        }
    }
}

/// How many holders and waiters of one lock an answer has: where it is shown, and where many are listed.
pub(crate) const SHOWN_MAX: usize = 1_000;
const LISTED_MAX: usize = 20;

impl LockBody {
    pub(crate) fn of_lock(view: &LockView, most: usize) -> Self {
        Self {
            scope: view.scope.to_string(),
            kind: Kind::Exclusive.as_str().to_owned(),
            holders: Vec::new(),
            holder_count: u64::from(view.holder.is_some()),
            holder: view.holder.as_ref().map(HolderBody::from),
            holds: view.holds,
            max_hold_end: view.max_hold_end.map(towpath_core::time::Timestamp::as_millis),
            counter: view.counter.as_ref().map(Counter::to_string),
            fence_high: view.fence_high.as_u64(),
            waiters: view.waiters.iter().take(most).map(WaiterBody::from).collect(),
            waiter_count: view.waiters.len() as u64,
        }
    }

    pub(crate) fn of_permits(kind: PermitKind, view: &PermitView, most: usize) -> Self {
        let kind = match kind {
            PermitKind::Semaphore => "semaphore",
            PermitKind::ReadWrite => "rw",
        };
        Self {
            scope: view.scope.to_string(),
            kind: kind.to_owned(),
            holder: None,
            holders: view.permits.iter().take(most).map(UnitsBody::from).collect(),
            holder_count: view.permits.len() as u64,
            holds: 0,
            max_hold_end: None,
            counter: None,
            fence_high: view.fence_high.as_u64(),
            waiters: view.waiters.iter().take(most).map(WaiterBody::from).collect(),
            waiter_count: view.waiters.len() as u64,
        }
    }
}

impl From<&Permit> for UnitsBody {
    fn from(permit: &Permit) -> Self {
        Self {
            lock_id: permit.lock_id.to_string(),
            weight: permit.weight,
            fence: permit.fence.as_u64(),
            lease_end: permit.lease_end.as_millis(),
            max_hold_end: permit.max_hold_end.as_millis(),
            execution_id: permit.execution_id.as_ref().map(ToString::to_string),
        }
    }
}

impl From<&Waiter> for WaiterBody {
    fn from(place: &Waiter) -> Self {
        Self { waiter: place.waiter.to_string(), alive_until: place.alive_until.as_millis() }
    }
}

impl LockList {
    pub(crate) fn of_permits(kind: PermitKind, page: &PermitPage) -> Self {
        let locks = page.items.iter().map(|view| LockBody::of_permits(kind, view, LISTED_MAX)).collect();
        Self { locks, next: page.next.as_ref().map(ToString::to_string) }
    }
}

impl From<LockPage> for LockList {
    fn from(page: LockPage) -> Self {
        let locks = page.items.iter().map(|view| LockBody::of_lock(view, LISTED_MAX)).collect();
        Self { locks, next: page.next.map(|scope| scope.to_string()) }
    }
}
