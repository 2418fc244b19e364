//! Tests of your own functions: in memory, with a clock that you move, and without a single real wait.
//!
//! ```
//! use std::time::Duration;
//! use towpath::testing::TestTowpath;
//! use towpath::{CallContext, HandlerError};
//!
//! async fn charge(amount: i64, ctx: CallContext) -> Result<String, HandlerError> {
//!     match ctx.attempt() {
//!         1 => Err(HandlerError::retryable("bank_busy", "come back later")),
//!         _ => Ok(format!("charged {amount} once, under key {}", ctx.idempotency_key())),
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In your tests: #[tokio::test]
//! let test = TestTowpath::new().await;
//! let worker = test.worker().function("charge", charge).start().await?;
//!
//! // `finish` moves the clock to whatever is due next, for as long as the call needs it: here, two seconds to the second attempt.
//! let before = test.now();
//! let receipt: String = test.finish(test.call("charge", &5).idempotency_key("order-7")).await?;
//! assert_eq!(receipt, "charged 5 once, under key order-7");
//! assert_eq!(test.now().since(before), Duration::from_secs(2));
//!
//! // Or move it yourself, and look.
//! let handle = test.call::<String, _>("charge", &6).detach().await?;
//! test.advance(Duration::from_millis(1_999)).await;
//! let call = test.store().call(handle.call_id()).await?.unwrap().call;
//! assert_eq!((call.failures, call.state.as_str()), (1, "delayed"));
//! # drop(worker);
//! # Ok(())
//! # }
//! ```

mod crashes;

use std::collections::HashMap;
use std::future::IntoFuture;
use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

pub use crashes::CrashAt;

use towpath_core::clock::{Clock, VirtualClock};
use towpath_core::names::WorkflowName;
use towpath_core::run::RunId;
use towpath_core::store::{BatchStore, Store};
use towpath_core::time::Timestamp;

use self::crashes::CrashingRuns;
use crate::workflow::{RunError, WorkflowOptions};
use crate::{Observer, OpenError, RunningWorker, Towpath, TowpathBuilder, WorkerBuilder};

/// Turns that every ready task gets before the store is asked.
const TURNS: u32 = 32;
/// So many questions in a row that nobody else's reply comes between mean that nothing goes on any more.
const QUIET_ROUNDS: u32 = 3;
/// Nothing that a test waits for takes longer by the virtual clock.
const LONGEST_WAIT: Duration = Duration::from_secs(90 * 24 * 3_600);

/// A worker for runs that has nothing to do sleeps for this long.
const QUIET_WAIT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// A [`Towpath`] in memory under a clock that stands still until it is told to move.
///
/// Use it on the test's own runtime (`#[tokio::test]`, one thread). It is a `Towpath`: call and serve functions on it directly.
#[derive(Debug)]
pub struct TestTowpath {
    towpath: Towpath,
    clock: VirtualClock,
    replies: Arc<Replies>,
    runs: Arc<OnceLock<Arc<CrashingRuns>>>,
}

/// Counts the store's replies, which are the only sign that anything goes on, and attempts of tasks.
#[derive(Debug, Default)]
struct Replies(AtomicU64, Mutex<HashMap<String, u64>>);

impl Observer for Replies {
    fn replied(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn task_started(&self, _workflow: &WorkflowName, task: &str) {
        *self.1.lock().unwrap_or_else(PoisonError::into_inner).entry(task.to_owned()).or_insert(0) += 1;
    }
}

impl TestTowpath {
    /// An empty store in memory.
    ///
    /// # Panics
    /// If the store cannot be opened, which in memory does not happen.
    pub async fn new() -> Self {
        Self::open("memory:", VirtualClock::new()).await.expect("a store in memory can always be opened")
    }

    /// The store of this URL, under this clock: a file survives the test kit, and can be opened again.
    pub async fn open(url: &str, clock: VirtualClock) -> Result<Self, OpenError> {
        let (replies, runs) = (Arc::new(Replies::default()), Arc::new(OnceLock::new()));
        let kept: Arc<OnceLock<Arc<CrashingRuns>>> = Arc::clone(&runs);
        let builder =
            builder(&clock, &replies).wrap_runs(Box::new(move |store| kept.get_or_init(|| Arc::new(CrashingRuns::new(store))).clone()));
        Ok(Self { towpath: builder.open(url).await?, clock, replies, runs })
    }

    /// A store of your own, which must judge by this clock.
    pub fn with_store(store: Arc<dyn Store>, clock: VirtualClock) -> Self {
        let replies = Arc::new(Replies::default());
        let towpath = builder(&clock, &replies).with_store(store);
        Self { towpath, clock, replies, runs: Arc::default() }
    }

