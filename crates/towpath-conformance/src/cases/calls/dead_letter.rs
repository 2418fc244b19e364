//! Dead letters: kept until somebody deals with them.

use towpath_core::call::{Call, CallState};
use towpath_core::store::{Forgotten, Replayed, Retention, Submitted};

use crate::bench::{Bench, sure};
use crate::words::{SubmitWords, call_id, function, new_call, ok, seconds};

const DECADE_S: u64 = 10 * 365 * 24 * 3_600;

async fn define_hopeless(t: &Bench) {
    t.define_with("add", |f| f.retry.max_attempts = 1).await;
}

async fn replay(t: &Bench, dead: &towpath_core::names::CallId, as_id: &str) -> Replayed {
    sure(t.store().replay_dead(dead, call_id(as_id)).await)
}

pub async fn a_dead_letter_is_kept_until_somebody_deals_with_it(t: &mut Bench) {
    define_hopeless(t).await;
    let dead = t.dead_letter(t.new_call("add").retain(seconds(1))).await;
    let before = t.view(&dead).await;
    let fired = t.pass_s(DECADE_S).await;
    assert_eq!((fired.total(), fired.next_due), (0, None));
    assert_eq!(t.view(&dead).await, before);
    assert_eq!(t.known_function("add").await.counts.dead, 1);
}

pub async fn a_replay_is_a_new_call_with_the_same_request(t: &mut Bench) {
    define_hopeless(t).await;
    let mut call = t.new_call("add").params("[1]").input_item("2").timeout(seconds(50)).retain(seconds(70));
    call.request.depth = 4;
    call.request.parent = Some(call_id("parent"));
    call.request.traceparent = Some("00-1-2-01".to_owned());
    let request = call.request.clone();
    t.advance_s(3);
    let dead = t.dead_letter(call).await;
    let letter = t.call(&dead).await;
    t.advance_s(1_000);
    assert_eq!(replay(t, &dead, "again").await, Replayed::Submitted);

    let again = t.view(&call_id("again")).await.expect("the replay is there");
    assert_eq!(again.call, Call::submitted(call_id("again"), t.now(), seconds(50), seconds(70)), "as fresh as a first submit");
    assert_eq!(again.request, request);
    let settled = t.call(&dead).await;
    let expected = Call { state: CallState::Settled, replayed_as: Some(call_id("again")), ended_at: Some(t.now()), ..letter };
    assert_eq!(settled, expected);
    assert_eq!(t.known_function("add").await.counts.dead, 0);
    t.answer(&t.claim_one("w1", "add").await, ok("1")).await;
    t.check_state(&call_id("again"), CallState::Completed).await;
}

pub async fn a_replay_of_a_poisoned_call_forgets_its_crashes(t: &mut Bench) {
    t.define_with("add", |f| f.retry.max_deliveries = 1).await;
    let work = t.submit_and_claim("w1", "add").await;
    t.pass_s(30).await;
    t.check_nothing_to_claim("w1", "add").await;
    t.check_state(&work.call_id(), CallState::Dead).await;
    assert_eq!(replay(t, &work.call_id(), "again").await, Replayed::Submitted);
    let again = t.claim_one("w1", "add").await;
    assert_eq!((again.call_id(), again.delivery.id.number), (call_id("again"), 1));
}

pub async fn a_dead_letter_is_replayed_once(t: &mut Bench) {
    define_hopeless(t).await;
    let dead = t.dead_letter(t.new_call("add")).await;
    assert_eq!(replay(t, &dead, "again").await, Replayed::Submitted);
    assert_eq!(replay(t, &dead, "and again").await, Replayed::NotDead);
    assert_eq!(t.state(&call_id("and again")).await, None);
}

pub async fn a_replay_under_an_id_that_is_taken_changes_nothing(t: &mut Bench) {
    define_hopeless(t).await;
    let dead = t.dead_letter(t.new_call("add")).await;
    let taken = t.submit_this(new_call("taken", "add").params("[1]")).await;
    let before = (t.view(&dead).await, t.view(&taken).await);
    assert_eq!(replay(t, &dead, "taken").await, Replayed::NotDead);
    assert_eq!((t.view(&dead).await, t.view(&taken).await), before);
}

pub async fn a_replay_goes_behind_all_that_wait(t: &mut Bench) {
    define_hopeless(t).await;
    let dead = t.dead_letter(t.new_call("add")).await;
    let waiting = t.submit("add").await;
    assert_eq!(replay(t, &dead, "again").await, Replayed::Submitted);
    let order: Vec<_> = t.claim("w1", "add", 2).await.iter().map(crate::bench::Work::call_id).collect();
    assert_eq!(order, [waiting, call_id("again")]);
}

pub async fn a_replay_takes_the_key_along(t: &mut Bench) {
    define_hopeless(t).await;
    let dead = t.dead_letter(t.new_call("add").key("k").retain(seconds(10))).await;
    let reply = t.try_submit(new_call("early", "add").key("k")).await;
    assert!(matches!(&reply, Submitted::Existing { call_id, state: CallState::Dead, .. } if *call_id == dead), "{reply:?}");
    assert_eq!(replay(t, &dead, "again").await, Replayed::Submitted);
    let leads_to_replay = |reply: &Submitted| matches!(reply, Submitted::Existing { call_id: found, .. } if *found == call_id("again"));
    let reply = t.try_submit(new_call("late", "add").key("k")).await;
    assert!(leads_to_replay(&reply), "{reply:?}");

    t.advance_s(10);
    assert_eq!(t.state(&dead).await, None, "the settled letter is gone");
    let reply = t.try_submit(new_call("later", "add").key("k")).await;
    assert!(leads_to_replay(&reply), "the key stays with the replay: {reply:?}");
}

