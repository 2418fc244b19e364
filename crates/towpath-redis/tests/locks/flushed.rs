//! Everything on the server is gone: fences go on rising all the same.

use std::time::Duration;

use towpath_core::lock::{AcquireReply, Fence};
use towpath_core::store::LockStore;
use towpath_redis::RedisStore;

use crate::rig::{Rig, pause, until, want};

const FLUSHES: u32 = 100;

/// The fence of a lock that is free. A question whose answer is late is put again.
async fn kept_asking(store: &RedisStore, who: &str) -> Fence {
    let mut fence = None;
    until("it is granted", async || {
        fence = match store.lock_acquire(want("s", who)).await {
            Ok(AcquireReply::Granted(grant) | AcquireReply::Replayed(grant)) => Some(grant.fence),
            Ok(other) => panic!("{who}: {other:?}"),
            Err(_late) => None,
        };
        fence.is_some()
    })
    .await;
    fence.expect("it was granted")
}

#[tokio::test]
async fn a_fence_after_everything_was_flushed_is_larger_than_all_before() {
    let rig = Rig::start();
    let store = rig.store().await;
    let mut highest = kept_asking(&store, "first").await;
    for round in 0..FLUSHES {
        rig.cli(&["FLUSHALL"]);
        // Fences rise ten times a second by themselves.
        pause(Duration::from_millis(105)).await;
        let after = kept_asking(&store, &format!("a{round}")).await;
        assert!(after > highest, "round {round}: {after} after {highest}");
        highest = after;
    }
}
