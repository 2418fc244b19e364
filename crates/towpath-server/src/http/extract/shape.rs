//! JSON text into a shape of ours. When it does not fit, the answer names the field and what is expected of it.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;
use serde_path_to_error::{Path, Segment};

use crate::http::bounds::Bounds;
use crate::http::codes::Code;
use crate::http::error::ApiError;
use crate::http::wire::object::Object;

/// Reads a whole body.
pub(super) fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = serde_path_to_error::deserialize(&mut reader);
    let misfit = match read {
        Ok(Object(value)) => match reader.end() {
            Ok(()) => return Ok(value),
            Err(_trailing) => None,
        },
        Err(misfit) => Some(misfit),
    };
    // Text that is no JSON at all is told from JSON of another shape by reading it as just any JSON.
    match (serde_json::from_slice::<&RawValue>(text), misfit) {
        (Err(broken), _) => Err(not_json(text, &broken)),
        (Ok(_), Some(misfit)) => Err(does_not_fit(misfit.path(), &misfit.inner().to_string())),
        (Ok(_), None) => Err(ApiError::new(Code::InvalidJson, "the body is not one JSON value")),
    }
}

/// Whether a whole body is JSON, of whatever shape.
pub(super) fn check(text: &[u8]) -> Result<(), ApiError> {
    serde_json::from_slice::<&RawValue>(text).map(|_| ()).map_err(|broken| not_json(text, &broken))
}

fn not_json(text: &[u8], error: &serde_json::Error) -> ApiError {
    let (line, column) = (error.line(), error.column());
    let offset = byte_offset(text, line, column);
    let what = error.to_string();
    let what = what.split(" at line ").next().unwrap_or_default();
    ApiError::new(Code::InvalidJson, format!("the body is not JSON: {what} at byte {offset} (line {line}, column {column})"))
        .field("body")
        .details(json!({ "byte": offset, "line": line, "column": column }))
}

/// Where line and column are, counted from the start. Both begin at 1; column 0 is the end of the line before.
fn byte_offset(text: &[u8], line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    (before + column.saturating_sub(1)).min(text.len())
}

/// Turns what serde says of a misfit into an answer. Serde's sentences are stable enough to tell the kinds apart, and a sentence that
/// is not recognised still becomes an answer with its path.
pub(super) fn does_not_fit(path: &Path, message: &str) -> ApiError {
    let message: &str = &in_plain_words(message.split(" at line ").next().unwrap_or(message));
    let quoted = message.split('`').nth(1).unwrap_or_default();
    let parent = dotted(path);
    let below = |name: &str| if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") };
    if message.starts_with("unknown field") {
        // The path may already end with the field, depending on where serde noticed.
        let field = if parent == quoted || parent.ends_with(&format!(".{quoted}")) { parent } else { below(quoted) };
        return ApiError::new(Code::UnknownField, message).field(field).hint("check its spelling, or leave it out");
    }
    if message.starts_with("missing field") {
        return ApiError::new(Code::MissingField, message).field(below(quoted));
    }
    if message.starts_with("duplicate field") {
        return ApiError::new(Code::DuplicateField, message).field(below(quoted));
    }
    let field = if parent.is_empty() { "body".to_owned() } else { parent };
    if is_number_trouble(message) {
        return out_of_range(field, message);
    }
    ApiError::new(Code::InvalidField, format!("'{field}': {message}")).field(field)
}

/// The names of our types are of no use to a client.
fn in_plain_words(message: &str) -> Cow<'_, str> {
    match message.split_once("expected struct ") {
        None => Cow::Borrowed(message),
        Some((before, type_name)) => {
            let behind = type_name.trim_start_matches(|letter: char| letter.is_alphanumeric() || letter == '_');
            Cow::Owned(format!("{before}expected an object{behind}"))
        }
    }
}

fn is_number_trouble(message: &str) -> bool {
    message.starts_with("invalid value: integer")
        || message.starts_with("number out of range")
        || (message.starts_with("invalid type: floating point") && message.contains("expected u"))
}

fn out_of_range(field: String, message: &str) -> ApiError {
    let name = field.rsplit('.').next().unwrap_or_default();
    match Bounds::of(name) {
        Some(bounds) => bounds.refuse(field, message),
        None => ApiError::new(Code::OutOfRange, format!("'{field}': {message}")).field(field),
    }
}

