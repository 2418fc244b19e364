//! Cancelling calls: at once while they wait, by asking their worker while they run.

use towpath_core::call::{Answer, CallState, LostLease, Outcome};
use towpath_core::names::WorkerId;
use towpath_core::store::{Cancelled, Completed, Renewal};

use crate::bench::{Bench, sure};
use crate::waiting::Waiting;
use crate::words::{call_id, failed, failed_for_good, json, ok, worker_id};

async fn listen(t: &Bench, worker: &str) -> Waiting<()> {
    let worker: WorkerId = worker_id(worker);
    t.start(|store| async move { store.attention(&worker).await }).await
}

pub async fn a_queued_call_is_cancelled_at_once(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit("add").await;
    t.advance_s(1);
    assert_eq!(t.cancel(&call).await, Cancelled::Done);
    let kept = t.call(&call).await;
    assert_eq!((kept.state, kept.outcome, kept.ended_at), (CallState::Cancelled, Some(Outcome::Cancelled), Some(t.now())));
    t.check_nothing_to_claim("w1", "add").await;
}

pub async fn a_delayed_call_is_cancelled_at_once(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    t.answer(&work, failed("busy")).await;
    assert_eq!(t.cancel(&work.call_id()).await, Cancelled::Done);
    assert_eq!(t.pass_s(2).await.promoted, 0);
    t.check_state(&work.call_id(), CallState::Cancelled).await;
}

pub async fn a_running_call_is_cancelled_when_its_worker_heeds_it(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    assert_eq!(t.cancel(&work.call_id()).await, Cancelled::Requested);
    t.check_state(&work.call_id(), CallState::Running).await;
    let told = |renewal| matches!(renewal, Renewal::Held { cancel_requested: true, .. });
    assert!(told(t.renew(&work).await), "the worker learns of it when it renews");
    assert!(told(t.park(&work, false).await), "or parks");
    assert!(told(t.progress(&work, "1").await), "or reports");
    let reply = t.complete(&work, Answer::Cancelled).await;
    assert!(matches!(&reply, Completed::Recorded { ended: Some(ended) } if ended.state == CallState::Cancelled), "{reply:?}");
    assert_eq!(t.outcome(&work.call_id()).await, Some(Outcome::Cancelled));
}

pub async fn a_result_counts_even_when_cancellation_was_asked_for(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    t.cancel(&work.call_id()).await;
    t.answer(&work, ok("3")).await;
    assert_eq!(t.outcome(&work.call_id()).await, Some(Outcome::Ok(json("3"))));
}

pub async fn a_call_that_fails_after_cancellation_was_asked_for_is_not_tried_again(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    t.cancel(&work.call_id()).await;
    t.answer(&work, failed("interrupted")).await;
    assert_eq!(t.outcome(&work.call_id()).await, Some(Outcome::Cancelled));

    let work = t.submit_and_claim("w1", "add").await;
    t.cancel(&work.call_id()).await;
    t.answer(&work, failed_for_good("broken")).await;
    t.check_state(&work.call_id(), CallState::Failed).await;
}

pub async fn a_cancelled_call_whose_worker_dies_is_not_run_again(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    t.cancel(&work.call_id()).await;
    let fired = t.pass_s(30).await;
    assert_eq!(fired.reclaimed, 0);
    assert_eq!(
        fired.ended.iter().map(|ended| (&ended.call_id, ended.state)).collect::<Vec<_>>(),
        [(&work.call_id(), CallState::Cancelled)]
    );
    t.check_nothing_to_claim("w2", "add").await;
    assert_eq!(t.complete(&work, Answer::Cancelled).await, Completed::Lost(LostLease::Ended));
}

