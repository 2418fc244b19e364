//! The model's batches with one bug, put in front of it: each flaw is a few lines in the move that it spoils.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use towpath_conformance::backend::{Backend, UnderTest};
use towpath_conformance::model::ModelStore;
use towpath_core::batch::{
    BatcherId, ClaimBatch, ClaimReply, DeadLetter, DeadReply, ExtendBatch, ExtendReply, FinishBatch, FinishReply, IngestReply, NewMessage,
    ReclaimBatch, ReplayReply, Rules, SealBatch, SealReply, SealVerb, Skip, SourceId, Verb,
};
use towpath_core::clock::Clock;
use towpath_core::inspect::{BatchCounts, BatchView, Cursor, CursorPage, DeadLetterQuery, FlightView, OpenBatchView};
use towpath_core::names::{BatchId, BatchKey, BatchToken, BatcherName};
use towpath_core::payload::Payload;
use towpath_core::store::{BatchNews, BatchStore, BatchWakes, BatcherPut, DueBatches, Store, StoreError, StoredBatcher, Swept};
use towpath_core::time::Timestamp;

/// What is wrong with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A message that is sent again is taken again.
    RemembersNoMessageIds,
    /// An element that is drained again is taken again.
    RemembersNoSources,
    /// Whoever was too slow settles for the one who has the batch.
    IgnoresTheToken,
    /// What gathered during a flight is forgotten when it ends.
    ArmsNothingAfterAFlight,
    /// A message moves the deadline of a batch that is closed.
    PostponesClosedBatches,
    /// What came during a flight is deleted with it, as the old worker did.
    DeletesWhatCameMeanwhile,
    /// A batch that is given up leaves no trace.
    KeepsNoDeadLetters,
    /// Nobody hears of an earlier deadline.
    WakesNobody,
    /// A batch has whatever there is.
    IgnoresTheCaps,
}

pub(crate) struct FlawedBackend(pub(crate) Option<Flaw>);

#[async_trait]
impl Backend for FlawedBackend {
    async fn fresh(&self, clock: Arc<dyn Clock>) -> Box<dyn UnderTest> {
        let store = FlawedStore { inner: ModelStore::new(Arc::clone(&clock)), clock, flaw: self.0, notes: Arc::default() };
        Box::new(FlawedUnderTest { store })
    }
}

struct FlawedUnderTest {
    store: FlawedStore,
}

#[async_trait]
impl UnderTest for FlawedUnderTest {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.inner.clone())
    }

    fn batches(&self) -> Option<Arc<dyn BatchStore>> {
        Some(Arc::new(self.store.clone()))
    }

    async fn reopen(&mut self) {
        self.store.inner = self.store.inner.reopened();
    }
}

/// What a bug needs to know.
#[derive(Default)]
struct Notes {
    tokens: BTreeMap<BatchId, BatchToken>,
    hidden: BTreeMap<(BatcherName, BatchKey), Timestamp>,
}

#[derive(Clone)]
struct FlawedStore {
    inner: ModelStore,
    clock: Arc<dyn Clock>,
    flaw: Option<Flaw>,
    notes: Arc<Mutex<Notes>>,
}

impl FlawedStore {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hide(&self, batcher: &BatcherId, key: &BatchKey, until: Timestamp) {
        self.notes().hidden.insert((batcher.name.clone(), key.clone()), until);
    }

    fn is_hidden(&self, batcher: &BatcherId, key: &BatchKey) -> bool {
        self.notes().hidden.get(&(batcher.name.clone(), key.clone())).is_some_and(|until| *until > self.clock.now())
    }

    fn note_token(&self, reply: &ClaimReply) {
        if let ClaimReply::Claimed(batch) = reply {
            self.notes().tokens.insert(batch.batch_id.clone(), batch.token.clone());
        }
    }

