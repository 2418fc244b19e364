//! A lock to columns and back. The only place that knows which column holds what.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row};
use towpath_core::inspect::LockQuery;
use towpath_core::lock::{AcquireLock, Counter, Fence, LastRelease, LockState, Queue, Tenure};
use towpath_core::names::{ExecutionId, LockScope};
use towpath_core::store::HeldScope;
use towpath_core::time::{Timestamp, millis};

use crate::rows::{instant, name, optional_name};
use crate::trouble::{Moved, Trouble};
use crate::waiters;
use crate::writer::Tx;

/// How the queue of a lock is told from that of a semaphore.
const KIND: &str = "lock";

const LOAD: &str = "SELECT counter, meta, lock_id, fence, holds, execution_id, request_id, lease_end_ms, max_hold_end_ms, tenure_meta, \
     locked_ms, fence_high, last_fence, last_lock_id, last_request_id, free_since_ms, reap_ms, arrivals, lease_ms FROM locks WHERE scope = ?1";
const SAVE: &str = "INSERT INTO locks (scope, counter, meta, lock_id, fence, holds, execution_id, request_id, lease_end_ms, \
     max_hold_end_ms, tenure_meta, locked_ms, fence_high, last_fence, last_lock_id, last_request_id, free_since_ms, reap_ms, arrivals, \
     touched_ms, lease_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21) \
     ON CONFLICT (scope) DO UPDATE SET counter = ?2, meta = ?3, lock_id = ?4, fence = ?5, holds = ?6, execution_id = ?7, request_id = ?8, \
     lease_end_ms = ?9, max_hold_end_ms = ?10, tenure_meta = ?11, locked_ms = ?12, fence_high = ?13, last_fence = ?14, \
     last_lock_id = ?15, last_request_id = ?16, free_since_ms = ?17, reap_ms = ?18, arrivals = ?19, touched_ms = ?20, \
     lease_ms = ?21";
const FORGET: &str = "DELETE FROM locks WHERE scope = ?1";
pub(crate) const DUE: &str = "SELECT reap_ms, scope FROM locks WHERE reap_ms <= ?1 ORDER BY reap_ms, scope LIMIT ?2";
pub(crate) const NEXT_DUE: &str = "SELECT reap_ms FROM locks WHERE reap_ms IS NOT NULL ORDER BY reap_ms LIMIT 1";
pub(crate) const HELD_BY: &str = "SELECT scope FROM locks WHERE execution_id = ?1 AND lease_end_ms > ?2";
const IN_USE: &str = "SELECT scope FROM locks l WHERE scope >= ?1 AND substr(scope, 1, length(?1)) = ?1 AND (?2 IS NULL OR scope > ?2) \
     AND ((counter IS NOT NULL AND lease_end_ms > ?3) \
       OR EXISTS (SELECT 1 FROM lock_waiters w WHERE w.kind = 'lock' AND w.scope = l.scope AND w.alive_until_ms > ?3)) \
     ORDER BY scope LIMIT ?4";
const SWEEP_WAITERS: &str = "DELETE FROM lock_waiters WHERE kind = 'lock' AND scope IN \
     (SELECT scope FROM locks WHERE counter IS NULL AND touched_ms < ?1)";
const SWEEP: &str = "DELETE FROM locks WHERE counter IS NULL AND touched_ms < ?1";
const RENEW_ALL: &str = "UPDATE locks SET lease_end_ms = min(?1 + lease_ms, max_hold_end_ms), \
     reap_ms = min(?1 + lease_ms, max_hold_end_ms) WHERE counter IS NOT NULL AND lease_ms IS NOT NULL";

pub(super) fn load(conn: &Connection, scope: &LockScope) -> Moved<LockState> {
    let mut statement = conn.prepare_cached(LOAD)?;
    let found = statement.query_row([scope.as_str()], |row| Ok(read(row))).optional()?;
    let mut state = found.transpose()?.unwrap_or_default();
    if state.queue.arrivals > 0 {
        state.queue.waiters = waiters::load(conn, KIND, scope)?;
    }
    Ok(state)
}

fn read(row: &Row<'_>) -> Moved<LockState> {
    let last = LastRelease { fence: fence(row, 12)?, lock_id: optional_name(row, 13)?, request_id: optional_name(row, 14)? };
    Ok(LockState {
        counter: row.get::<_, Option<String>>(0)?.map(Counter::new),
        meta: row.get::<_, Option<String>>(1)?.map(Arc::from),
        tenure: if row.get::<_, Option<i64>>(3)?.is_some() { Some(read_tenure(row)?) } else { None },
        fence_high: fence(row, 11)?,
        queue: Queue { waiters: Vec::new(), arrivals: row.get(17)? },
        last,
        free_since: instant(row, 15)?,
        orphan_watch: None, // no old caller reaches this file
        reap_at: instant(row, 16)?,
    })
}

