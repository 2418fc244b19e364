//! The promises about claiming: one dispatcher at a time, the same batch under the same id, what comes later belongs to the next.

use std::time::Duration;

use towpath_core::batch::{ClaimBatch, ClaimReply, CloseReason, ExtendReply, FinishReply, Rules, Skip, Verb};

use crate::bench::{Bench, texts};
use crate::words::{BATCH_LEASE, MessageWords, batch_token, claim_batch, message, seconds};

pub async fn a_batch_is_claimed_once(t: &mut Bench) {
    t.accepted(message("k", "1").immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    assert_eq!((batch.lease_end, batch.now), (t.now() + BATCH_LEASE, t.now()));
    assert_eq!((batch.token.as_str(), batch.key.as_str(), batch.payload), ("t-b-1", "k", None));
    t.check_skipped("k", Skip::Gone).await;
    assert!(t.due_keys().await.is_empty());
}

pub async fn nothing_is_claimed_before_its_time_or_where_there_is_nothing(t: &mut Bench) {
    t.say("k", "1").await;
    t.advance_ms(9_999);
    t.check_skipped("k", Skip::NotDue).await;
    t.check_skipped("other", Skip::Gone).await;
    t.advance_ms(1);
    t.claim_batch("k", "b-1").await;
}

pub async fn what_arrives_during_a_flight_is_the_next_batch_and_waits_its_turn(t: &mut Bench) {
    t.accepted(message("k", "1").immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    let said_at = t.now();
    assert_eq!(t.say("k", "2").await, said_at + seconds(10));
    assert_eq!(t.open_batch("k").await.expect("it is open").in_flight, Some(batch.batch_id.clone()));
    t.advance_s(20);
    assert!(t.due_keys().await.is_empty(), "its turn has not come");
    t.check_skipped("k", Skip::Gone).await;
    t.settled(&batch, Verb::Ack).await;
    assert_eq!(t.due_keys().await, ["k"]);
    let next = t.claim_batch("k", "b-2").await;
    assert_eq!((texts(&next.messages), next.first), (vec!["2".to_owned()], said_at));
}

pub async fn where_order_is_given_up_the_next_batch_goes_at_once(t: &mut Bench) {
    let rules = Rules { serial: false, ..Rules::default() };
    t.accepted_under(rules.clone(), message("k", "1").immediate()).await;
    let first = t.claim_batch_under(rules.clone(), "k", "b-1").await;
    t.accepted_under(rules.clone(), message("k", "2").immediate()).await;
    let second = t.claim_batch_under(rules, "k", "b-2").await;
    t.settled(&second, Verb::Ack).await;
    t.settled(&first, Verb::Ack).await;
    t.check_no_residue().await;
}

pub async fn order_that_is_taken_up_again_lets_the_batch_in_flight_land_first(t: &mut Bench) {
    let free = Rules { serial: false, ..Rules::default() };
    t.accepted(message("k", "1").immediate()).await;
    let first = t.claim_batch("k", "b-1").await;
    t.accepted_under(free, message("k", "2").immediate()).await;
    assert_eq!(t.due_keys().await, ["k"], "it may go at once");
    t.check_skipped("k", Skip::InFlight).await;
    assert!(t.due_keys().await.is_empty(), "and is not asked for again until it may");
    t.settled(&first, Verb::Ack).await;
    assert_eq!(texts(&t.claim_batch("k", "b-2").await.messages), ["2"]);
}

pub async fn more_than_fits_leaves_in_several_batches_one_after_the_other(t: &mut Bench) {
    let rules = Rules { max_messages: 2, ..Rules::default() };
    t.accepted(message("k", "0").immediate()).await;
    let mut batch = t.claim_batch_under(rules.clone(), "k", "b-0").await;
    for text in ["1", "2", "3", "4", "5"] {
        t.accepted_under(rules.clone(), message("k", text)).await;
    }
    let mut left = Vec::new();
    for id in ["b-1", "b-2", "b-3"] {
        t.settled(&batch, Verb::Ack).await;
        batch = t.claim_batch_under(rules.clone(), "k", id).await;
        left.push((texts(&batch.messages).join(","), batch.reason));
        t.check_skipped("k", Skip::Gone).await;
    }
    let full = CloseReason::MaxMessages;
    assert_eq!(left, [("1,2".to_owned(), full), ("3,4".to_owned(), full), ("5".to_owned(), full)]);
    t.settled(&batch, Verb::Ack).await;
    t.check_no_residue().await;
}

pub async fn more_bytes_than_fit_leave_in_several_batches_and_a_large_message_alone(t: &mut Bench) {
    let rules = Rules { max_bytes: 8, serial: false, ..Rules::default() };
    let loose = Rules { serial: false, ..Rules::default() };
    for text in ["123", "яя", "12", "1234567890", "1"] {
        t.accepted_under(loose.clone(), message("k", text)).await;
    }
    t.advance_s(10);
    let mut left = Vec::new();
    for id in ["b-1", "b-2", "b-3", "b-4"] {
        let batch = t.claim_batch_under(rules.clone(), "k", id).await;
        left.push((texts(&batch.messages).join(","), batch.reason));
    }
    let full = CloseReason::MaxBytes;
    let expected = [("123,яя", full), ("12", full), ("1234567890", full), ("1", full)];
    assert_eq!(left, expected.map(|(text, reason)| (text.to_owned(), reason)));
}

pub async fn what_did_not_fit_is_due_at_once_and_joined_by_what_comes_before_its_claim(t: &mut Bench) {
    let rules = Rules { max_messages: 2, serial: false, ..Rules::default() };
    for text in ["1", "2", "3"] {
        t.accepted_under(rules.clone(), message("k", text)).await;
    }
    t.advance_s(1);
    t.claim_batch_under(rules.clone(), "k", "b-1").await;
    let open = t.open_batch("k").await.expect("one is left").open;
    assert_eq!((open.first, open.deadline, open.sealed, open.size, open.bytes, open.armed), (t.now(), t.now(), true, 1, 1, true));
    t.accepted_under(rules.clone(), message("k", "4")).await;
    assert_eq!(texts(&t.claim_batch_under(rules, "k", "b-2").await.messages), ["3", "4"]);
}

pub async fn a_lease_that_is_over_lets_another_take_the_same_batch(t: &mut Bench) {
    t.say("k", "1").await;
    t.say("k", "2").await;
    t.advance_s(10);
    let late = t.claim_batch("k", "b-1").await;
    t.advance(BATCH_LEASE - Duration::from_millis(1));
    assert_eq!(t.try_take_over("b-1", "t-2").await, ClaimReply::Skip(Skip::NotDue));
    assert!(t.due_batches().await.flights.is_empty());
    t.advance_ms(1);
    assert_eq!(t.due_batches().await.flights, std::slice::from_ref(&late.batch_id));
    let taken = t.take_over("b-1", "t-2").await;
    assert_eq!((taken.attempt, &taken.messages, &taken.batch_id, &taken.key), (2, &late.messages, &late.batch_id, &late.key));
    assert_eq!((taken.first, taken.last, taken.reason), (late.first, late.last, late.reason));
    assert_eq!((taken.lease_end, taken.token.as_str()), (t.now() + BATCH_LEASE, "t-2"));
    assert_eq!(t.try_take_over("b-1", "t-3").await, ClaimReply::Skip(Skip::NotDue));
    assert_eq!(t.finish_batch(&late, Verb::Ack).await, FinishReply::Lost, "the first one came too late");
    assert_eq!(t.extend_batch(&late).await, ExtendReply::Lost);
    t.settled(&taken, Verb::Ack).await;
    t.check_no_residue().await;
}

pub async fn a_batch_that_is_not_there_is_not_taken_over(t: &mut Bench) {
    assert_eq!(t.try_take_over("b-1", "t-2").await, ClaimReply::Skip(Skip::Gone));
    t.accepted(message("k", "1").immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    t.settled(&batch, Verb::Ack).await;
    t.advance_s(600);
    assert_eq!(t.try_take_over("b-1", "t-2").await, ClaimReply::Skip(Skip::Gone));
}

pub async fn a_dispatcher_that_says_it_lives_keeps_its_batch(t: &mut Bench) {
    t.accepted(message("k", "1").immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    for _ in 0..3 {
        t.advance_s(50);
        assert_eq!(t.extend_batch(&batch).await, ExtendReply::Extended { lease_end: t.now() + BATCH_LEASE });
        assert_eq!(t.try_take_over("b-1", "t-2").await, ClaimReply::Skip(Skip::NotDue));
    }
    t.advance_s(70);
    let late = ExtendReply::Extended { lease_end: t.now() + BATCH_LEASE };
    assert_eq!(t.extend_batch(&batch).await, late, "nobody has taken it yet");
    t.settled(&batch, Verb::Ack).await;
    assert_eq!(t.extend_batch(&batch).await, ExtendReply::Lost);
}

pub async fn an_id_that_a_batch_in_flight_has_is_not_given_to_another(t: &mut Bench) {
    t.accepted(message("a", "1").immediate()).await;
    t.accepted(message("b", "2").immediate()).await;
    let first = t.claim_batch("a", "b-1").await;
    let want = ClaimBatch { token: batch_token("t-2"), ..claim_batch(&t.orders(), "b", "b-1", &Rules::default()) };
    assert_eq!(t.try_claim_batch(want).await, ClaimReply::Skip(Skip::Gone));
    t.settled(&first, Verb::Ack).await;
    assert_eq!(texts(&t.claim_batch("b", "b-2").await.messages), ["2"]);
}

pub async fn what_is_due_is_named_earliest_first_and_the_rest_by_its_time(t: &mut Bench) {
    for (key, wait) in [("c", 3), ("b", 1), ("a", 3), ("d", 9)] {
        t.accepted(message(key, "x").debounce(seconds(wait))).await;
    }
    let start = t.now();
    assert_eq!(t.due_batches().await.next, Some(start + seconds(1)));
    t.advance_s(4);
    let due = t.due_batches().await;
    assert_eq!(t.due_keys().await, ["b", "a", "c"]);
    assert_eq!((due.next, due.now), (Some(start + seconds(9)), t.now()));
    let due = crate::bench::sure(t.batches().batch_due(&t.orders(), 2).await);
    assert_eq!((due.keys.len(), due.next), (2, Some(start + seconds(3))), "what is not named is due already");
    t.claim_batch("b", "b-1").await;
    assert_eq!(crate::bench::sure(t.batches().batch_due(&t.orders(), 2).await).next, Some(start + seconds(9)));
}

pub async fn a_thousand_keys_are_due_each_at_its_own_time_and_never_earlier(t: &mut Bench) {
    let start = t.now();
    for number in 0..1_000_u64 {
        let wait = Duration::from_millis(1_000 + (number * 7_919) % 5_000);
        t.accepted(message(&format!("k-{number}"), "x").debounce(wait)).await;
    }
    let mut claimed = 0;
    while let Some(next) = t.due_batches().await.next {
        t.advance(next.since(t.now()));
        for key in t.due_keys().await {
            let batch = t.claim_batch(&key, &format!("b-{key}")).await;
            let number: u64 = key[2..].parse().expect("a number");
            assert_eq!(t.now(), start + Duration::from_millis(1_000 + (number * 7_919) % 5_000));
            t.settled(&batch, Verb::Ack).await;
            claimed += 1;
        }
    }
    assert_eq!(claimed, 1_000);
}
