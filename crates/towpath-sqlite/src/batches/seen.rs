//! Ids that were taken, so that a repeat is known as such.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use towpath_core::batch::{NewMessage, Rules, SOURCE_KEPT, SourceId};
use towpath_core::names::BatcherName;
use towpath_core::time::Timestamp;

use crate::trouble::Moved;

const LOAD: &str = "SELECT until_ms FROM batch_seen WHERE batcher = ?1 AND id = ?2";
const PUT: &str =
    "INSERT INTO batch_seen (batcher, id, until_ms) VALUES (?1, ?2, ?3) ON CONFLICT (batcher, id) DO UPDATE SET until_ms = ?3";
pub(super) const OVER: &str = "SELECT batcher, id FROM batch_seen WHERE until_ms <= ?1 ORDER BY until_ms LIMIT ?2";
const DROP: &str = "DELETE FROM batch_seen WHERE batcher = ?1 AND id = ?2";

/// Every message sweeps so many ids that are over: more go than come.
const SWEPT_PER_MESSAGE: usize = 4;

/// An id, and how long it counts.
pub(super) struct Mark {
    id: String,
    keep: Duration,
}

/// The ids of a message that are remembered.
pub(super) fn marks(message: &NewMessage, rules: &Rules) -> Vec<Mark> {
    let remembered = message.message_id.as_ref().filter(|_| !rules.idempotency.is_zero());
    let id = remembered.map(|id| Mark { id: format!("i:{}:{}", message.key, id.as_str()), keep: rules.idempotency });
    id.into_iter().chain(message.source.as_ref().map(of_source)).collect()
}

pub(super) fn of_source(source: &SourceId) -> Mark {
    Mark { id: format!("s:{source}"), keep: SOURCE_KEPT }
}

/// Whether any of them was taken, and still counts.
pub(super) fn any(conn: &Connection, batcher: &BatcherName, marks: &[Mark], now: Timestamp) -> Moved<bool> {
    for mark in marks {
        let mut statement = conn.prepare_cached(LOAD)?;
        let until: Option<i64> = statement.query_row((batcher.as_str(), &mark.id), |row| row.get(0)).optional()?;
        if until.is_some_and(|until| until > now.as_millis()) {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn remember(conn: &Connection, batcher: &BatcherName, marks: &[Mark], now: Timestamp) -> Moved<()> {
    for mark in marks {
        conn.prepare_cached(PUT)?.execute((batcher.as_str(), &mark.id, (now + mark.keep).as_millis()))?;
    }
    Ok(())
}

/// Forgets some of what is over.
pub(super) fn sweep(conn: &Connection, messages: usize, now: Timestamp) -> Moved<()> {
    let limit = i64::try_from(messages.saturating_mul(SWEPT_PER_MESSAGE)).unwrap_or(i64::MAX);
    let mut statement = conn.prepare_cached(OVER)?;
    let over: Vec<(String, String)> =
        statement.query_map((now.as_millis(), limit), |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    for (batcher, id) in over {
        conn.prepare_cached(DROP)?.execute((batcher, id))?;
    }
    Ok(())
}
