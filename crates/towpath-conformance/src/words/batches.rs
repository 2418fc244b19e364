//! Words for batches.

use std::time::Duration;

use towpath_core::batch::{
    BatcherId, ClaimBatch, ClaimedBatch, DeadLetter, Message, MessageId, NewDeadLetter, NewMessage, Rules, Seal, SourceId,
};
use towpath_core::names::{BatchId, BatchKey, BatchToken, BatcherName};
use towpath_core::payload::Payload;
use towpath_core::time::Timestamp;

use super::{named, seconds};

/// How long a dispatcher of the bench may be silent.
pub const BATCH_LEASE: Duration = seconds(60);

/// A batcher, kept where the store likes.
pub fn batcher(text: &str) -> BatcherId {
    BatcherId::new(named(BatcherName::new(text)))
}

/// For whom messages are gathered.
pub fn batch_key(text: &str) -> BatchKey {
    named(BatchKey::new(text))
}

/// Which batch.
pub fn batch_id(text: &str) -> BatchId {
    named(BatchId::new(text))
}

/// Who may settle a batch.
pub fn batch_token(text: &str) -> BatchToken {
    named(BatchToken::new(text))
}

/// An element of an old producer's list.
pub fn source(number: u64) -> SourceId {
    SourceId { list: "queue:incoming".into(), number }
}

/// A message that says something to a key, with ten seconds to say more.
pub fn message(key: &str, body: &str) -> NewMessage {
    NewMessage {
        key: batch_key(key),
        body: Message::new(body.to_owned()),
        message_id: None,
        source: None,
        debounce: seconds(10),
        seal: None,
    }
}

/// Adjectives of a message.
pub trait MessageWords {
    /// The same message as any other of its key with this id.
    fn id(self, id: &str) -> Self;
    /// An element of an old producer's list.
    fn drained(self, number: u64) -> Self;
    /// With so long to say more.
    fn debounce(self, length: Duration) -> Self;
    /// Closing its batch by what it says.
    fn keyword(self) -> Self;
    /// Closing its batch by a debounce time of nothing.
    fn immediate(self) -> Self;
}

impl MessageWords for NewMessage {
    fn id(self, id: &str) -> Self {
        Self { message_id: MessageId::new(id), ..self }
    }

    fn drained(self, number: u64) -> Self {
        Self { source: Some(source(number)), ..self }
    }

    fn debounce(self, length: Duration) -> Self {
        Self { debounce: length, ..self }
    }

    fn keyword(self) -> Self {
        Self { seal: Some(Seal::Keyword), ..self }
    }

    fn immediate(self) -> Self {
        Self { debounce: Duration::ZERO, seal: Some(Seal::Immediate), ..self }
    }
}

/// A claim of what is open for a key, under an id, by the token `t-<id>`.
pub fn claim_batch(of: &BatcherId, key: &str, id: &str, rules: &Rules) -> ClaimBatch {
    ClaimBatch {
        batcher: of.clone(),
        key: batch_key(key),
        batch_id: batch_id(id),
        token: batch_token(&format!("t-{id}")),
        lease: BATCH_LEASE,
        rules: rules.clone(),
    }
}

/// What is written of a batch that is given up.
pub fn given_up(of: &BatcherId, batch: &ClaimedBatch, reason: &str, at: Timestamp) -> DeadLetter {
    let payload = Payload::from_json(format!(r#"{{"messages":{}}}"#, batch.messages.len()));
    let payload = batch.payload.as_ref().unwrap_or(&payload);
    DeadLetter::of_batch(NewDeadLetter { batcher: &of.name, batch, payload: Some(payload), reason, error: "it went wrong", at })
}

/// What is written of something that is no message.
pub fn unreadable(of: &BatcherId, raw: &str, number: Option<u64>, at: Timestamp) -> DeadLetter {
    DeadLetter::unreadable(&of.name, raw.as_bytes(), number.map(source).as_ref(), "parse_error", "no JSON", at)
}
