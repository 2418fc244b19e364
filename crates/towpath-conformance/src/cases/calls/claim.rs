//! Delivering calls: which, in what order, and what the worker is told.

use std::time::Duration;

use towpath_core::call::{CallState, Outcome};
use towpath_core::ids::DeliveryId;
use towpath_core::store::ClaimCalls;

use crate::bench::{Bench, LEASE, Work, claim_of};
use crate::words::{SubmitWords, ok, seconds, worker_id};

pub async fn the_oldest_submit_is_delivered_first(t: &mut Bench) {
    t.define("add").await;
    // Ids that sort against the order of submits, all at one instant: only the order in which they came can tell them apart.
    let mut submitted = Vec::new();
    for name in ["c", "a", "d", "b"] {
        submitted.push(t.submit_this(crate::words::new_call(name, "add")).await);
    }
    let mut claimed = Vec::new();
    claimed.extend(t.claim("w1", "add", 1).await);
    claimed.extend(t.claim("w2", "add", 2).await);
    claimed.extend(t.claim("w3", "add", 10).await);
    assert_eq!(claimed.iter().map(Work::call_id).collect::<Vec<_>>(), submitted);
}

pub async fn a_delivery_says_all_that_was_asked(t: &mut Bench) {
    t.define("add").await;
    let call = t.new_call("add").params("[1,2]").input_item("{}").key("k").timeout(seconds(50));
    let submitted_at = t.now();
    t.submit_this(call.clone()).await;
    t.advance_s(10);
    let Work { delivery, .. } = t.claim_one("w1", "add").await;
    assert_eq!(delivery.id, DeliveryId { call_id: call.call_id.clone(), number: 1 });
    assert_eq!(delivery.request, call.request);
    assert_eq!((delivery.attempt, delivery.submitted_at), (1, submitted_at));
    assert_eq!((delivery.deadline, delivery.remaining), (submitted_at + seconds(50), seconds(40)));
    assert_eq!(delivery.lease_until, t.now() + LEASE);

    let kept = t.call(&call.call_id).await;
    assert_eq!((kept.state, kept.delivery, kept.holder), (CallState::Running, 1, Some(worker_id("w1"))));
    assert_eq!((kept.started_at, kept.lease_until), (Some(t.now()), Some(t.now() + LEASE)));
}

pub async fn a_claim_takes_functions_in_its_own_order(t: &mut Bench) {
    for name in ["a", "b", "c"] {
        t.define(name).await;
        for _ in 0..3 {
            t.submit(name).await;
        }
    }
    let work = t.claim_this(claim_of("w1", &[("c", 1), ("a", 2), ("b", 3)], 5)).await;
    let names: Vec<_> = work.iter().map(|work| work.delivery.request.function.name.as_str()).collect();
    assert_eq!(names, ["c", "a", "a", "b", "b"], "each up to its own maximum, all together up to five");
}

pub async fn a_claim_for_nothing_ends_at_once(t: &mut Bench) {
    t.define("add").await;
    t.submit("add").await;
    let wait = seconds(60);
    assert!(t.claim_this(ClaimCalls { wait, ..claim_of("w1", &[("add", 1)], 0) }).await.is_empty());
    assert!(t.claim_this(ClaimCalls { wait, ..claim_of("w1", &[], 5) }).await.is_empty());
}

pub async fn a_claim_that_does_not_wait_ends_empty(t: &mut Bench) {
    t.define("add").await;
    t.define("sub").await;
    t.submit("sub").await;
    t.check_nothing_to_claim("w1", "add").await;
    t.check_nothing_to_claim("w1", "never heard of").await;
}

pub async fn a_call_that_is_held_is_delivered_to_nobody_else(t: &mut Bench) {
    t.define("add").await;
    t.submit_and_claim("w1", "add").await;
    t.check_nothing_to_claim("w2", "add").await;
    t.check_nothing_to_claim("w1", "add").await;
}

pub async fn a_worker_that_never_registered_may_claim(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("stranger", "add").await;
    t.answer(&work, ok("1")).await;
    t.check_state(&work.call_id(), CallState::Completed).await;
}

pub async fn a_call_handed_back_keeps_its_place(t: &mut Bench) {
    t.define("add").await;
    let oldest = t.submit("add").await;
    let younger = t.submit("add").await;
    let work = t.claim_one("w1", "add").await;
    t.advance_s(1);
    assert_eq!(t.release(&work).await, 1);
    let again = t.claim("w2", "add", 2).await;
    assert_eq!(again.iter().map(Work::call_id).collect::<Vec<_>>(), [oldest, younger]);
    assert_eq!(again[0].delivery.id.number, 2, "every delivery has its own number");
}

pub async fn a_call_past_its_deadline_is_not_delivered(t: &mut Bench) {
    t.define("add").await;
    let late = t.submit_this(t.new_call("add").timeout(seconds(5))).await;
    let fresh = t.submit_this(t.new_call("add").timeout(Duration::from_millis(5_001))).await;
    t.advance_s(5);
    assert_eq!(t.claim_one("w1", "add").await.call_id(), fresh, "what is over does not count against the claim");
    t.check_state(&late, CallState::Expired).await;
    let call = t.call(&late).await;
    assert_eq!((call.outcome, call.ended_at, call.delivery), (Some(Outcome::Expired), Some(t.now()), 0));
}

pub async fn a_claim_looks_no_further_than_it_has_room(t: &mut Bench) {
    t.define_with("add", |f| f.limits.max_concurrent = Some(1)).await;
    t.submit("add").await;
    let late = t.submit_this(t.new_call("add").timeout(seconds(5))).await;
    t.advance_s(5);
    assert_eq!(t.claim("w1", "add", 10).await.len(), 1);
    t.check_nothing_to_claim("w1", "add").await;
    t.check_state(&late, CallState::Queued).await;
}
