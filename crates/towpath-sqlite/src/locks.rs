//! The moves of exclusive locks: load the row, ask the pure move, write the row back, wake after the commit.

mod rows;
mod store;

use std::time::Duration;

use towpath_core::inspect::{LockPage, LockQuery, LockView, PageRequest};
use towpath_core::lock::{
    self, AcquireLock, AcquireReply, CancelLock, CancelReply, EndBy, EndLock, EndReply, LockState, ReapReply, ReleaseLock, ReleaseReply,
    RenewLock, RenewReply, Stepped,
};
use towpath_core::names::{ExecutionId, LockScope};
use towpath_core::store::HeldScope;
use towpath_core::time::Timestamp;

use crate::permits;
use crate::trouble::Moved;
use crate::writer::Tx;

#[cfg(test)]
pub(crate) use rows::{DUE, HELD_BY, NEXT_DUE};
pub(crate) use rows::{due, fence_column, next_due, renew_leases};

const AUDIT: &str = "INSERT INTO lock_audit (at_ms, scope, who, reason, before) VALUES (?1, ?2, ?3, ?4, ?5)";
/// What nobody has touched for so long is forgotten. Fences go on rising all the same, because none is below the clock's own.
const KEPT: Duration = Duration::from_secs(86_400);
/// How often that is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);

/// Puts one move to a lock. A lock of which nothing is known is not kept.
fn put<R>(tx: &mut Tx<'_>, scope: &LockScope, step: impl FnOnce(&mut LockState, Timestamp) -> Stepped<R>) -> Moved<R> {
    let before = rows::load(tx.conn, scope)?;
    let mut state = before.clone();
    let Stepped { reply, wakes } = step(&mut state, tx.now);
    rows::save(tx, scope, &before, &state)?;
    tx.after.note_due(state.reap_at);
    tx.after.turns.extend(wakes);
    Ok(reply)
}

pub(crate) fn acquire(tx: &mut Tx<'_>, want: &AcquireLock) -> Moved<AcquireReply> {
    put(tx, &want.scope, |state, now| lock::acquire(state, want, now))
}

pub(crate) fn renew(tx: &mut Tx<'_>, lease: &RenewLock) -> Moved<RenewReply> {
    put(tx, &lease.scope, |state, now| lock::renew(state, lease, now))
}

pub(crate) fn release(tx: &mut Tx<'_>, lease: &ReleaseLock) -> Moved<ReleaseReply> {
    put(tx, &lease.scope, |state, now| lock::release(state, lease, now))
}

pub(crate) fn end(tx: &mut Tx<'_>, whose: &EndLock) -> Moved<EndReply> {
    let before = rows::load(tx.conn, &whose.scope)?.meta;
    let reply = put(tx, &whose.scope, |state, now| lock::end(state, whose, now))?;
    if let (EndReply::Ended { .. }, EndBy::Force { who, reason, .. }) = (&reply, &whose.by) {
        let before = before.as_deref();
        tx.conn.prepare_cached(AUDIT)?.execute((tx.now.as_millis(), whose.scope.as_str(), who, reason, before))?;
    }
    Ok(reply)
}

pub(crate) fn cancel(tx: &mut Tx<'_>, question: &CancelLock) -> Moved<CancelReply> {
    put(tx, &question.scope, |state, now| lock::cancel(state, question, now))
}

pub(crate) fn reap(tx: &mut Tx<'_>, scope: &LockScope) -> Moved<ReapReply> {
    put(tx, scope, lock::reap)
}

/// Locks by scope, then permits by kind and scope.
pub(crate) fn held_by_execution(tx: &Tx<'_>, execution_id: &ExecutionId) -> Moved<Vec<HeldScope>> {
    let mut held = rows::held_by(tx.conn, execution_id, tx.now)?;
    held.extend(permits::held_by(tx.conn, execution_id, tx.now)?);
    Ok(held)
}

pub(crate) fn view(tx: &Tx<'_>, scope: &LockScope) -> Moved<Option<LockView>> {
    Ok(LockView::of(scope, &rows::load(tx.conn, scope)?, tx.now))
}

pub(crate) fn page(tx: &Tx<'_>, query: &LockQuery) -> Moved<LockPage> {
    let limit = query.limit.min(PageRequest::LIMIT_MAX) as usize;
    let mut scopes = rows::in_use(tx.conn, query, limit + 1, tx.now)?;
    let more = scopes.len() > limit;
    scopes.truncate(limit);
    let next = scopes.last().filter(|_| more).cloned();
    let views = scopes.iter().map(|scope| view(tx, scope)).collect::<Moved<Vec<_>>>()?;
    Ok(LockPage { items: views.into_iter().flatten().collect(), next })
}

/// Forgets what nobody has touched for long, now and then.
pub(crate) fn sweep_now_and_then(tx: &mut Tx<'_>) -> Moved<()> {
    if tx.memory.locks_swept_at.is_some_and(|swept_at| tx.now.since(swept_at) < SWEEP_EVERY) {
        return Ok(());
    }
    tx.memory.locks_swept_at = Some(tx.now);
    let before = Timestamp::from_millis(tx.now.as_millis() - towpath_core::time::millis(KEPT));
    rows::sweep(tx.conn, before)?;
    permits::sweep(tx.conn, before, tx.now)
}
