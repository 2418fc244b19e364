//! A checker that cannot fail is worthless: stores with one bug each, and the case and the random operations that must notice it.

mod flawed;
mod flawed_limits;
mod flawed_runs;
mod runs;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use towpath_conformance::backend::ModelBackend;
use towpath_conformance::differential::locks::{self, OldCallers};
use towpath_conformance::suite::{all_cases, all_cases_of_old_callers, run};
use towpath_conformance::{differential, limits_differential};

use flawed::{Flaw, FlawedBackend};

async fn red_cases(flaw: Option<Flaw>) -> BTreeSet<&'static str> {
    let backend = FlawedBackend(flaw);
    let mut red = BTreeSet::new();
    for case in all_cases().into_iter().chain(all_cases_of_old_callers()) {
        if AssertUnwindSafe(run(&backend, case.run)).catch_unwind().await.is_err() {
            red.insert(case.name);
        }
    }
    red
}

async fn check_noticed(flaw: Flaw, by_case: &str) {
    let red = red_cases(Some(flaw)).await;
    assert!(red.contains(by_case), "{flaw:?} was not noticed by {by_case}, only by {red:?}");
}

async fn check_noticed_by_random_operations(flaw: Flaw) {
    let explored = differential::explore(&FlawedBackend(Some(flaw)), 0..40, 300).await;
    let divergence = explored.expect_err("random operations did not notice the bug");
    let needed = divergence.shrunk.as_ref().map(|shrunk| shrunk.operations.len());
    assert!(needed.is_some_and(|needed| needed < 20), "{flaw:?} needs a few operations only:\n{divergence}");
}

async fn check_noticed_by_random_limits(flaw: Flaw) {
    let explored = limits_differential::check(&FlawedBackend(Some(flaw)), 4_000).await;
    let why = explored.expect_err("random limits did not notice the bug");
    assert!(why.contains("operations are enough") && why.lines().count() < 20, "{flaw:?} needs a few operations only:\n{why}");
}

async fn check_noticed_by_random_lock_operations(flaw: Flaw) {
    let explored = locks::explore(&FlawedBackend(Some(flaw)), OldCallers::Some, 0..40, 200).await;
    let divergence = explored.expect_err("random operations did not notice the bug");
    let needed = divergence.shrunk.as_ref().map(|shrunk| shrunk.operations.len());
    assert!(needed.is_some_and(|needed| needed < 15), "{flaw:?} needs a few operations only:\n{divergence}");
}

#[tokio::test(start_paused = true)]
async fn a_store_without_a_bug_turns_no_case_red() {
    assert_eq!(red_cases(None).await, BTreeSet::new());
    assert!(differential::explore(&FlawedBackend(None), 0..20, 300).await.is_ok());
    assert_eq!(limits_differential::check(&FlawedBackend(None), 12_000).await, Ok(()));
    assert!(locks::explore(&FlawedBackend(None), OldCallers::Some, 0..20, 200).await.is_ok());
}

#[tokio::test]
async fn operations_that_reach_little_are_said_to_prove_nothing() {
    let coverage = differential::explore(&ModelBackend, 0..1, 3).await.expect("the model agrees with itself");
    let missing = coverage.missing();
    assert!(missing.contains(&"Submit: accepted".to_owned()) && missing.contains(&"state: dead".to_owned()), "{missing:?}");
    let outcome = std::panic::catch_unwind(|| differential::check(&ModelBackend, 1, 3));
    assert!(outcome.is_err());
}

/// One test per bug: the case that is named after what broke, and the random operations where they can see it.
macro_rules! planted {
    ($($name:ident: $flaw:ident, $case:literal $(, $random:ident)?;)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                check_noticed(Flaw::$flaw, $case).await;
                $($random(Flaw::$flaw).await;)?
            }
        )*

        #[test]
        fn every_flaw_is_planted() {
            let planted: BTreeSet<_> = [$(Flaw::$flaw),*].map(|flaw| format!("{flaw:?}")).into();
            let all: BTreeSet<_> = Flaw::ALL.map(|flaw| format!("{flaw:?}")).into();
            assert_eq!(planted, all);
        }
    };
}

