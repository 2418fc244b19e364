//! Pushing messages into their open batches.

use std::time::Duration;

use serde::Serialize;
use towpath_core::batch::{BadMessage, CloseReason, IngestReply, Message, NewMessage, Seal};
use towpath_core::names::BatchKey;
use towpath_core::time::Timestamp;

use super::{BatchError, BatchHandle};

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the open batch of its key.
    Accepted {
        /// For whom it is gathered.
        batch_key: BatchKey,
        /// When the batch closes, as things stand.
        deadline: Timestamp,
        /// How many messages the batch has now.
        size: u64,
        /// What will close it, as things stand.
        reason: CloseReason,
    },
    /// A message with its id was taken before. Nothing changed.
    Duplicate {
        /// For whom it was gathered.
        batch_key: BatchKey,
        /// When the open batch of the key closes, if there is one.
        deadline: Option<Timestamp>,
    },
}

impl Pushed {
    /// For whom it is gathered.
    pub fn batch_key(&self) -> &BatchKey {
        match self {
            Self::Accepted { batch_key, .. } | Self::Duplicate { batch_key, .. } => batch_key,
        }
    }
}

/// A message to be pushed.
#[derive(Clone, Debug)]
#[must_use = "a message is not pushed until it is sent"]
pub struct PushBuilder {
    handle: BatchHandle,
    /// Something that is no JSON stands here until somebody sends it.
    message: Result<Message, BadMessage>,
    debounce: Option<Duration>,
}

impl PushBuilder {
    pub(super) fn new(handle: BatchHandle, message: &(impl Serialize + ?Sized)) -> Self {
        let message = serde_json::to_vec(message).map(Message::new);
        let message = message.map_err(|error| BadMessage::BadJson { offset: 0, cause: error.to_string() });
        Self { handle, message, debounce: None }
    }

    /// How long the sender must be silent after this message, instead of what the batcher's settings say. Nothing at all closes the batch.
    pub fn debounce(mut self, length: Duration) -> Self {
        self.debounce = Some(length);
        self
    }

    /// Pushes it. When this returns, the message is kept.
    pub async fn send(self) -> Result<Pushed, BatchError> {
        let (name, settings) = self.handle.resolved().await?;
        let mut message = settings.message(self.message?, None)?.message;
        if let Some(debounce) = self.debounce {
            if debounce > settings.max_wait {
                let max = settings.max_wait.as_secs_f64().to_string();
                return Err(BadMessage::OutOfRange { field: "debounce_seconds", max }.into());
            }
            message.debounce = debounce;
            message.seal = message.seal.filter(|seal| *seal == Seal::Keyword).or(debounce.is_zero().then_some(Seal::Immediate));
        }
        let key = message.key.clone();
        let id = settings.batcher_id(&name);
        let store = self.handle.towpath().batch_store()?;
        let replies = store.batch_ingest(&id, &settings.rules(), vec![message]).await?;
        match replies.into_iter().next() {
            Some(reply) => pushed(&name, settings.max_open, key, &reply),
            None => Err(lost_reply()),
        }
    }
}

impl BatchHandle {
    /// Takes messages as they came, in order; one answer each. A message that is refused does not keep the others out.
    pub async fn push_all(&self, messages: Vec<Message>) -> Result<Vec<Result<Pushed, BatchError>>, BatchError> {
        let (name, settings) = self.resolved().await?;
        let read: Vec<Result<NewMessage, BadMessage>> =
            messages.into_iter().map(|message| Ok(settings.message(message, None)?.message)).collect();
        let good: Vec<NewMessage> = read.iter().filter_map(|one| one.as_ref().ok()).cloned().collect();
        let id = settings.batcher_id(&name);
        let mut replies = match good.is_empty() {
            true => Vec::new(),
            false => self.towpath().batch_store()?.batch_ingest(&id, &settings.rules(), good).await?,
        }
        .into_iter();
        let answer = |one: Result<NewMessage, BadMessage>| {
            let key = one?.key;
            replies.next().map_or_else(|| Err(lost_reply()), |reply| pushed(&name, settings.max_open, key, &reply))
        };
        Ok(read.into_iter().map(answer).collect())
    }
}

fn pushed(name: &super::BatcherName, max: u64, batch_key: BatchKey, reply: &IngestReply) -> Result<Pushed, BatchError> {
    match *reply {
        IngestReply::Accepted { deadline, size, reason } => Ok(Pushed::Accepted { batch_key, deadline, size, reason }),
        IngestReply::Duplicate { deadline, .. } => Ok(Pushed::Duplicate { batch_key, deadline }),
        IngestReply::Full { open_messages: open } => Err(BatchError::Full { batcher: name.clone(), open, max }),
    }
}

fn lost_reply() -> BatchError {
    towpath_core::store::StoreError::Corrupt("the store answered fewer messages than it was given".to_owned()).into()
}
