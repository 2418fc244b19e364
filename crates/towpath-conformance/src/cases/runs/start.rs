//! The promises about starting a run.

use towpath_core::run::RunState;
use towpath_core::store::{EventSent, NewEvent, OnConflict, Reuse, StartRun, Started};

use crate::bench::Bench;
use crate::words::{RUN_RETAIN, StartWords, completes, done, event, reference, run_id, seconds, start};

pub async fn a_run_is_kept_as_it_was_started(t: &mut Bench) {
    let id = t.started(start("order@us-east", 1).known_as("o-1")).await;
    let view = t.run(&id).await;
    assert_eq!((view.run.state, view.run.place.stream().as_str()), (RunState::Ready, "workflow/order/1.0.0/us-east"));
    assert_eq!((view.reference, view.outcome), (Some(reference("o-1")), None));
    assert_eq!(t.journal(&id).await, [r#"{"input":1}"#]);
}

pub async fn a_resend_of_the_same_start_is_the_same_run(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    assert_eq!(t.start_run(start("order", 1)).await, Started::Existing { run_id: id.clone(), state: RunState::Ready, event: None });
    assert_eq!(t.start_run(start("order", 1).with_input("2")).await, Started::Conflict { run_id: id });
}

pub async fn the_same_reference_is_the_same_run_over_shards(t: &mut Bench) {
    let id = t.started(start("order", 1).known_as("o-1")).await;
    let existing = Started::Existing { run_id: id.clone(), state: RunState::Ready, event: None };
    assert_eq!(t.start_run(start("order@us-east", 2).known_as("o-1")).await, existing);
    assert_eq!(t.start_run(start("order", 2).known_as("o-1").with_input("2")).await, Started::Conflict { run_id: id.clone() });
    let lenient = StartRun { on_conflict: OnConflict::ReturnExisting, ..start("order", 2).known_as("o-1").with_input("2") };
    assert_eq!(t.start_run(lenient).await, existing);
    t.started(start("shipping", 3).known_as("o-1")).await; // a reference belongs to its workflow
}

pub async fn a_reference_is_free_when_its_run_is_gone_or_when_a_closed_one_may_be_replaced(t: &mut Bench) {
    let first = t.started(start("order", 1).known_as("o-1")).await;
    let mut execution = t.execute("w1").await;
    let commit = execution.commit(vec![done(1, "1")], completes());
    t.committed(&mut execution, commit).await;
    assert!(matches!(t.start_run(start("order", 2).known_as("o-1")).await, Started::Existing { run_id, .. } if run_id == first));
    let again = StartRun { reuse: Reuse::AfterClosed, ..start("order", 3).known_as("o-1") };
    let third = t.started(again.clone()).await;
    let after = StartRun { run_id: run_id("order", 4), ..again };
    assert!(matches!(t.start_run(after).await, Started::Existing { run_id, .. } if run_id == third), "the new one is open");
    t.terminate_run(&third).await;
    t.advance(RUN_RETAIN);
    t.started(start("order", 5).known_as("o-1")).await;
}

pub async fn a_delayed_run_starts_at_its_time(t: &mut Bench) {
    let id = t.started(StartRun { delay: seconds(10), ..start("order", 1) }).await;
    assert_eq!(t.run_state(&id).await, RunState::Delayed);
    t.advance_s(9);
    assert_eq!((t.fire_runs().await, t.claim_runs("w1", 1).await.len()), (0, 0));
    t.advance_s(1);
    assert_eq!((t.fire_runs().await, t.claim_runs("w1", 1).await.len()), (1, 1));
}

pub async fn a_start_with_an_event_sends_it_to_the_run_that_has_the_reference(t: &mut Bench) {
    let paid = || NewEvent { reference: Some(reference("click")), ..event("paid", "1") };
    t.started(start("order", 1).known_as("o-1").with_event(paid())).await;
    let again = t.start_run(start("order", 2).known_as("o-1").with_event(paid())).await;
    let Started::Existing { event: Some(EventSent::Duplicate { number: 1 }), .. } = again else { panic!("{again:?}") };
    let another = t.start_run(start("order", 2).known_as("o-1").with_input("2").with_event(event("paid", "2"))).await;
    let Started::Existing { event: Some(EventSent::Accepted { number: 2 }), .. } = another else { panic!("{another:?}") };
    assert_eq!(t.execute("w1").await.facts.len(), 2);
}

pub async fn a_resend_of_a_start_with_an_event_brings_it_once(t: &mut Bench) {
    let with_event = || start("order", 1).with_event(event("paid", "1"));
    t.started(with_event()).await;
    let again = t.start_run(with_event()).await;
    assert!(matches!(again, Started::Existing { event: Some(EventSent::Duplicate { number: 1 }), .. }), "{again:?}");
}

pub async fn a_run_past_its_retention_does_not_exist(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    t.terminate_run(&id).await;
    t.advance(RUN_RETAIN - seconds(1));
    assert_eq!(t.run_state(&id).await, RunState::Terminated);
    t.advance_s(1);
    assert_eq!(t.runs().run(&id).await, Ok(None));
    assert_eq!(t.send(&id, event("paid", "1")).await, EventSent::NotFound);
}
