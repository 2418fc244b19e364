//! The promises about timers, and about retentions, which are none.
//!
//! Whoever waits for something due has fired before, as the timers' loop does. A store may name an instant that is too early (when it was
//! just opened, or when what was due then no longer is), for that costs one look; it never names one that is too late.

use towpath_core::call::{CallState, LostLease, Outcome};
use towpath_core::inspect::{CallFilter, PageRequest};
use towpath_core::store::{Cancelled, Completed, Ended, Fired, Renewal, Replayed};

use crate::bench::{Bench, sure};
use crate::words::{SubmitWords, call_id, failed, failed_not_before, function, json, ok, seconds, want, worker_id};

pub async fn a_queued_call_expires_at_its_deadline(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit_this(t.new_call("add").timeout(seconds(5))).await;
    t.advance_ms(4_999);
    assert_eq!(t.fire().await.total(), 0);
    t.advance_ms(1);
    let fired = t.fire().await;
    assert_eq!(fired.ended, [Ended { call_id: call.clone(), function: function("add"), state: CallState::Expired, took: seconds(5) }]);
    let kept = t.call(&call).await;
    assert_eq!((kept.state, kept.outcome, kept.ended_at), (CallState::Expired, Some(Outcome::Expired), Some(t.now())));
    t.check_nothing_to_claim("w1", "add").await;
}

pub async fn a_delayed_call_expires_at_its_deadline(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit_this(t.new_call("add").timeout(seconds(5))).await;
    let work = t.claim_one("w1", "add").await;
    t.answer(&work, failed_not_before("busy", seconds(4))).await;
    // Late timers find both the end of its pause and its deadline: the deadline wins.
    let fired = t.pass_s(5).await;
    assert_eq!((fired.promoted, fired.ended.len()), (0, 1));
    t.check_state(&call, CallState::Expired).await;
}

pub async fn a_running_call_times_out_at_its_deadline(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit_this(t.new_call("add").timeout(seconds(5))).await;
    let work = t.claim_one("w1", "add").await;
    let _held = t.renew(&work).await;
    t.advance_ms(4_999);
    assert_eq!(t.fire().await.total(), 0);
    t.advance_ms(1);
    let fired = t.fire().await;
    assert_eq!(fired.ended, [Ended { call_id: call.clone(), function: function("add"), state: CallState::TimedOut, took: seconds(5) }]);
    let kept = t.call(&call).await;
    assert_eq!((kept.state, kept.outcome, kept.lease_until), (CallState::TimedOut, Some(Outcome::TimedOut), None));
}

pub async fn a_parked_call_times_out_at_its_deadline(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let _held = t.park(&work, true).await;
    t.pass_s(60).await;
    t.check_state(&work.call_id(), CallState::TimedOut).await;
    assert_eq!(t.known_function("add").await.counts.parked, 0);
}

pub async fn a_lease_and_a_deadline_that_end_together_are_a_timeout(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit_this(t.new_call("add").timeout(seconds(30))).await;
    t.claim_one("w1", "add").await;
    let fired = t.pass_s(30).await;
    assert_eq!((fired.reclaimed, fired.ended.len()), (0, 1));
    t.check_state(&call, CallState::TimedOut).await;
}

pub async fn a_call_taken_back_waits_until_its_deadline_and_no_longer(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let fired = t.pass_s(30).await;
    assert_eq!((fired.reclaimed, fired.next_due), (1, Some(work.delivery.deadline)));
    let fired = t.pass_s(30).await;
    assert_eq!(fired.ended.iter().map(|ended| ended.state).collect::<Vec<_>>(), [CallState::Expired]);
}

pub async fn an_outcome_is_gone_when_its_retention_is_over_although_nothing_fired(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit_this(t.new_call("add").retain(seconds(10))).await;
    let work = t.claim_one("w1", "add").await;
    t.answer(&work, ok("1")).await;
    t.advance_ms(9_999);
    t.check_state(&call, CallState::Completed).await;
    t.advance_ms(1);
    assert_eq!(t.view(&call).await, None);
    let listed = sure(t.store().calls(&CallFilter::default(), PageRequest::first(10)).await);
    assert_eq!(listed.items, [], "no list shows it");
}

pub async fn a_gone_call_is_out_of_reach_of_every_move(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit_this(t.new_call("add").retain(seconds(10))).await;
    let work = t.claim_one("w1", "add").await;
    t.answer(&work, ok("1")).await;
    assert_eq!(t.complete(&work, ok("1")).await, Completed::AlreadyRecorded, "known until its retention is over");
    t.advance_s(10);
    let absent = Renewal::Lost(LostLease::Absent);
    assert_eq!(t.complete(&work, ok("1")).await, Completed::Lost(LostLease::Absent));
    assert_eq!((t.renew(&work).await, t.park(&work, true).await, t.progress(&work, "1").await), (absent, absent, absent));
    assert_eq!((t.release(&work).await, t.cancel(&call).await), (0, Cancelled::NotFound));
    assert_eq!(sure(t.store().replay_dead(&call, call_id("again")).await), Replayed::NotDead);
    assert!(!sure(t.store().drop_dead(&call).await));
    assert_eq!(t.view(&call).await, None, "and nothing brings it back");
}

