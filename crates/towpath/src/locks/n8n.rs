//! Locks in the words of the seed's n8n nodes `lock_acquisition`, `lock_release` and `error_handler_lock_cleanup`, with their inputs, outputs,
//! defaults and texts. No guard renews what is taken this way; it lasts for `ttl_seconds`.
//!
//! `rate_limit_check` is among the limits: [`limits::n8n`](crate::limits::n8n).

use std::time::Duration;

use serde::Serialize;
use towpath_core::lock::{AcquireLock, EndBy, EndLock, EndReply, Holder, check_ttl, check_wait};
use towpath_core::names::{LockId, LockScope, WorkflowLabel};
use towpath_core::store::HeldScope;

use super::question::Question;
use super::switchboard::new_request;
use super::wait::{TakenBack, Waited};
use super::{Cleanup, LockError};
use crate::Towpath;

/// The inputs of `lock_acquisition`. What is left out has the node's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LockAcquisition {
    /// What is locked. Default: `default`.
    pub scope: Option<String>,
    /// How long it lasts. Default: 86,400.
    pub ttl_seconds: Option<f64>,
    /// The execution that it belongs to.
    pub execution_id: Option<String>,
    /// Whether to wait. Default: true.
    pub wait_till_lock_released: Option<bool>,
    /// How long to wait. Default: 86,400.
    pub max_wait_seconds: Option<f64>,
    /// Who asks. Default: a new id.
    pub lock_id: Option<String>,
    /// Default: `unknown`.
    pub workflow_id: Option<String>,
    /// Default: `unknown`.
    pub workflow_name: Option<String>,
}

/// The output of `lock_acquisition`, and the fence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockAcquired {
    /// Always true.
    pub acquired: bool,
    /// Always 1.
    pub count: u32,
    /// What is locked.
    pub scope: String,
    /// Needed to release.
    pub lock_id: String,
    /// The counter's name.
    pub key: String,
    /// The name of the holder's identity.
    pub meta_key: String,
    /// As it was given.
    pub workflow_id: String,
    /// As it was given.
    pub workflow_name: String,
    /// As it was given, else empty.
    pub execution_id: String,
    /// When it was granted.
    pub locked_at: String,
    /// What the protected resource compares: it refuses a smaller one than it has seen.
    pub fence: u64,
}

/// The output of `lock_release`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockReleased {
    /// Always true.
    pub released: bool,
    /// Whether there was nothing to do.
    pub idempotent: bool,
    /// What was locked.
    pub scope: String,
    /// As it was given.
    pub lock_id: String,
}

/// The output of `error_handler_lock_cleanup`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LocksCleaned {
    /// Whether anything was freed.
    pub cleaned: bool,
    /// How much.
    pub cleaned_count: usize,
    /// Which: a scope, `sem:<scope>` or `rw:<scope>`.
    pub scopes: Vec<String>,
    /// Why nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a node does: it goes on with its output, or it stops the n8n workflow with a text.
#[must_use = "an n8n workflow that is stopped does not have the lock"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node<T> {
    /// It goes on.
    Output(T),
    /// It stops, and says this.
    Stopped(String),
}

