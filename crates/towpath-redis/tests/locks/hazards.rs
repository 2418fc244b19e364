//! What can go wrong among workflows that lock by INCR: each time their own commands show the damage, and then a lock of ours in the same place
//! does not.

use std::time::Duration;

use towpath_core::lock::{AcquireReply, Previous, ReleaseReply, RenewReply};
use towpath_core::store::{InspectStore, LockStore};
use towpath_redis_testing::FaultProxy;

use crate::old_workflow::{Inputs, OldWorkflow, counter, meta};
use crate::rig::{Rig, granted, is_busy, lease_ms, open, release, renew, until, want};

const S: &str = "s";

#[tokio::test]
async fn a_failing_caller_with_a_shorter_time_lets_nobody_into_a_lock_of_ours() {
    let rig = Rig::start();
    let old = rig.old_workflow().await;
    old.acquire(&Inputs::new(S, "a")).await.expect("it is free");
    old.acquire(&Inputs::new(S, "b").ttl(1)).await.expect_err("it is held");
    assert!(old.left_ms(&counter(S)).await <= 1_000, "the holder's day was cut to a second");
    old.runs_out(&counter(S)).await;
    assert_eq!(old.attempt(&Inputs::new(S, "c")).await, 1, "the damage: two holders");

    rig.cli(&["FLUSHALL"]);
    let store = rig.store().await;
    let grant = granted(&store, want(S, "a")).await;
    old.acquire(&Inputs::new(S, "b").ttl(1)).await.expect_err("it is held");
    old.runs_out(&counter(S)).await;
    assert!(is_busy(&store, want(S, "c")).await, "others of ours stay out");
    assert!(matches!(renew(&store, S, grant.fence).await, RenewReply::Renewed { healed: true, .. }));
    assert!(old.attempt(&Inputs::new(S, "d")).await > 1, "and old ones again from the next renewal on");
}

#[tokio::test]
async fn callers_that_fail_do_not_keep_a_dead_holder_alive() {
    let rig = Rig::start();
    let old = rig.old_workflow().await;
    old.acquire(&Inputs::new(S, "dead").ttl(1)).await.expect("it is free");
    old.acquire(&Inputs::new(S, "b").ttl(100)).await.expect_err("it is held");
    assert!(old.left_ms(&counter(S)).await > 90_000, "the damage: the dead holder's second became a hundred");

    rig.cli(&["FLUSHALL"]);
    let store = rig.store().await;
    granted(&store, lease_ms(500, want(S, "dead"))).await;
    old.acquire(&Inputs::new(S, "b").ttl(100)).await.expect_err("it is held");
    until(
        "the lease is over",
        async || matches!(store.lock_acquire(want(S, "c")).await, Ok(AcquireReply::Granted(grant)) if grant.previous == Previous::Expired),
    )
    .await;
}

#[tokio::test]
async fn a_late_release_does_not_delete_a_newcomer_that_has_no_identity_yet() {
    let rig = Rig::start();
    let old = rig.old_workflow().await;
    let runs_out = async |old: &OldWorkflow| {
        old.runs_out(&counter(S)).await;
        old.runs_out(&meta(S)).await;
    };
    old.acquire(&Inputs::new(S, "a")).await.expect("it is free");
    runs_out(&old).await;
    assert_eq!(old.attempt(&Inputs::new(S, "newcomer")).await, 1);
    let released = old.release(S, "a").await.expect("no identity, no complaint");
    assert_eq!(released["idempotent"], true);
    assert_eq!(old.attempt(&Inputs::new(S, "third")).await, 1, "the damage: the newcomer's lock is gone");

    rig.cli(&["FLUSHALL"]);
    let store = rig.store().await;
    let grant = granted(&store, want(S, "a")).await;
    runs_out(&old).await;
    assert_eq!(old.attempt(&Inputs::new(S, "newcomer")).await, 1);
    assert!(matches!(release(&store, S, grant.fence).await, ReleaseReply::Lost { .. }));
    assert_eq!(old.attempt(&Inputs::new(S, "third")).await, 2, "the newcomer holds it still");
}

