//! The promises about ending a tenure: safe to repeat, and nothing is touched that belongs to others.

use towpath_core::lock::{EndReply, LostLock, ReleaseReply};

use crate::bench::Bench;
use crate::words::{LockWords, want};

pub async fn a_released_lock_is_free_at_once(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    assert_eq!(t.release_lock("s", grant.fence).await, ReleaseReply::Released);
    let view = t.known_lock("s").await;
    assert_eq!((view.holder, view.counter, view.fence_high), (None, None, grant.fence));
    t.granted(want("s", "b")).await;
}

pub async fn a_repeated_release_is_recognised(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    t.released("s", grant.fence).await;
    assert_eq!(t.release_lock("s", grant.fence).await, ReleaseReply::Already);
    t.granted(want("s", "b")).await;
    assert_eq!(t.release_lock("s", grant.fence).await, ReleaseReply::Already);
    t.held_by(want("s", "c"), "b").await;
}

pub async fn a_late_holder_cannot_release_the_next_holders_lock(t: &mut Bench) {
    let late = t.granted(want("s", "a")).await;
    t.advance_s(10);
    t.granted(want("s", "b")).await;
    let reply = t.release_lock("s", late.fence).await;
    assert!(matches!(&reply, ReleaseReply::Lost { why: LostLock::Replaced, holder: Some(holder) } if holder.lock_id == "b"), "{reply:?}");
    t.held_by(want("s", "c"), "b").await;
}

pub async fn a_late_holder_that_nobody_followed_is_told_so(t: &mut Bench) {
    let late = t.granted(want("s", "a")).await;
    t.advance_s(10);
    assert_eq!(t.release_lock("s", late.fence).await, ReleaseReply::Expired);
    assert_eq!(t.release_lock("s", late.fence).await, ReleaseReply::Already);
}

pub async fn a_release_of_a_lock_that_never_was_leaves_nothing_behind(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    assert_eq!(t.release_lock("other", grant.fence).await, ReleaseReply::Expired);
    assert_eq!(t.release_by_id("other", "a").await, EndReply::Absent { counter_without_meta: false });
    assert_eq!(t.end_by_execution("other", "e").await, EndReply::Absent { counter_without_meta: false });
    assert_eq!(t.lock("other").await, None);
}

pub async fn a_fence_of_the_future_releases_nothing(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    let future = towpath_core::lock::Fence::new(grant.fence.as_u64() + 1);
    assert!(matches!(t.release_lock("s", future).await, ReleaseReply::Lost { why: LostLock::Replaced, .. }));
    t.held_by(want("s", "b"), "a").await;
}

pub async fn a_holder_may_release_by_its_lock_id(t: &mut Bench) {
    t.granted(want("s", "a")).await;
    let EndReply::Ended { holder: Some(holder) } = t.release_by_id("s", "a").await else { panic!("not ended") };
    assert_eq!(holder.lock_id, "a");
    assert_eq!(t.release_by_id("s", "a").await, EndReply::Absent { counter_without_meta: false });
    t.granted(want("s", "b")).await;
    assert_eq!(t.release_by_id("s", "a").await, EndReply::Already);
}

pub async fn a_stranger_cannot_release_and_learns_whose_it_is(t: &mut Bench) {
    t.granted(want("s", "a").for_execution("4711")).await;
    let EndReply::NotHolder(holder) = t.release_by_id("s", "b").await else { panic!("released by a stranger") };
    let since = t.now().to_iso();
    assert_eq!(
        holder.not_yours("b"),
        format!("LOGIC ERROR: Lock held by unknown (id: unknown, execution: 4711) since {since}, not by lock_id=b")
    );
    t.held_by(want("s", "c"), "a").await;
}

pub async fn a_holder_that_entered_twice_leaves_twice_by_its_lock_id(t: &mut Bench) {
    t.granted(want("s", "a").entering(2)).await;
    let _entered = t.acquire(want("s", "a").asked_as("again").entering(2)).await;
    assert_eq!(t.release_by_id("s", "a").await, EndReply::StillHeld { holds: 1 });
    assert!(matches!(t.release_by_id("s", "a").await, EndReply::Ended { .. }));
}

pub async fn a_holder_whose_lease_is_over_has_nothing_to_release_by_its_lock_id(t: &mut Bench) {
    t.granted(want("s", "a")).await;
    t.advance_s(10);
    assert_eq!(t.release_by_id("s", "a").await, EndReply::Absent { counter_without_meta: false });
}

pub async fn a_forced_release_ends_what_the_operator_saw(t: &mut Bench) {
    let grant = t.granted(want("s", "a").entering(2)).await;
    let _entered = t.acquire(want("s", "a").asked_as("again").entering(2)).await;
    let seen = t.known_lock("s").await;
    assert!(matches!(t.force(&seen).await, EndReply::Ended { holder: Some(holder) } if holder.lock_id == "a"));
    assert_eq!(t.release_lock("s", grant.fence).await, ReleaseReply::Already);
    t.granted(want("s", "b")).await;
}

pub async fn a_forced_release_is_refused_when_the_lock_changed_hands_meanwhile(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    let seen = t.known_lock("s").await;
    t.released("s", grant.fence).await;
    assert_eq!(t.force(&seen).await, EndReply::Changed { counter: None });
    t.granted(want("s", "b")).await;
    assert!(matches!(t.force(&seen).await, EndReply::Changed { counter: Some(_) }));
    t.held_by(want("s", "c"), "b").await;
}
