//! The promises about a restart: everything is still there, and work goes on where it stood.

use std::collections::BTreeSet;

use towpath_core::call::{Backoff, CallState, LostLease, Outcome, RetryPolicy};
use towpath_core::inspect::{CallFilter, PageRequest};
use towpath_core::names::{LimitScope, RuleName};
use towpath_core::store::{Completed, SetConfig, Submitted};
use towpath_core::worker::{FunctionLimits, FunctionRate, Offer, PushTarget};

use crate::bench::{Bench, Work, sure};
use crate::dump::Dump;
use crate::words::{SubmitWords, call_id, definition, failed, failed_for_good, function, json, new_call, offer, ok, seconds, worker_id};

/// One call in each state there is.
async fn make_every_state(t: &Bench) {
    t.define_with("add", |f| f.retry.max_attempts = 2).await;
    t.define_with("hopeless", |f| f.retry.max_attempts = 1).await;
    t.submit_this(t.new_call("add").timeout(seconds(1))).await; // Expired below
    let timed_out = t.submit_this(new_call("timed out", "hopeless").timeout(seconds(1))).await;
    t.claim_one("w1", "hopeless").await;
    t.pass_s(1).await;
    t.check_state(&timed_out, CallState::TimedOut).await;

    let completed = t.submit_and_claim("w1", "add").await;
    let _held = t.progress(&completed, "[50]").await;
    t.answer(&completed, ok("{\"sum\": 3}")).await;
    let failed_call = t.submit_and_claim("w1", "add").await;
    t.answer(&failed_call, failed_for_good("bad_input")).await;
    let cancelled = t.submit("add").await;
    t.cancel(&cancelled).await;
    t.dead_letter(t.new_call("hopeless")).await;
    let dropped = t.dead_letter(t.new_call("hopeless")).await;
    assert!(sure(t.store().drop_dead(&dropped).await));
    let replayed = t.dead_letter(t.new_call("hopeless").key("moved")).await;
    sure(t.store().replay_dead(&replayed, call_id("replay")).await);

    let delayed = t.submit_and_claim("w1", "add").await;
    t.answer(&delayed, failed("busy")).await;
    let running = t.submit_this(t.new_call("add").params("[1]").input_item("2").key("k")).await;
    let work = t.claim_one("w1", "add").await;
    let _held = t.progress(&work, "10").await;
    let _held = t.park(&work, true).await;
    t.cancel(&running).await;
    let mut queued = t.new_call("add");
    queued.request.depth = 2;
    queued.request.parent = Some(running);
    queued.request.traceparent = Some("00-1-2-01".to_owned());
    t.submit_this(queued).await;
}

pub async fn a_restart_keeps_every_call_in_every_state(t: &mut Bench) {
    make_every_state(t).await;
    let before = Dump::of(t.store()).await;
    let states: BTreeSet<_> = before.calls.iter().map(|view| view.call.state).collect();
    assert_eq!(states, BTreeSet::from(CallState::ALL), "this case proves something only with every state in it");
    t.reopen().await;
    assert_eq!(Dump::of(t.store()).await, before);
}

pub async fn a_restart_keeps_functions_workers_and_configuration(t: &mut Bench) {
    let mut whole = definition("wf-7:заказ");
    whole.description = Some("All of it.".to_owned());
    whole.parameters = Some(json("[{\"name\": \"a\"}]"));
    whole.retry = RetryPolicy { max_attempts: 7, max_deliveries: 9, backoff: Backoff::Exponential { delay_ms: 5, delay_ms_max: 50 } };
    let rate = FunctionRate { policy: RuleName::new("mail").expect("a name"), scope: LimitScope::new("smtp").ok() };
    whole.limits = FunctionLimits { max_backlog: Some(1), max_concurrent: Some(2), max_payload_bytes: 3, rate: Some(rate), shards: None };
    whole.target = Some(PushTarget { url: "http://127.0.0.1:9/".to_owned(), concurrency: 4 });
    t.define("add").await;
    t.register_with("w1", vec![Offer { definition: whole, concurrency: Some(1) }, offer("sub")]).await;
    t.advance_s(30);
    t.register("w2", &["add"]).await;
    sure(t.store().set_config(SetConfig { value: json("{\"b\" : [1]}"), if_version: None }).await);
    let before = Dump::of(t.store()).await;
    assert_eq!((before.functions.len(), before.workers.len(), before.config.version), (3, 2, 1));
    t.reopen().await;
    assert_eq!(Dump::of(t.store()).await, before);
}

pub async fn an_answer_counts_after_a_restart(t: &mut Bench) {
    t.define("add").await;
    let held = t.submit_and_claim("w1", "add").await;
    let stale = t.submit_and_claim("w1", "add").await;
    t.release(&stale).await;
    let _second = t.claim_one("w2", "add").await;
    t.reopen().await;
    t.answer(&held, ok("3")).await;
    assert_eq!(t.complete(&stale, ok("stale")).await, Completed::Lost(LostLease::Replaced));
    t.reopen().await;
    assert_eq!(t.outcome(&held.call_id()).await, Some(Outcome::Ok(json("3"))));
    assert_eq!(t.complete(&held, ok("4")).await, Completed::AlreadyRecorded);
}