fn read_tenure(row: &Row<'_>) -> Moved<Tenure> {
    Ok(Tenure {
        lock_id: name(row, 2)?,
        fence: fence(row, 3)?,
        holds: row.get(4)?,
        execution_id: optional_name(row, 5)?,
        request_id: name(row, 6)?,
        lease_end: Timestamp::from_millis(row.get(7)?),
        lease: row.get::<_, Option<u64>>(18)?.map_or(AcquireLock::LEASE, Duration::from_millis),
        max_hold_end: Timestamp::from_millis(row.get(8)?),
        meta: Arc::from(row.get::<_, String>(9)?),
        locked_at: Timestamp::from_millis(row.get(10)?),
    })
}

fn fence(row: &Row<'_>, column: usize) -> Moved<Fence> {
    Ok(Fence::new(row.get(column)?))
}

/// A fence as SQLite keeps it. One that does not fit is the highest there is; the clock's own reaches it in 29 million years.
pub(crate) fn fence_column(fence: Fence) -> i64 {
    i64::try_from(fence.as_u64()).unwrap_or(i64::MAX)
}

pub(super) fn save(tx: &Tx<'_>, scope: &LockScope, before: &LockState, state: &LockState) -> Moved<()> {
    if before == state {
        return Ok(());
    }
    waiters::save(tx.conn, KIND, scope, &before.queue.waiters, &state.queue.waiters)?;
    if !state.is_known() {
        tx.conn.prepare_cached(FORGET)?.execute([scope.as_str()])?;
        return Ok(());
    }
    let tenure = state.tenure.as_ref();
    let ms = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
    tx.conn.prepare_cached(SAVE)?.execute(rusqlite::params![
        scope.as_str(),
        state.counter.as_ref().map(Counter::as_str),
        state.meta.as_deref(),
        tenure.map(|tenure| tenure.lock_id.as_str()),
        tenure.map(|tenure| fence_column(tenure.fence)),
        tenure.map(|tenure| tenure.holds),
        tenure.and_then(|tenure| tenure.execution_id.as_ref().map(ExecutionId::as_str)),
        tenure.map(|tenure| tenure.request_id.as_str()),
        ms(tenure.map(|tenure| tenure.lease_end)),
        ms(tenure.map(|tenure| tenure.max_hold_end)),
        tenure.map(|tenure| &*tenure.meta),
        ms(tenure.map(|tenure| tenure.locked_at)),
        fence_column(state.fence_high),
        fence_column(state.last.fence),
        state.last.lock_id.as_ref().map(|id| id.as_str()),
        state.last.request_id.as_ref().map(|id| id.as_str()),
        ms(state.free_since),
        ms(state.reap_at),
        state.queue.arrivals,
        tx.now.as_millis(),
        tenure.map(|tenure| millis(tenure.lease)),
    ])?;
    Ok(())
}

pub(super) fn held_by(conn: &Connection, execution_id: &ExecutionId, now: Timestamp) -> Moved<Vec<HeldScope>> {
    let mut held = scopes(conn, HELD_BY, (execution_id.as_str(), now.as_millis()))?;
    held.sort(); // few; sorting them in SQL would cost the index
    Ok(held.into_iter().map(HeldScope::Lock).collect())
}

pub(super) fn in_use(conn: &Connection, query: &LockQuery, limit: usize, now: Timestamp) -> Moved<Vec<LockScope>> {
    let after = query.after.as_ref().map(LockScope::as_str);
    scopes(conn, IN_USE, (&query.prefix, after, now.as_millis(), i64::try_from(limit).unwrap_or(i64::MAX)))
}

fn scopes(conn: &Connection, sql: &str, columns: impl rusqlite::Params) -> Moved<Vec<LockScope>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(columns)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(name(row, 0)?);
    }
    Ok(found)
}

/// Leases that end by `now`, earliest first, at one instant by scope.
pub(crate) fn due(conn: &Connection, now: Timestamp, limit: u32) -> Moved<Vec<(Timestamp, LockScope)>> {
    let mut statement = conn.prepare_cached(DUE)?;
    let mut rows = statement.query((now.as_millis(), limit))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((Timestamp::from_millis(row.get(0)?), name(row, 1)?));
    }
    Ok(found)
}

pub(crate) fn next_due(conn: &Connection) -> Moved<Option<Timestamp>> {
    let at: Option<i64> = conn.prepare_cached(NEXT_DUE)?.query_row([], |row| row.get(0)).optional()?;
    Ok(at.map(Timestamp::from_millis))
}

pub(super) fn sweep(conn: &Connection, before: Timestamp) -> Moved<()> {
    conn.prepare_cached(SWEEP_WAITERS)?.execute([before.as_millis()])?;
    conn.prepare_cached(SWEEP)?.execute([before.as_millis()])?;
    Ok(())
}

/// Counts every lease from now on, up to its cap: nobody could renew while the store was closed.
pub(crate) fn renew_leases(conn: &Connection, now: Timestamp) -> Result<(), Trouble> {
    conn.execute(RENEW_ALL, [now.as_millis()])?;
    Ok(())
}