#[tokio::test]
async fn a_release_that_pauses_half_way_does_not_delete_the_next_holders_lock() {
    let rig = Rig::start();
    let old = rig.old_workflow().await;
    old.acquire(&Inputs::new(S, "a")).await.expect("it is free");
    assert!(old.read_identity(S).await.is_some_and(|identity| identity.contains("\"a\"")), "it is a's, says the first step of a's release");
    old.runs_out(&counter(S)).await;
    old.runs_out(&meta(S)).await;
    old.acquire(&Inputs::new(S, "b")).await.expect("a's time was over");
    old.delete_counter(S).await;
    old.delete_identity(S).await;
    assert_eq!(old.attempt(&Inputs::new(S, "c")).await, 1, "the damage: b's lock is gone");

    rig.cli(&["FLUSHALL"]);
    let store = rig.store().await;
    let first = granted(&store, lease_ms(100, want(S, "a"))).await;
    until("the lease is over", async || !is_busy(&store, want(S, "b")).await).await;
    assert!(matches!(release(&store, S, first.fence).await, ReleaseReply::Lost { .. }));
    assert!(old.attempt(&Inputs::new(S, "c")).await > 1, "b holds it still");
    assert!(is_busy(&store, want(S, "c")).await);
}

#[tokio::test]
async fn a_newcomer_keeps_its_identity_when_the_one_before_it_leaves() {
    let rig = Rig::start();
    let old = rig.old_workflow().await;
    old.acquire(&Inputs::new(S, "a")).await.expect("it is free");
    old.delete_counter(S).await;
    old.acquire(&Inputs::new(S, "b")).await.expect("the counter is gone");
    old.delete_identity(S).await;
    assert_eq!(old.read_identity(S).await, None, "the damage: b holds it, and nobody can tell");

    rig.cli(&["FLUSHALL"]);
    let store = rig.store().await;
    old.acquire(&Inputs::new(S, "a")).await.expect("it is free");
    old.delete_counter(S).await;
    let grant = granted(&store, want(S, "b")).await;
    old.delete_identity(S).await;
    assert!(is_busy(&store, want(S, "c")).await, "the counter says whose it is");
    assert!(matches!(renew(&store, S, grant.fence).await, RenewReply::Renewed { healed: true, .. }));
    assert!(old.read_identity(S).await.is_some_and(|identity| identity.contains("\"b\"")), "put back by the renewal");
    release(&store, S, grant.fence).await;
    assert_eq!((old.left_ms(&counter(S)).await, old.left_ms(&meta(S)).await), (-2, -2), "ours go together");
}

#[tokio::test]
async fn a_lock_of_ours_has_an_end_from_its_first_moment() {
    let rig = Rig::start();
    let old = rig.old_workflow().await;
    let count: i64 = old.command(&["INCR", &counter(S)]).await;
    assert_eq!((count, old.left_ms(&counter(S)).await), (1, -1), "the damage: whoever dies between INCR and EXPIRE holds it for ever");

    rig.cli(&["FLUSHALL"]);
    let store = rig.store().await;
    let grant = granted(&store, lease_ms(5_000, want(S, "a"))).await;
    for key in [counter(S), meta(S)] {
        let left = old.left_ms(&key).await;
        assert!((0..=6_000).contains(&left), "{key}: {left} ms");
    }
    assert!(matches!(renew(&store, S, grant.fence).await, RenewReply::Renewed { .. }));
    assert!((20_000..=31_000).contains(&old.left_ms(&counter(S)).await));
}

#[tokio::test]
async fn an_old_counter_that_nobody_put_a_name_to_is_taken_over_after_its_grace() {
    let rig = Rig::start();
    let old = rig.old_workflow().await;
    assert_eq!(old.attempt(&Inputs::new(S, "dead")).await, 1);
    old.acquire(&Inputs::new(S, "b")).await.expect_err("held for a day");
    assert_eq!(old.read_identity(S).await, None, "the damage: held by nobody that a clean-up could find");

    let store = rig.store().await;
    let mut question = want(S, "a");
    question.orphan_grace = Duration::from_millis(600);
    assert!(is_busy(&store, question.clone()).await);
    until("the grace is over", async || {
        matches!(store.lock_acquire(question.clone()).await, Ok(AcquireReply::Granted(grant)) if grant.previous == Previous::Orphan)
    })
    .await;
    assert!(old.acquire(&Inputs::new(S, "c")).await.is_err(), "and it is held again, by somebody with a name");
}

