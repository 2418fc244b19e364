//! Hides what is nobody's business from those who may see a message but not its secrets.

use serde_json::value::RawValue;

use super::DeadLetter;
use super::fields::{Fields, Object, array, elements, quoted};
use crate::payload::Payload;

const SECRETS: [&str; 5] = ["bot_token", "token", "authorization", "password", "secret"];
/// What could not be read may hold anything.
const UNREADABLE: [&str; 2] = ["raw", "raw_hex"];
const HIDDEN: &str = "[redacted]";

/// The same JSON with the values of `bot_token`, `token`, `authorization`, `password` and `secret` hidden, wherever they stand.
///
/// ```
/// use towpath_core::batch::redacted;
/// use towpath_core::payload::Payload;
///
/// let seen = redacted(&Payload::from_json(r#"{"text": "hi", "a": [{"Bot_Token": "123:ABC"}]}"#));
/// assert_eq!(seen.as_str(), r#"{"text":"hi","a":[{"Bot_Token":"[redacted]"}]}"#);
/// ```
pub fn redacted(json: &Payload) -> Payload {
    match serde_json::from_slice::<&RawValue>(json.as_bytes()) {
        Ok(value) => Payload::from_json(hide(value, 0)),
        Err(_no_json) => Payload::from_json(quoted(HIDDEN)),
    }
}

impl DeadLetter {
    /// The entry as it may be shown: secrets are hidden, and so is all of what could not be read.
    pub fn redacted(&self) -> Payload {
        let Ok(fields) = Fields::parse(self.entry.as_bytes()) else { return Payload::from_json(quoted(HIDDEN)) };
        let shown = fields.iter().fold(Object::new(), |shown, (name, value)| {
            if UNREADABLE.contains(&name) { shown.text(name, HIDDEN) } else { shown.raw(name, &hide(value, 0)) }
        });
        Payload::from_json(shown.end())
    }
}

/// Far deeper than any message that is taken.
const DEPTH_MAX: usize = 200;

fn hide(value: &RawValue, depth: usize) -> String {
    if depth > DEPTH_MAX {
        return quoted(HIDDEN);
    }
    match value.get().as_bytes().first() {
        Some(b'{') => {
            let fields = Fields::parse(value.get().as_bytes()).unwrap_or_default();
            let secret = |name: &str| SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret));
            let hidden = fields.iter().fold(Object::new(), |hidden, (name, value)| {
                if secret(name) { hidden.text(name, HIDDEN) } else { hidden.raw(name, &hide(value, depth + 1)) }
            });
            hidden.end()
        }
        Some(b'[') => {
            let values: Vec<String> = elements(value).unwrap_or_default().into_iter().map(|value| hide(value, depth + 1)).collect();
            array(values.iter().map(String::as_str))
        }
        _ => value.get().to_owned(),
    }
}
