//! Claims that wait: what wakes them, who is first, and that nothing is lost when they go away.

use std::time::Duration;

use futures_util::poll;
use towpath_core::call::CallState;
use towpath_core::names::CallId;
use towpath_core::store::{ClaimCalls, Replayed};
use towpath_core::worker::RegisterWorker;

use crate::bench::{Bench, Work, claim_of, sure};
use crate::waiting::Waiting;
use crate::words::{SubmitWords, call_id, failed, ok, seconds, worker_id};

const WAIT: Duration = seconds(300);

async fn check_gets(waiting: Waiting<Vec<Work>>, expected: &CallId) -> Work {
    let mut work = waiting.end().await;
    let found: Vec<_> = work.iter().map(Work::call_id).collect();
    assert_eq!(found, std::slice::from_ref(expected));
    work.remove(0)
}

pub async fn a_waiting_claim_wakes_when_a_call_is_submitted(t: &mut Bench) {
    t.define("add").await;
    let waiting = t.start_claim("w1", &["add"], WAIT).await;
    t.check_waits(&waiting).await;
    let call = t.submit("add").await;
    check_gets(waiting, &call).await;
    t.check_state(&call, CallState::Running).await;
}

pub async fn a_waiting_claim_ends_empty_when_its_time_is_over(t: &mut Bench) {
    t.define("add").await;
    let waiting = t.start_claim("w1", &["add"], seconds(5)).await;
    t.advance_ms(4_999);
    t.check_waits(&waiting).await;
    t.advance_ms(1);
    assert!(waiting.end().await.is_empty());
    let call = t.submit("add").await;
    t.check_state(&call, CallState::Queued).await;
    t.claim_one("w2", "add").await;
}

pub async fn waiting_claims_are_served_first_come_first_served(t: &mut Bench) {
    t.define("add").await;
    let first = t.start_claim("w2", &["add"], WAIT).await;
    let second = t.start_claim("w1", &["add"], WAIT).await;
    let third = t.start_claim("w3", &["add"], WAIT).await;
    for waiting in [first, second, third] {
        let call = t.submit("add").await;
        check_gets(waiting, &call).await;
    }
}

pub async fn a_worker_that_let_a_lease_run_out_must_ask_again(t: &mut Bench) {
    t.define("add").await;
    let silent = t.submit_and_claim("w1", "add").await;
    let old = t.start_claim("w1", &["add"], WAIT).await;
    let other = t.start_claim("w2", &["add"], WAIT).await;
    t.pass_s(30).await;
    assert!(old.end().await.is_empty(), "its worker may be gone: it gets nothing until it asks again");
    check_gets(other, &silent.call_id()).await;
    let anew = t.start_claim("w1", &["add"], WAIT).await;
    let call = t.submit("add").await;
    check_gets(anew, &call).await;
}

pub async fn one_call_wakes_one_claim(t: &mut Bench) {
    t.define("add").await;
    let first = t.start_claim("w1", &["add"], WAIT).await;
    let second = t.start_claim("w2", &["add"], WAIT).await;
    let call = t.submit("add").await;
    check_gets(first, &call).await;
    t.check_waits(&second).await;
}

pub async fn a_claim_waits_for_any_of_its_functions(t: &mut Bench) {
    for name in ["add", "sub", "mul"] {
        t.define(name).await;
    }
    let waiting = t.start_claim("w1", &["add", "sub"], WAIT).await;
    t.submit("mul").await;
    t.check_waits(&waiting).await;
    let call = t.submit("sub").await;
    check_gets(waiting, &call).await;
}

pub async fn a_claim_that_cannot_take_a_call_does_not_stand_in_its_way(t: &mut Bench) {
    t.define("add").await;
    t.define("sub").await;
    let other = t.start_claim("w1", &["sub"], WAIT).await;
    let able = t.start_claim("w2", &["add"], WAIT).await;
    let call = t.submit("add").await;
    check_gets(able, &call).await;
    t.check_waits(&other).await;
}

pub async fn a_claim_may_wait_for_a_function_that_is_not_known_yet(t: &mut Bench) {
    let waiting = t.start_claim("w1", &["add"], WAIT).await;
    t.define("add").await;
    let call = t.submit("add").await;
    check_gets(waiting, &call).await;
}

pub async fn a_claim_that_gave_up_waiting_takes_nothing(t: &mut Bench) {
    t.define("add").await;
    let waiting = t.start_claim("w1", &["add"], WAIT).await;
    waiting.give_up().await;
    // A store on a server calls back whoever reads there for this claim, which takes some messages to and fro.
    for _ in 0..8 {
        t.settle().await;
    }
    let call = t.submit("add").await;
    t.check_state(&call, CallState::Queued).await;
    assert_eq!(t.claim_one("w2", "add").await.delivery.id.number, 1);
}

