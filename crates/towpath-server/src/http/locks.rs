//! Locks, semaphores and read/write locks: taken, renewed, released, looked at, forced open, cleaned up.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::json;
use towpath::locks::{Blocked, Cleanup, Entry, Fence, HeldScope, LockError, LostLock, Terms, Waited};
use towpath_core::inspect::LockQuery;
use towpath_core::lock::{
    CancelLock, CancelReply, Counter, EndBy, EndLock, EndReply, Holder, ReleaseLock, ReleaseReply, RenewLock, RenewReply, check_lease,
};
use towpath_core::names::{LockScope, RequestId};
use towpath_core::permit::{ReleaseBy, ReleasePermit, RenewPermit};

use super::app::App;
use super::bounds;
use super::codes::Code;
use super::convert::locks::{self as convert, Asked, Kind};
use super::error::ApiError;
use super::extract::{JsonBody, OptionalJsonBody, PathText, Query};
use super::wire::locks::{
    AcquireAnswer, AcquireBody, CancelLockAnswer, CancelLockBody, CleanupAnswer, CleanupBody, ForceLockAnswer, ForceLockBody, HolderBody,
    LockBody, LockKindQuery, LockList, LockQueryBody, ReleaseLockAnswer, ReleaseLockBody, RenewLockAnswer, RenewLockBody,
};

/// A request that waits is held for so long; its caller comes back with the same question.
const HELD_AT_MOST: Duration = Duration::from_secs(55);
const LIMIT_DEFAULT: u32 = 50;

/// Take a lock, or units of a semaphore or read/write lock
///
/// A lock that another holder has is waited for, first come first served, unless `wait` is false.
#[utoipa::path(
    post, path = "/v1/locks/{scope}/acquire", tag = "locks",
    params(("scope" = String, Path, description = "What is locked, percent-encoded")),
    request_body = AcquireBody,
    responses((status = 200, description = "It is the caller's", body = AcquireAnswer),
        (status = 202, description = "Still waiting: send the same request again within 60 seconds", body = AcquireAnswer)),
)]
pub(crate) async fn acquire(
    State(app): State<App>,
    PathText(scope): PathText,
    OptionalJsonBody(body): OptionalJsonBody<AcquireBody>,
) -> Result<(StatusCode, Json<AcquireAnswer>), ApiError> {
    let request_id = match &body.request_id {
        Some(given) => convert::request_id(given)?,
        None => convert::request_id(app.towpath().ids().call_id().as_str())?,
    };
    let asked = convert::asked(&scope, &body, &request_id, || app.towpath().waiter(&request_id))?;
    let hold = asked.max_wait.unwrap_or_default();
    let until = app.clock().now() + hold.min(HELD_AT_MOST);
    let waited = tokio::select! {
        waited = app.towpath().ask_for_lock(&asked.question, until) => waited?,
        // A server that stops answers at once: one more look, and the place is kept.
        () = app.drain().begun() => app.towpath().ask_for_lock(&asked.question, app.clock().now()).await?,
    };
    match waited {
        Waited::Granted(terms) => Ok((StatusCode::OK, Json(granted(&asked, &request_id, terms)))),
        Waited::Blocked(blocked) if asked.max_wait.is_none() => Err(held(&asked, "held", &blocked)),
        Waited::Blocked(blocked) if hold <= HELD_AT_MOST && app.clock().now() >= until => {
            app.towpath().take_back_question(&asked.question).await?;
            Err(held(&asked, "timed_out", &blocked))
        }
        Waited::Blocked(blocked) => Ok((StatusCode::ACCEPTED, Json(waiting(&asked, &request_id, &blocked)))),
        refused => Err(not_for_this_caller(&asked, &refused)),
    }
}

fn answer(asked: &Asked, request_id: &RequestId, outcome: &str) -> AcquireAnswer {
    AcquireAnswer {
        outcome: outcome.to_owned(),
        acquired: false,
        scope: asked.question.scope().to_string(),
        kind: asked.kind.as_str().to_owned(),
        lock_id: asked.lock_id.to_string(),
        request_id: request_id.to_string(),
        count: None,
        key: None,
        meta_key: None,
        workflow_id: None,
        workflow_name: None,
        execution_id: asked.identity.execution_text().to_owned(),
        locked_at: None,
        fence: None,
        lease_end: None,
        lease_remaining_ms: None,
        max_hold_end: None,
        holds: None,
        rank: None,
        free_in_ms: None,
    }
}