fn dotted(path: &Path) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => text += &format!("[{index}]"),
            Segment::Map { key } => {
                if !text.is_empty() {
                    text.push('.');
                }
                text += key;
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::wire::calls::CallBody;
    use crate::http::wire::workers::{CompleteBody, RegisterBody};

    fn refusal<T: DeserializeOwned>(text: &str) -> (Code, String) {
        let Err(error) = read::<T>(text.as_bytes()) else { panic!("{text} was taken") };
        (error.code(), error.field_name().unwrap_or_default().to_owned())
    }

    #[test]
    fn each_misfit_names_its_field() {
        let calls = [
            (r#"{"timeout_ms": "soon"}"#, Code::InvalidField, "timeout_ms"),
            (r#"{"timeout_ms": -1}"#, Code::OutOfRange, "timeout_ms"),
            (r#"{"timeout_ms": 1.5}"#, Code::OutOfRange, "timeout_ms"),
            (r#"{"timeout_ms": 1e400}"#, Code::OutOfRange, "timeout_ms"),
            (r#"{"timeout_ms": 99999999999999999999}"#, Code::OutOfRange, "timeout_ms"),
            (r#"{"timeot_ms": 1}"#, Code::UnknownField, "timeot_ms"),
            (r#"{"scope": "a", "scope": "b"}"#, Code::DuplicateField, "scope"),
            (r#"{"scope": 5}"#, Code::InvalidField, "scope"),
            (r#"[]x"#, Code::InvalidJson, "body"),
            (r#""text""#, Code::InvalidField, "body"),
            ("[]", Code::InvalidField, "body"),
            ("null", Code::InvalidField, "body"),
        ];
        for (text, code, field) in calls {
            assert_eq!(refusal::<CallBody>(text), (code, field.to_owned()), "{text}");
        }
        let missing = r#"{"functions": [{"name": "a"}, {"scope": "b"}]}"#;
        assert_eq!(refusal::<RegisterBody>(missing), (Code::MissingField, "functions[1].name".to_owned()));
        let deep = r#"{"functions": [{"name": "a", "retry": {"max_atempts": 1}}]}"#;
        assert_eq!(refusal::<RegisterBody>(deep), (Code::UnknownField, "functions[0].retry.max_atempts".to_owned()));
        let positional = r#"{"functions": [["a"]]}"#;
        assert_eq!(refusal::<RegisterBody>(positional), (Code::InvalidField, "functions[0]".to_owned()));
        let positional = r#"{"functions": [{"name": "a", "retry": [1]}]}"#;
        assert_eq!(refusal::<RegisterBody>(positional), (Code::InvalidField, "functions[0].retry".to_owned()));
        assert_eq!(refusal::<CompleteBody>(r#"{"results": 5}"#), (Code::InvalidField, "results".to_owned()));
    }

    #[test]
    fn what_is_expected_is_said_in_plain_words() {
        assert_eq!(in_plain_words("invalid type: integer `5`, expected struct RetryBody"), "invalid type: integer `5`, expected an object");
        assert_eq!(in_plain_words("expected struct A_1 with 2 elements"), "expected an object with 2 elements");
        assert_eq!(in_plain_words("invalid type: integer `5`, expected a string"), "invalid type: integer `5`, expected a string");
        let Err(error) = read::<RegisterBody>(br#"{"functions": [{"name": "a", "retry": 5}]}"#) else { panic!("it was taken") };
        assert!(error.message_text().ends_with("expected an object"), "{}", error.message_text());
    }

    #[test]
    fn text_that_is_no_json_says_where() {
        for (text, byte) in [("", 0), ("{\"params\": {}", 12), ("{}\n{}", 3), ("\u{feff}{}", 0), ("{\"params\": NaN}", 11)] {
            let Err(error) = read::<CallBody>(text.as_bytes()) else { panic!("{text:?} was taken") };
            assert_eq!(error.code(), Code::InvalidJson, "{text:?}");
            let details = error.details_text();
            assert!(details.contains(&format!("\"byte\":{byte},")), "{text:?}: {details}");
        }
    }

    #[test]
    fn payloads_keep_their_bytes_whatever_is_in_them() {
        let params = r#"{"a": 1e400, "b": -0, "c":123456789012345678901234567890, "d": "\u0000", "d": 1}"#;
        let body: CallBody = read(format!(r#"{{"params": {params} }}"#).as_bytes()).ok().unwrap();
        assert_eq!(body.params.unwrap().get(), params);
    }
}
