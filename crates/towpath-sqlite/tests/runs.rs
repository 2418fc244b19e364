//! What the embedded store does with runs beside the law: it removes those whose retention is over, and counts claims from its opening.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_conformance::words::{RUN_IDLE, RUN_RETAIN, run_id, run_place, start, worker_id};
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::store::{ClaimRuns, InspectStore, RunRequest, RunStore, TakeOverRuns};
use towpath_sqlite::{Location, OpenOptions, SqliteStore};

fn open(folder: &Path, clock: &VirtualClock) -> SqliteStore {
    let options = OpenOptions { location: Location::Path(folder.to_owned()), owner: "the test".to_owned(), renew_leases: true };
    SqliteStore::open(&options, Arc::new(clock.clone()) as Arc<dyn Clock>).expect("the folder can be opened")
}

fn rows(folder: &Path, table: &str) -> i64 {
    let database = rusqlite::Connection::open(folder.join("towpath.db")).expect("the file can be read");
    database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("the table is there")
}

#[tokio::test]
async fn closed_runs_leave_the_file_when_their_retention_is_over_without_another_start() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    for number in 0..20 {
        let run = store.start_run(start("order", number)).await;
        assert!(run.is_ok(), "{run:?}");
        let reason = Arc::from("the test");
        store.request_run(&run_id("order", number), RunRequest::Terminate { reason }).await.unwrap();
    }
    assert_eq!((rows(folder.path(), "runs"), rows(folder.path(), "run_journal")), (20, 40));
    clock.advance(RUN_RETAIN);
    // The writer removes them when no order has come for a moment; by the wall, so wait for that.
    let removed = async {
        while rows(folder.path(), "runs") + rows(folder.path(), "run_journal") > 0 {
            // Each probe is an answer of the writer, which then has a moment without orders.
            store.probe().await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), removed).await.expect("they go");
}

#[tokio::test]
async fn after_a_restart_a_claim_counts_from_the_opening() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    store.start_run(start("order", 1)).await.unwrap();
    let places: Arc<[_]> = [run_place("order")].into();
    let want = ClaimRuns { worker: worker_id("w1"), places: Arc::clone(&places), max: 1, idle: RUN_IDLE, wait: Duration::ZERO };
    assert_eq!(store.claim_runs(want).await.unwrap().len(), 1);
    store.close().await;
    clock.advance(RUN_IDLE * 10);
    let store = open(folder.path(), &clock);
    let take = || TakeOverRuns {
        worker: worker_id("w2"),
        places: Arc::clone(&places),
        max: 1,
        idle: RUN_IDLE,
        max_deliveries: 3,
        executing: Vec::new(),
    };
    assert_eq!(store.take_over_runs(take()).await.unwrap().claimed.len(), 0, "its owner could not renew while the store was closed");
    clock.advance(RUN_IDLE);
    assert_eq!(store.take_over_runs(take()).await.unwrap().claimed.len(), 1);
}
