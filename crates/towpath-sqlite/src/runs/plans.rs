//! Hot statements of runs use an index.

use super::{claims, lists, memory, posts, rows, timers};
use crate::plans::{check, check_first};

#[test]
fn runs_are_found_by_their_indexes() {
    check(claims::QUEUED, "USING COVERING INDEX runs_queued (place=? AND queue=?)");
    check(super::HEAD, "USING INDEX runs_queued (place=? AND queue=?)");
    check(claims::CLAIMED, "USING COVERING INDEX runs_claimed (place=? AND expires_ms<?)");
    check(claims::NEXT_CLAIM_END, "USING COVERING INDEX runs_claimed (place=?");
    check(super::UNFIT, "USING INDEX runs_unfit (place=? AND run_id>?)");
    check(rows::JOURNAL, "(run_id=? AND number>?)");
    check(rows::FACTS, "(run_id=? AND number>?)");
}

#[test]
fn due_timers_and_posts_of_runs_come_from_their_indexes() {
    check(timers::DUE, "USING COVERING INDEX run_timers_due (due_ms<?)");
    check_first(timers::NEXT_DUE, "USING COVERING INDEX run_timers_due");
    check(posts::DUE, "USING INDEX run_posts_due (not_before_ms<?)");
    check_first(posts::NEXT_DUE, "USING COVERING INDEX run_posts_due");
}

#[test]
fn gone_runs_and_events_come_from_their_indexes() {
    check_first(super::FIRST_KEPT, "USING COVERING INDEX runs_kept");
    check_first(super::FIRST_TO_GO, "USING INDEX runs_kept");
    check(super::GONE, "USING COVERING INDEX runs_kept (kept_until_ms<?)");
    check(rows::FORGET_EVENTS, "USING COVERING INDEX run_events_known_old (at_ms<?)");
}

#[test]
fn every_list_of_runs_comes_from_an_index_in_order() {
    check(lists::ALL, "USING COVERING INDEX runs_by_creation ((created_ms,run_id)<(?,?))");
    check(lists::OF_REFERENCE, "USING COVERING INDEX runs_by_reference (reference=? AND (created_ms,run_id)<(?,?))");
    check(lists::OF_PARENT, "USING COVERING INDEX runs_by_parent (parent=? AND (created_ms,run_id)<(?,?))");
    check(lists::OF_CAUSE, "USING COVERING INDEX runs_by_cause (cause=? AND (created_ms,run_id)<(?,?))");
    check(lists::OF_PLACE, "USING COVERING INDEX runs_by_place (place=? AND state=? AND (created_ms,run_id)<(?,?))");
    check(lists::NEXT_PLACE, "USING COVERING INDEX runs_by_place (place>?)");
    check_first(memory::COUNTS, "USING COVERING INDEX runs_by_place");
    check_first(memory::LAST_TURN, "USING COVERING INDEX runs_queued");
}
