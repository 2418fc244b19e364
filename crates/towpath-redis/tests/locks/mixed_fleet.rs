//! Old workflows and ours contend for the same scopes: never two holders, and everybody is told what it was always told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use towpath::Towpath;
use towpath::locks::{Acquired, LockWait};
use towpath_core::lock::{AcquireReply, BusyWith, EndBy, EndLock, EndReply, HolderKind, LostLock, RenewReply};
use towpath_core::names::LockId;
use towpath_core::store::LockStore;
use towpath_redis::RedisStore;

use crate::old_workflow::{Inputs, OldWorkflow, counter};
use crate::rig::{Rig, SOON, granted, pause, release, renew, scope, want};

/// What only one may be in at a time.
#[derive(Default)]
struct Room {
    occupied: AtomicBool,
    visits: AtomicU32,
}

impl Room {
    async fn visit(&self, who: &str) {
        assert!(!self.occupied.swap(true, Ordering::SeqCst), "{who} finds somebody inside");
        pause(Duration::from_millis(3)).await;
        self.visits.fetch_add(1, Ordering::SeqCst);
        assert!(self.occupied.swap(false, Ordering::SeqCst), "{who} was left alone");
    }
}

async fn old_visits(old: OldWorkflow, room: Arc<Room>, who: String, times: u32) {
    for _ in 0..times {
        old.acquire(&Inputs::new("s", &who).waiting(SOON)).await.unwrap_or_else(|text| panic!("{who}: {text}"));
        room.visit(&who).await;
        // It may find its identity gone: another old workflow deletes the counter first, and the identity when somebody else is in.
        old.release("s", &who).await.unwrap_or_else(|text| panic!("{who}: {text}"));
    }
}

async fn our_visits(towpath: Towpath, room: Arc<Room>, who: String, times: u32) {
    for _ in 0..times {
        let Acquired::Granted(guard) =
            towpath.lock("s").lock_id(&who).wait(LockWait::UpTo(SOON)).acquire().await.expect("the server is there")
        else {
            panic!("{who} waited in vain")
        };
        room.visit(&who).await;
        guard.release().await.expect("the server is there");
    }
}

async fn hasty_visits(store: RedisStore, room: Arc<Room>, who: String, times: u32) {
    let mut done = 0;
    while done < times {
        let mut question = want("s", &who);
        question.request_id = format!("{who}-{done}").parse().expect("a request");
        match store.lock_acquire(question).await.expect("the server is there") {
            AcquireReply::Granted(grant) => {
                room.visit(&who).await;
                release(&store, "s", grant.fence).await;
                done += 1;
            }
            AcquireReply::Busy(_) => pause(Duration::from_millis(3)).await,
            other => panic!("{who}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_workflows_and_ours_are_never_inside_together() {
    let rig = Rig::start();
    let room = Arc::new(Room::default());
    let mut visitors = tokio::task::JoinSet::new();
    for number in 0..4 {
        visitors.spawn(old_visits(rig.old_workflow().await, Arc::clone(&room), format!("old-{number}"), 15));
    }
    let towpath = rig.towpath().await;
    for number in 0..3 {
        visitors.spawn(our_visits(towpath.clone(), Arc::clone(&room), format!("ours-{number}"), 15));
    }
    let store = rig.store().await;
    for number in 0..2 {
        visitors.spawn(hasty_visits(store.clone(), Arc::clone(&room), format!("hasty-{number}"), 15));
    }
    visitors.join_all().await;
    assert_eq!(room.visits.load(Ordering::SeqCst), 9 * 15);
    assert_eq!(rig.cli(&["EXISTS", &counter("s")]), "0", "nobody has left anything");
}

#[tokio::test]
async fn an_old_workflow_is_told_of_ours_what_it_is_told_of_its_own_kind() {
    let rig = Rig::start();
    let old = rig.old_workflow().await;
    let towpath = rig.towpath().await;
    let ours = towpath.lock("s").lock_id("ours").workflow("wf-9", "Nightly \"export\"").execution_id("4711").wait(LockWait::No);
    let Acquired::Granted(guard) = ours.acquire().await.expect("the server is there") else { panic!("it is free") };
    let (fence, since) = (guard.fence().as_u64(), guard.locked_at().to_iso());

    let failed = old.acquire(&Inputs::new("s", "old")).await.expect_err("it is held");
    let count = fence * 1_000_000 + 2;
    assert_eq!(
        failed,
        format!("Lock acquisition failed (fail-fast): scope 's' is held (count={count}). Caller passed wait_till_lock_released=false.")
    );
    let timed_out = old.acquire(&Inputs::new("s", "old").waiting(Duration::from_millis(50))).await.expect_err("it is held");
    assert_eq!(timed_out, "Lock acquisition timed out after 0s waiting for scope 's'.");
    let refused = old.release("s", "old").await.expect_err("it is not its own");
    assert_eq!(
        refused,
        format!("LOGIC ERROR: Lock held by Nightly \"export\" (id: wf-9, execution: 4711) since {since}, not by lock_id=old")
    );

    guard.release().await.expect("the server is there");
    let acquired = old.acquire(&Inputs::new("s", "old")).await.expect("it is free");
    assert_eq!((&acquired["acquired"], &acquired["count"], &acquired["key"]), (&true.into(), &1.into(), &"n8n-lock-s".into()));
}

#[tokio::test]
async fn ours_is_told_of_an_old_workflow_who_it_is_and_may_release_it_by_its_lock_id_alone() {
    let rig = Rig::start();
    let (old, store) = (rig.old_workflow().await, rig.store().await);
    old.acquire(&Inputs::new("s", "old").ttl(100)).await.expect("it is free");
    let AcquireReply::Busy(busy) = store.lock_acquire(want("s", "ours")).await.expect("the server is there") else { panic!("it is held") };
    let BusyWith::Legacy(holder) = busy.with else { panic!("{busy:?}") };
    assert_eq!((holder.kind, &*holder.lock_id, &*holder.workflow_name), (HolderKind::Legacy, "old", "Old import"));
    assert!(busy.free_in.is_some_and(|left| left <= Duration::from_secs(100)), "its counter says how long it may last");

    let by = |who: &str| EndLock { scope: scope("s"), by: EndBy::LockId(LockId::new(who).expect("a lock id")) };
    let refused = store.lock_end(by("ours")).await.expect("the server is there");
    let EndReply::NotHolder(holder) = refused else { panic!("{refused:?}") };
    assert_eq!(
        holder.not_yours("ours"),
        "LOGIC ERROR: Lock held by Old import (id: wf-1, execution: e-old) since 2026-01-15T08:00:00.000Z, not by lock_id=ours"
    );
    assert!(matches!(store.lock_end(by("old")).await, Ok(EndReply::Ended { .. })));
    granted(&store, want("s", "ours")).await;
}

#[tokio::test]
async fn an_old_workflow_that_has_our_lock_id_may_release_ours_and_we_learn_of_it() {
    let rig = Rig::start();
    let (old, store) = (rig.old_workflow().await, rig.store().await);
    let grant = granted(&store, want("s", "ours")).await;
    let released = old.release("s", "ours").await.expect("it has the lock id");
    assert_eq!(released["idempotent"], false);
    assert_eq!(renew(&store, "s", grant.fence).await, RenewReply::Lost(LostLock::Absent));
    old.acquire(&Inputs::new("s", "old")).await.expect("it is free");
}
