//! A clock that was ahead and is right again: what it wrote lies in the future, and would be held for that much longer. At the opening it is
//! brought back, so that nothing is held longer than its own length.

use rusqlite::Connection;
use towpath_core::time::{Timestamp, from_millis};

use crate::runs;
use crate::trouble::Moved;

/// The latest instant that the file knows of.
const LATEST: &str = "SELECT max(coalesce((SELECT max(last_heartbeat_ms) FROM workers), 0), \
     coalesce((SELECT max(touched_ms) FROM permit_scopes), 0), coalesce((SELECT max(touched_ms) FROM locks), 0), \
     coalesce((SELECT value FROM meta WHERE key = 'probe'), 0), coalesce((SELECT max(last_ms) FROM batch_open), 0), \
     coalesce((SELECT created_ms FROM runs ORDER BY created_ms DESC LIMIT 1), 0), \
     coalesce((SELECT submitted_ms FROM calls ORDER BY seq DESC LIMIT 1), 0))";
/// Clocks are set by a moment all the time; that is not worth a word.
const A_MOMENT_MS: i64 = 2_000;
// ?1 is now, ?2 by how much the clock was ahead. How long a rule's state counts is not known here, so that limits begin anew.
const BRING_BACK: [&str; 18] = [
    // A retry or a lease that was set before the clock went ahead may end too early by this, which harms nothing.
    "UPDATE calls SET not_before_ms = max(?1, not_before_ms - ?2) WHERE not_before_ms > ?1 AND submitted_ms <= ?1",
    "UPDATE batch_flight SET at_ms = max(?1, at_ms - ?2) WHERE at_ms > ?1 AND last_ms <= ?1",
    "UPDATE calls SET deadline_ms = deadline_ms - (submitted_ms - ?1), not_before_ms = not_before_ms - (submitted_ms - ?1), \
     lease_until_ms = min(lease_until_ms, ?1 + lease_ms), submitted_ms = ?1 WHERE ended_ms IS NULL AND submitted_ms > ?1 AND ?2 > 0",
    "UPDATE calls SET lease_until_ms = ?1 + lease_ms WHERE lease_until_ms > ?1 + lease_ms AND ?2 > 0",
    "UPDATE calls SET kept_until_ms = kept_until_ms - (ended_ms - ?1), ended_ms = ?1, submitted_ms = min(submitted_ms, ?1) \
     WHERE ended_ms > ?1 AND ?2 > 0",
    "UPDATE workers SET last_heartbeat_ms = ?1 WHERE last_heartbeat_ms > ?1 AND ?2 > 0",
    "UPDATE locks SET lease_end_ms = ?1 + lease_ms, reap_ms = ?1 + lease_ms \
     WHERE counter IS NOT NULL AND lease_end_ms > ?1 + lease_ms AND ?2 > 0",
    "UPDATE locks SET max_hold_end_ms = max_hold_end_ms - (locked_ms - ?1), locked_ms = ?1 WHERE locked_ms > ?1 AND ?2 > 0",
    "UPDATE locks SET free_since_ms = ?1, reap_ms = min(reap_ms, ?1) WHERE free_since_ms > ?1 AND ?2 > 0",
    "UPDATE permit_scopes SET free_since_ms = ?1 WHERE free_since_ms > ?1 AND ?2 > 0",
    "UPDATE permits SET lease_end_ms = ?1 + lease_ms WHERE lease_end_ms > ?1 + lease_ms AND ?2 > 0",
    "UPDATE batch_open SET first_ms = first_ms - (last_ms - ?1), deadline_ms = deadline_ms - (last_ms - ?1), last_ms = ?1 \
     WHERE last_ms > ?1 AND ?2 > 0",
    "UPDATE batch_flight SET at_ms = at_ms - (last_ms - ?1), first_ms = first_ms - (last_ms - ?1), last_ms = ?1 \
     WHERE last_ms > ?1 AND ?2 > 0",
    "UPDATE locks SET touched_ms = ?1 WHERE touched_ms > ?1 AND ?2 > 0",
    "UPDATE permit_scopes SET touched_ms = ?1 WHERE touched_ms > ?1 AND ?2 > 0",
    "UPDATE meta SET value = ?1 WHERE key = 'probe' AND value > ?1 AND ?2 > 0",
    "DELETE FROM limit_states WHERE ?1 > 0 AND ?2 > 0",
    "DELETE FROM limit_units WHERE ?1 > 0 AND ?2 > 0",
];

/// The latest instant that the file knows of.
pub(crate) fn latest(conn: &Connection) -> Moved<Timestamp> {
    Ok(Timestamp::from_millis(conn.query_row(LATEST, [], |row| row.get(0))?))
}

/// Brings back what a clock that was ahead has written. One move: all of it or nothing.
pub(crate) fn bring_back(conn: &Connection, now: Timestamp) -> Moved<()> {
    let ahead = latest(conn)?.as_millis().saturating_sub(now.as_millis());
    if ahead <= A_MOMENT_MS {
        return Ok(());
    }
    conn.execute_batch("BEGIN IMMEDIATE")?;
    if let Err(trouble) = bring_all_back(conn, now, ahead) {
        conn.execute_batch("ROLLBACK")?;
        return Err(trouble);
    }
    conn.execute_batch("COMMIT")?;
    let ahead = from_millis(ahead);
    tracing::warn!(
        ?ahead,
        "the clock was ahead when the store was last used: calls, leases, batches and runs of that time count from now on, and limits begin anew"
    );
    Ok(())
}

fn bring_all_back(conn: &Connection, now: Timestamp, ahead: i64) -> Moved<()> {
    for statement in BRING_BACK {
        conn.execute(statement, [now.as_millis(), ahead])?;
    }
    runs::bring_back(conn, now, ahead)
}
