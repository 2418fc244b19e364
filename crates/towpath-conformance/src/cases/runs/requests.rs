//! The promises about what people ask of a run.

use std::time::Duration;

use towpath_core::run::{FactKind, RunEnd, RunState, Then};
use towpath_core::store::{RunRenewal, RunRequest, RunRequested};

use crate::bench::Bench;
use crate::words::{done, event, json, run_id, start, waits_for};

pub async fn a_cancel_reaches_the_code_of_a_run_that_has_begun(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    let park = execution.commit(Vec::new(), waits_for(&["paid"]));
    t.committed(&mut execution, park).await;
    assert_eq!(t.cancel_run(&id).await, RunRequested::Done(RunState::Ready));
    assert_eq!(t.cancel_run(&id).await, RunRequested::Done(RunState::Ready));
    let mut execution = t.execute("w1").await;
    assert!(matches!(execution.facts[..], [ref fact] if matches!(fact.kind, FactKind::Cancel { .. })), "{:?}", execution.facts);
    let close = execution.commit(vec![done(1, r#""cleaned up""#)], Then::Close(RunEnd::Cancelled));
    t.committed(&mut execution, close).await;
    let view = t.run(&id).await;
    assert_eq!((view.run.state, view.outcome), (RunState::Cancelled, Some(json(r#""cleaned up""#))));
    assert_eq!(t.cancel_run(&id).await, RunRequested::Closed(RunState::Cancelled));
}

pub async fn a_run_that_was_never_claimed_is_cancelled_at_once(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    assert_eq!(t.cancel_run(&id).await, RunRequested::Done(RunState::Cancelled));
    assert!(t.claim_runs("w1", 10).await.is_empty());
    assert!(t.run(&id).await.outcome.is_some(), "it says why");
}

pub async fn a_terminated_run_ends_at_once_and_its_owner_hears_that_it_is_lost(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let execution = t.execute("w1").await;
    assert_eq!(t.terminate_run(&id).await, RunRequested::Done(RunState::Terminated));
    assert_eq!(t.renew_run(&execution).await, RunRenewal::Lost);
    assert_eq!(t.terminate_run(&id).await, RunRequested::Closed(RunState::Terminated));
    assert_eq!(t.terminate_run(&run_id("order", 9)).await, RunRequested::NotFound);
}

pub async fn a_paused_run_is_given_to_no_worker_and_loses_nothing(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    t.ask_run(&id, RunRequest::Pause).await;
    assert!(t.claim_runs("w1", 10).await.is_empty());
    t.send(&id, event("paid", "1")).await;
    t.reopen().await;
    assert!(t.claim_runs("w1", 10).await.is_empty());
    assert_eq!(t.ask_run(&id, RunRequest::Resume).await, RunRequested::Done(RunState::Ready));
    assert_eq!(t.execute("w1").await.facts.len(), 1);
}

pub async fn the_owner_of_a_paused_run_is_told_at_its_next_renewal(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let execution = t.execute("w1").await;
    t.ask_run(&id, RunRequest::Pause).await;
    t.cancel_run(&id).await;
    let renewal = t.renew_run(&execution).await;
    assert!(matches!(renewal, RunRenewal::Held { paused: true, cancel_requested: true, facts: 1, .. }), "{renewal:?}");
}

pub async fn the_end_of_a_run_is_heard_by_those_who_wait_for_it(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let (runs, waited) = (t.runs(), id.clone());
    let waits = t.start(|_store| async move { runs.run_closed(&waited, Duration::from_secs(60)).await }).await;
    t.check_waits(&waits).await;
    t.terminate_run(&id).await;
    assert_eq!(waits.end().await, Ok(()));
    assert_eq!(t.runs().run_closed(&id, Duration::from_secs(60)).await, Ok(()), "and at once by those who come later");
}
