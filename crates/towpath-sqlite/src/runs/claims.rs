//! Which worker executes a run: claims, renewals, and runs of owners that are silent for too long.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension};
use towpath_core::lock::Fence;
use towpath_core::names::WorkerId;
use towpath_core::run::{RunCommand, RunId, RunPlace, RunReply};
use towpath_core::store::{ClaimRuns, ClaimedRun, RunRenewal, TakeOverRuns, TakenOver};
use towpath_core::time::Timestamp;

use super::{AT_ONCE, load, or_passed_over, put, put_to, rows};
use crate::trouble::Moved;
use crate::writer::Tx;

/// One claim of this number looks at new runs first.
const NEW_FIRST_EVERY: u64 = 8;

pub(super) const QUEUED: &str = "SELECT run_id FROM runs WHERE place = ?1 AND queue = ?2 ORDER BY turn LIMIT ?3";
pub(super) const CLAIMED: &str =
    "SELECT expires_ms, run_id FROM runs WHERE place = ?1 AND expires_ms <= ?2 ORDER BY expires_ms, run_id LIMIT ?3";
pub(super) const NEXT_CLAIM_END: &str = "SELECT expires_ms FROM runs WHERE place = ?1 AND expires_ms > ?2 ORDER BY expires_ms LIMIT 1";
/// The header has the length in whole milliseconds, as it has all lengths. One that is not JSON is left out.
const RENEW_CLAIMS: &str = "UPDATE runs SET expires_ms = ?1 + json_extract(header, '$.idle'), \
     header = json_set(header, '$.expires_at', ?1 + json_extract(header, '$.idle')) \
     WHERE expires_ms IS NOT NULL AND CASE WHEN json_valid(header) THEN json_type(header, '$.idle') = 'integer' ELSE 0 END";

pub(super) fn claim(tx: &mut Tx<'_>, want: &ClaimRuns) -> Moved<Vec<ClaimedRun>> {
    let new_first = (tx.memory.runs.claims + 1).is_multiple_of(NEW_FIRST_EVERY);
    let queues = if new_first { [1, 0] } else { [0, 1] };
    let mut claimed = Vec::new();
    for (queue, place) in queues.iter().flat_map(|queue| want.places.iter().map(move |place| (*queue, place))) {
        claim_queued(tx, want, place, queue, &mut claimed)?;
    }
    tx.memory.runs.claims += u64::from(!claimed.is_empty());
    Ok(claimed)
}

/// Claims runs of one queue. Those that cannot be read stay in it, and those behind them are claimed instead.
fn claim_queued(tx: &mut Tx<'_>, want: &ClaimRuns, place: &RunPlace, queue: i64, claimed: &mut Vec<ClaimedRun>) -> Moved<()> {
    let mut passed_over: HashSet<String> = HashSet::new();
    loop {
        let (known, left) = (passed_over.len(), (want.max as usize).saturating_sub(claimed.len()));
        if left == 0 {
            return Ok(());
        }
        for run_id in rows::texts(tx.conn, QUEUED, (place.stream(), queue, left.saturating_add(known)))? {
            if passed_over.contains(&run_id) {
                continue;
            }
            let result = claim_one(tx, want, &run_id);
            match or_passed_over(tx, &run_id, result)? {
                Some(run) => claimed.extend(run),
                None => drop(passed_over.insert(run_id)),
            }
        }
        if passed_over.len() == known {
            return Ok(());
        }
    }
}

fn claim_one(tx: &mut Tx<'_>, want: &ClaimRuns, run_id: &str) -> Moved<Option<ClaimedRun>> {
    let command = RunCommand::Claim { worker: want.worker.clone(), idle: want.idle };
    Ok(hand_over(tx, &rows::read_id(run_id)?, command)?.and_then(|(claimed, reply)| match reply {
        RunReply::Claimed { .. } => Some(claimed),
        _other => None,
    }))
}

