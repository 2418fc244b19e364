//! Timers of runs. A row says when to look; the header decides what is due.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use towpath_core::run::{FactKind, RunCommand, RunReply, RunTimer, StepId};
use towpath_core::store::{FiredRuns, end_without_code};
use towpath_core::time::Timestamp;

use super::{posts, rows};
use crate::trouble::{Moved, Trouble};
use crate::writer::Tx;

pub(super) const DUE: &str = "SELECT run_id, timer FROM run_timers WHERE due_ms <= ?1 ORDER BY due_ms, run_id LIMIT ?2";
pub(super) const NEXT_DUE: &str = "SELECT due_ms FROM run_timers ORDER BY due_ms LIMIT 1";
/// The timer of a run that cannot be read is looked at again after this. Until then it holds up no other.
const LOOKED_AT_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// When the next timer or post is due.
pub(crate) fn next_due(conn: &Connection) -> Moved<Option<Timestamp>> {
    let mut next = None;
    for sql in [NEXT_DUE, posts::NEXT_DUE] {
        let first: Option<i64> = conn.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
        next = next.into_iter().chain(first.map(Timestamp::from_millis)).min();
    }
    Ok(next)
}

pub(super) fn fire(tx: &mut Tx<'_>, limit: u32) -> Moved<FiredRuns> {
    let due: Vec<(String, String)> = {
        let mut statement = tx.conn.prepare_cached(DUE)?;
        let rows = statement.query_map((tx.now.as_millis(), limit), |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<Result<_, _>>()?
    };
    let mut fired = 0;
    for (run_id, timer) in due {
        let result = fire_one(tx, &run_id, &timer);
        match super::or_passed_over(tx, &run_id, result)? {
            Some(has_fired) => fired += u64::from(has_fired),
            None => rows::arm(tx.conn, &run_id, &timer, tx.now + LOOKED_AT_AGAIN_AFTER)?,
        }
    }
    let next_due = next_due(tx.conn)?;
    tx.after.next_due = Some(crate::timers::next_of_all(tx.conn, tx.memory)?);
    tx.after.due = None; // all timers were looked at
    Ok(FiredRuns { fired, next_due })
}

/// Whether the timer has fired. If it has not, its row is made to agree with the header.
fn fire_one(tx: &mut Tx<'_>, run_id: &str, timer: &str) -> Moved<bool> {
    let (run_id, (due, fact)) = (rows::read_id(run_id)?, read_timer(timer)?);
    if let Some(RunReply::Done(_)) = super::put(tx, &run_id, RunCommand::TimerDue(due), fact.as_ref())? {
        return Ok(true);
    }
    let armed_for = super::load(tx, &run_id)?.and_then(|run| rows::timers(&run).remove(timer));
    match armed_for.filter(|at| *at > tx.now) {
        Some(at) => rows::arm(tx.conn, run_id.as_str(), timer, at)?,
        None => rows::disarm(tx.conn, run_id.as_str(), timer)?,
    }
    Ok(false)
}

/// A timer, and the fact that it is for its run.
fn read_timer(text: &str) -> Moved<(RunTimer, Option<FactKind>)> {
    const WHY: &str = "its deadline has passed";
    Ok(match text {
        "start" => (RunTimer::Start, None),
        "back_off" => (RunTimer::BackOff, None),
        "deadline" => {
            let timer = RunTimer::Deadline { entry: end_without_code("cancelled", WHY) };
            (timer, Some(FactKind::Cancel { reason: Arc::from(WHY) }))
        }
        "after_deadline" => (RunTimer::AfterDeadline { entry: end_without_code("terminated", WHY) }, None),
        step => {
            let step = StepId::parse(step).map_err(|cause| Trouble::Corrupt(cause.to_string()))?;
            (RunTimer::Step(step.clone()), Some(FactKind::TimerDue(step)))
        }
    })
}
