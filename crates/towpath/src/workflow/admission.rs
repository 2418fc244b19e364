//! What an attempt of a task needs before it begins: its turn by a limit, and a lock for as long as it runs.

use std::sync::Arc;
use std::time::Duration;

use super::task::TaskContext;
use crate::error::HandlerError;
use crate::limits::LimitError;
use crate::locks::{Acquired, LockError, LockGuard};

/// A limit that does not say when there will be room is asked again after this.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A limit is asked again at the latest after this: its rules may have changed.
const ASKED_AGAIN_AT_LEAST_EVERY: Duration = Duration::from_secs(60);

/// What an attempt needs before it begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    /// A policy and the scope that it limits.
    pub(crate) limit: Option<(Arc<str>, Arc<str>)>,
    /// The scope of a lock.
    pub(crate) lock: Option<Arc<str>>,
}

impl Needs {
    /// Waits until the attempt may begin. Waiting is no part of the attempt.
    pub(crate) async fn wait(&self, task: &TaskContext) -> Result<Option<LockGuard>, HandlerError> {
        if let Some((policy, scope)) = &self.limit {
            wait_for_turn(task, policy, scope).await?;
        }
        match &self.lock {
            Some(scope) => lock(task, scope).await.map(Some),
            None => Ok(None),
        }
    }
}

async fn wait_for_turn(task: &TaskContext, policy: &str, scope: &str) -> Result<(), HandlerError> {
    let clock = Arc::clone(task.towpath().clock());
    loop {
        let verdict = task.towpath().limit(scope).policy(policy).take().await.map_err(|error| match error {
            LimitError::Store(_) => HandlerError::retryable(error.code(), error.to_string()),
            error => HandlerError::fatal(error.code(), error.to_string()),
        })?;
        if verdict.allowed {
            return Ok(());
        }
        if verdict.never {
            let message = format!("the policy '{policy}' never allows a task of scope '{scope}'");
            return Err(HandlerError::fatal("limit_never_allows", message));
        }
        let wait = verdict.retry_after.unwrap_or(ASKED_AGAIN_AFTER).min(ASKED_AGAIN_AT_LEAST_EVERY);
        clock.sleep_until(clock.now() + wait.max(Duration::from_millis(1))).await;
    }
}

async fn lock(task: &TaskContext, scope: &str) -> Result<LockGuard, HandlerError> {
    let clock = Arc::clone(task.towpath().clock());
    loop {
        let asked = task.towpath().lock(scope).workflow(task.run_id().as_str(), task.name()).acquire().await;
        let acquired = asked.map_err(|error| match error {
            LockError::Store(_) => HandlerError::retryable(error.code(), error.to_string()),
            error => HandlerError::fatal(error.code(), error.to_string()),
        })?;
        match acquired {
            Acquired::Granted(guard) => return Ok(guard),
            // It was held for a day, or too many wait.
            _not_yet => clock.sleep_until(clock.now() + ASKED_AGAIN_AFTER).await,
        }
    }
}
