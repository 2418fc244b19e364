//! The promises about semaphores and read/write locks.

use std::time::Duration;

use towpath_core::inspect::LockQuery;
use towpath_core::lock::{Fence, LostLock, RenewReply};
use towpath_core::permit::{AcquirePermit, PermitKind, PermitReply, ReleaseBy};

use crate::bench::Bench;
use crate::words::{PermitWords, lock_id, read, scope, seconds, semaphore, waiter, want, write};

const SEMAPHORE: PermitKind = PermitKind::Semaphore;

pub async fn no_more_units_are_held_than_there_are(t: &mut Bench) {
    assert_eq!(t.taken(semaphore("s", "a", 3)).await.units_left, 2);
    let busy = t.scarce(semaphore("s", "b", 3)).await;
    assert_eq!((busy.units_left, busy.free_in, busy.rank), (2, Some(seconds(10)), None));
    assert_eq!(t.taken(semaphore("s", "c", 2)).await.units_left, 0);
}

pub async fn more_than_there_are_is_never(t: &mut Bench) {
    assert_eq!(t.take(semaphore("s", "a", 6).waiting()).await, PermitReply::Never);
    assert_eq!(t.permits(SEMAPHORE, "s").await, None, "nothing is left behind");
}

pub async fn asking_again_gets_the_same_permit(t: &mut Bench) {
    let grant = t.taken(semaphore("s", "a", 3)).await;
    t.advance_s(1);
    let PermitReply::Replayed(again) = t.take(semaphore("s", "a", 3)).await else { panic!("not replayed") };
    assert_eq!((again.fence, again.lease_end, again.units_left), (grant.fence, grant.lease_end, 2));
}

pub async fn a_permit_renewed_without_a_length_keeps_the_length_that_was_given_last(t: &mut Bench) {
    let day = AcquirePermit { lease: seconds(86_400), max_hold: seconds(7 * 86_400), ..semaphore("s", "a", 1) };
    let grant = t.taken(day).await;
    for renewal in [seconds(86_400), seconds(10)] {
        t.advance_s(5);
        let RenewReply::Renewed { now, lease_end, .. } = t.renew_permit_as_before(SEMAPHORE, "s", "a", grant.fence).await else {
            panic!("lost")
        };
        assert_eq!(lease_end.since(now), renewal);
        assert!(matches!(t.renew_permit(SEMAPHORE, "s", "a", grant.fence).await, RenewReply::Renewed { .. }));
    }
}

pub async fn a_heavy_head_is_not_overtaken(t: &mut Bench) {
    t.taken(semaphore("s", "h", 4)).await;
    assert_eq!(t.scarce(semaphore("s", "heavy", 3).waiting()).await.rank, Some(0));
    assert_eq!(t.scarce(semaphore("s", "light", 1).waiting()).await.rank, Some(1));
    t.scarce(semaphore("s", "hasty", 1)).await;
    t.give_back_of(SEMAPHORE, "s", "h").await;
    t.taken(semaphore("s", "heavy", 3).waiting()).await;
    t.taken(semaphore("s", "light", 1).waiting()).await;
}

pub async fn whoever_delays_nobody_may_enter(t: &mut Bench) {
    t.taken(semaphore("s", "h", 5)).await;
    t.scarce(semaphore("s", "first", 3).waiting()).await;
    t.scarce(semaphore("s", "second", 2).waiting()).await;
    t.give_back_of(SEMAPHORE, "s", "h").await;
    t.taken(semaphore("s", "second", 2).waiting()).await;
    t.taken(semaphore("s", "first", 3).waiting()).await;
}

pub async fn a_silent_head_that_could_enter_is_passed_after_a_second(t: &mut Bench) {
    t.taken(semaphore("s", "h", 5)).await;
    t.scarce(semaphore("s", "silent", 4).waiting()).await;
    t.scarce(semaphore("s", "b", 2).waiting()).await;
    t.give_back_of(SEMAPHORE, "s", "h").await;
    assert_eq!(t.scarce(semaphore("s", "b", 2).waiting()).await.free_in, Some(seconds(1)));
    t.advance_ms(999);
    assert_eq!(t.scarce(semaphore("s", "b", 2).waiting()).await.free_in, Some(Duration::from_millis(1)));
    t.advance_ms(1);
    t.taken(semaphore("s", "b", 2).waiting()).await;
    assert_eq!(t.permits(SEMAPHORE, "s").await.expect("known").waiters, []);
}

