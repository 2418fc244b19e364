//! The moves of calls: load, ask the core what happens, save.

use std::sync::Arc;

use rusqlite::{OptionalExtension, Row};
use towpath_core::call::{AttemptsBefore, Call, CallCommand, CallReply, CallRequest, CallState, Held, LostLease, step};
use towpath_core::ids::DeliveryId;
use towpath_core::names::{CallId, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::store::{Cancelled, CompleteCalls, Completed, Durability, Ended, RenewCalls, Renewal, Replayed, SubmitCall, Submitted};
use towpath_core::time::Timestamp;

use crate::gone;
use crate::memory::{Function, Seat};
use crate::rows::{self, Stored, call_columns, request_columns};
use crate::trouble::{Moved, Trouble};
use crate::writer::Tx;

pub(crate) const BY_ID: &str = concat!("SELECT ", call_columns!(), " FROM calls c WHERE c.call_id = ?1");
const BY_SEQ: &str = concat!("SELECT ", call_columns!(), " FROM calls c WHERE c.seq = ?1");
const BY_KEY: &str = "SELECT seq FROM idempotency_keys WHERE function_id = ?1 AND key = ?2";
const PUT_KEY: &str = "INSERT INTO idempotency_keys (function_id, key, seq) VALUES (?1, ?2, ?3) \
     ON CONFLICT (function_id, key) DO UPDATE SET seq = excluded.seq";
const REQUEST: &str = concat!("SELECT ", request_columns!(), " FROM call_requests r WHERE r.seq = ?1");
const PUT_PROGRESS: &str = "INSERT INTO call_progress (seq, number, value) VALUES (?1, 1, ?2) \
     ON CONFLICT (seq) DO UPDATE SET number = number + 1, value = excluded.value";

pub(crate) fn submit(tx: &mut Tx<'_>, call: &SubmitCall, durability: Durability) -> Moved<Submitted> {
    let refusal = refusal(tx, call);
    // The common case first: nobody has seen this call before, which only the insert itself can tell for certain.
    if let (Ok(function), None) = (&refusal, call.idempotency_key())
        && let Some(deadline) = take(tx, function, call)?
    {
        return Ok(Submitted::Accepted { deadline, durability });
    }
    // A resend finds its call, whatever would be said to a new one.
    if let Some(earlier) = by_id(tx, &call.call_id)? {
        return same_or_conflict(tx, &earlier, call, durability);
    }
    if let Some(earlier) = by_key(tx, call)? {
        return same_or_conflict(tx, &earlier, call, durability);
    }
    match refusal {
        Err(refused) => Ok(refused),
        Ok(function) => {
            let deadline =
                take(tx, &function, call)?.ok_or_else(|| Trouble::Corrupt(format!("call {} is there and is not", call.call_id)))?;
            Ok(Submitted::Accepted { deadline, durability })
        }
    }
}

/// What a new call would be told: the function that takes it, or why not.
fn refusal(tx: &Tx<'_>, call: &SubmitCall) -> Result<Arc<Function>, Submitted> {
    let function = tx.memory.function(&call.request.function).ok_or(Submitted::UnknownFunction)?;
    if call.fail_without_workers && tx.memory.workers_of(function.id, tx.now).1 == 0 {
        return Err(Submitted::NoWorkers);
    }
    let backlog = tx.memory.counts(function.id).backlog();
    match function.definition.limits.max_backlog {
        Some(limit) if backlog >= limit => Err(Submitted::Overloaded { backlog, limit }),
        _ => Ok(function),
    }
}

/// Writes a new call; `None` when its id is taken.
fn take(tx: &mut Tx<'_>, function: &Function, submit: &SubmitCall) -> Moved<Option<Timestamp>> {
    let call = Call::submitted(submit.call_id.clone(), tx.now, submit.timeout, submit.retain).with_attempts(submit.before);
    let stored = Stored { seq: tx.memory.next_seq(), function_id: function.id, call };
    if !rows::insert_call(tx.conn, &stored, &submit.request)? {
        // The id of a gone call is free; its rows only wait for their removal.
        if !gone::free_id(tx, &submit.call_id)? || !rows::insert_call(tx.conn, &stored, &submit.request)? {
            return Ok(None);
        }
    }
    if let Some(key) = submit.idempotency_key() {
        tx.conn.prepare_cached(PUT_KEY)?.execute((function.id, key.as_str(), stored.seq))?;
    }
    tx.memory.advance_seq();
    tx.memory.enter(&stored);
    tx.after.moves += 1;
    tx.after.added += 1;
    tx.after.woken.insert(function.id);
    tx.after.note_due(stored.call.due());
    Ok(Some(stored.call.deadline))
}

fn by_key(tx: &Tx<'_>, call: &SubmitCall) -> Moved<Option<Stored>> {
    let function = tx.memory.function_even_forgotten(&call.request.function);
    let Some((key, function)) = call.idempotency_key().zip(function) else { return Ok(None) };
    let seq: Option<i64> = tx.conn.prepare_cached(BY_KEY)?.query_row((function.id, key.as_str()), |row| row.get(0)).optional()?;
    seq.map(|seq| by_seq(tx, seq)).transpose().map(Option::flatten)
}

fn same_or_conflict(tx: &Tx<'_>, earlier: &Stored, call: &SubmitCall, durability: Durability) -> Moved<Submitted> {
    let asked_then = request(tx, earlier)?;
    let call_id = earlier.call.call_id.clone();
    if !call.request.asks_the_same_as(&asked_then) {
        return Ok(Submitted::Conflict { call_id });
    }
    Ok(Submitted::Existing { call_id, state: earlier.call.state, deadline: earlier.call.deadline, durability })
}

fn request(tx: &Tx<'_>, stored: &Stored) -> Moved<CallRequest> {
    let function = tx.memory.function_of(stored)?.definition.key.clone();
    let mut statement = tx.conn.prepare_cached(REQUEST)?;
    statement.query_row([stored.seq], |row| Ok(rows::read_request(row, 0, function)))?
}

pub(crate) fn by_id(tx: &Tx<'_>, call_id: &CallId) -> Moved<Option<Stored>> {
    if let Some(running) = tx.memory.running(call_id) {
        return Ok(Some(running.clone()));
    }
    load(tx, BY_ID, call_id.as_str())
}

pub(crate) fn by_seq(tx: &Tx<'_>, seq: i64) -> Moved<Option<Stored>> {
    load(tx, BY_SEQ, seq)
}

/// A call whose retention is over is not there, whether or not its rows are.
fn load(tx: &Tx<'_>, sql: &str, which: impl rusqlite::ToSql) -> Moved<Option<Stored>> {
    let mut statement = tx.conn.prepare_cached(sql)?;
    let found = statement.query_row([which], |row: &Row<'_>| Ok(rows::read_call(row))).optional()?;
    let kept = found.transpose()?.filter(|stored| !stored.call.is_gone(tx.now));
    kept.map(|stored| rows::with_outcome(tx.conn, stored)).transpose()
}

/// Makes one move of one call: decides, saves, counts, and notes who has to hear of it.
pub(crate) fn apply(tx: &mut Tx<'_>, stored: Stored, command: CallCommand) -> Moved<(Stored, CallReply)> {
    let (before, had_ended) = (Seat::of(&stored.call), stored.call.state.has_ended());
    let (call, reply) = step(stored.call, command, tx.now);
    let stored = Stored { call, ..stored };
    if is_unchanged(&stored.call, &reply) {
        return Ok((stored, reply));
    }
    rows::update_call(tx.conn, &stored)?;
    tx.after.moves += 1;
    tx.memory.recount(&before, &stored);
    tx.after.note_due(stored.call.due());
    tx.memory.note_kept(stored.call.kept_until());
    if tx.memory.counts(stored.function_id).queued > 0 {
        tx.after.woken.insert(stored.function_id);
    }
    if let Some(outcome) = stored.call.outcome.as_ref().filter(|_| !had_ended) {
        rows::insert_outcome(tx.conn, stored.seq, outcome)?;
        tx.after.ended.push(stored.call.clone());
    } else if stored.call.state == CallState::Delayed {
        tx.after.changed.push(stored.call.call_id.clone());
    }
    Ok((stored, reply))
}

fn is_unchanged(call: &Call, reply: &CallReply) -> bool {
    match reply {
        CallReply::AlreadyRecorded | CallReply::Lost(_) | CallReply::AlreadyEnded | CallReply::NotDue | CallReply::NotDead => true,
        CallReply::NotClaimed => !call.state.has_ended(),
        _ => false,
    }
}

/// A move by the holder of a delivery; a call that is not there has been lost to it.
fn held(
    tx: &mut Tx<'_>,
    worker: &WorkerId,
    id: &DeliveryId,
    command: impl FnOnce(Held, &Function) -> CallCommand,
) -> Moved<(Option<Stored>, CallReply)> {
    let Some(stored) = by_id(tx, &id.call_id)? else { return Ok((None, CallReply::Lost(LostLease::Absent))) };
    let function = tx.memory.function_of(&stored)?;
    let held = Held { worker: worker.clone(), number: id.number };
    let (stored, reply) = apply(tx, stored, command(held, &function))?;
    Ok((Some(stored), reply))
}

pub(crate) fn renew(tx: &mut Tx<'_>, leases: &RenewCalls) -> Moved<Vec<Renewal>> {
    let mut renewals = Vec::with_capacity(leases.deliveries.len());
    for id in &leases.deliveries {
        let (stored, reply) = held(tx, &leases.worker, id, |held, _| CallCommand::Renew { held, lease: leases.lease })?;
        renewals.push(renewal(stored.as_ref(), &reply));
    }
    Ok(renewals)
}

fn renewal(stored: Option<&Stored>, reply: &CallReply) -> Renewal {
    match (reply, stored) {
        (CallReply::Lost(lost), _) => Renewal::Lost(*lost),
        (_, Some(Stored { call: Call { lease_until: Some(until), cancel_requested, .. }, .. })) => {
            Renewal::Held { until: *until, cancel_requested: *cancel_requested }
        }
        _ => Renewal::Lost(LostLease::Ended),
    }
}

pub(crate) fn complete(tx: &mut Tx<'_>, answers: &CompleteCalls) -> Moved<Vec<Completed>> {
    let mut replies = Vec::with_capacity(answers.answers.len());
    for (id, answer) in &answers.answers {
        let (stored, reply) = held(tx, &answers.worker, id, |held, function| CallCommand::Answer {
            held,
            answer: answer.clone(),
            policy: function.definition.retry.clone(),
        })?;
        replies.push(match (reply, stored) {
            (CallReply::Lost(lost), _) => Completed::Lost(lost),
            (CallReply::AlreadyRecorded, _) => Completed::AlreadyRecorded,
            (_, Some(stored)) => Completed::Recorded { ended: ended(tx, &stored)? },
            (_, None) => Completed::Lost(LostLease::Absent),
        });
    }
    Ok(replies)
}

/// What is counted about a call that is over; `None` while it is not.
pub(crate) fn ended(tx: &Tx<'_>, stored: &Stored) -> Moved<Option<Ended>> {
    let call = &stored.call;
    let Some(at) = call.ended_at.filter(|_| call.state.has_ended()) else { return Ok(None) };
    let function = tx.memory.function_of(stored)?.definition.key.clone();
    Ok(Some(Ended { call_id: call.call_id.clone(), function, state: call.state, took: at.since(call.submitted_at) }))
}

pub(crate) fn release(tx: &mut Tx<'_>, worker: &WorkerId, deliveries: &[DeliveryId]) -> Moved<u64> {
    let mut released = 0;
    for id in deliveries {
        let (_, reply) = held(tx, worker, id, |held, _| CallCommand::Release(held))?;
        released += u64::from(reply == CallReply::Recorded);
    }
    Ok(released)
}

pub(crate) fn park(tx: &mut Tx<'_>, worker: &WorkerId, id: &DeliveryId, parked: bool) -> Moved<Renewal> {
    let (stored, reply) = held(tx, worker, id, |held, _| CallCommand::Park { held, parked })?;
    Ok(renewal(stored.as_ref(), &reply))
}

pub(crate) fn report_progress(tx: &mut Tx<'_>, worker: &WorkerId, id: &DeliveryId, progress: &Payload) -> Moved<Renewal> {
    let Some(stored) = by_id(tx, &id.call_id)? else { return Ok(Renewal::Lost(LostLease::Absent)) };
    let parked = stored.call.parked;
    // Parking it as it is asks the core whether this delivery still holds, and changes nothing.
    let renewal = park(tx, worker, id, parked)?;
    if matches!(renewal, Renewal::Held { .. }) {
        tx.conn.prepare_cached(PUT_PROGRESS)?.execute((stored.seq, progress.as_str()))?;
        tx.after.changed.push(id.call_id.clone());
    }
    Ok(renewal)
}

pub(crate) fn cancel(tx: &mut Tx<'_>, call_id: &CallId) -> Moved<Cancelled> {
    let Some(stored) = by_id(tx, call_id)? else { return Ok(Cancelled::NotFound) };
    let (stored, reply) = apply(tx, stored, CallCommand::Cancel)?;
    Ok(match reply {
        CallReply::Cancelled => Cancelled::Done,
        CallReply::CancelRequested => {
            tx.after.attention.extend(stored.call.holder);
            Cancelled::Requested
        }
        _ => Cancelled::AlreadyEnded(stored.call.state),
    })
}

pub(crate) fn replay_dead(tx: &mut Tx<'_>, call_id: &CallId, replay_id: &CallId) -> Moved<Replayed> {
    let Some(stored) = by_id(tx, call_id)?.filter(|stored| stored.call.state == CallState::Dead) else { return Ok(Replayed::NotDead) };
    let function = tx.memory.function_of(&stored)?;
    let again = SubmitCall {
        call_id: replay_id.clone(),
        request: request(tx, &stored)?,
        timeout: stored.call.deadline.since(stored.call.submitted_at),
        retain: stored.call.retain,
        fail_without_workers: false,
        fresh: false,
        before: AttemptsBefore::default(),
        continues: false,
    };
    // A repeated replay under the same new id finds the dead letter settled; an id that somebody else has taken is not ours to replay to.
    if take(tx, &function, &again)?.is_none() {
        return Ok(Replayed::NotDead);
    }
    apply(tx, stored, CallCommand::Settle { replayed_as: Some(replay_id.clone()) })?;
    Ok(Replayed::Submitted)
}

pub(crate) fn drop_dead(tx: &mut Tx<'_>, call_id: &CallId) -> Moved<bool> {
    let Some(stored) = by_id(tx, call_id)? else { return Ok(false) };
    let (_, reply) = apply(tx, stored, CallCommand::Settle { replayed_as: None })?;
    Ok(reply == CallReply::Settled)
}
