//! What holds for every history of commands, and that every move of the table is made by some command.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::payload::Payload;

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn held() -> impl Strategy<Value = Held> {
    (prop::sample::select(vec!["w1", "w2"]), 0..4_u64).prop_map(|(name, number)| Held { worker: worker(name), number })
}

fn answer() -> impl Strategy<Value = Answer> {
    let failed = |retry| Answer::Failed { failure: Failure::new("busy", "it went wrong"), retry };
    prop_oneof![
        Just(Answer::Ok(Payload::null())),
        Just(Answer::Cancelled),
        Just(failed(Retry::ByPolicy)),
        Just(failed(Retry::Never)),
        (0..100_000_u64).prop_map(move |ms| failed(Retry::NotBefore(Duration::from_millis(ms)))),
    ]
}

fn command() -> impl Strategy<Value = CallCommand> {
    let policy = RetryPolicy { max_attempts: 2, ..RetryPolicy::default() };
    let lease = Duration::from_secs(10);
    let claim = move |name| CallCommand::Claim(Claim { worker: worker(name), lease });
    prop_oneof![
        3 => prop::sample::select(vec!["w1", "w2"]).prop_map(claim),
        1 => held().prop_map(move |held| CallCommand::Renew { held, lease }),
        3 => (held(), answer()).prop_map(move |(held, answer)| CallCommand::Answer { held, answer, policy: policy.clone() }),
        1 => held().prop_map(CallCommand::Release),
        1 => (held(), any::<bool>()).prop_map(|(held, parked)| CallCommand::Park { held, parked }),
        1 => Just(CallCommand::Cancel),
        3 => Just(CallCommand::ComeDue { max_deliveries: 3 }),
        1 => Just(CallCommand::Settle { replayed_as: None }),
    ]
}

/// Commands with the time that passes before each.
fn history() -> impl Strategy<Value = Vec<(u64, CallCommand)>> {
    prop::collection::vec((prop::sample::select(vec![0, 0, 1, 2_000, 10_000, 30_000]), command()), 0..60)
}

fn new_call() -> (Call, Timestamp) {
    let now = Timestamp::from_millis(1_000);
    (Call::submitted(CallId::new("call-1").unwrap(), now, Duration::from_secs(60), Duration::from_secs(5)), now)
}

fn says_that_nothing_changed(reply: &CallReply) -> bool {
    use CallReply::{AlreadyEnded, AlreadyRecorded, Lost, NotDead, NotDue};
    matches!(reply, AlreadyRecorded | Lost(_) | AlreadyEnded | NotDue | NotDead)
}

/// What is true of every call, whatever has happened to it.
fn check_whole(call: &Call) {
    let (state, ended) = (call.state, call.state.has_ended());
    assert_eq!(call.outcome.is_some(), ended, "{call:?}");
    assert_eq!(call.ended_at.is_some(), ended, "{call:?}");
    assert_eq!(call.lease_until.is_some(), state == CallState::Running, "{call:?}");
    assert_eq!(call.not_before.is_some(), state == CallState::Delayed, "{call:?}");
    assert_eq!(call.due().is_none(), ended, "an ended call has no timer: {call:?}");
    assert_eq!(call.kept_until().is_some(), ended && state != CallState::Dead, "a dead letter has no retention: {call:?}");
    assert!(!call.parked || state == CallState::Running, "{call:?}");
    assert!(!call.cancel_requested || state == CallState::Running || ended, "{call:?}");
    assert_eq!(call.delivery > 0, call.holder.is_some(), "{call:?}");
}

