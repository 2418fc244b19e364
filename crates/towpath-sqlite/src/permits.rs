//! The moves of semaphores and read/write locks: load the rows, ask the pure move, write back what changed, wake after the commit.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row};
use towpath_core::inspect::{LockQuery, PageRequest, PermitPage, PermitView};
use towpath_core::lock::{Fence, Queue, RenewReply, Stepped};
use towpath_core::names::{ExecutionId, LockScope};
use towpath_core::permit::{self, AcquirePermit, Permit, PermitKind, PermitReply, PermitState, ReleasePermit, RenewPermit};
use towpath_core::store::HeldScope;
use towpath_core::time::{Timestamp, millis};

use crate::locks::fence_column;
use crate::rows::{instant, name, optional_name};
use crate::trouble::{Moved, Trouble};
use crate::waiters;
use crate::writer::Tx;

const LOAD_SCOPE: &str = "SELECT fence_high, free_since_ms, arrivals FROM permit_scopes WHERE kind = ?1 AND scope = ?2";
const SAVE_SCOPE: &str = "INSERT INTO permit_scopes (kind, scope, fence_high, free_since_ms, arrivals, touched_ms) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (kind, scope) DO UPDATE SET fence_high = ?3, free_since_ms = ?4, arrivals = ?5, touched_ms = ?6";
pub(crate) const LOAD: &str = "SELECT fence, lock_id, weight, lease_end_ms, max_hold_end_ms, execution_id, lease_ms FROM permits \
     WHERE kind = ?1 AND scope = ?2 ORDER BY fence";
const PUT: &str = "INSERT INTO permits (kind, scope, fence, lock_id, weight, lease_end_ms, max_hold_end_ms, execution_id, lease_ms) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (kind, scope, fence) DO UPDATE SET lease_end_ms = ?6, lease_ms = ?9";
/// A lease that had ended before the store was last used stays ended: its row is removed only when a process asks for the scope.
const RENEW_ALL: &str = "UPDATE permits SET lease_end_ms = min(?1 + lease_ms, max_hold_end_ms) WHERE lease_end_ms > ?2";
const DROP: &str = "DELETE FROM permits WHERE kind = ?1 AND scope = ?2 AND fence = ?3";
pub(crate) const HELD_BY: &str = "SELECT kind, scope FROM permits WHERE execution_id = ?1 AND lease_end_ms > ?2";
const IN_USE: &str = "SELECT scope FROM permit_scopes s WHERE kind = ?1 AND scope >= ?2 AND substr(scope, 1, length(?2)) = ?2 \
     AND (?3 IS NULL OR scope > ?3) \
     AND (EXISTS (SELECT 1 FROM permits p WHERE p.kind = ?1 AND p.scope = s.scope AND p.lease_end_ms > ?4) \
       OR EXISTS (SELECT 1 FROM lock_waiters w WHERE w.kind = ?1 AND w.scope = s.scope AND w.alive_until_ms > ?4)) \
     ORDER BY scope LIMIT ?5";
/// Idle scopes: untouched for long, and nobody holds a unit.
const IDLE: &str = "SELECT kind, scope FROM permit_scopes s WHERE touched_ms < ?1 \
     AND NOT EXISTS (SELECT 1 FROM permits p WHERE p.kind = s.kind AND p.scope = s.scope AND p.lease_end_ms > ?2)";
const FORGET: [&str; 3] = [
    "DELETE FROM permit_scopes WHERE kind = ?1 AND scope = ?2",
    "DELETE FROM permits WHERE kind = ?1 AND scope = ?2",
    "DELETE FROM lock_waiters WHERE kind = ?1 AND scope = ?2",
];

fn put<R>(tx: &mut Tx<'_>, kind: PermitKind, scope: &LockScope, step: impl FnOnce(&mut PermitState, Timestamp) -> Stepped<R>) -> Moved<R> {
    let before = load(tx.conn, kind, scope)?;
    let mut state = before.clone();
    let Stepped { reply, wakes } = step(&mut state, tx.now);
    save(tx, kind, scope, &before, &state)?;
    tx.after.turns.extend(wakes);
    Ok(reply)
}

pub(crate) fn acquire(tx: &mut Tx<'_>, want: &AcquirePermit) -> Moved<PermitReply> {
    put(tx, want.kind, &want.scope, |state, now| permit::acquire(state, want, now))
}

pub(crate) fn renew(tx: &mut Tx<'_>, lease: &RenewPermit) -> Moved<RenewReply> {
    put(tx, lease.kind, &lease.scope, |state, now| permit::renew(state, lease, now))
}

pub(crate) fn release(tx: &mut Tx<'_>, what: &ReleasePermit) -> Moved<u32> {
    put(tx, what.kind, &what.scope, |state, now| permit::release(state, what, now))
}

pub(crate) fn view(tx: &Tx<'_>, kind: PermitKind, scope: &LockScope) -> Moved<Option<PermitView>> {
    Ok(PermitView::of(scope, &load(tx.conn, kind, scope)?, tx.now))
}

