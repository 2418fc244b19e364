//! The list of the cases about runs of workflows, which not every store has yet.

use super::Case;

/// Makes one `#[tokio::test]` of every case about runs. For stores whose [`UnderTest`](crate::backend::UnderTest) has
/// [`runs`](crate::backend::UnderTest::runs).
///
/// ```
/// # mod tests {
/// use towpath_conformance::backend::ModelBackend;
///
/// towpath_conformance::runs_suite!(ModelBackend);
/// # }
/// ```
#[macro_export]
macro_rules! runs_suite {
    ($backend:expr) => {
        $crate::every_case_of_runs! { cases_as_tests { $backend } }
    };
}

/// Hands the list of the cases about runs to another macro of this crate.
#[doc(hidden)]
#[macro_export]
macro_rules! every_case_of_runs {
    ($macro:ident { $($argument:tt)* }) => {
        $crate::$macro! {
            [$($argument)*]
            runs_start {
                a_run_is_kept_as_it_was_started
                a_resend_of_the_same_start_is_the_same_run
                the_same_reference_is_the_same_run_over_shards
                a_reference_is_free_when_its_run_is_gone_or_when_a_closed_one_may_be_replaced
                a_delayed_run_starts_at_its_time
                a_start_with_an_event_sends_it_to_the_run_that_has_the_reference
                a_resend_of_a_start_with_an_event_brings_it_once
                a_run_past_its_retention_does_not_exist
            }
            runs_claim {
                a_run_is_given_to_one_worker
                a_worker_gets_no_more_than_it_has_room_for_and_of_its_own_places_only
                runs_are_claimed_in_order_and_those_that_were_begun_before_new_ones
                a_backlog_of_new_runs_in_one_place_does_not_hold_up_a_woken_run_in_another
                every_eighth_claim_looks_at_new_runs_first
                the_run_of_a_silent_owner_is_taken_over_and_its_late_commit_is_refused
                the_claim_that_ended_first_is_taken_over_first_whatever_its_place
                a_worker_that_renews_is_not_taken_over
                a_run_that_its_workers_do_not_survive_is_blocked_until_a_person_resumes_it
                a_restart_keeps_claims_and_their_epochs
                a_restart_keeps_the_order_of_a_queue
                a_claim_that_waits_gets_the_run_that_comes_into_a_queue_of_its_places
                a_claim_that_waits_ends_empty_after_its_time
            }
            runs_commit {
                entries_are_kept_in_order_and_byte_for_byte
                a_commit_that_is_repeated_gets_the_first_answer_and_writes_nothing
                an_owner_that_is_ahead_of_the_store_is_told_so
                a_released_run_is_the_next_workers_at_once
                a_run_is_not_parked_without_anything_that_could_wake_it
                published_values_are_the_latest_of_each_key
                a_run_that_continues_begins_a_new_journal_and_keeps_its_events
                a_run_that_does_not_fit_a_build_waits_for_another_one
                a_run_has_one_standing_after_a_restart
            }
            runs_events {
                an_event_is_received_at_every_moment_of_a_park
                events_are_kept_in_order_until_they_are_consumed
                the_same_reference_is_the_same_event_for_a_day
                an_event_that_a_run_does_not_wait_for_wakes_nothing
                a_closed_run_and_one_that_does_not_exist_take_no_event
                a_page_of_facts_is_bounded_in_bytes
            }
            runs_timers {
                a_sleep_counts_from_its_commit_and_wakes_the_run_once
                a_timer_that_comes_while_the_run_is_executed_is_a_fact
                a_timer_that_was_disarmed_does_not_fire
                a_timer_that_one_commit_arms_and_disarms_does_not_fire
                an_owner_that_parks_after_its_last_timer_has_fired_is_given_the_fact
                a_deadline_asks_the_code_to_end_and_ends_the_run_a_minute_later
                timers_survive_a_restart
                the_timekeeper_hears_of_a_timer_of_a_run_and_of_an_earlier_one
                the_timekeeper_hears_of_a_post_that_a_commit_has_written
                a_post_that_waits_is_among_what_is_due_next
                the_timers_of_one_look_are_bounded_and_what_is_left_is_due_at_once
            }
            runs_children {
                children_start_with_the_commit_and_their_ends_wake_the_parent_together
                a_child_starts_once_although_its_parent_commits_again
                a_child_that_is_terminated_tells_its_parent
                open_children_follow_their_policy_when_their_parent_closes
                a_post_is_sent_after_a_restart
                a_post_that_its_run_refuses_holds_up_no_post_to_another
            }
            runs_requests {
                a_cancel_reaches_the_code_of_a_run_that_has_begun
                a_run_that_was_never_claimed_is_cancelled_at_once
                a_terminated_run_ends_at_once_and_its_owner_hears_that_it_is_lost
                a_paused_run_is_given_to_no_worker_and_loses_nothing
                the_owner_of_a_paused_run_is_told_at_its_next_renewal
                the_end_of_a_run_is_heard_by_those_who_wait_for_it
            }
            runs_owners {
                an_owner_hears_of_all_that_comes_for_its_run
                an_owner_hears_nothing_of_runs_of_others_and_of_its_own_commits
                an_owner_that_waits_hears_of_nothing_when_its_time_is_over
            }
            runs_lists {
                a_list_has_the_runs_that_were_created_last_first_page_by_page
                a_list_has_exactly_what_its_filter_means
                a_list_carries_no_payloads_and_no_gone_runs
                a_reference_leads_to_the_latest_run_that_it_was_given_to
                places_are_counted_by_state_and_say_since_when_a_run_waits
                places_are_counted_as_before_after_a_restart
            }
        }
    };
}

/// All cases about runs.
pub fn all_cases_of_runs() -> Vec<Case> {
    every_case_of_runs! { cases_as_values {} }
}