#[tokio::test]
async fn counter_and_identity_of_ours_end_together() {
    let rig = Rig::start();
    let old = rig.old_workflow().await;
    old.acquire(&Inputs::new(S, "a").ttl(100)).await.expect("it is free");
    old.acquire(&Inputs::new(S, "b").ttl(10)).await.expect_err("it is held");
    assert!(old.left_ms(&meta(S)).await - old.left_ms(&counter(S)).await > 80_000, "the damage: an identity without a lock");

    rig.cli(&["FLUSHALL"]);
    let store = rig.store().await;
    let grant = granted(&store, lease_ms(20_000, want(S, "a"))).await;
    let apart = async |old: &OldWorkflow| (old.left_ms(&meta(S)).await - old.left_ms(&counter(S)).await).abs();
    assert!(apart(&old).await < 1_000);
    old.acquire(&Inputs::new(S, "b").ttl(10)).await.expect_err("it is held");
    assert!(matches!(renew(&store, S, grant.fence).await, RenewReply::Renewed { .. }));
    assert!(apart(&old).await < 1_000, "after a renewal too");
}

#[tokio::test]
async fn an_answer_that_is_lost_leaves_no_lock_that_nobody_owns() {
    let rig = Rig::start();
    let proxy = FaultProxy::before(rig.server.port());
    let old = rig.old_workflow().await;
    let behind_proxy = OldWorkflow::connect(proxy.port()).await;
    proxy.cut_before_answer();
    let lost = tokio::spawn({
        let behind_proxy = behind_proxy.clone();
        async move { behind_proxy.attempt(&Inputs::new(S, "a")).await }
    });
    lost.await.expect_err("its answer never came");
    assert_eq!(old.attempt(&Inputs::new(S, "a")).await, 2, "the damage: it waits for itself");

    rig.cli(&["FLUSHALL"]);
    let store = open(&proxy.url()).await;
    // The server knows the scripts from here on: what is lost is an answer, and not the request to send a script.
    let warm = granted(&store, want("warm", "up")).await;
    assert_eq!(release(&store, "warm", warm.fence).await, ReleaseReply::Released);
    assert_eq!(release(&store, "warm", warm.fence).await, ReleaseReply::Already);
    proxy.cut_before_answer();
    // Unless something else that the server says is lost in its place: it may not be told from that.
    let _lost_or_not = store.lock_acquire(want(S, "a")).await;
    let again = async || match store.lock_acquire(want(S, "a")).await {
        Ok(AcquireReply::Replayed(grant)) => Some(grant),
        Ok(other) => panic!("{other:?}"),
        Err(_the_connection_is_made_anew) => None,
    };
    let mut grant = None;
    until("it is asked again", async || {
        grant = again().await;
        grant.is_some()
    })
    .await;
    let grant = grant.expect("it was granted");
    let released = towpath_core::lock::ReleaseLock { scope: crate::rig::scope(S), fence: grant.fence };
    let (witness, mut next) = (rig.store().await, None);
    until("it is released, and the answer is lost", async || {
        if store.lock(&crate::rig::scope(S)).await.is_err() {
            return false; // the connection is not made anew yet
        }
        proxy.cut_before_answer();
        let _lost_or_not = store.lock_release(released.clone()).await;
        next = match witness.lock_acquire(want(S, "b")).await {
            Ok(AcquireReply::Granted(grant)) => Some(grant),
            _not_released_yet => None,
        };
        next.is_some()
    })
    .await;
    let next = next.expect("it was granted");
    until("it is released again", async || matches!(store.lock_release(released.clone()).await, Ok(ReleaseReply::Already))).await;
    assert!(matches!(renew(&witness, S, next.fence).await, RenewReply::Renewed { healed: false, .. }), "the next holder was not touched");
}

#[tokio::test]
async fn a_second_release_is_no_error_and_touches_nobody() {
    let rig = Rig::start();
    let old = rig.old_workflow().await;
    old.acquire(&Inputs::new(S, "a")).await.expect("it is free");
    old.release(S, "a").await.expect("it is its own");
    old.acquire(&Inputs::new(S, "b")).await.expect("it is free");
    let complaint = old.release(S, "a").await.expect_err("the damage: whoever releases at each of its ends fails");
    assert!(complaint.starts_with("LOGIC ERROR: Lock held by Old import"), "{complaint}");

    rig.cli(&["FLUSHALL"]);
    let store = rig.store().await;
    let first = granted(&store, want(S, "a")).await;
    assert_eq!(release(&store, S, first.fence).await, ReleaseReply::Released);
    let second = granted(&store, want(S, "b")).await;
    assert_eq!(release(&store, S, first.fence).await, ReleaseReply::Already);
    assert!(matches!(renew(&store, S, second.fence).await, RenewReply::Renewed { healed: false, .. }));
}
