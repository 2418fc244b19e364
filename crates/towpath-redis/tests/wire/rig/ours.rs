//! Workers of ours that write down which calls they ran.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use towpath::{Backoff, CallContext, FunctionOptions, HandlerError, RetryPolicy, RunningWorker, Towpath};

use super::{ADD, SOON};

#[derive(Serialize, Deserialize)]
pub(crate) struct Add {
    pub(crate) a: i64,
    pub(crate) b: i64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sum {
    pub(crate) sum: i64,
}

/// The ids of the calls that ran, in their order. Clones share it.
#[derive(Clone)]
pub(crate) struct Runs(Arc<watch::Sender<Vec<String>>>);

impl Runs {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// How often a call ran.
    pub(crate) fn of(&self, call_id: &str) -> usize {
        self.0.borrow().iter().filter(|id| *id == call_id).count()
    }

    /// Waits until so many have begun.
    pub(crate) async fn reach(&self, count: usize) {
        self.reach_within(count, SOON).await;
    }

    pub(crate) async fn reach_within(&self, count: usize, limit: Duration) {
        let mut ids = self.0.subscribe();
        let reached = timeout(limit, ids.wait_for(|ids| ids.len() >= count)).await.map(|reached| reached.is_ok());
        assert_eq!(reached, Ok(true), "of {count} runs only these: {:?}", self.ids());
    }

    fn note(&self, ctx: &CallContext) {
        self.0.send_modify(|ids| ids.push(ctx.call_id().to_string()));
    }
}

/// A worker of ours to be, serving the function of these tests.
pub(crate) struct Ours {
    pub(crate) runs: Runs,
    gate: Option<Arc<Semaphore>>,
    concurrency: u32,
    scope: &'static str,
    fails_with: Option<&'static str>,
    fails_until_attempt: u32,
}

impl Ours {
    pub(crate) fn new() -> Self {
        Self { runs: Runs::new(), gate: None, concurrency: 16, scope: "__global__", fails_with: None, fails_until_attempt: 1 }
    }

    /// Its handlers end only when the gate has a permit for each.
    pub(crate) fn behind(mut self, gate: &Arc<Semaphore>) -> Self {
        self.gate = Some(Arc::clone(gate));
        self
    }

    pub(crate) fn concurrency(mut self, concurrency: u32) -> Self {
        self.concurrency = concurrency;
        self
    }

    pub(crate) fn scope(mut self, scope: &'static str) -> Self {
        self.scope = scope;
        self
    }

    /// Every call fails for good.
    pub(crate) fn fails_with(mut self, message: &'static str) -> Self {
        self.fails_with = Some(message);
        self
    }

    /// Every call fails twice and then goes well.
    pub(crate) fn fails_twice(mut self) -> Self {
        self.fails_until_attempt = 3;
        self
    }

    pub(crate) async fn start(self, towpath: &Towpath) -> RunningWorker {
        let Self { runs, gate, concurrency, scope, fails_with, fails_until_attempt } = self;
        let handler = move |add: Add, ctx: CallContext| {
            runs.note(&ctx);
            let gate = gate.clone();
            async move {
                if let Some(gate) = gate {
                    gate.acquire().await.expect("nobody closes the gate").forget();
                }
                match fails_with {
                    None if ctx.attempt() < fails_until_attempt => Err(HandlerError::retryable("not_yet", "try again")),
                    Some(message) => Err(HandlerError::fatal("no_luck", message)),
                    None => Ok(Sum { sum: add.a + add.b }),
                }
            }
        };
        let at_once = RetryPolicy { backoff: Backoff::Fixed { delay_ms: 10 }, ..RetryPolicy::default() };
        let options = FunctionOptions::new(ADD).scope(scope).retry(at_once);
        let worker = towpath.worker().concurrency(concurrency).function_with(options, handler);
        worker.start().await.expect("the server is there")
    }
}
