//! What each move of a lock decides, one sentence at a time.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::names::{LockScope, NodeId};

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn scope() -> LockScope {
    LockScope::new("s").unwrap()
}

fn after_ms(ms: u64) -> Timestamp {
    START + Duration::from_millis(ms)
}

fn waiter(name: &str) -> WaiterId {
    WaiterId::new(&NodeId::new("node").unwrap(), &RequestId::new(name).unwrap())
}

/// A question of `who`, for ten seconds at a time and a minute in all.
fn want(who: &str) -> AcquireLock {
    let mut want = AcquireLock::new(scope(), LockId::new(who).unwrap(), RequestId::new(who).unwrap());
    (want.lease, want.max_hold) = (Duration::from_secs(10), Duration::from_secs(60));
    want
}

fn waiting(who: &str) -> AcquireLock {
    AcquireLock { waiter: Some(waiter(who)), ..want(who) }
}

#[track_caller]
fn granted(state: &mut LockState, want: &AcquireLock, now: Timestamp) -> Grant {
    match acquire(state, want, now).reply {
        AcquireReply::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn busy_with(state: &mut LockState, want: &AcquireLock, now: Timestamp) -> Busy {
    match acquire(state, want, now).reply {
        AcquireReply::Busy(busy) => busy,
        other => panic!("{other:?}"),
    }
}

fn renewal(fence: Fence) -> RenewLock {
    RenewLock { scope: scope(), fence, lease: Some(Duration::from_secs(10)) }
}

fn let_go(fence: Fence) -> ReleaseLock {
    ReleaseLock { scope: scope(), fence }
}

/// What an old caller's INCR does to the counter.
fn incr(state: &mut LockState) -> i64 {
    let value = state.counter.as_ref().map_or(0, Counter::value) + 1;
    state.counter = Some(Counter::new(value.to_string()));
    value
}

#[test]
fn a_fence_rises_with_every_grant_even_within_one_instant_and_after_everything_was_forgotten() {
    let mut state = LockState::default();
    let first = granted(&mut state, &want("a"), START).fence;
    assert_eq!(release(&mut state, &let_go(first), START).reply, ReleaseReply::Released);
    let second = granted(&mut state, &want("b"), START).fence;
    assert!(second > first);
    let after_flush = granted(&mut LockState::default(), &want("c"), after_ms(200)).fence;
    assert!(after_flush > second);
}

#[test]
fn the_sidecar_is_what_old_workflows_read_with_fence_and_mark_behind() {
    let mut state = LockState::default();
    let mut want = want("a\"b");
    want.identity.execution_id = Some(ExecutionId::new("4711").unwrap());
    let fence = granted(&mut state, &want, START).fence;
    let expected = format!(
        r#"{{"lock_id":"a\"b","workflow_id":"unknown","workflow_name":"unknown","execution_id":"4711","locked_at":"2027-01-15T08:00:00.000Z","fence":{fence},"towpath":1}}"#
    );
    assert_eq!(state.meta.as_deref(), Some(expected.as_str()));
    assert_eq!(state.counter, Some(Counter::new(format!("{}", fence.as_u64() * 1_000_000 + 1))));
}

#[test]
fn a_counter_that_a_failing_old_caller_let_lapse_leaves_the_tenure_standing_and_is_healed() {
    let mut state = LockState::default();
    let fence = granted(&mut state, &want("a"), START).fence;
    state.counter = None;
    assert!(matches!(busy_with(&mut state, &want("b"), START).with, BusyWith::Towpath(_)));
    let renewed = renew(&mut state, &renewal(fence), after_ms(1)).reply;
    assert!(matches!(renewed, RenewReply::Renewed { healed: true, .. }), "{renewed:?}");
    assert_eq!(state.counter, Some(Counter::of(fence)));
}

#[test]
fn a_lock_that_an_old_workflow_released_is_free_and_its_holder_learns_it() {
    let mut state = LockState::default();
    let fence = granted(&mut state, &want("a"), START).fence;
    (state.counter, state.meta) = (None, None);
    assert_eq!(renew(&mut state.clone(), &renewal(fence), START).reply, RenewReply::Lost(LostLock::Absent));
    let lost = release(&mut state.clone(), &let_go(fence), START).reply;
    assert_eq!(lost, ReleaseReply::Lost { why: LostLock::Absent, holder: None });
    assert!(granted(&mut state, &want("b"), START).fence > fence);
}

#[test]
fn old_attempts_are_counted_and_taken_back_before_they_look_like_a_fence() {
    let mut state = LockState::default();
    let fence = granted(&mut state, &want("a"), START).fence;
    incr(&mut state);
    incr(&mut state);
    let RenewReply::Renewed { legacy_attempts, .. } = renew(&mut state, &renewal(fence), START).reply else { panic!("lost") };
    assert_eq!((legacy_attempts, state.counter.clone()), (2, Some(Counter::of(fence))));
    state.counter = Some(Counter::new((fence.as_u64() * 1_000_000 + 500_001).to_string()));
    let _busy = busy_with(&mut state, &want("b"), START);
    assert_eq!(state.counter, Some(Counter::of(fence)));
}

#[test]
fn renewals_never_reach_beyond_the_cap() {
    let mut state = LockState::default();
    let grant = granted(&mut state, &want("a"), START);
    for second in (5..60).step_by(5) {
        let renewed = renew(&mut state, &renewal(grant.fence), after_ms(second * 1_000)).reply;
        let RenewReply::Renewed { lease_end, .. } = renewed else { panic!("{renewed:?}") };
        assert!(lease_end <= grant.max_hold_end);
    }
    assert_eq!(renew(&mut state, &renewal(grant.fence), after_ms(60_000)).reply, RenewReply::Lost(LostLock::MaxHold));
}

#[test]
fn a_repeated_question_is_answered_again_and_a_late_one_is_spent() {
    let mut state = LockState::default();
    let grant = granted(&mut state, &want("a"), START);
    assert_eq!(acquire(&mut state, &want("a"), START).reply, AcquireReply::Replayed(Grant { previous: Previous::None, ..grant }));
    let _released = release(&mut state, &let_go(grant.fence), START);
    assert_eq!(acquire(&mut state, &want("a"), START).reply, AcquireReply::Spent);
    assert_eq!(release(&mut state, &let_go(grant.fence), START).reply, ReleaseReply::Already);
}

#[test]
fn the_holder_enters_as_often_as_it_may_and_leaves_as_often() {
    let mut state = LockState::default();
    let fence = granted(&mut state, &want("a"), START).fence;
    let again = |number: u32, max_holds| {
        let request_id = RequestId::new(format!("a{number}")).unwrap();
        AcquireLock { request_id, max_holds, ..want("a") }
    };
    assert!(matches!(acquire(&mut state, &again(1, 1), START).reply, AcquireReply::SelfHeld { .. }));
    let entered = acquire(&mut state, &again(2, 2), START).reply;
    assert!(matches!(entered, AcquireReply::Reentered(grant) if grant.holds == 2 && grant.fence == fence));
    assert_eq!(release(&mut state, &let_go(fence), START).reply, ReleaseReply::StillHeld { holds: 1 });
    assert_eq!(release(&mut state, &let_go(fence), START).reply, ReleaseReply::Released);
}

#[test]
fn nobody_passes_a_live_head_and_a_silent_one_is_passed_after_a_second() {
    let mut state = LockState::default();
    let fence = granted(&mut state, &want("a"), START).fence;
    assert_eq!(busy_with(&mut state, &waiting("b"), START).rank, Some(0));
    assert_eq!(busy_with(&mut state, &waiting("c"), START).rank, Some(1));
    let released = release(&mut state, &let_go(fence), START);
    assert_eq!(released.wakes, [waiter("b"), waiter("c")]);
    assert_eq!(busy_with(&mut state, &want("d"), START).with, BusyWith::Queue);
    assert_eq!(busy_with(&mut state, &waiting("c"), after_ms(999)).free_in, Some(Duration::from_millis(1)));
    granted(&mut state, &waiting("c"), after_ms(1_000));
    assert_eq!(state.queue.waiters, []);
}

#[test]
fn a_dead_waiter_does_not_hold_up_the_queue() {
    let mut state = LockState::default();
    let fence = granted(&mut state, &AcquireLock { lease: Duration::from_secs(50), ..want("a") }, START).fence;
    let _queued = busy_with(&mut state, &waiting("b"), START);
    let _released = release(&mut state, &let_go(fence), after_ms(30_000));
    granted(&mut state, &want("d"), after_ms(30_000));
}

#[test]
fn a_full_queue_takes_nobody_but_keeps_those_in_it() {
    let mut state = LockState::default();
    granted(&mut state, &want("a"), START);
    let one = |who| AcquireLock { waiters_max: 1, ..waiting(who) };
    assert_eq!(busy_with(&mut state, &one("b"), START).rank, Some(0));
    assert_eq!(acquire(&mut state, &one("c"), START).reply, AcquireReply::QueueFull { waiters: 1 });
    assert_eq!(busy_with(&mut state, &one("b"), START).rank, Some(0));
}

#[test]
fn an_orphan_is_taken_over_when_it_was_watched_for_its_grace() {
    let mut state = LockState::default();
    incr(&mut state);
    for second in (0..60).step_by(4) {
        let _watched = busy_with(&mut state, &want("a"), after_ms(second * 1_000));
    }
    let mut named = state.clone();
    named.meta = Some(Arc::from(r#"{"lock_id":"old"}"#));
    assert!(matches!(busy_with(&mut named, &want("a"), after_ms(60_000)).with, BusyWith::Legacy(holder) if holder.lock_id == "old"));
    let never = AcquireLock { orphan_grace: Duration::ZERO, ..want("a") };
    let _left_alone = busy_with(&mut state.clone(), &never, after_ms(60_000));
    let mut unwatched = state.clone();
    let _gap = busy_with(&mut unwatched, &want("a"), after_ms(61_001));
    assert_eq!(granted(&mut state, &want("a"), after_ms(60_000)).previous, Previous::Orphan);
}

#[test]
fn a_release_by_lock_id_touches_only_its_own() {
    let mut state = LockState::default();
    let whose = |who: &str| EndLock { scope: scope(), by: EndBy::LockId(LockId::new(who).unwrap()) };
    assert_eq!(end(&mut state, &whose("a"), START).reply, EndReply::Absent { counter_without_meta: false });
    incr(&mut state);
    assert_eq!(end(&mut state, &whose("a"), START).reply, EndReply::Absent { counter_without_meta: true });
    state.meta = Some(Arc::from("raw text"));
    assert!(matches!(end(&mut state, &whose("a"), START).reply, EndReply::NotHolder(holder) if holder.lock_id == "raw text"));
    assert!(matches!(end(&mut state, &whose("raw text"), START).reply, EndReply::Ended { .. }));
    assert_eq!((state.counter.clone(), state.meta.clone()), (None, None));
    granted(&mut state, &want("b"), START);
    assert_eq!(end(&mut state, &whose("raw text"), START).reply, EndReply::Already);
}

#[test]
fn a_missing_field_of_a_sidecar_matches_nothing() {
    let mut state = LockState::default();
    incr(&mut state);
    state.meta = Some(Arc::from(r#"{"execution_id":4711}"#));
    for who in ["nil", "null", "unknown", ""] {
        let Ok(lock_id) = LockId::new(who) else { continue };
        let reply = end(&mut state, &EndLock { scope: scope(), by: EndBy::LockId(lock_id) }, START).reply;
        assert!(matches!(reply, EndReply::NotHolder(_)), "{who}");
    }
    let by = EndBy::Execution(ExecutionId::new("4711").unwrap());
    assert!(matches!(end(&mut state, &EndLock { scope: scope(), by }, START).reply, EndReply::Ended { .. }));
}

#[test]
fn force_is_refused_when_the_counter_moved() {
    let mut state = LockState::default();
    granted(&mut state, &want("a"), START);
    let seen = state.counter.clone();
    incr(&mut state);
    let force = |counter| EndLock { scope: scope(), by: EndBy::Force { counter, who: "op".to_owned(), reason: "stuck".to_owned() } };
    assert_eq!(end(&mut state, &force(seen), START).reply, EndReply::Changed { counter: state.counter.clone() });
    let seen = state.counter.clone();
    assert!(matches!(end(&mut state, &force(seen), START).reply, EndReply::Ended { holder: Some(_) }));
}

#[test]
fn a_grant_that_nobody_learnt_of_is_undone() {
    let mut state = LockState::default();
    let fence = granted(&mut state, &want("a"), START).fence;
    let _queued = busy_with(&mut state, &waiting("b"), START);
    let question = |who: &str, waiter| CancelLock { scope: scope(), request_id: RequestId::new(who).unwrap(), waiter };
    let undone = cancel(&mut state, &question("a", None), START);
    assert_eq!((undone.reply, undone.wakes), (CancelReply::WasGranted { fence }, vec![waiter("b")]));
    assert_eq!(cancel(&mut state, &question("b", Some(waiter("b"))), START).reply, CancelReply::Cancelled);
    assert_eq!(cancel(&mut state, &question("b", Some(waiter("b"))), START).reply, CancelReply::NotQueued);
}

#[test]
fn a_counter_kept_alive_by_a_stranger_is_reaped_after_the_lease() {
    let mut state = LockState::default();
    let grant = granted(&mut state, &want("a"), START);
    let _queued = busy_with(&mut state, &waiting("b"), START);
    assert_eq!(reap(&mut state, after_ms(9_999)).reply, ReapReply::Live { lease_end: grant.lease_end });
    let freed = reap(&mut state, after_ms(10_000));
    assert_eq!((freed.reply, freed.wakes), (ReapReply::Freed, vec![waiter("b")]));
    assert_eq!((state.counter.clone(), state.meta.clone(), state.reap_at), (None, None, None));
    assert_eq!(incr(&mut state), 1, "an old poller gets in");
    assert_eq!(reap(&mut state, after_ms(10_001)).reply, ReapReply::Legacy);
}

#[test]
fn a_counter_that_is_no_number_belongs_to_an_old_workflow() {
    for text in ["garbage", "", "-5", "1.5", "99999999999999999999"] {
        let mut state = LockState { counter: Some(Counter::new(text)), ..LockState::default() };
        assert!(matches!(busy_with(&mut state, &want("a"), START).with, BusyWith::Legacy(_)), "{text}");
        assert_eq!(reap(&mut state, START).reply, ReapReply::Legacy, "{text}");
    }
}
