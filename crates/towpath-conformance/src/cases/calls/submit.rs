//! Taking calls: what is kept, what is the same call, what is refused.

use std::time::Duration;

use towpath_core::call::{AttemptsBefore, CallState, Outcome};
use towpath_core::names::CallId;
use towpath_core::store::Submitted;
use towpath_core::time::Timestamp;

use crate::bench::{Bench, sure};
use crate::words::{SubmitWords, call_id, failed, function, json, new_call, ok, seconds};

/// The reply for a resend, without what differs between stores.
fn existing(reply: &Submitted) -> Option<(&CallId, CallState, Timestamp)> {
    match reply {
        Submitted::Existing { call_id, state, deadline, .. } => Some((call_id, *state, *deadline)),
        _ => None,
    }
}

fn is_accepted(reply: &Submitted) -> bool {
    matches!(reply, Submitted::Accepted { .. })
}

pub async fn an_accepted_call_is_kept_as_it_was_asked(t: &mut Bench) {
    t.define("add").await;
    let mut call = t.new_call("add").params(r#"{"a":1}"#).input_item("[2]").key("k").timeout(seconds(5)).retain(seconds(7));
    call.request.depth = 3;
    call.request.parent = Some(call_id("parent"));
    call.request.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    let reply = t.try_submit(call.clone()).await;
    let deadline = t.now() + seconds(5);
    assert!(matches!(reply, Submitted::Accepted { deadline: told, .. } if told == deadline), "{reply:?}");

    let kept = t.view(&call.call_id).await.expect("an accepted call is visible at once");
    assert_eq!(kept.request, call.request);
    assert_eq!(kept.progress, None);
    let expected = towpath_core::call::Call::submitted(call.call_id, t.now(), seconds(5), seconds(7));
    assert_eq!(kept.call, expected);
}

pub async fn attempts_that_a_call_had_elsewhere_count_here(t: &mut Bench) {
    t.define_with("add", |f| (f.retry.max_attempts, f.retry.max_deliveries) = (3, 2)).await;
    let mut call = t.new_call("add");
    call.before = AttemptsBefore { failures: 2, crashes: 1 };
    t.submit_this(call.clone()).await;
    let kept = t.call(&call.call_id).await;
    assert_eq!((kept.failures, kept.crashes, kept.state), (2, 1, CallState::Queued));
    let mut again = call.clone();
    again.before = AttemptsBefore::default();
    assert!(existing(&t.try_submit(again).await).is_some(), "a resend is the same call, whatever it says about attempts");
    let work = t.claim_one("w1", "add").await;
    assert_eq!(work.delivery.attempt, 3);
    t.answer(&work, failed("third")).await;
    t.check_state(&call.call_id, CallState::Dead).await;

    let mut fragile = t.new_call("add");
    fragile.before.crashes = 1;
    t.submit_this(fragile.clone()).await;
    t.claim_one("w1", "add").await;
    t.pass_s(30).await;
    t.check_state(&fragile.call_id, CallState::Dead).await;
}

pub async fn a_call_of_an_unknown_function_is_refused(t: &mut Bench) {
    let call = t.new_call("add");
    assert_eq!(t.try_submit(call.clone()).await, Submitted::UnknownFunction);
    assert_eq!(t.state(&call.call_id).await, None, "a refused call leaves nothing behind");
    t.define("add").await;
    assert!(is_accepted(&t.try_submit(call).await), "once the function is known, the same call is taken");
}

pub async fn a_function_without_workers_takes_calls(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit("add").await;
    t.check_state(&call, CallState::Queued).await;
}

pub async fn a_resend_of_the_same_id_is_the_same_call(t: &mut Bench) {
    t.define("add").await;
    let call = t.new_call("add");
    t.submit_this(call.clone()).await;
    let deadline = t.now() + seconds(60);
    t.advance_s(1);
    let reply = t.try_submit(call.clone()).await;
    assert_eq!(existing(&reply), Some((&call.call_id, CallState::Queued, deadline)), "{reply:?}");
    assert_eq!(t.claim("w1", "add", 10).await.len(), 1, "two submits of one id are one call");
}

pub async fn a_resend_finds_its_call_wherever_it_stands(t: &mut Bench) {
    t.define("add").await;
    let call = t.new_call("add");
    t.submit_this(call.clone()).await;
    let deadline = t.now() + seconds(60);
    let mut seen = Vec::new();
    let work = t.claim_one("w1", "add").await;
    seen.push(t.try_submit(call.clone()).await);
    t.answer(&work, failed("busy")).await;
    seen.push(t.try_submit(call.clone()).await);
    t.pass_s(2).await;
    let work = t.claim_one("w1", "add").await;
    t.answer(&work, ok("3")).await;
    seen.push(t.try_submit(call.clone()).await);
    let states: Vec<_> = seen.iter().map(existing).collect();
    let expected = [CallState::Running, CallState::Delayed, CallState::Completed].map(|state| Some((&call.call_id, state, deadline)));
    assert_eq!(states, expected);
}

pub async fn the_same_id_with_another_body_is_a_conflict(t: &mut Bench) {
    t.define("add").await;
    t.define("sub").await;
    let first = t.submit_this(new_call("c", "add").params("1")).await;
    let conflict = Submitted::Conflict { call_id: first.clone() };
    assert_eq!(t.try_submit(new_call("c", "add").params("2")).await, conflict);
    assert_eq!(t.try_submit(new_call("c", "add").params("1").input_item("1")).await, conflict);
    assert_eq!(t.try_submit(new_call("c", "sub").params("1")).await, conflict);
    let kept = t.view(&first).await.expect("the first call is untouched").request;
    assert_eq!((kept.function, kept.params, kept.input_item), (function("add"), json("1"), None));
}

pub async fn a_resend_may_differ_in_depth_parent_trace_and_times(t: &mut Bench) {
    t.define("add").await;
    let first = t.submit_this(new_call("c", "add")).await;
    let before = t.view(&first).await;
    let mut again = new_call("c", "add").timeout(seconds(1)).retain(seconds(1)).key("late");
    again.request.depth = 9;
    again.request.parent = Some(call_id("parent"));
    again.request.traceparent = Some("00-1-2-01".to_owned());
    assert!(matches!(t.try_submit(again).await, Submitted::Existing { .. }));
    assert_eq!(t.view(&first).await, before, "the first submit counts");
}

pub async fn the_same_key_is_the_same_call_for_every_caller(t: &mut Bench) {
    t.define("add").await;
    let first = t.submit_this(new_call("mine", "add").params("1").key("order-7")).await;
    let deadline = t.now() + seconds(60);
    let reply = t.try_submit(new_call("yours", "add").params("1").key("order-7")).await;
    assert_eq!(existing(&reply), Some((&first, CallState::Queued, deadline)), "{reply:?}");
    assert_eq!(t.state(&call_id("yours")).await, None);
    assert_eq!(t.claim("w1", "add", 10).await.len(), 1);
}

pub async fn the_same_key_with_another_body_is_a_conflict(t: &mut Bench) {
    t.define("add").await;
    let first = t.submit_this(new_call("mine", "add").params("1").key("order-7")).await;
    let reply = t.try_submit(new_call("yours", "add").params("2").key("order-7")).await;
    assert_eq!(reply, Submitted::Conflict { call_id: first });
    assert_eq!(t.state(&call_id("yours")).await, None);
}

pub async fn a_key_belongs_to_its_function_alone(t: &mut Bench) {
    for name in ["add", "sub", "wf-7:add"] {
        t.define(name).await;
        let reply = t.try_submit(t.new_call(name).key("order-7")).await;
        assert!(is_accepted(&reply), "{name}: {reply:?}");
    }
}

pub async fn the_id_is_looked_at_before_the_key(t: &mut Bench) {
    t.define("add").await;
    let first = t.submit_this(new_call("a", "add").key("key-a")).await;
    t.submit_this(new_call("b", "add").key("key-b")).await;
    let reply = t.try_submit(new_call("a", "add").key("key-b")).await;
    assert_eq!(existing(&reply).map(|(call_id, ..)| call_id), Some(&first), "{reply:?}");
}

pub async fn a_key_leads_to_the_outcome_until_its_retention_is_over(t: &mut Bench) {
    t.define("add").await;
    let first = t.submit_this(new_call("a", "add").key("k").retain(seconds(10))).await;
    let work = t.claim_one("w1", "add").await;
    t.answer(&work, ok("3")).await;
    t.advance_ms(9_999);
    let reply = t.try_submit(new_call("b", "add").key("k")).await;
    assert_eq!(existing(&reply).map(|(call_id, state, _)| (call_id, state)), Some((&first, CallState::Completed)), "{reply:?}");

    t.advance_ms(1);
    let second = t.submit_this(new_call("c", "add").params("9").key("k")).await;
    let reply = t.try_submit(new_call("d", "add").params("9").key("k")).await;
    assert_eq!(existing(&reply).map(|(call_id, ..)| call_id), Some(&second), "the key leads to the new call: {reply:?}");
    t.fire().await;
    let reply = t.try_submit(new_call("e", "add").params("9").key("k")).await;
    assert_eq!(existing(&reply).map(|(call_id, ..)| call_id), Some(&second), "and stays there: {reply:?}");
}

pub async fn a_gone_id_is_free(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit_this(new_call("a", "add").key("k").retain(seconds(10))).await;
    let work = t.claim_one("w1", "add").await;
    let _held = t.progress(&work, "50").await;
    t.answer(&work, ok("3")).await;
    t.advance_s(10);
    t.submit_this(new_call("a", "add").params("other")).await;
    let again = t.view(&call).await.expect("the new call is there");
    assert_eq!((again.call.state, again.call.outcome, again.progress), (CallState::Queued, None, None), "nothing is left of the old one");
    t.fire().await;
    let work = t.claim_one("w1", "add").await;
    assert_eq!((work.call_id(), work.delivery.request.params.as_str()), (call, "other"));
    assert!(is_accepted(&t.try_submit(new_call("b", "add").key("k")).await), "the key of the old call is free as well");
}

pub async fn a_resend_finds_its_call_even_when_the_function_was_forgotten(t: &mut Bench) {
    t.define("add").await;
    let work = t.submit_and_claim("w1", "add").await;
    t.answer(&work, ok("3")).await;
    assert!(sure(t.store().forget(&function("add")).await));
    let again = new_call(work.call_id().as_str(), "add");
    assert!(matches!(t.try_submit(again).await, Submitted::Existing { state: CallState::Completed, .. }));
    assert_eq!(t.try_submit(t.new_call("add")).await, Submitted::UnknownFunction);
}

pub async fn a_caller_that_will_not_wait_for_a_worker_is_told_that_there_is_none(t: &mut Bench) {
    t.define("add").await;
    let impatient = || t.new_call("add").or_fail_without_workers();
    assert_eq!(t.try_submit(impatient()).await, Submitted::NoWorkers);
    t.register("w1", &["add"]).await;
    t.register("w2", &["sub"]).await;
    assert!(is_accepted(&t.try_submit(impatient()).await));
    t.advance_s(30);
    sure(t.store().heartbeat(&crate::words::worker_id("w2")).await);
    let refused = impatient();
    assert_eq!(t.try_submit(refused.clone()).await, Submitted::NoWorkers, "the only worker of 'add' was silent for 30 s");
    assert_eq!(t.state(&refused.call_id).await, None);
    assert!(is_accepted(&t.try_submit(t.new_call("add")).await), "a patient caller is taken");
}

pub async fn a_resend_is_recognised_even_when_nobody_serves_the_function_any_more(t: &mut Bench) {
    t.register("w1", &["add"]).await;
    let call = t.new_call("add").or_fail_without_workers();
    t.submit_this(call.clone()).await;
    t.advance_s(30);
    assert!(matches!(t.try_submit(call).await, Submitted::Existing { .. }));
}

pub async fn scopes_do_not_mix(t: &mut Bench) {
    t.define("add").await;
    t.define("wf-7:add").await;
    let everyones = t.submit("add").await;
    let workflows = t.submit("wf-7:add").await;
    assert_eq!(t.try_submit(t.new_call("wf-8:add")).await, Submitted::UnknownFunction);
    let work = t.claim("w1", "wf-7:add", 10).await;
    assert_eq!(work.iter().map(crate::bench::Work::call_id).collect::<Vec<_>>(), [workflows]);
    assert_eq!(work[0].delivery.request.function, function("wf-7:add"));
    assert_eq!(t.claim_one("w1", "add").await.call_id(), everyones);
}

pub async fn payloads_come_back_byte_for_byte(t: &mut Bench) {
    t.define("echo").await;
    let large = format!("\"{}\"", "x".repeat(1024 * 1024 - 2));
    for text in ["", "null", " {\"b\" : 1e400,\r\n\t\"a\":-0, \"a\":123456789012345678901234567890} ", "\"заказ 🚢 \\u0000 '\"", &large]
    {
        let call = t.submit_this(t.new_call("echo").params(text).input_item(text)).await;
        let work = t.claim_one("w1", "echo").await;
        assert_eq!(work.delivery.request.params.as_bytes(), text.as_bytes());
        assert_eq!(work.delivery.request.input_item.as_ref().map(|item| item.as_bytes()), Some(text.as_bytes()));
        assert!(matches!(t.progress(&work, text).await, towpath_core::store::Renewal::Held { .. }));
        t.answer(&work, ok(text)).await;
        let view = t.view(&call).await.expect("its outcome is kept");
        assert_eq!(view.call.outcome, Some(Outcome::Ok(json(text))));
        assert_eq!(view.progress, Some((1, json(text))));
        assert_eq!(view.request.params, json(text));
    }
}

pub async fn names_of_any_script_keep_their_own_calls(t: &mut Bench) {
    let names = ["заказ", "🚢", "100% {a}/b", "a'b\"c;--", "scope ü:name ü", "A", "a", "a ", "é", "e\u{301}"];
    for name in names {
        t.define(name).await;
        t.submit_this(new_call(&format!("call of {name}"), name).key(name)).await;
    }
    for name in names {
        let work = t.claim(name.split(':').next().unwrap_or(name), name, 10).await;
        let found: Vec<_> = work.iter().map(crate::bench::Work::call_id).collect();
        assert_eq!(found, [call_id(&format!("call of {name}"))], "function '{name}'");
        t.answer(&work[0], ok("1")).await;
    }
}

pub async fn a_time_to_live_beyond_the_end_of_time_is_for_ever(t: &mut Bench) {
    t.define("add").await;
    let call = t.submit_this(t.new_call("add").timeout(Duration::MAX)).await;
    assert_eq!(t.call(&call).await.deadline, Timestamp::MAX);
    t.pass_s(100 * 365 * 24 * 3_600).await;
    assert_eq!(t.claim_one("w1", "add").await.call_id(), call);
}
