//! Reads for people. Those of calls run on their own connection and never stand in the writer's way; lists of calls are in `lists`.

use rusqlite::{Connection, OptionalExtension, Row};
use towpath_core::inspect::{CallView, FunctionView};
use towpath_core::names::{CallId, WorkerId};
use towpath_core::payload::Payload;
use towpath_core::store::{StoreError, StoreTrouble};
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
const PROBE: &str = "INSERT INTO meta (key, value) VALUES ('probe', ?1) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
/// Room for a few calls of the usual size.
const FILLER: i64 = 256 * 1024;
const FILLER_BYTES: &str = "SELECT octet_length(bytes) FROM filler";
const FILL: &str = "UPDATE filler SET bytes = zeroblob(?1)";

pub(crate) fn call(conn: &Connection, call_id: &CallId, now: Timestamp) -> Moved<Option<CallView>> {
    let mut statement = conn.prepare_cached(ONE)?;
    let found = statement.query_row((call_id.as_str(), now.as_millis()), |row| Ok(read_view(conn, row))).optional()?;
    found.transpose()
}

fn read_view(conn: &Connection, row: &Row<'_>) -> Moved<CallView> {
    const AT: usize = rows::AFTER_REQUEST;
    let stored = rows::with_outcome(conn, rows::read_call(row)?)?;
    let number: Option<u32> = row.get(AT + 2)?;
    let value: Option<String> = row.get(AT + 3)?;
    Ok(CallView {
        call: stored.call,
        request: rows::read_request(row, rows::AFTER_CALL, read_key(row, AT, AT + 1)?)?,
        progress: number.zip(value.map(Payload::from_json)),
    })
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

/// A write that proves that writing works. After a disk was full that takes more than the few bytes for which there is nearly always room: a
/// filler that stays until the next probe.
pub(crate) fn probe(tx: &mut Tx<'_>) -> Moved<()> {
    write_probe(tx.conn, tx.now)?;
    let filler = if tx.memory.was_full { FILLER } else { 0 };
    let is_as_it_was = tx.conn.prepare_cached(FILLER_BYTES)?.query_row([], |row| row.get::<_, i64>(0))? == filler;
    if filler > 0 || !is_as_it_was {
        tx.conn.prepare_cached(FILL)?.execute([filler])?;
    }
    // If this transaction fails, the writer notes again that the disk is full.
    tx.memory.was_full = false;
    Ok(())
}

/// Whether the bytes of a probe are kept makes no difference, so that it says what is wrong and not that this is unknown.
pub(crate) fn told_by_a_probe(error: StoreError, is_full: bool) -> StoreError {
    match error {
        StoreError::Unknown(cause) if is_full => StoreError::Unavailable(StoreTrouble::Full(cause)),
        StoreError::Unknown(cause) => StoreError::Unavailable(StoreTrouble::Other(cause)),
        error => error,
    }
}

pub(crate) fn write_probe(conn: &Connection, now: Timestamp) -> Moved<()> {
    conn.prepare_cached(PROBE)?.execute([now.as_millis()])?;
    Ok(())
}
