//! The promises about wake-ups: whoever sleeps hears when something is due earlier than it knows.

use towpath_core::batch::{SealVerb, Verb};

use crate::bench::{Bench, sure};
use crate::words::{MessageWords, batch_id, batcher, message, seconds};

pub async fn only_an_earlier_deadline_wakes(t: &mut Bench) {
    let mut ear = t.listen_for_due().await;
    let first = t.accepted(message("a", "1").debounce(seconds(20))).await;
    t.accepted(message("b", "1").debounce(seconds(30))).await;
    t.accepted(message("c", "1").debounce(seconds(20))).await;
    t.advance_s(1);
    t.accepted(message("a", "2").debounce(seconds(20))).await;
    let earlier = t.accepted(message("d", "1").debounce(seconds(5))).await;
    t.check_heard(&mut ear, &[first, earlier]).await;
}

pub async fn a_flush_a_retry_and_a_replay_wake(t: &mut Bench) {
    t.dead_batch("k", "b-1", "rejected_404").await;
    t.say("a", "1").await;
    let mut ear = t.listen_for_due().await;
    t.seal_batch("a", SealVerb::Flush).await;
    let flushed = t.now();
    let batch = t.claim_batch("a", "b-2").await;
    t.settled(&batch, Verb::Retry { delay: seconds(3) }).await;
    let retried = t.now() + seconds(3);
    t.advance_s(1);
    sure(t.batches().dead_letter_replay(&t.orders(), vec![batch_id("b-1")]).await);
    t.check_heard(&mut ear, &[flushed, retried, t.now()]).await;
}

pub async fn the_end_of_a_flight_wakes_for_what_gathered_meanwhile(t: &mut Bench) {
    t.accepted(message("k", "1").immediate()).await;
    let batch = t.claim_batch("k", "b-1").await;
    let mut ear = t.listen_for_due().await;
    let deadline = t.say("k", "2").await;
    t.check_heard(&mut ear, &[]).await;
    t.settled(&batch, Verb::Ack).await;
    t.check_heard(&mut ear, &[deadline]).await;
}

pub async fn each_batcher_wakes_its_own(t: &mut Bench) {
    let mut ear = t.listen_for_due().await;
    let rules = towpath_core::batch::Rules::default();
    sure(t.batches().batch_ingest(&batcher("other"), &rules, vec![message("k", "1")]).await);
    t.check_heard(&mut ear, &[]).await;
}

pub async fn typing_and_duplicates_wake_nobody(t: &mut Bench) {
    t.accepted(message("k", "1").id("m")).await;
    let mut ear = t.listen_for_due().await;
    t.advance_s(1);
    t.seal_batch("k", SealVerb::Touch { debounce: seconds(20), max_wait: seconds(300) }).await;
    t.ingest(message("k", "1").id("m")).await;
    t.check_heard(&mut ear, &[]).await;
}
