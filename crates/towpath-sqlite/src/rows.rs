//! Records to columns and back. The only place that knows which column holds what.

use std::str::FromStr;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use towpath_core::call::{Call, CallRequest, CallState, DeadReason, Failure, Outcome};
use towpath_core::names::{CallId, FunctionKey, IdempotencyKey, InvalidName, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::time::{Timestamp, from_millis, millis};
use towpath_core::worker::FunctionDefinition;

use crate::memory::{Function, read_key};
use crate::trouble::{Moved, Trouble};

/// The columns that [`read_call`] expects, from the first on.
macro_rules! call_columns {
    () => {
        "c.seq, c.call_id, c.function_id, c.state, c.submitted_ms, c.deadline_ms, c.retain_ms, c.failures, c.crashes, c.delivery, \
         c.holder, c.started_ms, c.lease_ms, c.lease_until_ms, c.parked, c.cancel_requested, c.not_before_ms, c.ended_ms, c.last_failure, \
         c.replayed_as"
    };
}
/// The columns that [`read_request`] expects.
macro_rules! request_columns {
    () => {
        "r.params, r.input_item, r.idempotency_key, r.depth, r.parent, r.traceparent"
    };
}
pub(crate) use {call_columns, request_columns};

/// Where the columns after those of a call begin.
pub(crate) const AFTER_CALL: usize = 20;
/// Where the columns after those of a call and its request begin.
pub(crate) const AFTER_REQUEST: usize = AFTER_CALL + 6;

// Hot statements take their values by position: finding a parameter by its name costs as much as binding it.
const INSERT_CALL: &str = "INSERT INTO calls (seq, call_id, function_id, state, submitted_ms, deadline_ms, retain_ms, failures, crashes, \
     delivery, lease_ms, parked, cancel_requested) VALUES (?1, ?2, ?3, 'queued', ?4, ?5, ?6, ?7, ?8, 0, 0, 0, 0) \
     ON CONFLICT (call_id) DO NOTHING";
const INSERT_REQUEST: &str = "INSERT INTO call_requests (seq, params, input_item, idempotency_key, depth, parent, traceparent) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
// A call that is open: what names neither its end nor its retention leaves the indexes of deadlines and of retentions alone.
const UPDATE_OPEN: &str = "UPDATE calls SET state = ?2, failures = ?3, crashes = ?4, delivery = ?5, holder = ?6, started_ms = ?7, \
     lease_until_ms = ?8, parked = ?9, cancel_requested = ?10, not_before_ms = ?11, last_failure = ?12, lease_ms = ?13 WHERE seq = ?1";
const UPDATE_ENDED: &str = "UPDATE calls SET state = ?2, failures = ?3, crashes = ?4, cancel_requested = ?5, last_failure = ?6, \
     ended_ms = ?7, kept_until_ms = ?8, replayed_as = ?9, lease_until_ms = NULL, parked = 0, not_before_ms = NULL, lease_ms = 0 \
     WHERE seq = ?1";
const INSERT_OUTCOME: &str = "INSERT INTO call_outcomes (seq, kind, data, failure) VALUES (?1, ?2, ?3, ?4)";
const SELECT_OUTCOME: &str = "SELECT kind, data, failure FROM call_outcomes WHERE seq = ?1";
// Behind a long result there is no failure to be read.
const SELECT_BRIEF_OUTCOME: &str =
    "SELECT kind, 'null', CASE WHEN kind = 'ok' THEN NULL ELSE failure END FROM call_outcomes WHERE seq = ?1";

/// A call and its place in the file.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) seq: i64,
    pub(crate) function_id: i64,
    pub(crate) call: Call,
}

/// A name that was checked before it was written; anything else means that somebody else wrote it.
pub(crate) fn name<T: FromStr<Err = InvalidName>>(row: &Row<'_>, column: usize) -> Moved<T> {
    text(row, column)?.parse().map_err(corrupt)
}

pub(crate) fn optional_name<T: FromStr<Err = InvalidName>>(row: &Row<'_>, column: usize) -> Moved<Option<T>> {
    let text = row.get_ref(column)?.as_str_or_null().map_err(corrupt)?;
    text.map(str::parse).transpose().map_err(corrupt)
}

fn text<'a>(row: &'a Row<'_>, column: usize) -> Moved<&'a str> {
    row.get_ref(column)?.as_str().map_err(corrupt)
}

