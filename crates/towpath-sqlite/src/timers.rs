//! Timers: one index for each kind, so that a kind costs no more than its limit, whatever the backlog of the others.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use towpath_core::call::{CallCommand, CallReply, CallState};
use towpath_core::names::WorkerId;
use towpath_core::store::Fired;
use towpath_core::time::{Timestamp, millis};

use crate::ahead;
use crate::calls::{apply, by_seq, ended};
use crate::locks;
use crate::memory::{Memory, Worker};
use crate::permits;
use crate::registry::remove_worker;
use crate::rows;
use crate::runs;
use crate::trouble::Moved;
use crate::writer::Tx;

pub(crate) const DELAYS: &str = "SELECT seq FROM calls WHERE not_before_ms <= ?1 ORDER BY not_before_ms, seq LIMIT ?2";
pub(crate) const LEASES: &str = "SELECT seq FROM calls WHERE lease_until_ms <= ?1 ORDER BY lease_until_ms, seq LIMIT ?2";
pub(crate) const DEADLINES: &str =
    "SELECT seq FROM calls INDEXED BY calls_deadline WHERE ended_ms IS NULL AND deadline_ms <= ?1 ORDER BY deadline_ms, seq LIMIT ?2";
pub(crate) const NEXT_DELAY: &str = "SELECT not_before_ms FROM calls WHERE not_before_ms IS NOT NULL ORDER BY not_before_ms LIMIT 1";
pub(crate) const NEXT_LEASE: &str = "SELECT lease_until_ms FROM calls WHERE lease_until_ms IS NOT NULL ORDER BY lease_until_ms LIMIT 1";
pub(crate) const NEXT_DEADLINE: &str =
    "SELECT deadline_ms FROM calls INDEXED BY calls_deadline WHERE ended_ms IS NULL ORDER BY deadline_ms LIMIT 1";

const HEARD_LATER: &str = "UPDATE workers SET last_heartbeat_ms = min(?1, last_heartbeat_ms + ?2)";

pub(crate) fn fire_due(tx: &mut Tx<'_>, limit: u32) -> Moved<Fired> {
    let mut fired = Fired::default();
    // Each kind looks when its turn comes, so that it does not see what an earlier kind has moved.
    for kind in [DELAYS, LEASES, DEADLINES] {
        for seq in due_calls(tx, kind, limit)? {
            fire_call(tx, seq, &mut fired)?;
        }
    }
    for worker in silent_workers(tx.memory, tx.now, limit) {
        remove_worker(tx, &worker)?;
        fired.workers_removed += 1;
    }
    for (_, scope) in locks::due(tx.conn, tx.now, limit)? {
        let _whatever_is_found = locks::reap(tx, &scope)?;
        fired.locks_reaped += 1;
    }
    locks::sweep_now_and_then(tx)?;
    fired.next_due = next_due(tx.conn, tx.memory)?;
    tx.after.next_due = Some(next_of_all(tx.conn, tx.memory)?);
    tx.after.due = None; // all timers were looked at
    Ok(fired)
}

fn due_calls(tx: &Tx<'_>, kind: &str, limit: u32) -> Moved<Vec<i64>> {
    let mut statement = tx.conn.prepare_cached(kind)?;
    let rows = statement.query_map((tx.now.as_millis(), limit), |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn silent_workers(memory: &Memory, now: Timestamp, limit: u32) -> Vec<WorkerId> {
    let all = memory.workers.iter().map(|(id, worker)| (worker.is_removed_at(), id));
    let mut silent: Vec<_> = all.filter(|(at, _)| *at <= now).collect();
    silent.sort();
    silent.into_iter().take(limit as usize).map(|(_, id)| id.clone()).collect()
}

/// When the next timer of calls, workers and locks is due.
pub(crate) fn next_due(conn: &Connection, memory: &Memory) -> Moved<Option<Timestamp>> {
    let mut next = locks::next_due(conn)?.into_iter().chain(memory.workers.values().map(Worker::is_removed_at)).min();
    for kind in [NEXT_DELAY, NEXT_LEASE, NEXT_DEADLINE] {
        let first: Option<i64> = conn.prepare_cached(kind)?.query_row([], |row| row.get(0)).optional()?;
        next = next.into_iter().chain(first.map(Timestamp::from_millis)).min();
    }
    Ok(next)
}

/// When the next timer is due, those of runs and posts among them.
pub(crate) fn next_of_all(conn: &Connection, memory: &Memory) -> Moved<Option<Timestamp>> {
    Ok([next_due(conn, memory)?, runs::next_due(conn)?].into_iter().flatten().min())
}

/// Counts every lease from now on. One move, so that an opening which is cut off has renewed all of them or none.
pub(crate) fn renew_leases(conn: &Connection, memory: &mut Memory, now: Timestamp) -> Moved<()> {
    let used = ahead::latest(conn)?;
    conn.execute_batch("BEGIN IMMEDIATE")?;
    renew_all(conn, memory, now, used)?;
    conn.execute_batch("COMMIT")?;
    Ok(())
}

fn renew_all(conn: &Connection, memory: &mut Memory, now: Timestamp, used: Timestamp) -> Moved<()> {
    for stored in memory.running_mut() {
        stored.call = stored.call.clone().after_absence(now);
        rows::update_call(conn, stored)?;
    }
    locks::renew_leases(conn, now)?;
    runs::renew_claims(conn, now)?;
    permits::renew_leases(conn, now, used)
}

/// The clock has jumped ahead while the store is open: no holder could renew in no time, so that leases count from now on as at an opening,
/// and workers were heard of as much later.
pub(crate) fn after_jump(tx: &mut Tx<'_>, by: Duration) -> Moved<()> {
    let before = Timestamp::from_millis(tx.now.as_millis().saturating_sub(millis(by)));
    renew_all(tx.conn, tx.memory, tx.now, before)?;
    for worker in tx.memory.workers.values_mut() {
        worker.last_heartbeat = (worker.last_heartbeat + by).min(tx.now);
    }
    tx.conn.execute(HEARD_LATER, [tx.now.as_millis(), millis(by)])?;
    tx.after.next_due = Some(next_of_all(tx.conn, tx.memory)?);
    Ok(())
}

fn fire_call(tx: &mut Tx<'_>, seq: i64, fired: &mut Fired) -> Moved<()> {
    let Some(stored) = by_seq(tx, seq)? else { return Ok(()) };
    let before = stored.call.state;
    if before == CallState::Running && stored.call.lease_until.is_some_and(|until| until <= tx.now) {
        tx.after.silent.extend(stored.call.holder.clone());
    }
    let max_deliveries = tx.memory.function_of(&stored)?.definition.retry.max_deliveries;
    let (stored, reply) = apply(tx, stored, CallCommand::ComeDue { max_deliveries })?;
    match reply {
        CallReply::Moved if stored.call.state == CallState::Queued => {
            if before == CallState::Running {
                fired.reclaimed += 1;
            } else {
                fired.promoted += 1;
            }
        }
        CallReply::Moved => fired.ended.extend(ended(tx, &stored)?),
        _nothing_was_due => {}
    }
    Ok(())
}
