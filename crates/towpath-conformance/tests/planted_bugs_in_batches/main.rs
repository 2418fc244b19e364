//! A checker that cannot fail is worthless: batches with one bug each, and the case, the random operations and the histories that must
//! notice it.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod flawed;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use towpath_conformance::differential::batches;
use towpath_conformance::histories;
use towpath_conformance::suite::{all_cases_of_batches, run};

use flawed::{Flaw, FlawedBackend};

async fn red_cases(flaw: Option<Flaw>) -> BTreeSet<&'static str> {
    let backend = FlawedBackend(flaw);
    let mut red = BTreeSet::new();
    for case in all_cases_of_batches() {
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
    let explored = batches::explore(&FlawedBackend(Some(flaw)), 0..40, 200).await;
    let divergence = explored.expect_err("random operations did not notice the bug");
    let needed = divergence.shrunk.as_ref().map(|shrunk| shrunk.operations.len());
    assert!(needed.is_some_and(|needed| needed < 20), "{flaw:?} needs a few operations only:\n{divergence}");
}

async fn check_noticed_by_histories(flaw: Flaw) {
    let backend = FlawedBackend(Some(flaw));
    let outcome = AssertUnwindSafe(histories::check_batches(&backend, 0..10, 700)).catch_unwind().await;
    assert!(outcome.is_err(), "no history noticed {flaw:?}");
}

#[tokio::test(start_paused = true)]
async fn batches_without_a_bug_turn_nothing_red() {
    assert_eq!(red_cases(None).await, BTreeSet::new());
    assert!(batches::explore(&FlawedBackend(None), 0..20, 200).await.is_ok());
    histories::check_batches(&FlawedBackend(None), 0..5, 700).await;
}

macro_rules! planted {
    ($($name:ident: $flaw:ident, $case:literal $(, $other:ident)*;)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                check_noticed(Flaw::$flaw, $case).await;
                $($other(Flaw::$flaw).await;)*
            }
        )*
    };
}

planted! {
    a_message_that_is_taken_twice_is_noticed:
        RemembersNoMessageIds, "batches_ingest::a_message_id_is_taken_once_until_its_time_is_over",
        check_noticed_by_random_operations, check_noticed_by_histories;
    an_element_that_is_taken_twice_is_noticed:
        RemembersNoSources, "batches_ingest::an_element_of_a_list_is_taken_once_for_seven_days",
        check_noticed_by_random_operations, check_noticed_by_histories;
    a_token_that_is_ignored_is_noticed:
        IgnoresTheToken, "batches_finish::only_the_current_token_settles", check_noticed_by_random_operations, check_noticed_by_histories;
    a_batch_that_is_not_armed_after_a_flight_is_noticed:
        ArmsNothingAfterAFlight, "batches_claim::what_arrives_during_a_flight_is_the_next_batch_and_waits_its_turn",
        check_noticed_by_random_operations, check_noticed_by_histories;
    a_closed_batch_that_is_postponed_is_noticed:
        PostponesClosedBatches, "batches_ingest::a_closed_batch_is_not_postponed_but_still_joined", check_noticed_by_random_operations;
    messages_that_are_deleted_unseen_are_noticed:
        DeletesWhatCameMeanwhile, "batches_claim::what_arrives_during_a_flight_is_the_next_batch_and_waits_its_turn",
        check_noticed_by_random_operations, check_noticed_by_histories;
    a_dead_letter_that_is_not_kept_is_noticed:
        KeepsNoDeadLetters, "batches_finish::a_batch_that_is_given_up_is_a_dead_letter_and_nowhere_else",
        check_noticed_by_random_operations, check_noticed_by_histories;
    a_deadline_that_wakes_nobody_is_noticed:
        WakesNobody, "batches_wakes::only_an_earlier_deadline_wakes", check_noticed_by_random_operations;
    a_batch_that_is_too_large_is_noticed:
        IgnoresTheCaps, "batches_claim::more_than_fits_leaves_in_several_batches_one_after_the_other",
        check_noticed_by_random_operations, check_noticed_by_histories;
}
