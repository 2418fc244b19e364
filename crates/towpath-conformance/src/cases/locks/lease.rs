//! The promises about leases: a silent holder is followed, a renewed one is not, and no renewal passes the cap.

use towpath_core::lock::{AcquireLock, AcquireReply, LostLock, ReapReply, ReleaseReply, RenewReply};

use crate::bench::Bench;
use crate::words::{LockWords, seconds, want};

pub async fn a_dead_holder_is_followed_at_the_end_of_its_lease_and_not_before(t: &mut Bench) {
    t.granted(want("s", "a")).await;
    t.advance_ms(9_999);
    t.held_by(want("s", "b"), "a").await;
    t.advance_ms(1);
    t.granted(want("s", "b")).await;
}

pub async fn a_renewal_counts_from_now(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    t.advance_s(9);
    let renewed = t.renew_lock("s", grant.fence).await;
    let expected = RenewReply::Renewed { now: t.now(), lease_end: t.now() + seconds(10), legacy_attempts: 0, healed: false };
    assert_eq!(renewed, expected);
    t.advance_s(9);
    t.held_by(want("s", "b"), "a").await;
}

pub async fn a_renewal_without_a_length_keeps_the_length_that_was_given_last(t: &mut Bench) {
    let lease_of = |renewed: RenewReply| match renewed {
        RenewReply::Renewed { now, lease_end, .. } => lease_end.since(now),
        RenewReply::Lost(why) => panic!("lost: {why:?}"),
    };
    let day = AcquireLock { lease: seconds(86_400), max_hold: seconds(7 * 86_400), max_holds: 3, ..want("s", "a") };
    let grant = t.granted(day.clone()).await;
    t.advance_s(80_000);
    assert_eq!(lease_of(t.renew_lock_as_before("s", grant.fence).await), seconds(86_400));
    t.reopen().await;
    assert_eq!(lease_of(t.renew_lock_as_before("s", grant.fence).await), seconds(86_400), "it is kept with the lock");
    let shorter = AcquireLock { lease: seconds(30), ..day.asked_as("again") };
    assert!(matches!(t.acquire(shorter).await, AcquireReply::Reentered(_)));
    assert_eq!(lease_of(t.renew_lock_as_before("s", grant.fence).await), seconds(86_400), "entering again shortens nothing");
    assert_eq!(lease_of(t.renew_lock("s", grant.fence).await), seconds(10));
    assert_eq!(lease_of(t.renew_lock_as_before("s", grant.fence).await), seconds(10), "the length that was said last counts");
}

pub async fn a_holder_that_renews_for_ever_is_lost_at_its_cap(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    for _ in 0..11 {
        t.advance_s(5);
        let RenewReply::Renewed { lease_end, .. } = t.renew_lock("s", grant.fence).await else { panic!("lost before its cap") };
        assert!(lease_end <= grant.max_hold_end);
    }
    t.advance_ms(4_999);
    t.held_by(want("s", "b"), "a").await;
    t.advance_ms(1);
    assert_eq!(t.renew_lock("s", grant.fence).await, RenewReply::Lost(LostLock::MaxHold));
    t.granted(want("s", "b")).await;
}

pub async fn a_late_holder_cannot_renew(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    t.advance_s(10);
    assert_eq!(t.renew_lock("s", grant.fence).await, RenewReply::Lost(LostLock::Expired));
    t.granted(want("s", "b")).await;
    assert_eq!(t.renew_lock("s", grant.fence).await, RenewReply::Lost(LostLock::Replaced));
}

pub async fn a_released_lock_cannot_be_renewed(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    t.released("s", grant.fence).await;
    assert_eq!(t.renew_lock("s", grant.fence).await, RenewReply::Lost(LostLock::Absent));
}

pub async fn a_lock_that_never_was_cannot_be_renewed(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    assert_eq!(t.renew_lock("other", grant.fence).await, RenewReply::Lost(LostLock::Absent));
    assert_eq!(t.lock("other").await, None, "asking leaves nothing behind");
}

pub async fn a_lease_that_is_over_is_looked_after_by_the_timers(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    assert_eq!(t.fire().await.next_due, Some(grant.lease_end));
    t.advance_s(10);
    let fired = t.fire().await;
    assert_eq!((fired.locks_reaped, fired.next_due), (1, None));
    assert_eq!(t.known_lock("s").await.counter, None);
}

pub async fn a_renewal_puts_the_timers_off(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    t.advance_s(5);
    let _renewed = t.renew_lock("s", grant.fence).await;
    t.advance_s(5);
    let fired = t.fire().await;
    assert_eq!((fired.locks_reaped, fired.next_due), (0, Some(t.now() + seconds(5))));
}

pub async fn a_released_lock_is_not_due(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    t.released("s", grant.fence).await;
    assert_eq!(t.fire().await.next_due, None);
}

pub async fn locks_that_are_due_together_come_by_scope(t: &mut Bench) {
    let long = |what: &str| {
        let mut question = want(what, "a");
        (question.lease, question.max_hold) = (seconds(600), seconds(600));
        question
    };
    for what in ["b", "a"] {
        t.granted(long(what)).await;
    }
    t.advance_s(600);
    for expected in [(false, true), (false, false)] {
        let fired = crate::bench::sure(t.store().fire_due(1).await);
        assert_eq!((fired.locks_reaped, fired.total()), (1, 1));
        let counter = |view: towpath_core::inspect::LockView| view.counter.is_some();
        let left = (counter(t.known_lock("a").await), counter(t.known_lock("b").await));
        assert_eq!(left, expected);
    }
}

pub async fn looking_after_a_lease_tells_what_it_found(t: &mut Bench) {
    assert_eq!(t.reap("s").await, ReapReply::Free);
    let grant = t.granted(want("s", "a")).await;
    assert_eq!(t.reap("s").await, ReapReply::Live { lease_end: grant.lease_end });
    t.advance_s(10);
    assert_eq!(t.reap("s").await, ReapReply::Freed);
    assert_eq!(t.reap("s").await, ReapReply::Free);
    assert_eq!(t.release_lock("s", grant.fence).await, ReleaseReply::Expired);
}

pub async fn a_holder_that_was_looked_after_may_ask_the_same_question_again(t: &mut Bench) {
    let first = t.granted(want("s", "a")).await;
    t.pass_s(10).await;
    let AcquireReply::Granted(second) = t.acquire(want("s", "a")).await else { panic!("not granted") };
    assert!(second.fence > first.fence);
    t.held_by(want("s", "b").waiting(), "a").await;
}

pub async fn time_passes_for_a_lock_while_the_store_is_closed(t: &mut Bench) {
    let grant = t.granted(want("s", "a").for_execution("e")).await;
    t.held_by(want("s", "b").waiting(), "a").await;
    let before = t.known_lock("s").await;
    t.reopen().await;
    assert_eq!(t.known_lock("s").await, before);
    assert_eq!(
        t.renew_lock("s", grant.fence).await,
        RenewReply::Renewed { now: t.now(), lease_end: grant.lease_end, legacy_attempts: 0, healed: false }
    );
    t.advance_s(10);
    t.reopen().await;
    assert!(t.granted(want("s", "b").waiting()).await.fence > grant.fence);
}
