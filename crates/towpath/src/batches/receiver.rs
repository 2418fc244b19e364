//! An in-process receiver: a closure that is given batches and says what became of each.

use std::any::Any;
use std::error::Error;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use towpath_core::batch::{ClaimedBatch, Delivered, Message};
use towpath_core::payload::Payload;

use super::dispatch::{Admission, Delivery, Parcel, Receiver};

/// A batch in the hands of a receiver.
#[derive(Clone, Debug)]
pub struct Batch {
    claimed: ClaimedBatch,
    payload: Payload,
}

impl Batch {
    pub(super) fn new(claimed: ClaimedBatch, payload: Payload) -> Self {
        Self { claimed, payload }
    }

    /// Which batch; the same through all attempts, so that a repeat can be known.
    pub fn id(&self) -> &str {
        self.claimed.batch_id.as_str()
    }

    /// Whose messages.
    pub fn key(&self) -> &str {
        self.claimed.key.as_str()
    }

    /// Which attempt; the first is 1.
    pub fn attempt(&self) -> u32 {
        self.claimed.attempt
    }

    /// What closed it.
    pub fn reason(&self) -> towpath_core::batch::CloseReason {
        self.claimed.reason
    }

    /// Its messages as they came.
    pub fn messages(&self) -> &[Message] {
        &self.claimed.messages
    }

    /// The messages made one, as the batcher's settings say.
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    /// The payload, read as a type of your own.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(self.payload.as_bytes())
    }
}

/// Why a receiver did not take a batch. Any error becomes [`BatchFailure::Retry`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchFailure {
    /// It goes again, after the back-off and no earlier than this, until its attempts are used up.
    Retry {
        /// Why, for people.
        error: String,
        /// Not before this.
        after: Option<Duration>,
    },
    /// It is of no use to try again: it becomes a dead letter.
    Fatal {
        /// Why, for people.
        error: String,
    },
}

impl BatchFailure {
    /// It is of no use to try again.
    pub fn fatal(error: impl Into<String>) -> Self {
        Self::Fatal { error: error.into() }
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for BatchFailure {
    fn from(error: E) -> Self {
        let error: Box<dyn Error + Send + Sync> = error.into();
        Self::Retry { error: error.to_string(), after: None }
    }
}

type Handling = Pin<Box<dyn Future<Output = Result<(), BatchFailure>> + Send>>;

/// A closure as a receiver.
pub(crate) struct HandlerReceiver {
    handler: Box<dyn Fn(Batch) -> Handling + Send + Sync>,
}

impl HandlerReceiver {
    pub(crate) fn new<F, Fut>(handler: F) -> Self
    where
        F: Fn(Batch) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BatchFailure>> + Send + 'static,
    {
        Self { handler: Box::new(move |batch| Box::pin(handler(batch))) }
    }
}

#[async_trait]
impl Receiver for HandlerReceiver {
    fn takes(&self, _settings: &super::Settings) -> bool {
        true
    }

    fn try_admit(&self, _settings: &super::Settings) -> Option<Admission> {
        Some(Box::new(()))
    }

    async fn admit(&self, _settings: &super::Settings) -> Admission {
        Box::new(())
    }

    async fn deliver(&self, parcel: &Parcel) -> Delivery {
        let batch = Batch::new(parcel.batch.clone(), parcel.payload.clone());
        let handled = AssertUnwindSafe(async { (self.handler)(batch).await }).catch_unwind().await;
        match handled {
            Ok(Ok(())) => Delivery::answered(200, None, "ok"),
            Ok(Err(BatchFailure::Retry { error, after })) => Delivery {
                delivered: Delivered::Answered { status: 500, retry_after: after, has_error_field: false },
                error,
                label: "retry",
            },
            Ok(Err(BatchFailure::Fatal { error })) => {
                Delivery { delivered: Delivered::Fatal { reason: "rejected".to_owned() }, error, label: "fatal" }
            }
            Err(panic) => Delivery::unanswered(format!("the receiver panicked: {}", said(panic.as_ref())), "panic"),
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it said nothing")
}
