//! Messages as rows, in order of arrival.

use rusqlite::Connection;
use towpath_core::batch::Message;
use towpath_core::inspect::PageRequest;

use crate::trouble::Moved;

const APPEND: &str = "INSERT INTO batch_message (batch, body) VALUES (?1, ?2)";
pub(super) const OF: &str = "SELECT seq, body FROM batch_message WHERE batch = ?1 ORDER BY seq LIMIT ?2";
const PAGE: &str = "SELECT body FROM batch_message WHERE batch = ?1 ORDER BY seq LIMIT ?2 OFFSET ?3";
const HAND_OVER: &str = "UPDATE batch_message SET batch = ?2 WHERE batch = ?1 AND seq <= ?3";
const FORGET: &str = "DELETE FROM batch_message WHERE batch = ?1";

/// A message and its place.
pub(super) struct Placed {
    seq: i64,
    pub(super) body: Message,
}

pub(super) fn append(conn: &Connection, batch: i64, message: &Message) -> Moved<()> {
    conn.prepare_cached(APPEND)?.execute((batch, message.as_bytes()))?;
    Ok(())
}

/// The first messages of a batch.
pub(super) fn first(conn: &Connection, batch: i64, limit: u64) -> Moved<Vec<Placed>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = conn.prepare_cached(OF)?;
    let rows = statement.query_map((batch, limit), |row| Ok(Placed { seq: row.get(0)?, body: Message::new(row.get::<_, Vec<u8>>(1)?) }))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// All messages of a batch.
pub(super) fn all(conn: &Connection, batch: i64) -> Moved<Vec<Message>> {
    Ok(first(conn, batch, u64::MAX)?.into_iter().map(|placed| placed.body).collect())
}

/// A page of the messages of a batch, from this place on.
pub(super) fn page(conn: &Connection, batch: i64, from: u64) -> Moved<Vec<Message>> {
    let mut statement = conn.prepare_cached(PAGE)?;
    let mut rows = statement.query((batch, PageRequest::LIMIT_MAX, i64::try_from(from).unwrap_or(i64::MAX)))?;
    let (mut messages, mut bytes) = (Vec::new(), 0);
    while bytes < PageRequest::BYTES_MAX
        && let Some(row) = rows.next()?
    {
        let message = Message::new(row.get::<_, Vec<u8>>(0)?);
        bytes += message.as_bytes().len();
        messages.push(message);
    }
    Ok(messages)
}

/// Gives these first messages of a batch to another.
pub(super) fn hand_over(conn: &Connection, from: i64, to: i64, messages: &[Placed]) -> Moved<()> {
    if let Some(last) = messages.last() {
        conn.prepare_cached(HAND_OVER)?.execute((from, to, last.seq))?;
    }
    Ok(())
}

pub(super) fn forget(conn: &Connection, batch: i64) -> Moved<()> {
    conn.prepare_cached(FORGET)?.execute([batch])?;
    Ok(())
}
