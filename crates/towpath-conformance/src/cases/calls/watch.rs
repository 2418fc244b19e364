//! Watching calls: whoever listens hears the end, with the outcome in it.

use std::sync::Arc;

use futures_util::FutureExt;
use towpath_core::call::{CallState, Outcome};
use towpath_core::names::CallId;
use towpath_core::store::{CallNews, CallWatch};

use crate::bench::Bench;
use crate::words::{SubmitWords, call_id, failed, new_call, ok, seconds};

/// The end, whatever else is heard before.
async fn hear_end(watch: &mut Box<dyn CallWatch>) -> Arc<Outcome> {
    loop {
        if let CallNews::Ended(outcome) = watch.next().await {
            return outcome;
        }
    }
}

async fn check_heard_end(t: &Bench, watch: &mut Box<dyn CallWatch>, call_id: &CallId, state: CallState) {
    let heard = hear_end(watch).await;
    let kept = t.call(call_id).await;
    assert_eq!((kept.state, kept.outcome.as_ref()), (state, Some(&*heard)), "what is heard is what is kept");
}

async fn check_silent(t: &Bench, watch: &mut Box<dyn CallWatch>) {
    t.settle().await;
    assert_eq!(watch.next().now_or_never(), None);
}

pub async fn a_watcher_from_before_the_submit_hears_the_end(t: &mut Bench) {
    t.define("add").await;
    let mut watch = t.store().watch(&call_id("c"));
    let call = t.submit_this(new_call("c", "add")).await;
    let work = t.claim_one("w1", "add").await;
    check_silent(t, &mut watch).await;
    t.answer(&work, ok("3")).await;
    check_heard_end(t, &mut watch, &call, CallState::Completed).await;
}

pub async fn every_watcher_hears_the_end(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let watch = || t.store().watch(&work.call_id());
    let (mut one, gone, mut two) = (watch(), watch(), watch());
    drop(gone);
    t.answer(&work, ok("3")).await;
    check_heard_end(t, &mut one, &work.call_id(), CallState::Completed).await;
    check_heard_end(t, &mut two, &work.call_id(), CallState::Completed).await;
}

pub async fn a_watcher_hears_progress(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let mut watch = t.store().watch(&work.call_id());
    let _held = t.progress(&work, "50").await;
    assert_eq!(watch.next().await, CallNews::Changed);
    assert_eq!(t.view(&work.call_id()).await.and_then(|view| view.progress).map(|(number, _)| number), Some(1));
}

pub async fn a_watcher_hears_that_a_call_is_to_be_tried_again(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let mut watch = t.store().watch(&work.call_id());
    t.answer(&work, failed("busy")).await;
    assert_eq!(watch.next().await, CallNews::Changed);
}

pub async fn a_watcher_hears_a_cancellation(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit("add").await;
    let mut watch = t.store().watch(&call);
    t.cancel(&call).await;
    check_heard_end(t, &mut watch, &call, CallState::Cancelled).await;
}

pub async fn a_watcher_hears_an_end_that_time_brought(t: &mut Bench) {
    t.define("add").await;
    let running = t.submit_and_claim("w1", "add").await.call_id();
    let queued = t.submit("add").await;
    let (mut of_running, mut of_queued) = (t.store().watch(&running), t.store().watch(&queued));
    t.pass_s(60).await;
    check_heard_end(t, &mut of_running, &running, CallState::TimedOut).await;
    check_heard_end(t, &mut of_queued, &queued, CallState::Expired).await;
}

pub async fn a_watcher_hears_an_end_that_a_claim_found(t: &mut Bench) {
    t.define("add").await;
    let late = t.submit_this(t.new_call("add").timeout(seconds(40))).await;
    let mut of_late = t.store().watch(&late);
    t.advance_s(40);
    t.check_nothing_to_claim("w1", "add").await;
    check_heard_end(t, &mut of_late, &late, CallState::Expired).await;
}

pub async fn a_watcher_hears_that_a_call_is_poisoned(t: &mut Bench) {
    t.define_with("add", |f| f.retry.max_deliveries = 1).await;
    let poisoned = t.submit_and_claim("w1", "add").await.call_id();
    let mut of_poisoned = t.store().watch(&poisoned);
    t.pass_s(30).await;
    check_heard_end(t, &mut of_poisoned, &poisoned, CallState::Dead).await;
}

pub async fn a_watcher_hears_a_dead_letter(t: &mut Bench) {
    t.define_with("add", |f| f.retry.max_attempts = 1).await;
    let work = t.submit_and_claim("w1", "add").await;
    let mut watch = t.store().watch(&work.call_id());
    t.answer(&work, failed("hopeless")).await;
    check_heard_end(t, &mut watch, &work.call_id(), CallState::Dead).await;
}

pub async fn a_watcher_hears_nothing_of_other_calls(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let other = t.submit("add").await;
    let mut watch = t.store().watch(&other);
    let _held = t.progress(&work, "50").await;
    t.answer(&work, ok("1")).await;
    check_silent(t, &mut watch).await;
}
