//! What is due, and what people get to see.

use rusqlite::Connection;
use towpath_core::inspect::{BatchCounts, BatchView, Cursor, CursorPage, FlightView, OpenBatchView, PageRequest};
use towpath_core::names::{BatchKey, BatcherName};
use towpath_core::store::DueBatches;
use towpath_core::time::Timestamp;

use super::flights::{self, flight_columns};
use super::open::{self, open_columns};
use super::{dead_letters, messages};
use crate::rows::name;
use crate::trouble::Moved;

pub(super) use dead_letters::{one as dead_letter, page as dead_letters};

pub(super) const DUE_KEYS: &str =
    "SELECT deadline_ms, bk FROM batch_open WHERE batcher = ?1 AND armed = 1 ORDER BY deadline_ms, bk LIMIT ?2";
pub(super) const DUE_FLIGHTS: &str = "SELECT at_ms, batch_id FROM batch_flight WHERE batcher = ?1 ORDER BY at_ms, batch_id LIMIT ?2";
const COUNTS: &str = "SELECT (SELECT count(*) FROM batch_open WHERE batcher = ?1), \
     (SELECT coalesce(sum(size), 0) FROM batch_open WHERE batcher = ?1), (SELECT count(*) FROM batch_flight WHERE batcher = ?1), \
     (SELECT count(*) FROM dead_letter WHERE batcher = ?1)";
pub(super) const OPEN: &str = concat!(
    "SELECT bk, ",
    open_columns!(),
    " FROM batch_open WHERE batcher = ?1 AND (first_ms, bk) > (?2, ?3) ORDER BY first_ms, bk LIMIT ?4"
);
pub(super) const IN_FLIGHT: &str = concat!(
    "SELECT ",
    flight_columns!(),
    " FROM batch_flight WHERE batcher = ?1 AND (at_ms, batch_id) > (?2, ?3) ORDER BY at_ms, batch_id LIMIT ?4"
);

pub(super) fn due(conn: &Connection, batcher: &BatcherName, limit: usize, now: Timestamp) -> Moved<DueBatches> {
    let (keys, next_key) = earliest(conn, DUE_KEYS, batcher, limit, now)?;
    let (flights, next_flight) = earliest(conn, DUE_FLIGHTS, batcher, limit, now)?;
    Ok(DueBatches { now, keys, flights, next: [next_key, next_flight].into_iter().flatten().min() })
}

/// The names that are due, and when the first that is not among them is.
fn earliest<T>(conn: &Connection, sql: &str, batcher: &BatcherName, limit: usize, now: Timestamp) -> Moved<(Vec<T>, Option<Timestamp>)>
where
    T: std::str::FromStr<Err = towpath_core::names::InvalidName>,
{
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query((batcher.as_str(), i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let at = Timestamp::from_millis(row.get(0)?);
        if at > now || found.len() == limit {
            return Ok((found, Some(at)));
        }
        found.push(name(row, 1)?);
    }
    Ok((found, None))
}

pub(super) fn counts(conn: &Connection, batcher: &BatcherName) -> Moved<BatchCounts> {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(BatchCounts { open_keys: row.get(0)?, open_messages: row.get(1)?, in_flight: row.get(2)?, dead_letters: row.get(3)? })
    };
    Ok(conn.prepare_cached(COUNTS)?.query_row([batcher.as_str()], read)?)
}

pub(super) fn open_batches(
    conn: &Connection,
    batcher: &BatcherName,
    after: Option<&Cursor>,
    limit: u32,
) -> Moved<CursorPage<OpenBatchView>> {
    let items = rows_after(conn, OPEN, batcher, after, limit, |row| Ok(OpenBatchView { key: name(row, 0)?, open: open::read(row, 1)? }))?;
    Ok(cut(items, limit, |view| Cursor::behind(view.open.first, view.key.as_str())))
}

pub(super) fn in_flight(conn: &Connection, batcher: &BatcherName, after: Option<&Cursor>, limit: u32) -> Moved<CursorPage<FlightView>> {
    let items = rows_after(conn, IN_FLIGHT, batcher, after, limit, |row| Ok(FlightView::of(&flights::read(row)?)))?;
    Ok(cut(items, limit, |view| Cursor::behind(view.at, view.batch_id.as_str())))
}

fn rows_after<T>(
    conn: &Connection,
    sql: &str,
    batcher: &BatcherName,
    after: Option<&Cursor>,
    limit: u32,
    read: impl Fn(&rusqlite::Row<'_>) -> Moved<T>,
) -> Moved<Vec<T>> {
    let (at, last) = after.and_then(Cursor::place).unwrap_or((Timestamp::from_millis(i64::MIN), ""));
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query((batcher.as_str(), at.as_millis(), last, limit.min(PageRequest::LIMIT_MAX) + 1))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// One more was read than the page has, to see whether there is another page.
fn cut<T>(mut items: Vec<T>, limit: u32, behind: impl Fn(&T) -> Cursor) -> CursorPage<T> {
    let limit = limit.min(PageRequest::LIMIT_MAX) as usize;
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(behind);
    CursorPage { items, next }
}

pub(super) fn open_batch(conn: &Connection, batcher: &BatcherName, key: &BatchKey, from: u64) -> Moved<Option<BatchView>> {
    let Some((open, batch)) = open::load(conn, batcher, key)? else { return Ok(None) };
    let (in_flight, messages) = (flights::serial_of(conn, batcher, key)?, messages::page(conn, batch, from)?);
    Ok(Some(BatchView { key: key.clone(), open, in_flight, messages }))
}
