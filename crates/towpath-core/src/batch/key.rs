//! For whom a message is gathered.

use serde_json::value::RawValue;

use super::fields::{Fields, look_up, string_or_number};
use super::{BadMessage, Settings, hash12};
use crate::names::{BatchKey, NAME_BYTES_MAX};

/// What tells two bots apart when a message names no tenant.
const CREDENTIALS: [&str; 3] = ["bot_token", "profile_id", "group_id"];
const TENANT: &str = "tenant_id";
const UNKNOWN: &str = "unknown";

/// The batch key of a message: the parts that the settings name, joined by `:`. In all but the last, `:` and `%` are percent-encoded, so
/// that no two messages share a key by accident; the last stands as it is.
///
/// ```
/// use towpath_core::batch::{Message, Settings, key_of};
/// use towpath_core::names::BatcherName;
///
/// let settings = Settings::of(&BatcherName::new("input_contour").unwrap());
/// let message = Message::new(r#"{"tenant_id": "a1b2c3d4", "channel": "telegram", "external_chat_id": 123456789}"#);
/// assert_eq!(key_of(&settings, &message).unwrap().as_str(), "a1b2c3d4:telegram:123456789");
/// ```
pub fn key_of(settings: &Settings, message: &super::Message) -> Result<BatchKey, BadMessage> {
    let fields = Fields::parse(message.as_bytes()).map_err(|cause| BadMessage::json(message.as_bytes(), &cause))?;
    build(settings, message.as_bytes(), &fields)
}

pub(super) fn build(settings: &Settings, message: &[u8], fields: &Fields<'_>) -> Result<BatchKey, BadMessage> {
    let mut key = String::new();
    for (place, pointer) in settings.key.iter().enumerate() {
        let part = part(settings, message, fields, pointer)?;
        if place > 0 {
            key.push(':');
        }
        if place + 1 < settings.key.len() {
            key.push_str(&part.replace('%', "%25").replace(':', "%3A"));
        } else {
            key.push_str(&part);
        }
    }
    BatchKey::new(&key).map_err(|refused| BadMessage::BadName { field: "batch key".to_owned(), why: refused.to_string() })
}

fn part(settings: &Settings, message: &[u8], fields: &Fields<'_>, pointer: &str) -> Result<String, BadMessage> {
    let value = if pointer.starts_with('/') {
        let whole: Option<&RawValue> = serde_json::from_slice(message).ok();
        whole.and_then(|whole| look_up(whole, pointer))
    } else {
        fields.get(pointer)
    };
    let given = value.filter(|value| !matches!(value.get(), "null" | "\"\""));
    match given {
        Some(value) => checked(pointer, value),
        None if pointer.trim_start_matches('/') == TENANT => Ok(unknown_tenant(settings, fields)),
        None => Err(BadMessage::MissingField { field: pointer.to_owned() }),
    }
}

fn checked(pointer: &str, value: &RawValue) -> Result<String, BadMessage> {
    let text = string_or_number(value)
        .ok_or_else(|| BadMessage::BadField { field: pointer.to_owned(), why: "it must be a string or a number".to_owned() })?;
    let bad = |why: &str| Err(BadMessage::BadName { field: pointer.to_owned(), why: why.to_owned() });
    if text.len() > NAME_BYTES_MAX {
        return bad("it has more than 256 bytes");
    }
    if text.chars().any(char::is_control) {
        return bad("it contains a control character");
    }
    if text.trim().is_empty() {
        return Err(BadMessage::MissingField { field: pointer.to_owned() });
    }
    Ok(text)
}

fn unknown_tenant(settings: &Settings, fields: &Fields<'_>) -> String {
    let credential = CREDENTIALS.iter().find_map(|name| fields.get(name).and_then(string_or_number).filter(|text| !text.is_empty()));
    match credential.filter(|_| settings.split_unknown) {
        Some(credential) => format!("{UNKNOWN}-{}", hash12(credential)),
        None => UNKNOWN.to_owned(),
    }
}
