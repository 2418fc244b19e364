//! Removes what is too old or too much: dead letters, entries of audits, ended calls beyond a number or a size, closed runs beyond a size.

use std::time::Duration;

use rusqlite::Connection;
use towpath_core::names::CallId;
use towpath_core::store::{Forgotten, Retention};
use towpath_core::time::{Timestamp, millis};

use crate::trouble::Moved;
use crate::writer::Tx;
use crate::{calls, gone, rows, runs};

pub(crate) const OLD_DEAD: &str = "SELECT call_id FROM calls WHERE state = 'dead' AND ended_ms <= ?1 ORDER BY ended_ms LIMIT ?2";
pub(crate) const OLD_AUDITS: [&str; 2] = [
    "DELETE FROM lock_audit WHERE rowid IN (SELECT rowid FROM lock_audit WHERE at_ms <= ?1 ORDER BY at_ms LIMIT ?2)",
    "DELETE FROM dead_letter_audit WHERE rowid IN (SELECT rowid FROM dead_letter_audit WHERE at_ms <= ?1 ORDER BY at_ms LIMIT ?2)",
];
/// There are no more calls than this.
const CALLS_AT_MOST: &str = "SELECT coalesce((SELECT max(seq) FROM calls) - (SELECT min(seq) FROM calls) + 1, 0)";
pub(crate) const KEPT: &str = "SELECT count(*) FROM calls WHERE kept_until_ms IS NOT NULL";

/// Ended calls beyond the number that is kept. Counts on a connection that only reads, and only if there can be more.
pub(crate) fn excess(conn: &Connection, keep: Option<u64>) -> Moved<u64> {
    let Some(keep) = keep else { return Ok(0) };
    let count = |sql: &str| conn.prepare_cached(sql)?.query_row([], |row| row.get::<_, u64>(0));
    if count(CALLS_AT_MOST)? <= keep {
        return Ok(0);
    }
    Ok(count(KEPT)?.saturating_sub(keep))
}

/// Removes up to `limit` of each kind. `excess` is how many ended calls are too many.
pub(crate) fn forget_old(tx: &mut Tx<'_>, keep: &Retention, excess: u64, limit: u32) -> Moved<Forgotten> {
    let mut forgotten = Forgotten::default();
    if let Some(before) = before(tx.now, keep.dead_letters) {
        forgotten.dead_letters = drop_dead(tx, before, limit)?;
    }
    if let Some(before) = before(tx.now, keep.audits) {
        for sql in OLD_AUDITS {
            let left = u64::from(limit).saturating_sub(forgotten.audits);
            forgotten.audits += tx.conn.prepare_cached(sql)?.execute((before, left))? as u64;
        }
    }
    let is_large = keep.bytes.is_some() && used_bytes(tx.conn)? > keep.bytes.unwrap_or(u64::MAX);
    let outcomes = if is_large { limit } else { u32::try_from(excess).unwrap_or(limit).min(limit) };
    let ended_before = before(tx.now, Some(Retention::OUTCOME_KEPT_AT_LEAST)).unwrap_or(i64::MIN);
    if is_large {
        forgotten.runs = runs::remove_early(tx, ended_before, Forgotten::runs_limit(limit))?;
    }
    if outcomes > 0 {
        forgotten.outcomes = u64::from(gone::remove_early(tx, ended_before, outcomes)?);
    }
    Ok(forgotten)
}

fn before(now: Timestamp, keep: Option<Duration>) -> Option<i64> {
    keep.map(|keep| now.as_millis().saturating_sub(millis(keep)))
}

fn drop_dead(tx: &mut Tx<'_>, before: i64, limit: u32) -> Moved<Vec<CallId>> {
    let mut old = Vec::new();
    {
        let mut statement = tx.conn.prepare_cached(OLD_DEAD)?;
        let mut found = statement.query((before, limit))?;
        while let Some(row) = found.next()? {
            old.push(rows::name(row, 0)?);
        }
    }
    for call_id in &old {
        calls::drop_dead(tx, call_id)?;
    }
    Ok(old)
}

/// Bytes of the file that hold something.
fn used_bytes(conn: &Connection) -> rusqlite::Result<u64> {
    let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
    Ok(number("page_count")?.saturating_sub(number("freelist_count")?).saturating_mul(number("page_size")?))
}
