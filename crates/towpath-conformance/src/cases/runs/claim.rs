//! The promises about who executes a run.

use towpath_core::run::{BlockCause, RunState, Then};
use towpath_core::store::{RunCommitted, RunRenewal, RunRequest, StartRun};

use crate::bench::{Bench, RUN_DELIVERIES_MAX};
use crate::words::{completes, done, event, run_id, seconds, start, waits_for};

pub async fn a_run_is_given_to_one_worker(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let execution = t.execute("w1").await;
    assert_eq!((&execution.run.run_id, t.run_state(&id).await), (&id, RunState::Running));
    assert!(t.claim_runs("w2", 10).await.is_empty());
}

pub async fn a_worker_gets_no_more_than_it_has_room_for_and_of_its_own_places_only(t: &mut Bench) {
    for number in 1..=3 {
        t.started(start("order", number)).await;
    }
    t.started(start("order@us-east", 4)).await;
    assert_eq!(t.claim_runs_of("w1", 2, &["order"]).await.len(), 2);
    assert_eq!(t.claim_runs_of("w1", 10, &["order"]).await.len(), 1);
    assert_eq!(t.claim_runs_of("w1", 10, &["order", "order@us-east"]).await.len(), 1);
}

pub async fn runs_are_claimed_in_order_and_those_that_were_begun_before_new_ones(t: &mut Bench) {
    for number in 1..=3 {
        t.started(start("order", number)).await;
    }
    let mut first = t.claim_runs("w1", 1).await.remove(0);
    assert_eq!(first.run.run_id, run_id("order", 1));
    let park = first.commit(Vec::new(), waits_for(&["paid"]));
    t.committed(&mut first, park).await;
    t.send(&run_id("order", 1), event("paid", "1")).await;
    let order: Vec<_> = t.claim_runs("w1", 10).await.into_iter().map(|execution| execution.run.run_id).collect();
    assert_eq!(order, [1, 2, 3].map(|number| run_id("order", number)), "the woken run comes first");
}

pub async fn a_backlog_of_new_runs_in_one_place_does_not_hold_up_a_woken_run_in_another(t: &mut Bench) {
    let id = t.started(start("shipping", 9)).await;
    let mut execution = t.execute("w1").await;
    let park = execution.commit(Vec::new(), waits_for(&["paid"]));
    t.committed(&mut execution, park).await;
    for number in 1..=5 {
        t.started(start("order", number)).await;
    }
    t.send(&id, event("paid", "1")).await;
    let claimed = t.claim_runs_of("w1", 1, &["order", "shipping"]).await;
    assert_eq!(claimed[0].run.run_id, id);
}

pub async fn every_eighth_claim_looks_at_new_runs_first(t: &mut Bench) {
    for number in 1..=9 {
        t.started(start("order", number)).await;
    }
    let mut begun = t.claim_runs("w1", 8).await; // the first claim
    for execution in &mut begun {
        let release = execution.commit(Vec::new(), Then::Release);
        t.committed(execution, release).await;
    }
    for _ in 2..8 {
        assert_ne!(t.claim_runs("w1", 1).await[0].run.run_id, run_id("order", 9));
    }
    assert_eq!(t.claim_runs("w1", 1).await[0].run.run_id, run_id("order", 9), "the eighth claim");
}

