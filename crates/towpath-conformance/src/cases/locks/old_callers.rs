//! The promises about old workflows that share the keys: INCR, then EXPIRE; SET of the identity; GET, compare, DEL. They never hold a lock
//! together with one of ours, and what they damage is healed. That a key of theirs ran out is written as its removal.

use std::sync::Arc;

use towpath_core::inspect::{LockQuery, LockView};
use towpath_core::lock::{AcquireReply, BusyWith, EndReply, HolderKind, LostLock, Previous, ReapReply, ReleaseReply, RenewReply};

use crate::backend::OldCaller;
use crate::bench::Bench;
use crate::words::{LockWords, scope, want};

const COUNTER: &str = "n8n-lock-s";
const META: &str = "n8n-lock-s:meta";

/// The identity that an old workflow writes.
fn identity(who: &str, execution: &str) -> String {
    format!(
        r#"{{"lock_id":"{who}","workflow_id":"wf-1","workflow_name":"Old \"import\"","execution_id":"{execution}","locked_at":"2027-01-15T08:00:00.000Z"}}"#
    )
}

/// An old workflow takes the lock, which must be free.
async fn enters(old: &Arc<dyn OldCaller>, who: &str) {
    assert_eq!(old.incr(COUNTER).await, 1, "{who} finds the lock held");
    old.set(META, &identity(who, &format!("e-{who}"))).await;
}

async fn leaves(old: &Arc<dyn OldCaller>) {
    old.del(COUNTER).await;
    old.del(META).await;
}

pub async fn an_old_workflow_keeps_ours_out_and_is_named(t: &mut Bench) {
    let old = t.old_caller();
    enters(&old, "old").await;
    let busy = t.busy(want("s", "a").waiting()).await;
    assert_eq!((busy.free_in, busy.rank), (None, Some(0)));
    let BusyWith::Legacy(holder) = busy.with else { panic!("{busy:?}") };
    assert_eq!((holder.kind, holder.lock_id.as_str(), holder.workflow_name.as_str()), (HolderKind::Legacy, "old", "Old \"import\""));
    assert_eq!((holder.execution_id.as_str(), holder.fence), ("e-old", None));
    t.advance_s(86_400);
    t.busy(want("s", "a").asked_as("later")).await;
    leaves(&old).await;
    t.granted(want("s", "a").asked_as("later")).await;
}

pub async fn ours_keeps_an_old_workflow_out(t: &mut Bench) {
    let old = t.old_caller();
    let grant = t.granted(want("s", "a")).await;
    assert!(old.incr(COUNTER).await > 1);
    assert!(old.incr(COUNTER).await > 1);
    let RenewReply::Renewed { legacy_attempts, healed, .. } = t.renew_lock("s", grant.fence).await else { panic!("lost") };
    assert_eq!((legacy_attempts, healed), (2, false));
    assert_eq!(t.release_lock("s", grant.fence).await, ReleaseReply::Released);
    enters(&old, "old").await;
}

pub async fn an_old_caller_sees_our_identity(t: &mut Bench) {
    let old = t.old_caller();
    let grant = t.granted(want("s", "a").for_execution("4711")).await;
    let expected = format!(
        r#"{{"lock_id":"a","workflow_id":"unknown","workflow_name":"unknown","execution_id":"4711","locked_at":"{}","fence":{},"towpath":1}}"#,
        grant.locked_at.to_iso(),
        grant.fence
    );
    assert_eq!(old.get(META).await, Some(expected));
    assert_eq!(old.get(COUNTER).await, Some(format!("{}", grant.fence.as_u64() * 1_000_000 + 1)));
    t.released("s", grant.fence).await;
    assert_eq!((old.get(META).await, old.get(COUNTER).await), (None, None));
}

pub async fn a_counter_that_a_failing_old_caller_cut_short_lets_nobody_of_ours_in_and_is_healed(t: &mut Bench) {
    let old = t.old_caller();
    let grant = t.granted(want("s", "a")).await;
    old.incr(COUNTER).await;
    old.del(COUNTER).await;
    t.held_by(want("s", "b"), "a").await;
    let RenewReply::Renewed { healed, .. } = t.renew_lock("s", grant.fence).await else { panic!("lost") };
    assert!(healed);
    assert!(old.incr(COUNTER).await > 1);
}

