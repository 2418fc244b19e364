//! Whoever batches are delivered to.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use towpath_core::batch::{ClaimedBatch, Delivered, Settings};
use towpath_core::names::BatcherName;
use towpath_core::payload::Payload;

/// The right to begin a delivery, for as long as it lives.
pub type Admission = Box<dyn Any + Send>;

/// A batch on its way.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// Whose it is.
    pub batcher: BatcherName,
    /// Its settings when it was claimed.
    pub settings: Arc<Settings>,
    /// The batch.
    pub batch: ClaimedBatch,
    /// The messages made one.
    pub payload: Payload,
}

/// How a delivery went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// What it means.
    pub delivered: Delivered,
    /// What went wrong, for people. Never a secret.
    pub error: String,
    /// One of few words, for counting.
    pub label: &'static str,
}

impl Delivery {
    /// There was an answer.
    pub fn answered(status: u16, retry_after: Option<Duration>, label: &'static str) -> Self {
        Self { delivered: Delivered::Answered { status, retry_after, has_error_field: false }, error: String::new(), label }
    }

    /// There was none.
    pub fn unanswered(error: impl Into<String>, label: &'static str) -> Self {
        Self { delivered: Delivered::Unanswered, error: error.into(), label }
    }

    /// It was not tried, because its receiver is not there: the batch is given back, and no attempt is counted.
    pub fn not_tried(error: impl Into<String>) -> Self {
        Self { delivered: Delivered::NotTried, error: error.into(), label: "not_tried" }
    }

    /// It is of no use to try again.
    pub fn fatal(reason: &str, error: impl Into<String>) -> Self {
        Self { delivered: Delivered::Fatal { reason: reason.to_owned() }, error: error.into(), label: "fatal" }
    }
}

/// Whoever batches are delivered to. A delivery that is dropped was given up: its lease is lost, or the process stops.
#[async_trait]
pub trait Receiver: Send + Sync {
    /// Whether batches of a batcher with these settings are for it. Otherwise they are held.
    fn takes(&self, settings: &Settings) -> bool;

    /// The right to deliver one more batch now, if there is room. Asked before a batch is claimed: whoever has to wait uses no attempt up.
    fn try_admit(&self, settings: &Settings) -> Option<Admission>;

    /// The same, as soon as there is room.
    async fn admit(&self, settings: &Settings) -> Admission;

    /// Delivers a batch.
    async fn deliver(&self, parcel: &Parcel) -> Delivery;
}
