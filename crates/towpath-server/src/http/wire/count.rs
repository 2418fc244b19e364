//! A whole number that may be written as decimal text. What is neither is kept as it came, so that the answer can name field and range.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// A number as it was given.
#[derive(Debug, Clone, PartialEq)]
pub struct Count {
    number: Option<u64>,
    given: String,
}

impl Count {
    /// The number, or what was given instead of one.
    pub fn get(&self) -> Result<u64, &str> {
        self.number.ok_or(&self.given)
    }
}

impl From<u64> for Count {
    fn from(number: u64) -> Self {
        Self { number: Some(number), given: number.to_string() }
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.number {
            Some(number) => to.serialize_u64(number),
            None => to.serialize_str(&self.given),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, or decimal text of one")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Count, E> {
        Ok(number.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Count, E> {
        Ok(Count { number: u64::try_from(number).ok(), given: number.to_string() })
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Count, E> {
        // 60.0 is what some languages write for 60.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole, not negative and small enough")]
        let whole = (number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number)).then_some(number as u64);
        Ok(Count { number: whole, given: number.to_string() })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Count, E> {
        Ok(Count { number: text.trim().parse().ok(), given: format!("'{text}'") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_decimal_text_are_numbers_and_all_else_is_kept_as_it_came() {
        let read = |text: &str| serde_json::from_str::<Count>(text).unwrap();
        for text in ["60", "\"60\"", "60.0", "\" 60 \""] {
            assert_eq!(read(text).get(), Ok(60), "{text}");
        }
        for (text, given) in [("-1", "-1"), ("1.5", "1.5"), ("\"ten\"", "'ten'"), ("\"\"", "''"), ("\"1e3\"", "'1e3'")] {
            assert_eq!(read(text).get(), Err(given), "{text}");
        }
        assert!(serde_json::from_str::<Count>("[1]").is_err());
        assert_eq!(serde_json::to_string(&Count::from(7)).unwrap(), "7");
    }
}
