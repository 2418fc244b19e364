//! What the embedded store does with runs beside the law: it removes those whose retention is over, counts claims from its opening, and leaves
//! out what it cannot read.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_conformance::words::{RUN_IDLE, RUN_RETAIN, child, entry, run_id, run_place, start, step, waits_for_timers, worker_id};
use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::run::{ClosePolicy, Commit, Entry, EntryKind, Post, RunId, RunState, Then, TimerAt};
use towpath_core::store::{
    ClaimRuns, Forgotten, InspectStore, Retention, RunCommitted, RunFilter, RunPageRequest, RunRenewal, RunRequest, RunStore, StartRun,
    StoreError, TakeOverRuns, TimerStore,
};
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

/// Makes the header of a run something that is not one, as a person or a later version may.
fn spoil(folder: &Path, run: &RunId) {
    let database = rusqlite::Connection::open(folder.join("towpath.db")).expect("the file can be written");
    let changed =
        database.execute("UPDATE runs SET header = '{\"later\":1}' WHERE run_id = ?1", [run.as_str()]).expect("the table is there");
    assert_eq!(changed, 1);
}

fn claim(max: u32, wait: Duration) -> ClaimRuns {
    ClaimRuns { worker: worker_id("w1"), places: [run_place("order")].into(), max, idle: RUN_IDLE, wait }
}

fn ids(claimed: &[towpath_core::store::ClaimedRun]) -> Vec<RunId> {
    claimed.iter().map(|claimed| claimed.run.run_id.clone()).collect()
}

#[tokio::test]
async fn a_run_that_cannot_be_read_holds_up_no_claim_and_no_list_and_is_named() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    for number in 1..=4 {
        store.start_run(start("order", number)).await.unwrap();
    }
    for number in [1, 2] {
        spoil(folder.path(), &run_id("order", number));
    }
    let listed = store.runs(&RunFilter::default(), RunPageRequest { after: None, limit: 10 }).await.unwrap();
    assert_eq!(listed.runs.len(), 2);
    for number in [3, 4] {
        let claimed = store.claim_runs(claim(1, Duration::ZERO)).await.unwrap();
        assert_eq!(ids(&claimed), [run_id("order", number)], "the two before it stay in the queue");
    }
    assert!(store.claim_runs(claim(1, Duration::ZERO)).await.unwrap().is_empty());
    let problems = store.probe().await.unwrap().problems;
    assert!(problems.len() == 2 && problems[0].contains(run_id("order", 1).as_str()), "{problems:?}");
    assert!(matches!(store.run(&run_id("order", 1)).await, Err(StoreError::Corrupt(_))), "asked for alone, it is an error");
}

#[tokio::test]
async fn a_claim_of_a_run_that_cannot_be_read_is_lost_and_the_others_are_renewed_and_taken_over() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    for number in [1, 2] {
        store.start_run(start("order", number)).await.unwrap();
    }
    let claimed = store.claim_runs(claim(2, Duration::ZERO)).await.unwrap();
    spoil(folder.path(), &run_id("order", 1));
    let claims = claimed.iter().map(|claimed| (claimed.run.run_id.clone(), claimed.run.epoch)).collect();
    let renewals = store.renew_runs(&worker_id("w1"), claims).await.unwrap();
    assert!(matches!(renewals[..], [RunRenewal::Lost, RunRenewal::Held { .. }]), "{renewals:?}");
    clock.advance(RUN_IDLE);
    let take = TakeOverRuns {
        worker: worker_id("w2"),
        places: [run_place("order")].into(),
        max: 1,
        idle: RUN_IDLE,
        max_deliveries: 3,
        executing: Vec::new(),
    };
    assert_eq!(ids(&store.take_over_runs(take).await.unwrap().claimed), [run_id("order", 2)]);
    store.close().await;
    open(folder.path(), &clock).close().await; // neither does it keep the store from opening
}

