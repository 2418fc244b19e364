//! Holding calls: how long, how a lease is lost, and what becomes of a call whose worker dies.

use std::time::Duration;

use towpath_core::call::{CallState, DeadReason, LostLease, Outcome};
use towpath_core::ids::DeliveryId;
use towpath_core::store::{CompleteCalls, Completed, RenewCalls, Renewal};

use crate::bench::{Bench, LEASE, Work, sure};
use crate::words::{SubmitWords, call_id, ok, seconds};

fn held(until: towpath_core::time::Timestamp) -> Renewal {
    Renewal::Held { until, cancel_requested: false }
}

/// Every move of a delivery says the same about its loss, and a lost answer changes nothing.
async fn check_lost(t: &Bench, work: &Work, why: LostLease) {
    let before = t.view(&work.call_id()).await;
    assert_eq!(t.renew(work).await, Renewal::Lost(why));
    assert_eq!(t.park(work, true).await, Renewal::Lost(why));
    assert_eq!(t.progress(work, "1").await, Renewal::Lost(why));
    assert_eq!(t.complete(work, ok("stale")).await, Completed::Lost(why));
    assert_eq!(t.release(work).await, 0);
    assert_eq!(t.view(&work.call_id()).await, before, "whoever lost its lease writes nothing");
}

pub async fn a_renewal_counts_from_now(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    t.advance_s(20);
    assert_eq!(t.renew(&work).await, held(t.now() + LEASE));
    t.pass_s(29).await;
    t.check_state(&work.call_id(), CallState::Running).await;
    t.pass_s(1).await;
    t.check_state(&work.call_id(), CallState::Queued).await;
}

pub async fn a_renewal_may_shorten_a_lease(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let leases = RenewCalls { worker: work.worker.clone(), deliveries: vec![work.id()], lease: seconds(1) };
    assert_eq!(sure(t.store().renew(leases).await), [held(t.now() + seconds(1))]);
    t.pass_s(1).await;
    t.check_state(&work.call_id(), CallState::Queued).await;
}

pub async fn renewals_are_answered_one_by_one_in_order(t: &mut Bench) {
    t.define("add").await;
    let first = t.submit_and_claim("w1", "add").await;
    let second = t.submit_and_claim("w1", "add").await;
    t.answer(&first, ok("1")).await;
    let absent = DeliveryId { call_id: call_id("never was"), number: 1 };
    let deliveries = vec![first.id(), second.id(), absent, second.id()];
    let replies = sure(t.store().renew(RenewCalls { worker: first.worker, deliveries, lease: LEASE }).await);
    let until = t.now() + LEASE;
    assert_eq!(replies, [Renewal::Lost(LostLease::Ended), held(until), Renewal::Lost(LostLease::Absent), held(until)]);
}

pub async fn asking_about_no_delivery_gets_no_reply(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let none = RenewCalls { worker: work.worker.clone(), deliveries: Vec::new(), lease: LEASE };
    assert_eq!(sure(t.store().renew(none).await), []);
    assert_eq!(sure(t.store().complete(CompleteCalls { worker: work.worker.clone(), answers: Vec::new() }).await), []);
    assert_eq!(sure(t.store().release(&work.worker, Vec::new()).await), 0);
    t.check_state(&work.call_id(), CallState::Running).await;
}

pub async fn a_crash_between_claim_and_complete_delivers_again(t: &mut Bench) {
    t.define("add").await;
    let first = t.submit_and_claim("w1", "add").await;
    let fired = t.pass_s(30).await;
    assert_eq!(fired.reclaimed, 1);
    let second = t.claim_one("w2", "add").await;
    assert_eq!(second.id(), DeliveryId { call_id: first.call_id(), number: 2 });
    assert_eq!(second.delivery.attempt, 1, "a crash is no failed attempt");
    assert_eq!(t.call(&first.call_id()).await.crashes, 1);
    t.answer(&second, ok("1")).await;
}

pub async fn a_lease_that_ran_out_is_lost_as_expired(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    t.pass_s(30).await;
    check_lost(t, &work, LostLease::Expired).await;
}

pub async fn a_delivery_handed_back_is_lost_as_expired(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    assert_eq!(t.release(&work).await, 1);
    check_lost(t, &work, LostLease::Expired).await;
}

pub async fn a_delivery_with_a_successor_is_lost_as_replaced(t: &mut Bench) {
    t.define("add").await;
    let first = t.submit_and_claim("w1", "add").await;
    t.pass_s(30).await;
    let second = t.claim_one("w1", "add").await;
    check_lost(t, &first, LostLease::Replaced).await;
    t.release(&second).await;
    check_lost(t, &first, LostLease::Replaced).await;
}

pub async fn a_delivery_of_an_ended_call_is_lost_as_ended(t: &mut Bench) {
    t.define("add").await;
    let cancelled = t.submit_and_claim("w1", "add").await;
    t.cancel(&cancelled.call_id()).await;
    t.pass_s(30).await;
    check_lost(t, &cancelled, LostLease::Ended).await;

    let timed_out = t.submit_and_claim("w1", "add").await;
    t.pass_s(60).await;
    check_lost(t, &timed_out, LostLease::Ended).await;

    let answered_by_another = t.submit_and_claim("w1", "add").await;
    t.pass_s(30).await;
    let second = t.claim_one("w2", "add").await;
    t.answer(&second, ok("1")).await;
    check_lost(t, &answered_by_another, LostLease::Ended).await;
}

