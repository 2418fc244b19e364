//! The promises about closing, postponing and arming an open batch without a message.

use towpath_core::batch::{CloseReason, SealReply, SealVerb, Verb};

use crate::bench::Bench;
use crate::words::{MessageWords, message, seconds};

const TOUCH: SealVerb = SealVerb::Touch { debounce: seconds(10), max_wait: seconds(30) };

pub async fn a_flushed_batch_is_due_at_once_and_says_why(t: &mut Bench) {
    t.say("k", "1").await;
    t.say("k", "2").await;
    assert_eq!(t.seal_batch("k", SealVerb::Flush).await, SealReply::Flushed { size: 2 });
    assert_eq!(t.due_keys().await, ["k"]);
    assert_eq!(t.claim_batch("k", "b-1").await.reason, CloseReason::Flush);
}

pub async fn what_is_closed_is_neither_flushed_nor_postponed_again(t: &mut Bench) {
    t.accepted(message("k", "1").keyword()).await;
    let deadline = t.now();
    t.advance_s(1);
    assert_eq!(t.seal_batch("k", SealVerb::Flush).await, SealReply::Sealed { deadline });
    assert_eq!(t.seal_batch("k", TOUCH).await, SealReply::Sealed { deadline });
    assert_eq!(t.claim_batch("k", "b-1").await.reason, CloseReason::Keyword);
}

pub async fn where_nothing_is_open_there_is_nothing_to_close(t: &mut Bench) {
    for verb in [SealVerb::Flush, TOUCH, SealVerb::Rearm] {
        assert_eq!(t.seal_batch("k", verb).await, SealReply::Empty);
    }
    t.accepted(message("k", "1").immediate()).await;
    t.claim_batch("k", "b-1").await;
    for verb in [SealVerb::Flush, TOUCH, SealVerb::Rearm] {
        assert_eq!(t.seal_batch("k", verb).await, SealReply::Empty, "what is in flight is not open");
    }
}

pub async fn a_sender_that_types_is_waited_for_but_not_beyond_the_longest_wait(t: &mut Bench) {
    let first = t.now();
    t.say("k", "1").await;
    t.advance_s(8);
    assert_eq!(t.seal_batch("k", TOUCH).await, SealReply::Touched { deadline: first + seconds(18) });
    t.advance_s(8);
    assert_eq!(t.seal_batch("k", TOUCH).await, SealReply::Touched { deadline: first + seconds(26) });
    t.advance_s(8);
    assert_eq!(t.seal_batch("k", TOUCH).await, SealReply::Touched { deadline: first + seconds(30) });
    assert_eq!(t.due_batches().await.next, Some(first + seconds(30)));
    t.advance_s(6);
    assert_eq!(t.claim_batch("k", "b-1").await.reason, CloseReason::MaxWaitReached);
}

pub async fn typing_never_brings_a_deadline_in(t: &mut Bench) {
    let deadline = t.accepted(message("k", "1").debounce(seconds(60))).await;
    assert_eq!(t.seal_batch("k", TOUCH).await, SealReply::Touched { deadline });
    assert_eq!(t.open_batch("k").await.expect("it is open").open.reason, CloseReason::SilenceReached);
}

pub async fn a_batch_that_is_closed_while_another_flies_waits_its_turn(t: &mut Bench) {
    t.accepted(message("k", "1").immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    t.say("k", "2").await;
    assert_eq!(t.seal_batch("k", SealVerb::Flush).await, SealReply::Flushed { size: 1 });
    assert_eq!(t.seal_batch("k", SealVerb::Rearm).await, SealReply::InFlight);
    assert!(t.due_keys().await.is_empty());
    t.settled(&batch, Verb::Ack).await;
    assert_eq!(t.due_keys().await, ["k"]);
    assert_eq!(t.claim_batch("k", "b-2").await.reason, CloseReason::Flush);
}

pub async fn arming_what_is_armed_changes_nothing(t: &mut Bench) {
    let deadline = t.say("k", "1").await;
    let before = t.dump_batches().await;
    assert_eq!(t.seal_batch("k", SealVerb::Rearm).await, SealReply::Rearmed { deadline });
    assert_eq!(t.dump_batches().await, before);
    let swept = crate::bench::sure(t.batches().batch_sweep(&t.orders(), None).await);
    assert_eq!((swept.rearmed, t.dump_batches().await), (0, before));
}
