//! The promises about dead letters: kept until somebody deals with them, sent again as they were.

use towpath_core::batch::{ClaimReply, DeadLetter, DeadReply, FinishReply, ReplayReply, Skip, Verb};
use towpath_core::inspect::{DeadLetterQuery, PageRequest};

use crate::bench::{Bench, sure};
use crate::words::{MessageWords, batch_id, batch_key, batcher, message, seconds, source, unreadable};

async fn replay(t: &Bench, ids: &[&str]) -> Vec<ReplayReply> {
    sure(t.batches().dead_letter_replay(&t.orders(), ids.iter().map(|id| batch_id(id)).collect()).await)
}

async fn add(t: &Bench, letter: &DeadLetter, number: u64) -> DeadReply {
    sure(t.batches().dead_letter_add(&t.orders(), letter.clone(), Some(source(number))).await)
}

pub async fn dead_letters_are_listed_in_order_filtered_and_found_by_id(t: &mut Bench) {
    let mut letters = Vec::new();
    for (number, (key, reason)) in [("a", "crash_loop"), ("b", "rejected_404"), ("a", "rejected_404")].into_iter().enumerate() {
        letters.push(t.dead_batch(key, &format!("b-{number}"), reason).await);
        t.advance_s(1);
    }
    assert_eq!(t.dead_ids(DeadLetterQuery::default()).await, ["b-0", "b-1", "b-2"].map(batch_id));
    let newest_first = DeadLetterQuery { newest_first: true, ..DeadLetterQuery::default() };
    assert_eq!(t.dead_ids(newest_first.clone()).await, ["b-2", "b-1", "b-0"].map(batch_id));
    let of_reason = DeadLetterQuery { reason: Some("rejected_404".to_owned()), ..newest_first };
    assert_eq!(t.dead_ids(of_reason.clone()).await, ["b-2", "b-1"].map(batch_id));
    let of_both = DeadLetterQuery { key: Some(batch_key("a")), ..of_reason };
    assert_eq!(t.dead_ids(of_both).await, [batch_id("b-2")]);
    assert_eq!(sure(t.batches().dead_letter(&t.orders(), &batch_id("b-1")).await), Some(letters[1].clone()));
    assert_eq!(sure(t.batches().dead_letter(&t.orders(), &batch_id("b-9")).await), None);
    assert_eq!(sure(t.batches().dead_letter(&batcher("other"), &batch_id("b-1")).await), None);
}

