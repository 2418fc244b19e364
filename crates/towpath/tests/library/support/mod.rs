//! What the tests of the library share: a bench on the model or on the embedded store, and short words.

pub(crate) mod broken_runs;
pub(crate) mod faulty;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use towpath::testing::TestTowpath;
use towpath::{CallId, CallState, VirtualClock};
use towpath_conformance::model::ModelStore;
use towpath_core::call::Call;

/// Runs each test on the model, which is deterministic, and on the embedded store in memory, which is real.
#[macro_export]
macro_rules! on_every_store {
    ($($test:ident)*) => {
        mod on_the_model {
            $(#[tokio::test]
            async fn $test() {
                $crate::support::in_time(super::$test($crate::support::on_the_model())).await;
            })*
        }
        mod on_the_embedded_store {
            $(#[tokio::test]
            async fn $test() {
                $crate::support::in_time(super::$test(towpath::testing::TestTowpath::new().await)).await;
            })*
        }
    };
}

/// A test that is stuck fails instead of hanging. By the real clock: nothing else moves when everything is stuck.
pub(crate) async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(seconds(120), test).await.expect("the test is stuck")
}

pub(crate) fn on_the_model() -> TestTowpath {
    let clock = VirtualClock::new();
    TestTowpath::with_batches(Arc::new(ModelStore::new(Arc::new(clock.clone()))), clock)
}

pub(crate) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// The call as the store has it.
pub(crate) async fn call(test: &TestTowpath, call_id: &CallId) -> Call {
    test.store().call(call_id).await.unwrap().expect("the call is known").call
}

pub(crate) async fn state(test: &TestTowpath, call_id: &CallId) -> CallState {
    call(test, call_id).await.state
}

/// Sets something going beside the test.
pub(crate) fn start<T: Send + 'static>(work: impl IntoFuture<Output = T, IntoFuture: Send + 'static>) -> tokio::task::JoinHandle<T> {
    tokio::spawn(work.into_future())
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

    /// Something that counts when it is dropped.
    pub(crate) fn on_drop(&self) -> OnDrop {
        OnDrop(self.clone())
    }
}

pub(crate) struct OnDrop(Count);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// How many are inside at once, and how many were at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowd {
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Crowd {
    pub(crate) async fn enter<T>(&self, work: impl Future<Output = T>) -> T {
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let result = work.await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        result
    }

    pub(crate) fn inside(&self) -> usize {
        self.inside.load(Ordering::SeqCst)
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}
