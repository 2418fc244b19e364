//! The moves of batches. One method is one atomic transition, decided by its namesake in [`batch`](crate::batch).
//!
//! A store keeps no settings that it would decide by: the [`Rules`] of a batcher come along with each command. What it keeps under
//! [`BatchStore::put_batcher`] is for the servers, who all follow it.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::StoreError;
use crate::batch::{
    BatcherId, ClaimBatch, ClaimReply, DeadLetter, DeadReply, ExtendBatch, ExtendReply, FinishBatch, FinishReply, IngestReply, NewMessage,
    ReclaimBatch, ReplayReply, Rules, SealBatch, SealReply, SourceId,
};
use crate::inspect::{BatchCounts, BatchView, Cursor, CursorPage, DeadLetterQuery, FlightView, OpenBatchView};
use crate::names::{BatchId, BatchKey, BatcherName};
use crate::payload::Payload;
use crate::time::Timestamp;

/// The moves of batches.
#[async_trait]
pub trait BatchStore: Send + Sync {
    /// Takes messages of one batcher: one reply each, in order. Each is its own transition, decided by [`batch::ingest`](crate::batch::ingest);
    /// a store may keep many with one commit or one round trip. When the reply as a whole is lost, repeat it under the same message ids.
    async fn batch_ingest(&self, batcher: &BatcherId, rules: &Rules, messages: Vec<NewMessage>) -> Result<Vec<IngestReply>, StoreError>;

    /// Closes a due batch and leases it. Decided by [`batch::claim`](crate::batch::claim).
    async fn batch_claim(&self, want: ClaimBatch) -> Result<ClaimReply, StoreError>;

    /// Takes over a batch whose lease ended or whose retry is due. Decided by [`batch::reclaim`](crate::batch::reclaim).
    async fn batch_reclaim(&self, want: ReclaimBatch) -> Result<ClaimReply, StoreError>;

    /// Prolongs a lease, or says that it is lost. Decided by [`batch::extend`](crate::batch::extend).
    async fn batch_extend(&self, want: ExtendBatch) -> Result<ExtendReply, StoreError>;

    /// Settles a batch: with a dead letter, that is kept and the batch removed in one move. Decided by [`batch::finish`](crate::batch::finish).
    async fn batch_finish(&self, want: FinishBatch) -> Result<FinishReply, StoreError>;

    /// Closes an open batch, postpones it, or arms it again. Decided by [`batch::seal`](crate::batch::seal).
    async fn batch_seal(&self, want: SealBatch) -> Result<SealReply, StoreError>;

    /// What is due by the store's clock: at most `limit` keys and at most `limit` flights, earliest first, at one instant by name.
    async fn batch_due(&self, batcher: &BatcherId, limit: usize) -> Result<DueBatches, StoreError>;

    /// Hears when something is due earlier than before, from this moment on.
    fn batch_wakes(&self, batcher: &BatcherId) -> Box<dyn BatchWakes>;

    /// Arms what lost its deadline, and forgets what is over: ids that count no more, dead letters older than `keep_dead`.
    async fn batch_sweep(&self, batcher: &BatcherId, keep_dead: Option<Duration>) -> Result<Swept, StoreError>;

    /// Keeps a dead letter that never was a batch. With a source, the same element is kept once.
    async fn dead_letter_add(&self, batcher: &BatcherId, letter: DeadLetter, source: Option<SourceId>) -> Result<DeadReply, StoreError>;

    /// Puts dead letters back in flight, as [`DeadLetter::flight`] says. One reply per id, in order. Whether a batch is in flight is looked
    /// at first, then whether there is such an entry, then whether it can be sent.
    async fn dead_letter_replay(&self, batcher: &BatcherId, ids: Vec<BatchId>) -> Result<Vec<ReplayReply>, StoreError>;

    /// Drops dead letters; `true` for each that was there. `who` is kept on record.
    async fn dead_letter_drop(&self, batcher: &BatcherId, ids: Vec<BatchId>, who: &str) -> Result<Vec<bool>, StoreError>;

    /// Drops all dead letters of a batcher, and says how many there were. `who` is kept on record.
    async fn dead_letter_clear(&self, batcher: &BatcherId, who: &str) -> Result<u64, StoreError>;

    /// Dead letters in the order in which they came, or the other way round. A page ends with the one that reaches
    /// [`PageRequest::BYTES_MAX`](crate::inspect::PageRequest::BYTES_MAX).
    async fn dead_letters(&self, batcher: &BatcherId, query: &DeadLetterQuery) -> Result<CursorPage<DeadLetter>, StoreError>;

    /// One dead letter.
    async fn dead_letter(&self, batcher: &BatcherId, id: &BatchId) -> Result<Option<DeadLetter>, StoreError>;

    /// How much there is of everything.
    async fn batch_counts(&self, batcher: &BatcherId) -> Result<BatchCounts, StoreError>;

