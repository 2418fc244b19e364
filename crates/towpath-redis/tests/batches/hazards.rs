//! Keys of another kind, state that went missing, and answers that get lost.

use std::time::Duration;

use towpath_conformance::words::{MessageWords, batch_id, batch_key, batch_token, claim_batch, given_up, message, seconds};
use towpath_core::batch::{BatcherId, ClaimReply, FinishBatch, FinishReply, IngestReply, ReclaimBatch, Rules, Skip, Verb};
use towpath_core::clock::Clock;
use towpath_core::inspect::DeadLetterQuery;
use towpath_core::store::{BatchStore, InspectStore, StoreError};
use towpath_redis::RedisStore;
use towpath_redis_testing::FaultProxy;

use crate::rig::{Rig, accepted, both_layouts, check_corrupt, claimed, ingest, input_contour, open_by_clock};

/// The names of a batcher's keys: the list of a key, and what our own begin with.
fn names(of: &BatcherId) -> (&'static str, &'static str) {
    if of.name.is_input_contour() {
        ("queue:batch:", "towpath:{batch:deadlines}:")
    } else {
        ("towpath:{batch:orders:0}:m:", "towpath:{batch:orders:0}:")
    }
}

async fn claim(store: &RedisStore, of: &BatcherId, key: &str, id: &str) -> Result<ClaimReply, StoreError> {
    store.batch_claim(claim_batch(of, key, id, &Rules::default())).await
}

#[tokio::test]
async fn a_key_of_another_kind_is_named_and_nothing_of_the_message_is_kept() {
    let rig = Rig::start();
    let store = rig.store().await;
    for of in both_layouts() {
        let (list, own) = names(&of);
        rig.cli(&["SET", &format!("{list}bad"), "text"]);
        check_corrupt(ingest(&store, &of, message("bad", "1").id("m")).await, &format!("{list}bad"));
        rig.cli(&["DEL", &format!("{list}bad")]);
        rig.cli(&["SET", &format!("{own}o:bad"), "text"]);
        check_corrupt(ingest(&store, &of, message("bad", "1").id("m")).await, "bad");
        assert_eq!(rig.cli(&["EXISTS", &format!("{list}bad"), &format!("{own}i:bad:m")]), "0", "nothing was written");
        rig.cli(&["DEL", &format!("{own}o:bad")]);
        accepted(ingest(&store, &of, message("bad", "1").id("m")).await);
    }
}

#[tokio::test]
async fn one_key_of_another_kind_harms_no_message_that_goes_with_it() {
    let rig = Rig::start();
    let (store, of) = (rig.store().await, input_contour());
    rig.cli(&["SET", "queue:batch:bad", "text"]);
    let all = ["a", "bad", "b"].map(|key| message(key, "1").id("m")).to_vec();
    check_corrupt(store.batch_ingest(&of, &Rules::default(), all).await, "queue:batch:bad");
    let counts = store.batch_counts(&of).await.unwrap();
    assert_eq!((counts.open_keys, counts.open_messages), (2, 2));
    assert!(matches!(ingest(&store, &of, message("b", "1").id("m")).await, Ok(IngestReply::Duplicate { size: 1, .. })));
}

#[tokio::test]
async fn shared_keys_of_another_kind_are_named_by_every_move_and_no_batch_is_lost_to_them() {
    let rig = Rig::start();
    let (store, of) = (rig.store().await, input_contour());
    accepted(ingest(&store, &of, message("k", "1").immediate()).await);
    for key in ["dlq:input_contour", "towpath:{batch:deadlines}:n"] {
        rig.cli(&["DEL", key]);
    }
    let batch = claimed(claim(&store, &of, "k", "b-1").await);
    rig.cli(&["SET", "dlq:input_contour", "text"]);
    let letter = given_up(&of, &batch, "rejected_404", rig.clock.now());
    let settle = |verb| FinishBatch { batcher: of.clone(), batch_id: batch.batch_id.clone(), key: None, token: batch.token.clone(), verb };
    check_corrupt(store.batch_finish(settle(Verb::Dead(letter.clone()))).await, "dlq:input_contour");
    check_corrupt(store.dead_letters(&of, &DeadLetterQuery::default()).await, "dlq:input_contour");
    // Counts of all batchers are one answer: the other counts are right, and the key is named among the problems.
    let counts = store.batch_counts(&of).await.unwrap();
    assert_eq!((counts.in_flight, counts.dead_letters), (1, 0));
    let problems = store.probe().await.unwrap().problems.join("\n");
    assert!(problems.contains("the key dlq:input_contour cannot be read and is left out"), "{problems}");
    rig.cli(&["DEL", "dlq:input_contour"]);
    assert_eq!(store.batch_finish(settle(Verb::Dead(letter))).await.unwrap(), FinishReply::Done, "it was not lost");
    for key in ["batch:deadlines", "batch:first_seen", "towpath:{batch:deadlines}:fly"] {
        rig.cli(&["DEL", key]);
        rig.cli(&["SET", key, "text"]);
        check_corrupt(ingest(&store, &of, message("l", "1")).await, key);
        assert_eq!(rig.cli(&["EXISTS", "queue:batch:l"]), "0", "{key}: nothing was written");
        rig.cli(&["DEL", key]);
    }
}

