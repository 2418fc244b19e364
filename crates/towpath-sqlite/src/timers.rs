//! What happens by itself: one index on `due_ms`, and the workers that fell silent.

use rusqlite::{Connection, OptionalExtension};
use towpath_core::call::{CallCommand, CallReply, CallState};
use towpath_core::names::{LockScope, WorkerId};
use towpath_core::store::Fired;
use towpath_core::time::Timestamp;

use crate::calls::{apply, by_seq, ended};
use crate::locks;
use crate::memory::{Memory, Seat, Worker};
use crate::registry::remove_worker;
use crate::rows::{self, Stored};
use crate::trouble::Moved;
use crate::writer::Tx;

pub(crate) const DUE: &str = "SELECT due_ms, seq FROM calls WHERE due_ms <= ?1 ORDER BY due_ms, seq LIMIT ?2";
pub(crate) const NEXT_DUE: &str = "SELECT due_ms FROM calls WHERE due_ms IS NOT NULL ORDER BY due_ms LIMIT 1";
const FORGET: [&str; 4] = [
    "DELETE FROM calls WHERE seq = ?1",
    "DELETE FROM call_requests WHERE seq = ?1",
    "DELETE FROM call_outcomes WHERE seq = ?1",
    "DELETE FROM call_progress WHERE seq = ?1",
];
const FORGET_KEY: &str = "DELETE FROM idempotency_keys WHERE function_id = ?1 AND seq = ?2 \
     AND key = (SELECT idempotency_key FROM call_requests WHERE seq = ?2)";
const KEEP_SEQ: &str = "INSERT INTO meta (key, value) VALUES ('next_seq', ?1) ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// Something that is due. Calls go before workers that are due in the same instant, and workers before locks.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Call(i64),
    Worker(WorkerId),
    Lock(LockScope),
}

pub(crate) fn fire_due(tx: &mut Tx<'_>, limit: u32) -> Moved<Fired> {
    let mut things = due_calls(tx, limit)?;
    things.extend(silent_workers(tx.memory, tx.now));
    things.extend(locks::due(tx.conn, tx.now, limit)?.into_iter().map(|(at, scope)| (at, Thing::Lock(scope))));
    things.sort();
    things.truncate(limit as usize);
    let mut fired = Fired::default();
    for (_, thing) in things {
        match thing {
            Thing::Call(seq) => fire_call(tx, seq, &mut fired)?,
            Thing::Worker(worker) => {
                remove_worker(tx, &worker)?;
                fired.workers_removed += 1;
            }
            Thing::Lock(scope) => {
                let _whatever_is_found = locks::reap(tx, &scope)?;
                fired.locks_reaped += 1;
            }
        }
    }
    if fired.forgotten > 0 {
        // The highest number may have gone with its row; it must not be given out again.
        tx.conn.prepare_cached(KEEP_SEQ)?.execute([tx.memory.next_seq()])?;
    }
    locks::sweep_now_and_then(tx)?;
    fired.next_due = next_due(tx.conn, tx.memory)?;
    tx.after.next_due = Some(fired.next_due);
    tx.after.due = None; // next_due has looked at everything
    Ok(fired)
}

fn due_calls(tx: &Tx<'_>, limit: u32) -> Moved<Vec<(Timestamp, Thing)>> {
    let mut statement = tx.conn.prepare_cached(DUE)?;
    let rows = statement.query_map((tx.now.as_millis(), limit), |row| {
        let (due, seq): (i64, i64) = (row.get(0)?, row.get(1)?);
        Ok((Timestamp::from_millis(due), Thing::Call(seq)))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn silent_workers(memory: &Memory, now: Timestamp) -> Vec<(Timestamp, Thing)> {
    let due = memory.workers.iter().map(|(id, worker)| (worker.is_removed_at(), Thing::Worker(id.clone())));
    due.filter(|(at, _)| *at <= now).collect()
}

pub(crate) fn next_due(conn: &Connection, memory: &Memory) -> Moved<Option<Timestamp>> {
    let call: Option<i64> = conn.prepare_cached(NEXT_DUE)?.query_row([], |row| row.get(0)).optional()?;
    let worker = memory.workers.values().map(Worker::is_removed_at).min();
    Ok([call.map(Timestamp::from_millis), worker, locks::next_due(conn)?].into_iter().flatten().min())
}

/// Counts every lease from now on. One move, so that an opening which is cut off has renewed all of them or none.
pub(crate) fn renew_leases(conn: &Connection, memory: &mut Memory, now: Timestamp) -> Moved<()> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    for stored in memory.running_mut() {
        stored.call = stored.call.clone().after_absence(now);
        rows::update_call(conn, stored)?;
    }
    locks::renew_leases(conn, now)?;
    conn.execute_batch("COMMIT")?;
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
        CallReply::Forget => {
            forget(tx, &stored)?;
            fired.forgotten += 1;
        }
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

fn forget(tx: &mut Tx<'_>, stored: &Stored) -> Moved<()> {
    tx.conn.prepare_cached(FORGET_KEY)?.execute((stored.function_id, stored.seq))?;
    for statement in FORGET {
        tx.conn.prepare_cached(statement)?.execute([stored.seq])?;
    }
    tx.memory.leave(stored, &Seat::of(&stored.call));
    Ok(())
}
