//! Hot statements use an index: a plan that scans a table would be slow only on the day it matters.

use crate::open::{self, Location, OpenOptions};
use crate::{calls, claims, gone, limits, lists, locks, memory, permits, retention, timers, waiters};

fn plan(sql: &str) -> String {
    let opened = open::open(&OpenOptions { location: Location::Memory, owner: String::new(), renew_leases: false }).unwrap();
    let mut statement = opened.writer.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let count = statement.parameter_count();
    let details = statement.query_map(rusqlite::params_from_iter((0..count).map(|_| 1_i64)), |row| row.get::<_, String>(3)).unwrap();
    details.map(Result::unwrap).collect::<Vec<_>>().join("; ")
}

pub(crate) fn check(sql: &str, index: &str) {
    let plan = plan(sql);
    assert!(plan.contains(index), "{sql}\nhas the plan: {plan}");
    assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{sql}\nhas the plan: {plan}");
}

/// The first entry of an index: a scan in its order, cut off after one.
pub(crate) fn check_first(sql: &str, index: &str) {
    let plan = plan(sql);
    assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{sql}\nhas the plan: {plan}");
}

#[test]
fn claiming_reads_the_queue_of_one_function_in_order() {
    check(claims::QUEUED, "USING INDEX calls_of_function (function_id=? AND state=?)");
}

#[test]
fn every_list_of_calls_comes_from_an_index_in_order() {
    check(lists::OF_FUNCTION, "USING COVERING INDEX calls_of_function (function_id=? AND state=? AND seq<?)");
    check(lists::OF_WORKER, "USING COVERING INDEX calls_of_worker (holder=? AND seq<?)");
    check(lists::ALL, "USING INTEGER PRIMARY KEY (rowid<?)");
    check(memory::COUNT, "USING COVERING INDEX calls_of_function (function_id=? AND state=?)");
}

#[test]
fn a_call_is_found_by_its_id() {
    check(calls::BY_ID, "(call_id=?)");
}

#[test]
fn due_calls_of_each_kind_come_from_the_index_of_that_kind() {
    check(timers::DELAYS, "USING COVERING INDEX calls_delay (not_before_ms<?)");
    check(timers::LEASES, "USING COVERING INDEX calls_lease (lease_until_ms<?)");
    check(timers::DEADLINES, "USING INDEX calls_deadline (deadline_ms<?)");
}

#[test]
fn the_next_due_instant_is_the_first_of_its_index() {
    check_first(timers::NEXT_DELAY, "USING COVERING INDEX calls_delay");
    check_first(timers::NEXT_LEASE, "USING COVERING INDEX calls_lease");
    check_first(timers::NEXT_DEADLINE, "USING INDEX calls_deadline");
}

#[test]
fn gone_calls_come_from_their_index() {
    check(gone::GONE, "USING INDEX calls_kept (kept_until_ms<?)");
    check_first(gone::FIRST, "USING COVERING INDEX calls_kept");
}

#[test]
fn what_is_too_old_comes_from_an_index_by_age() {
    check(retention::OLD_DEAD, "USING INDEX calls_dead_by_age (ended_ms<?)");
    check(retention::OLD_AUDITS[0], "lock_audit_by_age (at_ms<?)");
    check(retention::OLD_AUDITS[1], "dead_letter_audit_by_age (at_ms<?)");
    check_first(retention::KEPT, "USING COVERING INDEX calls_kept");
    check_first(gone::FIRST_TO_GO, "USING INDEX calls_kept");
}

#[test]
fn what_is_remembered_of_a_rule_is_found_by_its_name_and_what_is_over_by_its_time() {
    check(limits::LOAD, "(scope=? AND name=?)");
    check(limits::UNITS, "(scope=? AND name=?)");
    check(limits::OVER, "limit_states_sweep (sweep_us<?)");
    check(limits::list::AFTER, "(noted>?)");
    check(limits::list::SWEEP, "limit_rules_sweep (sweep_us<?)");
}

#[test]
fn leases_of_locks_that_end_come_from_their_index() {
    check(locks::DUE, "USING COVERING INDEX locks_due (reap_ms<?)");
    check(locks::NEXT_DUE, "USING COVERING INDEX locks_due");
}

#[test]
fn what_an_execution_holds_is_found_by_its_index() {
    check(locks::HELD_BY, "USING INDEX locks_by_execution (execution_id=?)");
    check(permits::HELD_BY, "USING INDEX permits_by_execution (execution_id=?)");
}

#[test]
fn permits_and_queues_are_read_in_order_by_their_keys() {
    check(permits::LOAD, "USING PRIMARY KEY (kind=? AND scope=?)");
    check(waiters::LOAD, "USING PRIMARY KEY (kind=? AND scope=?)");
}