fn granted(asked: &Asked, request_id: &RequestId, terms: Terms) -> AcquireAnswer {
    let outcome = match terms.entry {
        Entry::Granted => "granted",
        Entry::Replayed => "replayed",
        Entry::Reentered => "reentered",
    };
    let key = |name: fn(&LockScope) -> String| (asked.kind == Kind::Exclusive).then(|| name(asked.question.scope()));
    AcquireAnswer {
        acquired: true,
        count: Some(1),
        key: key(LockScope::key),
        meta_key: key(LockScope::meta_key),
        workflow_id: Some(asked.identity.workflow_id.to_string()),
        workflow_name: Some(asked.identity.workflow_name.to_string()),
        locked_at: Some(terms.locked_at.to_iso()),
        fence: Some(terms.fence.as_u64()),
        lease_end: Some(terms.lease_end.as_millis()),
        lease_remaining_ms: Some(ms(terms.lease_end.since(terms.now))),
        max_hold_end: Some(terms.max_hold_end.as_millis()),
        holds: Some(terms.holds),
        ..answer(asked, request_id, outcome)
    }
}

fn waiting(asked: &Asked, request_id: &RequestId, blocked: &Blocked) -> AcquireAnswer {
    AcquireAnswer { rank: blocked.ahead, free_in_ms: blocked.free_in.map(ms), ..answer(asked, request_id, "waiting") }
}

fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// The texts are those that workflows know.
fn held(asked: &Asked, outcome: &str, blocked: &Blocked) -> ApiError {
    let scope = asked.question.scope();
    let message = match asked.max_wait {
        None => Holder::fail_fast_text(scope.as_str(), 1),
        Some(wait) => Holder::timed_out_text(scope.as_str(), wait),
    };
    let holder = blocked.holder.as_ref().map(HolderBody::from);
    ApiError::new(Code::LockHeld, message)
        .field("scope")
        .hint(blocked.to_string())
        .details(json!({ "outcome": outcome, "holder": holder, "free_in_ms": blocked.free_in.map(ms) }))
}

fn not_for_this_caller(asked: &Asked, waited: &Waited) -> ApiError {
    let scope = asked.question.scope();
    match waited {
        Waited::SelfHeld { fence, lease_end } => {
            let message = format!("lock id '{}' holds scope '{scope}' already and may not enter again", asked.lock_id);
            let details = json!({ "outcome": "self", "fence": fence.as_u64(), "lease_end": lease_end.as_millis() });
            ApiError::new(Code::LockHeld, message).field("lock_id").hint("release it, or ask with max_holds").details(details)
        }
        Waited::Spent => {
            let message = format!("this question for scope '{scope}' was granted before, and the lock was released");
            let details = json!({ "outcome": "spent" });
            ApiError::new(Code::LockHeld, message).field("request_id").hint("ask under a new request_id").details(details)
        }
        Waited::QueueFull { waiters } => {
            ApiError::new(Code::LockQueueFull, format!("{waiters} callers wait for scope '{scope}' already")).field("scope")
        }
        _never => ApiError::new(Code::OutOfRange, "'weight' is more than 'limit'").field("weight"),
    }
}

