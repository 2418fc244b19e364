//! Reads for people. Those of calls run on their own connection and never stand in the writer's way.

use rusqlite::{Connection, OptionalExtension, Row, ToSql, named_params};
use towpath_core::inspect::{CallFilter, CallView, FunctionView, Page, PageRequest};
use towpath_core::names::{CallId, FunctionName, Scope, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::time::Timestamp;
use towpath_core::worker::WorkerView;

use crate::memory::{Worker, read_key};
use crate::registry;
use crate::rows::{self, call_columns, request_columns};
use crate::trouble::Moved;
use crate::writer::Tx;

macro_rules! view_of_calls {
    ($condition:literal) => {
        concat!(
            "SELECT ",
            call_columns!(),
            ", ",
            request_columns!(),
            ", f.scope, f.name, p.number, p.value FROM calls c JOIN call_requests r ON r.seq = c.seq JOIN functions f ON f.id = c.function_id \
             LEFT JOIN call_progress p ON p.seq = c.seq WHERE ",
            $condition
        )
    };
}

const ONE: &str = view_of_calls!("c.call_id = ?1 AND (c.kept_until_ms IS NULL OR c.kept_until_ms > ?2)");
const SOME: &str = view_of_calls!(
    "(:after IS NULL OR c.seq < :after) AND (:scope IS NULL OR f.scope = :scope) AND (:function IS NULL OR f.name = :function) \
     AND (:worker IS NULL OR c.holder = :worker) AND (c.kept_until_ms IS NULL OR c.kept_until_ms > :now)"
);
const PROBE: &str = "INSERT INTO meta (key, value) VALUES ('probe', ?1) ON CONFLICT (key) DO UPDATE SET value = excluded.value";

pub(crate) fn call(conn: &Connection, call_id: &CallId, now: Timestamp) -> Moved<Option<CallView>> {
    let mut statement = conn.prepare_cached(ONE)?;
    let found = statement.query_row((call_id.as_str(), now.as_millis()), |row| Ok(read_view(conn, row))).optional()?;
    found.transpose().map(|view| view.map(|(_, view)| view))
}

pub(crate) fn calls(conn: &Connection, filter: &CallFilter, page: &PageRequest, now: Timestamp) -> Moved<Page<CallView>> {
    let limit = page.limit.min(PageRequest::LIMIT_MAX) as usize;
    // The words of states are ours, so they may stand in the statement; whatever came from outside is bound.
    let states: Vec<String> = filter.states.iter().map(|state| format!("'{}'", state.as_str())).collect();
    let states = if states.is_empty() { String::new() } else { format!(" AND c.state IN ({})", states.join(", ")) };
    let sql = format!("{SOME}{states} ORDER BY c.seq DESC LIMIT :limit");
    let columns: &[(&str, &dyn ToSql)] = named_params! {
        ":after": page.after.map(|after| i64::try_from(after).unwrap_or(i64::MAX)),
        ":scope": filter.scope.as_ref().map(Scope::as_str),
        ":function": filter.function.as_ref().map(FunctionName::as_str),
        ":worker": filter.worker.as_ref().map(WorkerId::as_str),
        ":now": now.as_millis(),
        ":limit": limit + 1,
    };
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(columns)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read_view(conn, row)?);
    }
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).and_then(|(seq, _)| u64::try_from(*seq).ok());
    Ok(Page { items: found.into_iter().map(|(_, view)| view).collect(), next })
}

fn read_view(conn: &Connection, row: &Row<'_>) -> Moved<(i64, CallView)> {
    const AT: usize = rows::AFTER_REQUEST;
    let stored = rows::with_outcome(conn, rows::read_call(row)?)?;
    let number: Option<u32> = row.get(AT + 2)?;
    let value: Option<String> = row.get(AT + 3)?;
    let view = CallView {
        call: stored.call,
        request: rows::read_request(row, rows::AFTER_CALL, read_key(row, AT, AT + 1)?)?,
        progress: number.zip(value.map(Payload::from_json)),
    };
    Ok((stored.seq, view))
}

pub(crate) fn functions(tx: &Tx<'_>) -> Moved<Vec<FunctionView>> {
    tx.memory.functions().map(|function| registry::view(tx, function)).collect()
}

pub(crate) fn workers(tx: &Tx<'_>) -> Vec<WorkerView> {
    let functions = |worker: &Worker| {
        let known = worker.offers.iter().filter_map(|(id, _)| tx.memory.function_by_id(*id));
        known.map(|function| function.definition.key.clone()).collect()
    };
    let view = |(id, worker): (&WorkerId, &Worker)| WorkerView {
        worker_id: id.clone(),
        kind: worker.kind.clone(),
        functions: functions(worker),
        registered_at: worker.registered_at,
        last_heartbeat: worker.last_heartbeat,
        healthy: worker.is_healthy(tx.now),
        running: tx.memory.held_by(id).len() as u64,
    };
    tx.memory.workers.iter().map(view).collect()
}

/// A write that proves that writing works.
pub(crate) fn probe(tx: &Tx<'_>) -> Moved<()> {
    tx.conn.prepare_cached(PROBE)?.execute([tx.now.as_millis()])?;
    Ok(())
}
