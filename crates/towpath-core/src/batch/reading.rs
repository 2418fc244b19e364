//! Reading a message at the door: what a store needs to know of it, or why it is refused.

use thiserror::Error;

use super::fields::{Fields, nesting, string_or_number};
use super::settings::{fold, from_seconds};
use super::{Message, MessageId, NewMessage, Seal, Settings, SourceId, Strategy, key};

/// The largest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// The deepest nesting of a message.
pub const NESTING_MAX: usize = 64;

/// A message that was not taken. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadMessage {
    /// It is no JSON object.
    #[error("the message is no JSON object: {cause}, at byte {offset}")]
    BadJson {
        /// Where the trouble is.
        offset: usize,
        /// What it is.
        cause: String,
    },
    /// Something that its batch key needs is not there.
    #[error("{field} is missing: the batch key is made of it")]
    MissingField {
        /// What.
        field: String,
    },
    /// Something that its batch key needs cannot be part of one.
    #[error("{field} cannot be part of a batch key: {why}")]
    BadName {
        /// What.
        field: String,
        /// Why.
        why: String,
    },
    /// A field of the wrong kind.
    #[error("{field}: {why}")]
    BadField {
        /// Which.
        field: String,
        /// Why.
        why: String,
    },
    /// A number outside its range.
    #[error("{field} must be a number from 0 to {max}")]
    OutOfRange {
        /// Which.
        field: &'static str,
        /// The most.
        max: String,
    },
    /// It is too large.
    #[error("the message has {bytes} bytes: at most {MESSAGE_BYTES_MAX} are allowed")]
    TooLarge {
        /// How large.
        bytes: usize,
    },
    /// It is nested too deeply.
    #[error("the message is nested more than {NESTING_MAX} deep")]
    TooDeep,
}

impl BadMessage {
    /// The stable code of the API, and the reason of a dead letter.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::BadJson { .. } => "bad_json",
            Self::MissingField { .. } => "missing_field",
            Self::BadName { .. } => "bad_name",
            Self::BadField { .. } => "bad_field",
            Self::OutOfRange { .. } => "out_of_range",
            Self::TooLarge { .. } => "message_too_large",
            Self::TooDeep => "too_deep",
        }
    }

    /// The reason of the dead letter that it becomes when it came from a list.
    pub const fn dead_reason(&self) -> &'static str {
        match self {
            Self::BadJson { .. } => "parse_error",
            other => other.code(),
        }
    }

    pub(super) fn json(text: &[u8], cause: &serde_json::Error) -> Self {
        // The parser counts lines and columns; people who look at bytes want the place in bytes.
        let before: usize = text.split_inclusive(|byte| *byte == b'\n').take(cause.line().saturating_sub(1)).map(<[u8]>::len).sum();
        let words = cause.to_string();
        let said = words.split(" at line ").next().unwrap_or_default().to_owned();
        Self::BadJson { offset: (before + cause.column().saturating_sub(1)).min(text.len()), cause: said }
    }
}

/// A message that may be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadMessage {
    /// What a store is asked to take.
    pub message: NewMessage,
    /// Its own debounce time made no sense and was brought into range; only of a message that came from a list.
    pub clamped: bool,
}

impl Settings {
    /// Reads a message that somebody sends. `source` says that it came from an old producer's list: nobody waits for an answer then, so what
    /// can be put right is.
    ///
    /// ```
    /// use std::time::Duration;
    /// use towpath_core::batch::{Message, Settings};
    /// use towpath_core::names::BatcherName;
    ///
    /// let settings = Settings::of(&BatcherName::new("input_contour").unwrap());
    /// let body = r#"{"channel": "telegram", "external_chat_id": "1", "text": "Привет", "debounce_seconds": 2.5}"#;
    /// let read = settings.message(Message::new(body), None).unwrap();
    /// assert_eq!(read.message.key.as_str(), "unknown:telegram:1");
    /// assert_eq!(read.message.debounce, Duration::from_millis(2_500));
    /// let refused = settings.message(Message::new(r#"{"text": "Привет"}"#), None).unwrap_err();
    /// assert_eq!((refused.code(), refused.to_string()), ("missing_field", "channel is missing: the batch key is made of it".to_owned()));
    /// ```
    pub fn message(&self, body: Message, source: Option<SourceId>) -> Result<ReadMessage, BadMessage> {
        if body.len() > MESSAGE_BYTES_MAX {
            return Err(BadMessage::TooLarge { bytes: body.len() });
        }
        if nesting(body.as_bytes()) > NESTING_MAX {
            return Err(BadMessage::TooDeep);
        }
        let fields = Fields::parse(body.as_bytes()).map_err(|cause| BadMessage::json(body.as_bytes(), &cause))?;
        self.check_kinds(&fields)?;
        let key = key::build(self, body.as_bytes(), &fields)?;
        let (debounce, clamped) = self.debounce_of(&fields, source.is_some())?;
        let message_id = fields.get("message_id").and_then(string_or_number).and_then(MessageId::new);
        let seal = if self.is_keyword(&fields) { Some(Seal::Keyword) } else { debounce.is_zero().then_some(Seal::Immediate) };
        drop(fields);
        Ok(ReadMessage { message: NewMessage { key, body, message_id, source, debounce, seal }, clamped })
    }

    /// What is merged by its text must have one, or none at all.
    fn check_kinds(&self, fields: &Fields<'_>) -> Result<(), BadMessage> {
        if !matches!(self.merge.strategy, Strategy::Text | Strategy::Template) {
            return Ok(());
        }
        for (name, first, kind) in [("text", '"', "a string"), ("media", '{', "an object")] {
            if fields.given(name).is_some_and(|value| !value.get().starts_with(first)) {
                return Err(BadMessage::BadField { field: name.to_owned(), why: format!("it must be {kind}") });
            }
        }
        Ok(())
    }

    fn debounce_of(&self, fields: &Fields<'_>, put_right: bool) -> Result<(std::time::Duration, bool), BadMessage> {
        let Some(given) = fields.given("debounce_seconds") else { return Ok((self.debounce, false)) };
        let max = self.max_wait.as_secs_f64();
        match given.get().parse::<f64>() {
            Ok(seconds) if (0.0..=max).contains(&seconds) => Ok((from_seconds(seconds), false)),
            Ok(seconds) if put_right && !seconds.is_nan() => Ok((from_seconds(seconds.clamp(0.0, max)), true)),
            _ if put_right => Ok((self.debounce, true)),
            _ => Err(BadMessage::OutOfRange { field: "debounce_seconds", max: max.to_string() }),
        }
    }

    fn is_keyword(&self, fields: &Fields<'_>) -> bool {
        !self.flush_keywords.is_empty() && fields.text("text").is_some_and(|text| self.flush_keywords.contains(&fold(&text)))
    }
}
