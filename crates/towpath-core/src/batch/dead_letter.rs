//! What could not be delivered, as one JSON text: the old worker's three fields, and all that a replay needs.

use super::fields::{Fields, Object, array, elements, quoted, string, string_or_number};
use super::message::hex;
use super::{ClaimedBatch, CloseReason, Flight, Message, SourceId, hash12};
use crate::names::{BatchId, BatchKey, BatcherName};
use crate::payload::Payload;
use crate::time::Timestamp;

/// A dead letter. The text is what is kept, byte for byte; the rest was read from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// What it is called: the batch that it was, or a name made of its text.
    pub id: BatchId,
    /// Whose messages, where that is written down.
    pub key: Option<BatchKey>,
    /// Why it is here, in one word, where that is written down.
    pub reason: Option<String>,
    /// When it came here, where that can be read.
    pub at: Option<Timestamp>,
    /// The entry.
    pub entry: Payload,
}

/// What is to be written of a batch that is given up.
#[derive(Clone, Copy, Debug)]
pub struct NewDeadLetter<'a> {
    /// Whose it is.
    pub batcher: &'a BatcherName,
    /// The batch.
    pub batch: &'a ClaimedBatch,
    /// What would have been sent; `None` when it could not be made.
    pub payload: Option<&'a Payload>,
    /// Why, in one word: `max_retries_exceeded`, `rejected_404`, `crash_loop`.
    pub reason: &'a str,
    /// Why, for people.
    pub error: &'a str,
    /// When.
    pub at: Timestamp,
}

/// What became of adding one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadReply {
    /// It is kept.
    Added,
    /// The same element of a list was put here before. Nothing changed.
    Duplicate,
}

/// What became of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayReply {
    /// It is in flight again, due at once.
    Replayed,
    /// That batch is being delivered already.
    InFlight,
    /// There is no such entry any more.
    Gone,
    /// It has nothing that could be sent.
    NotReplayable,
}

impl DeadLetter {
    /// Writes down a batch that is given up.
    pub fn of_batch(new: NewDeadLetter<'_>) -> Self {
        let batch = new.batch;
        let messages =
            array(batch.messages.iter().map(|message| as_json(message.as_bytes())).collect::<Vec<_>>().iter().map(String::as_str));
        let entry = Object::new()
            .raw("payload", new.payload.map_or("null", Payload::as_str))
            .text("error", new.error)
            .text("timestamp", &new.at.to_iso())
            .text("id", batch.batch_id.as_str())
            .text("batch_id", batch.batch_id.as_str())
            .text("batch_key", batch.key.as_str())
            .text("batcher", new.batcher.as_str())
            .text("reason", new.reason)
            .number("attempts", u64::from(batch.attempt))
            .text("close_reason", batch.reason.as_str())
            .text("first_message_at", &batch.first.to_iso())
            .text("last_message_at", &batch.last.to_iso())
            .raw("messages", &messages);
        Self::parse(entry.end())
    }

    /// Writes down something that is no message: its bytes are all there is. One that comes from a list has a name of its own.
    pub fn unreadable(batcher: &BatcherName, raw: &[u8], source: Option<&SourceId>, reason: &str, error: &str, at: Timestamp) -> Self {
        let id = match source {
            Some(source) => format!("raw-{}", hash12(format!("{source}"))),
            None => format!("raw-{}", hash12(raw)),
        };
        let entry = Object::new().raw("payload", "null");
        let entry = match std::str::from_utf8(raw) {
            Ok(text) => entry.text("raw", text),
            Err(_not_text) => entry.text("raw_hex", &hex(raw)),
        };
        let entry = entry
            .text("error", error)
            .text("timestamp", &at.to_iso())
            .text("id", &id)
            .text("batcher", batcher.as_str())
            .text("reason", reason);
        Self::parse(entry.end())
    }

    /// Reads an entry, an old worker's too: that has no id, so its name is made of its text.
    pub fn parse(entry: impl Into<bytes::Bytes>) -> Self {
        let entry = Payload::from_json(entry);
        let fields = Fields::parse(entry.as_bytes()).unwrap_or_default();
        let id = fields.text("id").and_then(|id| BatchId::new(id).ok()).unwrap_or_else(|| legacy_id(entry.as_bytes()));
        let key = fields.text("batch_key").and_then(|key| BatchKey::new(key).ok());
        let (reason, at) = (fields.text("reason"), fields.text("timestamp").and_then(|at| Timestamp::from_iso(&at)));
        Self { id, key, reason, at, entry }
    }

    /// What would have been sent, and is sent when it is replayed; `None` when there is nothing that could be.
    pub fn payload(&self) -> Option<Payload> {
        let fields = Fields::parse(self.entry.as_bytes()).ok()?;
        Some(Payload::from_json(fields.given("payload")?.get().to_owned()))
    }

    /// The messages that it was made of, as they came, where they are written down.
    pub fn messages(&self) -> Vec<Message> {
        let fields = Fields::parse(self.entry.as_bytes()).unwrap_or_default();
        let listed = fields.get("messages").and_then(elements).unwrap_or_default();
        // What was no JSON was written as a text; a message is never one.
        listed.into_iter().map(|message| Message::new(string(message).unwrap_or_else(|| message.get().to_owned()))).collect()
    }

    /// The batch as it goes again: under the same id, with its attempts counted anew, due at once, beside the key's own order. `None`: there
    /// is nothing that could be sent.
    pub fn flight(&self, now: Timestamp) -> Option<Flight> {
        let fields = Fields::parse(self.entry.as_bytes()).ok()?;
        let payload = self.payload()?;
        let instant = |name: &str| fields.text(name).and_then(|at| Timestamp::from_iso(&at)).or(self.at).unwrap_or(now);
        let reason = fields.text("close_reason").and_then(|reason| reason.parse().ok());
        Some(Flight {
            batch_id: self.id.clone(),
            key: self.key.clone().unwrap_or_else(|| key_of_payload(payload.as_bytes()).unwrap_or_else(|| key_of_id(&self.id))),
            token: None,
            attempt: 0,
            first: instant("first_message_at"),
            last: instant("last_message_at"),
            reason: reason.unwrap_or(CloseReason::SilenceReached),
            at: now,
            serial: false,
            replay: Some(self.entry.clone()),
        })
    }
}

/// What an old worker wrote has no key; its payload says which chat it was.
fn key_of_payload(payload: &[u8]) -> Option<BatchKey> {
    let fields = Fields::parse(payload).ok()?;
    let part = |name| fields.get(name).and_then(string_or_number);
    BatchKey::new(format!("unknown:{}:{}", part("channel")?, part("external_chat_id")?)).ok()
}

fn key_of_id(id: &BatchId) -> BatchKey {
    BatchKey::new(id.as_str()).unwrap_or_else(|_| unreachable!("a batch id is a name, and every name is a batch key"))
}

fn legacy_id(entry: &[u8]) -> BatchId {
    BatchId::new(format!("legacy-{}", hash12(entry))).unwrap_or_else(|_| unreachable!("hexadecimal digits are a name"))
}

/// A message as it is, or as a text when it is no JSON.
fn as_json(message: &[u8]) -> String {
    match serde_json::from_slice::<&serde_json::value::RawValue>(message) {
        Ok(json) => json.get().to_owned(),
        Err(_no_json) => quoted(&String::from_utf8_lossy(message)),
    }
}
