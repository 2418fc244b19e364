//! Batches: messages gathered per key until their sender falls silent, then handed over as one. None is lost, none is in two.
//!
//! ```
//! use std::time::Duration;
//! use serde_json::json;
//! use towpath::Towpath;
//! use towpath::batches::{Batch, Batcher, Pushed};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let towpath = Towpath::open("memory:").await?;
//! let orders = Batcher::builder("orders").key(["/customer"]).debounce(Duration::from_millis(50)).max_messages(2).build()?;
//! towpath.batchers().put(&orders).await?;
//!
//! // Whoever receives batches says what became of each: Ok is the end of it, an error is another attempt.
//! let (sent, mut received) = tokio::sync::mpsc::unbounded_channel();
//! let worker = towpath
//!     .worker()
//!     .batches("orders", move |batch: Batch| {
//!         let sent = sent.clone();
//!         async move { Ok(sent.send(batch.payload().as_str().to_owned()).map_err(|_| "nobody listens")?) }
//!     })
//!     .start()
//!     .await?;
//!
//! for item in ["tea", "milk"] {
//!     let pushed = towpath.batch("orders").push(&json!({"customer": "anna", "item": item})).send().await?;
//!     assert!(matches!(pushed, Pushed::Accepted { .. }));
//! }
//! let payload = received.recv().await.unwrap();
//! assert!(payload.contains("tea") && payload.contains("milk"), "two messages, one batch");
//! # worker.drain().await;
//! # towpath.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! | room | what is in it |
//! |---|---|
//! | [`BatchHandle`], [`PushBuilder`], [`Pushed`] | one batcher: push, flush, touch, look |
//! | [`Batcher`], [`BatcherBuilder`], [`Batchers`] | settings: made, kept for all, followed |
//! | [`Batch`], [`BatchFailure`] | what an in-process receiver is given, and how it fails |
//! | [`PulledBatch`], [`Settled`] | batches for those who fetch them |
//! | [`DeadLetters`], [`Select`] | what could not be delivered |
//! | [`Receiver`], [`ServingBatches`] | for those who deliver elsewhere: the server does |

mod batcher;
mod dead_letters;
mod dispatch;
mod error;
mod handle;
mod known;
mod pull;
mod push;
mod receiver;

use std::sync::Arc;

pub use batcher::{Batcher, BatcherBuilder, Which};
pub use dead_letters::{DeadLetters, Replays, Select};
pub use dispatch::{Admission, Delivery, FunctionReceiver, Parcel, Receiver, ServingBatches};
pub use error::BatchError;
pub use handle::BatchHandle;
pub use known::{Batchers, KnownBatcher, PutBatcher};
pub use pull::{PullToken, PulledBatch, Settle, Settled};
pub use push::{PushBuilder, Pushed};
pub use receiver::{Batch, BatchFailure};
pub use towpath_core::batch::{
    BadMessage, BatchRate, CloseReason, DeadLetter, Delivered, IdentityFrom, InvalidSettings, MediaMerge, Message, Order, RatePatch,
    Settings, SettingsPatch, Source, Strategy, Target,
};
pub use towpath_core::inspect::{BatchCounts, BatchView, Cursor, CursorPage, DeadLetterQuery, FlightView, OpenBatchView};
pub use towpath_core::names::{BatchId, BatchKey, BatcherName};
use towpath_core::store::{BatchSource, BatchStore};

pub(crate) use dispatch::InProcess;
pub(crate) use known::KnownBatchers;
pub(crate) use receiver::HandlerReceiver;

use crate::Towpath;

/// What a process has of batches: a store that keeps them, and what it knows of batchers.
pub(crate) struct Batches {
    pub(crate) store: Option<Arc<dyn BatchStore>>,
    pub(crate) source: Option<Arc<dyn BatchSource>>,
    pub(crate) known: KnownBatchers,
}

impl Towpath {
    /// A batcher: by its name, with the settings that are kept for it, or one of your own making.
    pub fn batch(&self, which: impl Into<Which>) -> BatchHandle {
        BatchHandle::new(self.clone(), which.into())
    }

    /// The batchers that are known.
    pub fn batchers(&self) -> Batchers {
        Batchers::new(self.clone())
    }

    /// Batches that could not be delivered.
    pub fn dead_letters(&self) -> DeadLetters {
        DeadLetters::new(self.clone())
    }

    /// The store's moves of batches, observed.
    pub fn batch_store(&self) -> Result<&Arc<dyn BatchStore>, BatchError> {
        self.batches().store.as_ref().ok_or(BatchError::NotAvailable)
    }
}