/// Prolong a lease
///
/// Without `lease_ms` by as long as it was given last.
#[utoipa::path(
    post, path = "/v1/locks/{scope}/renew", tag = "locks",
    params(("scope" = String, Path, description = "What is locked, percent-encoded")),
    request_body = RenewLockBody,
    responses((status = 200, description = "The lease holds", body = RenewLockAnswer)),
)]
pub(crate) async fn renew(
    State(app): State<App>,
    PathText(scope): PathText,
    JsonBody(body): JsonBody<RenewLockBody>,
) -> Result<Json<RenewLockAnswer>, ApiError> {
    let (kind, scope, fence) = (Kind::parse(body.kind.as_deref())?, convert::lock_scope(&scope)?, Fence::new(body.fence));
    let lease = convert::lease(body.lease_ms)?;
    if let Some(lease) = lease {
        check_lease(lease, Duration::from_secs(7 * 86_400)).map_err(|refused| convert::out_of_range("lease_ms", &refused))?;
    }
    let reply = match kind.permits() {
        None => app.store().lock_renew(RenewLock { scope: scope.clone(), fence, lease }).await?,
        Some(permits) => {
            let lock_id = convert::lock_id(needed_lock_id(body.lock_id.as_deref())?)?;
            app.store().permit_renew(RenewPermit { kind: permits, scope: scope.clone(), lock_id, fence, lease }).await?
        }
    };
    match reply {
        RenewReply::Renewed { now, lease_end, legacy_attempts, healed } => Ok(Json(RenewLockAnswer {
            outcome: "renewed".to_owned(),
            lease_end: lease_end.as_millis(),
            lease_remaining_ms: ms(lease_end.since(now)),
            legacy_attempts,
            healed,
        })),
        RenewReply::Lost(why) => Err(lost(&scope, why, None)),
    }
}

fn needed_lock_id(given: Option<&str>) -> Result<&str, ApiError> {
    given.ok_or_else(|| ApiError::new(Code::MissingField, "missing field `lock_id`: whose permit is it?").field("lock_id"))
}

fn lost(scope: &LockScope, why: LostLock, holder: Option<&Holder>) -> ApiError {
    let reason = why.as_str();
    let details = json!({ "outcome": "lost", "reason": reason, "holder": holder.map(HolderBody::from) });
    ApiError::new(Code::LockLost, format!("the lock on scope '{scope}' is no longer the caller's ({reason})"))
        .field("fence")
        .hint("stop, and write nothing more under this fence")
        .details(details)
}

/// Release a lock
///
/// By fence it is safe to repeat; by lock id it does what old workflows do, but only for the lock's own holder.
#[utoipa::path(
    post, path = "/v1/locks/{scope}/release", tag = "locks",
    params(("scope" = String, Path, description = "What is locked, percent-encoded")),
    request_body = ReleaseLockBody,
    responses((status = 200, description = "It is not the caller's any more", body = ReleaseLockAnswer)),
)]
pub(crate) async fn release(
    State(app): State<App>,
    PathText(scope): PathText,
    JsonBody(body): JsonBody<ReleaseLockBody>,
) -> Result<Json<ReleaseLockAnswer>, ApiError> {
    let (kind, scope) = (Kind::parse(body.kind.as_deref())?, convert::lock_scope(&scope)?);
    let lock_id = body.lock_id.as_deref().map(convert::lock_id).transpose()?;
    let fence = body.fence.map(Fence::new);
    let answer = |outcome: &str, idempotent| ReleaseLockAnswer {
        outcome: outcome.to_owned(),
        released: true,
        idempotent,
        scope: scope.to_string(),
        lock_id: body.lock_id.clone(),
        holds: None,
        warning: None,
    };
    if let Some(permits) = kind.permits() {
        let lock_id = convert::lock_id(needed_lock_id(body.lock_id.as_deref())?)?;
        let by = ReleaseBy::Permit { lock_id, fence };
        let given_back = app.store().permit_release(ReleasePermit { kind: permits, scope: scope.clone(), by }).await?;
        return Ok(Json(if given_back > 0 { answer("released", false) } else { answer("already", true) }));
    }
    match (fence, lock_id) {
        (Some(fence), None) => match app.store().lock_release(ReleaseLock { scope: scope.clone(), fence }).await? {
            ReleaseReply::Released => Ok(Json(answer("released", false))),
            ReleaseReply::StillHeld { holds } => Ok(Json(ReleaseLockAnswer { holds: Some(holds), ..answer("still_held", false) })),
            ReleaseReply::Already => Ok(Json(answer("already", true))),
            ReleaseReply::Expired => Ok(Json(answer("expired", true))),
            ReleaseReply::Lost { why, holder } => Err(lost(&scope, why, holder.as_ref())),
        },
        (None, Some(lock_id)) => {
            let by = EndBy::LockId(lock_id.clone());
            match app.store().lock_end(EndLock { scope: scope.clone(), by }).await? {
                EndReply::Ended { .. } => Ok(Json(answer("released", false))),
                EndReply::StillHeld { holds } => Ok(Json(ReleaseLockAnswer { holds: Some(holds), ..answer("still_held", false) })),
                EndReply::Already => Ok(Json(answer("already", true))),
                EndReply::Absent { counter_without_meta } => {
                    let warning = counter_without_meta.then(|| "counter_without_meta".to_owned());
                    Ok(Json(ReleaseLockAnswer { warning, ..answer("absent", true) }))
                }
                EndReply::NotHolder(holder) => Err(ApiError::new(Code::LockLost, holder.not_yours(lock_id.as_str()))
                    .field("lock_id")
                    .details(json!({ "outcome": "not_holder", "holder": HolderBody::from(&holder) }))),
                EndReply::Changed { .. } => Err(ApiError::new(Code::Internal, "a release by lock id looks at no counter")),
            }
        }
        (None, None) => Err(ApiError::new(Code::MissingField, "missing field `fence`: release by `fence` or by `lock_id`").field("fence")),
        (Some(_), Some(_)) => Err(ApiError::new(Code::Ambiguous, "both `fence` and `lock_id`: release by one of them").field("lock_id")),
    }
}

