//! What is sent: many messages made one. Values travel as the text that they came as; nothing is computed with.

mod media;
mod template;
mod text;

use serde_json::value::RawValue;
use thiserror::Error;

pub(super) use template::check as check_template;

use super::fields::{Fields, Object, array, is_truthy};
use super::{ClaimedBatch, IdentityFrom, Message, Order, Settings, Strategy};
use crate::payload::Payload;
use crate::time::Timestamp;

/// Messages that cannot become one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MergeError {
    /// None of them can be read.
    #[error("none of the messages can be read as a JSON object")]
    NothingReadable,
    /// A template's result is too large.
    #[error("the template's result has {bytes} bytes: at most {max} are allowed")]
    TooLarge {
        /// How large.
        bytes: usize,
        /// How large it may be.
        max: usize,
    },
}

/// A message that can be read.
struct Part<'a> {
    raw: &'a RawValue,
    fields: Fields<'a>,
}

/// All that a strategy needs.
struct Parts<'a> {
    /// In the order that the settings want.
    messages: Vec<Part<'a>>,
    /// The `meta` of the result.
    meta: String,
    base: usize,
}

impl<'a> Parts<'a> {
    fn base(&self) -> &Part<'a> {
        &self.messages[self.base]
    }

    /// The ids of all messages that have one.
    fn message_ids(&self) -> String {
        let ids = self.messages.iter().filter_map(|part| part.fields.get("message_id")).filter(|id| is_truthy(id));
        array(ids.map(RawValue::get))
    }
}

/// The body that is sent for a claimed batch. The same messages make the same bytes, except for `meta.attempt`.
///
/// ```
/// use towpath_core::batch::{ClaimedBatch, CloseReason, Message, Settings, merge};
/// use towpath_core::names::{BatchId, BatchKey, BatchToken, BatcherName};
/// use towpath_core::time::Timestamp;
///
/// let at = Timestamp::from_millis(1_800_000_000_000);
/// let batch = ClaimedBatch {
///     batch_id: BatchId::new("b-1").unwrap(),
///     key: BatchKey::new("a1b2c3d4:telegram:1").unwrap(),
///     token: BatchToken::new("t").unwrap(),
///     attempt: 1,
///     lease_end: at,
///     now: at,
///     first: at,
///     last: at,
///     reason: CloseReason::SilenceReached,
///     messages: [r#"{"text": "Привет"}"#, r#"{"text": "Разбил экран"}"#].map(Message::new).to_vec(),
///     payload: None,
/// };
/// let settings = Settings::of(&BatcherName::new("input_contour").unwrap());
/// let payload = merge(&settings, &batch).unwrap();
/// assert!(payload.as_str().starts_with(r#"{"text":"Привет\n\nРазбил экран","message_ids":[],"media":{},"meta":{"batched":true,"#));
/// ```
pub fn merge(settings: &Settings, batch: &ClaimedBatch) -> Result<Payload, MergeError> {
    if let Some(payload) = &batch.payload {
        return Ok(payload.clone());
    }
    let parts = parts(settings, batch)?;
    let merged = match settings.merge.strategy {
        Strategy::Text => text::merged(settings, &parts),
        Strategy::List => {
            let messages = array(parts.messages.iter().map(|part| part.raw.get()));
            Object::new().text("batch_key", batch.key.as_str()).raw("messages", &messages).raw("meta", &parts.meta).end()
        }
        Strategy::First => whole(&parts, parts.messages.first()),
        Strategy::Last => whole(&parts, parts.messages.last()),
        Strategy::Template => template::rendered(settings, &parts)?,
    };
    Ok(Payload::from_json(merged))
}

/// Which messages of a batch cannot be read, and are not in what is sent. Only an old worker leaves such behind.
pub fn unreadable(messages: &[Message]) -> Vec<usize> {
    let unread = |(_, message): &(usize, &Message)| Fields::parse(message.as_bytes()).is_err();
    messages.iter().enumerate().filter(unread).map(|(place, _)| place).collect()
}

fn parts<'a>(settings: &Settings, batch: &'a ClaimedBatch) -> Result<Parts<'a>, MergeError> {
    let read = |message: &'a Message| {
        let fields = Fields::parse(message.as_bytes()).ok()?;
        Some(Part { raw: serde_json::from_slice(message.as_bytes()).ok()?, fields })
    };
    let mut messages: Vec<Part<'a>> = batch.messages.iter().filter_map(read).collect();
    if messages.is_empty() {
        return Err(MergeError::NothingReadable);
    }
    if settings.order == Order::Timestamp {
        messages.sort_by_cached_key(|part| sent_at(&part.fields));
    }
    let base = match settings.merge.identity_from {
        IdentityFrom::First => 0,
        IdentityFrom::Last => messages.len() - 1,
    };
    let meta = meta(settings, batch, messages.len(), &messages[base].fields);
    Ok(Parts { messages, meta, base })
}

/// What cannot be read is at the beginning of time.
fn sent_at(fields: &Fields<'_>) -> i64 {
    fields.text("timestamp").and_then(|text| Timestamp::from_date(&text)).map_or(0, Timestamp::as_millis)
}

fn meta(settings: &Settings, batch: &ClaimedBatch, size: usize, base: &Fields<'_>) -> String {
    Object::new()
        .raw("batched", if size > 1 { "true" } else { "false" })
        .number("batch_size", size as u64)
        .text("batch_reason", batch.reason.batch_reason(settings.reason_style))
        .raw_if("external_chat_id", base.get("external_chat_id"))
        .text("close_reason", batch.reason.as_str())
        .text("batch_id", batch.batch_id.as_str())
        .text("batch_key", batch.key.as_str())
        .number("attempt", u64::from(batch.attempt))
        .text("first_message_at", &batch.first.to_iso())
        .text("last_message_at", &batch.last.to_iso())
        .end()
}

/// One message as it is, with what the batch adds to it. What it had in its own `meta` stays beside that.
fn whole(parts: &Parts<'_>, message: Option<&Part<'_>>) -> String {
    let Some(message) = message else { return "{}".to_owned() };
    let mut merged = Object::new();
    for (name, value) in message.fields.iter().filter(|(name, _)| !matches!(*name, "meta" | "message_ids")) {
        merged = merged.raw(name, value.get());
    }
    merged.raw("message_ids", &parts.message_ids()).raw("meta", &joined_meta(&message.fields, &parts.meta)).end()
}

fn joined_meta(message: &Fields<'_>, meta: &str) -> String {
    let own = message.get("meta").and_then(|own| Fields::parse(own.get().as_bytes()).ok()).unwrap_or_default();
    let ours = Fields::parse(meta.as_bytes()).unwrap_or_default();
    let mut joined = Object::new();
    for (name, value) in own.iter().filter(|(name, _)| ours.get(name).is_none()).chain(ours.iter()) {
        joined = joined.raw(name, value.get());
    }
    joined.end()
}
