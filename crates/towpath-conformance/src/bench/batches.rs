//! The verbs of batches.

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use towpath_core::batch::{
    BatcherId, ClaimBatch, ClaimReply, ClaimedBatch, DeadLetter, ExtendBatch, ExtendReply, FinishBatch, FinishReply, IngestReply,
    NewMessage, ReclaimBatch, Rules, SealBatch, SealReply, SealVerb, Skip, Verb,
};
use towpath_core::inspect::{BatchView, DeadLetterQuery};
use towpath_core::names::BatchId;
use towpath_core::store::{BatchNews, BatchStore, BatchWakes, DueBatches};
use towpath_core::time::Timestamp;

use super::{Bench, one, sure};
use crate::dump::BatchDump;
use crate::words::{BATCH_LEASE, batch_id, batch_key, batch_token, batcher, claim_batch, message};

/// What has to be heard is heard soon; by the wall, because only a broken store keeps it waiting.
const SOON: Duration = Duration::from_secs(5);

/// Gathering.
impl Bench {
    /// The store's batches, for what has no verb.
    #[track_caller]
    pub fn batches(&self) -> Arc<dyn BatchStore> {
        self.under_test.batches().expect("cases of batches run on stores that have them")
    }

    /// The batcher that cases use when they do not care which.
    pub fn orders(&self) -> BatcherId {
        BatcherId { layout: self.layout, ..batcher("orders") }
    }

    /// Sends a message under rules, and returns whatever the store says.
    pub async fn ingest_under(&self, rules: &Rules, message: NewMessage) -> IngestReply {
        one(sure(self.batches().batch_ingest(&self.orders(), rules, vec![message]).await))
    }

    /// Sends a message, and returns whatever the store says.
    pub async fn ingest(&self, message: NewMessage) -> IngestReply {
        self.ingest_under(&Rules::default(), message).await
    }

    /// Sends a message that must be accepted; returns when its batch closes.
    #[track_caller]
    pub fn accepted_under(&self, rules: Rules, message: NewMessage) -> impl Future<Output = Timestamp> {
        let at = Location::caller();
        async move {
            match self.ingest_under(&rules, message).await {
                IngestReply::Accepted { deadline, .. } => deadline,
                other => panic!("{at}: should be accepted, but: {other:?}"),
            }
        }
    }

    /// Sends a message that must be accepted; returns when its batch closes.
    #[track_caller]
    pub fn accepted(&self, message: NewMessage) -> impl Future<Output = Timestamp> {
        self.accepted_under(Rules::default(), message)
    }

    /// Says something to a key.
    #[track_caller]
    pub fn say(&self, key: &str, body: &str) -> impl Future<Output = Timestamp> {
        self.accepted(message(key, body))
    }

    /// Closes, postpones or arms an open batch.
    pub async fn seal_batch(&self, key: &str, verb: SealVerb) -> SealReply {
        let want = SealBatch { batcher: self.orders(), key: batch_key(key), verb, serial: true };
        sure(self.batches().batch_seal(want).await)
    }

    /// The open batch of a key.
    pub async fn open_batch(&self, key: &str) -> Option<BatchView> {
        sure(self.batches().open_batch(&self.orders(), &batch_key(key), 0).await)
    }

    /// What an open batch says, message by message.
    pub async fn said(&self, key: &str) -> Vec<String> {
        self.open_batch(key).await.map_or(Vec::new(), |view| texts(&view.messages))
    }
}

/// Delivering.
impl Bench {
    /// What is due.
    pub async fn due_batches(&self) -> DueBatches {
        sure(self.batches().batch_due(&self.orders(), 1_000).await)
    }

    /// The keys that are due.
    pub async fn due_keys(&self) -> Vec<String> {
        self.due_batches().await.keys.iter().map(|key| key.as_str().to_owned()).collect()
    }

    /// Claims, and returns whatever the store says.
    pub async fn try_claim_batch(&self, want: ClaimBatch) -> ClaimReply {
        sure(self.batches().batch_claim(want).await)
    }

    /// Claims the open batch of a key, which must be due.
    #[track_caller]
    pub fn claim_batch(&self, key: &str, id: &str) -> impl Future<Output = ClaimedBatch> {
        self.claim_batch_under(Rules::default(), key, id)
    }

    /// Claims the open batch of a key under rules; it must be due.
    #[track_caller]
    pub fn claim_batch_under(&self, rules: Rules, key: &str, id: &str) -> impl Future<Output = ClaimedBatch> {
        let (at, want) = (Location::caller(), ClaimBatch { rules, ..claim_batch(&self.orders(), key, id, &Rules::default()) });
        async move {
            match self.try_claim_batch(want).await {
                ClaimReply::Claimed(batch) => batch,
                ClaimReply::Skip(why) => panic!("{at}: should be claimed, but was skipped: {why:?}"),
            }
        }
    }

    /// Claims, and must be told why there is nothing.
    #[track_caller]
    pub fn check_skipped(&self, key: &str, why: Skip) -> impl Future<Output = ()> {
        let (at, want) = (Location::caller(), claim_batch(&self.orders(), key, "never", &Rules::default()));
        async move {
            let reply = self.try_claim_batch(want).await;
            assert_eq!(reply, ClaimReply::Skip(why), "{at}: should be skipped");
        }
    }

