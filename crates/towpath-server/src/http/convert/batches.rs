//! Batches between the wire's shapes and the library's words.

use serde_json::json;
use towpath::batches::{
    BadMessage, BatchError, BatchKey, BatcherName, FlightView, InvalidSettings, KnownBatcher, OpenBatchView, Pushed, Target,
};
use towpath_core::batch::redacted;
use towpath_core::inspect::BatchView;
use towpath_core::payload::Payload;

use crate::http::codes::Code;
use crate::http::error::{ApiError, invalid_name, no_policy};
use crate::http::wire::Json;
use crate::http::wire::batches::{BatchBody, MessageAnswer, SettingsBody};

pub(crate) fn batcher_name(text: &str) -> Result<BatcherName, ApiError> {
    BatcherName::new(text).map_err(|refused| invalid_name("batcher", &refused))
}

pub(crate) fn batch_key(text: &str) -> Result<BatchKey, ApiError> {
    BatchKey::new(text).map_err(|refused| invalid_name("batch_key", &refused))
}

impl From<BatchError> for ApiError {
    fn from(error: BatchError) -> Self {
        let message = error.to_string();
        match error {
            BatchError::InvalidName(refused) => invalid_name("batcher", &refused),
            BatchError::BadMessage(bad) => bad_message(&bad),
            BatchError::InvalidSettings(invalid) => invalid_settings(&invalid),
            BatchError::Rate { error, .. } => no_policy(&error, "rate.policy"),
            BatchError::UnknownBatcher { batcher } => {
                Self::new(Code::BatcherNotFound, message).field("batcher").details(json!({ "batcher": batcher }))
            }
            BatchError::Full { open, max, .. } => {
                Self::new(Code::BatcherFull, message).details(serde_json::json!({ "open_messages": open, "limit": max }))
            }
            BatchError::NotReplayable { .. } => Self::new(Code::NotReplayable, message).field("id"),
            BatchError::Store(error) => error.into(),
            _ => Self::new(Code::StoreUnavailable, message),
        }
    }
}

fn bad_message(bad: &BadMessage) -> ApiError {
    let (code, field) = match bad {
        BadMessage::BadJson { .. } => (Code::BadField, "message".to_owned()),
        BadMessage::MissingField { field } => (Code::MissingField, field.clone()),
        BadMessage::BadName { field, .. } => (Code::BadName, field.clone()),
        BadMessage::BadField { field, .. } => (Code::BadField, field.clone()),
        BadMessage::OutOfRange { field, .. } => (Code::OutOfRange, (*field).to_owned()),
        BadMessage::TooLarge { .. } => return ApiError::new(Code::MessageTooLarge, bad.to_string()).field("message"),
        BadMessage::TooDeep => (Code::TooDeep, "message".to_owned()),
    };
    ApiError::new(code, bad.to_string()).field(field).unprocessable()
}

fn invalid_settings(invalid: &InvalidSettings) -> ApiError {
    let code = match invalid {
        // As a function's rate is refused.
        InvalidSettings::BadName { field, refused } => return invalid_name(*field, refused),
        InvalidSettings::OutOfRange { .. } => Code::OutOfRange,
        InvalidSettings::Bad { .. } => Code::BadField,
    };
    ApiError::new(code, invalid.to_string()).field(invalid.field()).unprocessable()
}

pub(crate) fn message_answer(pushed: &Pushed) -> MessageAnswer {
    match pushed {
        Pushed::Accepted { batch_key, deadline, size, reason } => MessageAnswer {
            accepted: true,
            batch_key: Some(batch_key.to_string()),
            deadline: Some(deadline.as_millis()),
            size: Some(*size),
            reason: Some(reason.as_str().to_owned()),
            ..MessageAnswer::default()
        },
        Pushed::Duplicate { batch_key, deadline } => MessageAnswer {
            duplicate: true,
            batch_key: Some(batch_key.to_string()),
            deadline: deadline.map(|deadline| deadline.as_millis()),
            ..MessageAnswer::default()
        },
    }
}

pub(crate) fn target_word(target: Option<&Target>) -> &'static str {
    match target {
        None => "none",
        Some(Target::Url(_)) => "url",
        Some(Target::Function { .. }) => "function",
        Some(Target::Workflow { .. }) => "workflow",
        Some(Target::Pull) => "pull",
    }
}

pub(crate) fn settings_body(known: &KnownBatcher) -> Result<SettingsBody, ApiError> {
    let json = |patch| serde_json::value::to_raw_value(patch).map_err(|error| ApiError::new(Code::Internal, error.to_string()));
    let stored = known.stored.as_ref().map(json).transpose()?;
    let settings = json(&known.settings.to_patch())?;
    Ok(SettingsBody { batcher: known.name.to_string(), settings, stored, version: known.version })
}

pub(crate) fn open_batch(view: &OpenBatchView) -> BatchBody {
    let open = &view.open;
    BatchBody {
        state: "open".to_owned(),
        batch_key: view.key.to_string(),
        first_message_at: open.first.as_millis(),
        last_message_at: open.last.as_millis(),
        reason: open.reason.as_str().to_owned(),
        deadline: Some(open.deadline.as_millis()),
        sealed: Some(open.sealed),
        size: Some(open.size),
        bytes: Some(open.bytes),
        ..BatchBody::default()
    }
}

/// A batch with its messages from this place on.
pub(crate) fn whole_batch(view: &BatchView, from: u64) -> BatchBody {
    let shown_to = from + view.messages.len() as u64;
    let next = (!view.messages.is_empty() && shown_to < view.open.size).then(|| shown_to.to_string());
    let shown = |message: &towpath::batches::Message| shown(&Payload::from_json(message.to_bytes()));
    BatchBody {
        batch_id: view.in_flight.as_ref().map(ToString::to_string),
        messages: Some(view.messages.iter().map(shown).collect()),
        next,
        ..open_batch(&OpenBatchView { key: view.key.clone(), open: view.open })
    }
}

pub(crate) fn flight(view: &FlightView) -> BatchBody {
    BatchBody {
        state: "in_flight".to_owned(),
        batch_key: view.key.to_string(),
        first_message_at: view.first.as_millis(),
        last_message_at: view.last.as_millis(),
        reason: view.reason.as_str().to_owned(),
        batch_id: Some(view.batch_id.to_string()),
        attempt: Some(view.attempt),
        held: Some(view.held),
        due_at: Some(view.at.as_millis()),
        replayed: view.replayed,
        ..BatchBody::default()
    }
}

/// A value as it may be shown: without secrets.
pub(crate) fn shown(payload: &Payload) -> Json {
    super::json(&redacted(payload))
}