/// Take a question back
///
/// A waiter leaves the queue; a grant whose answer was lost is undone.
#[utoipa::path(
    post, path = "/v1/locks/{scope}/cancel", tag = "locks",
    params(("scope" = String, Path, description = "What is locked, percent-encoded")),
    request_body = CancelLockBody,
    responses((status = 200, description = "What became of it", body = CancelLockAnswer)),
)]
pub(crate) async fn cancel(
    State(app): State<App>,
    PathText(scope): PathText,
    JsonBody(body): JsonBody<CancelLockBody>,
) -> Result<Json<CancelLockAnswer>, ApiError> {
    let (kind, scope) = (Kind::parse(body.kind.as_deref())?, convert::lock_scope(&scope)?);
    let request_id = convert::request_id(&body.request_id)?;
    let waiter = app.towpath().waiter(&request_id);
    let answer =
        |outcome: &str, fence: Option<Fence>| Ok(Json(CancelLockAnswer { outcome: outcome.to_owned(), fence: fence.map(Fence::as_u64) }));
    let Some(permits) = kind.permits() else {
        return match app.store().lock_cancel(CancelLock { scope, request_id, waiter: Some(waiter) }).await? {
            CancelReply::Cancelled => answer("cancelled", None),
            CancelReply::NotQueued => answer("not_queued", None),
            CancelReply::WasGranted { fence } => answer("was_granted", Some(fence)),
        };
    };
    let lock_id = convert::lock_id(body.lock_id.as_deref().unwrap_or(request_id.as_str()))?;
    let release = |by| ReleasePermit { kind: permits, scope: scope.clone(), by };
    let queued = app.store().permit_release(release(ReleaseBy::Waiter(waiter))).await?;
    let granted = app.store().permit_release(release(ReleaseBy::Permit { lock_id, fence: None })).await?;
    match (queued, granted) {
        (_, 1..) => answer("was_granted", None),
        (1.., 0) => answer("cancelled", None),
        (0, 0) => answer("not_queued", None),
    }
}

/// List locks that are held or waited for, by scope
///
/// Locks of old workflows are in it when one of ours has met them, when `lock_scopes` of the shared configuration names them, and all of
/// them with `scan`.
#[utoipa::path(
    get, path = "/v1/locks", tag = "locks", params(LockQueryBody),
    responses((status = 200, description = "A page of locks", body = LockList)),
)]
pub(crate) async fn list(State(app): State<App>, Query(query): Query<LockQueryBody>) -> Result<Json<LockList>, ApiError> {
    let kind = Kind::listed(query.kind.as_deref())?;
    let query = LockQuery {
        prefix: query.prefix.unwrap_or_default(),
        after: query.cursor.as_deref().map(convert::lock_scope).transpose()?,
        limit: bounds::check("limit", query.limit)?.unwrap_or(LIMIT_DEFAULT),
        also: Vec::new(),
        scan: query.scan.unwrap_or(false),
    };
    match kind.permits() {
        None => Ok(Json(app.towpath().locks_in_use(query).await.map_err(trouble)?.into())),
        Some(kind) => Ok(Json(LockList::of_permits(kind, &app.store().permit_list(kind, &query).await?))),
    }
}

