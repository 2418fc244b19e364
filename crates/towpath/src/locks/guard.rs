//! A lock in this process's hands: renewed while the guard lives, released when it goes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use towpath_core::lock::{Fence, LostLock, ReleaseReply};
use towpath_core::names::LockScope;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::LockError;
use super::question::{Question, Terms};
use super::renewal::Renewal;
use crate::Towpath;
use crate::engine::backoff::Backoff;

/// How often a release is repeated when its answer was lost. It is safe to repeat.
const TRIES: u32 = 3;

/// A lock, or units of a semaphore or read/write lock, that this process holds.
///
/// Dropping it releases in the background; [`release`](LockGuard::release) waits for it and says what became of it.
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard {
    held: Option<Held>,
}

pub(super) struct Held {
    towpath: Towpath,
    question: Arc<Question>,
    terms: Terms,
    lost: watch::Receiver<Option<LostLock>>,
    renewal: Renewal,
}

impl LockGuard {
    pub(super) fn new(towpath: &Towpath, question: &Arc<Question>, terms: Terms, sent_at: Timestamp, renews: bool) -> Self {
        let (lose, lost) = watch::channel(None);
        let renewal = Renewal::start(towpath, question, terms, sent_at, renews, lose);
        Self { held: Some(Held { towpath: towpath.clone(), question: Arc::clone(question), terms, lost, renewal }) }
    }

    fn held(&self) -> &Held {
        self.held.as_ref().expect("only release and drop take it away, and both end the guard")
    }

    /// The number to hand to the protected resource, which refuses a smaller one than it has seen.
    pub fn fence(&self) -> Fence {
        self.held().terms.fence
    }

    /// What is locked.
    pub fn scope(&self) -> &LockScope {
        self.held().question.scope()
    }

    /// When it was granted, by the store's clock.
    pub fn locked_at(&self) -> Timestamp {
        self.held().terms.locked_at
    }

    /// Until when it can be held at the longest, by the store's clock.
    pub fn max_hold_end(&self) -> Timestamp {
        self.held().terms.max_hold_end
    }

    /// Ends when the lock is lost, and says why: stop, and write nothing more. It ends a little before the store would give the lock to
    /// somebody else. Never ends while the lock is held.
    pub async fn lost(&self) -> LostLock {
        let mut lost = self.held().lost.clone();
        match lost.wait_for(Option::is_some).await.ok().and_then(|why| *why) {
            Some(why) => why,
            // Whoever renews has ended without a loss: only a release does that, and it takes the guard.
            None => std::future::pending().await,
        }
    }

    /// Why it is lost, if it is.
    pub fn reason(&self) -> Option<LostLock> {
        *self.held().lost.borrow()
    }

    /// Releases, and says what became of it. The renewal has ended before.
    pub async fn release(mut self) -> Result<ReleaseReply, LockError> {
        let Some(held) = self.held.take() else { return Ok(ReleaseReply::Already) };
        Ok(held.release().await?)
    }
}

impl Held {
    async fn release(self) -> Result<ReleaseReply, StoreError> {
        let Self { towpath, question, terms, renewal, .. } = self;
        renewal.stop().await;
        let mut backoff = Backoff::new(towpath.clock(), "release a lock");
        for _ in 1..TRIES {
            match question.release(towpath.store().as_ref(), terms.fence).await {
                Ok(reply) => return Ok(reply),
                Err(error) => backoff.failed(error).await?,
            }
        }
        question.release(towpath.store().as_ref(), terms.fence).await
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let scope = held.question.scope().clone();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return tracing::warn!(%scope, "a lock was dropped outside a runtime; it is free when its lease ends");
        };
        runtime.spawn(async move {
            if let Err(error) = held.release().await {
                tracing::warn!(%error, %scope, "a dropped lock could not be released; it is free when its lease ends");
            }
        });
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.held {
            Some(held) => write!(f, "LockGuard({}, fence {})", held.question.scope(), held.terms.fence),
            None => f.write_str("LockGuard(released)"),
        }
    }
}

/// How long a lease may be trusted here: a little less than the store does, because clocks do not run alike.
pub(super) fn trusted(lease: Duration) -> Duration {
    lease.saturating_sub((lease / 100).max(Duration::from_millis(5)))
}
