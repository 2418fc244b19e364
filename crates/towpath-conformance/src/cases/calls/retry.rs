//! Trying again: when, how often, and when no longer.

use std::time::Duration;

use towpath_core::call::{Backoff, CallState, DeadReason, Outcome};
use towpath_core::store::Completed;

use crate::bench::{Bench, Work};
use crate::words::{SubmitWords, failed, failed_not_before, failure, ok, seconds};

fn exhausted(code: &str) -> Option<Outcome> {
    Some(Outcome::Dead { reason: DeadReason::Exhausted, failure: failure(code) })
}

pub async fn a_failed_call_is_tried_again_after_its_pause(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    assert_eq!(t.complete(&work, failed("busy")).await, Completed::Recorded { ended: None });
    let call = t.call(&work.call_id()).await;
    assert_eq!((call.state, call.failures, call.not_before), (CallState::Delayed, 1, Some(t.now() + seconds(2))));
    assert_eq!((call.last_failure, call.outcome, call.lease_until), (Some(failure("busy")), None, None));

    t.advance_ms(1_999);
    assert_eq!(t.fire().await.promoted, 0);
    t.check_nothing_to_claim("w1", "add").await;
    t.advance_ms(1);
    t.check_nothing_to_claim("w1", "add").await;
    assert_eq!(t.fire().await.promoted, 1);
    let again = t.claim_one("w1", "add").await;
    assert_eq!((again.call_id(), again.delivery.attempt, again.delivery.id.number), (work.call_id(), 2, 2));
    t.answer(&again, ok("3")).await;
    let call = t.call(&work.call_id()).await;
    assert_eq!((call.state, call.failures), (CallState::Completed, 1));
}

pub async fn the_last_failed_attempt_makes_a_dead_letter(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit("add").await;
    for attempt in 1..=3 {
        let work = t.claim_one("w1", "add").await;
        assert_eq!(work.delivery.attempt, attempt);
        let reply = t.complete(&work, failed(&format!("error {attempt}"))).await;
        let is_last = matches!(&reply, Completed::Recorded { ended: Some(ended) } if ended.state == CallState::Dead);
        assert_eq!(is_last, attempt == 3, "{reply:?}");
        t.pass_s(2).await;
    }
    let kept = t.call(&call).await;
    assert_eq!((kept.state, kept.failures, kept.outcome), (CallState::Dead, 3, exhausted("error 3")));
}

pub async fn a_function_that_may_be_tried_once_is_not_tried_again(t: &mut Bench) {
    t.define_with("add", |f| f.retry.max_attempts = 1).await;
    let work = t.submit_and_claim("w1", "add").await;
    t.answer(&work, failed("busy")).await;
    assert_eq!(t.outcome(&work.call_id()).await, exhausted("busy"));
}

pub async fn a_retry_that_would_come_at_the_deadline_is_a_dead_letter_at_once(t: &mut Bench) {
    t.define("add").await;
    let exactly = t.submit_this(t.new_call("add").timeout(seconds(2))).await;
    let before = t.submit_this(t.new_call("add").timeout(Duration::from_millis(2_001))).await;
    for work in t.claim("w1", "add", 2).await {
        t.answer(&work, failed("busy")).await;
    }
    assert_eq!(t.outcome(&exactly).await, exhausted("busy"), "at its deadline it would be too late");
    t.check_state(&before, CallState::Delayed).await;
}

pub async fn a_handler_may_ask_for_a_longer_pause_but_not_for_a_shorter_one(t: &mut Bench) {
    t.define("add").await;
    let longer = t.submit_and_claim("w1", "add").await;
    t.answer(&longer, failed_not_before("busy", seconds(10))).await;
    assert_eq!(t.call(&longer.call_id()).await.not_before, Some(t.now() + seconds(10)));
    let shorter = t.submit_and_claim("w1", "add").await;
    t.answer(&shorter, failed_not_before("busy", seconds(1))).await;
    assert_eq!(t.call(&shorter.call_id()).await.not_before, Some(t.now() + seconds(2)));
}

pub async fn a_pause_asked_for_beyond_the_deadline_is_a_dead_letter_at_once(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    t.answer(&work, failed_not_before("busy", Duration::MAX)).await;
    assert_eq!(t.outcome(&work.call_id()).await, exhausted("busy"));
}

pub async fn a_growing_pause_grows_by_the_functions_policy(t: &mut Bench) {
    let backoff = Backoff::Exponential { delay_ms: 1_000, delay_ms_max: 3_000 };
    t.define_with("add", |f| {
        f.retry.backoff = backoff.clone();
        f.retry.max_attempts = 5;
    })
    .await;
    let call = t.submit("add").await;
    for failures in 1..=4 {
        let work = t.claim_one("w1", "add").await;
        t.answer(&work, failed("busy")).await;
        let pause = backoff.delay(failures, &call);
        assert_eq!(t.call(&call).await.not_before, Some(t.now() + pause), "after {failures} failures");
        t.advance(pause);
        t.fire().await;
    }
}

pub async fn the_latest_policy_counts_when_the_answer_comes(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    t.define_with("add", |f| f.retry.backoff = Backoff::Fixed { delay_ms: 7_000 }).await;
    t.answer(&work, failed("busy")).await;
    assert_eq!(t.call(&work.call_id()).await.not_before, Some(t.now() + seconds(7)));
}

pub async fn a_retried_call_keeps_its_place(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    t.answer(&work, failed("busy")).await;
    let younger = t.submit("add").await;
    t.pass_s(2).await;
    let order: Vec<_> = t.claim("w1", "add", 2).await.iter().map(Work::call_id).collect();
    assert_eq!(order, [work.call_id(), younger]);
}

pub async fn crashes_and_failures_are_counted_apart(t: &mut Bench) {
    t.define_with("add", |f| (f.retry.max_attempts, f.retry.max_deliveries) = (2, 2)).await;
    let call = t.submit_this(t.new_call("add").timeout(seconds(600))).await;
    t.claim_one("w1", "add").await;
    t.pass_s(30).await;
    let work = t.claim_one("w1", "add").await;
    t.answer(&work, failed("busy")).await;
    t.pass_s(2).await;
    let work = t.claim_one("w1", "add").await;
    assert_eq!((work.delivery.attempt, work.delivery.id.number), (2, 3));
    let kept = t.call(&call).await;
    assert_eq!((kept.failures, kept.crashes), (1, 1), "one of each is neither exhausted nor poisoned");
}
