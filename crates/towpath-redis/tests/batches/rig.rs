//! A server of the test's own, stores of ours on it, and words for batches.

use std::sync::Arc;
use std::time::Duration;

use towpath::SystemClock;
use towpath_conformance::words::batcher;
use towpath_core::batch::{BatcherId, ClaimReply, ClaimedBatch, IngestReply, Layout, NewMessage, Rules, Settings};
use towpath_core::clock::VirtualClock;
use towpath_core::names::BatcherName;
use towpath_core::store::{BatchStore, StoreError};
use towpath_core::time::Timestamp;
use towpath_redis::{RedisOptions, RedisStore};
use towpath_redis_testing::RedisServer;

/// Nothing in these tests takes that long, unless it never comes.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub(crate) server: RedisServer,
    pub(crate) clock: VirtualClock,
}

impl Rig {
    pub(crate) fn start() -> Self {
        Self { server: RedisServer::start(), clock: VirtualClock::new() }
    }

    /// A store that lives by the clock of the test.
    pub(crate) async fn store(&self) -> RedisStore {
        open_by_clock(&self.server.url(), &self.clock).await
    }

    pub(crate) fn cli(&self, words: &[&str]) -> String {
        self.server.cli(words).trim().to_owned()
    }
}

pub(crate) async fn open_by_clock(url: &str, clock: &VirtualClock) -> RedisStore {
    let options = RedisOptions::parse(url).expect("a URL");
    RedisStore::open_by_clock(options, Arc::new(clock.clone())).await.expect("the server is there")
}

/// A store as another process would open it.
pub(crate) async fn open(url: &str) -> RedisStore {
    let options = RedisOptions::parse(url).expect("a URL");
    RedisStore::open(options, Arc::new(SystemClock::new())).await.expect("the server is there")
}

/// The batcher that old producers and old workers know.
pub(crate) fn input_contour() -> BatcherId {
    batcher(BatcherName::INPUT_CONTOUR)
}

pub(crate) fn settings() -> Settings {
    Settings::of(&input_contour().name)
}

/// One batcher of each layout.
pub(crate) fn both_layouts() -> [BatcherId; 2] {
    [input_contour(), BatcherId { layout: Some(Layout::Own), ..batcher("orders") }]
}

pub(crate) async fn ingest(store: &RedisStore, of: &BatcherId, message: NewMessage) -> Result<IngestReply, StoreError> {
    let mut replies = store.batch_ingest(of, &Rules::default(), vec![message]).await?;
    Ok(replies.pop().expect("one reply each"))
}

#[track_caller]
pub(crate) fn accepted(reply: Result<IngestReply, StoreError>) -> Timestamp {
    match reply {
        Ok(IngestReply::Accepted { deadline, .. }) => deadline,
        other => panic!("should be accepted, but: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn claimed(reply: Result<ClaimReply, StoreError>) -> ClaimedBatch {
    match reply {
        Ok(ClaimReply::Claimed(batch)) => batch,
        other => panic!("should be claimed, but: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn check_corrupt<T: std::fmt::Debug>(reply: Result<T, StoreError>, names: &str) {
    match reply {
        Err(StoreError::Corrupt(why)) => assert!(why.contains(names), "it should name {names}: {why}"),
        other => panic!("should be corrupt, but: {other:?}"),
    }
}

/// Waits for the thing itself, letting others go on meanwhile.
pub(crate) async fn until(what: &str, mut it_is_so: impl FnMut() -> bool) {
    let looked = tokio::time::timeout(SOON, async {
        while !it_is_so() {
            pause(Duration::from_millis(5)).await;
        }
    });
    looked.await.unwrap_or_else(|_| panic!("still not: {what}"));
}

#[expect(clippy::disallowed_methods, reason = "servers and other processes live by the real clock")]
pub(crate) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
