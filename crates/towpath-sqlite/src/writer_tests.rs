//! What the writer says and knows after a transaction has failed.

use std::sync::Arc;

use rusqlite::ffi;
use tokio::sync::watch;
use towpath_core::call::{AttemptsBefore, CallRequest};
use towpath_core::clock::VirtualClock;
use towpath_core::names::{CallId, FunctionKey, FunctionName};
use towpath_core::store::{Durability, StoreError, StoreTrouble, SubmitCall};
use towpath_core::worker::FunctionDefinition;

use crate::calls;
use crate::ears::Ears;
use crate::jobs::job;
use crate::memory::Memory;
use crate::open::{self, Location, OpenOptions};
use crate::registry;
use crate::trouble::{Moved, Trouble};
use crate::writer::{Failed, Housekeeping, Order, Signals, Stats, Tx, Writer};

fn writer() -> Writer {
    let opened = open::open(&OpenOptions { location: Location::Memory, owner: String::new(), renew_leases: false }).unwrap();
    let memory = Memory::load(&opened.writer).unwrap();
    let (due, functions) = (watch::channel(None).0, watch::channel(0).0);
    let (config, batchers) = (watch::channel(0).0, watch::channel(0).0);
    let signals = Signals { ears: Arc::new(Ears::default()), due, functions, config, batchers, stats: Arc::new(Stats::default()) };
    let clock = Arc::new(VirtualClock::new());
    let housekeeping = Housekeeping::default();
    Writer {
        conn: opened.writer,
        lock: None,
        files: None,
        clock,
        memory,
        signals,
        parked: Vec::new(),
        broken: None,
        housekeeping,
        jumped: std::time::Duration::ZERO,
    }
}

fn function() -> FunctionKey {
    FunctionKey::global(FunctionName::new("add").unwrap())
}

fn submit(id: &str) -> SubmitCall {
    let (call_id, request) = (CallId::new(id).unwrap(), CallRequest::of(function()));
    let hour = std::time::Duration::from_secs(3_600);
    SubmitCall {
        call_id,
        request,
        timeout: hour,
        retain: hour,
        fail_without_workers: false,
        fresh: false,
        before: AttemptsBefore::default(),
        continues: false,
    }
}

fn run<R: Send + 'static>(writer: &mut Writer, run: impl FnMut(&mut Tx<'_>) -> Moved<R> + Send + 'static) -> Result<R, StoreError> {
    let (order, mut reply) = job(run);
    let Order::Job(job) = order else { panic!("a job is a job") };
    writer.serve(vec![job], Vec::new());
    reply.try_recv().expect("it is answered")
}

fn queued(writer: &Writer) -> u64 {
    let id = writer.memory.function(&function()).unwrap().id;
    writer.memory.counts(id).queued
}

#[test]
fn a_failed_commit_is_unknown_unless_another_commit_has_overwritten_it() {
    let mut writer = writer();
    let full = || Failed::InCommit(Trouble::Sqlite { code: ffi::SQLITE_FULL, message: "full".into() });
    assert!(matches!(writer.after_failure(&full()), StoreError::Unavailable(StoreTrouble::Full(_))), "another commit went through");
    writer.conn.pragma_update(None, "query_only", true).unwrap();
    assert!(matches!(writer.after_failure(&full()), StoreError::Unknown(_)), "nothing can be written, so it is not known");
    let before = Failed::BeforeCommit(Trouble::Sqlite { code: ffi::SQLITE_FULL, message: "full".into() });
    assert!(
        matches!(writer.after_failure(&before), StoreError::Unavailable(StoreTrouble::Full(_))),
        "a transaction without commit is nothing"
    );
    writer.conn.pragma_update(None, "query_only", false).unwrap();
    assert!(run(&mut writer, |tx| Ok(tx.now)).is_ok(), "work goes on");
}

#[test]
fn a_failed_move_takes_its_counts_back_without_counting_all_calls_again() {
    let mut writer = writer();
    run(&mut writer, |tx| registry::define(tx, &FunctionDefinition::new(function()))).unwrap();
    run(&mut writer, |tx| calls::submit(tx, &submit("one"), Durability::Fsync)).unwrap();
    // A row that the writer does not know of: it would show in counts that were read again.
    let hidden = "INSERT INTO calls (seq, call_id, function_id, state, submitted_ms, deadline_ms, retain_ms, failures, crashes, delivery, \
                  lease_ms, parked, cancel_requested) SELECT 1000, 'hidden', id, 'queued', 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM functions";
    writer.conn.execute_batch(hidden).unwrap();
    let failed = run(&mut writer, |tx| {
        calls::submit(tx, &submit("two"), Durability::Fsync)?;
        Err::<(), _>(Trouble::Corrupt("on purpose".into()))
    });
    assert!(matches!(failed, Err(StoreError::Corrupt(_))));
    assert_eq!(queued(&writer), 1);
    run(&mut writer, |tx| calls::submit(tx, &submit("three"), Durability::Fsync)).unwrap();
    assert_eq!(queued(&writer), 2);
    assert_eq!(Memory::load(&writer.conn).unwrap().counts(1).queued, 3, "the hidden one, too");
}

#[test]
fn after_a_full_disk_a_probe_writes_as_much_as_calls_need() {
    let mut writer = writer();
    let bytes = |writer: &Writer| writer.conn.query_row("SELECT octet_length(bytes) FROM filler", [], |row| row.get::<_, i64>(0)).unwrap();
    run(&mut writer, crate::inspect::probe).unwrap();
    assert_eq!(bytes(&writer), 0);
    writer.after_failure(&Failed::BeforeCommit(Trouble::Sqlite { code: ffi::SQLITE_FULL, message: "full".into() }));
    run(&mut writer, crate::inspect::probe).unwrap();
    assert!(bytes(&writer) > 100_000, "there is room for that");
    run(&mut writer, crate::inspect::probe).unwrap();
    assert_eq!(bytes(&writer), 0, "it does not stay");
}

#[test]
fn a_probe_whose_commit_failed_says_what_is_wrong_and_not_that_this_is_unknown() {
    let told = |is_full| crate::inspect::told_by_a_probe(StoreError::Unknown("a commit failed".to_owned()), is_full);
    assert!(matches!(told(true), StoreError::Unavailable(StoreTrouble::Full(_))));
    assert!(matches!(told(false), StoreError::Unavailable(StoreTrouble::Other(_))));
}