#[tokio::test]
async fn the_timer_of_a_run_that_cannot_be_read_holds_up_no_other_and_is_not_due_all_the_time() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    for number in [1, 2] {
        store.start_run(StartRun { delay: Duration::from_secs(u64::from(number)), ..start("order", number) }).await.unwrap();
    }
    spoil(folder.path(), &run_id("order", 1));
    clock.advance(Duration::from_secs(5));
    let first = store.fire_runs(1).await.unwrap();
    assert_eq!(first.fired, 0);
    let second = store.fire_runs(1).await.unwrap();
    assert_eq!(second.fired, 1, "the other one is not behind it");
    assert!(second.next_due.is_some_and(|at| at > clock.now()), "{second:?}");
    assert_eq!(store.claim_runs(claim(2, Duration::ZERO)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_row_of_a_timer_that_no_header_has_is_removed() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    store.start_run(start("order", 1)).await.unwrap();
    let database = rusqlite::Connection::open(folder.path().join("towpath.db")).unwrap();
    for run in [1, 2] {
        database.execute("INSERT INTO run_timers VALUES (?1, 'start', 1)", [run_id("order", run).as_str()]).unwrap();
    }
    let fired = store.fire_runs(10).await.unwrap();
    assert_eq!((fired.fired, fired.next_due, rows(folder.path(), "run_timers")), (0, None, 0));
}

#[tokio::test]
async fn a_post_to_a_run_that_cannot_be_read_waits_and_holds_up_no_other() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    let parent = run_id("order", 1);
    store.start_run(start("order", 1)).await.unwrap();
    store.start_run(start("order", 2)).await.unwrap();
    let claimed = store.claim_runs(claim(2, Duration::ZERO)).await.unwrap();
    let (one, create) = child(&parent, 1, 9, ClosePolicy::Cancel);
    let child_id = one.run_id.clone();
    let cancel = Post::Cancel { to: run_id("order", 2), reason: Arc::from("the test") };
    let commit = Commit {
        owner: worker_id("w1"),
        epoch: claimed[0].run.epoch,
        revision: 0,
        digest: Arc::from("1"),
        entries: Vec::new(),
        consumed: Vec::new(),
        seen: 0,
        armed: Vec::new(),
        disarmed: Vec::new(),
        children: vec![one],
        posts: vec![cancel, create],
        published: Vec::new(),
        then: Then::Stay,
    };
    assert!(matches!(store.commit_run(&parent, commit).await.unwrap(), RunCommitted::Committed { .. }));
    spoil(folder.path(), &run_id("order", 2));
    assert_eq!(store.send_posts(10).await.unwrap(), 1);
    assert!(store.run(&child_id).await.unwrap().is_some());
    let next = store.fire_runs(10).await.unwrap().next_due;
    assert!(next.is_some_and(|at| at > clock.now()), "the other post is tried again later: {next:?}");
}

#[tokio::test]
async fn after_a_clock_that_was_ahead_no_run_waits_longer_than_its_own_length() {
    let (folder, ahead, right) = (tempfile::tempdir().unwrap(), VirtualClock::new(), VirtualClock::new());
    ahead.advance(Duration::from_secs(7_200));
    let store = open(folder.path(), &ahead);
    let delay = Duration::from_secs(10);
    store.start_run(StartRun { delay, ..start("order", 1) }).await.unwrap();
    store.start_run(StartRun { timeout: Some(delay * 2), ..start("order", 2) }).await.unwrap();
    store.start_run(start("order", 3)).await.unwrap();
    store.request_run(&run_id("order", 3), RunRequest::Terminate { reason: Arc::from("the test") }).await.unwrap();
    store.start_run(start("shipping", 4)).await.unwrap();
    let want = ClaimRuns { places: [run_place("shipping")].into(), ..claim(1, Duration::ZERO) };
    let claimed = store.claim_runs(want).await.unwrap().remove(0).run;
    let commit = Commit {
        owner: worker_id("w1"),
        epoch: claimed.epoch,
        revision: 0,
        digest: Arc::from("1"),
        entries: vec![Entry { step: Some(step(1)), ..entry(EntryKind::Open, "{}") }],
        consumed: Vec::new(),
        seen: 0,
        armed: vec![(step(1), TimerAt::After(delay * 3))],
        disarmed: Vec::new(),
        children: Vec::new(),
        posts: Vec::new(),
        published: Vec::new(),
        then: waits_for_timers(),
    };
    assert!(matches!(store.commit_run(&claimed.run_id, commit).await.unwrap(), RunCommitted::Committed { .. }));
    store.close().await;

    let store = open(folder.path(), &right);
    let state = async |place: &str, number: u8| store.run(&run_id(place, number)).await.unwrap().map(|view| view.run.state);
    for (after, expected) in [(9, 0), (1, 1), (10, 1), (10, 1)] {
        right.advance(Duration::from_secs(after));
        assert_eq!(store.fire_runs(10).await.unwrap().fired, expected, "{after} s later");
    }
    assert_eq!(state("order", 1).await, Some(RunState::Ready), "its start was delayed by 10 s");
    assert_eq!(state("order", 2).await, Some(RunState::Cancelled), "its deadline was 20 s away");
    assert_eq!(state("shipping", 4).await, Some(RunState::Ready), "it slept for 30 s");
    right.advance(RUN_RETAIN - Duration::from_secs(30));
    assert_eq!(state("order", 3).await, None, "its retention is over");
}