    /// Takes a batch over, under a new token, and returns whatever the store says.
    pub async fn try_take_over(&self, id: &str, token: &str) -> ClaimReply {
        let want = ReclaimBatch { batcher: self.orders(), batch_id: batch_id(id), token: batch_token(token), lease: BATCH_LEASE };
        sure(self.batches().batch_reclaim(want).await)
    }

    /// Takes a batch over that must be due.
    #[track_caller]
    pub fn take_over(&self, id: &str, token: &str) -> impl Future<Output = ClaimedBatch> {
        let (at, id, token) = (Location::caller(), id.to_owned(), token.to_owned());
        async move {
            match self.try_take_over(&id, &token).await {
                ClaimReply::Claimed(batch) => batch,
                ClaimReply::Skip(why) => panic!("{at}: should be taken over, but was skipped: {why:?}"),
            }
        }
    }

    /// Prolongs a lease by [`BATCH_LEASE`].
    pub async fn extend_batch(&self, batch: &ClaimedBatch) -> ExtendReply {
        let want = ExtendBatch { batcher: self.orders(), batch_id: batch.batch_id.clone(), token: batch.token.clone(), lease: BATCH_LEASE };
        sure(self.batches().batch_extend(want).await)
    }

    /// Settles, and returns whatever the store says.
    pub async fn finish_batch(&self, batch: &ClaimedBatch, verb: Verb) -> FinishReply {
        let want = FinishBatch {
            batcher: self.orders(),
            batch_id: batch.batch_id.clone(),
            key: Some(batch.key.clone()),
            token: batch.token.clone(),
            verb,
        };
        sure(self.batches().batch_finish(want).await)
    }

    /// Settles, and must be heard.
    #[track_caller]
    pub fn settled(&self, batch: &ClaimedBatch, verb: Verb) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move {
            let reply = self.finish_batch(batch, verb).await;
            assert_eq!(reply, FinishReply::Done, "{at}: {} should be settled", batch.batch_id);
        }
    }

    /// Gives a batch up.
    pub async fn give_up(&self, batch: &ClaimedBatch, reason: &str) -> DeadLetter {
        let letter = crate::words::given_up(&self.orders(), batch, reason, self.now());
        self.settled(batch, Verb::Dead(letter.clone())).await;
        letter
    }

    /// Gathers one message, claims it and gives it up.
    pub async fn dead_batch(&self, key: &str, id: &str, reason: &str) -> DeadLetter {
        self.accepted(crate::words::MessageWords::immediate(message(key, id))).await;
        let batch = self.claim_batch(key, id).await;
        self.give_up(&batch, reason).await
    }
}

/// Looking.
impl Bench {
    /// Everything that the batcher of the cases keeps.
    pub async fn dump_batches(&self) -> BatchDump {
        BatchDump::of(&*self.batches(), &self.orders()).await
    }

    /// Fails unless nothing at all is left of any batch.
    #[track_caller]
    pub fn check_no_residue(&self) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move {
            let dump = self.dump_batches().await;
            assert!(dump.is_empty(), "{at}: something was left behind: {dump:#?}");
        }
    }

    /// The ids of all dead letters that are meant.
    pub async fn dead_ids(&self, query: DeadLetterQuery) -> Vec<BatchId> {
        let query = DeadLetterQuery { limit: 200, ..query };
        sure(self.batches().dead_letters(&self.orders(), &query).await).items.into_iter().map(|letter| letter.id).collect()
    }

    /// Listens for deadlines from now on.
    pub async fn listen_for_due(&self) -> Box<dyn BatchWakes> {
        let ear = self.batches().batch_wakes(&self.orders());
        self.settle_batches().await;
        ear
    }

    /// Fails unless exactly these instants are heard next, and nothing else once everything has come to rest. Where an instant may be on its
    /// way for longer than it takes to begin to listen, others of before may be among them.
    #[track_caller]
    pub fn check_heard(&self, ear: &mut Box<dyn BatchWakes>, expected: &[Timestamp]) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move {
            let mut heard = Vec::new();
            while !is_among(expected, &heard) {
                match tokio::time::timeout(SOON, ear.next()).await {
                    Ok(BatchNews::Due(at)) => heard.push(at),
                    Ok(BatchNews::Doubtful) => {}
                    Err(_silence) => break,
                }
            }
            self.settle_batches().await;
            while let Some(news) = ear.next().now_or_never() {
                if let BatchNews::Due(at) = news {
                    heard.push(at);
                }
            }
            if !self.hears_exactly && is_among(expected, &heard) {
                return;
            }
            assert_eq!(heard, expected, "{at}: other instants were heard");
        }
    }

    /// Lets everything come to rest: the store has done what it was asked, and its listeners have heard.
    async fn settle_batches(&self) {
        self.settle().await;
        sure(self.batches().batch_counts(&self.orders()).await);
    }
}

/// Whether all that is expected was heard, in this order.
fn is_among(expected: &[Timestamp], heard: &[Timestamp]) -> bool {
    let mut heard = heard.iter();
    expected.iter().all(|at| heard.any(|heard| heard == at))
}

/// What messages say.
pub fn texts(messages: &[towpath_core::batch::Message]) -> Vec<String> {
    messages.iter().map(|message| String::from_utf8_lossy(message.as_bytes()).into_owned()).collect()
}
