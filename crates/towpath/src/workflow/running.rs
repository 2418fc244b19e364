//! The part of a worker that executes runs: how it starts, and how it leaves.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use towpath_core::names::{BuildId, Shard, WorkerId, WorkflowName, WorkflowVersion};
use towpath_core::run::{RunId, RunPlace};

use super::code::{Served, TypedWorkflow};
use super::context::WorkflowContext;
use super::definition::Workflow;
use super::error::RunError;
use super::execution::Trouble;
use super::host::{Host, HostParts};
use super::loops;
use super::options::WorkflowOptions;
use super::recorded::Journal;
use super::replay::Progress;
use super::task::States;
use crate::Towpath;
use crate::engine::supervised::{Health, supervise};
use crate::error::{HandlerError, WorkerError};

/// How long runs may take to leave after they were told to leave at once.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// What a worker is to serve: workflows, options, values for tasks.
#[derive(Default)]
pub(crate) struct Workflows {
    served: Vec<(Result<RunPlace, towpath_core::names::InvalidName>, Arc<dyn Served>)>,
    pub(crate) options: WorkflowOptions,
    pub(crate) build: Option<String>,
    pub(crate) states: States,
    pub(crate) shards: Vec<String>,
    /// Waits longer than `block_time` for runs: nothing needs to wake up meanwhile.
    pub(crate) claim_wait: Option<Duration>,
}

impl Workflows {
    pub(crate) fn add<I, O, F, Fut>(&mut self, workflow: &Workflow<I, O>, handler: F)
    where
        F: Fn(I, WorkflowContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, HandlerError>> + Send + 'static,
        I: serde::de::DeserializeOwned + 'static,
        O: serde::Serialize + 'static,
    {
        self.served.push((workflow.place(), Arc::new(TypedWorkflow::new(handler))));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.served.is_empty()
    }

    /// Registers the build and starts the loops.
    pub(crate) async fn start(
        self,
        towpath: &Towpath,
        worker_id: WorkerId,
        drain_timeout: Duration,
    ) -> Result<RunningWorkflows, WorkerError> {
        self.options.check()?;
        let store = towpath.run_store().cloned().ok_or(WorkerError::NoRunStore)?;
        let mut served: HashMap<(WorkflowName, WorkflowVersion), Arc<dyn Served>> = HashMap::new();
        for (place, code) in self.served {
            let RunPlace { workflow, version, .. } = place?;
            if served.insert((workflow.clone(), version.clone()), code).is_some() {
                return Err(WorkerError::DuplicateWorkflow { workflow, version });
            }
        }
        let shards = self.shards.iter().map(Shard::new).collect::<Result<Vec<Shard>, _>>()?;
        let build = match self.build {
            Some(build) => BuildId::new(build)?,
            None => super::build::of_this_program().await?,
        };
        let host = Host::new(HostParts {
            towpath: towpath.clone(),
            store,
            worker_id,
            claim_wait: self.claim_wait.unwrap_or(self.options.block_time),
            options: self.options,
            build,
            states: self.states,
            shards,
            served,
        });
        let registered = towpath.retry_lost_replies(|| host.store.register_build(&host.build, &host.places)).await?;
        if registered > 0 {
            tracing::info!(runs = registered, build = %host.build, "runs that did not fit another build are ready again");
        }
        towpath.note_served(&host.places);
        Ok(RunningWorkflows::start(host, drain_timeout))
    }
}

/// The part of a worker that executes runs. Dropped, it falls silent at once.
pub(crate) struct RunningWorkflows {
    host: Arc<Host>,
    drain_timeout: Duration,
    /// Apart from the others, because they stop first.
    claimers: JoinSet<()>,
    loops: JoinSet<()>,
}

impl RunningWorkflows {
    fn start(host: Arc<Host>, drain_timeout: Duration) -> Self {
        let health = Arc::new(Health::default());
        let supervised = |name, run: fn(Arc<Host>) -> BoxFuture<'static, ()>| {
            let host = Arc::clone(&host);
            supervise(name, Arc::clone(host.clock()), Arc::clone(&health), move || run(Arc::clone(&host)))
        };
        let (mut claimers, mut others) = (JoinSet::new(), JoinSet::new());
        claimers.spawn(supervised("claimer of runs", |host| loops::claim(host).boxed()));
        claimers.spawn(supervised("taker of runs", |host| loops::take_over(host).boxed()));
        others.spawn(supervised("renewer of runs", |host| loops::renew(host).boxed()));
        others.spawn(supervised("hearer of runs", |host| loops::hear(host).boxed()));
        others.spawn(supervised("registrar of builds", |host| loops::register(host).boxed()));
        Self { host, drain_timeout, claimers, loops: others }
    }

    pub(crate) fn count(&self) -> usize {
        self.host.count()
    }

    /// Leaves in good order: claims nothing more, lets attempts end for a while, and hands the rest to other workers.
    pub(crate) async fn drain(mut self) {
        let host = Arc::clone(&self.host);
        let clock = Arc::clone(host.clock());
        host.begin_to_leave();
        let give_up_at = clock.now() + LEAVE_WITHIN;
        tokio::select! {
            biased;
            () = async { while self.claimers.join_next().await.is_some() {} } => {}
            () = clock.sleep_until(give_up_at) => {}
        }
        self.claimers.shutdown().await;
        for (patience, is_last) in [(self.drain_timeout, false), (LEAVE_WITHIN, true)] {
            let give_up_at = clock.now() + patience;
            tokio::select! {
                biased;
                () = host.all_left() => break,
                () = clock.sleep_until(give_up_at) => {}
            }
            if is_last {
                tracing::warn!(runs = host.count(), worker = %host.worker_id, "runs did not leave in time; others take them over in a moment");
            }
            host.tell_all(|told| told.must_leave = true);
        }
        self.loops.shutdown().await;
    }

    /// Replays a run's journal against the code that this worker serves.
    pub(crate) async fn replay(&self, run_id: &RunId) -> Result<(), RunError> {
        let host = &self.host;
        let view = host.store.run(run_id).await?.ok_or_else(|| RunError::NotFound { run_id: run_id.clone() })?;
        let entries = host.journal(&view.run).await?;
        let diverged = |trouble: Trouble| RunError::Diverged { run_id: run_id.clone(), message: trouble.message };
        let unserved = || RunError::Diverged { run_id: run_id.clone(), message: "this worker does not serve it".to_owned() };
        let served = host.served(&view.run.place).ok_or_else(unserved)?;
        let journal = Journal::read(&entries).map_err(|message| RunError::Diverged { run_id: run_id.clone(), message })?;
        let progress = Progress::replay(served.as_ref(), &view.run, journal).map_err(diverged)?;
        let trouble = progress.execution.lock().trouble.take();
        trouble.map_or(Ok(()), |trouble| Err(diverged(trouble)))
    }
}

impl Drop for RunningWorkflows {
    fn drop(&mut self) {
        self.host.abort_all();
    }
}

impl fmt::Debug for RunningWorkflows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningWorkflows").field("runs", &self.count()).finish_non_exhaustive()
    }
}
