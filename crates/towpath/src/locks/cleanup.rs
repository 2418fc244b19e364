//! Freeing what a failed execution held, and nothing of anybody else.

use std::collections::BTreeSet;

use towpath_core::inspect::{LockQuery, PageRequest};
use towpath_core::lock::{EndBy, EndLock, EndReply};
use towpath_core::names::{ExecutionId, LockScope};
use towpath_core::permit::{ReleaseBy, ReleasePermit};
use towpath_core::store::HeldScope;

use super::LockError;
use crate::Towpath;

/// Where to look besides what is known to be the execution's and what the shared configuration names under `lock_scopes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleanup {
    /// Scopes that old workflows of it may hold.
    pub lock_scopes: Vec<String>,
    /// Every lock there is, whatever it is called. Slow where there are many, and a right that the store's user may lack.
    pub scan: bool,
}

/// What was freed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Locks first, then semaphores and read/write locks, by scope.
    pub scopes: Vec<HeldScope>,
    /// No scope was named, in the question or in the shared configuration: locks that old workflows hold were not looked for.
    pub nothing_registered: bool,
}

/// What is said when an execution held nothing.
const NOTHING_OWNED: &str = "no locks owned by failed execution";
/// What is said besides when nobody has said which locks old workflows use.
const NOTHING_REGISTERED: &str = "no lock scopes are registered, so that locks of old workflows were not looked for: \
     name them in `lock_scopes` of the question or of the shared configuration";

impl Cleaned {
    /// Why nothing was freed. `None`: something was.
    pub fn reason(&self) -> Option<String> {
        let text = if self.nothing_registered { format!("{NOTHING_OWNED}; {NOTHING_REGISTERED}") } else { NOTHING_OWNED.to_owned() };
        self.scopes.is_empty().then_some(text)
    }
}

impl Towpath {
    /// Frees whatever this execution holds: locks, units of semaphores, read/write locks. Each is compared and freed in one move, so a lock
    /// that has changed hands meanwhile is left alone.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use towpath::locks::Cleanup;
    /// use towpath::Towpath;
    ///
    /// let towpath = Towpath::open("memory:").await?;
    /// let guard = towpath.lock("excel").execution_id("4711").acquire().await?.granted().expect("free");
    /// assert_eq!(towpath.cleanup_execution("4711", Cleanup::default()).await?.scopes.len(), 1);
    /// assert_eq!(towpath.cleanup_execution("4711", Cleanup::default()).await?.scopes.len(), 0);
    /// # drop(guard);
    /// # towpath.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cleanup_execution(&self, execution_id: &str, cleanup: Cleanup) -> Result<Cleaned, LockError> {
        let execution_id = ExecutionId::new(execution_id)?;
        let mut candidates: BTreeSet<HeldScope> = BTreeSet::new();
        for scope in &cleanup.lock_scopes {
            candidates.insert(HeldScope::Lock(LockScope::new(scope)?));
        }
        candidates.extend(self.registered_lock_scopes().await?.into_iter().map(HeldScope::Lock));
        let nothing_registered = candidates.is_empty() && !cleanup.scan;
        candidates.extend(self.store().held_by_execution(&execution_id).await?);
        if cleanup.scan {
            candidates.extend(self.scan_for(&execution_id).await?);
        }
        let mut cleaned = Cleaned { nothing_registered, ..Cleaned::default() };
        for candidate in candidates {
            if self.free(&candidate, &execution_id).await? {
                cleaned.scopes.push(candidate);
            }
        }
        if let (true, Some(reason)) = (nothing_registered, cleaned.reason()) {
            tracing::warn!(%execution_id, "{reason}");
        }
        Ok(cleaned)
    }

    async fn scan_for(&self, execution_id: &ExecutionId) -> Result<Vec<HeldScope>, LockError> {
        let mut found = Vec::new();
        let mut query = LockQuery { limit: PageRequest::LIMIT_MAX, scan: true, ..LockQuery::default() };
        loop {
            let page = self.store().locks(&query).await?;
            let theirs = page.items.into_iter().filter(|view| {
                let holder = view.holder.as_ref();
                holder.is_some_and(|holder| holder.execution_id == execution_id.as_str())
            });
            found.extend(theirs.map(|view| HeldScope::Lock(view.scope)));
            let Some(next) = page.next else { return Ok(found) };
            query.after = Some(next);
        }
    }

    async fn free(&self, held: &HeldScope, execution_id: &ExecutionId) -> Result<bool, LockError> {
        match held {
            HeldScope::Lock(scope) => {
                let whose = EndLock { scope: scope.clone(), by: EndBy::Execution(execution_id.clone()) };
                Ok(matches!(self.store().lock_end(whose).await?, EndReply::Ended { .. }))
            }
            HeldScope::Permit(kind, scope) => {
                let by = ReleaseBy::Execution(execution_id.clone());
                let what = ReleasePermit { kind: *kind, scope: scope.clone(), by };
                Ok(self.store().permit_release(what).await? > 0)
            }
        }
    }
}
