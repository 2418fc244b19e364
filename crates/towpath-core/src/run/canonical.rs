//! One text for equal JSON: RFC 8785, except that integers keep all their digits.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use thiserror::Error;

use crate::payload::Payload;

/// JSON that is nested more deeply has no canonical text here.
const DEPTH_MAX: usize = 128;

/// Input that has no canonical text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unencodable {
    /// It is not JSON.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// A number that is too large for a double, such as `1e400`.
    #[error("the number {0} is too large")]
    TooLarge(String),
    /// It is nested too deeply.
    #[error("it is nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
}

/// The canonical text of a JSON value: members sorted, no spaces, one way to write each number and each character.
///
/// ```
/// use towpath_core::payload::Payload;
/// use towpath_core::run::canonical;
///
/// let text = canonical(&Payload::from_json(r#"{ "b": 1.0, "a": "\u0041" }"#)).unwrap();
/// assert_eq!(text, br#"{"a":"A","b":1}"#);
/// ```
pub fn canonical(value: &Payload) -> Result<Vec<u8>, Unencodable> {
    let mut text = String::with_capacity(value.len());
    let value: &RawValue = read(value.as_str())?;
    write(&mut text, value, 0)?;
    Ok(text.into_bytes())
}

fn read<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Result<T, Unencodable> {
    serde_json::from_str(text).map_err(|error| Unencodable::NotJson(error.to_string()))
}

fn write(text: &mut String, value: &RawValue, depth: usize) -> Result<(), Unencodable> {
    if depth > DEPTH_MAX {
        return Err(Unencodable::TooDeep);
    }
    let raw = value.get();
    match raw.as_bytes().first() {
        Some(b'{') => write_object(text, read(raw)?, depth),
        Some(b'[') => {
            let items: Vec<&RawValue> = read(raw)?;
            text.push('[');
            for (number, item) in items.into_iter().enumerate() {
                if number > 0 {
                    text.push(',');
                }
                write(text, item, depth + 1)?;
            }
            text.push(']');
            Ok(())
        }
        Some(b'"') => write_string(text, &read::<String>(raw)?),
        Some(b't' | b'f' | b'n') => {
            text.push_str(raw);
            Ok(())
        }
        _number => write_number(text, raw),
    }
}

fn write_object(text: &mut String, members: BTreeMap<String, &RawValue>, depth: usize) -> Result<(), Unencodable> {
    let mut members: Vec<(String, &RawValue)> = members.into_iter().collect();
    // RFC 8785 sorts by UTF-16 code units, which is not the order of UTF-8 bytes.
    members.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
    text.push('{');
    for (number, (name, value)) in members.into_iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        write_string(text, &name)?;
        text.push(':');
        write(text, value, depth + 1)?;
    }
    text.push('}');
    Ok(())
}

fn write_string(text: &mut String, string: &str) -> Result<(), Unencodable> {
    // serde_json escapes what RFC 8785 escapes, in the same way.
    *text += &serde_json::to_string(string).map_err(|error| Unencodable::NotJson(error.to_string()))?;
    Ok(())
}

fn write_number(text: &mut String, raw: &str) -> Result<(), Unencodable> {
    if !raw.contains(['.', 'e', 'E']) {
        *text += if raw == "-0" { "0" } else { raw };
        return Ok(());
    }
    let number: f64 = raw.parse().map_err(|_| Unencodable::NotJson(format!("{raw} is not a number")))?;
    if !number.is_finite() {
        return Err(Unencodable::TooLarge(raw.to_owned()));
    }
    *text += &shortest(number);
    Ok(())
}

/// A double as ECMAScript writes it: the shortest digits that read back as the same double.
fn shortest(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let sign = if number < 0.0 { "-" } else { "" };
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    // The number is 0.DIGITS times ten to the power of `point`.
    let (point, count) = (exponent.parse::<i32>().unwrap_or(0) + 1, i32::try_from(digits.len()).unwrap_or(i32::MAX));
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    let body = if count <= point && point <= 21 {
        format!("{digits}{}", zeros(point - count))
    } else if 0 < point && point <= 21 {
        let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
        format!("{whole}.{fraction}")
    } else if -6 < point && point <= 0 {
        format!("0.{}{digits}", zeros(-point))
    } else {
        let (first, rest) = digits.split_at(1);
        let fraction = if rest.is_empty() { String::new() } else { format!(".{rest}") };
        let exponent = point - 1;
        format!("{first}{fraction}e{}{}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
    };
    format!("{sign}{body}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(json: &str) -> Result<String, Unencodable> {
        canonical(&Payload::from_json(json.to_owned())).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn equal_values_have_one_text() {
        for (json, expected) in [
            (r#"{"b":2,"a":1}"#, r#"{"a":1,"b":2}"#),
            (r#" [ 1 , "x" , null , true ] "#, r#"[1,"x",null,true]"#),
            (
                r#"{"\u20ac":1,"\ud83d\ude00":2,"\ufb33":3,"\r":4,"1":5}"#,
                "{\"\\r\":4,\"1\":5,\"\u{20ac}\":1,\"\u{1f600}\":2,\"\u{fb33}\":3}",
            ),
            (r#""\u0000\u001f\/\"\\é""#, "\"\\u0000\\u001f/\\\"\\\\é\""),
            ("-0", "0"),
            ("-0.0", "0"),
            ("1.0", "1"),
            ("1e2", "100"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("1e21", "1e+21"),
            ("1e20", "100000000000000000000"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("-1.5e-10", "-1.5e-10"),
            ("123.456", "123.456"),
            ("5e-324", "5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ] {
            assert_eq!(text(json).as_deref(), Ok(expected), "{json}");
        }
    }

    #[test]
    fn what_has_no_text_is_refused() {
        assert_eq!(text("1e400"), Err(Unencodable::TooLarge("1e400".to_owned())));
        assert!(matches!(text("NaN"), Err(Unencodable::NotJson(_))));
        assert!(matches!(text("{"), Err(Unencodable::NotJson(_))));
        assert!(text(&format!("{}1{}", "[".repeat(100), "]".repeat(100))).is_ok());
        assert_eq!(text(&format!("{}1{}", "[".repeat(200), "]".repeat(200))), Err(Unencodable::TooDeep));
    }

    proptest! {
        #[test]
        fn a_double_reads_back_as_itself(number in any::<f64>().prop_filter("finite", |number| number.is_finite())) {
            prop_assert_eq!(shortest(number).parse::<f64>().unwrap(), number);
        }

        #[test]
        fn a_canonical_text_is_its_own(value in "[\\[\\]{}\",:0-9a-z. -]{0,40}") {
            if let Ok(once) = text(&value) {
                let twice = text(&once);
                prop_assert_eq!(twice, Ok(once));
            }
        }
    }
}
