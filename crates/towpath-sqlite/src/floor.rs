//! The bare loop that the store is measured against: the same rows in the same tables, batch by batch, and nothing else.
//!
//! A call costs three moves: its row is written, rewritten when it is claimed and rewritten when it is answered. The loop makes them in
//! turn, each kind as far behind the one before as in a busy store, and commits after as many moves as the store did on average.

use std::ops::Range;
use std::path::Path;

use rusqlite::Connection;

use crate::open::{self, Location, OpenError, OpenOptions};

const INSERT_CALL: &str = "INSERT INTO calls (seq, call_id, function_id, state, deadline_ms, submitted_ms, retain_ms, failures, \
     crashes, delivery, lease_ms, parked, cancel_requested) VALUES (?1, ?2, 1, 'queued', ?3, ?4, 600000, 0, 0, 0, 0, 0, 0)";
const INSERT_REQUEST: &str = "INSERT INTO call_requests (seq, params, depth) VALUES (?1, ?2, 0)";
const CLAIM: &str = "UPDATE calls SET state = 'running', delivery = 1, holder = 'worker-1', started_ms = ?3, \
     lease_ms = 30000, lease_until_ms = ?2 WHERE seq = ?1";
const COMPLETE: &str =
    "UPDATE calls SET state = 'completed', kept_until_ms = ?2, lease_ms = 0, lease_until_ms = NULL, ended_ms = ?3 WHERE seq = ?1";
const INSERT_OUTCOME: &str = "INSERT INTO call_outcomes (seq, kind, data) VALUES (?1, 'ok', ?2)";

const INSERT_RUN: &str = "INSERT INTO runs (run_id, place, workflow, input_hash, state, turn, created_ms, changed_ms, header) \
     VALUES (?1, 'floor', 'floor', '', 'running', ?2, ?2, ?2, ?3)";
const COMMIT_TASK: &str = "INSERT INTO run_journal (run_id, number, at_ms, kind, body) VALUES (?1, ?2, ?3, 'done', ?4)";
const UPDATE_RUN: &str = "UPDATE runs SET changed_ms = ?2, header = ?3 WHERE run_id = ?1";

const NOW: i64 = 1_800_000_000_000;

/// A file of its own for the bare loop.
pub struct Floor {
    conn: Connection,
    next_seq: i64,
    params: String,
}

impl Floor {
    /// Opens a new database in `folder` as the store would, `synchronous=FULL` included.
    pub fn open(folder: &Path, params: &str) -> Result<Self, OpenError> {
        let options =
            OpenOptions { location: Location::Path(folder.join("floor.db")), owner: "towpath bench".to_owned(), renew_leases: false };
        let opened = open::open(&options)?;
        Ok(Self { conn: opened.writer, next_seq: 1, params: params.to_owned() })
    }

    /// Writes, claims and completes `calls` calls, with a commit after every `moves_per_commit` moves on average.
    pub fn run(&mut self, calls: u64, moves_per_commit: f64) -> Result<(), OpenError> {
        let end = self.next_seq + i64::try_from(calls).unwrap_or(i64::MAX - self.next_seq);
        let done = self.run_range(self.next_seq..end, moves_per_commit.max(1.0));
        self.next_seq = end;
        done.map_err(|cause| OpenError::Sqlite { path: "floor.db".into(), cause: cause.to_string() })
    }

    fn run_range(&self, calls: Range<i64>, moves_per_commit: f64) -> rusqlite::Result<()> {
        let behind = ((moves_per_commit / 3.0) as i64).max(1);
        let mut pace = Pace { conn: &self.conn, moves_per_commit, moves: 0.0, next_commit: moves_per_commit };
        pace.begin()?;
        for seq in calls.start..calls.end + 2 * behind {
            if calls.contains(&seq) {
                self.submit(seq)?;
                pace.moved()?;
            }
            if calls.contains(&(seq - behind)) {
                self.claim(seq - behind)?;
                pace.moved()?;
            }
            if calls.contains(&(seq - 2 * behind)) {
                self.complete(seq - 2 * behind)?;
                pace.moved()?;
            }
        }
        pace.commit()
    }

