//! Hot statements of batches use an index.

use super::{dead_letters, flights, lists, messages, open, seen};
use crate::plans::check;

#[test]
fn an_open_batch_and_what_it_waits_for_are_found_by_their_keys() {
    check(open::LOAD, "USING PRIMARY KEY (batcher=? AND bk=?)");
    check(open::EARLIEST, "USING COVERING INDEX batch_open_due (batcher=?)");
    check(flights::LOAD, "USING PRIMARY KEY (batcher=? AND batch_id=?)");
    check(flights::SERIAL_OF, "USING COVERING INDEX batch_flight_serial (batcher=? AND bk=?)");
    check(messages::OF, "USING INDEX batch_message_of (batch=?)");
    check(seen::OVER, "USING COVERING INDEX batch_seen_over (until_ms<?)");
}

#[test]
fn what_is_due_of_batches_comes_first_in_its_index() {
    check(lists::DUE_KEYS, "USING COVERING INDEX batch_open_due (batcher=?)");
    check(lists::DUE_FLIGHTS, "USING COVERING INDEX batch_flight_due (batcher=?)");
}

#[test]
fn lists_of_batches_begin_where_the_page_before_ended() {
    check(lists::OPEN, "USING INDEX batch_open_first (batcher=? AND (first_ms,bk)>(?,?))");
    check(lists::IN_FLIGHT, "USING INDEX batch_flight_due (batcher=? AND (at_ms,batch_id)>(?,?))");
    check(dead_letters::OLDEST_FIRST, "batcher=? AND");
    check(dead_letters::NEWEST_FIRST, "batcher=? AND");
    check(dead_letters::BY_ID, "USING INDEX dead_letter_by_id (batcher=? AND id=?)");
}
