//! Records to columns and back. The only place that knows which column holds what.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, named_params};
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
         c.holder, c.started_ms, c.lease_until_ms, c.parked, c.cancel_requested, c.not_before_ms, c.ended_ms, c.last_failure, \
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
pub(crate) const AFTER_CALL: usize = 19;
/// Where the columns after those of a call and its request begin.
pub(crate) const AFTER_REQUEST: usize = AFTER_CALL + 6;

const INSERT_CALL: &str = "INSERT INTO calls (seq, call_id, function_id, state, due_ms, submitted_ms, deadline_ms, retain_ms, failures, \
     crashes, delivery, parked, cancel_requested) \
     VALUES (:seq, :call_id, :function_id, 'queued', :due, :submitted, :deadline, :retain, 0, 0, 0, 0, 0)";
const INSERT_REQUEST: &str = "INSERT INTO call_requests (seq, params, input_item, idempotency_key, depth, parent, traceparent) \
     VALUES (:seq, :params, :input_item, :key, :depth, :parent, :traceparent)";
const UPDATE_CALL: &str = "UPDATE calls SET state = :state, due_ms = :due, failures = :failures, crashes = :crashes, delivery = :delivery, \
     holder = :holder, started_ms = :started, lease_until_ms = :lease_until, parked = :parked, cancel_requested = :cancel_requested, \
     not_before_ms = :not_before, ended_ms = :ended, last_failure = :last_failure, replayed_as = :replayed_as WHERE seq = :seq";
const INSERT_OUTCOME: &str = "INSERT INTO call_outcomes (seq, kind, data, failure) VALUES (:seq, :kind, :data, :failure)";
const SELECT_OUTCOME: &str = "SELECT kind, data, failure FROM call_outcomes WHERE seq = ?1";

/// A call and its place in the file.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) seq: i64,
    pub(crate) function_id: i64,
    pub(crate) call: Call,
}

/// A name that was checked before it was written; anything else means that somebody else wrote it.
pub(crate) fn name<T>(row: &Row<'_>, column: usize, check: impl Fn(String) -> Result<T, InvalidName>) -> Moved<T> {
    check(row.get(column)?).map_err(corrupt)
}

fn optional_name<T>(row: &Row<'_>, column: usize, check: impl Fn(String) -> Result<T, InvalidName>) -> Moved<Option<T>> {
    let text: Option<String> = row.get(column)?;
    text.map(check).transpose().map_err(corrupt)
}

fn corrupt(cause: impl std::fmt::Display) -> Trouble {
    Trouble::Corrupt(cause.to_string())
}

fn instant(row: &Row<'_>, column: usize) -> Moved<Option<Timestamp>> {
    let ms: Option<i64> = row.get(column)?;
    Ok(ms.map(Timestamp::from_millis))
}

fn payload(row: &Row<'_>, column: usize) -> Moved<Option<Payload>> {
    let text: Option<String> = row.get(column)?;
    Ok(text.map(Payload::from_json))
}

/// Reads the columns of [`call_columns`]. The outcome stands in its own table and is added where it is needed.
pub(crate) fn read_call(row: &Row<'_>) -> Moved<Stored> {
    let state: String = row.get(3)?;
    let call = Call {
        call_id: name(row, 1, CallId::new)?,
        state: CallState::parse(&state).ok_or_else(|| corrupt(format!("a call cannot be '{state}'")))?,
        submitted_at: Timestamp::from_millis(row.get(4)?),
        deadline: Timestamp::from_millis(row.get(5)?),
        retain: from_millis(row.get(6)?),
        failures: row.get(7)?,
        crashes: row.get(8)?,
        delivery: row.get(9)?,
        holder: optional_name(row, 10, WorkerId::new)?,
        started_at: instant(row, 11)?,
        lease_until: instant(row, 12)?,
        parked: row.get(13)?,
        cancel_requested: row.get(14)?,
        not_before: instant(row, 15)?,
        ended_at: instant(row, 16)?,
        last_failure: row.get::<_, Option<String>>(17)?.map(|text| read_failure(&text)).transpose()?,
        outcome: None,
        replayed_as: optional_name(row, 18, CallId::new)?,
    };
    Ok(Stored { seq: row.get(0)?, function_id: row.get(2)?, call })
}

/// Reads the columns of [`request_columns`], the first of which is `at`.
pub(crate) fn read_request(row: &Row<'_>, at: usize, function: FunctionKey) -> Moved<CallRequest> {
    Ok(CallRequest {
        function,
        params: Payload::from_json(row.get::<_, String>(at)?),
        input_item: payload(row, at + 1)?,
        idempotency_key: optional_name(row, at + 2, IdempotencyKey::new)?,
        depth: row.get(at + 3)?,
        parent: optional_name(row, at + 4, CallId::new)?,
        traceparent: row.get(at + 5)?,
    })
}

pub(crate) fn insert_call(conn: &Connection, stored: &Stored, request: &CallRequest) -> Moved<()> {
    let call = &stored.call;
    conn.prepare_cached(INSERT_CALL)?.execute(named_params! {
        ":seq": stored.seq,
        ":call_id": call.call_id.as_str(),
        ":function_id": stored.function_id,
        ":due": call.due().map(Timestamp::as_millis),
        ":submitted": call.submitted_at.as_millis(),
        ":deadline": call.deadline.as_millis(),
        ":retain": millis(call.retain),
    })?;
    conn.prepare_cached(INSERT_REQUEST)?.execute(named_params! {
        ":seq": stored.seq,
        ":params": request.params.as_str(),
        ":input_item": request.input_item.as_ref().map(Payload::as_str),
        ":key": request.idempotency_key.as_ref().map(IdempotencyKey::as_str),
        ":depth": request.depth,
        ":parent": request.parent.as_ref().map(CallId::as_str),
        ":traceparent": request.traceparent,
    })?;
    Ok(())
}

pub(crate) fn update_call(conn: &Connection, stored: &Stored) -> Moved<()> {
    let call = &stored.call;
    conn.prepare_cached(UPDATE_CALL)?.execute(named_params! {
        ":seq": stored.seq,
        ":state": call.state.as_str(),
        ":due": call.due().map(Timestamp::as_millis),
        ":failures": call.failures,
        ":crashes": call.crashes,
        ":delivery": call.delivery,
        ":holder": call.holder.as_ref().map(WorkerId::as_str),
        ":started": call.started_at.map(Timestamp::as_millis),
        ":lease_until": call.lease_until.map(Timestamp::as_millis),
        ":parked": call.parked,
        ":cancel_requested": call.cancel_requested,
        ":not_before": call.not_before.map(Timestamp::as_millis),
        ":ended": call.ended_at.map(Timestamp::as_millis),
        ":last_failure": call.last_failure.as_ref().map(write_failure),
        ":replayed_as": call.replayed_as.as_ref().map(CallId::as_str),
    })?;
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
    let columns = named_params! { ":seq": seq, ":kind": kind, ":data": data, ":failure": failure };
    conn.prepare_cached(INSERT_OUTCOME)?.execute(columns)?;
    Ok(())
}

/// Adds the outcome to a call that has ended.
pub(crate) fn with_outcome(conn: &Connection, mut stored: Stored) -> Moved<Stored> {
    if stored.call.state.has_ended() {
        let mut statement = conn.prepare_cached(SELECT_OUTCOME)?;
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
