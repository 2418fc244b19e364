//! The promises about a store that was stopped and opened again.

use towpath_core::batch::{IngestReply, Verb};

use crate::bench::{Bench, sure, texts};
use crate::words::{BATCH_LEASE, MessageWords, batcher, json, message};

pub async fn everything_is_as_it_was_after_a_restart(t: &mut Bench) {
    t.dead_batch("k", "b-1", "rejected_404").await;
    t.accepted(message("k", "1").id("m").immediate()).await;
    let batch = t.claim_batch("k", "b-2").await;
    t.accepted(message("k", "2").drained(3)).await;
    t.say("l", "3").await;
    let name = batcher("orders").name;
    let put = sure(t.batches().put_batcher(&name, json(r#"{"serial": false}"#)).await);
    let before = t.dump_batches().await;
    t.reopen().await;
    assert_eq!(t.dump_batches().await, before);
    assert!(matches!(t.ingest(message("k", "1").id("m")).await, IngestReply::Duplicate { .. }));
    assert!(matches!(t.ingest(message("k", "2").drained(3)).await, IngestReply::Duplicate { .. }));
    t.settled(&batch, Verb::Ack).await;
    assert_eq!(sure(t.batches().batcher(&name).await), Some(put.stored.clone()));
    assert_eq!(sure(t.batches().batchers_changed(0, t.now()).await), put.stored.version);
}

pub async fn a_batch_whose_dispatcher_died_with_the_store_is_taken_over(t: &mut Bench) {
    t.accepted(message("k", "1").immediate()).await;
    t.claim_batch("k", "b-1").await;
    t.reopen().await;
    t.advance(BATCH_LEASE);
    let batch = t.take_over("b-1", "t-2").await;
    assert_eq!((batch.attempt, texts(&batch.messages)), (2, vec!["1".to_owned()]));
}

pub async fn a_listener_after_a_restart_hears_of_deadlines(t: &mut Bench) {
    t.reopen().await;
    let mut ear = t.listen_for_due().await;
    let deadline = t.say("k", "1").await;
    t.check_heard(&mut ear, &[deadline]).await;
}
