//! Workers: what they serve, how many calls at once, and how they start.

mod running;

use std::any::{Any, TypeId};
use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use towpath_core::names::WorkerId;
use towpath_core::worker::{FunctionDefinition, Offer, RegisterWorker};

pub use running::{DrainReport, RunningWorker};

use crate::Towpath;
use crate::batches::{Batch, BatchFailure, HandlerReceiver, InProcess, Receiver, Which};
use crate::context::CallContext;
use crate::engine::desk::{Desk, Served, Timing};
use crate::engine::permits::Permits;
use crate::error::{HandlerError, WorkerError};
use crate::handler::{FunctionOptions, RawHandler, Typed};
use crate::limits::Turns;
use crate::params::Parameters;
use crate::workflow::{Workflow, WorkflowContext, WorkflowOptions, Workflows};

const CONCURRENCY_DEFAULT: u32 = 16;
const CONCURRENCY_MAX: u32 = 1_000_000;
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
const LEASE_SHORTEST: Duration = Duration::from_millis(100);
const LEASE_LONGEST: Duration = Duration::from_secs(7 * 24 * 3_600);
const DRAIN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(25);
const CANCEL_GRACE_DEFAULT: Duration = Duration::from_secs(5);

/// A worker to be. Add functions, then [`start`](WorkerBuilder::start) it or [`run_until`](WorkerBuilder::run_until) a signal.
#[must_use = "a worker serves nothing until it is started"]
pub struct WorkerBuilder {
    towpath: Towpath,
    worker_id: Option<WorkerId>,
    kind: String,
    concurrency: u32,
    timing: Timing,
    functions: Vec<(FunctionOptions, Arc<dyn RawHandler>)>,
    batches: Vec<(Which, Arc<dyn Receiver>)>,
    workflows: Workflows,
}

impl WorkerBuilder {
    pub(crate) fn new(towpath: Towpath) -> Self {
        let timing = Timing { lease: LEASE_DEFAULT, drain_timeout: DRAIN_TIMEOUT_DEFAULT, cancel_grace: CANCEL_GRACE_DEFAULT };
        let kind = "rust".to_owned();
        let (functions, batches, workflows) = (Vec::new(), Vec::new(), Workflows::default());
        Self { towpath, worker_id: None, kind, concurrency: CONCURRENCY_DEFAULT, timing, functions, batches, workflows }
    }

    /// Its id. Default: made of the host's name, the process and chance. Two live workers must not share one.
    pub fn id(mut self, worker_id: WorkerId) -> Self {
        self.worker_id = Some(worker_id);
        self
    }