pub async fn a_gone_id_is_free_for_a_replay(t: &mut Bench) {
    t.define_with("add", |f| f.retry.max_attempts = 1).await;
    let dead = t.dead_letter(t.new_call("add").params("[1]")).await;
    let call = t.submit_this(t.new_call("add").retain(seconds(10))).await;
    t.cancel(&call).await;
    t.advance_s(10);
    assert_eq!(sure(t.store().replay_dead(&dead, call.clone()).await), Replayed::Submitted);
    assert_eq!(t.claim_one("w1", "add").await.delivery.request.params, json("[1]"));
    t.check_state(&call, CallState::Running).await;
}

pub async fn the_end_of_a_retention_is_not_a_timer(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit_this(t.new_call("add").retain(seconds(10))).await;
    t.cancel(&call).await;
    assert_eq!(t.fire().await, Fired::default());
    assert_eq!(t.pass_s(10).await, Fired::default());
}

pub async fn everything_that_is_due_happens_and_is_counted(t: &mut Bench) {
    for name in ["late", "crashed", "delayed", "cancelled"] {
        t.define(name).await;
    }
    t.register("silent", &[]).await;
    t.submit_this(t.new_call("late").timeout(seconds(10))).await;
    let delayed = t.submit_this(t.new_call("delayed").timeout(seconds(500))).await;
    let work = t.claim_one("w1", "delayed").await;
    t.answer(&work, failed("busy")).await;
    let cancelled = t.submit_and_claim("w1", "cancelled").await.call_id();
    t.cancel(&cancelled).await;
    t.submit_this(t.new_call("crashed").timeout(seconds(70))).await;
    t.claim_one("w1", "crashed").await;

    let fired = t.pass_s(50).await;
    let ended: Vec<_> = fired.ended.iter().map(|ended| (ended.function.name.as_str(), ended.state)).collect();
    assert_eq!(ended, [("cancelled", CallState::Cancelled), ("late", CallState::Expired)], "leases before deadlines");
    let expected = Fired { reclaimed: 1, promoted: 1, workers_removed: 1, ..fired.clone() };
    assert_eq!(fired, expected);
    assert_eq!((fired.total(), fired.next_due), (5, Some(t.now() + seconds(20))), "the crashed call's deadline is next");
    t.check_state(&delayed, CallState::Queued).await;
    assert_eq!(t.fire().await.total(), 0, "what was done is done");
}

pub async fn no_more_happens_than_was_asked_for_earliest_first(t: &mut Bench) {
    t.define("add").await;
    let mut calls = Vec::new();
    for timeout in [7, 5, 6, 5] {
        calls.push(t.submit_this(t.new_call("add").timeout(seconds(timeout))).await);
    }
    t.advance_s(100);
    let start = t.call(&calls[0]).await.submitted_at;
    let mut order = Vec::new();
    for left in [Some(start + seconds(5)), Some(start + seconds(6)), Some(start + seconds(7))] {
        let fired = sure(t.store().fire_due(1).await);
        order.extend(fired.ended.into_iter().map(|ended| ended.call_id));
        assert_eq!(fired.next_due, left, "what is overdue is named");
    }
    let [seven, first_five, six, second_five] = [0, 1, 2, 3].map(|index: usize| calls[index].clone());
    assert_eq!(order, [first_five, second_five, six]);
    t.check_state(&seven, CallState::Queued).await;
    let fired = sure(t.store().fire_due(0).await);
    assert_eq!((fired.total(), fired.next_due), (0, Some(start + seconds(7))));
}

pub async fn a_limit_counts_for_each_kind_of_timer(t: &mut Bench) {
    for name in ["late", "crashed", "delayed"] {
        t.define(name).await;
    }
    for (worker, scope) in [("silent-1", "a"), ("silent-2", "b")] {
        t.register(worker, &[]).await;
        let mut lock = want(scope, "holder");
        (lock.lease, lock.max_hold) = (seconds(40), seconds(40));
        t.granted(lock).await;
        t.submit_this(t.new_call("late").timeout(seconds(5))).await;
        t.submit_this(t.new_call("crashed").timeout(seconds(500))).await;
        t.claim_one("w1", "crashed").await;
        t.submit_this(t.new_call("delayed").timeout(seconds(500))).await;
        let work = t.claim_one("w1", "delayed").await;
        t.answer(&work, failed("busy")).await;
    }
    t.advance_s(50);
    for _ in 0..2 {
        let fired = sure(t.store().fire_due(1).await);
        let calls = (fired.promoted, fired.reclaimed, fired.ended.len());
        assert_eq!((calls, fired.workers_removed, fired.locks_reaped), ((1, 1, 1), 1, 1));
    }
    assert_eq!(sure(t.store().fire_due(1).await).total(), 0);
}

