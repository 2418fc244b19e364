//! Batches: messages gathered per key, one script per move, and whatever messages have piled up go with one script run.
//!
//! | file | what it does |
//! |---|---|
//! | `keys` | every key of both layouts, built in one place |
//! | `places` | where a batcher is kept: one place, or several when its keys are spread |
//! | `scripts` | the Lua files of `lua/batches` |
//! | `ingest` | taking messages |
//! | `moves` | claiming, settling, closing |
//! | `due` | what is due, and the wake-ups |
//! | `dead_letters`, `letters` | dead letters, and reading their list piece by piece |
//! | `look` | reads for people |
//! | `sweep` | what fell by the wayside |
//! | `settings` | the settings of batchers |
//! | `source` | the lists that old producers push to |
//! | `said` | reading what a script answers |

mod dead_letters;
mod due;
mod ingest;
pub(crate) mod keys;
mod letters;
mod look;
mod moves;
mod places;
mod said;
mod scripts;
mod settings;
mod source;
mod sweep;

use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use towpath_core::batch::{
    BatcherId, ClaimBatch, ClaimReply, DeadLetter, DeadReply, ExtendBatch, ExtendReply, FinishBatch, FinishReply, IngestReply, NewMessage,
    ReclaimBatch, ReplayReply, Rules, SealBatch, SealReply, SourceId,
};
use towpath_core::inspect::{BatchCounts, BatchView, Cursor, CursorPage, DeadLetterQuery, FlightView, OpenBatchView};
use towpath_core::names::{BatchId, BatchKey, BatcherName};
use towpath_core::payload::Payload;
use towpath_core::store::{BatchStore, BatchWakes, BatcherPut, DueBatches, StoreError, StoredBatcher, Swept};
use towpath_core::time::{Timestamp, millis};

use crate::link::Script;
use crate::script::Args;
use crate::store::RedisStore;
pub(crate) use places::Batches;
use places::Place;

/// Where time is moved by hand, what is remembered stays for so long by the server's own: no test takes longer.
const KEPT_BY_HAND_MS: &str = "86400000";

/// Longer than anybody waits, ms: what is added to an instant stays a whole number in a script.
const LONGEST_MS: i64 = 100_000_000_000_000;

/// A length as the scripts know it.
fn length_ms(length: Duration) -> i64 {
    millis(length).min(LONGEST_MS)
}

impl RedisStore {
    /// What all scripts of a place are handed first.
    fn batch_args(&self, place: &Place, now: Timestamp, more: usize) -> Args {
        let mut args = Args::with_capacity(5 + more);
        args.number(now.as_millis());
        args.push(&place.keys.lists);
        args.push(&place.keys.own);
        args.push(&place.channel);
        args.push(if self.shared.lives_by_the_server { "" } else { KEPT_BY_HAND_MS });
        args
    }

    /// Runs a script at a place. `more` are the keys that the script makes by itself, as far as they are known before.
    async fn run_at(&self, script: &Script, place: &Place, more: &[String], args: &Args) -> Result<Value, StoreError> {
        let keys = self.declared(place, more);
        self.or_corrupt(self.shared.link.run_args(script, &keys, args).await, &keys).await
    }

    /// The same for what is to be kept as well as was asked for.
    async fn run_durably_at(&self, script: &Script, place: &Place, more: &[String], args: &Args) -> Result<Value, StoreError> {
        let keys = self.declared(place, more);
        let reply = self.shared.run_durably(script, &keys, args).await;
        self.or_corrupt(reply.map(|(reply, _)| reply), &keys).await
    }

    /// While a Cluster moves a slot, it refuses a script one of whose keys has gone ahead, if it is told of that key. One server needs not
    /// be told.
    fn declared<'a>(&self, place: &'a Place, more: &'a [String]) -> Vec<&'a str> {
        let mut keys = place.keys.in_order().to_vec();
        if self.shared.link.is_cluster() {
            keys.extend(more.iter().map(String::as_str));
        }
        keys
    }
}

