//! Every answer is lost once: whoever asks again gets the same answer, and nothing stays locked.

use futures_util::future::join_all;
use towpath_core::lock::{AcquireReply, ReleaseLock, ReleaseReply};
use towpath_core::store::LockStore;
use towpath_redis::RedisStore;
use towpath_redis_testing::FaultProxy;

use crate::rig::{Rig, is_busy, open, scope, until, want};

/// Stores side by side, each behind a proxy of its own.
const LANES: usize = 4;
/// Answers to acquires, and as many to releases, that each of them loses.
const EACH: usize = 250;

/// Asks with the answer lost, until it was; then again until there is one. Whether the first answer came through all the same.
async fn asked_twice<T>(proxy: &FaultProxy, mut ask: impl AsyncFnMut() -> Result<T, towpath_core::store::StoreError>) -> (bool, T) {
    proxy.cut_before_answer();
    if let Ok(answer) = ask().await {
        return (true, answer);
    }
    let mut answer = None;
    until("it is answered", async || {
        answer = ask().await.ok();
        answer.is_some()
    })
    .await;
    (false, answer.expect("it was answered"))
}

async fn lose_answers(store: RedisStore, proxy: FaultProxy, witness: RedisStore, lane: usize) {
    let what = format!("s{lane}");
    let (mut acquires, mut releases, mut number) = (0, 0, 0);
    while acquires < EACH || releases < EACH {
        number += 1;
        let question = want(&what, &format!("a{number}"));
        let (came, reply) = asked_twice(&proxy, async || store.lock_acquire(question.clone()).await).await;
        let (AcquireReply::Granted(grant) | AcquireReply::Replayed(grant)) = reply else { panic!("{what} {number}: {reply:?}") };
        acquires += usize::from(!came);
        assert!(is_busy(&witness, want(&what, "witness")).await, "{what} {number}: it is not held");
        let lease = ReleaseLock { scope: scope(&what), fence: grant.fence };
        let (came, reply) = asked_twice(&proxy, async || store.lock_release(lease.clone()).await).await;
        assert!(matches!(reply, ReleaseReply::Released | ReleaseReply::Already), "{what} {number}: {reply:?}");
        releases += usize::from(!came);
        let question = want(&what, &format!("w{number}"));
        let free = witness.lock_acquire(question).await.expect("the witness has a good connection");
        let AcquireReply::Granted(grant) = free else { panic!("{what} {number}: it is stuck: {free:?}") };
        let lease = ReleaseLock { scope: scope(&what), fence: grant.fence };
        assert_eq!(witness.lock_release(lease).await, Ok(ReleaseReply::Released));
    }
}

#[tokio::test]
async fn two_thousand_answers_that_are_lost_leave_nothing_locked_and_nobody_twice() {
    let rig = Rig::start();
    let mut lanes = Vec::new();
    for lane in 0..LANES {
        let proxy = FaultProxy::before(rig.server.port());
        let store = open(&proxy.url()).await;
        lanes.push(lose_answers(store, proxy, rig.store().await, lane));
    }
    join_all(lanes).await;
}
