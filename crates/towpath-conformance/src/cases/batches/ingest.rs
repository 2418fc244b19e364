//! The promises about taking messages: each once, in order, with the deadline that the last one sets.

use std::time::Duration;

use towpath_core::batch::{CloseReason, IngestReply, Rules};

use crate::bench::{Bench, sure, texts};
use crate::words::{MessageWords, batcher, message, seconds};

pub async fn three_messages_and_silence_are_one_batch_ten_seconds_after_the_last(t: &mut Bench) {
    t.advance_s(1);
    let first = t.now();
    for text in ["Привет", "Разбил экран", "iPhone 14"] {
        let deadline = t.say("a:telegram:1", text).await;
        assert_eq!(deadline, t.now() + seconds(10));
        t.advance_s(2);
    }
    t.advance_ms(7_999);
    assert!(t.due_keys().await.is_empty(), "a millisecond early");
    t.advance_ms(1);
    assert_eq!(t.due_keys().await, ["a:telegram:1"]);
    let batch = t.claim_batch("a:telegram:1", "b-1").await;
    assert_eq!(texts(&batch.messages), ["Привет", "Разбил экран", "iPhone 14"]);
    assert_eq!((batch.first, batch.last, batch.now), (first, first + seconds(4), first + seconds(14)));
    assert_eq!((batch.reason, batch.attempt), (CloseReason::SilenceReached, 1));
}

pub async fn a_steady_stream_closes_when_the_first_message_has_waited_the_longest_time(t: &mut Bench) {
    let first = t.now();
    let mut last = None;
    for _ in 0..75 {
        last = Some(t.ingest(message("k", "x")).await);
        t.advance_s(4);
    }
    let (deadline, reason) = (first + seconds(300), CloseReason::MaxWaitReached);
    assert_eq!(last, Some(IngestReply::Accepted { deadline, size: 75, reason }));
    assert_eq!(t.now(), deadline);
    assert_eq!(t.claim_batch("k", "b-1").await.reason, reason);
}

pub async fn each_key_has_its_own_batch_and_each_batcher_its_own_keys(t: &mut Bench) {
    t.say("a", "1").await;
    t.say("б", "2").await;
    let other = batcher("other");
    sure(t.batches().batch_ingest(&other, &Rules::default(), vec![message("a", "3")]).await);
    t.advance_s(10);
    assert_eq!(t.due_keys().await, ["a", "б"]);
    assert_eq!(texts(&t.claim_batch("a", "b-1").await.messages), ["1"]);
    assert_eq!(sure(t.batches().batch_counts(&other).await).open_messages, 1);
}

pub async fn many_messages_at_once_are_answered_one_by_one_in_order(t: &mut Bench) {
    let messages = vec![message("a", "1").id("m"), message("b", "2"), message("a", "3"), message("a", "1").id("m")];
    let replies = sure(t.batches().batch_ingest(&t.orders(), &Rules::default(), messages).await);
    let (deadline, reason) = (t.now() + seconds(10), CloseReason::SilenceReached);
    let accepted = |size| IngestReply::Accepted { deadline, size, reason };
    let duplicate = IngestReply::Duplicate { deadline: Some(deadline), size: 2 };
    assert_eq!(replies, [accepted(1), accepted(1), accepted(2), duplicate]);
    assert_eq!(t.said("a").await, ["1", "3"]);
    assert_eq!(sure(t.batches().batch_ingest(&t.orders(), &Rules::default(), Vec::new()).await), []);
}

pub async fn a_message_id_is_taken_once_until_its_time_is_over(t: &mut Bench) {
    let deadline = t.accepted(message("k", "1").id("m")).await;
    assert_eq!(t.ingest(message("k", "1").id("m")).await, IngestReply::Duplicate { deadline: Some(deadline), size: 1 });
    t.advance_s(10);
    let batch = t.claim_batch("k", "b-1").await;
    t.settled(&batch, towpath_core::batch::Verb::Ack).await;
    t.advance(seconds(3_590) - Duration::from_millis(1));
    assert_eq!(t.ingest(message("k", "1").id("m")).await, IngestReply::Duplicate { deadline: None, size: 0 });
    t.advance_ms(1);
    t.accepted(message("k", "1").id("m")).await;
}

pub async fn the_same_message_id_of_another_key_is_another_message(t: &mut Bench) {
    t.accepted(message("a", "1").id("m")).await;
    t.accepted(message("b", "2").id("m")).await;
    t.accepted(message("a:m", "3").id("x")).await;
    t.accepted(message("a", "4").id("m:x")).await;
}

pub async fn nothing_is_remembered_where_duplicates_are_taken(t: &mut Bench) {
    let rules = Rules { idempotency: Duration::ZERO, ..Rules::default() };
    t.accepted_under(rules.clone(), message("k", "1").id("m")).await;
    t.accepted_under(rules, message("k", "1").id("m")).await;
    t.accepted(message("k", "1").id("m")).await;
}

pub async fn an_element_of_a_list_is_taken_once_for_seven_days(t: &mut Bench) {
    t.accepted(message("k", "1").drained(7)).await;
    t.accepted(message("k", "1").drained(8)).await;
    t.advance(seconds(7 * 86_400) - Duration::from_millis(1));
    assert!(matches!(t.ingest(message("k", "1").drained(7)).await, IngestReply::Duplicate { .. }));
    t.advance_ms(1);
    t.accepted(message("k", "1").drained(7)).await;
}

