//! The query string, read as strictly as a body: unknown, repeated and unreadable parameters are refused by name.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::shape::does_not_fit;
use crate::http::codes::Code;
use crate::http::error::ApiError;

/// The parameters after the `?`.
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        read(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

fn read<T: DeserializeOwned>(query: &str) -> Result<T, ApiError> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect::<Result<Vec<_>, _>>()?;
    let map = MapDeserializer::<_, serde::de::value::Error>::new(pairs.into_iter());
    serde_path_to_error::deserialize(map).map_err(|misfit| does_not_fit(misfit.path(), &misfit.inner().to_string()))
}

fn pair(text: &str) -> Result<(String, Text), ApiError> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let decode = |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8().map(std::borrow::Cow::into_owned).ok();
    let unreadable =
        |name: String| ApiError::new(Code::InvalidField, format!("query parameter '{name}' is not percent-encoded UTF-8")).field(name);
    let name = decode(name).ok_or_else(|| unreadable("query".to_owned()))?;
    let value = decode(value).ok_or_else(|| unreadable(name.clone()))?;
    Ok((name, Text(value)))
}

/// A parameter's value: text, and a number, or `true` or `false`, where one is asked for.
struct Text(String);

impl<'de> IntoDeserializer<'de, serde::de::value::Error> for Text {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl Text {
    fn visit_number<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, serde::de::value::Error> {
        if let Ok(number) = self.0.parse::<u64>() {
            return visitor.visit_u64(number);
        }
        if let Ok(number) = self.0.parse::<i64>() {
            return visitor.visit_i64(number); // negative: refused as out of range, with the number in the message
        }
        match self.0.parse::<f64>() {
            Ok(number) if self.0.starts_with(|c: char| c.is_ascii_digit() || c == '-') => visitor.visit_f64(number),
            _ => visitor.visit_string(self.0),
        }
    }
}

impl<'de> Deserializer<'de> for Text {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0.as_str() {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => visitor.visit_string(self.0),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.visit_number(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.visit_number(visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::wire::calls::{CallQuery, WaitQuery};

    #[test]
    fn text_and_numbers_are_told_apart_by_what_is_asked_for() {
        let query: CallQuery = read("function=123&limit=7&scope=a+b%2Fc").ok().unwrap();
        assert_eq!((query.function.as_deref(), query.limit, query.scope.as_deref()), (Some("123"), Some(7), Some("a b/c")));
    }

    #[test]
    fn each_misfit_names_its_parameter() {
        let cases = [
            ("wait_ms=-1", Code::OutOfRange, "wait_ms"),
            ("wait_ms=1.5", Code::OutOfRange, "wait_ms"),
            ("wait_ms=99999999999999999999", Code::OutOfRange, "wait_ms"),
            ("wait_ms=soon", Code::InvalidField, "wait_ms"),
            ("wait_ms=", Code::InvalidField, "wait_ms"),
            ("wait=1", Code::UnknownField, "wait"),
            ("wait_ms=1&wait_ms=2", Code::DuplicateField, "wait_ms"),
            ("wait_ms=%ff", Code::InvalidField, "wait_ms"),
            ("after_progress=4294967296", Code::OutOfRange, "after_progress"),
        ];
        for (query, code, field) in cases {
            let Err(error) = read::<WaitQuery>(query) else { panic!("{query} was taken") };
            assert_eq!((error.code(), error.field_name()), (code, Some(field)), "{query}");
        }
    }
}