#[tokio::test]
async fn a_store_that_is_too_large_gives_up_closed_runs_but_none_of_the_last_minute() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = open(folder.path(), &clock);
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    for number in 1..=8 {
        store.start_run(StartRun { begin: entry(EntryKind::Begin, &large), ..start("order", number) }).await.unwrap();
        if number <= 6 {
            store.request_run(&run_id("order", number), RunRequest::Terminate { reason: Arc::from("the test") }).await.unwrap();
        }
    }
    let keep = Retention { bytes: Some(4 << 20), ..Retention::FOREVER };
    assert_eq!(store.forget_old(&keep, 8).await.unwrap(), Forgotten::default(), "all of them closed just now");
    clock.advance(Duration::from_secs(60));
    let mut removed = 0;
    loop {
        let forgotten = store.forget_old(&keep, 8).await.unwrap();
        if forgotten.runs == 0 {
            break;
        }
        assert!(forgotten.has_more(8));
        removed += forgotten.runs;
    }
    assert!((4..=6).contains(&removed), "{removed} runs of 1 MiB were removed for 4 MiB");
    for number in [7, 8] {
        assert!(store.run(&run_id("order", number)).await.unwrap().is_some(), "an open run stays");
    }
    let counts = store.run_places().await.unwrap().remove(0).counts;
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 8 - removed, "{counts:?}");
}

/// Runs of several thousand places, so that a filter by state has more places than are merged.
#[tokio::test]
async fn a_list_over_very_many_places_is_whole() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::new());
    let store = Arc::new(open(folder.path(), &clock));
    let mut starting = tokio::task::JoinSet::new();
    for number in 0..2_500_u32 {
        let (store, name) = (Arc::clone(&store), format!("order-{number}"));
        let place = run_place(&name);
        let run = StartRun { run_id: RunId::new(&place, u128::from(number)), place, ..start("order", 1) };
        starting.spawn(async move { store.start_run(run).await });
    }
    while let Some(started) = starting.join_next().await {
        assert!(matches!(started, Ok(Ok(_))), "{started:?}");
    }
    let last = RunId::new(&run_place("order-7"), 7);
    store.request_run(&last, RunRequest::Terminate { reason: Arc::from("the test") }).await.unwrap();
    for (state, expected) in [(RunState::Ready, 2_499), (RunState::Terminated, 1)] {
        let filter = RunFilter { states: vec![state], ..RunFilter::default() };
        let (mut page, mut listed) = (RunPageRequest { after: None, limit: 200 }, std::collections::BTreeSet::new());
        loop {
            let found = store.runs(&filter, page.clone()).await.unwrap();
            for view in found.runs {
                assert!(listed.insert(view.run.run_id), "no run is listed twice");
            }
            let Some(next) = found.next else { break };
            page.after = Some(next);
        }
        assert_eq!(listed.len(), expected, "{state}");
    }
}
