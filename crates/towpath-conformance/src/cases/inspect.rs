//! The promises about what people get to see.

use towpath_core::call::CallState;
use towpath_core::inspect::{CallFilter, CallView, FunctionCounts, Page, PageRequest};
use towpath_core::names::CallId;
use towpath_core::store::Submitted;

use crate::bench::{Bench, sure};
use crate::words::{SubmitWords, call_id, failed, function, json, new_call, ok, worker_id};

async fn page(t: &Bench, filter: &CallFilter, after: Option<u64>, limit: u32) -> (Vec<CallId>, Option<u64>) {
    let Page { items, next } = sure(t.store().calls(filter, PageRequest { after, limit }).await);
    (items.into_iter().map(|view| view.call.call_id).collect(), next)
}

async fn all(t: &Bench, filter: &CallFilter) -> Vec<CallId> {
    let (calls, next) = page(t, filter, None, 100).await;
    assert_eq!(next, None, "all of them fit on one page");
    calls
}

async fn submit_many(t: &Bench, count: usize) -> Vec<CallId> {
    t.define("add").await;
    let mut newest_first = Vec::new();
    for _ in 0..count {
        newest_first.insert(0, t.submit("add").await);
    }
    newest_first
}

pub async fn calls_are_listed_newest_first(t: &mut Bench) {
    let calls = submit_many(t, 12).await;
    assert_eq!(all(t, &CallFilter::default()).await, calls);
}

pub async fn a_listed_call_shows_all_that_is_known_of_it(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    let _held = t.progress(&work, "50").await;
    t.answer(&work, failed("busy")).await;
    let listed = sure(t.store().calls(&CallFilter::default(), PageRequest::first(10)).await).items;
    assert_eq!(listed, [t.view(&work.call_id()).await.expect("it is there")]);
}

pub async fn a_brief_list_has_no_payloads(t: &mut Bench) {
    t.define("add").await;
    let done = t.submit_and_claim("w1", "add").await;
    let _held = t.progress(&done, "50").await;
    t.answer(&done, ok("[1,2]")).await;
    let failing = t.submit_and_claim("w1", "add").await;
    t.answer(&failing, failed("busy")).await;
    t.submit("add").await;
    let brief = CallFilter { brief: true, ..CallFilter::default() };
    let listed = sure(t.store().calls(&brief, PageRequest::first(10)).await).items;
    let whole = sure(t.store().calls(&CallFilter::default(), PageRequest::first(10)).await).items;
    assert_eq!(listed.len(), 3);
    assert_eq!(listed, whole.into_iter().map(CallView::brief).collect::<Vec<_>>());
}

pub async fn a_page_with_payloads_ends_before_it_is_too_large(t: &mut Bench) {
    t.define("add").await;
    let large = format!("\"{}\"", "x".repeat(PageRequest::BYTES_MAX / 3));
    let mut calls = Vec::new();
    for number in 0..5 {
        let call = new_call(&format!("large-{number}"), "add").params(&large);
        calls.insert(0, call.call_id.clone());
        assert!(matches!(t.try_submit(call).await, Submitted::Accepted { .. }));
    }
    let (first, next) = page(t, &CallFilter::default(), None, 10).await;
    assert_eq!((&first[..], next.is_some()), (&calls[..3], true), "the third reaches the limit");
    let (second, next) = page(t, &CallFilter::default(), next, 10).await;
    assert_eq!((&second[..], next), (&calls[3..], None));
    let brief = CallFilter { brief: true, ..CallFilter::default() };
    assert_eq!(all(t, &brief).await, calls, "without payloads they fit");
}

pub async fn pages_neither_repeat_nor_skip(t: &mut Bench) {
    let calls = submit_many(t, 5).await;
    let everything = CallFilter::default();
    let (first, next) = page(t, &everything, None, 2).await;
    assert_eq!(first, calls[..2]);
    t.submit("add").await;
    t.cancel(&calls[2]).await;
    let (second, next) = page(t, &everything, next, 2).await;
    assert_eq!(second, calls[2..4], "what came in between is not on an older page");
    let (third, next) = page(t, &everything, next, 2).await;
    assert_eq!((third, next), (calls[4..].to_vec(), None));
}

