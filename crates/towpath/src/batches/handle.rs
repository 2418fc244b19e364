//! One batcher: push into it, close or postpone what gathers, look at it.

use std::sync::Arc;

use serde::Serialize;
use towpath_core::batch::{SealBatch, SealReply, SealVerb, Settings};
use towpath_core::inspect::{BatchCounts, BatchView, Cursor, CursorPage, FlightView, OpenBatchView};
use towpath_core::names::{BatchKey, BatcherName};

use super::{BatchError, PushBuilder, Which};
use crate::Towpath;

/// Where the old producers of `input_contour` push to.
const OLD_LIST: &str = "queue:incoming";

/// One batcher. Cheap to make and to clone.
#[derive(Clone, Debug)]
pub struct BatchHandle {
    towpath: Towpath,
    which: Which,
}

impl BatchHandle {
    pub(super) fn new(towpath: Towpath, which: Which) -> Self {
        Self { towpath, which }
    }

    pub(super) fn towpath(&self) -> &Towpath {
        &self.towpath
    }

    /// A message, anything that becomes a JSON object. Send it with [`PushBuilder::send`].
    pub fn push(&self, message: &(impl Serialize + ?Sized)) -> PushBuilder {
        PushBuilder::new(self.clone(), message)
    }

    /// Closes the open batch of a key now.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use serde_json::json;
    /// use towpath::Towpath;
    /// use towpath::core::batch::SealReply;
    ///
    /// let towpath = Towpath::open("memory:").await?;
    /// let chats = towpath.batch("input_contour");
    /// let pushed = chats.push(&json!({"channel": "telegram", "external_chat_id": "1", "text": "hi"})).send().await?;
    /// assert_eq!(chats.flush(pushed.batch_key()).await?, SealReply::Flushed { size: 1 });
    /// assert_eq!(chats.counts().await?.open_keys, 1, "it is due, and nobody has fetched it yet");
    /// # towpath.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flush(&self, key: &BatchKey) -> Result<SealReply, BatchError> {
        self.seal(key, |_settings| SealVerb::Flush).await
    }

    /// The sender is typing: the deadline moves out, never in, never beyond the longest wait.
    pub async fn touch(&self, key: &BatchKey) -> Result<SealReply, BatchError> {
        self.seal(key, |settings| SealVerb::Touch { debounce: settings.debounce, max_wait: settings.max_wait }).await
    }

    async fn seal(&self, key: &BatchKey, verb: impl FnOnce(&Settings) -> SealVerb) -> Result<SealReply, BatchError> {
        let (name, settings) = self.resolved().await?;
        let verb = verb(&settings);
        let want = SealBatch { batcher: settings.batcher_id(&name), key: key.clone(), verb, serial: settings.serial };
        Ok(self.towpath.batch_store()?.batch_seal(want).await?)
    }

    /// Open batches by the time of their first message.
    pub async fn open(&self, after: Option<Cursor>, limit: u32) -> Result<CursorPage<OpenBatchView>, BatchError> {
        let (name, settings) = self.resolved().await?;
        Ok(self.towpath.batch_store()?.open_batches(&settings.batcher_id(&name), after, limit).await?)
    }

    /// Batches in flight by the time at which something is due.
    pub async fn in_flight(&self, after: Option<Cursor>, limit: u32) -> Result<CursorPage<FlightView>, BatchError> {
        let (name, settings) = self.resolved().await?;
        Ok(self.towpath.batch_store()?.batches_in_flight(&settings.batcher_id(&name), after, limit).await?)
    }

    /// The open batch of a key, with its first messages: at most 200, up to the one that reaches 1 MiB.
    pub async fn show(&self, key: &BatchKey) -> Result<Option<BatchView>, BatchError> {
        self.show_from(key, 0).await
    }

    /// The same, with its messages from the place `from` on.
    pub async fn show_from(&self, key: &BatchKey, from: u64) -> Result<Option<BatchView>, BatchError> {
        let (name, settings) = self.resolved().await?;
        Ok(self.towpath.batch_store()?.open_batch(&settings.batcher_id(&name), key, from).await?)
    }

    /// How much there is of everything.
    pub async fn counts(&self) -> Result<BatchCounts, BatchError> {
        let (name, settings) = self.resolved().await?;
        Ok(self.towpath.batch_store()?.batch_counts(&settings.batcher_id(&name)).await?)
    }

    /// How many messages wait in the lists that old producers push to, and are not taken in yet. `input_contour` has its old list even when
    /// its settings name none: then nobody empties it.
    pub async fn incoming(&self) -> Result<u64, BatchError> {
        let (name, settings) = self.resolved().await?;
        let Some(source) = &self.towpath.batches().source else { return Ok(0) };
        let mut lists: Vec<&str> = settings.sources.iter().map(|source| source.list.as_str()).collect();
        if lists.is_empty() && name.as_str() == BatcherName::INPUT_CONTOUR {
            lists.push(OLD_LIST);
        }
        let mut waiting = 0;
        for list in lists {
            waiting += source.waiting(list).await?;
        }
        Ok(waiting)
    }

    /// All its settings.
    pub async fn settings(&self) -> Result<Arc<Settings>, BatchError> {
        Ok(self.resolved().await?.1)
    }

    pub(super) async fn resolved(&self) -> Result<(BatcherName, Arc<Settings>), BatchError> {
        match &self.which {
            Which::Given(batcher) => Ok((batcher.name().clone(), Arc::clone(batcher.settings()))),
            Which::Named(name) => {
                let name = BatcherName::new(name)?;
                match self.towpath.batchers().find(&name).await? {
                    Some(known) => Ok((name, known.settings)),
                    None => Err(BatchError::UnknownBatcher { batcher: name }),
                }
            }
        }
    }
}
