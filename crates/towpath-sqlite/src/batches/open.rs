//! Open batches as rows.

use rusqlite::{Connection, OptionalExtension, Row};
use towpath_core::batch::{CloseReason, OpenBatch};
use towpath_core::names::{BatchKey, BatcherName};
use towpath_core::time::Timestamp;

use crate::trouble::{Moved, Trouble};

/// The columns that [`read`] expects, from the first on.
macro_rules! open_columns {
    () => {
        "first_ms, last_ms, deadline_ms, reason, sealed, bytes, size, armed"
    };
}
pub(super) use open_columns;

pub(super) const LOAD: &str = concat!("SELECT ", open_columns!(), ", batch FROM batch_open WHERE batcher = ?1 AND bk = ?2");
const SAVE: &str = concat!(
    "INSERT INTO batch_open (batcher, bk, ",
    open_columns!(),
    ", batch) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (batcher, bk) DO UPDATE SET first_ms = ?3, last_ms = ?4, \
     deadline_ms = ?5, reason = ?6, sealed = ?7, bytes = ?8, size = ?9, armed = ?10, batch = ?11"
);
const FORGET: &str = "DELETE FROM batch_open WHERE batcher = ?1 AND bk = ?2";
pub(super) const EARLIEST: &str = "SELECT deadline_ms FROM batch_open WHERE batcher = ?1 AND armed = 1 ORDER BY deadline_ms LIMIT 1";

/// The batch, and the number of its messages.
pub(super) fn load(conn: &Connection, batcher: &BatcherName, key: &BatchKey) -> Moved<Option<(OpenBatch, i64)>> {
    let mut statement = conn.prepare_cached(LOAD)?;
    let found = statement.query_row((batcher.as_str(), key.as_str()), |row| Ok((read(row, 0), row.get(8)?))).optional()?;
    found.map(|(open, batch)| Ok((open?, batch))).transpose()
}

/// Reads [`open_columns`] from this column on.
pub(super) fn read(row: &Row<'_>, at: usize) -> Moved<OpenBatch> {
    let instant = |column: usize| row.get(at + column).map(Timestamp::from_millis);
    Ok(OpenBatch {
        first: instant(0)?,
        last: instant(1)?,
        deadline: instant(2)?,
        reason: reason(row, at + 3)?,
        sealed: row.get(at + 4)?,
        bytes: row.get(at + 5)?,
        size: row.get(at + 6)?,
        armed: row.get(at + 7)?,
    })
}

pub(super) fn reason(row: &Row<'_>, column: usize) -> Moved<CloseReason> {
    let word = row.get_ref(column)?.as_str().map_err(|cause| Trouble::Corrupt(cause.to_string()))?;
    word.parse().map_err(|cause: towpath_core::batch::UnknownReason| Trouble::Corrupt(cause.to_string()))
}

pub(super) fn save(conn: &Connection, batcher: &BatcherName, key: &BatchKey, open: &OpenBatch, batch: i64) -> Moved<()> {
    conn.prepare_cached(SAVE)?.execute(rusqlite::params![
        batcher.as_str(),
        key.as_str(),
        open.first.as_millis(),
        open.last.as_millis(),
        open.deadline.as_millis(),
        open.reason.as_str(),
        open.sealed,
        open.bytes,
        open.size,
        open.armed,
        batch,
    ])?;
    Ok(())
}

pub(super) fn forget(conn: &Connection, batcher: &BatcherName, key: &BatchKey) -> Moved<()> {
    conn.prepare_cached(FORGET)?.execute((batcher.as_str(), key.as_str()))?;
    Ok(())
}

/// The earliest deadline that counts.
pub(super) fn earliest(conn: &Connection, batcher: &BatcherName) -> Moved<Option<Timestamp>> {
    let found: Option<i64> = conn.prepare_cached(EARLIEST)?.query_row([batcher.as_str()], |row| row.get(0)).optional()?;
    Ok(found.map(Timestamp::from_millis))
}