pub async fn the_next_head_has_a_second_of_its_own(t: &mut Bench) {
    t.taken(semaphore("s", "h", 5)).await;
    for who in ["silent", "b", "c"] {
        t.scarce(semaphore("s", who, 3).waiting()).await;
    }
    t.give_back_of(SEMAPHORE, "s", "h").await;
    assert_eq!(t.scarce(semaphore("s", "c", 3).waiting()).await.free_in, Some(seconds(1)));
    t.give_back(SEMAPHORE, "s", ReleaseBy::Waiter(waiter("silent"))).await;
    t.advance_s(1);
    assert_eq!(t.scarce(semaphore("s", "c", 3).waiting()).await.free_in, Some(seconds(1)), "the second was another's");
    t.taken(semaphore("s", "b", 3).waiting()).await;
}

pub async fn a_waiter_that_is_gone_holds_up_nobody(t: &mut Bench) {
    t.taken(AcquirePermit { lease: seconds(60), ..semaphore("s", "h", 4) }).await;
    t.scarce(semaphore("s", "gone", 3).waiting()).await;
    t.advance_s(30);
    t.taken(semaphore("s", "b", 1)).await;
}

pub async fn a_silent_holders_units_come_back_at_the_end_of_its_lease(t: &mut Bench) {
    let late = t.taken(semaphore("s", "a", 5)).await;
    t.advance_ms(9_999);
    t.scarce(semaphore("s", "b", 5)).await;
    t.advance_ms(1);
    assert_eq!(t.renew_permit(SEMAPHORE, "s", "a", late.fence).await, RenewReply::Lost(LostLock::Expired));
    assert!(t.taken(semaphore("s", "b", 5)).await.fence > late.fence);
    assert_eq!(t.renew_permit(SEMAPHORE, "s", "a", late.fence).await, RenewReply::Lost(LostLock::Absent));
}

pub async fn a_permit_is_renewed_up_to_its_cap(t: &mut Bench) {
    let grant = t.taken(semaphore("s", "a", 1)).await;
    t.advance_s(5);
    let RenewReply::Renewed { lease_end, .. } = t.renew_permit(SEMAPHORE, "s", "a", grant.fence).await else { panic!("lost") };
    assert_eq!(lease_end, t.now() + seconds(10));
    for _ in 0..10 {
        t.advance_s(5);
        let _renewed = t.renew_permit(SEMAPHORE, "s", "a", grant.fence).await;
    }
    t.advance_s(5);
    assert_eq!(t.renew_permit(SEMAPHORE, "s", "a", grant.fence).await, RenewReply::Lost(LostLock::MaxHold));
}

pub async fn a_permit_taken_anew_cannot_be_renewed_or_given_back_by_the_old_fence(t: &mut Bench) {
    let old = t.taken(semaphore("s", "a", 1)).await;
    t.advance_s(10);
    let new = t.taken(semaphore("s", "a", 1)).await;
    assert_eq!(t.renew_permit(SEMAPHORE, "s", "a", old.fence).await, RenewReply::Lost(LostLock::Replaced));
    let by = |fence: Fence| ReleaseBy::Permit { lock_id: lock_id("a"), fence: Some(fence) };
    assert_eq!(t.give_back(SEMAPHORE, "s", by(old.fence)).await, 0);
    assert_eq!(t.give_back(SEMAPHORE, "s", by(new.fence)).await, 1);
    assert_eq!(t.give_back(SEMAPHORE, "s", by(new.fence)).await, 0);
}

pub async fn whoever_gives_up_leaves_the_queue(t: &mut Bench) {
    t.taken(semaphore("s", "h", 5)).await;
    t.scarce(semaphore("s", "a", 5).waiting()).await;
    assert_eq!(t.give_back(SEMAPHORE, "s", ReleaseBy::Waiter(waiter("a"))).await, 1);
    assert_eq!(t.give_back(SEMAPHORE, "s", ReleaseBy::Waiter(waiter("a"))).await, 0);
    t.give_back_of(SEMAPHORE, "s", "h").await;
    t.taken(semaphore("s", "b", 1)).await;
}

pub async fn a_full_queue_takes_nobody(t: &mut Bench) {
    t.taken(semaphore("s", "h", 5)).await;
    let one = |who| AcquirePermit { waiters_max: 1, ..semaphore("s", who, 1).waiting() };
    t.scarce(one("a")).await;
    assert_eq!(t.take(one("b")).await, PermitReply::QueueFull { waiters: 1 });
    assert_eq!(t.scarce(one("a")).await.rank, Some(0));
}

pub async fn a_lowered_limit_takes_nothing_back(t: &mut Bench) {
    t.taken(semaphore("s", "a", 4)).await;
    let lowered = AcquirePermit { limit: 2, ..semaphore("s", "b", 1) };
    assert_eq!(t.scarce(lowered).await.units_left, 0);
    assert_eq!(t.permits(SEMAPHORE, "s").await.expect("known").permits.len(), 1);
}

