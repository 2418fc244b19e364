//! The list of all cases, and the macro that makes one named test of each.

mod batches;
mod old_callers;
mod runs;

use std::time::Duration;

pub use batches::all_cases_of_batches;
use futures_util::future::LocalBoxFuture;
pub use old_callers::all_cases_of_old_callers;
pub use runs::all_cases_of_runs;

use crate::backend::Backend;
use crate::bench::Bench;

/// A case as a value.
pub type Run = for<'a> fn(&'a mut Bench) -> LocalBoxFuture<'a, ()>;

/// A case with its name: the room and the sentence.
#[derive(Clone, Copy)]
pub struct Case {
    /// `submit::scopes_do_not_mix`.
    pub name: &'static str,
    /// What it does.
    pub run: Run,
}

/// A case moves virtual time only. One that takes this long by the wall waits for something that will never come.
const STUCK_AFTER: Duration = Duration::from_secs(20);

/// Runs one case on a fresh store. It panics when the promise is broken.
pub async fn run(backend: &dyn Backend, case: Run) {
    let mut bench = Bench::new(backend).await;
    let ended = tokio::time::timeout(STUCK_AFTER, case(&mut bench)).await;
    assert!(ended.is_ok(), "the case waits for something that does not come");
}

/// Makes one `#[tokio::test]` of every case, in a module per room. The argument is a [`Backend`] that can be named as a constant.
///
/// ```
/// # mod tests {
/// use towpath_conformance::backend::ModelBackend;
///
/// towpath_conformance::suite!(ModelBackend);
/// # }
/// ```
#[macro_export]
macro_rules! suite {
    ($backend:expr) => {
        $crate::every_case! { cases_as_tests { $backend } }
    };
}

