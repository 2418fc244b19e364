//! Removes the rows of calls whose retention is over. No move and no read sees such a call any more, so that removal may come late:
//!
//! - A transaction removes up to twice as many rows as it has added. So the file keeps up with any load.
//! - The writer removes a chunk when no order came for a second, and goes on at once while chunks are full.
//! - With nothing to remove and no orders, it gives free pages back to the disk, some at a time.
//! - Under a load without submits the writer removes a chunk every few seconds.

use rusqlite::{Connection, OptionalExtension};
use towpath_core::names::CallId;
use towpath_core::time::Timestamp;

use crate::runs;
use crate::trouble::Moved;
use crate::writer::Tx;

/// Rows that are removed in one transaction when nothing was added. More would make timers wait.
pub(crate) const CHUNK: u32 = 256;
/// Runs that are removed in one transaction: a run may have thousands of rows.
const RUNS_AT_ONCE: u32 = 8;

pub(crate) const GONE: &str = "SELECT seq, function_id FROM calls WHERE kept_until_ms <= ?1 ORDER BY kept_until_ms LIMIT ?2";
/// Calls whose retention ends first, whether or not it is over.
pub(crate) const FIRST_TO_GO: &str =
    "SELECT seq, function_id, ended_ms FROM calls WHERE kept_until_ms IS NOT NULL ORDER BY kept_until_ms LIMIT ?1";
const GONE_BY_ID: &str = "SELECT seq, function_id FROM calls WHERE call_id = ?1 AND kept_until_ms <= ?2";
pub(crate) const FIRST: &str = "SELECT kept_until_ms FROM calls WHERE kept_until_ms IS NOT NULL ORDER BY kept_until_ms LIMIT 1";
const REMOVE: [&str; 4] = [
    "DELETE FROM calls WHERE seq = ?1",
    "DELETE FROM call_requests WHERE seq = ?1",
    "DELETE FROM call_outcomes WHERE seq = ?1",
    "DELETE FROM call_progress WHERE seq = ?1",
];
const REMOVE_KEY: &str = "DELETE FROM idempotency_keys WHERE function_id = ?1 AND seq = ?2 \
     AND key = (SELECT idempotency_key FROM call_requests WHERE seq = ?2)";
const KEEP_SEQ: &str = "INSERT INTO meta (key, value) VALUES ('next_seq', ?1) ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// Number of free pages that stay in the file: the next calls fill them again.
pub(crate) const FREE_KEPT: i64 = 1_024;
/// Free pages that are given back in one transaction.
const GIVEN_BACK: i64 = 512;

/// Gives some free pages back to the disk. Whether there are more.
pub(crate) fn give_back(conn: &Connection) -> Moved<bool> {
    let free = || conn.pragma_query_value(None, "freelist_count", |row| row.get::<_, i64>(0));
    let before = free()?;
    if before <= FREE_KEPT {
        return Ok(false);
    }
    // The statement takes a step for each page.
    let mut statement = conn.prepare(&format!("PRAGMA incremental_vacuum({})", GIVEN_BACK.min(before - FREE_KEPT)))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    drop(rows);
    drop(statement);
    let after = free()?;
    if after <= FREE_KEPT {
        // The file gets shorter when the log is folded into it. Readers may stand in the way; then a later commit does it.
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_row| Ok(()))?;
    }
    // A file that was made without this keeps its pages.
    Ok(after > FREE_KEPT && after < before)
}

/// Removes up to twice as many rows as the transaction has added.
pub(crate) fn keep_up(tx: &mut Tx<'_>) -> Moved<()> {
    let is_needed = tx.after.added > 0 && tx.memory.first_kept.is_some_and(|at| at <= tx.now);
    if is_needed {
        remove(tx, tx.after.added.saturating_mul(2))?;
    }
    Ok(())
}

/// Removes up to `limit` calls whose retention is over, those that ended it first, and some runs. Returns how many calls; `limit`: there may be more.
pub(crate) fn remove(tx: &mut Tx<'_>, limit: u32) -> Moved<u32> {
    let mut statement = tx.conn.prepare_cached(GONE)?;
    let rows = statement.query_map((tx.now.as_millis(), limit), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let gone = rows.collect::<Result<Vec<(i64, i64)>, _>>()?;
    drop(statement);
    let runs = runs::remove_gone(tx, RUNS_AT_ONCE)?;
    remove_all(tx, &gone)?;
    Ok(if runs == RUNS_AT_ONCE { limit } else { u32::try_from(gone.len()).unwrap_or(limit) })
}

/// Removes up to `limit` ended calls whose retention ends first, those alone that ended by `ended_before`. Returns how many. Looks at twice
/// as many: those that ended later are either gone or old enough soon.
pub(crate) fn remove_early(tx: &mut Tx<'_>, ended_before: i64, limit: u32) -> Moved<u32> {
    let mut statement = tx.conn.prepare_cached(FIRST_TO_GO)?;
    let rows = statement.query_map([i64::from(limit) * 2], |row| Ok(((row.get(0)?, row.get(1)?), row.get::<_, i64>(2)?)))?;
    let first = rows.collect::<Result<Vec<_>, _>>()?;
    drop(statement);
    let removed: Vec<(i64, i64)> =
        first.into_iter().filter(|(_, ended)| *ended <= ended_before).map(|(call, _)| call).take(limit as usize).collect();
    remove_all(tx, &removed)?;
    Ok(u32::try_from(removed.len()).unwrap_or(limit))
}

fn remove_all(tx: &mut Tx<'_>, calls: &[(i64, i64)]) -> Moved<()> {
    for (seq, function_id) in calls {
        remove_rows(tx.conn, *seq, *function_id)?;
    }
    if !calls.is_empty() {
        // The highest number may have gone with its row; it must not be given out again.
        tx.conn.prepare_cached(KEEP_SEQ)?.execute([tx.memory.next_seq()])?;
    }
    tx.memory.first_kept = first(tx.conn)?;
    Ok(())
}

/// Removes the call of this id if its retention is over, so that the id can be used. `false`: there is no such call.
pub(crate) fn free_id(tx: &Tx<'_>, call_id: &CallId) -> Moved<bool> {
    let mut statement = tx.conn.prepare_cached(GONE_BY_ID)?;
    let gone = statement.query_row((call_id.as_str(), tx.now.as_millis()), |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((seq, function_id)) = gone else { return Ok(false) };
    remove_rows(tx.conn, seq, function_id)?;
    Ok(true)
}

fn remove_rows(conn: &Connection, seq: i64, function_id: i64) -> Moved<()> {
    conn.prepare_cached(REMOVE_KEY)?.execute((function_id, seq))?;
    for statement in REMOVE {
        conn.prepare_cached(statement)?.execute([seq])?;
    }
    Ok(())
}

/// When the first of all kept calls and runs is gone.
pub(crate) fn first(conn: &Connection) -> Moved<Option<Timestamp>> {
    let at: Option<i64> = conn.prepare_cached(FIRST)?.query_row([], |row| row.get(0)).optional()?;
    Ok([at.map(Timestamp::from_millis), runs::first_kept(conn)?].into_iter().flatten().min())
}