pub async fn a_duplicate_by_one_id_does_not_use_up_the_other(t: &mut Bench) {
    t.accepted(message("k", "1").id("m")).await;
    assert!(matches!(t.ingest(message("k", "1").id("m").drained(1)).await, IngestReply::Duplicate { .. }));
    t.accepted(message("k", "2").id("n").drained(1)).await;
    assert!(matches!(t.ingest(message("k", "2").id("o").drained(1)).await, IngestReply::Duplicate { .. }));
    t.accepted(message("k", "3").id("o")).await;
}

pub async fn the_last_messages_debounce_counts_and_may_bring_the_deadline_in(t: &mut Bench) {
    t.accepted(message("k", "1").debounce(seconds(60))).await;
    t.advance_s(1);
    assert_eq!(t.accepted(message("k", "2").debounce(Duration::from_millis(1_500))).await, t.now() + Duration::from_millis(1_500));
    assert_eq!(t.accepted(message("k", "3").debounce(seconds(600))).await, t.now() + seconds(299));
}

pub async fn a_message_that_must_not_wait_closes_its_batch_at_once(t: &mut Bench) {
    t.say("k", "1").await;
    let reason = CloseReason::Immediate;
    assert_eq!(t.ingest(message("k", "2").immediate()).await, IngestReply::Accepted { deadline: t.now(), size: 2, reason });
    assert_eq!(t.claim_batch("k", "b-1").await.reason, reason);
}

pub async fn a_closed_batch_is_not_postponed_but_still_joined(t: &mut Bench) {
    t.accepted(message("k", "1").keyword()).await;
    let closed_at = t.now();
    t.advance_s(3);
    let reason = CloseReason::Keyword;
    assert_eq!(t.ingest(message("k", "2")).await, IngestReply::Accepted { deadline: closed_at, size: 2, reason });
    assert_eq!(t.ingest(message("k", "3").immediate()).await, IngestReply::Accepted { deadline: closed_at, size: 3, reason });
    let batch = t.claim_batch("k", "b-1").await;
    assert_eq!((texts(&batch.messages).join(","), batch.reason, batch.last), ("1,2,3".to_owned(), reason, t.now()));
}

pub async fn a_batch_with_all_the_messages_it_may_have_is_closed(t: &mut Bench) {
    let rules = Rules { max_messages: 2, ..Rules::default() };
    t.accepted_under(rules.clone(), message("k", "1")).await;
    let reply = t.ingest_under(&rules, message("k", "2")).await;
    assert_eq!(reply, IngestReply::Accepted { deadline: t.now(), size: 2, reason: CloseReason::MaxMessages });
}

pub async fn a_batch_with_all_the_bytes_it_may_have_is_closed(t: &mut Bench) {
    let rules = Rules { max_bytes: 10, ..Rules::default() };
    assert_eq!(t.accepted_under(rules.clone(), message("k", "ёжик!")).await, t.now() + seconds(10), "nine bytes");
    let reply = t.ingest_under(&rules, message("k", "x")).await;
    assert_eq!(reply, IngestReply::Accepted { deadline: t.now(), size: 2, reason: CloseReason::MaxBytes });
}

pub async fn a_keyword_counts_before_a_cap(t: &mut Bench) {
    let rules = Rules { max_messages: 1, max_bytes: 1, ..Rules::default() };
    let reply = t.ingest_under(&rules, message("k", "да").keyword()).await;
    assert_eq!(reply, IngestReply::Accepted { deadline: t.now(), size: 1, reason: CloseReason::Keyword });
    let reply = t.ingest_under(&rules, message("k2", "да")).await;
    assert_eq!(reply, IngestReply::Accepted { deadline: t.now(), size: 1, reason: CloseReason::MaxMessages });
}

pub async fn a_batcher_that_is_full_refuses_the_next_message_until_a_batch_leaves(t: &mut Bench) {
    let rules = Rules { max_open: 2, ..Rules::default() };
    t.accepted_under(rules.clone(), message("a", "1").id("m")).await;
    t.accepted_under(rules.clone(), message("b", "2").immediate()).await;
    assert_eq!(t.ingest_under(&rules, message("c", "3").id("n")).await, IngestReply::Full { open_messages: 2 });
    assert!(matches!(t.ingest_under(&rules, message("a", "1").id("m")).await, IngestReply::Duplicate { .. }), "that is known");
    t.claim_batch_under(rules.clone(), "b", "b-1").await;
    t.accepted_under(rules, message("c", "3").id("n")).await;
}

pub async fn messages_come_back_byte_for_byte(t: &mut Bench) {
    let long = "🚢 Разбил экран\u{0} \"\\ \u{7f}".repeat(3_500);
    assert!(long.len() > 100_000);
    let odd = ["", " ", "{\"n\": 1e400}", "null", "\u{feff}я", long.as_str()];
    for text in odd {
        t.say("ключ: %🔑", text).await;
    }
    t.advance_s(10);
    assert_eq!(texts(&t.claim_batch("ключ: %🔑", "b-1").await.messages), odd);
}
