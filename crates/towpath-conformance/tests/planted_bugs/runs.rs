//! Stores of runs with one bug each, the case that is named after what broke, and the random operations where they can see it.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use towpath_conformance::runs_differential;
use towpath_conformance::suite::{all_cases_of_runs, run};

use crate::flawed_runs::{FlawedRunsBackend, RunFlaw};

async fn red_cases(flaw: Option<RunFlaw>) -> BTreeSet<&'static str> {
    let backend = FlawedRunsBackend(flaw);
    let mut red = BTreeSet::new();
    for case in all_cases_of_runs() {
        if AssertUnwindSafe(run(&backend, case.run)).catch_unwind().await.is_err() {
            red.insert(case.name);
        }
    }
    red
}

async fn check_noticed(flaw: RunFlaw, by_case: &str) {
    let red = red_cases(Some(flaw)).await;
    assert!(red.contains(by_case), "{flaw:?} was not noticed by {by_case}, only by {red:?}");
}

async fn check_noticed_by_random_operations(flaw: RunFlaw) {
    let explored = runs_differential::check(&FlawedRunsBackend(Some(flaw)), 20, 300).await;
    let why = explored.expect_err("random operations did not notice the bug");
    assert!(why.contains("operations are enough"), "{flaw:?}: {why}");
    assert!(why.lines().filter(|line| line.contains("Op {")).count() < 20, "{flaw:?} needs a few operations only:\n{why}");
}

#[tokio::test(start_paused = true)]
async fn a_store_of_runs_without_a_bug_turns_no_case_red() {
    assert_eq!(red_cases(None).await, BTreeSet::new());
    assert_eq!(runs_differential::check(&FlawedRunsBackend(None), 20, 300).await, Ok(()));
}

macro_rules! planted {
    ($($name:ident: $flaw:ident, $case:literal $(, $random:ident)?;)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                check_noticed(RunFlaw::$flaw, $case).await;
                $($random(RunFlaw::$flaw).await;)?
            }
        )*

        #[test]
        fn every_flaw_of_runs_is_planted() {
            let planted: BTreeSet<_> = [$(RunFlaw::$flaw),*].map(|flaw| format!("{flaw:?}")).into();
            let all: BTreeSet<_> = RunFlaw::ALL.map(|flaw| format!("{flaw:?}")).into();
            assert_eq!(planted, all);
        }
    };
}

planted! {
    a_commit_of_an_old_epoch_that_is_taken_is_noticed:
        IgnoresTheEpoch,
        "runs_claim::the_run_of_a_silent_owner_is_taken_over_and_its_late_commit_is_refused",
        check_noticed_by_random_operations;
    a_commit_on_another_revision_that_is_taken_is_noticed:
        IgnoresTheRevision, "runs_commit::an_owner_that_is_ahead_of_the_store_is_told_so", check_noticed_by_random_operations;
    a_repeated_commit_that_is_written_twice_is_noticed:
        DoublesARepeatedCommit,
        "runs_commit::a_commit_that_is_repeated_gets_the_first_answer_and_writes_nothing",
        check_noticed_by_random_operations;
    a_wait_set_that_is_forgotten_is_noticed:
        ForgetsWhatARunWaitsFor, "runs_events::an_event_is_received_at_every_moment_of_a_park", check_noticed_by_random_operations;
    a_run_that_any_event_wakes_is_noticed:
        WakesForAnyEvent, "runs_events::an_event_that_a_run_does_not_wait_for_wakes_nothing", check_noticed_by_random_operations;
    an_event_lost_at_parking_is_noticed:
        LosesAnEventAtParking, "runs_events::an_event_is_received_at_every_moment_of_a_park", check_noticed_by_random_operations;
    an_event_that_is_taken_twice_is_noticed:
        TakesAnEventTwice, "runs_events::events_are_kept_in_order_until_they_are_consumed", check_noticed_by_random_operations;
    an_event_whose_reference_is_forgotten_is_noticed:
        ForgetsReferencesOfEvents, "runs_events::the_same_reference_is_the_same_event_for_a_day", check_noticed_by_random_operations;
    an_abandoned_timer_that_fires_is_noticed:
        FiresAbandonedTimers, "runs_timers::a_timer_that_was_disarmed_does_not_fire", check_noticed_by_random_operations;
    a_delayed_run_that_starts_at_once_is_noticed:
        StartsDelayedRunsAtOnce, "runs_start::a_delayed_run_starts_at_its_time", check_noticed_by_random_operations;
    posts_that_are_dropped_are_noticed:
        DropsPosts,
        "runs_children::children_start_with_the_commit_and_their_ends_wake_the_parent_together",
        check_noticed_by_random_operations;
    claims_that_are_not_renewed_are_noticed:
        RenewsNothing, "runs_claim::a_worker_that_renews_is_not_taken_over", check_noticed_by_random_operations;
    a_pause_that_does_nothing_is_noticed:
        PausesNothing, "runs_requests::a_paused_run_is_given_to_no_worker_and_loses_nothing", check_noticed_by_random_operations;
    owners_that_are_not_told_are_noticed:
        TellsNoOwner, "runs_owners::an_owner_hears_of_all_that_comes_for_its_run";
    a_page_that_repeats_a_run_is_noticed:
        RepeatsTheCursorsRun,
        "runs_lists::a_list_has_the_runs_that_were_created_last_first_page_by_page",
        check_noticed_by_random_operations;
    a_filter_that_is_ignored_is_noticed:
        IgnoresTheCause, "runs_lists::a_list_has_exactly_what_its_filter_means", check_noticed_by_random_operations;
    a_run_counted_in_a_wrong_state_is_noticed:
        CountsRunningRunsAsReady,
        "runs_lists::places_are_counted_by_state_and_say_since_when_a_run_waits",
        check_noticed_by_random_operations;
}