pub async fn a_page_goes_on_where_a_gone_call_was(t: &mut Bench) {
    let calls = submit_many(t, 4).await;
    let (_, next) = page(t, &CallFilter::default(), None, 2).await;
    t.cancel(&calls[1]).await;
    t.advance_s(600);
    let left = [calls[0].clone(), calls[2].clone(), calls[3].clone()];
    assert_eq!(page(t, &CallFilter::default(), None, 10).await, (left.to_vec(), None), "a gone call is not listed");
    assert_eq!(page(t, &CallFilter::default(), None, 3).await, (left.to_vec(), None), "and makes no further page");
    t.fire().await;
    assert_eq!(t.state(&calls[1]).await, None);
    assert_eq!(page(t, &CallFilter::default(), next, 2).await.0, calls[2..]);
}

pub async fn a_page_that_fits_exactly_is_the_last(t: &mut Bench) {
    let calls = submit_many(t, 2).await;
    assert_eq!(page(t, &CallFilter::default(), None, 2).await, (calls, None));
}

pub async fn a_page_of_nothing_is_empty(t: &mut Bench) {
    assert_eq!(page(t, &CallFilter::default(), None, 10).await, (Vec::new(), None), "an empty store");
    submit_many(t, 2).await;
    assert_eq!(page(t, &CallFilter::default(), None, 0).await.0, Vec::new(), "nothing was asked for");
    assert_eq!(page(t, &CallFilter::default(), Some(1), 10).await, (Vec::new(), None), "nothing is older than the first");
}

pub async fn a_page_has_its_largest_size_whatever_is_asked(t: &mut Bench) {
    let calls = submit_many(t, PageRequest::LIMIT_MAX as usize + 1).await;
    let (shown, next) = page(t, &CallFilter::default(), None, u32::MAX).await;
    assert_eq!(shown, calls[..PageRequest::LIMIT_MAX as usize]);
    assert_eq!(page(t, &CallFilter::default(), next, u32::MAX).await, (calls[PageRequest::LIMIT_MAX as usize..].to_vec(), None));
}

pub async fn a_filter_shows_what_it_means_and_nothing_else(t: &mut Bench) {
    for name in ["add", "sub", "wf-7:add"] {
        t.define(name).await;
    }
    let held = t.submit_and_claim("w1", "add").await.call_id();
    let done = t.submit_and_claim("w2", "sub").await;
    t.answer(&done, ok("1")).await;
    let done = done.call_id();
    let scoped = t.submit("wf-7:add").await;
    let queued = t.submit("add").await;
    let key = function("wf-7:add");

    let states = |states: &[CallState]| CallFilter { states: states.to_vec(), ..CallFilter::default() };
    assert_eq!(all(t, &states(&[CallState::Queued])).await, [queued.clone(), scoped.clone()]);
    assert_eq!(all(t, &states(&[CallState::Running, CallState::Completed])).await, [done.clone(), held.clone()]);
    assert_eq!(all(t, &states(&[CallState::Dead])).await, []);
    let by_scope = CallFilter { scope: Some(key.scope.clone()), ..CallFilter::default() };
    assert_eq!(all(t, &by_scope).await, std::slice::from_ref(&scoped));
    let by_name = CallFilter { function: Some(key.name.clone()), ..CallFilter::default() };
    assert_eq!(all(t, &by_name).await, [queued.clone(), scoped.clone(), held.clone()], "of any scope");
    let by_worker = |worker: &str| CallFilter { worker: Some(worker_id(worker)), ..CallFilter::default() };
    assert_eq!(all(t, &by_worker("w1")).await, std::slice::from_ref(&held));
    assert_eq!(all(t, &by_worker("w2")).await, [done], "it was the last to hold it");
    let together = CallFilter { states: vec![CallState::Queued], function: Some(key.name.clone()), ..CallFilter::default() };
    assert_eq!(all(t, &together).await, [queued, scoped.clone()]);
    let together =
        CallFilter { worker: Some(worker_id("w1")), states: vec![CallState::Running], scope: None, brief: false, function: Some(key.name) };
    assert_eq!(all(t, &together).await, [held]);
}

pub async fn a_filtered_list_is_paged_like_any_other(t: &mut Bench) {
    let calls = submit_many(t, 6).await;
    for call in calls.iter().step_by(2) {
        t.cancel(call).await;
    }
    let cancelled = CallFilter { states: vec![CallState::Cancelled], ..CallFilter::default() };
    let (first, next) = page(t, &cancelled, None, 2).await;
    assert_eq!(first, [calls[0].clone(), calls[2].clone()]);
    assert_eq!(page(t, &cancelled, next, 2).await, (vec![calls[4].clone()], None));
}