    async fn ingest_one(&self, batcher: &BatcherId, rules: &Rules, mut message: NewMessage) -> Result<IngestReply, StoreError> {
        if self.has(Flaw::RemembersNoMessageIds) {
            message.message_id = None;
        }
        if self.has(Flaw::RemembersNoSources) {
            message.source = None;
        }
        let (key, debounce) = (message.key.clone(), message.debounce);
        let closed = self.inner.open_batch(batcher, &key, 0).await?.is_some_and(|view| view.open.sealed);
        let mut replies = self.inner.batch_ingest(batcher, rules, vec![message]).await?;
        let mut reply = replies.remove(0);
        if let (true, true, IngestReply::Accepted { deadline, .. }) = (self.has(Flaw::PostponesClosedBatches), closed, &mut reply) {
            *deadline = self.clock.now() + debounce;
            self.hide(batcher, &key, *deadline);
        }
        Ok(reply)
    }

    /// The old worker read a list, sent it, and deleted whatever was in it by then.
    async fn delete_open(&self, batcher: &BatcherId, key: &BatchKey) -> Result<(), StoreError> {
        let seal = SealBatch { batcher: batcher.clone(), key: key.clone(), verb: SealVerb::Flush, serial: false };
        self.inner.batch_seal(seal).await?;
        let (batch_id, token) = (BatchId::new("lost").unwrap(), BatchToken::new("lost").unwrap());
        let rules = Rules { serial: false, max_messages: u64::MAX, max_bytes: u64::MAX, ..Rules::default() };
        let want = ClaimBatch { batcher: batcher.clone(), key: key.clone(), batch_id, token, lease: Duration::from_secs(1), rules };
        if let ClaimReply::Claimed(batch) = self.inner.batch_claim(want).await? {
            let done = FinishBatch { batcher: batcher.clone(), batch_id: batch.batch_id, key: None, token: batch.token, verb: Verb::Ack };
            self.inner.batch_finish(done).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl BatchStore for FlawedStore {
    async fn batch_ingest(&self, batcher: &BatcherId, rules: &Rules, messages: Vec<NewMessage>) -> Result<Vec<IngestReply>, StoreError> {
        let mut replies = Vec::new();
        for message in messages {
            replies.push(self.ingest_one(batcher, rules, message).await?);
        }
        Ok(replies)
    }

    async fn batch_claim(&self, mut want: ClaimBatch) -> Result<ClaimReply, StoreError> {
        if self.is_hidden(&want.batcher, &want.key) {
            return Ok(ClaimReply::Skip(Skip::NotDue));
        }
        if self.has(Flaw::IgnoresTheCaps) {
            (want.rules.max_messages, want.rules.max_bytes) = (u64::MAX, u64::MAX);
        }
        let reply = self.inner.batch_claim(want).await?;
        self.note_token(&reply);
        Ok(reply)
    }

    async fn batch_reclaim(&self, want: ReclaimBatch) -> Result<ClaimReply, StoreError> {
        let reply = self.inner.batch_reclaim(want).await?;
        self.note_token(&reply);
        Ok(reply)
    }

    async fn batch_extend(&self, want: ExtendBatch) -> Result<ExtendReply, StoreError> {
        self.inner.batch_extend(want).await
    }

    async fn batch_finish(&self, mut want: FinishBatch) -> Result<FinishReply, StoreError> {
        if self.has(Flaw::IgnoresTheToken) {
            let current = self.notes().tokens.get(&want.batch_id).cloned();
            want.token = current.unwrap_or(want.token);
        }
        if self.has(Flaw::KeepsNoDeadLetters) && matches!(want.verb, Verb::Dead(_)) {
            want.verb = Verb::Ack;
        }
        let flights = self.inner.batches_in_flight(&want.batcher, None, 200).await?.items;
        let key = flights.into_iter().find(|flight| flight.batch_id == want.batch_id).map(|flight| flight.key);
        let (batcher, retries) = (want.batcher.clone(), matches!(want.verb, Verb::Retry { .. } | Verb::Release));
        let reply = self.inner.batch_finish(want).await?;
        if let (FinishReply::Done, false, Some(key)) = (reply, retries, key) {
            if self.has(Flaw::DeletesWhatCameMeanwhile) {
                self.delete_open(&batcher, &key).await?;
            }
            if self.has(Flaw::ArmsNothingAfterAFlight) && self.inner.open_batch(&batcher, &key, 0).await?.is_some() {
                self.hide(&batcher, &key, Timestamp::MAX);
            }
        }
        Ok(reply)
    }

    async fn batch_seal(&self, want: SealBatch) -> Result<SealReply, StoreError> {
        self.inner.batch_seal(want).await
    }

    async fn batch_due(&self, batcher: &BatcherId, limit: usize) -> Result<DueBatches, StoreError> {
        let mut due = self.inner.batch_due(batcher, limit).await?;
        due.keys.retain(|key| !self.is_hidden(batcher, key));
        Ok(due)
    }

    fn batch_wakes(&self, batcher: &BatcherId) -> Box<dyn BatchWakes> {
        if self.has(Flaw::WakesNobody) { Box::new(Deaf) } else { self.inner.batch_wakes(batcher) }
    }

    async fn batch_sweep(&self, batcher: &BatcherId, keep_dead: Option<Duration>) -> Result<Swept, StoreError> {
        self.inner.batch_sweep(batcher, keep_dead).await
    }

    async fn dead_letter_add(&self, batcher: &BatcherId, letter: DeadLetter, source: Option<SourceId>) -> Result<DeadReply, StoreError> {
        self.inner.dead_letter_add(batcher, letter, source.filter(|_| !self.has(Flaw::RemembersNoSources))).await
    }

    async fn dead_letter_replay(&self, batcher: &BatcherId, ids: Vec<BatchId>) -> Result<Vec<ReplayReply>, StoreError> {
        self.inner.dead_letter_replay(batcher, ids).await
    }

    async fn dead_letter_drop(&self, batcher: &BatcherId, ids: Vec<BatchId>, who: &str) -> Result<Vec<bool>, StoreError> {
        self.inner.dead_letter_drop(batcher, ids, who).await
    }

    async fn dead_letter_clear(&self, batcher: &BatcherId, who: &str) -> Result<u64, StoreError> {
        self.inner.dead_letter_clear(batcher, who).await
    }

    async fn dead_letters(&self, batcher: &BatcherId, query: &DeadLetterQuery) -> Result<CursorPage<DeadLetter>, StoreError> {
        self.inner.dead_letters(batcher, query).await
    }

    async fn dead_letter(&self, batcher: &BatcherId, id: &BatchId) -> Result<Option<DeadLetter>, StoreError> {
        self.inner.dead_letter(batcher, id).await
    }

    async fn batch_counts(&self, batcher: &BatcherId) -> Result<BatchCounts, StoreError> {
        self.inner.batch_counts(batcher).await
    }

    async fn open_batches(&self, batcher: &BatcherId, after: Option<Cursor>, limit: u32) -> Result<CursorPage<OpenBatchView>, StoreError> {
        self.inner.open_batches(batcher, after, limit).await
    }

    async fn open_batch(&self, batcher: &BatcherId, key: &BatchKey, from: u64) -> Result<Option<BatchView>, StoreError> {
        self.inner.open_batch(batcher, key, from).await
    }

    async fn batches_in_flight(
        &self,
        batcher: &BatcherId,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<CursorPage<FlightView>, StoreError> {
        self.inner.batches_in_flight(batcher, after, limit).await
    }

    async fn put_batcher(&self, name: &BatcherName, settings: Payload) -> Result<BatcherPut, StoreError> {
        self.inner.put_batcher(name, settings).await
    }

    async fn batcher(&self, name: &BatcherName) -> Result<Option<StoredBatcher>, StoreError> {
        self.inner.batcher(name).await
    }

    async fn batchers(&self) -> Result<Vec<StoredBatcher>, StoreError> {
        self.inner.batchers().await
    }

    async fn batchers_changed(&self, seen: u64, until: Timestamp) -> Result<u64, StoreError> {
        self.inner.batchers_changed(seen, until).await
    }
}

/// An ear that hears nothing.
struct Deaf;

#[async_trait]
impl BatchWakes for Deaf {
    async fn next(&mut self) -> BatchNews {
        std::future::pending().await
    }
}