pub async fn time_goes_on_after_a_restart(t: &mut Bench) {
    t.define("add").await;
    let crashed = t.submit_and_claim("w1", "add").await;
    let delayed = t.submit_and_claim("w1", "add").await;
    t.answer(&delayed, failed("busy")).await;
    t.register("w1", &[]).await;
    let due = t.fire().await.next_due;
    t.reopen().await;
    assert_eq!(t.fire().await.next_due, due);
    t.settle().await;
    assert_eq!(t.store().due_before(None).await, t.now() + seconds(2));
    assert_eq!(t.pass_s(2).await.promoted, 1);
    t.reopen().await;
    assert_eq!(t.pass_s(28).await.reclaimed, 1);
    assert_eq!(t.pass_s(15).await.workers_removed, 1);
    assert_eq!(t.call(&crashed.call_id()).await.crashes, 1);
}

pub async fn ids_and_keys_are_recognised_after_a_restart(t: &mut Bench) {
    t.define("add").await;
    t.submit_this(new_call("a", "add").params("1").key("k")).await;
    t.reopen().await;
    assert!(matches!(t.try_submit(new_call("a", "add").params("1")).await, Submitted::Existing { .. }));
    assert!(matches!(t.try_submit(new_call("b", "add").params("1").key("k")).await, Submitted::Existing { .. }));
    assert_eq!(t.try_submit(new_call("b", "add").params("2").key("k")).await, Submitted::Conflict { call_id: call_id("a") });
}

pub async fn order_and_pages_survive_a_restart(t: &mut Bench) {
    t.define("add").await;
    let mut submitted = Vec::new();
    for name in ["d", "a"] {
        submitted.push(t.submit_this(new_call(name, "add")).await);
    }
    let page = sure(t.store().calls(&CallFilter::default(), PageRequest::first(1)).await);
    t.reopen().await;
    for name in ["c", "b"] {
        submitted.push(t.submit_this(new_call(name, "add")).await);
    }
    let older = sure(t.store().calls(&CallFilter::default(), PageRequest { after: page.next, limit: 10 }).await);
    assert_eq!(older.items.iter().map(|view| view.call.call_id.clone()).collect::<Vec<_>>(), [call_id("d")]);
    assert_eq!(t.claim("w1", "add", 10).await.iter().map(Work::call_id).collect::<Vec<_>>(), submitted);
}

pub async fn limits_count_what_ran_before_a_restart(t: &mut Bench) {
    t.define_with("add", |f| (f.limits.max_concurrent, f.limits.max_backlog) = (Some(1), Some(1))).await;
    t.register_with("w1", vec![Offer { concurrency: Some(1), ..offer("sub") }]).await;
    t.submit_and_claim("w2", "add").await;
    t.submit("add").await;
    t.submit_and_claim("w1", "sub").await;
    t.submit("sub").await;
    t.reopen().await;
    t.check_nothing_to_claim("w2", "add").await;
    t.check_nothing_to_claim("w1", "sub").await;
    assert_eq!(t.try_submit(t.new_call("add")).await, Submitted::Overloaded { backlog: 1, limit: 1 });
}

pub async fn progress_is_numbered_on_after_a_restart(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let _held = t.progress(&work, "10").await;
    t.reopen().await;
    let _held = t.progress(&work, "20").await;
    assert_eq!(t.view(&work.call_id()).await.and_then(|view| view.progress), Some((2, json("20"))));
}

pub async fn what_is_gone_stays_gone_after_a_restart(t: &mut Bench) {
    t.define("gone").await;
    t.define("add").await;
    t.register("w1", &["add"]).await;
    t.submit_this(new_call("a", "add").key("k").retain(seconds(1))).await;
    let work = t.claim_one("w1", "add").await;
    t.answer(&work, ok("1")).await;
    assert!(sure(t.store().forget(&function("gone")).await));
    sure(t.store().unregister(&worker_id("w1")).await);
    t.advance_s(1);
    t.reopen().await;
    assert_eq!((t.view(&call_id("a")).await, t.function("gone").await), (None, None));
    assert_eq!(sure(t.store().workers().await), []);
    t.submit_this(new_call("b", "add").key("k")).await;
}

pub async fn a_listener_after_a_restart_hears_what_happens_then(t: &mut Bench) {
    t.define("add").await;
    let held = t.submit_and_claim("w1", "add").await;
    t.reopen().await;
    assert!(sure(t.store().functions_changed(0).await) > 0, "functions are known: whoever starts at 0 is told at once");
    let mut watch = t.store().watch(&held.call_id());
    let waiting = t.start_claim("w2", &["add"], seconds(300)).await;
    t.answer(&held, ok("1")).await;
    assert!(matches!(watch.next().await, towpath_core::store::CallNews::Ended(_)));
    let call = t.submit("add").await;
    assert_eq!(waiting.end().await.iter().map(Work::call_id).collect::<Vec<_>>(), [call]);
}
