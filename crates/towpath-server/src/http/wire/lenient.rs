//! Values as workflows write them: an id may be a number, and a yes or no may be text.

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

/// A text, or a number as its text.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    match Value::deserialize(from)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(D::Error::custom(format!("expected a text or a number, found {}", kind(&other)))),
    }
}

/// The same, and it may be `null`.
pub(crate) fn optional_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(from)? {
        Value::Null => Ok(None),
        other => text(other).map(Some).map_err(D::Error::custom),
    }
}

/// Yes or no, or the text `true` or `false`. It may be `null`.
pub(crate) fn optional_flag<'de, D: Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    match Value::deserialize(from)? {
        Value::Null => Ok(None),
        Value::Bool(flag) => Ok(Some(flag)),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
        other => Err(D::Error::custom(format!("expected true or false, found {}", kind(&other)))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Body {
        #[serde(default, deserialize_with = "optional_text")]
        id: Option<String>,
        #[serde(default, deserialize_with = "optional_flag")]
        wait: Option<bool>,
    }

    #[test]
    fn ids_may_be_numbers_and_flags_may_be_text() {
        let read = |text: &str| serde_json::from_str::<Body>(text).map(|body| (body.id, body.wait));
        assert_eq!(read(r#"{"id": 4711, "wait": "false"}"#).unwrap(), (Some("4711".to_owned()), Some(false)));
        assert_eq!(read(r#"{"id": "a", "wait": true}"#).unwrap(), (Some("a".to_owned()), Some(true)));
        assert_eq!(read(r#"{"id": null}"#).unwrap(), (None, None));
        for broken in [r#"{"id": []}"#, r#"{"id": true}"#, r#"{"wait": "no"}"#, r#"{"wait": 1}"#] {
            assert!(read(broken).is_err(), "{broken}");
        }
    }
}
