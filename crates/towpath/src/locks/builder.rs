//! A question for an exclusive lock, in the making.

use std::sync::Arc;
use std::time::Duration;

use towpath_core::lock::{AcquireLock, check_lease, check_ttl, check_wait, check_within};
use towpath_core::names::{InvalidName, LockId, LockScope, RequestId};

use super::LockError;
use super::answer::Acquired;
use super::guard::LockGuard;
use super::question::Question;
use super::switchboard::new_request;
use super::wait::{TakenBack, Waited};
use crate::Towpath;

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// Not at all.
    No,
    /// At most so long, first come first served.
    UpTo(Duration),
}

/// As old workflows do: a day.
const WAIT: LockWait = LockWait::UpTo(Duration::from_secs(86_400));

/// What is the same for locks and permits.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) ttl: Duration,
    pub(super) lease: Option<Duration>,
    pub(super) renews: bool,
    pub(super) wait: LockWait,
    pub(super) lock_id: Option<String>,
    pub(super) execution_id: Option<String>,
}

impl Default for Wish {
    fn default() -> Self {
        Self { ttl: AcquireLock::MAX_HOLD, lease: None, renews: true, wait: WAIT, lock_id: None, execution_id: None }
    }
}

impl Wish {
    /// How long a holder may be silent. A lock that nobody renews lasts for its whole hold.
    pub(super) fn lease(&self) -> Result<Duration, LockError> {
        check_ttl(self.ttl)?;
        let default = if self.renews { AcquireLock::LEASE.min(self.ttl) } else { self.ttl };
        let lease = self.lease.unwrap_or(default);
        check_lease(lease, self.ttl)?;
        Ok(lease)
    }

    pub(super) fn wait(&self) -> Result<Option<Duration>, LockError> {
        match self.wait {
            LockWait::No => Ok(None),
            LockWait::UpTo(length) => {
                check_wait(length)?;
                Ok(Some(length))
            }
        }
    }

    pub(super) fn lock_id(&self, request: &RequestId) -> Result<LockId, InvalidName> {
        LockId::new(self.lock_id.as_deref().unwrap_or(request.as_str()))
    }
}

/// Methods that every question for a lock has.
macro_rules! wishes {
    ($builder:ident) => {
        impl $builder {
            /// How long it can be held at the longest. Default: a day. From 0.1 s to 7 days.
            pub fn ttl(mut self, ttl: Duration) -> Self {
                self.wish.ttl = ttl;
                self
            }

            /// How long this process may be silent before others get it. Default: 30 s, renewed every 10 s.
            pub fn lease(mut self, lease: Duration) -> Self {
                self.wish.lease = Some(lease);
                self
            }

            /// Does not renew: the lease lasts for as long as `ttl` says, even when this process dies.
            pub fn without_renewal(mut self) -> Self {
                self.wish.renews = false;
                self
            }

            /// How long to wait. Default: a day.
            pub fn wait(mut self, wait: LockWait) -> Self {
                self.wish.wait = wait;
                self
            }

            /// Who asks. Default: a new id.
            pub fn lock_id(mut self, lock_id: impl Into<String>) -> Self {
                self.wish.lock_id = Some(lock_id.into());
                self
            }

            /// The execution that it belongs to, so that [`Towpath::cleanup_execution`](crate::Towpath::cleanup_execution) can free it.
            pub fn execution_id(mut self, execution_id: impl Into<String>) -> Self {
                self.wish.execution_id = Some(execution_id.into());
                self
            }
        }
    };
}
pub(super) use wishes;

/// An exclusive lock to be. See [`locks`](crate::locks).
#[must_use = "a lock is asked for by `acquire`"]
#[derive(Clone, Debug)]
pub struct LockBuilder {
    towpath: Towpath,
    scope: String,
    wish: Wish,
    workflow_id: Option<String>,
    workflow_name: Option<String>,
    max_holds: u32,
}

wishes!(LockBuilder);

impl Towpath {
    /// An exclusive lock on a scope: at most one holder, among all processes that use this store.
    pub fn lock(&self, scope: impl Into<String>) -> LockBuilder {
        LockBuilder {
            towpath: self.clone(),
            scope: scope.into(),
            wish: Wish::default(),
            workflow_id: None,
            workflow_name: None,
            max_holds: 1,
        }
    }
}

impl LockBuilder {
    /// The workflow, for those who find the lock held.
    pub fn workflow(mut self, id: impl Into<String>, name: impl Into<String>) -> Self {
        (self.workflow_id, self.workflow_name) = (Some(id.into()), Some(name.into()));
        self
    }

    /// Lets the same lock id enter so often; each guard leaves once. Default: 1, and it is told that it has the lock already.
    pub fn max_holds(mut self, times: u32) -> Self {
        self.max_holds = times;
        self
    }

    /// Asks, and waits if it may. Dropping the future takes the question back.
    pub async fn acquire(self) -> Result<Acquired, LockError> {
        let (question, wait) = self.question()?;
        acquire(&self.towpath, question, wait, self.wish.renews).await
    }

    fn question(&self) -> Result<(Question, Option<Duration>), LockError> {
        let request_id = new_request(self.towpath.ids().as_ref());
        let mut want = AcquireLock::new(LockScope::new(&self.scope)?, self.wish.lock_id(&request_id)?, request_id);
        (want.lease, want.max_hold) = (self.wish.lease()?, self.wish.ttl);
        check_within("max_holds", self.max_holds, 1, 1_000_000)?;
        want.max_holds = self.max_holds;
        want.identity.execution_id = self.wish.execution_id.as_deref().map(str::parse).transpose()?;
        if let Some(id) = &self.workflow_id {
            want.identity.workflow_id = id.parse()?;
        }
        if let Some(name) = &self.workflow_name {
            want.identity.workflow_name = name.parse()?;
        }
        let wait = self.wish.wait()?;
        want.waiter = wait.map(|_| self.towpath.waiter(&want.request_id));
        Ok((Question::Lock(want), wait))
    }
}

/// Asks until it is answered or the time is over, and takes the question back if it is not granted.
pub(super) async fn acquire(towpath: &Towpath, question: Question, wait: Option<Duration>, renews: bool) -> Result<Acquired, LockError> {
    let question = Arc::new(question);
    let taken_back = TakenBack::unless_answered(towpath, &question);
    let until = towpath.clock().now() + wait.unwrap_or_default();
    let heard = match towpath.ask_until(&question, until).await {
        Ok(heard) => heard,
        Err(error) => {
            taken_back.now().await;
            return Err(error.into());
        }
    };
    let acquired = match heard.waited {
        Waited::Granted(terms) => Acquired::Granted(LockGuard::new(towpath, &question, terms, heard.sent_at, renews)),
        Waited::Blocked(blocked) if wait.is_some() => {
            taken_back.now().await;
            return Ok(Acquired::TimedOut(blocked));
        }
        Waited::Blocked(blocked) => Acquired::Held(blocked),
        Waited::SelfHeld { fence, lease_end } => Acquired::SelfHeld { fence, lease_end },
        Waited::Spent => Acquired::Spent,
        Waited::Never => Acquired::Never,
        Waited::QueueFull { waiters } => Acquired::QueueFull { waiters },
    };
    taken_back.answered();
    Ok(acquired)
}