pub async fn readers_join_readers_and_a_writer_is_alone(t: &mut Bench) {
    for who in ["r1", "r2", "r3"] {
        t.taken(read("s", who)).await;
    }
    t.scarce(write("s", "w")).await;
    for who in ["r1", "r2", "r3"] {
        t.give_back_of(PermitKind::ReadWrite, "s", who).await;
    }
    t.taken(write("s", "w")).await;
    t.scarce(read("s", "r1")).await;
    t.scarce(write("s", "w2")).await;
}

pub async fn nobody_passes_a_writer_that_waits(t: &mut Bench) {
    t.taken(read("s", "r1")).await;
    t.scarce(write("s", "w").waiting()).await;
    t.scarce(read("s", "r2").waiting()).await;
    t.scarce(read("s", "hasty")).await;
    t.give_back_of(PermitKind::ReadWrite, "s", "r1").await;
    t.scarce(read("s", "r2").waiting()).await;
    t.taken(write("s", "w").waiting()).await;
    t.give_back_of(PermitKind::ReadWrite, "s", "w").await;
    t.taken(read("s", "r2").waiting()).await;
}

pub async fn kinds_do_not_contend(t: &mut Bench) {
    t.granted(want("s", "a")).await;
    t.taken(semaphore("s", "a", 5)).await;
    t.taken(write("s", "a")).await;
}

pub async fn permits_and_places_survive_a_restart(t: &mut Bench) {
    let grant = t.taken(semaphore("s", "h", 5)).await;
    for (who, weight) in [("a", 2), ("b", 3)] {
        t.scarce(semaphore("s", who, weight).waiting()).await;
    }
    let before = t.permits(SEMAPHORE, "s").await;
    t.reopen().await;
    assert_eq!(t.permits(SEMAPHORE, "s").await, before);
    t.give_back_of(SEMAPHORE, "s", "h").await;
    assert!(t.taken(semaphore("s", "a", 2).waiting()).await.fence > grant.fence);
}

async fn listed(t: &Bench, kind: PermitKind, query: LockQuery) -> (Vec<String>, Option<String>) {
    let page = crate::bench::sure(t.store().permit_list(kind, &query).await);
    (page.items.iter().map(|view| view.scope.to_string()).collect(), page.next.map(|scope| scope.to_string()))
}

pub async fn units_in_use_are_listed_by_scope_and_others_are_not(t: &mut Bench) {
    for what in ["b:2", "b:1", "c"] {
        t.taken(semaphore(what, "a", 1)).await;
    }
    t.taken(read("a", "a")).await;
    t.granted(want("a", "a")).await;
    t.taken(semaphore("b:free", "a", 1)).await;
    t.give_back_of(SEMAPHORE, "b:free", "a").await;
    let list = |prefix: &str, after: Option<&str>, limit| LockQuery {
        prefix: prefix.to_owned(),
        after: after.map(scope),
        limit,
        ..LockQuery::default()
    };
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(listed(t, SEMAPHORE, list("", None, 100)).await, (names(&["b:1", "b:2", "c"]), None));
    assert_eq!(listed(t, PermitKind::ReadWrite, list("", None, 100)).await, (names(&["a"]), None));
    assert_eq!(listed(t, SEMAPHORE, list("b", None, 1)).await, (names(&["b:1"]), Some("b:1".to_owned())));
    assert_eq!(listed(t, SEMAPHORE, list("b", Some("b:1"), 1)).await, (names(&["b:2"]), None));
    t.advance_s(10);
    assert_eq!(listed(t, SEMAPHORE, list("", None, 100)).await, (Vec::new(), None), "all leases are over");
}

pub async fn units_that_are_renewed_or_waited_for_stay_in_the_list(t: &mut Bench) {
    let all = || LockQuery { limit: 10, ..LockQuery::default() };
    let first = t.taken(semaphore("s", "a", 5)).await;
    t.advance_s(9);
    assert!(matches!(t.renew_permit(SEMAPHORE, "s", "a", first.fence).await, RenewReply::Renewed { .. }));
    t.advance_s(9);
    assert_eq!(listed(t, SEMAPHORE, all()).await.0, ["s"]);
    t.scarce(semaphore("s", "b", 5).waiting()).await;
    t.give_back_of(SEMAPHORE, "s", "a").await;
    t.advance_s(5);
    let page = crate::bench::sure(t.store().permit_list(SEMAPHORE, &all()).await);
    assert_eq!(
        (page.items.len(), page.items[0].permits.len(), page.items[0].waiters.len()),
        (1, 0, 1),
        "nobody has it, and somebody waits"
    );
}
