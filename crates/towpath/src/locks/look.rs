//! Looking at locks: who holds what, and who waits.

use towpath_core::inspect::{LockPage, LockQuery, LockView, PermitPage, PermitView};
use towpath_core::names::LockScope;
use towpath_core::permit::PermitKind;

use super::LockError;
use crate::Towpath;

impl Towpath {
    /// Locks that are held or waited for, by scope. Of old workflows: those that one of ours has met, those that the query or the shared
    /// configuration names, and all of them with `scan`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use towpath::locks::LockQuery;
    /// use towpath::Towpath;
    ///
    /// let towpath = Towpath::open("memory:").await?;
    /// let guard = towpath.lock("excel").lock_id("me").acquire().await?.granted().expect("free");
    /// let page = towpath.locks_in_use(LockQuery { limit: 10, ..LockQuery::default() }).await?;
    /// assert_eq!(page.items[0].holder.as_ref().map(|holder| holder.lock_id.as_str()), Some("me"));
    /// # drop(guard);
    /// # towpath.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn locks_in_use(&self, mut query: LockQuery) -> Result<LockPage, LockError> {
        query.also.extend(self.registered_lock_scopes().await?);
        Ok(self.store().locks(&query).await?)
    }

    /// Semaphores, or read/write locks, that are held or waited for, by scope.
    pub async fn permits_in_use(&self, kind: PermitKind, query: LockQuery) -> Result<PermitPage, LockError> {
        Ok(self.store().permit_list(kind, &query).await?)
    }

    /// Who holds a lock and who waits for it; `None` when it was never held, or not for a long time.
    pub async fn look_at_lock(&self, scope: &str) -> Result<Option<LockView>, LockError> {
        Ok(self.store().lock(&LockScope::new(scope)?).await?)
    }

    /// Who holds units of a semaphore or read/write lock and who waits for them; `None` when nobody ever did.
    pub async fn look_at_permits(&self, kind: PermitKind, scope: &str) -> Result<Option<PermitView>, LockError> {
        Ok(self.store().permits(kind, &LockScope::new(scope)?).await?)
    }
}
