//! A Redis with a server, a worker behind it, and a worker and callers of the library in this process; and whether they work.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::runtime::Runtime;
use towpath::{CallContext, CallError, HandlerError, RunningWorker, Towpath};

use crate::crowd::runtime;
use crate::pull_worker::{self, Pace};
use crate::rig::serve;
use crate::support::{Beside, Server};

/// Work goes on within so long after the trouble is over, on a busy machine.
const SOON: Duration = Duration::from_secs(8);
/// A call that is lost in the trouble is given up after so long, and made anew.
const PATIENCE: Duration = Duration::from_secs(2);

/// Everybody who works on one store.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) towpath: Towpath,
    pub(crate) runtime: Runtime,
    /// How often the function `inside` ran.
    pub(crate) inside: Arc<AtomicU32>,
    _inside: RunningWorker,
    _outside: Beside,
}

impl Scene {
    /// Two functions: `outside` is served by a process behind the server, `inside` by a worker of this one. Their leases are short, so that
    /// calls lost in the trouble are soon delivered again.
    pub(crate) fn set(store: &str) -> Self {
        Self::set_with_lease(store, Duration::from_secs(1))
    }

    /// The same with another lease. The worker outside does not renew: on a machine that stalls for longer than a short lease, its calls are
    /// rightly delivered again.
    pub(crate) fn set_with_lease(store: &str, lease: Duration) -> Self {
        let server = serve(store);
        let lease_ms = u32::try_from(lease.as_millis()).unwrap();
        let outside = pull_worker::start(&server, "outside", Pace { lease_ms, ..Pace::QUICK });
        let runtime = runtime();
        let inside = Arc::new(AtomicU32::new(0));
        let (towpath, worker) = runtime.block_on(async {
            let towpath = Towpath::open(store).await.unwrap();
            let counter = Arc::clone(&inside);
            let worker = towpath.worker().lease(lease).function("inside", move |params: Value, _: CallContext| {
                counter.fetch_add(1, Ordering::Relaxed);
                async move { Ok::<_, HandlerError>(params) }
            });
            (towpath.clone(), worker.start().await.unwrap())
        });
        let scene = Self { server, towpath, runtime, inside, _inside: worker, _outside: outside };
        scene.works();
        scene
    }

    /// Both functions answer, and soon. What is lost on the way is called again, as a user would.
    #[track_caller]
    pub(crate) fn works(&self) {
        let begun = now();
        for function in ["outside", "inside"] {
            let mut failures = Vec::new();
            while let Err(error) = self.runtime.block_on(self.call(function)) {
                failures.push(format!("{:?}: {error}", begun.elapsed()));
                assert!(begun.elapsed() < SOON, "'{function}' does not work any more: {failures:#?}");
            }
            assert!(begun.elapsed() < SOON, "'{function}' took {:?} to work again: {failures:#?}", begun.elapsed());
        }
        println!("works after {:?}", begun.elapsed());
    }

    async fn call(&self, function: &str) -> Result<Value, CallError> {
        self.towpath.call(function, "hello").timeout(PATIENCE).wait_for_function(PATIENCE).await
    }

    /// What the worker outside ran.
    pub(crate) fn notes(&self) -> std::path::PathBuf {
        self.server.path("runs")
    }
}

/// How often a call ran, by a worker's notes.
pub(crate) fn runs_of(notes: &Path, call_id: &str) -> u32 {
    pull_worker::runs(notes).get(call_id).copied().unwrap_or(0)
}

/// Lets the trouble last.
pub(crate) fn for_a_while(length: Duration) {
    let begun = now();
    while begun.elapsed() < length {
        std::thread::park_timeout(length - begun.elapsed());
    }
}

#[expect(clippy::disallowed_methods, reason = "real processes are measured by the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
