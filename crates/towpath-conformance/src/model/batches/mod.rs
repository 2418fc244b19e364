//! Batches.
//!
//! - Each move is the pure function of the same name on what is kept of its key; whoever sleeps is woken within the transition.
//! - Which batch of a key is in flight is seen from the flights themselves, so nothing can be left behind that blocks a key.
//! - An id that a batch in flight has is not given to another.
//! - What is open counts until it is claimed; what is in flight has left.

mod lists;
mod records;
mod settings;

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

use super::{ModelStore, State};
pub(super) use records::BatchRecords;
use records::Batcher;

/// What a move answers, and when something is due because of it.
type Woken<R> = (R, Option<Timestamp>);

impl ModelStore {
    /// One move of a batcher. Whoever sleeps is told within it.
    fn put_batch<R>(&self, batcher: &BatcherId, step: impl FnOnce(&mut Batcher, Timestamp) -> Woken<R>) -> R {
        self.transition(|state, now| {
            let (reply, wake) = step(state.records.batches.batcher_mut(&batcher.name), now);
            if let Some(at) = wake {
                state.ears.tell_due(&batcher.name, at);
            }
            reply
        })
    }

    /// A look at a batcher.
    fn see_batches<R>(&self, batcher: &BatcherId, at: impl FnOnce(&Batcher, Timestamp) -> R) -> R {
        self.look(|state: &mut State, now| at(state.records.batches.batcher_mut(&batcher.name), now))
    }
}

#[async_trait]
impl BatchStore for ModelStore {
    async fn batch_ingest(&self, batcher: &BatcherId, rules: &Rules, messages: Vec<NewMessage>) -> Result<Vec<IngestReply>, StoreError> {
        let ingest = |message| self.put_batch(batcher, |kept, now| kept.ingest(message, rules, now));
        Ok(messages.into_iter().map(ingest).collect())
    }

    async fn batch_claim(&self, want: ClaimBatch) -> Result<ClaimReply, StoreError> {
        Ok(self.put_batch(&want.batcher, |kept, now| (kept.claim(&want, now), None)))
    }

    async fn batch_reclaim(&self, want: ReclaimBatch) -> Result<ClaimReply, StoreError> {
        Ok(self.put_batch(&want.batcher, |kept, now| (kept.reclaim(&want, now), None)))
    }

    async fn batch_extend(&self, want: ExtendBatch) -> Result<ExtendReply, StoreError> {
        Ok(self.put_batch(&want.batcher, |kept, now| (kept.extend(&want, now), None)))
    }

    async fn batch_finish(&self, want: FinishBatch) -> Result<FinishReply, StoreError> {
        Ok(self.put_batch(&want.batcher, |kept, now| kept.finish(&want, now)))
    }

    async fn batch_seal(&self, want: SealBatch) -> Result<SealReply, StoreError> {
        Ok(self.put_batch(&want.batcher, |kept, now| kept.seal(&want, now)))
    }

    async fn batch_due(&self, batcher: &BatcherId, limit: usize) -> Result<DueBatches, StoreError> {
        Ok(self.see_batches(batcher, |kept, now| kept.due(limit, now)))
    }

    fn batch_wakes(&self, batcher: &BatcherId) -> Box<dyn BatchWakes> {
        Box::new(self.look(|state, _| state.ears.listen_for_due(&batcher.name)))
    }

    async fn batch_sweep(&self, batcher: &BatcherId, keep_dead: Option<Duration>) -> Result<Swept, StoreError> {
        Ok(self.put_batch(batcher, |kept, now| (kept.sweep(keep_dead, now), None)))
    }

    async fn dead_letter_add(&self, batcher: &BatcherId, letter: DeadLetter, source: Option<SourceId>) -> Result<DeadReply, StoreError> {
        Ok(self.put_batch(batcher, |kept, now| (kept.add_dead(letter, source.as_ref(), now), None)))
    }

    async fn dead_letter_replay(&self, batcher: &BatcherId, ids: Vec<BatchId>) -> Result<Vec<ReplayReply>, StoreError> {
        Ok(ids.iter().map(|id| self.put_batch(batcher, |kept, now| kept.replay(id, now))).collect())
    }

    async fn dead_letter_drop(&self, batcher: &BatcherId, ids: Vec<BatchId>, _who: &str) -> Result<Vec<bool>, StoreError> {
        Ok(self.put_batch(batcher, |kept, _| (ids.iter().map(|id| kept.take_dead(id).is_some()).collect(), None)))
    }

    async fn dead_letter_clear(&self, batcher: &BatcherId, _who: &str) -> Result<u64, StoreError> {
        Ok(self.put_batch(batcher, |kept, _| (kept.clear_dead(), None)))
    }

    async fn dead_letters(&self, batcher: &BatcherId, query: &DeadLetterQuery) -> Result<CursorPage<DeadLetter>, StoreError> {
        Ok(self.see_batches(batcher, |kept, _| kept.dead_letters(query)))
    }

    async fn dead_letter(&self, batcher: &BatcherId, id: &BatchId) -> Result<Option<DeadLetter>, StoreError> {
        Ok(self.see_batches(batcher, |kept, _| kept.dead_letter(id)))
    }

    async fn batch_counts(&self, batcher: &BatcherId) -> Result<BatchCounts, StoreError> {
        Ok(self.see_batches(batcher, |kept, _| kept.counts()))
    }

    async fn open_batches(&self, batcher: &BatcherId, after: Option<Cursor>, limit: u32) -> Result<CursorPage<OpenBatchView>, StoreError> {
        Ok(self.see_batches(batcher, |kept, _| kept.open_batches(after.as_ref(), limit)))
    }

    async fn open_batch(&self, batcher: &BatcherId, key: &BatchKey, from: u64) -> Result<Option<BatchView>, StoreError> {
        Ok(self.see_batches(batcher, |kept, _| kept.open_batch(key, from)))
    }

    async fn batches_in_flight(
        &self,
        batcher: &BatcherId,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<CursorPage<FlightView>, StoreError> {
        Ok(self.see_batches(batcher, |kept, _| kept.in_flight(after.as_ref(), limit)))
    }

    async fn put_batcher(&self, name: &BatcherName, settings: Payload) -> Result<BatcherPut, StoreError> {
        Ok(self.transition(|state, now| state.records.batches.put_settings(name, settings, now)))
    }

    async fn batcher(&self, name: &BatcherName) -> Result<Option<StoredBatcher>, StoreError> {
        Ok(self.look(|state, _| state.records.batches.settings(name)))
    }

    async fn batchers(&self) -> Result<Vec<StoredBatcher>, StoreError> {
        Ok(self.look(|state, _| state.records.batches.all_settings()))
    }

    async fn batchers_changed(&self, seen: u64, until: Timestamp) -> Result<u64, StoreError> {
        let version = |state: &State| state.records.batches.settings_version();
        let changed = self.look_until(Some(until), |state, _| Some(version(state)).filter(|now| *now != seen));
        Ok(changed.await.unwrap_or(seen))
    }
}
