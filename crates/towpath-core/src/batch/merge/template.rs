//! JSON with look-ups: `{{/first/text}}` is whatever stands there. Look-ups only; nothing is ever run.

use serde_json::Value;
use serde_json::value::RawValue;

use super::{MergeError, Parts, text};
use crate::batch::Settings;
use crate::batch::fields::{Object, array, look_up, nesting, quoted, string};

/// The largest result, in bytes.
const RESULT_BYTES_MAX: usize = 64 << 10;
const TEMPLATE_BYTES_MAX: usize = 64 << 10;
const ROOTS: [&str; 5] = ["first", "last", "texts", "messages", "meta"];

/// A piece of a string.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Literal(&'a str),
    LookUp(&'a str),
}

/// Refuses a template that could never be what its author meant.
pub(in crate::batch) fn check(template: &Value) -> Result<(), String> {
    let text = template.to_string();
    if text.len() > TEMPLATE_BYTES_MAX || nesting(text.as_bytes()) > super::super::NESTING_MAX {
        return Err(format!("it has more than {TEMPLATE_BYTES_MAX} bytes, or is nested too deeply"));
    }
    check_value(template)
}

fn check_value(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) => pieces(text).map(drop),
        Value::Array(values) => values.iter().try_for_each(check_value),
        Value::Object(fields) => fields.values().try_for_each(check_value),
        _ => Ok(()),
    }
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(start) = rest.find("{{") {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        let end = after.find("}}").ok_or_else(|| format!("'{}' has no }}}} behind its look-up", &rest[start..]))?;
        let pointer = after[..end].trim();
        let root = pointer.split('/').nth(1).unwrap_or_default();
        if !pointer.starts_with('/') || !ROOTS.contains(&root) {
            return Err(format!("'{pointer}' must begin with /{}", ROOTS.join(", /")));
        }
        if !before.is_empty() {
            found.push(Piece::Literal(before));
        }
        found.push(Piece::LookUp(pointer));
        rest = &after[end + 2..];
    }
    if !rest.is_empty() {
        found.push(Piece::Literal(rest));
    }
    Ok(found)
}

pub(super) fn rendered(settings: &Settings, parts: &Parts<'_>) -> Result<String, MergeError> {
    let texts: Vec<String> = text::texts(settings, &parts.messages).iter().map(|text| quoted(text)).collect();
    let raw = |part: Option<&super::Part<'_>>| part.map_or("null", |part| part.raw.get()).to_owned();
    let root = Object::new()
        .raw("first", &raw(parts.messages.first()))
        .raw("last", &raw(parts.messages.last()))
        .raw("texts", &array(texts.iter().map(String::as_str)))
        .raw("messages", &array(parts.messages.iter().map(|part| part.raw.get())))
        .raw("meta", &parts.meta)
        .end();
    let Ok(root) = RawValue::from_string(root) else { return Err(MergeError::NothingReadable) };
    let mut result = String::new();
    render(settings.merge.template.as_ref().unwrap_or(&Value::Null), &root, &mut result)?;
    Ok(result)
}

fn render(template: &Value, root: &RawValue, result: &mut String) -> Result<(), MergeError> {
    match template {
        Value::String(text) => result.push_str(&filled(text, root)),
        Value::Array(values) => {
            result.push('[');
            for (place, value) in values.iter().enumerate() {
                result.push_str(if place > 0 { "," } else { "" });
                render(value, root, result)?;
            }
            result.push(']');
        }
        Value::Object(fields) => {
            result.push('{');
            for (place, (name, value)) in fields.iter().enumerate() {
                result.push_str(if place > 0 { "," } else { "" });
                result.push_str(&quoted(name));
                result.push(':');
                render(value, root, result)?;
            }
            result.push('}');
        }
        plain => result.push_str(&plain.to_string()),
    }
    if result.len() > RESULT_BYTES_MAX {
        return Err(MergeError::TooLarge { bytes: result.len(), max: RESULT_BYTES_MAX });
    }
    Ok(())
}

/// A look-up that stands alone is the value itself; among other text it is written into it. What is not there is `null`.
fn filled(text: &str, root: &RawValue) -> String {
    match pieces(text).unwrap_or_default().as_slice() {
        [Piece::LookUp(pointer)] => look_up(root, pointer).map_or("null", RawValue::get).to_owned(),
        pieces => {
            let written = pieces.iter().map(|piece| match piece {
                Piece::Literal(literal) => (*literal).to_owned(),
                Piece::LookUp(pointer) => match look_up(root, pointer) {
                    Some(value) => string(value).unwrap_or_else(|| value.get().to_owned()),
                    None => "null".to_owned(),
                },
            });
            quoted(&written.collect::<String>())
        }
    }
}