pub async fn a_delivery_of_no_call_is_lost_as_absent(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit_this(t.new_call("add").retain(seconds(1))).await;
    let work = t.claim_one("w1", "add").await;
    t.answer(&work, ok("1")).await;
    t.pass_s(1).await;
    assert_eq!(t.state(&call).await, None);
    check_lost(t, &work, LostLease::Absent).await;
}

pub async fn a_delivery_number_proves_nothing_in_other_hands(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    check_lost(t, &work.in_the_hands_of("w2"), LostLease::Replaced).await;
    check_lost(t, &work.numbered(2), LostLease::Replaced).await;
    check_lost(t, &work.numbered(0), LostLease::Replaced).await;
    t.answer(&work, ok("1")).await;
}

pub async fn an_overdue_lease_that_nobody_took_back_still_holds(t: &mut Bench) {
    t.define("add").await;
    let renewed = t.submit_and_claim("w1", "add").await;
    let answered = t.submit_and_claim("w1", "add").await;
    t.advance_s(40);
    assert_eq!(t.renew(&renewed).await, held(t.now() + LEASE));
    t.answer(&answered, ok("1")).await;
    assert_eq!(t.fire().await.reclaimed, 0);
    t.check_state(&renewed.call_id(), CallState::Running).await;
    t.check_state(&answered.call_id(), CallState::Completed).await;
}

pub async fn an_overdue_lease_goes_to_nobody_before_it_is_taken_back(t: &mut Bench) {
    t.define("add").await;
    t.submit_and_claim("w1", "add").await;
    t.advance_s(40);
    t.check_nothing_to_claim("w2", "add").await;
    t.fire().await;
    t.claim_one("w2", "add").await;
}

pub async fn parking_and_progress_do_not_prolong_a_lease(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let until = t.now() + LEASE;
    t.advance_s(20);
    assert_eq!(t.park(&work, true).await, held(until));
    assert_eq!(t.progress(&work, "50").await, held(until));
    assert_eq!(t.park(&work, false).await, held(until));
    t.pass_s(10).await;
    t.check_state(&work.call_id(), CallState::Queued).await;
}

pub async fn progress_leaves_a_parked_call_parked(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let _held = t.park(&work, true).await;
    let _held = t.progress(&work, "50").await;
    assert!(t.call(&work.call_id()).await.parked);
}

pub async fn a_parked_call_is_parked_no_longer_once_its_delivery_is_over(t: &mut Bench) {
    t.define("add").await;
    let crashed = t.submit_and_claim("w1", "add").await;
    let released = t.submit_and_claim("w1", "add").await;
    let answered = t.submit_and_claim("w1", "add").await;
    for work in [&crashed, &released, &answered] {
        let _held = t.park(work, true).await;
    }
    assert_eq!(t.known_function("add").await.counts.parked, 3);
    t.release(&released).await;
    t.answer(&answered, ok("1")).await;
    t.pass_s(30).await;
    assert_eq!(t.known_function("add").await.counts.parked, 0);
    for work in [&crashed, &released, &answered] {
        assert!(!t.call(&work.call_id()).await.parked, "{}", work.call_id());
    }
}

pub async fn handing_back_is_no_crash(t: &mut Bench) {
    t.define_with("add", |f| f.retry.max_deliveries = 1).await;
    let first = t.submit_and_claim("w1", "add").await;
    assert_eq!(t.release(&first).await, 1);
    assert_eq!(t.release(&first).await, 0, "a delivery is handed back once");
    let second = t.claim_one("w2", "add").await;
    let call = t.call(&first.call_id()).await;
    assert_eq!((call.crashes, call.failures), (0, 0));
    t.answer(&second, ok("1")).await;
}

pub async fn handing_back_counts_only_what_was_held(t: &mut Bench) {
    t.define("add").await;
    let one = t.submit_and_claim("w1", "add").await;
    let two = t.submit_and_claim("w1", "add").await;
    let others = t.submit_and_claim("w2", "add").await;
    let absent = DeliveryId { call_id: call_id("never was"), number: 1 };
    let deliveries = vec![one.id(), others.id(), absent, two.id(), one.id()];
    assert_eq!(sure(t.store().release(&one.worker, deliveries).await), 2);
    t.check_state(&others.call_id(), CallState::Running).await;
}

pub async fn a_call_that_outlives_too_many_workers_is_poisoned(t: &mut Bench) {
    t.define_with("add", |f| f.retry.max_deliveries = 2).await;
    let poison = t.submit_this(t.new_call("add").timeout(Duration::from_secs(3_600))).await;
    t.claim_one("w1", "add").await;
    assert_eq!(t.pass_s(30).await.reclaimed, 1);
    assert_eq!(t.claim_one("w1", "add").await.delivery.id.number, 2);
    let fired = t.pass_s(30).await;
    assert_eq!((fired.reclaimed, fired.ended.len()), (0, 1), "the last worker it may outlive ends it");
    t.check_nothing_to_claim("w1", "add").await;
    let call = t.call(&poison).await;
    assert_eq!((call.state, call.crashes, call.delivery, call.ended_at), (CallState::Dead, 2, 2, Some(t.now())));
    match call.outcome {
        Some(Outcome::Dead { reason: DeadReason::Poisoned, failure }) => assert_eq!(failure.code, "poisoned"),
        other => panic!("a poisoned call ended as {other:?}"),
    }
}