#[tokio::test]
async fn a_deadline_that_went_missing_is_given_back_by_the_sweep_unless_a_batch_flies() {
    let rig = Rig::start();
    let store = rig.store().await;
    for of in both_layouts() {
        let due = if of.name.is_input_contour() { "batch:deadlines" } else { "towpath:{batch:orders:0}:due" };
        accepted(ingest(&store, &of, message("flies", "1").immediate()).await);
        claimed(claim(&store, &of, "flies", "b-1").await);
        for key in ["flies", "k", "l"] {
            accepted(ingest(&store, &of, message(key, "2")).await);
        }
        rig.cli(&["ZREM", due, "k"]);
        assert_eq!(store.batch_sweep(&of, None).await.unwrap().rearmed, 1);
        assert_eq!(store.batch_sweep(&of, None).await.unwrap().rearmed, 0);
        assert_eq!(rig.cli(&["ZRANGE", due, "0", "-1"]), "k\nl");
    }
}

#[tokio::test]
async fn state_that_was_lost_blocks_nothing_and_is_counted_no_more() {
    let rig = Rig::start();
    let store = rig.store().await;
    for of in both_layouts() {
        let (list, own) = names(&of);
        // A batch whose list somebody deleted.
        accepted(ingest(&store, &of, message("gone", "1").immediate()).await);
        rig.cli(&["DEL", &format!("{list}gone")]);
        assert_eq!(claim(&store, &of, "gone", "b-1").await, Ok(ClaimReply::Skip(Skip::Empty)));
        let counts = store.batch_counts(&of).await.unwrap();
        assert_eq!((counts.open_keys, counts.open_messages), (0, 0));
        // A list that was deleted and begins anew.
        accepted(ingest(&store, &of, message("anew", "1").immediate()).await);
        rig.cli(&["DEL", &format!("{list}anew")]);
        rig.clock.advance(seconds(1));
        let reply = ingest(&store, &of, message("anew", "2")).await.unwrap();
        assert!(matches!(reply, IngestReply::Accepted { deadline, size: 1, .. } if deadline == rig.clock.now() + seconds(10)), "{reply:?}");
        assert_eq!(store.batch_counts(&of).await.unwrap().open_messages, 1);
        // A flight of which only its place in time is left, and a marker of a batch that is gone.
        rig.cli(&["ZADD", &format!("{own}fly"), "1", "ghost"]);
        rig.cli(&["SET", &format!("{own}fl:anew"), "long-gone"]);
        let ghost = ReclaimBatch { batcher: of.clone(), batch_id: batch_id("ghost"), token: batch_token("t"), lease: seconds(60) };
        assert_eq!(store.batch_reclaim(ghost).await, Ok(ClaimReply::Skip(Skip::Gone)));
        assert_eq!(store.batch_due(&of, 10).await.unwrap().flights, []);
        rig.clock.advance(seconds(10));
        assert_eq!(claimed(claim(&store, &of, "anew", "b-2").await).messages.len(), 1);
    }
}

#[tokio::test]
async fn a_message_whose_answer_got_lost_is_taken_once_when_it_is_sent_again() {
    let rig = Rig::start();
    let proxy = FaultProxy::before(rig.server.port());
    let store = open_by_clock(&proxy.url(), &rig.clock).await;
    let of = input_contour();
    accepted(ingest(&store, &of, message("k", "0").id("0")).await);
    let mut lost = 0;
    for number in 1..=10 {
        let again = message("k", "x").id(&number.to_string());
        proxy.cut_before_answer();
        let mut reply = ingest(&store, &of, again.clone()).await;
        while let Err(error) = reply {
            assert!(!matches!(error, StoreError::Corrupt(_)), "{error}");
            lost += 1;
            reply = ingest(&store, &of, again.clone()).await;
        }
    }
    assert!(lost >= 10, "{lost} answers were lost");
    let view = store.open_batch(&of, &batch_key("k"), 0).await.unwrap().unwrap();
    assert_eq!(view.messages.len(), 11);
    assert!(Duration::ZERO < view.open.deadline.since(rig.clock.now()));
}
