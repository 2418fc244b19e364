//! Locks on a master that has a replica: what the replica must have, and what becomes of locks when the master dies.

use std::time::Duration;

use towpath_core::lock::{AcquireReply, LostLock, Previous, ReleaseReply, RenewReply};
use towpath_core::names::LockId;
use towpath_core::permit::{AcquirePermit, PermitKind, PermitReply};
use towpath_core::store::{LockStore, StoreError, StoreTrouble};
use towpath_redis_testing::{RedisServer, SentinelRig, until as it_holds};

use crate::rig::{granted, is_busy, lease_ms, open, release, renew, scope, until, want};

const PATIENCE: Duration = Duration::from_secs(30);

fn units(who: &str) -> AcquirePermit {
    AcquirePermit::new(PermitKind::Semaphore, scope("s"), LockId::new(who).expect("a lock id"), 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_too_few_replicas_confirmed_is_taken_back_and_nobody_holds_it() {
    let primary = RedisServer::build().append_only("everysec").start();
    let replica = RedisServer::build().append_only("everysec").line(format!("replicaof 127.0.0.1 {}", primary.port())).start();
    it_holds("the replica is in step", PATIENCE, || primary.cli(&["info", "replication"]).contains("state=online"));
    let store = open(&format!("{}?durability=replicated", primary.url())).await;
    let witness = open(&primary.url()).await;
    let first = granted(&store, want("s", "a")).await;
    assert!(is_busy(&witness, want("s", "b")).await, "the replica has it");
    assert_eq!(release(&store, "s", first.fence).await, ReleaseReply::Released);

    replica.pause();
    let mut said = String::new();
    for round in 0..3 {
        let refused = store.lock_acquire(want("s", &format!("c{round}"))).await;
        let Err(StoreError::Unavailable(StoreTrouble::NotDurable(why))) = refused else { panic!("{refused:?}") };
        said += &why;
        let free = granted(&witness, want("s", &format!("d{round}"))).await;
        assert!(free.fence > first.fence);
        release(&witness, "s", free.fence).await;
    }
    assert!(said.contains("0 of 1 replica(s) confirmed it"), "{said}");
    let refused = store.permit_acquire(units("a")).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(StoreTrouble::NotDurable(_)))), "{refused:?}");
    let taken = witness.permit_acquire(units("b")).await;
    assert!(matches!(&taken, Ok(PermitReply::Granted(_))), "{taken:?}");

    replica.resume();
    it_holds("the replica follows", PATIENCE, || primary.cli(&["wait", "1", "1000"]).trim() == "1");
    granted(&store, want("s", "e")).await;
}

/// Asks until the new master answers.
async fn answered<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    let mut answer = None;
    until(what, async || {
        answer = ask().await.ok();
        answer.is_some()
    })
    .await;
    answer.expect("it was answered")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_the_replica_has_outlives_the_master() {
    let mut rig = SentinelRig::with(RedisServer::build().append_only("everysec"));
    let (store, other) = (open(&format!("{}?durability=replicated", rig.url())).await, open(&rig.url()).await);
    let held = granted(&store, want("s", "a")).await;
    let dead = rig.kill_master();
    rig.wait_for_other_master(dead);
    let busy = answered("the new master is found", async || other.lock_acquire(want("s", "b")).await).await;
    assert!(matches!(&busy, AcquireReply::Busy(_)), "{busy:?}");
    let lease = || towpath_core::lock::RenewLock { scope: scope("s"), fence: held.fence, lease: Some(Duration::from_secs(30)) };
    let renewed = answered("the holder finds the new master", async || store.lock_renew(lease()).await).await;
    assert!(matches!(&renewed, RenewReply::Renewed { .. }), "{renewed:?}");
    assert_eq!(release(&store, "s", held.fence).await, ReleaseReply::Released);
    assert!(granted(&other, want("s", "c")).await.fence > held.fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_died_with_the_master_is_followed_by_a_higher_fence_and_its_holder_learns_of_it() {
    let mut rig = SentinelRig::with(RedisServer::build().append_only("everysec"));
    let (store, other) = (open(&rig.url()).await, open(&rig.url()).await);
    let replica = 1 - rig.master();
    rig.servers[replica].kill();
    let held = granted(&store, lease_ms(600_000, want("s", "a"))).await;
    let dead = rig.kill_master();
    rig.servers[replica].start_again();
    rig.wait_for_other_master(dead);
    let next = answered("the new master is found", async || other.lock_acquire(want("s", "b")).await).await;
    let AcquireReply::Granted(next) = next else { panic!("the replica never heard of it: {next:?}") };
    assert!(next.fence > held.fence, "{} after {}", next.fence, held.fence);
    assert_eq!(next.previous, Previous::None, "nothing of it is known there: this run proved what it should");
    assert_eq!(renew(&store, "s", held.fence).await, RenewReply::Lost(LostLock::Replaced));
    assert!(matches!(release(&store, "s", held.fence).await, ReleaseReply::Lost { why: LostLock::Replaced, .. }));
    assert!(matches!(renew(&other, "s", next.fence).await, RenewReply::Renewed { healed: false, .. }), "the next holder was not touched");
}
