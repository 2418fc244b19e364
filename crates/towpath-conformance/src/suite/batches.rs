//! The list of the cases about batches, which not every store has yet.

use super::Case;

/// Makes one `#[tokio::test]` of every case about batches. For stores whose [`UnderTest`](crate::backend::UnderTest) has
/// [`batches`](crate::backend::UnderTest::batches).
///
/// ```
/// # mod tests {
/// use towpath_conformance::backend::ModelBackend;
///
/// towpath_conformance::batches_suite!(ModelBackend);
/// # }
/// ```
#[macro_export]
macro_rules! batches_suite {
    ($backend:expr) => {
        $crate::every_case_of_batches! { cases_as_tests { $backend } }
    };
}

/// Hands the list of the cases about batches to another macro of this crate.
#[doc(hidden)]
#[macro_export]
macro_rules! every_case_of_batches {
    ($macro:ident { $($argument:tt)* }) => {
        $crate::$macro! {
            [$($argument)*]
            batches_ingest {
                three_messages_and_silence_are_one_batch_ten_seconds_after_the_last
                a_steady_stream_closes_when_the_first_message_has_waited_the_longest_time
                each_key_has_its_own_batch_and_each_batcher_its_own_keys
                many_messages_at_once_are_answered_one_by_one_in_order
                a_message_id_is_taken_once_until_its_time_is_over
                the_same_message_id_of_another_key_is_another_message
                nothing_is_remembered_where_duplicates_are_taken
                an_element_of_a_list_is_taken_once_for_seven_days
                a_duplicate_by_one_id_does_not_use_up_the_other
                the_last_messages_debounce_counts_and_may_bring_the_deadline_in
                a_message_that_must_not_wait_closes_its_batch_at_once
                a_closed_batch_is_not_postponed_but_still_joined
                a_batch_with_all_the_messages_it_may_have_is_closed
                a_batch_with_all_the_bytes_it_may_have_is_closed
                a_keyword_counts_before_a_cap
                a_batcher_that_is_full_refuses_the_next_message_until_a_batch_leaves
                messages_come_back_byte_for_byte
            }
            batches_claim {
                a_batch_is_claimed_once
                nothing_is_claimed_before_its_time_or_where_there_is_nothing
                what_arrives_during_a_flight_is_the_next_batch_and_waits_its_turn
                where_order_is_given_up_the_next_batch_goes_at_once
                order_that_is_taken_up_again_lets_the_batch_in_flight_land_first
                more_than_fits_leaves_in_several_batches_one_after_the_other
                more_bytes_than_fit_leave_in_several_batches_and_a_large_message_alone
                what_did_not_fit_is_due_at_once_and_joined_by_what_comes_before_its_claim
                a_lease_that_is_over_lets_another_take_the_same_batch
                a_batch_that_is_not_there_is_not_taken_over
                a_dispatcher_that_says_it_lives_keeps_its_batch
                an_id_that_a_batch_in_flight_has_is_not_given_to_another
                what_is_due_is_named_earliest_first_and_the_rest_by_its_time
                a_thousand_keys_are_due_each_at_its_own_time_and_never_earlier
            }
            batches_finish {
                what_was_delivered_is_gone_with_all_that_belonged_to_it
                only_the_current_token_settles
                a_retry_is_due_after_its_wait_and_not_before_and_nobody_holds_it
                a_batch_that_is_given_back_is_due_at_once_and_its_attempt_does_not_count
                a_retrying_batch_holds_back_the_next_of_its_key_only
                what_gathered_meanwhile_keeps_its_own_deadline
                a_batch_that_is_given_up_is_a_dead_letter_and_nowhere_else
                settling_needs_no_key_to_be_named
            }
            batches_seal {
                a_flushed_batch_is_due_at_once_and_says_why
                what_is_closed_is_neither_flushed_nor_postponed_again
                where_nothing_is_open_there_is_nothing_to_close
                a_sender_that_types_is_waited_for_but_not_beyond_the_longest_wait
                typing_never_brings_a_deadline_in
                a_batch_that_is_closed_while_another_flies_waits_its_turn
                arming_what_is_armed_changes_nothing
            }
            batches_dead_letters {
                dead_letters_are_listed_in_order_filtered_and_found_by_id
                dead_letters_come_page_by_page_both_ways_and_filtered
                a_page_of_dead_letters_ends_with_the_one_that_reaches_a_mebibyte
                a_replay_is_due_at_once_under_the_same_id_with_fresh_attempts
                a_replay_does_not_wait_for_its_keys_order_nor_hold_it_up
                a_replay_that_fails_again_is_a_dead_letter_again
                what_cannot_be_sent_is_not_replayed_and_stays
                an_element_that_cannot_be_read_is_kept_once
                dropped_dead_letters_are_gone_and_each_is_dropped_once
                dropping_and_clearing_touch_nothing_in_flight
                old_dead_letters_are_swept_only_when_somebody_says_how_old
                a_dead_letter_keeps_its_bytes
            }
            batches_lists {
                an_open_batch_shows_all_that_is_known_of_it
                messages_of_an_open_batch_come_page_by_page
                open_batches_come_page_by_page_the_longest_open_first
                batches_in_flight_come_page_by_page_what_is_due_first_without_their_tokens
                everything_is_counted
            }
            batches_wakes {
                only_an_earlier_deadline_wakes
                a_flush_a_retry_and_a_replay_wake
                the_end_of_a_flight_wakes_for_what_gathered_meanwhile
                each_batcher_wakes_its_own
                typing_and_duplicates_wake_nobody
            }
            batches_settings {
                settings_are_kept_as_they_were_put_and_listed_by_name
                a_change_wakes_whoever_follows
                whoever_follows_is_let_go_when_its_time_is_over
            }
            batches_reopen {
                everything_is_as_it_was_after_a_restart
                a_batch_whose_dispatcher_died_with_the_store_is_taken_over
                a_listener_after_a_restart_hears_of_deadlines
            }
        }
    };
}

/// All cases about batches.
pub fn all_cases_of_batches() -> Vec<Case> {
    every_case_of_batches! { cases_as_values {} }
}
