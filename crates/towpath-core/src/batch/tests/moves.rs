//! The moves themselves, one key at a time. What stores promise with them is in the conformance cases.

use std::time::Duration;

use super::*;

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn message(bytes: usize) -> NewMessage {
    NewMessage {
        key: BatchKey::new("k").unwrap(),
        body: Message::new("x".repeat(bytes)),
        message_id: None,
        source: None,
        debounce: secs(10),
        seal: None,
    }
}

fn push(state: &mut KeyState, message: &NewMessage, rules: &Rules, now: i64) -> IngestReply {
    ingest(state, message, rules, &Known::default(), at(now)).reply
}

fn want(rules: Rules) -> ClaimBatch {
    ClaimBatch {
        batcher: BatcherId::new(BatcherName::new("b").unwrap()),
        key: BatchKey::new("k").unwrap(),
        batch_id: BatchId::new("b-1").unwrap(),
        token: BatchToken::new("t-1").unwrap(),
        lease: secs(60),
        rules,
    }
}

#[test]
fn messages_at_1_3_and_5_close_at_15_and_not_a_millisecond_before() {
    let mut state = KeyState::default();
    for now in [1_000, 3_000, 5_000] {
        let reply = push(&mut state, &message(1), &Rules::default(), now);
        assert!(matches!(reply, IngestReply::Accepted { deadline, .. } if deadline == at(now + 10_000)));
    }
    let want = want(Rules::default());
    assert_eq!(claim(&mut state, &want, &[1; 3], at(14_999)), Err(Skip::NotDue));
    let taken = claim(&mut state, &want, &[1; 3], at(15_000)).unwrap();
    assert_eq!((taken.messages, taken.flight.first, taken.flight.last), (3, at(1_000), at(5_000)));
    assert_eq!(state, KeyState { open: None, in_flight: Some(want.batch_id) });
}

#[test]
fn a_steady_stream_closes_when_the_first_message_has_waited_long_enough() {
    let mut state = KeyState::default();
    let mut last = None;
    for now in (0..300_000).step_by(4_000) {
        last = Some(push(&mut state, &message(1), &Rules { max_messages: 1_000, ..Rules::default() }, now));
    }
    let reason = CloseReason::MaxWaitReached;
    assert_eq!(last, Some(IngestReply::Accepted { deadline: at(300_000), size: 75, reason }));
}

#[test]
fn more_than_a_batch_full_leaves_in_order_and_each_says_which_cap_it_hit() {
    let rules = Rules { max_messages: 2, max_bytes: 100, serial: false, ..Rules::default() };
    let mut state = KeyState::default();
    let mut sizes = vec![10, 10, 60, 60, 10, 200, 10];
    for size in &sizes {
        push(&mut state, &message(*size), &Rules { max_messages: 100, max_bytes: 10_000, ..rules.clone() }, 0);
    }
    let mut left = Vec::new();
    while state.open.is_some() {
        let lengths: Vec<u64> = sizes.iter().map(|size| *size as u64).collect();
        let taken = claim(&mut state, &want(rules.clone()), &lengths, at(10_000)).unwrap();
        left.push((sizes.drain(..taken.messages).collect::<Vec<_>>(), taken.flight.reason));
    }
    use CloseReason::{MaxBytes, MaxMessages};
    let expected =
        [(vec![10, 10], MaxMessages), (vec![60], MaxBytes), (vec![60, 10], MaxMessages), (vec![200], MaxBytes), (vec![10], MaxBytes)];
    assert_eq!(left, expected);
}

#[test]
fn a_wake_up_is_sent_only_for_what_is_due_earlier_than_anything_else() {
    let wake = |earliest: Option<i64>| {
        let known = Known { earliest: earliest.map(at), ..Known::default() };
        ingest(&mut KeyState::default(), &message(1), &Rules::default(), &known, at(0)).wake
    };
    assert_eq!(wake(None), Some(at(10_000)));
    assert_eq!(wake(Some(10_001)), Some(at(10_000)));
    assert_eq!(wake(Some(10_000)), None);
}

#[test]
fn nothing_overflows_at_the_end_of_time() {
    let mut state = KeyState::default();
    let endless = NewMessage { debounce: Duration::MAX, ..message(1) };
    let rules = Rules { max_wait: Duration::MAX, ..Rules::default() };
    let reply = ingest(&mut state, &endless, &rules, &Known::default(), Timestamp::MAX).reply;
    assert!(matches!(reply, IngestReply::Accepted { deadline: Timestamp::MAX, .. }));
    let want = ClaimBatch { lease: Duration::MAX, ..want(rules) };
    assert_eq!(claim(&mut state, &want, &[1], Timestamp::MAX).unwrap().flight.at, Timestamp::MAX);
}
