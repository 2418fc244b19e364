//! The bare loop that the store is measured against: the same rows in the same tables, batch by batch, and nothing else.
//!
//! A call costs three moves: its row is written, rewritten when it is claimed and rewritten when it is answered. Each transaction of
//! the loop holds as many moves of each kind, as a busy store's transactions do.

use std::path::Path;

use rusqlite::Connection;

use crate::open::{self, Location, OpenError, OpenOptions};

const INSERT_CALL: &str = "INSERT INTO calls (seq, call_id, function_id, state, due_ms, submitted_ms, deadline_ms, retain_ms, failures, \
     crashes, delivery, parked, cancel_requested) VALUES (?1, ?2, 1, 'queued', ?3, ?4, ?3, 600000, 0, 0, 0, 0, 0)";
const INSERT_REQUEST: &str = "INSERT INTO call_requests (seq, params, depth) VALUES (?1, ?2, 0)";
const CLAIM: &str = "UPDATE calls SET state = 'running', due_ms = ?2, delivery = 1, holder = 'worker-1', started_ms = ?3, \
     lease_until_ms = ?2 WHERE seq = ?1";
const COMPLETE: &str = "UPDATE calls SET state = 'completed', due_ms = ?2, lease_until_ms = NULL, ended_ms = ?3 WHERE seq = ?1";
const INSERT_OUTCOME: &str = "INSERT INTO call_outcomes (seq, kind, data) VALUES (?1, 'ok', ?2)";

/// A file of its own for the bare loop.
pub struct Floor {
    conn: Connection,
    next_seq: i64,
    params: String,
}

impl Floor {
    /// Opens a new database in `folder` as the store would, `synchronous=FULL` included.
    pub fn open(folder: &Path, params: &str) -> Result<Self, OpenError> {
        let options = OpenOptions { location: Location::Path(folder.join("floor.db")), owner: "towpath bench".to_owned() };
        let opened = open::open(&options)?;
        Ok(Self { conn: opened.writer, next_seq: 1, params: params.to_owned() })
    }

    /// Writes, claims and completes `calls` calls, in transactions of `moves_per_commit` moves.
    pub fn run(&mut self, calls: u64, moves_per_commit: u64) -> Result<(), OpenError> {
        let step = i64::try_from((moves_per_commit / 3).max(1)).unwrap_or(1);
        let end = self.next_seq + i64::try_from(calls).unwrap_or(i64::MAX - self.next_seq);
        let mut at = self.next_seq;
        // Two more rounds than needed for the writes, so that the last calls are claimed and completed too.
        while at < end + 2 * step {
            self.transaction(at, step, self.next_seq..end)
                .map_err(|cause| OpenError::Sqlite { path: "floor.db".into(), cause: cause.to_string() })?;
            at += step;
        }
        self.next_seq = end;
        Ok(())
    }

    fn transaction(&self, at: i64, step: i64, all: std::ops::Range<i64>) -> rusqlite::Result<()> {
        const NOW: i64 = 1_800_000_000_000;
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for seq in (at..at + step).filter(|seq| all.contains(seq)) {
            let call_id = format!("0198c0de-0000-7000-8000-{seq:012}");
            self.conn.prepare_cached(INSERT_CALL)?.execute((seq, call_id, NOW + 30_000 + seq, NOW + seq))?;
            self.conn.prepare_cached(INSERT_REQUEST)?.execute((seq, &self.params))?;
        }
        for seq in (at - step..at).filter(|seq| all.contains(seq)) {
            self.conn.prepare_cached(CLAIM)?.execute((seq, NOW + 30_000 + seq, NOW + seq))?;
        }
        for seq in (at - 2 * step..at - step).filter(|seq| all.contains(seq)) {
            self.conn.prepare_cached(COMPLETE)?.execute((seq, NOW + 600_000 + seq, NOW + seq))?;
            self.conn.prepare_cached(INSERT_OUTCOME)?.execute((seq, &self.params))?;
        }
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_bare_loop_is_written_claimed_and_completed() {
        let folder = tempfile::tempdir().unwrap();
        let mut floor = Floor::open(folder.path(), r#"{"a":1}"#).unwrap();
        floor.run(10, 9).unwrap();
        floor.run(5, 1).unwrap();
        let done: i64 = floor.conn.query_row("SELECT count(*) FROM calls WHERE state = 'completed'", [], |row| row.get(0)).unwrap();
        let outcomes: i64 = floor.conn.query_row("SELECT count(*) FROM call_outcomes", [], |row| row.get(0)).unwrap();
        assert_eq!((done, outcomes), (15, 15));
    }
}
