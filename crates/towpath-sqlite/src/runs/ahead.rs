//! Runs after a clock that was ahead: what it wrote lies in the future, and would hold a run for that much longer.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use towpath_core::run::{Run, StepId};
use towpath_core::time::{Timestamp, millis};

use super::{AT_ONCE, rows};
use crate::trouble::{Moved, Trouble};

// ?1 is now, ?2 by how much the clock was ahead.
const OF_ALL: [&str; 3] = [
    "UPDATE runs SET turn = turn - ?2 * 1000 WHERE turn > ?1 * 1000",
    "UPDATE run_events_known SET at_ms = ?1 WHERE at_ms > ?1 AND ?2 > 0",
    "UPDATE run_posts SET not_before_ms = ?1, written_ms = min(written_ms, ?1) WHERE not_before_ms > ?1 AND ?2 > 0",
];
const SOME: &str = "SELECT run_id, header FROM runs WHERE run_id > ?1 ORDER BY run_id LIMIT ?2";
const WRITTEN_AT: &str = "SELECT max(at_ms) FROM run_journal WHERE run_id = ?1 AND step = ?2";
const UPDATE: &str = "UPDATE runs SET expires_ms = ?2, kept_until_ms = ?3, created_ms = ?4, changed_ms = ?5, header = ?6 WHERE run_id = ?1";

/// Brings back what a clock that was ahead by this many milliseconds has written about runs. Runs that cannot be read stay as they are, and so do
/// the instants in journals: replay depends on them.
pub(crate) fn bring_back(conn: &Connection, now: Timestamp, ahead: i64) -> Moved<()> {
    for statement in OF_ALL {
        conn.execute(statement, [now.as_millis(), ahead])?;
    }
    let mut after = String::new();
    loop {
        let some: Vec<(String, String)> = {
            let mut statement = conn.prepare_cached(SOME)?;
            let rows = statement.query_map((&after, AT_ONCE), |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<Result<_, _>>()?
        };
        let Some((last, _)) = some.last() else { return Ok(()) };
        after.clone_from(last);
        for (_, header) in &some {
            match rows::read_json::<Run>(header) {
                Ok(before) => bring_one_back(conn, &before, now)?,
                Err(Trouble::Corrupt(_)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
    }
}

fn bring_one_back(conn: &Connection, before: &Run, now: Timestamp) -> Moved<()> {
    let mut run = before.clone();
    let (created_ahead, changed_ahead) = (run.created_at.since(now), run.changed_at.since(now));
    run.start_at = run.start_at.map(|at| earlier(at, created_ahead));
    run.deadline = run.deadline.map(|at| earlier(at, created_ahead));
    run.back_off_until = run.back_off_until.map(|at| earlier(at, changed_ahead));
    run.expires_at = run.expires_at.map(|until| until.min(now + run.idle));
    for (step, at) in run.wait.timers.iter_mut().filter(|(_, at)| **at > now) {
        let written_at = written_at(conn, before, step)?.unwrap_or(now);
        *at = earlier(*at, written_at.since(now));
    }
    run.created_at = run.created_at.min(now);
    run.changed_at = run.changed_at.min(now);
    run.closed_at = run.closed_at.map(|at| at.min(now));
    if run == *before {
        return Ok(());
    }
    let (expires, kept_until) = (run.expires_at.map(Timestamp::as_millis), run.kept_until().map(Timestamp::as_millis));
    let (created, changed) = (run.created_at.as_millis(), run.changed_at.as_millis());
    conn.prepare_cached(UPDATE)?.execute((run.run_id.as_str(), expires, kept_until, created, changed, rows::write_json(&run)?))?;
    rows::timers(&run).iter().try_for_each(|(timer, at)| rows::arm(conn, run.run_id.as_str(), timer, *at))
}

fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_sub(millis(by)))
}

/// When the latest entry of a step was written: its timer was armed with that entry.
fn written_at(conn: &Connection, run: &Run, step: &StepId) -> Moved<Option<Timestamp>> {
    let at: Option<Option<i64>> =
        conn.prepare_cached(WRITTEN_AT)?.query_row((run.run_id.as_str(), step.as_str()), |row| row.get(0)).optional()?;
    Ok(at.flatten().map(Timestamp::from_millis))
}