    /// The same, with a store that keeps batches too.
    pub fn with_batches<S: Store + BatchStore + 'static>(store: Arc<S>, clock: VirtualClock) -> Self {
        let replies = Arc::new(Replies::default());
        let towpath = builder(&clock, &replies).batch_store(Arc::<S>::clone(&store)).with_store(store);
        Self { towpath, clock, replies, runs: Arc::default() }
    }

    /// A worker to be, like [`Towpath::worker`]. With workflows it wakes up rarely, so that tests can move the clock by weeks: it may be silent
    /// for an hour. Give it other [`workflow_options`](WorkerBuilder::workflow_options) to change that.
    pub fn worker(&self) -> WorkerBuilder {
        let options = WorkflowOptions {
            claim_min_idle_time: Duration::from_secs(3_600),
            heartbeat_interval: Duration::from_secs(600),
            ..WorkflowOptions::default()
        };
        self.towpath.worker().quietly(options, QUIET_WAIT).build("test")
    }

    /// Has the worker crash that makes a commit: it hears nothing from the store any more, and its runs are taken over when it has been silent
    /// for too long. Start two workers.
    pub fn crash_at(&self, at: CrashAt) {
        if let Some(runs) = self.runs.get() {
            runs.crash_at(at);
        }
    }

    /// How many commits of runs there were since the start, or since the last [`crash_at`](Self::crash_at).
    pub fn commits(&self) -> u64 {
        self.runs.get().map_or(0, |runs| runs.commits())
    }

    /// How many attempts of tasks with this name have begun.
    pub fn executions(&self, task: &str) -> u64 {
        self.replies.1.lock().unwrap_or_else(PoisonError::into_inner).get(task).copied().unwrap_or(0)
    }

    /// The runs that were started here, children among them.
    pub fn run_ids(&self) -> Vec<RunId> {
        self.runs.get().map_or_else(Vec::new, |runs| runs.runs())
    }

    /// Replays the journal of every run against the code that a worker serves. Returns what differs: nothing, if the code still fits.
    pub async fn replay_all(&self, worker: &RunningWorker) -> Vec<RunError> {
        let mut errors = Vec::new();
        for run_id in self.run_ids() {
            errors.extend(worker.replay(&run_id).await.err());
        }
        errors
    }

    /// The handle itself, for code under test that wants to own one.
    pub fn towpath(&self) -> &Towpath {
        &self.towpath
    }

    /// The clock, to be moved by hand.
    pub fn virtual_clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// The present instant of that clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Moves the clock, from one thing that is due to the next, and lets each take effect before it goes on.
    pub async fn advance(&self, length: Duration) {
        let until = self.clock.now() + length;
        self.settle().await;
        while self.clock.now() < until {
            let next = self.clock.next_due().map_or(until, |due| due.min(until));
            self.clock.advance(next.since(self.clock.now()));
            self.settle().await;
        }
    }

    /// Waits for something, moving the clock to whatever is due next whenever nothing else can happen.
    ///
    /// # Panics
    /// If it has not ended after 90 days by the virtual clock.
    pub async fn finish<F: IntoFuture>(&self, work: F) -> F::Output {
        let mut work = pin!(work.into_future());
        let give_up_at = self.clock.now() + LONGEST_WAIT;
        loop {
            let step = async {
                self.settle().await;
                match self.clock.next_due() {
                    Some(due) if due <= give_up_at => self.clock.advance(due.since(self.clock.now())),
                    _ => panic!("what the test waits for has not ended after 90 days by the virtual clock"),
                }
            };
            tokio::select! {
                biased;
                result = &mut work => return result,
                () = step => {}
            }
        }
    }

    /// Lets everything happen that can happen without the clock moving.
    pub async fn settle(&self) {
        let mut quiet_rounds = 0;
        while quiet_rounds < QUIET_ROUNDS {
            let before = self.replies.0.load(Ordering::Relaxed);
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            // The store does one thing after the other: when it answers this, it has answered all that was asked before.
            // An error is an answer too.
            let _ = self.towpath.store().probe().await;
            let others = self.replies.0.load(Ordering::Relaxed) - before - 1;
            let is_reading = self.runs.get().is_some_and(|runs| runs.is_reading());
            quiet_rounds = if others == 0 && !is_reading { quiet_rounds + 1 } else { 0 };
        }
    }
}

fn builder(clock: &VirtualClock, replies: &Arc<Replies>) -> TowpathBuilder {
    let observer: Arc<dyn Observer> = Arc::<Replies>::clone(replies);
    // It has no bounds, so that nothing wakes every minute while a test moves the clock by days.
    Towpath::builder().clock(Arc::new(clock.clone())).observer(observer)
}

impl Deref for TestTowpath {
    type Target = Towpath;

    fn deref(&self) -> &Towpath {
        &self.towpath
    }
}