pub async fn a_cancelled_call_that_is_handed_back_is_not_run_again(t: &mut Bench) {
    t.register("w1", &["add"]).await;
    let handed_back = t.submit_and_claim("w1", "add").await;
    t.cancel(&handed_back.call_id()).await;
    assert_eq!(t.release(&handed_back).await, 1);
    t.check_state(&handed_back.call_id(), CallState::Cancelled).await;

    let left_behind = t.submit_and_claim("w1", "add").await;
    t.cancel(&left_behind.call_id()).await;
    assert_eq!(sure(t.store().unregister(&worker_id("w1")).await), 1);
    t.check_state(&left_behind.call_id(), CallState::Cancelled).await;
    t.check_nothing_to_claim("w2", "add").await;
}

pub async fn a_worker_may_say_cancelled_unasked(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    t.answer(&work, Answer::Cancelled).await;
    assert_eq!(t.outcome(&work.call_id()).await, Some(Outcome::Cancelled));
}

pub async fn asking_twice_to_cancel_a_running_call_changes_nothing(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    assert_eq!(t.cancel(&work.call_id()).await, Cancelled::Requested);
    let asked = t.call(&work.call_id()).await;
    t.advance_s(1);
    assert_eq!(t.cancel(&work.call_id()).await, Cancelled::Requested);
    assert_eq!(t.call(&work.call_id()).await, asked);
}

pub async fn an_ended_call_cannot_be_cancelled(t: &mut Bench) {
    t.define_with("add", |f| f.retry.max_attempts = 1).await;
    let completed = t.submit_and_claim("w1", "add").await;
    t.answer(&completed, ok("1")).await;
    let failed = t.submit_and_claim("w1", "add").await;
    t.answer(&failed, failed_for_good("bad")).await;
    let cancelled = t.submit("add").await;
    t.cancel(&cancelled).await;
    let dead = t.dead_letter(t.new_call("add")).await;
    let settled = t.dead_letter(t.new_call("add")).await;
    assert!(sure(t.store().drop_dead(&settled).await));
    let ended = [
        (completed.call_id(), CallState::Completed),
        (failed.call_id(), CallState::Failed),
        (cancelled, CallState::Cancelled),
        (dead, CallState::Dead),
        (settled, CallState::Settled),
    ];
    t.advance_s(1);
    for (call, state) in ended {
        let before = t.view(&call).await;
        assert_eq!(t.cancel(&call).await, Cancelled::AlreadyEnded(state));
        assert_eq!(t.view(&call).await, before);
    }
}

pub async fn no_call_no_cancellation(t: &mut Bench) {
    assert_eq!(t.cancel(&call_id("never was")).await, Cancelled::NotFound);
}

pub async fn the_worker_of_a_cancelled_call_is_woken_and_no_other(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let its_worker = listen(t, "w1").await;
    let other = listen(t, "w2").await;
    t.check_waits(&its_worker).await;
    t.cancel(&work.call_id()).await;
    its_worker.end().await;
    t.check_waits(&other).await;
}

pub async fn a_cancellation_wakes_its_worker_once(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let first = listen(t, "w1").await;
    t.cancel(&work.call_id()).await;
    first.end().await;
    let again = listen(t, "w1").await;
    t.check_waits(&again).await;
    let next = t.submit_and_claim("w1", "add").await;
    t.cancel(&next.call_id()).await;
    again.end().await;
}

pub async fn a_worker_that_was_given_up_and_came_back_is_woken_too(t: &mut Bench) {
    t.register("w1", &["add"]).await;
    let listening = listen(t, "w1").await;
    assert_eq!(t.pass_s(45).await.workers_removed, 1);
    t.check_waits(&listening).await;
    t.register("w1", &["add"]).await;
    let work = t.submit_and_claim("w1", "add").await;
    t.cancel(&work.call_id()).await;
    listening.end().await;
}

pub async fn cancelling_a_call_that_waits_wakes_no_worker(t: &mut Bench) {
    t.define("add").await;
    let released = t.submit_and_claim("w1", "add").await;
    t.release(&released).await;
    let listening = listen(t, "w1").await;
    assert_eq!(t.cancel(&released.call_id()).await, Cancelled::Done);
    t.check_waits(&listening).await;
}
