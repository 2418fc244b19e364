//! JSON objects taken apart without losing a digit: the values stay the text that they came as.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields of an object, in order. Of two with one name the later counts, as everywhere.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(field, _)| field == name).map(|(_, value)| *value)
    }

    /// The value of a field that is there and not `null`.
    pub(super) fn given(&self, name: &str) -> Option<&'a RawValue> {
        self.get(name).filter(|value| value.get() != "null")
    }

    /// The value of a field that is a string.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(string)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

impl<'a, 'de: 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry::<String, &RawValue>()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// What a JSON Pointer leads to.
pub(super) fn look_up<'a>(mut value: &'a RawValue, pointer: &str) -> Option<&'a RawValue> {
    for part in pointer.split('/').skip(1) {
        let name = part.replace("~1", "/").replace("~0", "~");
        value = match value.get().as_bytes().first()? {
            b'{' => Fields::parse(value.get().as_bytes()).ok()?.get(&name)?,
            b'[' => *elements(value)?.get(name.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(value)
}

/// The elements of an array.
pub(super) fn elements(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// The text of a JSON string.
pub(super) fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// The text of a JSON string, or the digits of a number.
pub(super) fn string_or_number(value: &RawValue) -> Option<String> {
    let first = value.get().as_bytes().first()?;
    if first.is_ascii_digit() || *first == b'-' { Some(value.get().to_owned()) } else { string(value) }
}

/// Whether a script would take it for true.
pub(super) fn is_truthy(value: &RawValue) -> bool {
    let text = value.get();
    let zero = text.parse::<f64>().is_ok_and(|number| number == 0.0);
    !(zero || matches!(text, "null" | "false" | "\"\""))
}

/// An object under construction: fields in the order in which they are put.
#[derive(Debug)]
pub(super) struct Object(String);

impl Object {
    pub(super) fn new() -> Self {
        Self("{".to_owned())
    }

    /// A field whose value is JSON already.
    pub(super) fn raw(mut self, name: &str, json: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&quoted(name));
        self.0.push(':');
        self.0.push_str(json);
        self
    }

    /// A field whose value is JSON already, if there is one.
    pub(super) fn raw_if(self, name: &str, json: Option<&RawValue>) -> Self {
        match json {
            Some(json) => self.raw(name, json.get()),
            None => self,
        }
    }

    pub(super) fn text(self, name: &str, value: &str) -> Self {
        let json = quoted(value);
        self.raw(name, &json)
    }

    pub(super) fn number(self, name: &str, value: u64) -> Self {
        self.raw(name, &value.to_string())
    }

    pub(super) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// An array of values that are JSON already.
pub(super) fn array<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let values: Vec<&str> = values.into_iter().collect();
    format!("[{}]", values.join(","))
}

/// A text as JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

/// How deep arrays and objects stand in one another.
pub(super) fn nesting(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_every_digit_and_the_later_of_two_counts() {
        let fields = Fields::parse(br#"{"n": 1e400, "big": 123456789012345678901234567890, "n": -0}"#).unwrap();
        assert_eq!(fields.get("n").unwrap().get(), "-0");
        assert_eq!(fields.get("big").unwrap().get(), "123456789012345678901234567890");
        assert!(Fields::parse(b"[]").is_err() && Fields::parse(b"{").is_err());
    }

    #[test]
    fn a_pointer_leads_into_objects_and_arrays_and_nowhere_else() {
        let value: Box<RawValue> = serde_json::from_str(r#"{"a": [{"b/c": "x"}], "~": 1}"#).unwrap();
        assert_eq!(look_up(&value, "/a/0/b~1c").unwrap().get(), r#""x""#);
        assert_eq!(look_up(&value, "/~0").unwrap().get(), "1");
        assert_eq!(look_up(&value, "").unwrap().get(), value.get());
        for pointer in ["/b", "/a/1", "/a/x", "/a/0/b~1c/d", "/~0/x"] {
            assert!(look_up(&value, pointer).is_none(), "{pointer}");
        }
    }

    #[test]
    fn nesting_is_counted_outside_of_strings() {
        assert_eq!(nesting(br#"{"a": "[[[\"{{", "b": [[1]]}"#), 3);
        assert_eq!(nesting(b"1"), 0);
    }

    #[test]
    fn truth_is_a_scripts() {
        for (text, truthy) in
            [("0", false), ("0.0", false), ("\"\"", false), ("null", false), ("false", false), ("\"0\"", true), ("{}", true)]
        {
            let value: Box<RawValue> = serde_json::from_str(text).unwrap();
            assert_eq!(is_truthy(&value), truthy, "{text}");
        }
    }
}