pub async fn a_replay_is_taken_however_full_the_backlog_is(t: &mut Bench) {
    let tight = |f: &mut towpath_core::worker::FunctionDefinition| (f.retry.max_attempts, f.limits.max_backlog) = (1, Some(1));
    t.define_with("add", tight).await;
    let dead = t.dead_letter(t.new_call("add")).await;
    t.submit("add").await;
    assert_eq!(replay(t, &dead, "again").await, Replayed::Submitted);
    assert_eq!(t.try_submit(t.new_call("add")).await, Submitted::Overloaded { backlog: 2, limit: 1 });
}

pub async fn a_dropped_dead_letter_is_kept_for_its_retention_from_then_on(t: &mut Bench) {
    define_hopeless(t).await;
    let dead = t.dead_letter(t.new_call("add").key("k").retain(seconds(10))).await;
    let letter = t.call(&dead).await;
    t.advance_s(1_000);
    assert!(sure(t.store().drop_dead(&dead).await));
    assert_eq!(t.call(&dead).await, Call { state: CallState::Settled, ended_at: Some(t.now()), ..letter });
    assert!(!sure(t.store().drop_dead(&dead).await), "it is dealt with");
    assert_eq!(replay(t, &dead, "again").await, Replayed::NotDead);
    t.advance_ms(9_999);
    t.check_state(&dead, CallState::Settled).await;
    t.advance_ms(1);
    assert_eq!(t.state(&dead).await, None);
    assert!(matches!(t.try_submit(new_call("new", "add").key("k")).await, Submitted::Accepted { .. }));
}

pub async fn what_is_not_dead_is_neither_replayed_nor_dropped(t: &mut Bench) {
    t.define("add").await;
    let running = t.submit_and_claim("w1", "add").await.call_id();
    let queued = t.submit("add").await;
    for call in [running, queued, call_id("never was")] {
        let before = t.view(&call).await;
        assert_eq!(replay(t, &call, "again").await, Replayed::NotDead);
        assert!(!sure(t.store().drop_dead(&call).await));
        assert_eq!(t.view(&call).await, before);
    }
    assert_eq!(t.state(&call_id("again")).await, None);
}

pub async fn a_function_with_a_dead_letter_cannot_be_forgotten(t: &mut Bench) {
    define_hopeless(t).await;
    let dead = t.dead_letter(t.new_call("add")).await;
    assert!(!sure(t.store().forget(&function("add")).await));
    assert!(sure(t.store().drop_dead(&dead).await));
    assert!(sure(t.store().forget(&function("add")).await));
}

/// Dead letters are kept for so long.
fn keep_s(length_s: u64) -> Retention {
    Retention { dead_letters: Some(seconds(length_s)), ..Retention::FOREVER }
}

pub async fn a_dead_letter_past_its_retention_is_dropped_and_a_younger_one_stays(t: &mut Bench) {
    define_hopeless(t).await;
    let old = t.dead_letter(t.new_call("add").key("k").retain(seconds(10))).await;
    let letter = t.call(&old).await;
    t.advance_s(1);
    let younger = t.dead_letter(t.new_call("add")).await;
    t.advance_s(98);
    assert_eq!(sure(t.store().forget_old(&keep_s(100), 10).await), Forgotten::default(), "a second is left");
    t.advance_s(1);
    let forgotten = sure(t.store().forget_old(&keep_s(100), 10).await);
    assert_eq!(forgotten, Forgotten { dead_letters: vec![old.clone()], ..Forgotten::default() });
    assert_eq!(t.call(&old).await, Call { state: CallState::Settled, ended_at: Some(t.now()), ..letter }, "as if a person had dropped it");
    t.check_state(&younger, CallState::Dead).await;
    assert_eq!(t.known_function("add").await.counts.dead, 1);
    assert_eq!(sure(t.store().forget_old(&keep_s(100), 10).await), Forgotten::default(), "once");
    t.advance_s(10);
    assert_eq!(t.state(&old).await, None, "and it is gone when its own retention is over");
    assert!(matches!(t.try_submit(new_call("new", "add").key("k")).await, Submitted::Accepted { .. }));
}

pub async fn without_a_bound_no_dead_letter_is_dropped(t: &mut Bench) {
    define_hopeless(t).await;
    let dead = t.dead_letter(t.new_call("add")).await;
    t.advance_s(DECADE_S);
    assert_eq!(sure(t.store().forget_old(&Retention::FOREVER, 10).await), Forgotten::default());
    t.check_state(&dead, CallState::Dead).await;
}

pub async fn old_dead_letters_are_dropped_a_few_at_a_time(t: &mut Bench) {
    define_hopeless(t).await;
    let mut dead = Vec::new();
    for _ in 0..5 {
        dead.push(t.dead_letter(t.new_call("add")).await);
        t.advance_s(1);
    }
    t.advance_s(100);
    let mut dropped = Vec::new();
    for count in [2, 2, 1, 0] {
        let forgotten = sure(t.store().forget_old(&keep_s(100), 2).await);
        assert_eq!((forgotten.dead_letters.len(), forgotten.has_more(2)), (count, count == 2), "after {dropped:?} of {dead:?}");
        dropped.extend(forgotten.dead_letters);
    }
    assert_eq!(dropped, dead, "the oldest first");
}
