//! The queues of locks and permits: rows by arrival, of which only those that changed are written.

use rusqlite::Connection;
use towpath_core::lock::Waiter;
use towpath_core::names::{LockScope, WaiterId};
use towpath_core::time::Timestamp;

use crate::trouble::{Moved, Trouble};

pub(crate) const LOAD: &str =
    "SELECT arrival, waiter, alive_until_ms, weight FROM lock_waiters WHERE kind = ?1 AND scope = ?2 ORDER BY arrival";
const PUT: &str = "INSERT INTO lock_waiters (kind, scope, arrival, waiter, alive_until_ms, weight) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
     ON CONFLICT (kind, scope, arrival) DO UPDATE SET alive_until_ms = ?5, weight = ?6";
const DROP: &str = "DELETE FROM lock_waiters WHERE kind = ?1 AND scope = ?2 AND arrival = ?3";

pub(crate) fn load(conn: &Connection, kind: &str, scope: &LockScope) -> Moved<Vec<Waiter>> {
    let mut statement = conn.prepare_cached(LOAD)?;
    let mut rows = statement.query((kind, scope.as_str()))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let waiter = WaiterId::try_from(row.get::<_, String>(1)?).map_err(|cause| Trouble::Corrupt(cause.to_string()))?;
        found.push(Waiter { waiter, arrival: row.get(0)?, alive_until: Timestamp::from_millis(row.get(2)?), weight: row.get(3)? });
    }
    Ok(found)
}

pub(crate) fn save(conn: &Connection, kind: &str, scope: &LockScope, before: &[Waiter], after: &[Waiter]) -> Moved<()> {
    // Both are sorted by arrival.
    let find = |list: &[Waiter], arrival: u64| list.binary_search_by_key(&arrival, |place| place.arrival).ok();
    for gone in before.iter().filter(|place| find(after, place.arrival).is_none()) {
        conn.prepare_cached(DROP)?.execute((kind, scope.as_str(), gone.arrival))?;
    }
    for place in after {
        if find(before, place.arrival).is_none_or(|known| before[known] != *place) {
            let row = (kind, scope.as_str(), place.arrival, place.waiter.as_str(), place.alive_until.as_millis(), place.weight);
            conn.prepare_cached(PUT)?.execute(row)?;
        }
    }
    Ok(())
}