pub async fn a_counter_that_old_callers_keep_alive_does_not_outlive_its_tenure(t: &mut Bench) {
    let old = t.old_caller();
    t.granted(want("s", "a")).await;
    old.incr(COUNTER).await;
    t.advance_s(10);
    assert_eq!(t.granted(want("s", "b")).await.previous, Previous::Expired);
}

pub async fn old_pollers_are_not_stuck_behind_a_dead_holder_of_ours(t: &mut Bench) {
    let old = t.old_caller();
    t.granted(want("s", "a")).await;
    old.incr(COUNTER).await;
    t.pass_s(10).await;
    assert_eq!(old.get(COUNTER).await, None);
    enters(&old, "poller").await;
}

pub async fn the_lease_of_ours_is_not_looked_for_in_an_old_workflows_lock(t: &mut Bench) {
    let old = t.old_caller();
    t.granted(want("s", "a")).await;
    leaves(&old).await;
    enters(&old, "old").await;
    t.advance_s(10);
    assert_eq!(t.reap("s").await, ReapReply::Legacy);
    assert!(old.get(META).await.is_some_and(|meta| meta.contains("\"old\"")));
}

pub async fn a_lock_of_ours_that_an_old_workflow_released_is_lost_as_absent(t: &mut Bench) {
    let old = t.old_caller();
    let grant = t.granted(want("s", "a")).await;
    leaves(&old).await;
    assert_eq!(t.renew_lock("s", grant.fence).await, RenewReply::Lost(LostLock::Absent));
    let next = t.granted(want("s", "b")).await;
    leaves(&old).await;
    assert_eq!(t.release_lock("s", next.fence).await, ReleaseReply::Lost { why: LostLock::Absent, holder: None });
}

pub async fn a_lock_of_ours_that_an_old_workflow_took_is_lost_as_replaced_and_left_alone(t: &mut Bench) {
    let old = t.old_caller();
    let grant = t.granted(want("s", "a")).await;
    leaves(&old).await;
    enters(&old, "old").await;
    assert_eq!(t.renew_lock("s", grant.fence).await, RenewReply::Lost(LostLock::Replaced));
    let lost = t.release_lock("s", grant.fence).await;
    assert!(matches!(&lost, ReleaseReply::Lost { why: LostLock::Replaced, holder: Some(holder) } if holder.lock_id == "old"), "{lost:?}");
    assert_eq!(old.get(COUNTER).await.as_deref(), Some("1"));
}

pub async fn a_release_that_comes_late_does_not_touch_an_old_newcomer(t: &mut Bench) {
    let old = t.old_caller();
    let grant = t.granted(want("s", "a")).await;
    leaves(&old).await;
    assert_eq!(old.incr(COUNTER).await, 1, "a newcomer between INCR and SET");
    assert!(matches!(t.release_lock("s", grant.fence).await, ReleaseReply::Lost { why: LostLock::Replaced, .. }));
    assert_eq!(t.release_by_id("s", "a").await, EndReply::Absent { counter_without_meta: true });
    assert_eq!(old.get(COUNTER).await.as_deref(), Some("1"), "nothing is deleted without an identity that matches");
}

pub async fn an_identity_that_an_old_caller_removed_is_put_back(t: &mut Bench) {
    let old = t.old_caller();
    let grant = t.granted(want("s", "a")).await;
    let meta = old.get(META).await;
    old.del(META).await;
    t.held_by(want("s", "b"), "a").await;
    let RenewReply::Renewed { healed, .. } = t.renew_lock("s", grant.fence).await else { panic!("lost") };
    assert!(healed);
    assert_eq!(old.get(META).await, meta);
}

pub async fn an_old_workflows_lock_is_released_by_its_lock_id_alone(t: &mut Bench) {
    let old = t.old_caller();
    enters(&old, "old").await;
    let EndReply::NotHolder(holder) = t.release_by_id("s", "b").await else { panic!("released by a stranger") };
    assert_eq!(
        holder.not_yours("b"),
        "LOGIC ERROR: Lock held by Old \"import\" (id: wf-1, execution: e-old) since 2027-01-15T08:00:00.000Z, not by lock_id=b"
    );
    assert!(matches!(t.release_by_id("s", "old").await, EndReply::Ended { .. }));
    assert_eq!((old.get(META).await, old.get(COUNTER).await), (None, None));
    enters(&old, "next").await;
    assert_eq!(t.release_by_id("s", "old").await, EndReply::Already);
}

