//! Why something about batches was not done. A duplicate is an answer.

use thiserror::Error;
use towpath_core::batch::{BadMessage, InvalidSettings};
use towpath_core::names::{BatchId, BatcherName, InvalidName};
use towpath_core::store::StoreError;

use crate::error::store_error_code;

/// What was not done, and why. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BatchError {
    /// A name that nothing can have.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The message was not taken.
    #[error(transparent)]
    BadMessage(#[from] BadMessage),
    /// Settings that cannot be.
    #[error(transparent)]
    InvalidSettings(#[from] InvalidSettings),
    /// Nobody knows this batcher.
    #[error("there is no batcher '{batcher}': keep its settings first, with PUT /v1/batches/{batcher}/settings or `batchers().put(..)`")]
    UnknownBatcher {
        /// Which.
        batcher: BatcherName,
    },
    /// The rate names a policy that is not there, or that cannot be read.
    #[error("the rate of batcher '{batcher}' cannot be used: {error}")]
    Rate {
        /// Which.
        batcher: BatcherName,
        /// Why.
        error: Box<crate::limits::LimitError>,
    },
    /// Too many messages are open.
    #[error("batcher '{batcher}' has {open} messages in open batches, and takes no more than {max}: nothing was taken, try again later")]
    Full {
        /// Which.
        batcher: BatcherName,
        /// How many there are.
        open: u64,
        /// How many there may be.
        max: u64,
    },
    /// A dead letter that has nothing which could be sent.
    #[error("dead letter '{id}' was no batch: it has nothing that could be sent again")]
    NotReplayable {
        /// Which.
        id: BatchId,
    },
    /// The store keeps no batches.
    #[error("this store keeps no batches: open one by its URL, or give the builder a `batch_store`")]
    NotAvailable,
    /// The store was in trouble.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BatchError {
    /// The word for programs. It does not change between versions.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidName(_) => "invalid_name",
            Self::BadMessage(bad) => bad.code(),
            Self::InvalidSettings(invalid) => invalid.code(),
            Self::UnknownBatcher { .. } => "batcher_not_found",
            Self::Rate { error, .. } => error.code(),
            Self::Full { .. } => "batcher_full",
            Self::NotReplayable { .. } => "not_replayable",
            Self::NotAvailable => "store_unavailable",
            Self::Store(error) => store_error_code(error),
        }
    }
}