pub async fn functions_are_listed_by_scope_and_name_with_their_calls_counted(t: &mut Bench) {
    for name in ["b", "wf-7:a", "a", "_first:z"] {
        t.define_with(name, |f| f.retry.max_attempts = 2).await;
    }
    let parked = t.submit_and_claim("w1", "a").await;
    let _held = t.park(&parked, true).await;
    let dead = t.submit_and_claim("w1", "a").await;
    t.answer(&dead, failed("busy")).await;
    t.pass_s(2).await;
    let dead = t.claim_one("w1", "a").await;
    t.answer(&dead, failed("busy")).await;
    let done = t.submit_and_claim("w1", "a").await;
    t.answer(&done, ok("1")).await;
    let delayed = t.submit_and_claim("w1", "a").await;
    t.answer(&delayed, failed("busy")).await;
    let running = t.submit_and_claim("w1", "a").await;
    t.advance_s(1);
    let oldest = t.now();
    t.submit("a").await;
    t.advance_s(1);
    t.submit("a").await;
    t.submit("a").await;

    let listed = sure(t.store().functions().await);
    let names: Vec<_> = listed.iter().map(|view| view.definition.key.to_string()).collect();
    assert_eq!(names, ["a", "b", "_first:z", "wf-7:a"]);
    assert_eq!(listed[0].counts, FunctionCounts { queued: 3, delayed: 1, running: 2, parked: 1, dead: 1 });
    assert_eq!((listed[0].counts.backlog(), listed[0].oldest_queued_at), (4, Some(oldest)));
    assert_eq!(listed[0], t.known_function("a").await, "the list and the question agree");
    assert_eq!((listed[1].counts, listed[1].oldest_queued_at), (FunctionCounts::default(), None));
    // The oldest that waits is the oldest submit, not the one that waits longest in a row.
    t.release(&running).await;
    assert_eq!(t.known_function("a").await.oldest_queued_at, Some(running.delivery.submitted_at));
}

pub async fn workers_are_listed_by_id_with_what_they_hold(t: &mut Bench) {
    t.register("w2", &["add"]).await;
    t.advance_s(30);
    t.register("w1", &["add"]).await;
    t.submit_and_claim("w1", "add").await;
    let parked = t.submit_and_claim("w1", "add").await;
    let _held = t.park(&parked, true).await;
    let released = t.submit_and_claim("w1", "add").await;
    t.release(&released).await;
    let listed = sure(t.store().workers().await);
    let shown: Vec<_> = listed.iter().map(|worker| (worker.worker_id.as_str(), worker.healthy, worker.running)).collect();
    assert_eq!(shown, [("w1", true, 2), ("w2", false, 0)]);
}

pub async fn progress_is_numbered_and_the_latest_is_shown(t: &mut Bench) {
    t.define("add").await;
    let first = t.submit_and_claim("w1", "add").await;
    let progress = async || t.view(&first.call_id()).await.and_then(|view| view.progress);
    assert_eq!(progress().await, None);
    let _held = t.progress(&first, "10").await;
    let _held = t.progress(&first, "20").await;
    assert_eq!(progress().await, Some((2, json("20"))));
    t.pass_s(30).await;
    let second = t.claim_one("w1", "add").await;
    let _held = t.progress(&second, "5").await;
    assert_eq!(progress().await, Some((3, json("5"))), "the numbers go on with the next delivery");
    t.answer(&second, ok("1")).await;
    assert_eq!(progress().await, Some((3, json("5"))), "the end keeps the latest");
}

pub async fn a_call_that_never_was_is_not_shown(t: &mut Bench) {
    assert_eq!(t.view(&call_id("never was")).await, None);
}

pub async fn the_store_tells_its_time_and_what_its_word_is_worth(t: &mut Bench) {
    t.define("add").await;
    t.advance_s(5);
    let status = sure(t.store().probe().await);
    assert_eq!(status.now, t.now());
    assert!(!status.location.is_empty());
    match t.try_submit(t.new_call("add")).await {
        Submitted::Accepted { durability, .. } => assert_eq!(durability, status.durability),
        other => panic!("{other:?}"),
    }
}
