//! The store's moves of batches, handed to the writer; what people look at, to the reader.

use std::time::Duration;

use async_trait::async_trait;
use towpath_core::batch::{
    BatcherId, ClaimBatch, ClaimReply, DeadLetter, DeadReply, ExtendBatch, ExtendReply, FinishBatch, FinishReply, IngestReply, NewMessage,
    ReclaimBatch, ReplayReply, Rules, SealBatch, SealReply, SourceId,
};
use towpath_core::inspect::{BatchCounts, BatchView, Cursor, CursorPage, DeadLetterQuery, FlightView, OpenBatchView};
use towpath_core::names::{BatchId, BatchKey, BatcherName};
use towpath_core::payload::Payload;
use towpath_core::store::{BatchStore, BatchWakes, BatcherPut, DueBatches, StoreError, StoredBatcher, Swept};
use towpath_core::time::Timestamp;

use super::{dead_letters, lists, settings};
use crate::store::SqliteStore;

#[async_trait]
impl BatchStore for SqliteStore {
    async fn batch_ingest(&self, batcher: &BatcherId, rules: &Rules, messages: Vec<NewMessage>) -> Result<Vec<IngestReply>, StoreError> {
        let (batcher, rules) = (batcher.clone(), rules.clone());
        self.make(move |tx| super::ingest_all(tx, &batcher, &rules, &messages)).await
    }

    async fn batch_claim(&self, want: ClaimBatch) -> Result<ClaimReply, StoreError> {
        self.make(move |tx| super::claim(tx, &want)).await
    }

    async fn batch_reclaim(&self, want: ReclaimBatch) -> Result<ClaimReply, StoreError> {
        self.make(move |tx| super::reclaim(tx, &want)).await
    }

    async fn batch_extend(&self, want: ExtendBatch) -> Result<ExtendReply, StoreError> {
        self.make(move |tx| super::extend(tx, &want)).await
    }

    async fn batch_finish(&self, want: FinishBatch) -> Result<FinishReply, StoreError> {
        self.make(move |tx| super::finish(tx, &want)).await
    }

    async fn batch_seal(&self, want: SealBatch) -> Result<SealReply, StoreError> {
        self.make(move |tx| super::seal(tx, &want)).await
    }

    async fn batch_due(&self, batcher: &BatcherId, limit: usize) -> Result<DueBatches, StoreError> {
        let (name, now) = (batcher.name.clone(), self.clock.now());
        self.read(move |conn| lists::due(conn, &name, limit, now)).await
    }

    fn batch_wakes(&self, batcher: &BatcherId) -> Box<dyn BatchWakes> {
        self.ears.listen_for_due(&batcher.name)
    }

    async fn batch_sweep(&self, batcher: &BatcherId, keep_dead: Option<Duration>) -> Result<Swept, StoreError> {
        let batcher = batcher.clone();
        self.make(move |tx| dead_letters::sweep(tx, &batcher, keep_dead)).await
    }

    async fn dead_letter_add(&self, batcher: &BatcherId, letter: DeadLetter, source: Option<SourceId>) -> Result<DeadReply, StoreError> {
        let batcher = batcher.clone();
        self.make(move |tx| dead_letters::add(tx, &batcher, &letter, source.as_ref())).await
    }

    async fn dead_letter_replay(&self, batcher: &BatcherId, ids: Vec<BatchId>) -> Result<Vec<ReplayReply>, StoreError> {
        let batcher = batcher.clone();
        self.make(move |tx| ids.iter().map(|id| dead_letters::replay(tx, &batcher, id)).collect()).await
    }

    async fn dead_letter_drop(&self, batcher: &BatcherId, ids: Vec<BatchId>, who: &str) -> Result<Vec<bool>, StoreError> {
        let (batcher, who) = (batcher.clone(), who.to_owned());
        self.make(move |tx| ids.iter().map(|id| dead_letters::drop_one(tx, &batcher, id, &who)).collect()).await
    }

    async fn dead_letter_clear(&self, batcher: &BatcherId, who: &str) -> Result<u64, StoreError> {
        let (batcher, who) = (batcher.clone(), who.to_owned());
        self.make(move |tx| dead_letters::clear(tx, &batcher, &who)).await
    }

    async fn dead_letters(&self, batcher: &BatcherId, query: &DeadLetterQuery) -> Result<CursorPage<DeadLetter>, StoreError> {
        let (name, query) = (batcher.name.clone(), query.clone());
        self.list(move |conn| lists::dead_letters(conn, &name, &query)).await
    }

    async fn dead_letter(&self, batcher: &BatcherId, id: &BatchId) -> Result<Option<DeadLetter>, StoreError> {
        let (name, id) = (batcher.name.clone(), id.clone());
        self.list(move |conn| lists::dead_letter(conn, &name, &id)).await
    }

    async fn batch_counts(&self, batcher: &BatcherId) -> Result<BatchCounts, StoreError> {
        let name = batcher.name.clone();
        self.list(move |conn| lists::counts(conn, &name)).await
    }

    async fn open_batches(&self, batcher: &BatcherId, after: Option<Cursor>, limit: u32) -> Result<CursorPage<OpenBatchView>, StoreError> {
        let name = batcher.name.clone();
        self.list(move |conn| lists::open_batches(conn, &name, after.as_ref(), limit)).await
    }

    async fn open_batch(&self, batcher: &BatcherId, key: &BatchKey, from: u64) -> Result<Option<BatchView>, StoreError> {
        let (name, key) = (batcher.name.clone(), key.clone());
        self.list(move |conn| lists::open_batch(conn, &name, &key, from)).await
    }

    async fn batches_in_flight(
        &self,
        batcher: &BatcherId,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<CursorPage<FlightView>, StoreError> {
        let name = batcher.name.clone();
        self.list(move |conn| lists::in_flight(conn, &name, after.as_ref(), limit)).await
    }

    async fn put_batcher(&self, name: &BatcherName, settings: Payload) -> Result<BatcherPut, StoreError> {
        let name = name.clone();
        self.make(move |tx| settings::put(tx, &name, &settings)).await
    }

    async fn batcher(&self, name: &BatcherName) -> Result<Option<StoredBatcher>, StoreError> {
        let name = name.clone();
        self.read(move |conn| settings::load(conn, &name)).await
    }

    async fn batchers(&self) -> Result<Vec<StoredBatcher>, StoreError> {
        self.read(settings::all).await
    }

    async fn batchers_changed(&self, seen: u64, until: Timestamp) -> Result<u64, StoreError> {
        let mut changes = self.batchers.clone();
        tokio::select! {
            biased;
            changed = changes.wait_for(|version| *version != seen) => changed.map(|version| *version).map_err(|_| self.gone()),
            () = self.clock.sleep_until(until) => Ok(seen),
        }
    }
}