fn corrupt(cause: impl std::fmt::Display) -> Trouble {
    Trouble::Corrupt(cause.to_string())
}

pub(crate) fn instant(row: &Row<'_>, column: usize) -> Moved<Option<Timestamp>> {
    let ms: Option<i64> = row.get(column)?;
    Ok(ms.map(Timestamp::from_millis))
}

fn payload(row: &Row<'_>, column: usize) -> Moved<Option<Payload>> {
    let text: Option<String> = row.get(column)?;
    Ok(text.map(Payload::from_json))
}

/// Reads the columns of [`call_columns`]. The outcome stands in its own table and is added where it is needed.
pub(crate) fn read_call(row: &Row<'_>) -> Moved<Stored> {
    let state = text(row, 3)?;
    let call = Call {
        call_id: name(row, 1)?,
        state: CallState::parse(state).ok_or_else(|| corrupt(format!("a call cannot be '{state}'")))?,
        submitted_at: Timestamp::from_millis(row.get(4)?),
        deadline: Timestamp::from_millis(row.get(5)?),
        retain: from_millis(row.get(6)?),
        failures: row.get(7)?,
        crashes: row.get(8)?,
        delivery: row.get(9)?,
        holder: optional_name(row, 10)?,
        started_at: instant(row, 11)?,
        lease: from_millis(row.get(12)?),
        lease_until: instant(row, 13)?,
        parked: row.get(14)?,
        cancel_requested: row.get(15)?,
        not_before: instant(row, 16)?,
        ended_at: instant(row, 17)?,
        last_failure: row.get::<_, Option<String>>(18)?.map(|text| read_failure(&text)).transpose()?,
        outcome: None,
        replayed_as: optional_name(row, 19)?,
    };
    Ok(Stored { seq: row.get(0)?, function_id: row.get(2)?, call })
}

/// Reads the columns of [`request_columns`], the first of which is `at`.
pub(crate) fn read_request(row: &Row<'_>, at: usize, function: FunctionKey) -> Moved<CallRequest> {
    Ok(CallRequest {
        function,
        params: Payload::from_json(row.get::<_, String>(at)?),
        input_item: payload(row, at + 1)?,
        idempotency_key: optional_name(row, at + 2)?,
        depth: row.get(at + 3)?,
        parent: optional_name(row, at + 4)?,
        traceparent: row.get(at + 5)?,
    })
}

/// Writes a new call; `false` when its id is taken, and then nothing was written.
pub(crate) fn insert_call(conn: &Connection, stored: &Stored, request: &CallRequest) -> Moved<bool> {
    let call = &stored.call;
    let written = conn.prepare_cached(INSERT_CALL)?.execute((
        stored.seq,
        call.call_id.as_str(),
        stored.function_id,
        call.submitted_at.as_millis(),
        call.deadline.as_millis(),
        millis(call.retain),
        call.failures,
        call.crashes,
    ))?;
    if written == 0 {
        return Ok(false);
    }
    conn.prepare_cached(INSERT_REQUEST)?.execute((
        stored.seq,
        request.params.as_str(),
        request.input_item.as_ref().map(Payload::as_str),
        request.idempotency_key.as_ref().map(IdempotencyKey::as_str),
        request.depth,
        request.parent.as_ref().map(CallId::as_str),
        &request.traceparent,
    ))?;
    Ok(true)
}

pub(crate) fn update_call(conn: &Connection, stored: &Stored) -> Moved<()> {
    let call = &stored.call;
    if call.state.has_ended() {
        return update_ended(conn, stored.seq, call);
    }
    conn.prepare_cached(UPDATE_OPEN)?.execute((
        stored.seq,
        call.state.as_str(),
        call.failures,
        call.crashes,
        call.delivery,
        call.holder.as_ref().map(WorkerId::as_str),
        call.started_at.map(Timestamp::as_millis),
        call.lease_until.map(Timestamp::as_millis),
        call.parked,
        call.cancel_requested,
        call.not_before.map(Timestamp::as_millis),
        call.last_failure.as_ref().map(write_failure),
        millis(call.lease),
    ))?;
    Ok(())
}

/// An ended call has no lease and no delay, and keeps the holder of its latest delivery.
fn update_ended(conn: &Connection, seq: i64, call: &Call) -> Moved<()> {
    conn.prepare_cached(UPDATE_ENDED)?.execute((
        seq,
        call.state.as_str(),
        call.failures,
        call.crashes,
        call.cancel_requested,
        call.last_failure.as_ref().map(write_failure),
        call.ended_at.map(Timestamp::as_millis),
        call.kept_until().map(Timestamp::as_millis),
        call.replayed_as.as_ref().map(CallId::as_str),
    ))?;
    Ok(())
}