#[async_trait]
impl BatchStore for RedisStore {
    async fn batch_ingest(&self, batcher: &BatcherId, rules: &Rules, messages: Vec<NewMessage>) -> Result<Vec<IngestReply>, StoreError> {
        self.ingest(batcher, rules, messages).await
    }

    async fn batch_claim(&self, want: ClaimBatch) -> Result<ClaimReply, StoreError> {
        self.claim_batch(want).await
    }

    async fn batch_reclaim(&self, want: ReclaimBatch) -> Result<ClaimReply, StoreError> {
        self.reclaim_batch(want).await
    }

    async fn batch_extend(&self, want: ExtendBatch) -> Result<ExtendReply, StoreError> {
        self.extend_batch(&want).await
    }

    async fn batch_finish(&self, want: FinishBatch) -> Result<FinishReply, StoreError> {
        self.finish_batch(&want).await
    }

    async fn batch_seal(&self, want: SealBatch) -> Result<SealReply, StoreError> {
        self.seal_batch(&want).await
    }

    async fn batch_due(&self, batcher: &BatcherId, limit: usize) -> Result<DueBatches, StoreError> {
        self.due_batches(batcher, limit).await
    }

    fn batch_wakes(&self, batcher: &BatcherId) -> Box<dyn BatchWakes> {
        self.listen_for_due(batcher)
    }

    async fn batch_sweep(&self, batcher: &BatcherId, keep_dead: Option<Duration>) -> Result<Swept, StoreError> {
        self.sweep_batches(batcher, keep_dead).await
    }

    async fn dead_letter_add(&self, batcher: &BatcherId, letter: DeadLetter, source: Option<SourceId>) -> Result<DeadReply, StoreError> {
        self.add_letter(batcher, &letter, source.as_ref()).await
    }

    async fn dead_letter_replay(&self, batcher: &BatcherId, ids: Vec<BatchId>) -> Result<Vec<ReplayReply>, StoreError> {
        self.replay_letters(batcher, &ids).await
    }

    async fn dead_letter_drop(&self, batcher: &BatcherId, ids: Vec<BatchId>, who: &str) -> Result<Vec<bool>, StoreError> {
        self.drop_letters(batcher, &ids, who).await
    }

    async fn dead_letter_clear(&self, batcher: &BatcherId, who: &str) -> Result<u64, StoreError> {
        self.clear_letters(batcher, who).await
    }

    async fn dead_letters(&self, batcher: &BatcherId, query: &DeadLetterQuery) -> Result<CursorPage<DeadLetter>, StoreError> {
        self.letters_page(batcher, query).await
    }

    async fn dead_letter(&self, batcher: &BatcherId, id: &BatchId) -> Result<Option<DeadLetter>, StoreError> {
        self.one_letter(batcher, id).await
    }

    async fn batch_counts(&self, batcher: &BatcherId) -> Result<BatchCounts, StoreError> {
        self.count_batches(batcher).await
    }

    async fn open_batches(&self, batcher: &BatcherId, after: Option<Cursor>, limit: u32) -> Result<CursorPage<OpenBatchView>, StoreError> {
        self.open_page(batcher, after.as_ref(), limit).await
    }

    async fn open_batch(&self, batcher: &BatcherId, key: &BatchKey, from: u64) -> Result<Option<BatchView>, StoreError> {
        self.one_open(batcher, key, from).await
    }

    async fn batches_in_flight(
        &self,
        batcher: &BatcherId,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<CursorPage<FlightView>, StoreError> {
        self.flights_page(batcher, after.as_ref(), limit).await
    }

    async fn put_batcher(&self, name: &BatcherName, settings: Payload) -> Result<BatcherPut, StoreError> {
        self.put_settings(name, settings).await
    }

    async fn batcher(&self, name: &BatcherName) -> Result<Option<StoredBatcher>, StoreError> {
        self.settings_of(name).await
    }

    async fn batchers(&self) -> Result<Vec<StoredBatcher>, StoreError> {
        self.all_settings().await
    }

    async fn batchers_changed(&self, seen: u64, until: Timestamp) -> Result<u64, StoreError> {
        self.settings_changed(seen, until).await
    }
}