pub async fn the_run_of_a_silent_owner_is_taken_over_and_its_late_commit_is_refused(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let silent = t.execute("w1").await;
    t.advance_s(14);
    assert!(t.take_over_runs("w2").await.claimed.is_empty());
    t.advance_s(1);
    let mut execution = t.taken_over("w2").await;
    assert!(execution.run.epoch > silent.run.epoch);
    assert_eq!(t.renew_run(&silent).await, RunRenewal::Lost);
    let late = silent.commit(vec![done(1, r#""late""#)], completes());
    assert_eq!(t.put_commit(&silent, late).await, RunCommitted::Lost);
    let commit = execution.commit(vec![done(1, r#""once""#)], completes());
    t.committed(&mut execution, commit).await;
    assert_eq!(t.journal(&id).await, [r#"{"input":1}"#, r#""once""#]);
}

pub async fn a_worker_that_renews_is_not_taken_over(t: &mut Bench) {
    t.started(start("order", 1)).await;
    let execution = t.execute("w1").await;
    for _ in 0..4 {
        t.advance_s(10);
        assert!(matches!(t.renew_run(&execution).await, RunRenewal::Held { .. }));
        assert!(t.take_over_runs("w2").await.claimed.is_empty());
    }
}

pub async fn a_run_that_its_workers_do_not_survive_is_blocked_until_a_person_resumes_it(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    t.execute("w1").await;
    for _ in 0..RUN_DELIVERIES_MAX {
        t.advance_s(15);
        t.taken_over("w2").await;
    }
    t.advance_s(15);
    assert_eq!(t.take_over_runs("w2").await.poisoned, std::slice::from_ref(&id));
    let view = t.run(&id).await;
    assert_eq!((view.run.state, view.run.cause), (RunState::Blocked, Some(BlockCause::Poisoned)));
    t.ask_run(&id, RunRequest::Resume).await;
    assert_eq!(t.execute("w1").await.run.deliveries, 0);
}

pub async fn a_restart_keeps_claims_and_their_epochs(t: &mut Bench) {
    let id = t.started(start("order", 1)).await;
    let mut execution = t.execute("w1").await;
    t.reopen().await;
    assert!(t.claim_runs("w2", 10).await.is_empty());
    let commit = execution.commit(vec![done(1, "1")], completes());
    t.committed(&mut execution, commit).await;
    assert_eq!(t.run_state(&id).await, RunState::Completed);
}

pub async fn a_claim_that_waits_gets_the_run_that_comes_into_a_queue_of_its_places(t: &mut Bench) {
    let waits = t.start_claim_of_runs("w1", &["order", "order@us-east"]).await;
    let other = t.start_claim_of_runs("w2", &["shipping"]).await;
    t.started(start("billing", 1)).await;
    t.check_waits(&waits).await;
    let id = t.started(start("order@us-east", 2)).await;
    assert_eq!(waits.end().await, [id]);
    t.check_waits(&other).await;
    let mut execution = t.claim_runs_of("w3", 1, &["billing"]).await.remove(0);
    let release = execution.commit(Vec::new(), Then::Release);
    t.committed(&mut execution, release).await;
    t.check_waits(&other).await;
    let id = t.started(StartRun { delay: seconds(5), ..start("shipping", 3) }).await;
    t.check_waits(&other).await;
    t.advance_s(5);
    t.fire_runs().await;
    assert_eq!(other.end().await, [id], "a timer has made it ready");
}

pub async fn a_claim_that_waits_ends_empty_after_its_time(t: &mut Bench) {
    let waits = t.start_claim_of_runs("w1", &["order"]).await;
    t.advance_s(59);
    t.check_waits(&waits).await;
    t.advance_s(1);
    assert!(waits.end().await.is_empty());
}

pub async fn a_restart_keeps_the_order_of_a_queue(t: &mut Bench) {
    for number in 1..=3 {
        t.started(start("order", number)).await;
    }
    t.reopen().await;
    t.started(start("order", 4)).await;
    let order: Vec<_> = t.claim_runs("w1", 10).await.into_iter().map(|execution| execution.run.run_id).collect();
    assert_eq!(order, [1, 2, 3, 4].map(|number| run_id("order", number)), "the clock has not moved, and yet the new run comes last");
}

pub async fn the_claim_that_ended_first_is_taken_over_first_whatever_its_place(t: &mut Bench) {
    for (number, place) in (1..).zip(["shipping", "order@us-east", "order"]) {
        t.started(start(place, number)).await;
        t.execute("w1").await;
        t.advance_s(1);
    }
    t.advance_s(15);
    let taken = t.take_over_runs("w2").await.claimed.into_iter().map(|claimed| claimed.run.run_id);
    assert_eq!(taken.collect::<Vec<_>>(), [run_id("shipping", 1), run_id("order@us-east", 2), run_id("order", 3)]);
}