pub(crate) fn insert_outcome(conn: &Connection, seq: i64, outcome: &Outcome) -> Moved<()> {
    let (kind, data, failure) = match outcome {
        Outcome::Ok(data) => ("ok", Some(data.as_str()), None),
        Outcome::Failed(failure) => ("failed", None, Some(write_failure(failure))),
        Outcome::TimedOut => ("timed_out", None, None),
        Outcome::Expired => ("expired", None, None),
        Outcome::Cancelled => ("cancelled", None, None),
        Outcome::Dead { reason, failure } => (reason.as_str(), None, Some(write_failure(failure))),
    };
    conn.prepare_cached(INSERT_OUTCOME)?.execute((seq, kind, data, failure))?;
    Ok(())
}

/// Adds the outcome to a call that has ended.
pub(crate) fn with_outcome(conn: &Connection, stored: Stored) -> Moved<Stored> {
    add_outcome(conn, stored, SELECT_OUTCOME)
}

/// The same, but the data of a result is `null`, and is not read.
pub(crate) fn with_brief_outcome(conn: &Connection, stored: Stored) -> Moved<Stored> {
    add_outcome(conn, stored, SELECT_BRIEF_OUTCOME)
}

fn add_outcome(conn: &Connection, mut stored: Stored, select: &str) -> Moved<Stored> {
    if stored.call.state.has_ended() {
        let mut statement = conn.prepare_cached(select)?;
        let found = statement.query_row([stored.seq], |row| Ok(read_outcome(row))).optional()?;
        let missing = || corrupt(format!("call {} has ended without an outcome", stored.call.call_id));
        stored.call.outcome = Some(found.ok_or_else(missing)??);
    }
    Ok(stored)
}

fn read_outcome(row: &Row<'_>) -> Moved<Outcome> {
    let kind: String = row.get(0)?;
    let failure = || read_failure(&row.get::<_, String>(2)?);
    Ok(match kind.as_str() {
        "ok" => Outcome::Ok(Payload::from_json(row.get::<_, String>(1)?)),
        "failed" => Outcome::Failed(failure()?),
        "timed_out" => Outcome::TimedOut,
        "expired" => Outcome::Expired,
        "cancelled" => Outcome::Cancelled,
        "exhausted" => Outcome::Dead { reason: DeadReason::Exhausted, failure: failure()? },
        "poisoned" => Outcome::Dead { reason: DeadReason::Poisoned, failure: failure()? },
        other => return Err(corrupt(format!("an outcome cannot be '{other}'"))),
    })
}

/// A failure as JSON text, so that a person with `sqlite3` can read it.
#[derive(Serialize, Deserialize)]
struct FailureText<'a> {
    code: String,
    message: String,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    details: Option<&'a RawValue>,
}

fn write_failure(failure: &Failure) -> String {
    let details = failure.details.as_ref().and_then(|details| serde_json::from_str(details.as_str()).ok());
    let text = FailureText { code: failure.code.clone(), message: failure.message.clone(), details };
    serde_json::to_string(&text).expect("two strings and checked JSON always serialize")
}

fn read_failure(text: &str) -> Moved<Failure> {
    let read: FailureText<'_> = serde_json::from_str(text).map_err(corrupt)?;
    let details = read.details.map(|details| Payload::from_json(Bytes::copy_from_slice(details.get().as_bytes())));
    Ok(Failure { code: read.code, message: read.message, details })
}

pub(crate) fn read_definition(row: &Row<'_>) -> Moved<Function> {
    let json = |column| row.get::<_, String>(column);
    let target: Option<String> = row.get(7)?;
    let definition = FunctionDefinition {
        key: read_key(row, 1, 2)?,
        description: row.get(3)?,
        parameters: payload(row, 4)?,
        retry: serde_json::from_str(&json(5)?).map_err(corrupt)?,
        limits: serde_json::from_str(&json(6)?).map_err(corrupt)?,
        target: target.map(|text| serde_json::from_str(&text)).transpose().map_err(corrupt)?,
    };
    Ok(Function { id: row.get(0)?, definition, forgotten: row.get(8)? })
}
