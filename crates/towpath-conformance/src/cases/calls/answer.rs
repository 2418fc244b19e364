//! Answering calls: the first answer of the latest delivery counts, and no other.

use towpath_core::call::{Answer, CallState, Failure, LostLease, Outcome, Retry};
use towpath_core::store::{CompleteCalls, Completed, Ended};

use crate::bench::{Bench, Work, sure};
use crate::words::{failed, failed_for_good, failure, function, json, ok, seconds};

fn ended(work: &Work, state: CallState, took: u64) -> Completed {
    let function = work.delivery.request.function.clone();
    Completed::Recorded { ended: Some(Ended { call_id: work.call_id(), function, state, took: seconds(took) }) }
}

pub async fn a_result_ends_the_call(t: &mut Bench) {
    t.define("wf-7:add").await;
    let call = t.submit("wf-7:add").await;
    t.advance_s(3);
    let work = t.claim_one("w1", "wf-7:add").await;
    t.advance_s(2);
    let reply = t.complete(&work, ok("3")).await;
    assert_eq!(reply, ended(&work, CallState::Completed, 5), "from submit to end, of {}", function("wf-7:add"));
    let kept = t.call(&call).await;
    assert_eq!((kept.state, kept.ended_at, kept.outcome), (CallState::Completed, Some(t.now()), Some(Outcome::Ok(json("3")))));
    assert_eq!((kept.lease_until, kept.holder), (None, Some(work.worker)));
    t.check_nothing_to_claim("w1", "wf-7:add").await;
}

pub async fn a_final_failure_ends_the_call(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    assert_eq!(t.complete(&work, failed_for_good("bad_input")).await, ended(&work, CallState::Failed, 0));
    let kept = t.call(&work.call_id()).await;
    assert_eq!((kept.state, kept.outcome), (CallState::Failed, Some(Outcome::Failed(failure("bad_input")))));
    assert_eq!((kept.failures, kept.last_failure), (1, None));
}

pub async fn a_failure_keeps_its_code_message_and_details(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let failure =
        Failure { code: "ошибка".to_owned(), message: "line one\nline \"two\"".to_owned(), details: Some(json("{\"at\":[1]}")) };
    t.answer(&work, Answer::Failed { failure: failure.clone(), retry: Retry::Never }).await;
    assert_eq!(t.outcome(&work.call_id()).await, Some(Outcome::Failed(failure)));
}

pub async fn a_repeated_answer_is_recognised_and_the_first_counts(t: &mut Bench) {
    t.define_with("add", |f| f.retry.max_attempts = 2).await;
    let work = t.submit_and_claim("w1", "add").await;
    t.answer(&work, failed("first")).await;
    let delayed = t.call(&work.call_id()).await;
    assert_eq!(t.complete(&work, ok("second thoughts")).await, Completed::AlreadyRecorded, "of a call that is to be tried again");
    assert_eq!(t.call(&work.call_id()).await, delayed);

    t.pass_s(2).await;
    let last = t.claim_one("w1", "add").await;
    t.answer(&last, failed("second")).await;
    assert_eq!(t.complete(&last, ok("1")).await, Completed::AlreadyRecorded, "of a dead letter");
    assert!(sure(t.store().drop_dead(&last.call_id()).await));
    assert_eq!(t.complete(&last, ok("1")).await, Completed::AlreadyRecorded, "of a settled dead letter");

    let work = t.submit_and_claim("w1", "add").await;
    t.answer(&work, failed_for_good("final")).await;
    assert_eq!(t.complete(&work, ok("1")).await, Completed::AlreadyRecorded, "of a failed call");

    let work = t.submit_and_claim("w1", "add").await;
    t.answer(&work, ok("1")).await;
    t.advance_s(1);
    assert_eq!(t.complete(&work, failed("late")).await, Completed::AlreadyRecorded, "of a completed call");
    assert_eq!(t.outcome(&work.call_id()).await, Some(Outcome::Ok(json("1"))));
    assert_eq!(t.complete(&work.in_the_hands_of("w2"), ok("1")).await, Completed::Lost(LostLease::Ended), "it was not w2's");
}

pub async fn a_repeated_answer_after_the_next_attempt_began_is_lost(t: &mut Bench) {
    t.define("add").await;
    let first = t.submit_and_claim("w1", "add").await;
    t.answer(&first, failed("busy")).await;
    t.pass_s(2).await;
    assert_eq!(t.complete(&first, failed("busy")).await, Completed::Lost(LostLease::Expired), "it waits for a worker again");
    t.claim_one("w2", "add").await;
    assert_eq!(t.complete(&first, failed("busy")).await, Completed::Lost(LostLease::Replaced));
    assert_eq!(t.call(&first.call_id()).await.failures, 1);
}

pub async fn a_stale_answer_is_refused_after_reclaim(t: &mut Bench) {
    t.define("add").await;
    let paused = t.submit_and_claim("w1", "add").await;
    t.pass_s(30).await;
    let second = t.claim_one("w2", "add").await;
    assert_eq!(t.complete(&paused, ok("stale")).await, Completed::Lost(LostLease::Replaced));
    t.check_state(&paused.call_id(), CallState::Running).await;
    t.answer(&second, ok("fresh")).await;
    assert_eq!(t.complete(&paused, ok("stale")).await, Completed::Lost(LostLease::Ended));
    assert_eq!(t.outcome(&paused.call_id()).await, Some(Outcome::Ok(json("fresh"))));
}

pub async fn a_stale_answer_of_the_same_worker_is_refused_too(t: &mut Bench) {
    t.define("add").await;
    let first = t.submit_and_claim("w1", "add").await;
    t.pass_s(30).await;
    let second = t.claim_one("w1", "add").await;
    assert_eq!(t.complete(&first, ok("stale")).await, Completed::Lost(LostLease::Replaced));
    t.answer(&second, ok("fresh")).await;
    assert_eq!(t.outcome(&first.call_id()).await, Some(Outcome::Ok(json("fresh"))));
}

pub async fn answers_are_taken_one_by_one_in_order(t: &mut Bench) {
    t.define("add").await;
    let lost = t.submit_and_claim("w1", "add").await;
    t.pass_s(30).await;
    t.claim_one("w2", "add").await;
    let good = t.submit_and_claim("w1", "add").await;
    let retried = t.submit_and_claim("w1", "add").await;
    let answers = vec![(lost.id(), ok("1")), (good.id(), ok("2")), (good.id(), ok("3")), (retried.id(), failed("busy"))];
    let replies = sure(t.store().complete(CompleteCalls { worker: good.worker.clone(), answers }).await);
    let expected = [
        Completed::Lost(LostLease::Replaced),
        ended(&good, CallState::Completed, 0),
        Completed::AlreadyRecorded,
        Completed::Recorded { ended: None },
    ];
    assert_eq!(replies, expected);
    assert_eq!(t.outcome(&good.call_id()).await, Some(Outcome::Ok(json("2"))));
}

pub async fn a_detached_outcome_is_kept_until_its_retention_is_over(t: &mut Bench) {
    use crate::words::SubmitWords;
    t.define("add").await;
    let call = t.submit_this(t.new_call("add").timeout(seconds(86_400)).retain(seconds(86_400))).await;
    t.advance_s(3_600);
    let work = t.claim_one("w1", "add").await;
    t.answer(&work, ok("3")).await;
    t.advance_ms(86_399_999);
    assert_eq!(t.outcome(&call).await, Some(Outcome::Ok(json("3"))), "kept for a day after its end");
    t.advance_ms(1);
    assert_eq!(t.view(&call).await, None);
}
