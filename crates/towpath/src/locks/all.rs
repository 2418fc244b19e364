//! Several locks at once: in byte order, so that two who want the same never wait for each other.

use std::collections::BTreeSet;
use std::time::Duration;

use super::builder::{LockBuilder, LockWait};
use super::{Acquired, LockError, LockGuard, Released};
use crate::Towpath;

/// How many locks can be taken together.
const SCOPES_MAX: usize = 64;

/// Several exclusive locks to be: all of them, or none.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use towpath::locks::AcquiredAll;
/// use towpath::Towpath;
///
/// let towpath = Towpath::open("memory:").await?;
/// let AcquiredAll::Granted(guards) = towpath.lock_all(["b", "a"]).acquire().await? else { panic!("both are free") };
/// assert_eq!(guards.iter().map(|guard| guard.scope().as_str()).collect::<Vec<_>>(), ["a", "b"]);
/// guards.release().await?;
/// # towpath.close().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "locks are asked for by `acquire`"]
#[derive(Clone, Debug)]
pub struct LockAllBuilder {
    towpath: Towpath,
    scopes: BTreeSet<String>,
    ttl: Option<Duration>,
    wait: Option<LockWait>,
    execution_id: Option<String>,
}

/// What a question for several locks came to.
#[must_use = "locks that were granted are released when their guards are dropped"]
#[derive(Debug)]
pub enum AcquiredAll {
    /// All of them.
    Granted(LockGuards),
    /// This one was not to be had; those before it are released again.
    Blocked {
        /// Which.
        scope: String,
        /// What its question came to.
        by: Box<Acquired>,
    },
}

/// Several locks in this process's hands, in byte order of their scopes.
#[must_use = "the locks are released when the guards are dropped"]
#[derive(Debug)]
pub struct LockGuards {
    guards: Vec<LockGuard>,
}

impl Towpath {
    /// Several exclusive locks, all or none. At most 64; a scope named twice is one.
    pub fn lock_all<S: Into<String>>(&self, scopes: impl IntoIterator<Item = S>) -> LockAllBuilder {
        let scopes = scopes.into_iter().map(Into::into).collect();
        LockAllBuilder { towpath: self.clone(), scopes, ttl: None, wait: None, execution_id: None }
    }
}

impl LockAllBuilder {
    /// How long each can be held at the longest.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long to wait for all of them together.
    pub fn wait(mut self, wait: LockWait) -> Self {
        self.wait = Some(wait);
        self
    }

    /// The execution that they belong to.
    pub fn execution_id(mut self, execution_id: impl Into<String>) -> Self {
        self.execution_id = Some(execution_id.into());
        self
    }

    /// Takes one after the other, each within what is left of the wait. Whatever was taken is released in reverse if one is not to be had.
    pub async fn acquire(self) -> Result<AcquiredAll, LockError> {
        if self.scopes.len() > SCOPES_MAX {
            return Err(LockError::TooMany { given: self.scopes.len(), max: SCOPES_MAX });
        }
        let started = self.towpath.clock().now();
        let mut taken = LockGuards { guards: Vec::with_capacity(self.scopes.len()) };
        for scope in &self.scopes {
            let spent = self.towpath.clock().now().since(started);
            match self.one(scope, spent).acquire().await {
                Ok(Acquired::Granted(guard)) => taken.guards.push(guard),
                Ok(by) => {
                    taken.release().await?;
                    return Ok(AcquiredAll::Blocked { scope: scope.clone(), by: Box::new(by) });
                }
                Err(error) => {
                    taken.release().await?;
                    return Err(error);
                }
            }
        }
        Ok(AcquiredAll::Granted(taken))
    }

    fn one(&self, scope: &str, spent: Duration) -> LockBuilder {
        let mut lock = self.towpath.lock(scope);
        if let Some(ttl) = self.ttl {
            lock = lock.ttl(ttl);
        }
        lock = match self.wait {
            Some(LockWait::UpTo(length)) => lock.wait(LockWait::UpTo(length.saturating_sub(spent))),
            Some(LockWait::No) => lock.wait(LockWait::No),
            None => lock,
        };
        match &self.execution_id {
            Some(execution_id) => lock.execution_id(execution_id),
            None => lock,
        }
    }
}

impl LockGuards {
    /// The guards, in byte order of their scopes.
    pub fn iter(&self) -> std::slice::Iter<'_, LockGuard> {
        self.guards.iter()
    }

    /// Releases all of them, the last one first, and says what became of each, in that order.
    pub async fn release(self) -> Result<Vec<Released>, LockError> {
        let mut released = Vec::with_capacity(self.guards.len());
        for guard in self.guards.into_iter().rev() {
            released.push(guard.release().await?);
        }
        Ok(released)
    }
}