    /// Writes `runs` runs of `tasks` tasks: a row for each run, and for each task an entry of the journal and the run's header anew, which is one
    /// move. Commits after every `moves_per_commit` moves on average.
    pub fn run_tasks(&mut self, runs: u64, tasks: u32, moves_per_commit: f64) -> Result<(), OpenError> {
        let first = self.next_seq;
        self.next_seq += i64::try_from(runs).unwrap_or(i64::MAX - first);
        let done = self.tasks_of(first..self.next_seq, tasks, moves_per_commit.max(1.0));
        done.map_err(|cause| OpenError::Sqlite { path: "floor.db".into(), cause: cause.to_string() })
    }

    fn tasks_of(&self, runs: Range<i64>, tasks: u32, moves_per_commit: f64) -> rusqlite::Result<()> {
        let header = format!("{:0512}", 0); // about as long as the header of a run
        let mut pace = Pace { conn: &self.conn, moves_per_commit, moves: 0.0, next_commit: moves_per_commit };
        pace.begin()?;
        for seq in runs {
            let run_id = format!("floor-{seq:026}");
            self.conn.prepare_cached(INSERT_RUN)?.execute((&run_id, NOW + seq, &header))?;
            for number in 0..tasks {
                self.conn.prepare_cached(COMMIT_TASK)?.execute((&run_id, number, NOW + seq, &self.params))?;
                self.conn.prepare_cached(UPDATE_RUN)?.execute((&run_id, NOW + seq, &header))?;
                pace.moved()?;
            }
        }
        pace.commit()
    }

    fn submit(&self, seq: i64) -> rusqlite::Result<()> {
        let call_id = format!("0198c0de-0000-7000-8000-{seq:012}");
        self.conn.prepare_cached(INSERT_CALL)?.execute((seq, call_id, NOW + 30_000 + seq, NOW + seq))?;
        self.conn.prepare_cached(INSERT_REQUEST)?.execute((seq, &self.params))?;
        Ok(())
    }

    fn claim(&self, seq: i64) -> rusqlite::Result<()> {
        self.conn.prepare_cached(CLAIM)?.execute((seq, NOW + 30_000 + seq, NOW + seq))?;
        Ok(())
    }

    fn complete(&self, seq: i64) -> rusqlite::Result<()> {
        self.conn.prepare_cached(COMPLETE)?.execute((seq, NOW + 600_000 + seq, NOW + seq))?;
        self.conn.prepare_cached(INSERT_OUTCOME)?.execute((seq, &self.params))?;
        Ok(())
    }
}

/// Commits after as many moves as it should, on average: 1.5 is one and two in turn.
struct Pace<'a> {
    conn: &'a Connection,
    moves_per_commit: f64,
    moves: f64,
    next_commit: f64,
}

impl Pace<'_> {
    fn begin(&self) -> rusqlite::Result<()> {
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop)
    }

    fn commit(&self) -> rusqlite::Result<()> {
        self.conn.prepare_cached("COMMIT")?.execute([]).map(drop)
    }

    fn moved(&mut self) -> rusqlite::Result<()> {
        self.moves += 1.0;
        if self.moves < self.next_commit {
            return Ok(());
        }
        self.next_commit += self.moves_per_commit;
        self.commit()?;
        self.begin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_bare_loop_is_written_claimed_and_completed() {
        let folder = tempfile::tempdir().unwrap();
        let mut floor = Floor::open(folder.path(), r#"{"a":1}"#).unwrap();
        floor.run(10, 9.0).unwrap();
        floor.run(5, 1.5).unwrap();
        let done: i64 = floor.conn.query_row("SELECT count(*) FROM calls WHERE state = 'completed'", [], |row| row.get(0)).unwrap();
        let outcomes: i64 = floor.conn.query_row("SELECT count(*) FROM call_outcomes", [], |row| row.get(0)).unwrap();
        assert_eq!((done, outcomes), (15, 15));
    }

    #[test]
    fn every_task_of_the_bare_loop_is_an_entry_of_a_journal() {
        let folder = tempfile::tempdir().unwrap();
        let mut floor = Floor::open(folder.path(), "{}").unwrap();
        floor.run_tasks(4, 3, 2.5).unwrap();
        let entries: i64 = floor.conn.query_row("SELECT count(*) FROM run_journal", [], |row| row.get(0)).unwrap();
        let runs: i64 = floor.conn.query_row("SELECT count(*) FROM runs", [], |row| row.get(0)).unwrap();
        assert_eq!((runs, entries), (4, 12));
    }
}