pub async fn a_retry_does_not_wait_behind_many_deadlines(t: &mut Bench) {
    t.define("retried").await;
    t.define("crashed").await;
    t.define("late").await;
    let start = t.now();
    for _ in 0..5 {
        t.submit_this(t.new_call("late").timeout(seconds(1))).await;
    }
    let retried = t.submit_this(t.new_call("retried").timeout(seconds(500))).await;
    let work = t.claim_one("w1", "retried").await;
    t.answer(&work, failed("busy")).await;
    let crashed = t.submit_this(t.new_call("crashed").timeout(seconds(500))).await;
    t.claim_one("w1", "crashed").await;
    t.advance_s(30);
    let fired = sure(t.store().fire_due(1).await);
    assert_eq!((fired.promoted, fired.reclaimed, fired.ended.len()), (1, 1, 1));
    assert_eq!(fired.next_due, Some(start + seconds(1)), "the other deadlines are left");
    assert_eq!(t.claim_one("w2", "retried").await.call_id(), retried);
    assert_eq!(t.claim_one("w2", "crashed").await.call_id(), crashed);
}

pub async fn a_call_that_one_kind_of_timer_moved_does_not_count_for_another(t: &mut Bench) {
    t.define("add").await;
    let both = t.submit_this(t.new_call("add").timeout(seconds(5))).await;
    let work = t.claim_one("w1", "add").await;
    t.answer(&work, failed_not_before("busy", seconds(4))).await;
    let late = t.submit_this(t.new_call("add").timeout(seconds(6))).await;
    t.advance_s(10);
    let fired = sure(t.store().fire_due(1).await);
    let ended: Vec<_> = fired.ended.into_iter().map(|ended| (ended.call_id, ended.state)).collect();
    assert_eq!(ended, [(both, CallState::Expired), (late, CallState::Expired)], "the first by its delay, the second by its deadline");
    assert_eq!(fired.next_due, None);
}

pub async fn nothing_is_due_in_an_empty_store(t: &mut Bench) {
    assert_eq!(t.pass_s(1_000).await, Fired::default());
}

pub async fn the_next_thing_due_is_named_whatever_it_is(t: &mut Bench) {
    let next_due = async || t.fire().await.next_due;
    t.define("add").await;
    assert_eq!(next_due().await, None, "a function alone is never due");
    let call = t.submit_this(t.new_call("add").timeout(seconds(600)).retain(seconds(1_000))).await;
    let deadline = t.now() + seconds(600);
    assert_eq!(next_due().await, Some(deadline), "a queued call's deadline");
    let work = t.claim_one("w1", "add").await;
    assert_eq!(next_due().await, Some(t.now() + seconds(30)), "the end of a lease");
    t.answer(&work, failed("busy")).await;
    assert_eq!(next_due().await, Some(t.now() + seconds(2)), "the end of a delay");
    t.register("w1", &["add"]).await;
    t.pass_s(2).await;
    assert_eq!(next_due().await, Some(t.now() + seconds(43)), "a worker's silence");
    sure(t.store().unregister(&worker_id("w1")).await);
    assert_eq!(next_due().await, Some(deadline));
    t.cancel(&call).await;
    assert_eq!(next_due().await, None, "an ended call has no timer");
}

pub async fn whoever_waits_for_something_due_is_told_when_there_is_something(t: &mut Bench) {
    t.define("add").await;
    t.fire().await;
    t.settle().await;
    let waiting = t.start(|store| async move { store.due_before(None).await }).await;
    t.check_waits(&waiting).await;
    t.submit_this(t.new_call("add").timeout(seconds(50))).await;
    assert_eq!(waiting.end().await, t.now() + seconds(50));
}

pub async fn whoever_waits_for_something_earlier_is_told_of_nothing_later(t: &mut Bench) {
    t.define("add").await;
    t.submit_this(t.new_call("add").timeout(seconds(50))).await;
    let known = t.now() + seconds(50);
    assert_eq!(t.fire().await.next_due, Some(known));
    t.settle().await;
    let waiting = t.start(move |store| async move { store.due_before(Some(known)).await }).await;
    t.submit_this(t.new_call("add").timeout(seconds(50))).await;
    t.submit_this(t.new_call("add").timeout(seconds(60))).await;
    t.check_waits(&waiting).await;
    t.claim_one("w1", "add").await;
    assert_eq!(waiting.end().await, t.now() + seconds(30), "the end of the lease comes before the deadline");
    assert_eq!(t.store().due_before(Some(known)).await, t.now() + seconds(30), "what is there already is told at once");
}

pub async fn a_worker_that_registers_is_something_due(t: &mut Bench) {
    t.fire().await;
    t.settle().await;
    let waiting = t.start(|store| async move { store.due_before(None).await }).await;
    t.register("w1", &[]).await;
    assert_eq!(waiting.end().await, t.now() + seconds(45));
}