pub async fn an_identity_that_is_no_json_is_the_lock_id(t: &mut Bench) {
    let old = t.old_caller();
    for raw in ["plain text", "42", "\"quoted\"", "{broken"] {
        old.incr(COUNTER).await;
        old.set(META, raw).await;
        let EndReply::NotHolder(holder) = t.release_by_id("s", "b").await else { panic!("released by a stranger: {raw}") };
        assert_eq!((holder.lock_id.as_str(), holder.workflow_name.as_str()), (raw, "unknown (legacy meta)"));
        assert!(matches!(t.release_by_id("s", raw).await, EndReply::Ended { .. }), "{raw}");
    }
}

pub async fn a_field_that_is_missing_matches_no_text(t: &mut Bench) {
    let old = t.old_caller();
    old.incr(COUNTER).await;
    old.set(META, "[1,2]").await;
    assert!(matches!(t.release_by_id("s", "[1,2]").await, EndReply::NotHolder(_)), "a list has no lock id");
    old.set(META, r#"{"workflow_id":"wf-1","execution_id":null}"#).await;
    for text in ["nil", "null", "unknown", "userdata: NULL", "userdata: (nil)", "userdata: 0x0"] {
        assert!(matches!(t.release_by_id("s", text).await, EndReply::NotHolder(_)), "{text}");
        assert!(matches!(t.end_by_execution("s", text).await, EndReply::NotHolder(_)), "{text}");
    }
}

pub async fn a_number_in_an_identity_matches_its_digits(t: &mut Bench) {
    let old = t.old_caller();
    old.incr(COUNTER).await;
    old.set(META, r#"{"lock_id":"old","execution_id":4711}"#).await;
    assert!(matches!(t.end_by_execution("s", "4711.0").await, EndReply::NotHolder(_)));
    assert!(matches!(t.end_by_execution("s", "4711").await, EndReply::Ended { .. }));
}

pub async fn an_old_workflow_that_failed_is_cleaned_up_by_its_execution(t: &mut Bench) {
    let old = t.old_caller();
    enters(&old, "old").await;
    assert!(matches!(t.end_by_execution("s", "e-other").await, EndReply::NotHolder(_)));
    assert!(matches!(t.end_by_execution("s", "e-old").await, EndReply::Ended { .. }));
    assert!(matches!(t.end_by_execution("s", "e-old").await, EndReply::Absent { .. }));
    assert_eq!(old.get(COUNTER).await, None);
}

pub async fn an_orphan_is_taken_over_after_a_minute_of_watching(t: &mut Bench) {
    let old = t.old_caller();
    old.incr(COUNTER).await;
    for _ in 0..15 {
        t.busy(want("s", "a").waiting()).await;
        t.advance_s(4);
    }
    assert_eq!(t.granted(want("s", "a").waiting()).await.previous, Previous::Orphan);
    assert!(old.get(COUNTER).await.is_some_and(|counter| counter.len() > 6), "the counter is ours now");
}

pub async fn an_orphan_that_gets_a_name_is_not_taken_over(t: &mut Bench) {
    let old = t.old_caller();
    old.incr(COUNTER).await;
    for _ in 0..14 {
        t.busy(want("s", "a").waiting()).await;
        t.advance_s(4);
    }
    t.advance_s(3);
    old.set(META, &identity("late", "e-late")).await;
    t.busy(want("s", "a").waiting()).await;
    t.advance_s(1);
    assert!(matches!(t.busy(want("s", "a").waiting()).await.with, BusyWith::Legacy(holder) if holder.lock_id == "late"));
    old.del(META).await;
    t.advance_s(1);
    t.busy(want("s", "a").waiting()).await;
    t.advance_s(4);
    t.busy(want("s", "a").waiting()).await;
}

pub async fn an_orphan_is_watched_without_a_gap_and_never_while_its_counter_falls(t: &mut Bench) {
    let old = t.old_caller();
    old.set(COUNTER, "5").await;
    for _ in 0..14 {
        t.busy(want("s", "a")).await;
        t.advance_s(4);
    }
    old.set(COUNTER, "4").await;
    t.advance_s(4);
    t.busy(want("s", "a")).await;
    t.advance_s(4);
    t.busy(want("s", "a")).await;
    t.advance_ms(5_001);
    t.busy(want("s", "a")).await;
    for _ in 0..14 {
        t.advance_s(4);
        t.busy(want("s", "a")).await;
    }
    t.advance_s(4);
    t.granted(want("s", "a")).await;
}

pub async fn an_orphan_is_left_alone_for_ever_when_nobody_may_take_it(t: &mut Bench) {
    let old = t.old_caller();
    old.incr(COUNTER).await;
    for _ in 0..40 {
        let mut question = want("s", "a");
        question.orphan_grace = std::time::Duration::ZERO;
        t.busy(question).await;
        t.advance_s(4);
    }
}

pub async fn attempts_of_old_callers_never_look_like_the_next_fence(t: &mut Bench) {
    let old = t.old_caller();
    let grant = t.granted(want("s", "a")).await;
    let fence = grant.fence.as_u64();
    old.set(COUNTER, &format!("{}", fence * 1_000_000 + 500_001)).await;
    t.held_by(want("s", "b"), "a").await;
    assert_eq!(old.get(COUNTER).await, Some(format!("{}", fence * 1_000_000 + 1)));
}

pub async fn a_counter_that_is_no_number_is_an_old_workflows(t: &mut Bench) {
    let old = t.old_caller();
    for text in ["garbage", "", "-5", "1.5"] {
        old.set(COUNTER, text).await;
        assert!(matches!(t.busy(want("s", "a")).await.with, BusyWith::Legacy(_)), "{text:?}");
        assert_eq!(t.reap("s").await, ReapReply::Legacy, "{text:?}");
    }
}

pub async fn an_operator_may_end_an_old_workflows_lock(t: &mut Bench) {
    let old = t.old_caller();
    enters(&old, "old").await;
    let seen = t.known_lock("s").await;
    assert_eq!(seen.holder.as_ref().map(|holder| holder.lock_id.as_str()), Some("old"));
    old.incr(COUNTER).await;
    assert!(matches!(t.force(&seen).await, EndReply::Changed { counter: Some(counter) } if counter.as_str() == "2"));
    let seen = t.known_lock("s").await;
    assert!(matches!(t.force(&seen).await, EndReply::Ended { holder: Some(holder) } if holder.lock_id == "old"));
    enters(&old, "next").await;
}

/// Whether the lock stands in the list, as an old workflow's.
async fn is_listed(t: &Bench, query: LockQuery) -> bool {
    let page = crate::bench::sure(t.store().locks(&LockQuery { limit: 10, ..query }).await);
    let theirs = |view: &LockView| view.holder.as_ref().is_some_and(|holder| holder.kind == HolderKind::Legacy && holder.lock_id == "old");
    page.items.iter().any(|view| view.scope == scope("s") && theirs(view))
}

pub async fn an_old_workflows_lock_is_listed_when_it_is_named_or_all_are_looked_at(t: &mut Bench) {
    let old = t.old_caller();
    enters(&old, "old").await;
    assert!(is_listed(t, LockQuery { also: vec![scope("s"), scope("never")], ..LockQuery::default() }).await);
    assert!(is_listed(t, LockQuery { scan: true, ..LockQuery::default() }).await);
    leaves(&old).await;
    assert!(!is_listed(t, LockQuery { also: vec![scope("s")], scan: true, ..LockQuery::default() }).await);
}

pub async fn an_old_workflows_lock_is_listed_once_one_of_ours_has_met_it(t: &mut Bench) {
    let old = t.old_caller();
    enters(&old, "old").await;
    t.busy(want("s", "hasty")).await;
    assert!(is_listed(t, LockQuery::default()).await);
    leaves(&old).await;
    assert!(!is_listed(t, LockQuery::default()).await);
}

pub async fn a_grant_over_an_old_workflow_that_left_is_under_a_new_fence(t: &mut Bench) {
    let old = t.old_caller();
    let first = t.granted(want("s", "a")).await;
    t.released("s", first.fence).await;
    enters(&old, "old").await;
    t.busy(want("s", "b").waiting()).await;
    leaves(&old).await;
    let AcquireReply::Granted(second) = t.acquire(want("s", "b").waiting()).await else { panic!("not granted") };
    assert!(second.fence > first.fence);
}