impl Towpath {
    /// `lock_acquisition`: takes a lock for `ttl_seconds`, waiting for it unless told otherwise.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use towpath::locks::n8n::{LockAcquisition, Node};
    /// use towpath::Towpath;
    ///
    /// let towpath = Towpath::open("memory:").await?;
    /// let excel = || LockAcquisition { scope: Some("excel".to_owned()), wait_till_lock_released: Some(false), ..LockAcquisition::default() };
    /// let Node::Output(lock) = towpath.lock_acquisition(excel()).await? else { panic!("it is free") };
    /// assert_eq!((lock.count, lock.key.as_str()), (1, "n8n-lock-excel"));
    /// let Node::Stopped(text) = towpath.lock_acquisition(excel()).await? else { panic!("it is held") };
    /// assert!(text.starts_with("Lock acquisition failed (fail-fast): scope 'excel' is held"));
    /// let Node::Output(released) = towpath.lock_release("excel", &lock.lock_id).await? else { panic!("it is ours") };
    /// assert!(released.released && !released.idempotent);
    /// # towpath.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock_acquisition(&self, inputs: LockAcquisition) -> Result<Node<LockAcquired>, LockError> {
        let request_id = new_request(self.ids().as_ref());
        let scope = inputs.scope.as_deref().map(LockScope::new).transpose()?.unwrap_or_default();
        let lock_id = LockId::new(inputs.lock_id.as_deref().unwrap_or(request_id.as_str()))?;
        let mut want = AcquireLock::new(scope, lock_id, request_id);
        let ttl = seconds("ttl_seconds", inputs.ttl_seconds)?.unwrap_or(AcquireLock::MAX_HOLD);
        check_ttl(ttl)?;
        (want.lease, want.max_hold) = (ttl, ttl);
        let longest = seconds("max_wait_seconds", inputs.max_wait_seconds)?.unwrap_or(AcquireLock::MAX_HOLD);
        check_wait(longest)?;
        let waits = inputs.wait_till_lock_released.unwrap_or(true);
        let label = |text: Option<&str>| text.map_or(Ok(WorkflowLabel::default()), WorkflowLabel::new);
        want.identity.workflow_id = label(inputs.workflow_id.as_deref())?;
        want.identity.workflow_name = label(inputs.workflow_name.as_deref())?;
        want.identity.execution_id = inputs.execution_id.as_deref().map(str::parse).transpose()?;
        want.waiter = waits.then(|| self.waiter(&want.request_id));
        self.take(want, longest).await
    }

    async fn take(&self, want: AcquireLock, longest: Duration) -> Result<Node<LockAcquired>, LockError> {
        let (scope, waits) = (want.scope.clone(), want.waiter.is_some());
        let question = std::sync::Arc::new(Question::Lock(want.clone()));
        let taken_back = TakenBack::unless_answered(self, &question);
        let until = self.clock().now() + if waits { longest } else { Duration::ZERO };
        let waited = match self.ask_until(&question, until).await {
            Ok(heard) => heard.waited,
            Err(error) => {
                taken_back.now().await;
                return Err(error.into());
            }
        };
        let node = match waited {
            Waited::Granted(terms) => Node::Output(LockAcquired {
                acquired: true,
                count: 1,
                key: scope.key(),
                meta_key: scope.meta_key(),
                scope: scope.to_string(),
                lock_id: want.lock_id.to_string(),
                workflow_id: want.identity.workflow_id.to_string(),
                workflow_name: want.identity.workflow_name.to_string(),
                execution_id: want.identity.execution_text().to_owned(),
                locked_at: terms.locked_at.to_iso(),
                fence: terms.fence.as_u64(),
            }),
            Waited::Blocked(_) if waits => {
                taken_back.now().await;
                return Ok(Node::Stopped(Holder::timed_out_text(scope.as_str(), longest)));
            }
            // It has it itself, or too many wait: not to be had either way.
            _ => Node::Stopped(Holder::fail_fast_text(scope.as_str(), 1)),
        };
        taken_back.answered();
        Ok(node)
    }

    /// `lock_release`: frees a lock that this lock id holds. To repeat it is no error; somebody else's lock is left alone, with a text that
    /// names its holder.
    pub async fn lock_release(&self, scope: &str, lock_id: &str) -> Result<Node<LockReleased>, LockError> {
        let (scope, lock_id) = (LockScope::new(scope)?, LockId::new(lock_id)?);
        let whose = EndLock { scope: scope.clone(), by: EndBy::LockId(lock_id.clone()) };
        let idempotent = match self.store().lock_end(whose).await? {
            EndReply::Ended { .. } | EndReply::StillHeld { .. } => false,
            EndReply::NotHolder(holder) => return Ok(Node::Stopped(holder.not_yours(lock_id.as_str()))),
            EndReply::Already | EndReply::Absent { .. } | EndReply::Changed { .. } => true,
        };
        Ok(Node::Output(LockReleased { released: true, idempotent, scope: scope.to_string(), lock_id: lock_id.to_string() }))
    }

    /// `error_handler_lock_cleanup`: frees whatever a failed execution holds, of all that is known to be its own, of the scopes given, and of
    /// those that the shared configuration names.
    pub async fn error_handler_lock_cleanup(&self, execution_id: &str, lock_scopes: Vec<String>) -> Result<LocksCleaned, LockError> {
        let cleaned = self.cleanup_execution(execution_id, Cleanup { lock_scopes, scan: false }).await?;
        let scopes: Vec<String> = cleaned.scopes.iter().map(HeldScope::to_string).collect();
        let reason = cleaned.reason();
        Ok(LocksCleaned { cleaned: !scopes.is_empty(), cleaned_count: scopes.len(), scopes, reason })
    }
}

fn seconds(field: &'static str, given: Option<f64>) -> Result<Option<Duration>, LockError> {
    let refused = |seconds: f64| {
        let min = if field == "ttl_seconds" { "0.1 s" } else { "0 s" };
        towpath_core::lock::OutOfRange { field, given: format!("{seconds} s"), min: min.to_owned(), max: "604800 s".to_owned() }
    };
    given.map(|seconds| Duration::try_from_secs_f64(seconds).map_err(|_| refused(seconds).into())).transpose()
}
