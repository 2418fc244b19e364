//! The promises about taking a lock.

use towpath_core::lock::{AcquireReply, BusyWith, Fence, HolderKind, Previous, ReleaseReply};

use crate::bench::Bench;
use crate::words::{LockWords, seconds, want};

pub async fn a_free_lock_is_granted_with_a_fence_a_lease_and_a_cap(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    assert!(grant.fence > Fence::default());
    assert_eq!((grant.now, grant.locked_at), (t.now(), t.now()));
    assert_eq!((grant.lease_end, grant.max_hold_end), (t.now() + seconds(10), t.now() + seconds(60)));
    assert_eq!((grant.holds, grant.previous), (1, Previous::None));
}

pub async fn a_lease_longer_than_the_cap_ends_at_the_cap(t: &mut Bench) {
    let grant = t.granted(want("s", "a").lease_s(600)).await;
    assert_eq!(grant.lease_end, grant.max_hold_end);
}

pub async fn a_held_lock_names_its_holder_and_when_it_may_be_free(t: &mut Bench) {
    let mut question = want("s", "a").for_execution("4711");
    question.identity.workflow_name = "Nightly \"import\"".parse().expect("a label");
    let grant = t.granted(question).await;
    t.advance_s(4);
    let busy = t.busy(want("s", "b")).await;
    assert_eq!((busy.free_in, busy.rank), (Some(seconds(6)), None));
    let BusyWith::Towpath(holder) = busy.with else { panic!("{busy:?}") };
    assert_eq!((holder.kind, holder.lock_id.as_str(), holder.execution_id.as_str()), (HolderKind::Towpath, "a", "4711"));
    assert_eq!((holder.workflow_name.as_str(), holder.workflow_id.as_str()), ("Nightly \"import\"", "unknown"));
    assert_eq!((holder.fence, holder.lease_end), (Some(grant.fence), Some(grant.lease_end)));
    assert_eq!(holder.locked_at, grant.locked_at.to_iso());
}

pub async fn scopes_are_locked_apart(t: &mut Bench) {
    for what in ["s", "S", "s:a", "s meta", "заказ", "{s}", "🔒"] {
        t.granted(want(what, "a")).await;
    }
    t.held_by(want("заказ", "b"), "a").await;
}

pub async fn a_fence_rises_with_every_grant(t: &mut Bench) {
    let mut last = Fence::default();
    for round in 0..5 {
        let grant = t.granted(want("s", "a").asked_as(&format!("r{round}"))).await;
        assert!(grant.fence > last, "{} after {last}", grant.fence);
        last = grant.fence;
        assert_eq!(t.release_lock("s", last).await, ReleaseReply::Released);
    }
    t.granted(want("s", "a").asked_as("dies")).await;
    t.advance_s(10);
    assert!(t.granted(want("s", "b")).await.fence > last);
}

pub async fn a_fence_is_never_below_the_clocks_own(t: &mut Bench) {
    let first = t.granted(want("s", "a")).await.fence;
    t.advance_s(100);
    let later = t.granted(want("other", "a")).await.fence;
    assert!(later.as_u64() >= first.as_u64() + 1_000, "a scope that was forgotten goes on above what it once gave: {later} after {first}");
}

pub async fn a_grant_says_how_the_one_before_it_ended(t: &mut Bench) {
    let first = t.granted(want("s", "a")).await;
    t.released("s", first.fence).await;
    assert_eq!(t.granted(want("s", "b")).await.previous, Previous::Released);
    t.advance_s(10);
    assert_eq!(t.granted(want("s", "c")).await.previous, Previous::Expired);
}

pub async fn a_repeated_question_is_answered_with_the_same_grant(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    t.advance_s(1);
    let AcquireReply::Replayed(again) = t.acquire(want("s", "a")).await else { panic!("not replayed") };
    assert_eq!((again.fence, again.lease_end, again.locked_at), (grant.fence, grant.lease_end, grant.locked_at));
    assert_eq!((again.holds, again.now), (1, t.now()));
}

pub async fn a_late_copy_of_a_question_that_is_over_is_spent(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    t.released("s", grant.fence).await;
    assert_eq!(t.acquire(want("s", "a")).await, AcquireReply::Spent);
    assert_eq!(t.acquire(want("s", "a").waiting()).await, AcquireReply::Spent);
    t.granted(want("s", "a").asked_as("new")).await;
}

pub async fn a_holder_that_asks_anew_is_told_that_it_has_it(t: &mut Bench) {
    let grant = t.granted(want("s", "a")).await;
    let again = t.acquire(want("s", "a").asked_as("again").waiting()).await;
    assert_eq!(again, AcquireReply::SelfHeld { fence: grant.fence, lease_end: grant.lease_end });
    assert_eq!(t.known_lock("s").await.waiters, [], "nobody waits for itself");
}

pub async fn a_holder_may_enter_as_often_as_it_asked_for(t: &mut Bench) {
    let first = t.granted(want("s", "a").entering(2)).await;
    t.advance_s(5);
    let AcquireReply::Reentered(second) = t.acquire(want("s", "a").asked_as("again").entering(2)).await else { panic!("not entered") };
    assert_eq!((second.fence, second.holds, second.locked_at), (first.fence, 2, first.locked_at));
    assert_eq!(second.lease_end, t.now() + seconds(10), "entering prolongs the lease");
    assert!(matches!(t.acquire(want("s", "a").asked_as("third").entering(2)).await, AcquireReply::SelfHeld { .. }));
    assert_eq!(t.release_lock("s", first.fence).await, ReleaseReply::StillHeld { holds: 1 });
    t.held_by(want("s", "b"), "a").await;
    assert_eq!(t.release_lock("s", first.fence).await, ReleaseReply::Released);
    t.granted(want("s", "b")).await;
}

pub async fn entering_again_never_shortens_a_lease(t: &mut Bench) {
    let first = t.granted(want("s", "a").lease_s(50)).await;
    let AcquireReply::Reentered(second) = t.acquire(want("s", "a").asked_as("again").entering(2).lease_s(1)).await else {
        panic!("not entered")
    };
    assert_eq!(second.lease_end, first.lease_end);
}

pub async fn any_text_may_be_a_lock_id(t: &mut Bench) {
    for (number, who) in ["a\nb", "\"},{\"", "\\", "nil", "🔑", "\u{0}"].into_iter().enumerate() {
        let grant = t.granted(want("s", who).asked_as(&format!("r{number}"))).await;
        let holder = t.known_lock("s").await.holder.expect("held");
        assert_eq!(holder.lock_id, who);
        t.released("s", grant.fence).await;
    }
}