pub(crate) fn page(tx: &Tx<'_>, kind: PermitKind, query: &LockQuery) -> Moved<PermitPage> {
    let limit = query.limit.min(PageRequest::LIMIT_MAX) as usize;
    let after = query.after.as_ref().map(LockScope::as_str);
    let mut statement = tx.conn.prepare_cached(IN_USE)?;
    let more = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = statement.query((kind.as_str(), &query.prefix, after, tx.now.as_millis(), more))?;
    let mut items: Vec<PermitView> = Vec::new();
    while let Some(row) = rows.next()? {
        if items.len() == limit {
            let next = items.last().map(|view| view.scope.clone());
            return Ok(PermitPage { items, next });
        }
        items.extend(view(tx, kind, &name(row, 0)?)?);
    }
    Ok(PermitPage { items, next: None })
}

fn load(conn: &Connection, kind: PermitKind, scope: &LockScope) -> Moved<PermitState> {
    let key = (kind.as_str(), scope.as_str());
    let known = conn.prepare_cached(LOAD_SCOPE)?.query_row(key, |row| Ok(read_scope(row))).optional()?;
    let Some(mut state) = known.transpose()? else { return Ok(PermitState::default()) };
    let mut statement = conn.prepare_cached(LOAD)?;
    let mut rows = statement.query(key)?;
    while let Some(row) = rows.next()? {
        state.permits.push(read(row)?);
    }
    if state.queue.arrivals > 0 {
        state.queue.waiters = waiters::load(conn, kind.as_str(), scope)?;
    }
    Ok(state)
}

fn read_scope(row: &Row<'_>) -> Moved<PermitState> {
    let queue = Queue { waiters: Vec::new(), arrivals: row.get(2)? };
    Ok(PermitState { permits: Vec::new(), queue, free_since: instant(row, 1)?, fence_high: Fence::new(row.get(0)?) })
}

fn read(row: &Row<'_>) -> Moved<Permit> {
    Ok(Permit {
        lock_id: name(row, 1)?,
        weight: row.get(2)?,
        fence: Fence::new(row.get(0)?),
        lease_end: Timestamp::from_millis(row.get(3)?),
        lease: Duration::from_millis(row.get(6)?),
        max_hold_end: Timestamp::from_millis(row.get(4)?),
        execution_id: optional_name(row, 5)?,
    })
}

fn save(tx: &Tx<'_>, kind: PermitKind, scope: &LockScope, before: &PermitState, state: &PermitState) -> Moved<()> {
    if before == state {
        return Ok(());
    }
    let (kind, name) = (kind.as_str(), scope.as_str());
    waiters::save(tx.conn, kind, scope, &before.queue.waiters, &state.queue.waiters)?;
    // Both are sorted by fence.
    let find = |list: &[Permit], fence: Fence| list.binary_search_by_key(&fence, |permit| permit.fence).ok();
    for gone in before.permits.iter().filter(|permit| find(&state.permits, permit.fence).is_none()) {
        tx.conn.prepare_cached(DROP)?.execute((kind, name, fence_column(gone.fence)))?;
    }
    for permit in &state.permits {
        if find(&before.permits, permit.fence).is_none_or(|known| before.permits[known] != *permit) {
            tx.conn.prepare_cached(PUT)?.execute((
                kind,
                name,
                fence_column(permit.fence),
                permit.lock_id.as_str(),
                permit.weight,
                permit.lease_end.as_millis(),
                permit.max_hold_end.as_millis(),
                permit.execution_id.as_ref().map(ExecutionId::as_str),
                millis(permit.lease),
            ))?;
        }
    }
    let free_since = state.free_since.map(Timestamp::as_millis);
    let row = (kind, name, fence_column(state.fence_high), free_since, state.queue.arrivals, tx.now.as_millis());
    tx.conn.prepare_cached(SAVE_SCOPE)?.execute(row)?;
    Ok(())
}

pub(crate) fn held_by(conn: &Connection, execution_id: &ExecutionId, now: Timestamp) -> Moved<Vec<HeldScope>> {
    let mut statement = conn.prepare_cached(HELD_BY)?;
    let mut rows = statement.query((execution_id.as_str(), now.as_millis()))?;
    let mut held = Vec::new();
    while let Some(row) = rows.next()? {
        held.push(HeldScope::Permit(kind_of(&row.get::<_, String>(0)?)?, name(row, 1)?));
    }
    held.sort();
    held.dedup();
    Ok(held)
}

/// Counts every lease from now on, up to its cap: no holder could renew while the store was closed. `used`: when the store was last used.
pub(crate) fn renew_leases(conn: &Connection, now: Timestamp, used: Timestamp) -> Moved<()> {
    conn.execute(RENEW_ALL, [now.as_millis(), used.as_millis()])?;
    Ok(())
}

fn kind_of(text: &str) -> Moved<PermitKind> {
    let known = PermitKind::ALL.into_iter().find(|kind| kind.as_str() == text);
    known.ok_or_else(|| Trouble::Corrupt(format!("permits cannot be of kind '{text}'")))
}

pub(crate) fn sweep(conn: &Connection, before: Timestamp, now: Timestamp) -> Moved<()> {
    let mut statement = conn.prepare_cached(IDLE)?;
    let rows = statement.query_map((before.as_millis(), now.as_millis()), |row| Ok((row.get(0)?, row.get(1)?)))?;
    for key in rows.collect::<Result<Vec<(String, String)>, _>>()? {
        for forget in FORGET {
            conn.prepare_cached(forget)?.execute((&key.0, &key.1))?;
        }
    }
    Ok(())
}
