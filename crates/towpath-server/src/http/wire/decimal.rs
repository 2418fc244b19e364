//! Numbers that may come as text: workflow engines fill in `"600"` where `600` is meant.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// A number, or the decimal text of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decimal(pub f64);

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DecimalVisitor)
    }
}

struct DecimalVisitor;

impl Visitor<'_> for DecimalVisitor {
    type Value = Decimal;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Decimal, E> {
        Ok(Decimal(number as f64))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Decimal, E> {
        Ok(Decimal(number as f64))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Decimal, E> {
        Ok(Decimal(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Decimal, E> {
        let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-');
        let number = text.parse().ok().filter(|_| is_decimal);
        number.map(Decimal).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_text_is_a_number_and_anything_else_is_not() {
        for (json, number) in [("600", 600.0), ("0.5", 0.5), ("\"600\"", 600.0), ("\"0.5\"", 0.5), ("-1", -1.0), ("\"-1\"", -1.0)] {
            assert_eq!(serde_json::from_str::<Decimal>(json).unwrap(), Decimal(number), "{json}");
        }
        for json in ["\"\"", "\"ten\"", "\"NaN\"", "\"inf\"", "\"1e3\"", "\" 1\"", "\"1.2.3\"", "true", "null", "[1]", "{}"] {
            assert!(serde_json::from_str::<Decimal>(json).is_err(), "{json}");
        }
    }
}
