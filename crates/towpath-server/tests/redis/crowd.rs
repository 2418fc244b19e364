//! Many careful callers at once: each repeats its call under the same id until it has the answer, and all that was heard is kept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use towpath::{CallError, CallState, Observer, Outcome, StoreError, Towpath};

use crate::support::wait_for;

/// Longer than any of the faults, so that a caller who misses its answer makes the test fail.
const TIMEOUT: Duration = Duration::from_secs(50);

/// Callers at work.
pub(crate) struct Crowd {
    answered: Arc<AtomicUsize>,
    troubles: Arc<Troubles>,
    working: JoinHandle<BTreeMap<String, Value>>,
}

/// What callers were told.
pub(crate) struct Told {
    /// By call.
    pub(crate) answers: BTreeMap<String, Value>,
    /// How often the store did not answer them.
    pub(crate) troubles: usize,
}

/// Counts what the store did not answer.
#[derive(Default)]
struct Troubles(AtomicUsize);

impl Observer for Troubles {
    fn store_error(&self, _error: &StoreError) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// So many calls, unless the environment asks for another number: `TOWPATH_FAULT_CALLS=20000`.
pub(crate) fn calls_or(default: usize) -> usize {
    std::env::var("TOWPATH_FAULT_CALLS").ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

pub(crate) fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("call-{number}")).collect()
}

impl Crowd {
    /// Calls the function once per id, so many at a time.
    pub(crate) fn call(store: &str, function: &str, ids: Vec<String>, at_once: usize) -> Self {
        let (answered, troubles) = (Arc::new(AtomicUsize::new(0)), Arc::new(Troubles::default()));
        let (store, function) = (store.to_owned(), function.to_owned());
        let (count, observer) = (Arc::clone(&answered), Arc::<Troubles>::clone(&troubles));
        let working = std::thread::spawn(move || {
            runtime().block_on(async move {
                let towpath = Towpath::builder().observer(observer).open(&store).await.unwrap();
                let callers = futures_util::stream::iter(ids).map(|id| {
                    let (towpath, function) = (towpath.clone(), function.as_str());
                    let count = Arc::clone(&count);
                    async move {
                        let answer = insist(&towpath, function, &id).await;
                        count.fetch_add(1, Ordering::Relaxed);
                        (id, answer)
                    }
                });
                callers.buffer_unordered(at_once).collect().await
            })
        });
        Self { answered, troubles, working }
    }

    /// How many have their answer.
    pub(crate) fn heard(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until so many have their answer.
    pub(crate) fn has_heard(&self, count: usize) {
        wait_for(&format!("{count} answers"), || (self.heard() >= count || self.working.is_finished()).then_some(()));
    }

    /// Waits for all.
    pub(crate) fn told(self) -> Told {
        Told { answers: self.working.join().expect("every caller has its answer"), troubles: self.troubles.0.load(Ordering::Relaxed) }
    }
}

async fn insist(towpath: &Towpath, function: &str, id: &str) -> Value {
    let begun = towpath.clock().now();
    loop {
        match towpath.call(function, id).call_id(id).timeout(TIMEOUT).await {
            Ok(answer) => return answer,
            Err(CallError::Store { error, .. }) => {
                assert!(towpath.clock().now().since(begun) < TIMEOUT, "{id} has no answer: {error}");
                towpath.clock().sleep_until(towpath.clock().now() + Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{id}: {error}"),
        }
    }
}

/// What a store has about calls that ended.
pub(crate) struct Kept {
    /// How often a worker that held one of them went silent.
    pub(crate) crashes: u64,
}

/// Holds what callers were told against what a process that was never killed finds in the store.
pub(crate) fn is_kept(store: &str, told: &Told) -> Kept {
    let crashes = Mutex::new(0);
    runtime().block_on(async {
        let towpath = Towpath::open(store).await.unwrap();
        let looks = futures_util::stream::iter(&told.answers).for_each_concurrent(128, |(id, answer)| {
            let (towpath, crashes) = (towpath.clone(), &crashes);
            async move {
                let view = towpath.store().call(&id.parse().unwrap()).await.unwrap().unwrap_or_else(|| panic!("{id} is gone"));
                assert_eq!(view.call.state, CallState::Completed, "{id}");
                let Some(Outcome::Ok(data)) = &view.call.outcome else { panic!("{id}: {:?}", view.call.outcome) };
                let data: Value = serde_json::from_slice(data.as_bytes()).unwrap();
                assert_eq!(data, *answer, "the caller of {id} was told something else");
                assert_eq!(data["params"], id.as_str(), "{id} has the answer of another call");
                *crashes.lock().unwrap() += u64::from(view.call.crashes);
            }
        });
        looks.await;
    });
    Kept { crashes: crashes.into_inner().unwrap() }
}
