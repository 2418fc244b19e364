//! The moves of batches, listened to.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use towpath_core::batch::{
    BatcherId, ClaimBatch, ClaimReply, DeadLetter, DeadReply, ExtendBatch, ExtendReply, FinishBatch, FinishReply, IngestReply, NewMessage,
    ReclaimBatch, ReplayReply, Rules, SealBatch, SealReply, SourceId, Verb,
};
use towpath_core::inspect::{BatchCounts, BatchView, Cursor, CursorPage, DeadLetterQuery, FlightView, OpenBatchView};
use towpath_core::names::{BatchId, BatchKey, BatcherName};
use towpath_core::payload::Payload;
use towpath_core::store::{BatchStore, BatchWakes, BatcherPut, DueBatches, StoreError, StoredBatcher, Swept};
use towpath_core::time::Timestamp;

use super::{ObservedStore, Observer};

/// A store of batches with an ear at its door: the same as that of the store beside it.
pub(crate) struct ObservedBatches {
    store: Arc<dyn BatchStore>,
    ear: Arc<ObservedStore>,
}

impl ObservedBatches {
    pub(crate) fn new(store: Arc<dyn BatchStore>, ear: Arc<ObservedStore>) -> Self {
        Self { store, ear }
    }

    fn observer(&self) -> &dyn Observer {
        self.ear.observer()
    }

    fn heard<T>(&self, reply: Result<T, StoreError>) -> Result<T, StoreError> {
        self.ear.heard(reply)
    }
}

#[async_trait]
impl BatchStore for ObservedBatches {
    async fn batch_ingest(&self, batcher: &BatcherId, rules: &Rules, messages: Vec<NewMessage>) -> Result<Vec<IngestReply>, StoreError> {
        let replies = self.heard(self.store.batch_ingest(batcher, rules, messages).await)?;
        for reply in &replies {
            self.observer().batch_ingested(&batcher.name, reply);
        }
        Ok(replies)
    }

    async fn batch_claim(&self, want: ClaimBatch) -> Result<ClaimReply, StoreError> {
        let name = want.batcher.name.clone();
        let reply = self.heard(self.store.batch_claim(want).await)?;
        if let ClaimReply::Claimed(batch) = &reply {
            self.observer().batch_closed(&name, batch);
        }
        Ok(reply)
    }

    async fn batch_reclaim(&self, want: ReclaimBatch) -> Result<ClaimReply, StoreError> {
        let name = want.batcher.name.clone();
        let reply = self.heard(self.store.batch_reclaim(want).await)?;
        if let ClaimReply::Claimed(_) = &reply {
            self.observer().batch_reclaimed(&name);
        }
        Ok(reply)
    }

    async fn batch_extend(&self, want: ExtendBatch) -> Result<ExtendReply, StoreError> {
        let name = want.batcher.name.clone();
        let reply = self.heard(self.store.batch_extend(want).await)?;
        if reply == ExtendReply::Lost {
            self.observer().batch_token_stale(&name);
        }
        Ok(reply)
    }

    async fn batch_finish(&self, want: FinishBatch) -> Result<FinishReply, StoreError> {
        let (name, verb) = (want.batcher.name.clone(), want.verb.clone());
        let reply = self.heard(self.store.batch_finish(want).await)?;
        match (reply, verb) {
            (FinishReply::Lost, _) => self.observer().batch_token_stale(&name),
            (FinishReply::Done, Verb::Ack | Verb::Release) => {}
            (FinishReply::Done, Verb::Retry { .. }) => self.observer().batch_retried(&name),
            (FinishReply::Done, Verb::Dead(letter)) => self.observer().batch_dead(&name, letter.reason.as_deref().unwrap_or("unknown")),
        }
        Ok(reply)
    }

    async fn batch_seal(&self, want: SealBatch) -> Result<SealReply, StoreError> {
        self.heard(self.store.batch_seal(want).await)
    }

    async fn batch_due(&self, batcher: &BatcherId, limit: usize) -> Result<DueBatches, StoreError> {
        self.heard(self.store.batch_due(batcher, limit).await)
    }

    fn batch_wakes(&self, batcher: &BatcherId) -> Box<dyn BatchWakes> {
        self.store.batch_wakes(batcher)
    }

    async fn batch_sweep(&self, batcher: &BatcherId, keep_dead: Option<Duration>) -> Result<Swept, StoreError> {
        self.heard(self.store.batch_sweep(batcher, keep_dead).await)
    }

    async fn dead_letter_add(&self, batcher: &BatcherId, letter: DeadLetter, source: Option<SourceId>) -> Result<DeadReply, StoreError> {
        let reason = letter.reason.clone();
        let reply = self.heard(self.store.dead_letter_add(batcher, letter, source).await)?;
        if reply == DeadReply::Added {
            self.observer().batch_dead(&batcher.name, reason.as_deref().unwrap_or("unknown"));
        }
        Ok(reply)
    }

    async fn dead_letter_replay(&self, batcher: &BatcherId, ids: Vec<BatchId>) -> Result<Vec<ReplayReply>, StoreError> {
        self.heard(self.store.dead_letter_replay(batcher, ids).await)
    }

    async fn dead_letter_drop(&self, batcher: &BatcherId, ids: Vec<BatchId>, who: &str) -> Result<Vec<bool>, StoreError> {
        self.heard(self.store.dead_letter_drop(batcher, ids, who).await)
    }

    async fn dead_letter_clear(&self, batcher: &BatcherId, who: &str) -> Result<u64, StoreError> {
        self.heard(self.store.dead_letter_clear(batcher, who).await)
    }

    async fn dead_letters(&self, batcher: &BatcherId, query: &DeadLetterQuery) -> Result<CursorPage<DeadLetter>, StoreError> {
        self.heard(self.store.dead_letters(batcher, query).await)
    }

    async fn dead_letter(&self, batcher: &BatcherId, id: &BatchId) -> Result<Option<DeadLetter>, StoreError> {
        self.heard(self.store.dead_letter(batcher, id).await)
    }

    async fn batch_counts(&self, batcher: &BatcherId) -> Result<BatchCounts, StoreError> {
        self.heard(self.store.batch_counts(batcher).await)
    }

    async fn open_batches(&self, batcher: &BatcherId, after: Option<Cursor>, limit: u32) -> Result<CursorPage<OpenBatchView>, StoreError> {
        self.heard(self.store.open_batches(batcher, after, limit).await)
    }

    async fn open_batch(&self, batcher: &BatcherId, key: &BatchKey, from: u64) -> Result<Option<BatchView>, StoreError> {
        self.heard(self.store.open_batch(batcher, key, from).await)
    }

    async fn batches_in_flight(
        &self,
        batcher: &BatcherId,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<CursorPage<FlightView>, StoreError> {
        self.heard(self.store.batches_in_flight(batcher, after, limit).await)
    }

    async fn put_batcher(&self, name: &BatcherName, settings: Payload) -> Result<BatcherPut, StoreError> {
        self.heard(self.store.put_batcher(name, settings).await)
    }

    async fn batcher(&self, name: &BatcherName) -> Result<Option<StoredBatcher>, StoreError> {
        self.heard(self.store.batcher(name).await)
    }

    async fn batchers(&self) -> Result<Vec<StoredBatcher>, StoreError> {
        self.heard(self.store.batchers().await)
    }

    async fn batchers_changed(&self, seen: u64, until: Timestamp) -> Result<u64, StoreError> {
        self.heard(self.store.batchers_changed(seen, until).await)
    }
}
