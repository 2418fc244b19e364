//! One of the two stores that are compared: it takes operations and says what came of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use towpath_core::batch::{BatcherId, ClaimReply, DeadLetter, DeadReply, ExtendReply, FinishReply, IngestReply, ReplayReply, SealReply};
use towpath_core::clock::VirtualClock;
use towpath_core::inspect::{BatchView, DeadLetterQuery};
use towpath_core::payload::Payload;
use towpath_core::store::{BatchNews, BatchStore, BatchWakes, BatcherPut, DueBatches, StoreError, StoredBatcher, Swept};
use towpath_core::time::Timestamp;

use super::op::Op;
use crate::backend::{Backend, UnderTest};
use crate::dump::BatchDump;

/// What has to come comes soon; by the wall, because only a broken store keeps it waiting.
const SOON: Duration = Duration::from_secs(10);

/// What came of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Done,
    Ingested(Vec<IngestReply>),
    Claimed(Box<ClaimReply>),
    Extended(ExtendReply),
    Finished(FinishReply),
    Sealed(SealReply),
    Due(DueBatches),
    Heard(Vec<Timestamp>),
    Swept(Swept),
    Added(DeadReply),
    Replayed(Vec<ReplayReply>),
    Dropped(Vec<bool>),
    Count(u64),
    Letters(Vec<DeadLetter>),
    Open(Option<BatchView>),
    Put(BatcherPut),
    Batchers(Vec<StoredBatcher>, u64),
    Dump(Box<BatchDump>),
    /// No operation provokes a store's trouble.
    Trouble(StoreError),
}

pub(super) struct Side {
    under_test: Box<dyn UnderTest>,
    store: Arc<dyn BatchStore>,
    batcher: BatcherId,
    ear: Box<dyn BatchWakes>,
    clock: VirtualClock,
}

impl Side {
    /// Deadlines of `batcher` are heard of.
    pub(super) async fn new(backend: &dyn Backend, batcher: &BatcherId, clock: &VirtualClock) -> Self {
        let under_test = backend.fresh(Arc::new(clock.clone())).await;
        let store = under_test.batches().expect("batches are compared only where there are any");
        let ear = listen(&store, batcher).await;
        Self { under_test, store, batcher: batcher.clone(), ear, clock: clock.clone() }
    }

    pub(super) fn store(&self) -> &dyn BatchStore {
        &*self.store
    }

    /// Does one operation. `expected` is what the model said, so that what must come can be waited for; the model itself knows at once.
    pub(super) async fn apply(&mut self, op: &Op, expected: Option<&Reply>) -> Reply {
        let reply = match op {
            Op::Reopen => {
                self.under_test.reopen().await;
                self.store = self.under_test.batches().expect("it had batches before");
                self.ear = listen(&self.store, &self.batcher).await;
                Ok(Reply::Done)
            }
            Op::Listen => {
                let wanted = if let Some(Reply::Heard(dues)) = expected { dues.as_slice() } else { &[] };
                self.heard(wanted).await
            }
            op => ask(&*self.store, &self.clock, op).await,
        };
        reply.unwrap_or_else(Reply::Trouble)
    }

    /// Hears on until all that is wanted was heard, and then whatever else is there.
    async fn heard(&mut self, wanted: &[Timestamp]) -> Result<Reply, StoreError> {
        self.store.batch_counts(&self.batcher).await?;
        let mut dues = Vec::new();
        loop {
            let next = if has_all(&dues, wanted) {
                tokio::task::unconstrained(self.ear.next()).now_or_never()
            } else {
                tokio::time::timeout(SOON, self.ear.next()).await.ok()
            };
            match next {
                Some(BatchNews::Due(at)) => dues.push(at),
                Some(BatchNews::Doubtful) => {}
                None => return Ok(Reply::Heard(dues)),
            }
        }
    }
}

/// Whether all that was meant was heard, each as often.
pub(super) fn has_all(heard: &[Timestamp], meant: &[Timestamp]) -> bool {
    let count = |dues: &[Timestamp], due: &Timestamp| dues.iter().filter(|one| *one == due).count();
    meant.iter().all(|due| count(meant, due) <= count(heard, due))
}

async fn listen(store: &Arc<dyn BatchStore>, batcher: &BatcherId) -> Box<dyn BatchWakes> {
    let ear = store.batch_wakes(batcher);
    // At rest, so that the ear is open.
    let _counts = store.batch_counts(batcher).await;
    ear
}

async fn ask(store: &dyn BatchStore, clock: &VirtualClock, op: &Op) -> Result<Reply, StoreError> {
    use towpath_core::clock::Clock;
    Ok(match op {
        Op::Ingest(batcher, rules, messages) => Reply::Ingested(store.batch_ingest(batcher, rules, messages.clone()).await?),
        Op::Claim(want) => Reply::Claimed(Box::new(store.batch_claim(want.clone()).await?)),
        Op::Reclaim(want) => Reply::Claimed(Box::new(store.batch_reclaim(want.clone()).await?)),
        Op::Extend(want) => Reply::Extended(store.batch_extend(want.clone()).await?),
        Op::Finish(want) => Reply::Finished(store.batch_finish(want.clone()).await?),
        Op::Seal(want) => Reply::Sealed(store.batch_seal(want.clone()).await?),
        Op::Due(batcher, limit) => Reply::Due(store.batch_due(batcher, *limit).await?),
        Op::Sweep(batcher, keep) => Reply::Swept(store.batch_sweep(batcher, *keep).await?),
        Op::AddDead(batcher, letter, source) => Reply::Added(store.dead_letter_add(batcher, (**letter).clone(), source.clone()).await?),
        Op::Replay(batcher, ids) => Reply::Replayed(store.dead_letter_replay(batcher, ids.clone()).await?),
        Op::Drop(batcher, ids) => Reply::Dropped(store.dead_letter_drop(batcher, ids.clone(), "random").await?),
        Op::Clear(batcher) => Reply::Count(store.dead_letter_clear(batcher, "random").await?),
        Op::DeadLetters(batcher, query) => Reply::Letters(all_pages(store, batcher, query).await?),
        Op::Dead(batcher, id) => Reply::Letters(store.dead_letter(batcher, id).await?.into_iter().collect()),
        Op::Open(batcher, key) => Reply::Open(store.open_batch(batcher, key, 0).await?),
        Op::PutBatcher(name, settings) => Reply::Put(store.put_batcher(name, Payload::from_json(settings.clone())).await?),
        Op::Batchers => Reply::Batchers(store.batchers().await?, store.batchers_changed(0, clock.now()).await?),
        Op::Dump(batcher) => Reply::Dump(Box::new(BatchDump::of(store, batcher).await)),
        // The clock is moved for both sides at once.
        Op::Advance { .. } | Op::Listen | Op::Reopen => Reply::Done,
    })
}

/// Where a page ends is the store's own affair; what is on all of them is not.
async fn all_pages(store: &dyn BatchStore, batcher: &BatcherId, query: &DeadLetterQuery) -> Result<Vec<DeadLetter>, StoreError> {
    let (mut query, mut letters) = (query.clone(), Vec::new());
    loop {
        let page = store.dead_letters(batcher, &query).await?;
        letters.extend(page.items);
        query.after = page.next;
        if query.after.is_none() {
            return Ok(letters);
        }
    }
}