    /// Open batches by the time of their first message, then by key.
    async fn open_batches(&self, batcher: &BatcherId, after: Option<Cursor>, limit: u32) -> Result<CursorPage<OpenBatchView>, StoreError>;

    /// The open batch of a key, with its messages from the place `from` on: at most [`PageRequest::LIMIT_MAX`](crate::inspect::PageRequest::LIMIT_MAX), up to the one that reaches
    /// [`PageRequest::BYTES_MAX`](crate::inspect::PageRequest::BYTES_MAX).
    async fn open_batch(&self, batcher: &BatcherId, key: &BatchKey, from: u64) -> Result<Option<BatchView>, StoreError>;

    /// Batches in flight by the time at which something is due, then by id.
    async fn batches_in_flight(&self, batcher: &BatcherId, after: Option<Cursor>, limit: u32)
    -> Result<CursorPage<FlightView>, StoreError>;

    /// Keeps the settings of a batcher, a [`SettingsPatch`](crate::batch::SettingsPatch) as JSON, and wakes whoever follows them.
    async fn put_batcher(&self, name: &BatcherName, settings: Payload) -> Result<BatcherPut, StoreError>;

    /// What is kept of a batcher's settings.
    async fn batcher(&self, name: &BatcherName) -> Result<Option<StoredBatcher>, StoreError>;

    /// What is kept of all batchers' settings, by name.
    async fn batchers(&self) -> Result<Vec<StoredBatcher>, StoreError>;

    /// Ends when the settings of any batcher have changed since `seen`, and returns the new count of changes; at `until` the present one.
    /// Start with 0.
    async fn batchers_changed(&self, seen: u64, until: Timestamp) -> Result<u64, StoreError>;
}

/// What is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueBatches {
    /// The store's clock.
    pub now: Timestamp,
    /// Keys whose open batch should be claimed.
    pub keys: Vec<BatchKey>,
    /// Batches that should be taken over.
    pub flights: Vec<BatchId>,
    /// When the next thing that is not named here is due; it may be due already.
    pub next: Option<Timestamp>,
}

/// An ear for deadlines.
#[async_trait]
pub trait BatchWakes: Send {
    /// The next thing to be heard. Hearing nothing proves nothing: whoever has slept long enough looks anyway.
    async fn next(&mut self) -> BatchNews;
}

/// What is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchNews {
    /// Something is due then.
    Due(Timestamp),
    /// Something may have been missed: look.
    Doubtful,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Open batches that had lost their deadline.
    pub rearmed: u64,
    /// Dead letters that were too old.
    pub dead_removed: u64,
}

/// The settings of a batcher, as they are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBatcher {
    /// Whose.
    pub name: BatcherName,
    /// A [`SettingsPatch`](crate::batch::SettingsPatch) as JSON, as it was put.
    pub settings: Payload,
    /// Rises with every change, of any batcher.
    pub version: u64,
    /// When they were put.
    pub updated_at: Timestamp,
}

/// What became of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatcherPut {
    /// Nothing was kept of this batcher before.
    pub created: bool,
    /// As kept now.
    pub stored: StoredBatcher,
}

/// A list that old producers push to, and what was taken from it and not yet dealt with. It may be elsewhere than the store.
#[async_trait]
pub trait BatchSource: Send + Sync {
    /// Takes up to `max` elements aside, waiting up to `wait` for the first, and returns all that is aside and not dealt with, oldest first.
    async fn drain(&self, list: &str, max: usize, wait: Duration) -> Result<Drained, StoreError>;

    /// Removes the first `count` of what is aside, if nobody else has since `from`.
    async fn drained(&self, list: &str, from: u64, count: usize) -> Result<DrainReply, StoreError>;

    /// How many elements were pushed and not dealt with, taken aside or not.
    async fn waiting(&self, list: &str) -> Result<u64, StoreError>;

    /// Asks for the place of the one who drains a list, and waits for it until `until` at the latest. `true`: it is the asker's for `lease`
    /// from now on, and longer when it asks again before that is over.
    ///
    /// The place saves work and guards nothing: two who drain at once, because one of them slept through the end of its lease, lose no
    /// element and double none.
    async fn lead(&self, list: &str, drainer: &str, lease: Duration, until: Timestamp) -> Result<bool, StoreError>;

    /// Gives the place up, so that another has it at once. From anybody else it changes nothing.
    async fn resign(&self, list: &str, drainer: &str) -> Result<(), StoreError>;
}

/// Elements that were taken aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The lasting number of the first of them: the `k`-th is `from + k`, whoever reads it and however often.
    pub from: u64,
    /// The elements, byte for byte.
    pub elements: Vec<Bytes>,
}

/// What became of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainReply {
    /// They are gone.
    Removed {
        /// The number of the next element.
        next: u64,
    },
    /// Another was faster: drain again.
    Moved {
        /// The number of the first element that is aside.
        at: u64,
    },
}