/// Hands the list of all cases to another macro of this crate.
#[doc(hidden)]
#[macro_export]
macro_rules! every_case {
    ($macro:ident { $($argument:tt)* }) => {
        $crate::$macro! {
            [$($argument)*]
            submit {
                an_accepted_call_is_kept_as_it_was_asked
                attempts_that_a_call_had_elsewhere_count_here
                a_call_of_an_unknown_function_is_refused
                a_function_without_workers_takes_calls
                a_resend_of_the_same_id_is_the_same_call
                a_resend_finds_its_call_wherever_it_stands
                the_same_id_with_another_body_is_a_conflict
                a_resend_may_differ_in_depth_parent_trace_and_times
                the_same_key_is_the_same_call_for_every_caller
                the_same_key_with_another_body_is_a_conflict
                a_key_belongs_to_its_function_alone
                the_id_is_looked_at_before_the_key
                a_key_leads_to_the_outcome_until_its_retention_is_over
                a_gone_id_is_free
                a_resend_finds_its_call_even_when_the_function_was_forgotten
                a_caller_that_will_not_wait_for_a_worker_is_told_that_there_is_none
                a_resend_is_recognised_even_when_nobody_serves_the_function_any_more
                scopes_do_not_mix
                payloads_come_back_byte_for_byte
                names_of_any_script_keep_their_own_calls
                a_time_to_live_beyond_the_end_of_time_is_for_ever
            }
            limits {
                a_full_backlog_refuses_the_next_call
                calls_that_wait_for_their_next_attempt_are_backlog
                a_function_that_takes_no_backlog_refuses_every_call
                a_resend_is_recognised_however_full_the_backlog_is
                the_backlog_of_one_function_is_not_anothers
                no_more_run_at_once_than_the_function_allows
                a_parked_call_does_not_count_as_running
                a_worker_holds_no_more_than_it_offered
                an_offer_of_none_at_all_gets_nothing
                the_tighter_of_offer_and_limit_counts
                a_limit_that_is_lowered_takes_nothing_back
            }
            claim {
                the_oldest_submit_is_delivered_first
                a_delivery_says_all_that_was_asked
                a_claim_takes_functions_in_its_own_order
                a_claim_for_nothing_ends_at_once
                a_claim_that_does_not_wait_ends_empty
                a_call_that_is_held_is_delivered_to_nobody_else
                a_worker_that_never_registered_may_claim
                a_call_handed_back_keeps_its_place
                a_call_past_its_deadline_is_not_delivered
                a_claim_looks_no_further_than_it_has_room
            }
            waiting {
                a_waiting_claim_wakes_when_a_call_is_submitted
                a_waiting_claim_ends_empty_when_its_time_is_over
                waiting_claims_are_served_first_come_first_served
                a_worker_that_let_a_lease_run_out_must_ask_again
                one_call_wakes_one_claim
                a_claim_waits_for_any_of_its_functions
                a_claim_that_cannot_take_a_call_does_not_stand_in_its_way
                a_claim_may_wait_for_a_function_that_is_not_known_yet
                a_claim_that_gave_up_waiting_takes_nothing
                a_claim_dropped_before_it_took_its_call_gives_it_back
                a_call_handed_back_wakes_a_claim
                a_worker_that_leaves_wakes_a_claim
                the_end_of_a_lease_wakes_a_claim
                the_end_of_a_delay_wakes_a_claim
                a_call_that_ends_wakes_a_claim_that_waits_for_room
                a_call_that_parks_wakes_a_claim_that_waits_for_room
                a_raised_limit_wakes_a_claim_that_waits_for_room
                a_wider_offer_wakes_a_claim_that_waits_for_room
                a_replayed_dead_letter_wakes_a_claim
                a_claim_goes_on_waiting_when_all_it_finds_is_over
            }
            lease {
                a_renewal_counts_from_now
                a_renewal_may_shorten_a_lease
                renewals_are_answered_one_by_one_in_order
                asking_about_no_delivery_gets_no_reply
                a_crash_between_claim_and_complete_delivers_again
                a_lease_that_ran_out_is_lost_as_expired
                a_delivery_handed_back_is_lost_as_expired
                a_delivery_with_a_successor_is_lost_as_replaced
                a_delivery_of_an_ended_call_is_lost_as_ended
                a_delivery_of_no_call_is_lost_as_absent
                a_delivery_number_proves_nothing_in_other_hands
                an_overdue_lease_that_nobody_took_back_still_holds
                an_overdue_lease_goes_to_nobody_before_it_is_taken_back
                parking_and_progress_do_not_prolong_a_lease
                progress_leaves_a_parked_call_parked
                a_parked_call_is_parked_no_longer_once_its_delivery_is_over
                handing_back_is_no_crash
                handing_back_counts_only_what_was_held
                a_call_that_outlives_too_many_workers_is_poisoned
            }
            answer {
                a_result_ends_the_call
                a_final_failure_ends_the_call
                a_failure_keeps_its_code_message_and_details
                a_repeated_answer_is_recognised_and_the_first_counts
                a_repeated_answer_after_the_next_attempt_began_is_lost
                a_stale_answer_is_refused_after_reclaim
                a_stale_answer_of_the_same_worker_is_refused_too
                answers_are_taken_one_by_one_in_order
                a_detached_outcome_is_kept_until_its_retention_is_over
            }
            retry {
                a_failed_call_is_tried_again_after_its_pause
                the_last_failed_attempt_makes_a_dead_letter
                a_function_that_may_be_tried_once_is_not_tried_again
                a_retry_that_would_come_at_the_deadline_is_a_dead_letter_at_once
                a_handler_may_ask_for_a_longer_pause_but_not_for_a_shorter_one
                a_pause_asked_for_beyond_the_deadline_is_a_dead_letter_at_once
                a_growing_pause_grows_by_the_functions_policy
                the_latest_policy_counts_when_the_answer_comes
                a_retried_call_keeps_its_place
                crashes_and_failures_are_counted_apart
            }
            cancel {
                a_queued_call_is_cancelled_at_once
                a_delayed_call_is_cancelled_at_once
                a_running_call_is_cancelled_when_its_worker_heeds_it
                a_result_counts_even_when_cancellation_was_asked_for
                a_call_that_fails_after_cancellation_was_asked_for_is_not_tried_again
                a_cancelled_call_whose_worker_dies_is_not_run_again
                a_cancelled_call_that_is_handed_back_is_not_run_again
                a_worker_may_say_cancelled_unasked
                asking_twice_to_cancel_a_running_call_changes_nothing
                an_ended_call_cannot_be_cancelled
                no_call_no_cancellation
                the_worker_of_a_cancelled_call_is_woken_and_no_other
                a_cancellation_wakes_its_worker_once
                a_worker_that_was_given_up_and_came_back_is_woken_too
                cancelling_a_call_that_waits_wakes_no_worker
            }
            dead_letter {
                a_dead_letter_is_kept_until_somebody_deals_with_it
                a_replay_is_a_new_call_with_the_same_request
                a_replay_of_a_poisoned_call_forgets_its_crashes
                a_dead_letter_is_replayed_once
                a_replay_under_an_id_that_is_taken_changes_nothing
                a_replay_goes_behind_all_that_wait
                a_replay_takes_the_key_along
                a_replay_is_taken_however_full_the_backlog_is
                a_dropped_dead_letter_is_kept_for_its_retention_from_then_on
                what_is_not_dead_is_neither_replayed_nor_dropped
                a_function_with_a_dead_letter_cannot_be_forgotten
                a_dead_letter_past_its_retention_is_dropped_and_a_younger_one_stays
                without_a_bound_no_dead_letter_is_dropped
                old_dead_letters_are_dropped_a_few_at_a_time
            }
            watch {
                a_watcher_from_before_the_submit_hears_the_end
                every_watcher_hears_the_end
                a_watcher_hears_progress
                a_watcher_hears_that_a_call_is_to_be_tried_again
                a_watcher_hears_a_cancellation
                a_watcher_hears_an_end_that_time_brought
                a_watcher_hears_an_end_that_a_claim_found
                a_watcher_hears_that_a_call_is_poisoned
                a_watcher_hears_a_dead_letter
                a_watcher_hears_nothing_of_other_calls
            }
            registry {
                a_worker_makes_its_functions_known
                a_worker_that_registers_again_replaces_what_it_offered
                a_worker_may_offer_nothing
                of_two_offers_of_one_function_the_latter_counts
                the_latest_definition_counts
                a_definition_is_replaced_only_if_it_is_the_one_expected
                a_heartbeat_of_an_unknown_worker_says_so
                a_worker_is_healthy_for_thirty_seconds_after_it_was_heard
                a_worker_that_is_silent_for_too_long_is_taken_off_the_list
                a_worker_that_leaves_hands_back_what_it_holds
                a_stranger_that_leaves_hands_back_what_it_holds
                a_function_without_workers_and_unfinished_calls_can_be_forgotten
                a_function_with_a_worker_cannot_be_forgotten
                a_function_with_an_unfinished_call_cannot_be_forgotten
                a_function_is_found_as_soon_as_it_is_known
                a_function_that_is_not_known_in_time_is_not_found
                changes_of_functions_are_counted_and_told
                the_configuration_is_null_until_somebody_sets_it
                the_configuration_changes_only_from_the_version_expected
                a_change_of_the_configuration_wakes_its_watchers
                a_watcher_of_the_configuration_gets_the_present_one_when_its_time_is_over
            }
            timers {
                a_queued_call_expires_at_its_deadline
                a_delayed_call_expires_at_its_deadline
                a_running_call_times_out_at_its_deadline
                a_parked_call_times_out_at_its_deadline
                a_lease_and_a_deadline_that_end_together_are_a_timeout
                a_call_taken_back_waits_until_its_deadline_and_no_longer
                an_outcome_is_gone_when_its_retention_is_over_although_nothing_fired
                a_gone_call_is_out_of_reach_of_every_move
                a_gone_id_is_free_for_a_replay
                the_end_of_a_retention_is_not_a_timer
                everything_that_is_due_happens_and_is_counted
                no_more_happens_than_was_asked_for_earliest_first
                a_limit_counts_for_each_kind_of_timer
                a_retry_does_not_wait_behind_many_deadlines
                a_call_that_one_kind_of_timer_moved_does_not_count_for_another
                nothing_is_due_in_an_empty_store
                the_next_thing_due_is_named_whatever_it_is
                whoever_waits_for_something_due_is_told_when_there_is_something
                whoever_waits_for_something_earlier_is_told_of_nothing_later
                a_worker_that_registers_is_something_due
            }
            rate_limits {
                as_many_pass_as_the_limit_says
                the_reply_counts_what_is_used_and_what_is_left
                a_retry_is_exact_to_the_microsecond
                gcra_without_a_burst_spaces_calls_evenly
                a_burst_refills_evenly
                a_rate_that_does_not_divide_loses_nothing
                a_fixed_window_starts_at_a_multiple_of_its_length
                the_seeds_check_counts_denied_calls
                rules_of_one_fixed_window_share_its_counter
                the_last_window_of_a_sliding_counter_fades
                a_sliding_log_forgets_each_unit_after_its_window
                more_than_there_can_ever_be_is_never
                all_rules_allow_or_none_counts
                a_reserve_promises_room_within_its_wait
                the_other_rules_of_a_reserve_must_allow_now
                a_refund_restores_what_was_left
                a_refund_goes_to_the_present_window_only
                a_look_changes_nothing_and_answers_the_same
                a_reset_makes_a_limit_as_good_as_new
                limits_that_have_something_in_use_are_listed_by_scope_and_rule_in_pages
                a_limit_leaves_the_list_when_nothing_of_it_is_in_use_any_more
                scopes_rules_keys_and_algorithms_count_apart
                a_shadow_rule_counts_and_denies_nothing
                shadow_rules_count_also_what_is_denied
                a_changed_rate_keeps_the_time_that_was_used
                fractions_of_large_denominators_are_exact
                counts_of_another_window_mean_nothing
                a_lowered_limit_counts_what_was_taken_before
                what_was_taken_is_remembered_after_a_restart
                checks_that_come_together_never_pass_more_than_the_limit
            }
            inspect {
                calls_are_listed_newest_first
                a_listed_call_shows_all_that_is_known_of_it
                a_brief_list_has_no_payloads
                a_page_with_payloads_ends_before_it_is_too_large
                pages_neither_repeat_nor_skip
                a_page_goes_on_where_a_gone_call_was
                a_page_that_fits_exactly_is_the_last
                a_page_of_nothing_is_empty
                a_page_has_its_largest_size_whatever_is_asked
                a_filter_shows_what_it_means_and_nothing_else
                a_filtered_list_is_paged_like_any_other
                functions_are_listed_by_scope_and_name_with_their_calls_counted
                workers_are_listed_by_id_with_what_they_hold
                progress_is_numbered_and_the_latest_is_shown
                a_call_that_never_was_is_not_shown
                the_store_tells_its_time_and_what_its_word_is_worth
            }
            locks_acquire {
                a_free_lock_is_granted_with_a_fence_a_lease_and_a_cap
                a_lease_longer_than_the_cap_ends_at_the_cap
                a_held_lock_names_its_holder_and_when_it_may_be_free
                scopes_are_locked_apart
                a_fence_rises_with_every_grant
                a_fence_is_never_below_the_clocks_own
                a_grant_says_how_the_one_before_it_ended
                a_repeated_question_is_answered_with_the_same_grant
                a_late_copy_of_a_question_that_is_over_is_spent
                a_holder_that_asks_anew_is_told_that_it_has_it
                a_holder_may_enter_as_often_as_it_asked_for
                entering_again_never_shortens_a_lease
                any_text_may_be_a_lock_id
            }
            locks_queue {
                waiters_are_served_first_come_first_served
                asking_again_keeps_the_place
                a_caller_that_does_not_wait_never_passes_one_that_does
                a_silent_head_is_passed_a_second_after_the_release_and_not_before
                a_caller_that_does_not_wait_counts_as_the_last_place
                a_waiter_that_is_gone_holds_up_nobody
                a_waiter_that_is_gone_is_not_shown
                a_full_queue_takes_nobody_but_keeps_those_in_it
                whoever_gives_up_leaves_the_queue
                a_grant_that_nobody_learnt_of_is_undone_by_giving_up
                giving_up_does_not_undo_what_is_held_more_than_once_or_by_another_question
                a_holder_is_followed_by_its_waiter_when_it_dies
                many_who_wait_are_served_in_order
            }
            locks_lease {
                a_dead_holder_is_followed_at_the_end_of_its_lease_and_not_before
                a_renewal_counts_from_now
                a_renewal_without_a_length_keeps_the_length_that_was_given_last
                a_holder_that_renews_for_ever_is_lost_at_its_cap
                a_late_holder_cannot_renew
                a_released_lock_cannot_be_renewed
                a_lock_that_never_was_cannot_be_renewed
                a_lease_that_is_over_is_looked_after_by_the_timers
                a_renewal_puts_the_timers_off
                a_released_lock_is_not_due
                locks_that_are_due_together_come_by_scope
                looking_after_a_lease_tells_what_it_found
                a_holder_that_was_looked_after_may_ask_the_same_question_again
                time_passes_for_a_lock_while_the_store_is_closed
            }
            locks_release {
                a_released_lock_is_free_at_once
                a_repeated_release_is_recognised
                a_late_holder_cannot_release_the_next_holders_lock
                a_late_holder_that_nobody_followed_is_told_so
                a_release_of_a_lock_that_never_was_leaves_nothing_behind
                a_fence_of_the_future_releases_nothing
                a_holder_may_release_by_its_lock_id
                a_stranger_cannot_release_and_learns_whose_it_is
                a_holder_that_entered_twice_leaves_twice_by_its_lock_id
                a_holder_whose_lease_is_over_has_nothing_to_release_by_its_lock_id
                a_forced_release_ends_what_the_operator_saw
                a_forced_release_is_refused_when_the_lock_changed_hands_meanwhile
            }
            locks_cleanup {
                what_an_execution_holds_is_found_whatever_it_is
                what_an_execution_no_longer_holds_is_not_found
                an_execution_that_failed_is_cleaned_up_and_no_other
                an_execution_that_failed_gives_its_permits_back
                cleaning_up_ends_what_was_entered_twice
                what_an_execution_holds_survives_a_restart
                locks_in_use_are_listed_by_scope_and_others_are_not
                a_lock_that_is_free_but_waited_for_is_listed
            }
            locks_turns {
                a_release_wakes_the_first_two_who_wait
                every_way_in_which_a_tenure_ends_wakes_the_queue
                a_head_that_gives_up_wakes_the_next
                a_node_hears_nothing_of_other_nodes
                units_given_back_wake_the_first_two_who_wait
                readers_wake_one_another_when_a_writer_leaves
            }
            permits {
                no_more_units_are_held_than_there_are
                more_than_there_are_is_never
                asking_again_gets_the_same_permit
                a_permit_renewed_without_a_length_keeps_the_length_that_was_given_last
                a_heavy_head_is_not_overtaken
                whoever_delays_nobody_may_enter
                a_silent_head_that_could_enter_is_passed_after_a_second
                the_next_head_has_a_second_of_its_own
                a_waiter_that_is_gone_holds_up_nobody
                a_silent_holders_units_come_back_at_the_end_of_its_lease
                a_permit_is_renewed_up_to_its_cap
                a_permit_taken_anew_cannot_be_renewed_or_given_back_by_the_old_fence
                whoever_gives_up_leaves_the_queue
                a_full_queue_takes_nobody
                a_lowered_limit_takes_nothing_back
                readers_join_readers_and_a_writer_is_alone
                nobody_passes_a_writer_that_waits
                kinds_do_not_contend
                permits_and_places_survive_a_restart
                units_in_use_are_listed_by_scope_and_others_are_not
                units_that_are_renewed_or_waited_for_stay_in_the_list
            }
            reopen {
                a_restart_keeps_every_call_in_every_state
                a_restart_keeps_functions_workers_and_configuration
                an_answer_counts_after_a_restart
                time_goes_on_after_a_restart
                ids_and_keys_are_recognised_after_a_restart
                order_and_pages_survive_a_restart
                limits_count_what_ran_before_a_restart
                progress_is_numbered_on_after_a_restart
                what_is_gone_stays_gone_after_a_restart
                a_listener_after_a_restart_hears_what_happens_then
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! cases_as_tests {
    ([$backend:expr] $($room:ident { $($case:ident)* })*) => {
        $(
            mod $room {
                #[allow(unused_imports, reason = "the backend may stand in the module that the suite is in")]
                use super::*;
                $(
                    #[tokio::test]
                    async fn $case() {
                        $crate::suite::run(&$backend, |t| ::std::boxed::Box::pin($crate::cases::$room::$case(t))).await;
                    }
                )*
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! cases_as_values {
    ([] $($room:ident { $($case:ident)* })*) => {
        ::std::vec![$($($crate::suite::Case {
            name: concat!(stringify!($room), "::", stringify!($case)),
            run: |t| ::std::boxed::Box::pin($crate::cases::$room::$case(t)),
        },)*)*]
    };
}

/// All cases, for whoever wants to see which of them turn red.
pub fn all_cases() -> Vec<Case> {
    every_case! { cases_as_values {} }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_case_that_is_written_is_run() {
        let rooms = [
            ("submit", include_str!("cases/calls/submit.rs")),
            ("limits", include_str!("cases/calls/limits.rs")),
            ("claim", include_str!("cases/calls/claim.rs")),
            ("waiting", include_str!("cases/calls/waiting.rs")),
            ("lease", include_str!("cases/calls/lease.rs")),
            ("answer", include_str!("cases/calls/answer.rs")),
            ("retry", include_str!("cases/calls/retry.rs")),
            ("cancel", include_str!("cases/calls/cancel.rs")),
            ("dead_letter", include_str!("cases/calls/dead_letter.rs")),
            ("watch", include_str!("cases/calls/watch.rs")),
            ("registry", include_str!("cases/registry.rs")),
            ("timers", include_str!("cases/timers.rs")),
            ("rate_limits", include_str!("cases/rate_limits.rs")),
            ("inspect", include_str!("cases/inspect.rs")),
            ("locks_acquire", include_str!("cases/locks/acquire.rs")),
            ("locks_queue", include_str!("cases/locks/queue.rs")),
            ("locks_lease", include_str!("cases/locks/lease.rs")),
            ("locks_release", include_str!("cases/locks/release.rs")),
            ("locks_cleanup", include_str!("cases/locks/cleanup.rs")),
            ("locks_turns", include_str!("cases/locks/turns.rs")),
            ("permits", include_str!("cases/permits.rs")),
            ("locks_old_callers", include_str!("cases/locks/old_callers.rs")),
            ("reopen", include_str!("cases/reopen.rs")),
            ("batches_ingest", include_str!("cases/batches/ingest.rs")),
            ("batches_claim", include_str!("cases/batches/claim.rs")),
            ("batches_finish", include_str!("cases/batches/finish.rs")),
            ("batches_seal", include_str!("cases/batches/seal.rs")),
            ("batches_dead_letters", include_str!("cases/batches/dead_letters.rs")),
            ("batches_lists", include_str!("cases/batches/lists.rs")),
            ("batches_wakes", include_str!("cases/batches/wakes.rs")),
            ("batches_settings", include_str!("cases/batches/settings.rs")),
            ("batches_reopen", include_str!("cases/batches/reopen.rs")),
            ("runs_start", include_str!("cases/runs/start.rs")),
            ("runs_claim", include_str!("cases/runs/claim.rs")),
            ("runs_commit", include_str!("cases/runs/commit.rs")),
            ("runs_events", include_str!("cases/runs/events.rs")),
            ("runs_timers", include_str!("cases/runs/timers.rs")),
            ("runs_children", include_str!("cases/runs/children.rs")),
            ("runs_requests", include_str!("cases/runs/requests.rs")),
            ("runs_owners", include_str!("cases/runs/owners.rs")),
            ("runs_lists", include_str!("cases/runs/lists.rs")),
        ];
        let mut written = BTreeSet::new();
        for (room, text) in rooms {
            let names = text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
            written.extend(names.map(|name| format!("{room}::{name}")));
        }
        let lists = [super::all_cases(), super::all_cases_of_old_callers(), super::all_cases_of_batches(), super::all_cases_of_runs()];
        let listed: BTreeSet<_> = lists.iter().flatten().map(|case| case.name.to_owned()).collect();
        assert_eq!(listed, written, "add the case to the list in suite.rs");
    }
}
