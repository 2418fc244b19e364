//! Tasks: code with effects, run once as far as the journal knows, with retries.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use towpath_core::call::{Backoff, RetryPolicy};
use towpath_core::lock::Fence;
use towpath_core::run::{RunId, StepId, StepKey};

use super::execution::{Execution, Request};
use super::step::{StepFuture, StepResult, decode, value};
use crate::Towpath;
use crate::error::HandlerError;

/// The longest attempt of a task, unless it says otherwise.
pub(crate) const ATTEMPT_DEFAULT: Duration = Duration::from_secs(300);

/// How a task is retried that says nothing: ten attempts, 1 s doubling to 60 s. Then the run is blocked, and `resume` tries again.
pub(crate) fn retry_default() -> RetryPolicy {
    RetryPolicy { max_attempts: 10, backoff: Backoff::Exponential { delay_ms: 1_000, delay_ms_max: 60_000 }, ..RetryPolicy::default() }
}

/// Values that a worker gives to its tasks, by type.
pub(crate) type States = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// One attempt of a task, as its handler sees it. Clones are the same attempt. It has no durable calls: a task contains no steps.
#[derive(Clone)]
pub struct TaskContext {
    pub(crate) inner: Arc<TaskAttempt>,
    pub(crate) fence: Option<Fence>,
}

pub(crate) struct TaskAttempt {
    pub(crate) towpath: Towpath,
    pub(crate) states: Arc<States>,
    pub(crate) run_id: RunId,
    pub(crate) step_id: StepId,
    pub(crate) name: Arc<str>,
    pub(crate) attempt: u32,
    pub(crate) idempotency_key: Arc<str>,
    pub(crate) epoch: Fence,
    pub(crate) token: CancellationToken,
}

impl TaskContext {
    /// Which run.
    pub fn run_id(&self) -> &RunId {
        &self.inner.run_id
    }

    /// Which step of it.
    pub fn step_id(&self) -> &StepId {
        &self.inner.step_id
    }

    /// The task's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Which attempt this is: 1 until a handler has failed. A worker that died uses up no attempt.
    pub fn attempt(&self) -> u32 {
        self.inner.attempt
    }

    /// What makes the effects of this task the same effects when it runs again: equal for all attempts, on all workers.
    pub fn idempotency_key(&self) -> &str {
        &self.inner.idempotency_key
    }

    /// Rises each time that a worker claims the run. A target that compares it can refuse a worker that was taken for dead.
    pub fn epoch(&self) -> Fence {
        self.inner.epoch
    }

    /// The fence of the lock that this attempt holds, if it has asked for one. A target that compares it can refuse an earlier holder.
    pub fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// Ends when this attempt should stop: the code has dropped the task, or its time is over, or the worker has lost the run.
    pub async fn cancelled(&self) {
        self.inner.token.cancelled().await;
    }

    /// Whether this attempt should stop.
    pub fn is_cancelled(&self) -> bool {
        self.inner.token.is_cancelled()
    }

    /// The same as a token, for libraries that take one. Who cancels it stops only those that were given it.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.inner.token.child_token()
    }

    /// A value that the worker was given by [`WorkerBuilder::state`](crate::WorkerBuilder::state). One that it was not given is a final error.
    pub fn state<T: Any + Send + Sync>(&self) -> Result<Arc<T>, HandlerError> {
        let state = self.inner.states.get(&TypeId::of::<T>()).cloned();
        state.and_then(|state| state.downcast::<T>().ok()).ok_or_else(|| {
            let name = std::any::type_name::<T>();
            HandlerError::fatal("no_state", format!("the worker has no state of type {name}: add it with `.state(value)`"))
        })
    }

    /// The store that the worker works on.
    pub fn towpath(&self) -> &Towpath {
        &self.inner.towpath
    }
}

impl fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.inner;
        f.debug_struct("TaskContext").field("run", &inner.run_id).field("task", &inner.name).finish_non_exhaustive()
    }
}

/// A task. Await it for its result.
#[must_use = "a task runs when it is awaited"]
pub struct TaskBuilder<O> {
    pub(crate) execution: Arc<Execution>,
    /// The first thing that was wrong stands here until the task is awaited.
    pub(crate) request: Result<Request, HandlerError>,
    pub(crate) output: PhantomData<fn() -> O>,
}

impl<O> TaskBuilder<O> {
    /// What tells this task from others of its name, instead of its input. A run then finds it again though its input has changed.
    pub fn key(self, key: &str) -> Self {
        self.with(|request| {
            request.parts.key = StepKey::Given(Arc::from(key));
            request.open.key = Some(format!("k:{key}"));
        })
    }

    /// How it is retried. The last attempt's error is then the task's error. Default: 10 attempts, 1 s doubling to 60 s; after the tenth the
    /// run is blocked, and [`resume`](crate::workflow::RunHandle::resume) tries again.
    pub fn retry(self, retry: RetryPolicy) -> Self {
        self.with(|request| request.open.retry = Some(retry))
    }

    /// How long one attempt may take. Default: 5 min. An attempt that takes longer is a failed one, with the code `timed_out`.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|request| request.open.ms = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Never begins an attempt while it is unknown how the last one ended. Such a task fails with the code `unknown_outcome`. An error that the
    /// handler returns may be retried.
    pub fn at_most_once(self) -> Self {
        self.with(|request| request.open.once = true)
    }

    /// Every attempt takes from this policy first, and waits until it is its turn. Waiting uses up no attempt and none of its time; the worker
    /// keeps the run meanwhile.
    pub fn limit(self, policy: &str, scope: &str) -> Self {
        self.with(|request| request.needs.limit = Some((Arc::from(policy), Arc::from(scope))))
    }

    /// Every attempt holds the lock of this scope while it runs, and waits for it first. [`TaskContext::fence`] has its fence. An attempt that
    /// loses the lock is a failed one, with the code `lock_lost`.
    pub fn lock(self, scope: &str) -> Self {
        self.with(|request| request.needs.lock = Some(Arc::from(scope)))
    }

    fn with(mut self, change: impl FnOnce(&mut Request)) -> Self {
        if let Ok(request) = &mut self.request {
            change(request);
        }
        self
    }
}

impl<O: DeserializeOwned + Send + 'static> IntoFuture for TaskBuilder<O> {
    type Output = Result<O, HandlerError>;
    type IntoFuture = StepResult<O>;

    fn into_future(self) -> StepResult<O> {
        Box::pin(async move {
            let request = self.request?;
            let what = format!("the result of {}", request.open.title());
            let result = value(StepFuture::new(&self.execution, request)).await?;
            Ok(decode(&self.execution, &what, &result).await)
        })
    }
}

impl<O> fmt::Debug for TaskBuilder<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.request.as_ref().map(|request| Arc::clone(&request.parts.name));
        f.debug_struct("TaskBuilder").field("task", &name.ok()).finish_non_exhaustive()
    }
}