proptest! {
    #[test]
    fn no_history_makes_a_call_that_contradicts_itself(history in history()) {
        let (mut call, mut now) = new_call();
        for (pause_ms, command) in history {
            now = now + Duration::from_millis(pause_ms);
            let before = call.clone();
            let (after, reply) = step(call, command, now);
            check_whole(&after);
            prop_assert!(after.delivery >= before.delivery, "a delivery's number only rises");
            prop_assert!(after.failures >= before.failures && after.crashes >= before.crashes);
            if before.outcome.is_some() {
                prop_assert_eq!(&after.outcome, &before.outcome, "an outcome is written once");
            }
            if says_that_nothing_changed(&reply) {
                prop_assert_eq!(&after, &before, "{:?}", reply);
            }
            call = after;
        }
    }

    #[test]
    fn only_the_holder_of_the_latest_delivery_is_heard(history in history(), held in held(), answer in answer()) {
        let (mut call, mut now) = new_call();
        for (pause_ms, command) in history {
            now = now + Duration::from_millis(pause_ms);
            call = step(call, command, now).0;
        }
        let is_holder = call.state == CallState::Running && call.delivery == held.number && call.holder.as_ref() == Some(&held.worker);
        let (_, reply) = step(call, CallCommand::Answer { held, answer, policy: RetryPolicy::default() }, now);
        prop_assert_eq!(reply == CallReply::Recorded, is_holder);
    }

    #[test]
    fn what_is_not_due_does_not_happen_and_what_is_due_does(history in history(), early_ms in 1..100_000_i64) {
        let (mut call, mut now) = new_call();
        for (pause_ms, command) in history {
            now = now + Duration::from_millis(pause_ms);
            call = step(call, command, now).0;
        }
        if let Some(due) = call.due() {
            let early = Timestamp::from_millis(due.as_millis() - early_ms);
            prop_assert_eq!(step(call.clone(), CallCommand::ComeDue { max_deliveries: 3 }, early), (call.clone(), CallReply::NotDue));
            let (_, reply) = step(call, CallCommand::ComeDue { max_deliveries: 3 }, due);
            prop_assert_eq!(reply, CallReply::Moved);
        }
    }
}

/// The commands that lead to each move of the table, from a new call, with the seconds that pass before each.
fn paths() -> Vec<Vec<(u64, CallCommand)>> {
    let claim = || (0, CallCommand::Claim(Claim { worker: worker("w1"), lease: Duration::from_secs(10) }));
    let held = Held { worker: worker("w1"), number: 1 };
    let say = |answer, max_attempts| {
        let policy = RetryPolicy { max_attempts, ..RetryPolicy::default() };
        (0, CallCommand::Answer { held: held.clone(), answer, policy })
    };
    let fail = |retry, max_attempts| say(Answer::Failed { failure: Failure::new("busy", "it went wrong"), retry }, max_attempts);
    let due = |after_s| (after_s, CallCommand::ComeDue { max_deliveries: 2 });
    let cancel = || (0, CallCommand::Cancel);
    vec![
        vec![claim(), say(Answer::Ok(Payload::null()), 1)],
        vec![claim(), fail(Retry::Never, 1)],
        vec![claim(), fail(Retry::ByPolicy, 2), due(2)],
        vec![claim(), fail(Retry::ByPolicy, 2), due(60)],
        vec![claim(), fail(Retry::ByPolicy, 2), cancel()],
        vec![claim(), fail(Retry::ByPolicy, 1), (0, CallCommand::Settle { replayed_as: None })],
        vec![claim(), due(10), claim(), due(10)],
        vec![claim(), (0, CallCommand::Release(held.clone()))],
        vec![claim(), due(60)],
        vec![claim(), cancel(), say(Answer::Cancelled, 1)],
        vec![cancel()],
        vec![due(60)],
    ]
}

#[test]
fn an_ended_call_is_gone_from_the_end_of_its_retention_on() {
    let (call, now) = new_call();
    assert_eq!((call.kept_until(), call.is_gone(Timestamp::MAX)), (None, false), "an open call is never gone");
    let (call, _) = step(call, CallCommand::Cancel, now);
    let until = now + Duration::from_secs(5);
    assert_eq!((call.due(), call.kept_until()), (None, Some(until)));
    assert!(!call.is_gone(Timestamp::from_millis(until.as_millis() - 1)));
    assert!(call.is_gone(until));
}

#[test]
fn every_move_of_the_table_is_made_by_some_command() {
    let mut made = BTreeSet::new();
    for path in paths() {
        let (mut call, mut now) = new_call();
        for (pause_s, command) in path {
            now = now + Duration::from_secs(pause_s);
            let from = call.state;
            call = step(call, command, now).0;
            made.insert((from, call.state));
        }
    }
    let mut table = BTreeSet::new();
    for from in CallState::ALL {
        for event in CallEvent::ALL {
            table.extend(state::next(from, event).ok().map(|to| (from, to)));
        }
    }
    assert_eq!(made, table);
}