planted! {
    a_stale_answer_that_is_accepted_is_noticed:
        AcceptsStaleAnswers, "answer::a_stale_answer_is_refused_after_reclaim", check_noticed_by_random_operations;
    crashes_that_are_not_counted_are_noticed:
        CountsNoCrashes, "lease::a_call_that_outlives_too_many_workers_is_poisoned", check_noticed_by_random_operations;
    the_newest_call_delivered_first_is_noticed:
        DeliversNewestFirst, "claim::the_oldest_submit_is_delivered_first", check_noticed_by_random_operations;
    a_limit_on_concurrency_that_is_ignored_is_noticed:
        IgnoresMaxConcurrent, "limits::no_more_run_at_once_than_the_function_allows", check_noticed_by_random_operations;
    a_key_that_leads_to_another_functions_call_is_noticed:
        SharesKeysBetweenFunctions, "submit::a_key_belongs_to_its_function_alone", check_noticed_by_random_operations;
    a_repeated_answer_taken_for_a_new_one_is_noticed:
        TakesRepeatedAnswersForNew, "answer::a_repeated_answer_is_recognised_and_the_first_counts", check_noticed_by_random_operations;
    configuration_lost_in_a_restart_is_noticed:
        LosesConfigurationInRestart, "reopen::a_restart_keeps_functions_workers_and_configuration", check_noticed_by_random_operations;
    a_claim_that_does_not_wait_is_noticed:
        NeverWaitsForWork, "waiting::a_waiting_claim_wakes_when_a_call_is_submitted";
    work_claimed_for_nobody_and_kept_is_noticed:
        KeepsWorkOfDroppedClaims, "waiting::a_claim_dropped_before_it_took_its_call_gives_it_back";
    watchers_that_are_not_told_are_noticed:
        TellsNoWatcher, "watch::a_watcher_from_before_the_submit_hears_the_end", check_noticed_by_random_operations;
    timers_that_do_more_than_asked_are_noticed:
        IgnoresTheLimitOfTimers, "timers::no_more_happens_than_was_asked_for_earliest_first", check_noticed_by_random_operations;
    a_gone_call_that_is_shown_is_noticed:
        ShowsGoneCalls, "timers::an_outcome_is_gone_when_its_retention_is_over_although_nothing_fired", check_noticed_by_random_operations;
    a_retry_that_waits_behind_deadlines_is_noticed:
        MakesRetriesWaitBehindDeadlines, "timers::a_retry_does_not_wait_behind_many_deadlines", check_noticed_by_random_operations;
    a_page_that_repeats_a_call_is_noticed:
        RepeatsTheCursorsCall, "inspect::pages_neither_repeat_nor_skip", check_noticed_by_random_operations;
    a_silent_worker_that_counts_as_healthy_is_noticed:
        TakesSilenceForHealth, "registry::a_worker_is_healthy_for_thirty_seconds_after_it_was_heard", check_noticed_by_random_operations;
    a_payload_that_is_tidied_up_is_noticed:
        TrimsPayloads, "submit::payloads_come_back_byte_for_byte";
    a_running_call_said_to_be_cancelled_is_noticed:
        SaysCancelledTooSoon, "cancel::a_running_call_is_cancelled_when_its_worker_heeds_it", check_noticed_by_random_operations;
    a_configuration_overwritten_in_a_race_is_noticed:
        IgnoresTheVersionExpected, "registry::the_configuration_changes_only_from_the_version_expected", check_noticed_by_random_operations;
    a_microsecond_too_much_is_noticed:
        AddsAMicrosecond, "rate_limits::a_retry_is_exact_to_the_microsecond", check_noticed_by_random_limits;
    a_denied_check_that_counts_is_noticed:
        CountsWhereOneRuleDenies, "rate_limits::all_rules_allow_or_none_counts", check_noticed_by_random_limits;
    a_shadow_rule_that_denies_is_noticed:
        DeniesByShadowRules, "rate_limits::a_shadow_rule_counts_and_denies_nothing", check_noticed_by_random_limits;
    a_refund_that_is_forgotten_is_noticed:
        ForgetsRefunds, "rate_limits::a_refund_restores_what_was_left", check_noticed_by_random_limits;
    keys_that_count_together_are_noticed:
        MixesKeysOfARule, "rate_limits::scopes_rules_keys_and_algorithms_count_apart", check_noticed_by_random_limits;
    a_reset_that_does_nothing_is_noticed:
        ResetsNothing, "rate_limits::a_reset_makes_a_limit_as_good_as_new", check_noticed_by_random_limits;
    a_lapsed_counter_taken_for_free_is_noticed:
        TakesALapsedCounterForFree,
        "locks_old_callers::a_counter_that_a_failing_old_caller_cut_short_lets_nobody_of_ours_in_and_is_healed",
        check_noticed_by_random_lock_operations;
    a_queue_that_anyone_may_pass_is_noticed:
        LetsAnyonePassTheQueue, "locks_queue::a_caller_that_does_not_wait_never_passes_one_that_does", check_noticed_by_random_lock_operations;
    a_fence_that_does_not_rise_is_noticed:
        RaisesNoFence, "locks_acquire::a_fence_rises_with_every_grant", check_noticed_by_random_lock_operations;
    a_silent_holder_taken_for_live_is_noticed:
        TakesASilentHolderForLive,
        "locks_lease::a_dead_holder_is_followed_at_the_end_of_its_lease_and_not_before",
        check_noticed_by_random_lock_operations;
    a_queue_whose_weight_is_ignored_is_noticed:
        IgnoresTheWeightOfTheQueue, "permits::a_heavy_head_is_not_overtaken", check_noticed_by_random_lock_operations;
    waiters_that_are_not_told_are_noticed:
        TellsNoWaiter, "locks_turns::a_release_wakes_the_first_two_who_wait", check_noticed_by_random_lock_operations;
    a_release_that_deletes_without_identity_is_noticed:
        DeletesWithoutIdentity,
        "locks_old_callers::a_release_that_comes_late_does_not_touch_an_old_newcomer",
        check_noticed_by_random_lock_operations;
}