/// Show a lock
#[utoipa::path(
    get, path = "/v1/locks/{scope}", tag = "locks",
    params(("scope" = String, Path, description = "What is locked, percent-encoded"), LockKindQuery),
    responses((status = 200, description = "Who holds it and who waits", body = LockBody)),
)]
pub(crate) async fn show(
    State(app): State<App>,
    PathText(scope): PathText,
    Query(query): Query<LockKindQuery>,
) -> Result<Json<LockBody>, ApiError> {
    let (kind, scope) = (Kind::listed(query.kind.as_deref())?, convert::lock_scope(&scope)?);
    let found = match kind.permits() {
        None => app.store().lock(&scope).await?.map(|view| LockBody::of_lock(&view, convert::SHOWN_MAX)),
        Some(kind) => app.store().permits(kind, &scope).await?.map(|view| LockBody::of_permits(kind, &view, convert::SHOWN_MAX)),
    };
    match found {
        Some(body) => Ok(Json(body)),
        None => Err(ApiError::new(Code::LockNotFound, format!("scope '{scope}' was never locked, or not for a long time")).field("scope")),
    }
}

/// Force a lock open
///
/// The holder learns of it at its next renewal. Kept on record with the reason.
#[utoipa::path(
    delete, path = "/v1/locks/{scope}", tag = "locks",
    params(("scope" = String, Path, description = "What is locked, percent-encoded")),
    request_body = ForceLockBody,
    responses((status = 200, description = "It is free", body = ForceLockAnswer)),
)]
pub(crate) async fn force(
    State(app): State<App>,
    PathText(scope): PathText,
    JsonBody(body): JsonBody<ForceLockBody>,
) -> Result<Json<ForceLockAnswer>, ApiError> {
    let scope = convert::lock_scope(&scope)?;
    if body.reason.trim().is_empty() {
        return Err(ApiError::new(Code::InvalidField, "'reason' is empty: say why, for the record").field("reason"));
    }
    let by = EndBy::Force { counter: body.counter.map(Counter::new), who: "HTTP API".to_owned(), reason: body.reason.clone() };
    match app.store().lock_end(EndLock { scope: scope.clone(), by }).await? {
        EndReply::Ended { holder } => {
            tracing::warn!(%scope, reason = ?body.reason, holder = ?holder.as_ref().map(|holder| &holder.lock_id), "a lock was forced open");
            Ok(Json(ForceLockAnswer { outcome: "ended".to_owned(), holder: holder.as_ref().map(HolderBody::from) }))
        }
        EndReply::Changed { counter } => {
            let counter = counter.map(|counter| counter.to_string());
            Err(ApiError::new(Code::LockChanged, format!("the lock on scope '{scope}' is not what it was when it was looked at"))
                .field("counter")
                .hint("look again with GET /v1/locks/{scope}, and decide again")
                .details(json!({ "outcome": "changed", "counter": counter })))
        }
        _by_owner => Err(ApiError::new(Code::Internal, "a forced release looks at nothing but the counter")),
    }
}

/// Free whatever a failed execution holds
#[utoipa::path(
    post, path = "/v1/locks:cleanup", tag = "locks", request_body = CleanupBody,
    responses((status = 200, description = "What was freed", body = CleanupAnswer)),
)]
pub(crate) async fn cleanup(State(app): State<App>, JsonBody(body): JsonBody<CleanupBody>) -> Result<Json<CleanupAnswer>, ApiError> {
    convert::execution_id(&body.execution_id)?;
    let cleanup = Cleanup { lock_scopes: body.lock_scopes, scan: body.scan };
    let cleaned = app.towpath().cleanup_execution(&body.execution_id, cleanup).await.map_err(trouble)?;
    let scopes: Vec<String> = cleaned.scopes.iter().map(HeldScope::to_string).collect();
    let reason = cleaned.reason();
    Ok(Json(CleanupAnswer { cleaned: !scopes.is_empty(), cleaned_count: scopes.len() as u64, scopes, reason }))
}

fn trouble(error: LockError) -> ApiError {
    match error {
        LockError::Store(error) => error.into(),
        LockError::BadName(refused) => super::error::invalid_name("lock_scopes", &refused),
        other => ApiError::new(Code::InvalidField, other.to_string()),
    }
}
