//! The settings of batchers, as they are kept.

use rusqlite::{Connection, OptionalExtension, Row};
use towpath_core::names::BatcherName;
use towpath_core::payload::Payload;
use towpath_core::store::{BatcherPut, StoredBatcher};
use towpath_core::time::Timestamp;

use crate::rows::name;
use crate::trouble::Moved;
use crate::writer::Tx;

const LOAD: &str = "SELECT name, settings, version, updated_ms FROM batchers WHERE name = ?1";
const ALL: &str = "SELECT name, settings, version, updated_ms FROM batchers ORDER BY name";
const PUT: &str = "INSERT INTO batchers (name, settings, version, updated_ms) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (name) DO UPDATE SET settings = ?2, version = ?3, updated_ms = ?4";
const VERSION: &str = "SELECT coalesce(max(version), 0) FROM batchers";

/// How often anything was put.
pub(crate) fn version(conn: &Connection) -> Moved<u64> {
    Ok(conn.prepare_cached(VERSION)?.query_row([], |row| row.get(0))?)
}

pub(super) fn put(tx: &mut Tx<'_>, name: &BatcherName, settings: &Payload) -> Moved<BatcherPut> {
    let created = load(tx.conn, name)?.is_none();
    let version = version(tx.conn)? + 1;
    tx.conn.prepare_cached(PUT)?.execute((name.as_str(), settings.as_str(), version, tx.now.as_millis()))?;
    tx.after.batchers_version = Some(version);
    let stored = StoredBatcher { name: name.clone(), settings: settings.clone(), version, updated_at: tx.now };
    Ok(BatcherPut { created, stored })
}

pub(super) fn load(conn: &Connection, name: &BatcherName) -> Moved<Option<StoredBatcher>> {
    conn.prepare_cached(LOAD)?.query_row([name.as_str()], |row| Ok(read(row))).optional()?.transpose()
}

pub(super) fn all(conn: &Connection) -> Moved<Vec<StoredBatcher>> {
    let mut statement = conn.prepare_cached(ALL)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

fn read(row: &Row<'_>) -> Moved<StoredBatcher> {
    Ok(StoredBatcher {
        name: name(row, 0)?,
        settings: Payload::from_json(row.get::<_, String>(1)?),
        version: row.get(2)?,
        updated_at: Timestamp::from_millis(row.get(3)?),
    })
}