    /// What sort of worker it is, for people. Default: `rust`.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// How many handlers run at once. Default: 16. A handler that waits for a nested call does not count.
    pub fn concurrency(mut self, concurrency: u32) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// How long this worker may be silent before its calls are given to others. Default: 30 s; it is renewed after a third.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.timing.lease = lease;
        self
    }

    /// How long a drain waits for handlers before it hands their calls back. Default: 25 s.
    pub fn drain_timeout(mut self, drain_timeout: Duration) -> Self {
        self.timing.drain_timeout = drain_timeout;
        self
    }

    /// How long a handler may take to stop after it was asked to. Default: 5 s.
    pub fn cancel_grace(mut self, cancel_grace: Duration) -> Self {
        self.timing.cancel_grace = cancel_grace;
        self
    }

    /// Serves a function with an async closure: params and context in, a result or a [`HandlerError`] out.
    pub fn function<F, P, R, Fut>(self, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(P, CallContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
        P: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
    {
        self.function_with(FunctionOptions::new(name), handler)
    }

    /// Serves a function with options of its own.
    pub fn function_with<F, P, R, Fut>(self, options: FunctionOptions, handler: F) -> Self
    where
        F: Fn(P, CallContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
        P: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
    {
        self.raw_function(options, Arc::new(Typed::new(handler)))
    }

    /// Serves a function with a handler of JSON text.
    pub fn raw_function(mut self, options: FunctionOptions, handler: Arc<dyn RawHandler>) -> Self {
        self.functions.push((options, handler));
        self
    }

    /// Receives the batches of a batcher with an async closure, whatever its target is. `Ok` is the end of a batch, any error another
    /// attempt, [`BatchFailure::Fatal`] a dead letter.
    pub fn batches<F, Fut>(mut self, which: impl Into<Which>, handler: F) -> Self
    where
        F: Fn(Batch) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BatchFailure>> + Send + 'static,
    {
        self.batches.push((which.into(), Arc::new(HandlerReceiver::new(handler))));
        self
    }

    /// Executes the runs of a workflow with an async function: input and context in, a result or a [`HandlerError`] out.
    pub fn workflow<I, O, F, Fut>(mut self, workflow: &Workflow<I, O>, handler: F) -> Self
    where
        F: Fn(I, WorkflowContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, HandlerError>> + Send + 'static,
        I: DeserializeOwned + 'static,
        O: Serialize + 'static,
    {
        self.workflows.add(workflow, handler);
        self
    }

    /// How it executes runs.
    pub fn workflow_options(mut self, options: WorkflowOptions) -> Self {
        self.workflows.options = options;
        self
    }

    /// Executes runs of these shards, too, of all its workflows. Default: only runs without a shard.
    pub fn shards<S: Into<String>>(mut self, shards: impl IntoIterator<Item = S>) -> Self {
        self.workflows.shards = shards.into_iter().map(Into::into).collect();
        self
    }

    /// Which build of the program this is. A run that does not fit one build waits for another. Default: a hash of the executable.
    pub fn build(mut self, build: impl Into<String>) -> Self {
        self.workflows.build = Some(build.into());
        self
    }

    /// A value that tasks of workflows ask for by its type: [`TaskContext::state`](crate::workflow::TaskContext::state).
    pub fn state<T: Any + Send + Sync>(mut self, state: T) -> Self {
        self.workflows.states.insert(TypeId::of::<T>(), Arc::new(state));
        self
    }

    /// Waits for runs without waking up meanwhile: for tests, whose clock jumps from one wake-up to the next.
    pub(crate) fn quietly(mut self, options: WorkflowOptions, claim_wait: Duration) -> Self {
        self.workflows.claim_wait = Some(claim_wait);
        self.workflow_options(options)
    }

    /// Registers the worker and starts claiming calls and runs.
    pub async fn start(self) -> Result<RunningWorker, WorkerError> {
        self.check()?;
        let serves_calls = !self.functions.is_empty() || !self.batches.is_empty();
        let mut receivers = Vec::new();
        for (which, receiver) in &self.batches {
            receivers.push(InProcess::start(&self.towpath, which, Arc::clone(receiver)).await?);
        }
        let worker_id = self.worker_id.clone().unwrap_or_else(|| self.towpath.ids().worker_id());
        check_rates(&self.towpath, &self.functions).await?;
        let (offers, served) = serve(&self.towpath, self.functions)?;
        let introduction = RegisterWorker { worker_id, kind: self.kind, offers };
        let (desk, finished) = Desk::new(self.towpath.clone(), introduction, self.timing, served, self.concurrency);
        let store = self.towpath.store();
        if serves_calls {
            self.towpath.retry_lost_replies(|| store.register(desk.introduction.clone())).await?;
        }
        let workflows = match self.workflows {
            none if none.is_empty() => None,
            some => Some(some.start(&self.towpath, desk.worker_id().clone(), self.timing.drain_timeout).await?),
        };
        Ok(RunningWorker::start(desk, finished, receivers, workflows, serves_calls))
    }

    /// Runs the worker until `shutdown` ends, then drains it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use towpath::{CallContext, HandlerError, Towpath};
    ///
    /// let towpath = Towpath::open("memory:").await?;
    /// # let shutdown = async {}; // in a service: a signal
    /// let report = towpath
    ///     .worker()
    ///     .function("greet", |name: String, _: CallContext| async move { Ok::<_, HandlerError>(format!("hello {name}")) })
    ///     .run_until(shutdown)
    ///     .await?;
    /// assert_eq!(report.handed_back, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<DrainReport, WorkerError> {
        let worker = self.start().await?;
        shutdown.await;
        Ok(worker.drain().await)
    }

    fn check(&self) -> Result<(), WorkerError> {
        let out_of_range = |field, message: String| Err(WorkerError::OutOfRange { field, message });
        if !(LEASE_SHORTEST..=LEASE_LONGEST).contains(&self.timing.lease) {
            return out_of_range("lease", format!("must be between 100 ms and 7 days, not {:?}", self.timing.lease));
        }
        let per_function = self.functions.iter().filter_map(|(options, _)| options.concurrency);
        for concurrency in per_function.chain([self.concurrency]) {
            if !(1..=CONCURRENCY_MAX).contains(&concurrency) {
                return out_of_range("concurrency", format!("must be between 1 and {CONCURRENCY_MAX}, not {concurrency}"));
            }
        }
        if self.functions.is_empty() && self.batches.is_empty() && self.workflows.is_empty() {
            Err(WorkerError::NoFunctions)
        } else {
            Ok(())
        }
    }
}

/// A function whose rate names no policy would wait for it without a word. One that was defined elsewhere was checked there.
async fn check_rates(towpath: &Towpath, functions: &[(FunctionOptions, Arc<dyn RawHandler>)]) -> Result<(), WorkerError> {
    for (options, _) in functions.iter().filter(|(options, _)| !options.is_defined_elsewhere) {
        let definition = options.definition()?;
        let Some(rate) = &definition.limits.rate else { continue };
        if let Err(error) = towpath.check_rate(&rate.scope_of(&definition.key)?, &rate.policy).await {
            return Err(WorkerError::Rate { function: definition.key, error: Box::new(error) });
        }
    }
    Ok(())
}

/// What the registry is told, and what the worker needs itself.
fn serve(towpath: &Towpath, functions: Vec<(FunctionOptions, Arc<dyn RawHandler>)>) -> Result<(Vec<Offer>, Vec<Arc<Served>>), WorkerError> {
    let mut seen = HashSet::new();
    let (mut offers, mut served) = (Vec::new(), Vec::new());
    for (options, handler) in functions {
        let definition = options.definition()?;
        if !seen.insert(definition.key.clone()) {
            return Err(WorkerError::Duplicate { function: definition.key });
        }
        served.push(Arc::new(Served {
            key: definition.key.clone(),
            handler,
            parameters: compile(&options, &definition)?,
            permits: Permits::for_function(options.concurrency),
            counted_by_store: definition.limits.max_concurrent.is_some(),
            turns: turns(towpath, &definition)?,
        }));
        // The worker counts its own permits, so the store need not.
        offers.push(Offer { definition, concurrency: None });
    }
    Ok((offers, served))
}

fn turns(towpath: &Towpath, definition: &FunctionDefinition) -> Result<Option<Turns>, WorkerError> {
    let Some(rate) = &definition.limits.rate else { return Ok(None) };
    rate.scope_of(&definition.key)?; // a name that is too long is refused now, not when the first call comes
    Ok(towpath.turns_at(&definition.key, rate))
}

fn compile(options: &FunctionOptions, definition: &FunctionDefinition) -> Result<Parameters, WorkerError> {
    if options.is_defined_elsewhere {
        return Ok(Parameters::of(definition)); // this worker cannot mend it, and calls must not wait until somebody does
    }
    let compiled = definition.parameters.as_ref().map_or_else(|| Ok(Parameters::anything()), Parameters::compile);
    compiled.map_err(|error| WorkerError::InvalidParameters { function: definition.key.clone(), message: error.to_string() })
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let functions: Vec<&FunctionOptions> = self.functions.iter().map(|(options, _)| options).collect();
        f.debug_struct("WorkerBuilder").field("id", &self.worker_id).field("functions", &functions).finish_non_exhaustive()
    }
}
