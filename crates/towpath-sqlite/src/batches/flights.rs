//! Batches in flight as rows.

use rusqlite::{Connection, OptionalExtension, Row};
use towpath_core::batch::Flight;
use towpath_core::names::{BatchId, BatchKey, BatcherName};
use towpath_core::payload::Payload;
use towpath_core::time::Timestamp;

use super::open::reason;
use crate::rows::{name, optional_name};
use crate::trouble::Moved;

/// The columns that [`read`] expects.
macro_rules! flight_columns {
    () => {
        "batch_id, bk, token, attempt, first_ms, last_ms, reason, at_ms, serial, entry"
    };
}
pub(super) use flight_columns;

pub(super) const LOAD: &str = concat!("SELECT ", flight_columns!(), ", batch FROM batch_flight WHERE batcher = ?1 AND batch_id = ?2");
pub(super) const SERIAL_OF: &str = "SELECT batch_id FROM batch_flight WHERE batcher = ?1 AND bk = ?2 AND serial = 1";
const INSERT: &str = concat!(
    "INSERT INTO batch_flight (batcher, ",
    flight_columns!(),
    ", batch) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
);
const UPDATE: &str = "UPDATE batch_flight SET token = ?3, attempt = ?4, at_ms = ?5 WHERE batcher = ?1 AND batch_id = ?2";
const FORGET: &str = "DELETE FROM batch_flight WHERE batcher = ?1 AND batch_id = ?2";

/// The flight, and the number of its messages.
pub(super) fn load(conn: &Connection, batcher: &BatcherName, id: &BatchId) -> Moved<Option<(Flight, Option<i64>)>> {
    let mut statement = conn.prepare_cached(LOAD)?;
    let found = statement.query_row((batcher.as_str(), id.as_str()), |row| Ok((read(row), row.get(10)?))).optional()?;
    found.map(|(flight, batch)| Ok((flight?, batch))).transpose()
}

pub(super) fn read(row: &Row<'_>) -> Moved<Flight> {
    let instant = |column: usize| row.get(column).map(Timestamp::from_millis);
    Ok(Flight {
        batch_id: name(row, 0)?,
        key: name(row, 1)?,
        token: optional_name(row, 2)?,
        attempt: row.get(3)?,
        first: instant(4)?,
        last: instant(5)?,
        reason: reason(row, 6)?,
        at: instant(7)?,
        serial: row.get(8)?,
        replay: row.get::<_, Option<String>>(9)?.map(Payload::from_json),
    })
}

/// The batch of a key that the next one waits for.
pub(super) fn serial_of(conn: &Connection, batcher: &BatcherName, key: &BatchKey) -> Moved<Option<BatchId>> {
    let mut statement = conn.prepare_cached(SERIAL_OF)?;
    statement.query_row((batcher.as_str(), key.as_str()), |row| Ok(name(row, 0))).optional()?.transpose()
}

pub(super) fn insert(conn: &Connection, batcher: &BatcherName, flight: &Flight, batch: Option<i64>) -> Moved<()> {
    conn.prepare_cached(INSERT)?.execute(rusqlite::params![
        batcher.as_str(),
        flight.batch_id.as_str(),
        flight.key.as_str(),
        flight.token.as_ref().map(|token| token.as_str()),
        flight.attempt,
        flight.first.as_millis(),
        flight.last.as_millis(),
        flight.reason.as_str(),
        flight.at.as_millis(),
        flight.serial,
        flight.replay.as_ref().map(Payload::as_str),
        batch,
    ])?;
    Ok(())
}

/// Writes what changes from attempt to attempt.
pub(super) fn update(conn: &Connection, batcher: &BatcherName, flight: &Flight) -> Moved<()> {
    let token = flight.token.as_ref().map(|token| token.as_str());
    let row = (batcher.as_str(), flight.batch_id.as_str(), token, flight.attempt, flight.at.as_millis());
    conn.prepare_cached(UPDATE)?.execute(row)?;
    Ok(())
}

pub(super) fn forget(conn: &Connection, batcher: &BatcherName, id: &BatchId) -> Moved<()> {
    conn.prepare_cached(FORGET)?.execute((batcher.as_str(), id.as_str()))?;
    Ok(())
}
