//! A server of the test's own, stores of ours on it, and words for locks.

use std::sync::Arc;
use std::time::Duration;

use towpath::{SystemClock, Towpath};
use towpath_core::lock::{AcquireLock, AcquireReply, Fence, Grant, ReleaseLock, ReleaseReply, RenewLock, RenewReply};
use towpath_core::names::{LockId, LockScope, NodeId, RequestId, WaiterId};
use towpath_core::store::LockStore;
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::RedisServer;

use crate::old_workflow::OldWorkflow;

/// Nothing in these tests takes that long, unless it never comes.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub(crate) server: RedisServer,
}

impl Rig {
    pub(crate) fn start() -> Self {
        Self { server: RedisServer::start() }
    }

    /// A store as another process would open it.
    pub(crate) async fn store(&self) -> RedisStore {
        open(&self.server.url()).await
    }

    /// The whole library on it.
    pub(crate) async fn towpath(&self) -> Towpath {
        let store = self.store().await;
        Towpath::builder().clock(store.clock()).with_store(Arc::new(store))
    }

    pub(crate) async fn old_workflow(&self) -> OldWorkflow {
        OldWorkflow::connect(self.server.port()).await
    }

    pub(crate) fn cli(&self, words: &[&str]) -> String {
        self.server.cli(words).trim().to_owned()
    }
}

pub(crate) async fn open(url: &str) -> RedisStore {
    let options = RedisOptions::parse(url).expect("a URL");
    RedisStore::open(options, Arc::new(SystemClock::new())).await.expect("the server is there")
}

pub(crate) fn scope(text: &str) -> LockScope {
    LockScope::new(text).expect("a scope")
}

/// A question that does not wait, with a lease of half a minute.
pub(crate) fn want(what: &str, who: &str) -> AcquireLock {
    AcquireLock::new(scope(what), LockId::new(who).expect("a lock id"), RequestId::new(who).expect("a request"))
}

/// The same, ready to wait.
pub(crate) fn waiting(node: &NodeId, want: AcquireLock) -> AcquireLock {
    AcquireLock { waiter: Some(WaiterId::new(node, &want.request_id)), ..want }
}

pub(crate) fn lease_ms(ms: u64, want: AcquireLock) -> AcquireLock {
    AcquireLock { lease: Duration::from_millis(ms), ..want }
}

/// Asks, and must be granted the lock.
#[track_caller]
pub(crate) fn granted(store: &RedisStore, want: AcquireLock) -> impl Future<Output = Grant> {
    let at = std::panic::Location::caller();
    async move {
        match store.lock_acquire(want).await {
            Ok(AcquireReply::Granted(grant)) => grant,
            other => panic!("{at}: should be granted, but: {other:?}"),
        }
    }
}

pub(crate) async fn is_busy(store: &RedisStore, want: AcquireLock) -> bool {
    matches!(store.lock_acquire(want).await, Ok(AcquireReply::Busy(_)))
}

pub(crate) async fn release(store: &RedisStore, what: &str, fence: Fence) -> ReleaseReply {
    store.lock_release(ReleaseLock { scope: scope(what), fence }).await.expect("the server is there")
}

pub(crate) async fn renew(store: &RedisStore, what: &str, fence: Fence) -> RenewReply {
    store.lock_renew(RenewLock { scope: scope(what), fence, lease: Some(Duration::from_secs(30)) }).await.expect("the server is there")
}

pub(crate) fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a node")
}

/// Waits for the thing itself, letting others go on meanwhile.
pub(crate) async fn until(what: &str, mut it_is_so: impl AsyncFnMut() -> bool) {
    let looked = tokio::time::timeout(SOON, async {
        while !it_is_so().await {
            pause(Duration::from_millis(10)).await;
        }
    });
    looked.await.unwrap_or_else(|_| panic!("still not: {what}"));
}

#[expect(clippy::disallowed_methods, reason = "servers and other processes live by the real clock")]
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
