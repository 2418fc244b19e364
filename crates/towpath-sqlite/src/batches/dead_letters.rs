//! Dead letters as rows, in the order in which they came.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use towpath_core::batch::{BatcherId, DeadLetter, DeadReply, ReplayReply, SourceId};
use towpath_core::inspect::{Cursor, CursorPage, DeadLetterQuery, PageRequest};
use towpath_core::names::{BatchId, BatchKey, BatcherName};
use towpath_core::store::Swept;
use towpath_core::time::{Timestamp, millis};

use super::{flights, seen, wake};
use crate::trouble::Moved;
use crate::writer::Tx;

const PUT: &str = "INSERT INTO dead_letter (batcher, id, bk, reason, at_ms, entry) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
pub(super) const BY_ID: &str = "SELECT seq, entry FROM dead_letter WHERE batcher = ?1 AND id = ?2 ORDER BY seq LIMIT 1";
const DROP: &str = "DELETE FROM dead_letter WHERE seq = ?1";
const CLEAR: &str = "DELETE FROM dead_letter WHERE batcher = ?1";
const DROP_OLDER: &str = "DELETE FROM dead_letter WHERE batcher = ?1 AND at_ms < ?2";
pub(super) const OLDEST_FIRST: &str = "SELECT seq, entry FROM dead_letter WHERE batcher = ?1 AND seq > ?2 AND (?3 IS NULL OR reason = ?3) \
     AND (?4 IS NULL OR bk = ?4) ORDER BY seq LIMIT ?5";
pub(super) const NEWEST_FIRST: &str = "SELECT seq, entry FROM dead_letter WHERE batcher = ?1 AND seq < ?2 AND (?3 IS NULL OR reason = ?3) \
     AND (?4 IS NULL OR bk = ?4) ORDER BY seq DESC LIMIT ?5";
const AUDIT: &str = "INSERT INTO dead_letter_audit (at_ms, batcher, who, what) VALUES (?1, ?2, ?3, ?4)";

pub(super) fn put(conn: &Connection, batcher: &BatcherName, letter: &DeadLetter) -> Moved<()> {
    conn.prepare_cached(PUT)?.execute((
        batcher.as_str(),
        letter.id.as_str(),
        letter.key.as_ref().map(BatchKey::as_str),
        letter.reason.as_deref(),
        letter.at.map(Timestamp::as_millis),
        letter.entry.as_str(),
    ))?;
    Ok(())
}

fn by_id(conn: &Connection, batcher: &BatcherName, id: &BatchId) -> Moved<Option<(i64, DeadLetter)>> {
    let mut statement = conn.prepare_cached(BY_ID)?;
    let found = statement.query_row((batcher.as_str(), id.as_str()), |row| Ok((row.get(0)?, row.get::<_, String>(1)?)));
    Ok(found.optional()?.map(|(seq, entry)| (seq, DeadLetter::parse(entry))))
}

pub(super) fn one(conn: &Connection, batcher: &BatcherName, id: &BatchId) -> Moved<Option<DeadLetter>> {
    Ok(by_id(conn, batcher, id)?.map(|(_, letter)| letter))
}

pub(super) fn add(tx: &mut Tx<'_>, batcher: &BatcherId, letter: &DeadLetter, source: Option<&SourceId>) -> Moved<DeadReply> {
    let marks: Vec<_> = source.map(seen::of_source).into_iter().collect();
    if seen::any(tx.conn, &batcher.name, &marks, tx.now)? {
        return Ok(DeadReply::Duplicate);
    }
    seen::remember(tx.conn, &batcher.name, &marks, tx.now)?;
    put(tx.conn, &batcher.name, letter)?;
    Ok(DeadReply::Added)
}

pub(super) fn replay(tx: &mut Tx<'_>, batcher: &BatcherId, id: &BatchId) -> Moved<ReplayReply> {
    if flights::load(tx.conn, &batcher.name, id)?.is_some() {
        return Ok(ReplayReply::InFlight);
    }
    let Some((seq, letter)) = by_id(tx.conn, &batcher.name, id)? else { return Ok(ReplayReply::Gone) };
    let Some(flight) = letter.flight(tx.now) else { return Ok(ReplayReply::NotReplayable) };
    tx.conn.prepare_cached(DROP)?.execute([seq])?;
    flights::insert(tx.conn, &batcher.name, &flight, None)?;
    wake(tx, &batcher.name, Some(tx.now));
    Ok(ReplayReply::Replayed)
}

pub(super) fn drop_one(tx: &mut Tx<'_>, batcher: &BatcherId, id: &BatchId, who: &str) -> Moved<bool> {
    let Some((seq, _)) = by_id(tx.conn, &batcher.name, id)? else { return Ok(false) };
    tx.conn.prepare_cached(DROP)?.execute([seq])?;
    tx.conn.prepare_cached(AUDIT)?.execute((tx.now.as_millis(), batcher.name.as_str(), who, id.as_str()))?;
    Ok(true)
}

pub(super) fn clear(tx: &mut Tx<'_>, batcher: &BatcherId, who: &str) -> Moved<u64> {
    let count = tx.conn.prepare_cached(CLEAR)?.execute([batcher.name.as_str()])? as u64;
    if count > 0 {
        let what = format!("all {count}");
        tx.conn.prepare_cached(AUDIT)?.execute((tx.now.as_millis(), batcher.name.as_str(), who, what))?;
    }
    Ok(count)
}

/// Nothing loses its deadline here: an open batch and its deadline are one row.
pub(super) fn sweep(tx: &mut Tx<'_>, batcher: &BatcherId, keep: Option<Duration>) -> Moved<Swept> {
    let mut swept = Swept::default();
    if let Some(keep) = keep {
        let since = tx.now.as_millis().saturating_sub(millis(keep));
        swept.dead_removed = tx.conn.prepare_cached(DROP_OLDER)?.execute((batcher.name.as_str(), since))? as u64;
    }
    seen::sweep(tx.conn, 1_000, tx.now)?;
    Ok(swept)
}

pub(super) fn page(conn: &Connection, batcher: &BatcherName, query: &DeadLetterQuery) -> Moved<CursorPage<DeadLetter>> {
    let after: Option<i64> = query.after.as_ref().and_then(|cursor| cursor.0.parse().ok());
    let (sql, start) = if query.newest_first { (NEWEST_FIRST, i64::MAX) } else { (OLDEST_FIRST, 0) };
    let limit = query.limit.min(PageRequest::LIMIT_MAX) as usize;
    let columns =
        (batcher.as_str(), after.unwrap_or(start), query.reason.as_deref(), query.key.as_ref().map(BatchKey::as_str), limit as i64 + 1);
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(columns)?;
    let (mut items, mut last, mut bytes) = (Vec::new(), 0_i64, 0);
    while let Some(row) = rows.next()? {
        if items.len() == limit || bytes >= PageRequest::BYTES_MAX {
            let next = (!items.is_empty()).then(|| Cursor(last.to_string()));
            return Ok(CursorPage { items, next });
        }
        let entry: String = row.get(1)?;
        (last, bytes) = (row.get(0)?, bytes + entry.len());
        items.push(DeadLetter::parse(entry));
    }
    Ok(CursorPage { items, next: None })
}