pub async fn dead_letters_come_page_by_page_both_ways_and_filtered(t: &mut Bench) {
    for number in 0..5 {
        t.dead_batch("k", &format!("b-{number}"), if number == 2 { "odd" } else { "even" }).await;
    }
    for newest_first in [false, true] {
        let mut query = DeadLetterQuery { newest_first, reason: Some("even".to_owned()), limit: 2, ..DeadLetterQuery::default() };
        let (mut seen, mut pages) = (Vec::new(), 0);
        loop {
            let page = sure(t.batches().dead_letters(&t.orders(), &query).await);
            seen.extend(page.items.into_iter().map(|letter| letter.id));
            pages += 1;
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        let mut expected = ["b-0", "b-1", "b-3", "b-4"].map(batch_id);
        if newest_first {
            expected.reverse();
        }
        assert_eq!((seen.as_slice(), pages), (expected.as_slice(), 2));
    }
}

pub async fn a_page_of_dead_letters_ends_with_the_one_that_reaches_a_mebibyte(t: &mut Bench) {
    for number in 0..7 {
        t.accepted(message("k", &format!("\"{}\"", "x".repeat(250_000))).immediate()).await;
        let batch = t.claim_batch("k", &format!("b-{number}")).await;
        t.give_up(&batch, "rejected_404").await;
        t.advance_s(1);
    }
    for newest_first in [false, true] {
        let mut query = DeadLetterQuery { newest_first, limit: 100, ..DeadLetterQuery::default() };
        let (mut seen, mut pages) = (Vec::new(), Vec::new());
        loop {
            let page = sure(t.batches().dead_letters(&t.orders(), &query).await);
            let bytes: usize = page.items.iter().map(|letter| letter.entry.as_bytes().len()).sum();
            assert!(bytes < PageRequest::BYTES_MAX + 1_000_000, "{bytes}");
            pages.push(page.items.len());
            seen.extend(page.items.into_iter().map(|letter| letter.id));
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        seen.sort();
        assert_eq!(seen, (0..7).map(|number| batch_id(&format!("b-{number}"))).collect::<Vec<_>>());
        assert!(pages.len() > 1, "{pages:?}");
    }
}

pub async fn a_replay_is_due_at_once_under_the_same_id_with_fresh_attempts(t: &mut Bench) {
    t.accepted(message("k", r#"{"text":"a"}"#).immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    t.settled(&batch, Verb::Retry { delay: seconds(0) }).await;
    let again = t.take_over("b-1", "t-2").await;
    let letter = t.give_up(&again, "max_retries_exceeded").await;
    t.advance_s(100);
    assert_eq!(replay(t, &["b-1", "b-9"]).await, [ReplayReply::Replayed, ReplayReply::Gone]);
    let dump = t.dump_batches().await;
    assert_eq!((dump.dead.len(), dump.in_flight[0].attempt, dump.in_flight[0].replayed), (0, 0, true));
    assert_eq!(t.due_batches().await.flights, [batch_id("b-1")]);
    let sent = t.take_over("b-1", "t-3").await;
    assert_eq!((sent.attempt, &sent.messages, sent.first, sent.last), (1, &again.messages, again.first, again.last));
    assert_eq!((sent.payload, sent.reason, sent.key), (letter.payload(), again.reason, again.key));
}

pub async fn a_replay_does_not_wait_for_its_keys_order_nor_hold_it_up(t: &mut Bench) {
    t.dead_batch("k", "b-1", "rejected_404").await;
    t.accepted(message("k", "2").immediate()).await;
    let flying = t.claim_batch("k", "b-2").await;
    t.accepted(message("k", "3").immediate()).await;
    assert_eq!(replay(t, &["b-1"]).await, [ReplayReply::Replayed]);
    let replayed = t.take_over("b-1", "t-r").await;
    t.settled(&replayed, Verb::Ack).await;
    assert!(t.due_keys().await.is_empty(), "b-2 is still in flight");
    t.settled(&flying, Verb::Ack).await;
    assert_eq!(t.due_keys().await, ["k"]);
}

pub async fn a_replay_that_fails_again_is_a_dead_letter_again(t: &mut Bench) {
    t.dead_batch("k", "b-1", "rejected_404").await;
    replay(t, &["b-1"]).await;
    assert_eq!(replay(t, &["b-1"]).await, [ReplayReply::InFlight], "it is on its way");
    let batch = t.take_over("b-1", "t-2").await;
    let letter = t.give_up(&batch, "rejected_500").await;
    assert_eq!(letter.messages().len(), 1, "what it was made of is still there");
    assert_eq!(t.dump_batches().await.dead, [letter]);
    assert_eq!(replay(t, &["b-1"]).await, [ReplayReply::Replayed]);
    let batch = t.take_over("b-1", "t-3").await;
    t.settled(&batch, Verb::Ack).await;
    t.check_no_residue().await;
}

pub async fn what_cannot_be_sent_is_not_replayed_and_stays(t: &mut Bench) {
    let letter = unreadable(&t.orders(), "{oops", None, t.now());
    assert_eq!(sure(t.batches().dead_letter_add(&t.orders(), letter.clone(), None).await), DeadReply::Added);
    let replies = sure(t.batches().dead_letter_replay(&t.orders(), vec![letter.id.clone()]).await);
    assert_eq!(replies, [ReplayReply::NotReplayable]);
    assert_eq!(t.dump_batches().await.dead, [letter]);
}

pub async fn an_element_that_cannot_be_read_is_kept_once(t: &mut Bench) {
    let letter = unreadable(&t.orders(), "{oops", Some(4), t.now());
    assert_eq!(add(t, &letter, 4).await, DeadReply::Added);
    t.advance_s(3_600);
    assert_eq!(add(t, &letter, 4).await, DeadReply::Duplicate);
    assert_eq!(t.dump_batches().await.dead.len(), 1);
    assert!(matches!(t.ingest(message("k", "x").drained(4)).await, towpath_core::batch::IngestReply::Duplicate { .. }));
    t.accepted(message("k", "x").drained(5)).await;
    assert_eq!(add(t, &letter, 5).await, DeadReply::Duplicate);
}

pub async fn dropped_dead_letters_are_gone_and_each_is_dropped_once(t: &mut Bench) {
    for id in ["b-1", "b-2", "b-3"] {
        t.dead_batch("k", id, "rejected_404").await;
    }
    let ids = ["b-2", "b-2", "b-9"].map(batch_id).to_vec();
    assert_eq!(sure(t.batches().dead_letter_drop(&t.orders(), ids, "ops").await), [true, false, false]);
    assert_eq!(t.dead_ids(DeadLetterQuery::default()).await, ["b-1", "b-3"].map(batch_id));
    assert_eq!(sure(t.batches().dead_letter_clear(&t.orders(), "ops").await), 2);
    assert_eq!(sure(t.batches().dead_letter_clear(&t.orders(), "ops").await), 0);
    t.check_no_residue().await;
}

pub async fn dropping_and_clearing_touch_nothing_in_flight(t: &mut Bench) {
    t.dead_batch("k", "b-1", "rejected_404").await;
    replay(t, &["b-1"]).await;
    assert_eq!(sure(t.batches().dead_letter_clear(&t.orders(), "ops").await), 0);
    assert_eq!(sure(t.batches().dead_letter_drop(&t.orders(), vec![batch_id("b-1")], "ops").await), [false]);
    let batch = t.take_over("b-1", "t-2").await;
    assert_eq!(t.finish_batch(&batch, Verb::Ack).await, FinishReply::Done);
    assert_eq!(t.try_take_over("b-1", "t-3").await, ClaimReply::Skip(Skip::Gone));
}

pub async fn old_dead_letters_are_swept_only_when_somebody_says_how_old(t: &mut Bench) {
    let day = seconds(86_400);
    t.dead_batch("k", "b-1", "rejected_404").await;
    t.advance(day);
    t.dead_batch("k", "b-2", "rejected_404").await;
    t.advance_ms(1);
    assert_eq!(sure(t.batches().batch_sweep(&t.orders(), None).await).dead_removed, 0);
    assert_eq!(sure(t.batches().batch_sweep(&t.orders(), Some(day * 2)).await).dead_removed, 0);
    assert_eq!(sure(t.batches().batch_sweep(&t.orders(), Some(day)).await).dead_removed, 1);
    assert_eq!(t.dead_ids(DeadLetterQuery::default()).await, [batch_id("b-2")]);
}

pub async fn a_dead_letter_keeps_its_bytes(t: &mut Bench) {
    let raw = "🚢\u{0} \"\\ Разбил".repeat(2_000);
    let letter = unreadable(&t.orders(), &raw, Some(1), t.now());
    sure(t.batches().dead_letter_add(&t.orders(), letter.clone(), Some(source(1))).await);
    assert_eq!(sure(t.batches().dead_letter(&t.orders(), &letter.id).await), Some(letter));
}
