//! The list of the cases about old callers, which not every store can be reached by.

use super::Case;

/// Makes one `#[tokio::test]` of every case about old callers. For stores whose [`UnderTest`](crate::backend::UnderTest) has an
/// [`OldCaller`](crate::backend::OldCaller).
#[macro_export]
macro_rules! old_callers_suite {
    ($backend:expr) => {
        $crate::every_case_of_old_callers! { cases_as_tests { $backend } }
    };
}

/// Hands the list of the cases about old callers to another macro of this crate.
#[doc(hidden)]
#[macro_export]
macro_rules! every_case_of_old_callers {
    ($macro:ident { $($argument:tt)* }) => {
        $crate::$macro! {
            [$($argument)*]
            locks_old_callers {
                an_old_workflow_keeps_ours_out_and_is_named
                ours_keeps_an_old_workflow_out
                an_old_caller_sees_our_identity
                a_counter_that_a_failing_old_caller_cut_short_lets_nobody_of_ours_in_and_is_healed
                a_counter_that_old_callers_keep_alive_does_not_outlive_its_tenure
                old_pollers_are_not_stuck_behind_a_dead_holder_of_ours
                the_lease_of_ours_is_not_looked_for_in_an_old_workflows_lock
                a_lock_of_ours_that_an_old_workflow_released_is_lost_as_absent
                a_lock_of_ours_that_an_old_workflow_took_is_lost_as_replaced_and_left_alone
                a_release_that_comes_late_does_not_touch_an_old_newcomer
                an_identity_that_an_old_caller_removed_is_put_back
                an_old_workflows_lock_is_released_by_its_lock_id_alone
                an_identity_that_is_no_json_is_the_lock_id
                a_field_that_is_missing_matches_no_text
                a_number_in_an_identity_matches_its_digits
                an_old_workflow_that_failed_is_cleaned_up_by_its_execution
                an_orphan_is_taken_over_after_a_minute_of_watching
                an_orphan_that_gets_a_name_is_not_taken_over
                an_orphan_is_watched_without_a_gap_and_never_while_its_counter_falls
                an_orphan_is_left_alone_for_ever_when_nobody_may_take_it
                attempts_of_old_callers_never_look_like_the_next_fence
                a_counter_that_is_no_number_is_an_old_workflows
                an_operator_may_end_an_old_workflows_lock
                an_old_workflows_lock_is_listed_when_it_is_named_or_all_are_looked_at
                an_old_workflows_lock_is_listed_once_one_of_ours_has_met_it
                a_grant_over_an_old_workflow_that_left_is_under_a_new_fence
            }
        }
    };
}

/// All cases about old callers, which not every store can be reached by.
pub fn all_cases_of_old_callers() -> Vec<Case> {
    every_case_of_old_callers! { cases_as_values {} }
}
