//! How much a function takes: its backlog, and what runs at once.

use towpath_core::call::CallState;
use towpath_core::store::Submitted;
use towpath_core::worker::Offer;

use crate::bench::Bench;
use crate::words::{definition, failed, offer, ok};

pub async fn a_full_backlog_refuses_the_next_call(t: &mut Bench) {
    t.define_with("add", |f| f.limits.max_backlog = Some(2)).await;
    t.submit("add").await;
    t.submit("add").await;
    let refused = t.new_call("add");
    assert_eq!(t.try_submit(refused.clone()).await, Submitted::Overloaded { backlog: 2, limit: 2 });
    assert_eq!(t.state(&refused.call_id).await, None);
    t.claim_one("w1", "add").await;
    t.submit_this(refused).await;
}

pub async fn calls_that_wait_for_their_next_attempt_are_backlog(t: &mut Bench) {
    t.define_with("add", |f| f.limits.max_backlog = Some(1)).await;
    let work = t.submit_and_claim("w1", "add").await;
    t.answer(&work, failed("busy")).await;
    t.check_state(&work.call_id(), CallState::Delayed).await;
    assert_eq!(t.try_submit(t.new_call("add")).await, Submitted::Overloaded { backlog: 1, limit: 1 });
}

pub async fn a_function_that_takes_no_backlog_refuses_every_call(t: &mut Bench) {
    t.define_with("add", |f| f.limits.max_backlog = Some(0)).await;
    assert_eq!(t.try_submit(t.new_call("add")).await, Submitted::Overloaded { backlog: 0, limit: 0 });
}

pub async fn a_resend_is_recognised_however_full_the_backlog_is(t: &mut Bench) {
    t.define_with("add", |f| f.limits.max_backlog = Some(1)).await;
    let call = t.new_call("add");
    t.submit_this(call.clone()).await;
    assert!(matches!(t.try_submit(call).await, Submitted::Existing { .. }));
}

pub async fn the_backlog_of_one_function_is_not_anothers(t: &mut Bench) {
    for name in ["add", "wf-7:add", "sub"] {
        t.define_with(name, |f| f.limits.max_backlog = Some(1)).await;
        t.submit(name).await;
    }
}

pub async fn no_more_run_at_once_than_the_function_allows(t: &mut Bench) {
    t.define_with("add", |f| f.limits.max_concurrent = Some(2)).await;
    for _ in 0..4 {
        t.submit("add").await;
    }
    let first = t.claim("w1", "add", 1).await.remove(0);
    assert_eq!(t.claim("w2", "add", 10).await.len(), 1, "two may run over all workers");
    t.check_nothing_to_claim("w1", "add").await;
    t.answer(&first, ok("1")).await;
    assert_eq!(t.claim("w3", "add", 10).await.len(), 1, "an end makes room for one");
}

pub async fn a_parked_call_does_not_count_as_running(t: &mut Bench) {
    t.define_with("add", |f| f.limits.max_concurrent = Some(1)).await;
    t.submit("add").await;
    t.submit("add").await;
    t.submit("add").await;
    let outer = t.claim_one("w1", "add").await;
    t.check_nothing_to_claim("w1", "add").await;
    let _held = t.park(&outer, true).await;
    let inner = t.claim_one("w1", "add").await;
    t.check_nothing_to_claim("w1", "add").await;
    t.answer(&inner, ok("1")).await;
    let _held = t.park(&outer, false).await;
    t.check_nothing_to_claim("w1", "add").await;
    assert_eq!(t.known_function("add").await.counts.parked, 0);
}

pub async fn a_worker_holds_no_more_than_it_offered(t: &mut Bench) {
    t.register_with("w1", vec![Offer { concurrency: Some(2), ..offer("add") }, offer("sub")]).await;
    t.register_with("w2", vec![offer("add")]).await;
    for _ in 0..6 {
        t.submit("add").await;
    }
    t.submit("sub").await;
    let held = t.claim("w1", "add", 10).await;
    assert_eq!(held.len(), 2);
    t.check_nothing_to_claim("w1", "add").await;
    assert_eq!(t.claim("w1", "sub", 10).await.len(), 1, "an offer caps its own function only");
    let _held = t.park(&held[0], true).await;
    assert_eq!(t.claim("w1", "add", 10).await.len(), 1, "a parked call gives its permit back");
    assert_eq!(t.claim("w2", "add", 10).await.len(), 3, "another worker has its own offer");
}

pub async fn an_offer_of_none_at_all_gets_nothing(t: &mut Bench) {
    t.register_with("w1", vec![Offer { concurrency: Some(0), ..offer("add") }]).await;
    t.submit("add").await;
    t.check_nothing_to_claim("w1", "add").await;
}

pub async fn the_tighter_of_offer_and_limit_counts(t: &mut Bench) {
    let mut limited = definition("add");
    limited.limits.max_concurrent = Some(3);
    t.register_with("w1", vec![Offer { definition: limited.clone(), concurrency: Some(2) }]).await;
    t.register_with("w2", vec![Offer { definition: limited, concurrency: Some(2) }]).await;
    for _ in 0..6 {
        t.submit("add").await;
    }
    assert_eq!(t.claim("w1", "add", 10).await.len(), 2, "its offer");
    assert_eq!(t.claim("w2", "add", 10).await.len(), 1, "what the function's limit leaves");
}

pub async fn a_limit_that_is_lowered_takes_nothing_back(t: &mut Bench) {
    t.define("add").await;
    for _ in 0..3 {
        t.submit("add").await;
    }
    let held = t.claim("w1", "add", 2).await;
    t.define_with("add", |f| f.limits.max_concurrent = Some(1)).await;
    t.check_nothing_to_claim("w1", "add").await;
    t.answer(&held[0], ok("1")).await;
    t.check_nothing_to_claim("w1", "add").await;
    t.answer(&held[1], ok("1")).await;
    t.claim_one("w1", "add").await;
}
