//! What the tests of workflows share.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use towpath::VirtualClock;
use towpath::testing::TestTowpath;
use towpath::workflow::{RunId, RunState};
use towpath_core::run::EntryKind;
use towpath_core::store::JournalEntry;

/// Runs each test on the embedded store in memory and in a file.
#[macro_export]
macro_rules! on_memory_and_file {
    ($($test:ident)*) => {
        mod in_memory {
            $(#[tokio::test]
            async fn $test() {
                $crate::support::in_time(super::$test(towpath::testing::TestTowpath::new().await)).await;
            })*
        }
        mod in_a_file {
            $(#[tokio::test]
            async fn $test() {
                let folder = tempfile::tempdir().unwrap();
                $crate::support::in_time(super::$test($crate::support::in_file(&folder).await)).await;
            })*
        }
    };
}

pub(crate) async fn in_file(folder: &tempfile::TempDir) -> TestTowpath {
    let url = format!("sqlite:{}", folder.path().join("data").display());
    TestTowpath::open(&url, VirtualClock::new()).await.unwrap()
}

/// A test that is stuck fails instead of hanging. By the real clock: nothing else moves when everything is stuck.
pub(crate) async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), test).await.expect("the test is stuck")
}

pub(crate) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 86_400)
}

/// The journal as it stands.
pub(crate) async fn journal(test: &TestTowpath, run_id: &RunId) -> Vec<JournalEntry> {
    test.run_store().unwrap().journal(run_id, 0, usize::MAX).await.unwrap()
}

/// The kinds of the journal's entries.
pub(crate) async fn kinds(test: &TestTowpath, run_id: &RunId) -> Vec<&'static str> {
    journal(test, run_id).await.into_iter().map(|entry| entry.entry.kind.as_str()).collect()
}

/// Each step that was opened has exactly one result.
pub(crate) fn assert_one_result_per_step(journal: &[JournalEntry], steps: usize) {
    let of = |kind: EntryKind| -> Vec<_> {
        let mut ids: Vec<_> =
            journal.iter().filter(|entry| entry.entry.kind == kind).map(|entry| entry.entry.step.clone().unwrap()).collect();
        ids.sort();
        ids
    };
    let (opened, done) = (of(EntryKind::Open), of(EntryKind::Done));
    assert_eq!(opened, done);
    assert_eq!(done.len(), steps);
    assert!(done.windows(2).all(|pair| pair[0] != pair[1]), "a step has two results");
}

pub(crate) async fn state(test: &TestTowpath, run_id: &RunId) -> RunState {
    test.run_store().unwrap().run(run_id).await.unwrap().unwrap().run.state
}

/// Counts, from anywhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