/// Puts a command to a run by which a worker gets it, with its facts.
fn hand_over(tx: &mut Tx<'_>, run_id: &RunId, command: RunCommand) -> Moved<Option<(ClaimedRun, RunReply)>> {
    let Some(before) = load(tx, run_id)? else { return Ok(None) };
    let facts = rows::facts(tx.conn, run_id, 0)?;
    let (run, reply) = put_to(tx, &before, command, None)?;
    Ok(Some((ClaimedRun { run, facts }, reply)))
}

/// Gives a worker the runs of silent owners: those whose claims ended first, whatever their places.
pub(super) fn take_over(tx: &mut Tx<'_>, want: &TakeOverRuns) -> Moved<TakenOver> {
    let mut taken = TakenOver::default();
    for run_id in ended_claims(tx, want)? {
        if taken.claimed.len() == want.max as usize {
            break;
        }
        let command = RunCommand::TakeOver { worker: want.worker.clone(), idle: want.idle, max_deliveries: want.max_deliveries };
        let result = rows::read_id(&run_id).and_then(|run_id| hand_over(tx, &run_id, command));
        match or_passed_over(tx, &run_id, result)?.flatten() {
            Some((claimed, RunReply::Claimed { .. })) => taken.claimed.push(claimed),
            Some((poisoned, RunReply::Poisoned)) => taken.poisoned.push(poisoned.run.run_id),
            _other => {}
        }
    }
    for place in want.places.iter() {
        let end: Option<i64> =
            tx.conn.prepare_cached(NEXT_CLAIM_END)?.query_row((place.stream(), tx.now.as_millis()), |row| row.get(0)).optional()?;
        let end = end.map(Timestamp::from_millis);
        taken.next_due = [taken.next_due, end].into_iter().flatten().min();
    }
    Ok(taken)
}

/// Runs whose claims have ended, but for those that the worker executes.
fn ended_claims(tx: &Tx<'_>, want: &TakeOverRuns) -> Moved<Vec<String>> {
    let executing: HashSet<&str> = want.executing.iter().map(RunId::as_str).collect();
    let limit = want.max.saturating_add(u32::try_from(executing.len()).unwrap_or(u32::MAX)).saturating_add(AT_ONCE);
    let mut ended: Vec<(i64, String)> = Vec::new();
    for place in want.places.iter() {
        let mut statement = tx.conn.prepare_cached(CLAIMED)?;
        let rows = statement.query_map((place.stream(), tx.now.as_millis(), limit), |row| Ok((row.get(0)?, row.get(1)?)))?;
        ended.extend(rows.collect::<Result<Vec<_>, _>>()?);
    }
    ended.sort();
    Ok(ended.into_iter().map(|(_, run_id)| run_id).filter(|run_id| !executing.contains(run_id.as_str())).collect())
}

/// Prolongs claims. That of a run which cannot be read is lost.
pub(super) fn renew(tx: &mut Tx<'_>, owner: &WorkerId, claims: &[(RunId, Fence)]) -> Moved<Vec<RunRenewal>> {
    let mut renewals = Vec::with_capacity(claims.len());
    for (run_id, epoch) in claims {
        let result = put(tx, run_id, RunCommand::Renew { owner: owner.clone(), epoch: *epoch }, None);
        renewals.push(match or_passed_over(tx, run_id.as_str(), result)?.flatten() {
            Some(RunReply::Held { until, facts, cancel_requested, paused }) => RunRenewal::Held { until, facts, cancel_requested, paused },
            _lost => RunRenewal::Lost,
        });
    }
    Ok(renewals)
}

/// Counts every claim from now on: its owner could not renew it while the store was closed, or while the clock jumped.
pub(crate) fn renew_claims(conn: &Connection, now: Timestamp) -> Moved<()> {
    conn.prepare_cached(RENEW_CLAIMS)?.execute([now.as_millis()])?;
    Ok(())
}
