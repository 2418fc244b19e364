//! The promises about settling: only by the right, once, and what gathered meanwhile gets its turn.

use std::time::Duration;

use towpath_core::batch::{ClaimReply, ClaimedBatch, DeadLetter, FinishReply, Skip, Verb};

use crate::bench::{Bench, texts};
use crate::words::{MessageWords, batch_token, given_up, message, seconds};

pub async fn what_was_delivered_is_gone_with_all_that_belonged_to_it(t: &mut Bench) {
    t.accepted(message("k", "1").id("m").immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    t.settled(&batch, Verb::Ack).await;
    t.check_no_residue().await;
    assert_eq!(t.finish_batch(&batch, Verb::Ack).await, FinishReply::Lost, "it was settled before");
}

pub async fn only_the_current_token_settles(t: &mut Bench) {
    t.accepted(message("k", "1").immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    let stranger = ClaimedBatch { token: batch_token("guess"), ..batch.clone() };
    let before = t.dump_batches().await;
    for verb in [Verb::Ack, Verb::Retry { delay: Duration::ZERO }, Verb::Release, dead(t, &batch)] {
        assert_eq!(t.finish_batch(&stranger, verb).await, FinishReply::Lost);
    }
    assert_eq!(t.dump_batches().await, before, "nothing was touched");
    t.settled(&batch, Verb::Ack).await;
}

fn dead(t: &Bench, batch: &ClaimedBatch) -> Verb {
    Verb::Dead(given_up(&t.orders(), batch, "rejected_404", t.now()))
}

pub async fn a_retry_is_due_after_its_wait_and_not_before_and_nobody_holds_it(t: &mut Bench) {
    t.accepted(message("k", "1").immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    t.settled(&batch, Verb::Retry { delay: seconds(5) }).await;
    assert_eq!(t.finish_batch(&batch, Verb::Ack).await, FinishReply::Lost, "the right ended with the retry");
    t.advance_ms(4_999);
    assert_eq!(t.try_take_over("b-1", "t-2").await, ClaimReply::Skip(Skip::NotDue));
    t.advance_ms(1);
    let again = t.take_over("b-1", "t-2").await;
    assert_eq!((again.attempt, texts(&again.messages)), (2, vec!["1".to_owned()]));
    t.settled(&again, Verb::Retry { delay: Duration::ZERO }).await;
    assert_eq!(t.take_over("b-1", "t-3").await.attempt, 3);
}

pub async fn a_batch_that_is_given_back_is_due_at_once_and_its_attempt_does_not_count(t: &mut Bench) {
    t.accepted(message("k", "1").immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    t.settled(&batch, Verb::Release).await;
    assert_eq!(t.finish_batch(&batch, Verb::Ack).await, FinishReply::Lost, "the right ended with the release");
    t.accepted(message("k", "2").immediate()).await;
    assert!(t.due_keys().await.is_empty(), "it holds back the next of its key");
    let again = t.take_over("b-1", "t-2").await;
    assert_eq!((again.attempt, texts(&again.messages)), (1, vec!["1".to_owned()]));
    t.settled(&again, Verb::Retry { delay: Duration::ZERO }).await;
    let third = t.take_over("b-1", "t-3").await;
    t.settled(&third, Verb::Release).await;
    assert_eq!(t.take_over("b-1", "t-4").await.attempt, 2, "earlier attempts still count");
}

pub async fn a_retrying_batch_holds_back_the_next_of_its_key_only(t: &mut Bench) {
    for key in ["a", "b"] {
        t.accepted(message(key, "1").immediate()).await;
    }
    let first = t.claim_batch("a", "b-1").await;
    t.settled(&first, Verb::Retry { delay: seconds(60) }).await;
    t.accepted(message("a", "2").immediate()).await;
    assert_eq!(t.due_keys().await, ["b"]);
    t.advance_s(60);
    let again = t.take_over("b-1", "t-2").await;
    assert_eq!(t.due_keys().await, ["b"]);
    t.settled(&again, Verb::Ack).await;
    assert_eq!(t.due_keys().await, ["a", "b"]);
}

pub async fn what_gathered_meanwhile_keeps_its_own_deadline(t: &mut Bench) {
    t.accepted(message("k", "1").immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    t.advance_s(1);
    let deadline = t.say("k", "2").await;
    t.advance_s(1);
    t.settled(&batch, Verb::Ack).await;
    let due = t.due_batches().await;
    assert_eq!((due.keys.len(), due.next), (0, Some(deadline)));
}

pub async fn a_batch_that_is_given_up_is_a_dead_letter_and_nowhere_else(t: &mut Bench) {
    t.accepted(message("k", r#"{"text":"я"}"#).immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    t.accepted(message("k", "next").immediate()).await;
    let letter = t.give_up(&batch, "max_retries_exceeded").await;
    let dump = t.dump_batches().await;
    assert_eq!((dump.dead, dump.in_flight.len()), (vec![letter.clone()], 0));
    assert_eq!(DeadLetter::parse(letter.entry.as_str().to_owned()), letter);
    assert_eq!(t.due_keys().await, ["k"], "the next batch has its turn");
    assert_eq!(t.finish_batch(&batch, Verb::Ack).await, FinishReply::Lost);
}

pub async fn settling_needs_no_key_to_be_named(t: &mut Bench) {
    t.accepted(message("k", "1").immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    t.accepted(message("k", "2").immediate()).await;
    let want = towpath_core::batch::FinishBatch {
        batcher: t.orders(),
        batch_id: batch.batch_id.clone(),
        key: None,
        token: batch.token.clone(),
        verb: Verb::Ack,
    };
    assert_eq!(crate::bench::sure(t.batches().batch_finish(want).await), FinishReply::Done);
    assert_eq!(t.due_keys().await, ["k"]);
}