pub async fn a_claim_dropped_before_it_took_its_call_gives_it_back(t: &mut Bench) {
    t.define("add").await;
    let want = ClaimCalls { wait: WAIT, ..claim_of("w1", &[("add", 1)], 1) };
    let mut claim = Box::pin(t.store().claim(want));
    for _ in 0..8 {
        assert!(poll!(&mut claim).is_pending());
        t.settle().await;
    }
    // From here on nobody looks at the claim: whatever the store has ready for it stays untaken.
    let call = t.submit("add").await;
    t.settle().await;
    drop(claim);
    t.settle().await;
    let work = t.claim_one("w2", "add").await;
    assert_eq!(work.call_id(), call);
    let kept = t.call(&call).await;
    assert_eq!((kept.crashes, kept.failures), (0, 0), "nobody has touched it");
}

pub async fn a_call_handed_back_wakes_a_claim(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let waiting = t.start_claim("w2", &["add"], WAIT).await;
    t.check_waits(&waiting).await;
    t.release(&work).await;
    check_gets(waiting, &work.call_id()).await;
}

pub async fn a_worker_that_leaves_wakes_a_claim(t: &mut Bench) {
    t.register("w1", &["add"]).await;
    let work = t.submit_and_claim("w1", "add").await;
    let waiting = t.start_claim("w2", &["add"], WAIT).await;
    sure(t.store().unregister(&worker_id("w1")).await);
    check_gets(waiting, &work.call_id()).await;
}

pub async fn the_end_of_a_lease_wakes_a_claim(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let waiting = t.start_claim("w2", &["add"], WAIT).await;
    t.advance_s(30);
    t.check_waits(&waiting).await;
    t.fire().await;
    assert_eq!(check_gets(waiting, &work.call_id()).await.delivery.id.number, 2);
}

pub async fn the_end_of_a_delay_wakes_a_claim(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    t.answer(&work, failed("busy")).await;
    let waiting = t.start_claim("w2", &["add"], WAIT).await;
    t.check_waits(&waiting).await;
    t.pass_s(2).await;
    check_gets(waiting, &work.call_id()).await;
}

pub async fn a_call_that_ends_wakes_a_claim_that_waits_for_room(t: &mut Bench) {
    t.define_with("add", |f| f.limits.max_concurrent = Some(1)).await;
    let running = t.submit_and_claim("w1", "add").await;
    let next = t.submit("add").await;
    let waiting = t.start_claim("w2", &["add"], WAIT).await;
    t.check_waits(&waiting).await;
    t.answer(&running, ok("1")).await;
    check_gets(waiting, &next).await;
}

pub async fn a_call_that_parks_wakes_a_claim_that_waits_for_room(t: &mut Bench) {
    t.define_with("add", |f| f.limits.max_concurrent = Some(1)).await;
    let outer = t.submit_and_claim("w1", "add").await;
    let nested = t.submit("add").await;
    let waiting = t.start_claim("w1", &["add"], WAIT).await;
    t.check_waits(&waiting).await;
    let _held = t.park(&outer, true).await;
    check_gets(waiting, &nested).await;
}

pub async fn a_raised_limit_wakes_a_claim_that_waits_for_room(t: &mut Bench) {
    t.define_with("add", |f| f.limits.max_concurrent = Some(1)).await;
    t.submit_and_claim("w1", "add").await;
    let next = t.submit("add").await;
    let waiting = t.start_claim("w2", &["add"], WAIT).await;
    t.check_waits(&waiting).await;
    t.define_with("add", |f| f.limits.max_concurrent = Some(2)).await;
    check_gets(waiting, &next).await;
}

pub async fn a_wider_offer_wakes_a_claim_that_waits_for_room(t: &mut Bench) {
    let offer = |concurrency| towpath_core::worker::Offer { concurrency, ..crate::words::offer("add") };
    let worker = |concurrency| RegisterWorker { worker_id: worker_id("w1"), kind: "rust".to_owned(), offers: vec![offer(concurrency)] };
    sure(t.store().register(worker(Some(1))).await);
    t.submit_and_claim("w1", "add").await;
    let next = t.submit("add").await;
    let waiting = t.start_claim("w1", &["add"], WAIT).await;
    t.check_waits(&waiting).await;
    sure(t.store().register(worker(Some(2))).await);
    check_gets(waiting, &next).await;
}

pub async fn a_replayed_dead_letter_wakes_a_claim(t: &mut Bench) {
    t.define_with("add", |f| f.retry.max_attempts = 1).await;
    let dead = t.dead_letter(t.new_call("add")).await;
    let waiting = t.start_claim("w1", &["add"], WAIT).await;
    assert_eq!(sure(t.store().replay_dead(&dead, call_id("replay")).await), Replayed::Submitted);
    check_gets(waiting, &call_id("replay")).await;
}

pub async fn a_claim_goes_on_waiting_when_all_it_finds_is_over(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_this(t.new_call("add").timeout(seconds(60))).await;
    let held = t.claim_one("w1", "add").await;
    let waiting = t.start_claim("w2", &["add"], WAIT).await;
    t.advance_s(60);
    // Handed back after its deadline: nothing is left to run, and the claim sees that by itself.
    t.release(&held).await;
    t.check_waits(&waiting).await;
    t.check_state(&work, CallState::Expired).await;
}
