//! Opaque JSON text. A store carries it and never looks inside; only edges and handlers parse.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// JSON text as it came, byte for byte: `1e400`, `-0` and a thirty-digit number survive unchanged.
///
/// Whoever makes one has made sure that it is JSON; [`Payload::null`] is the empty value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Bytes);

impl Payload {
    /// Wraps text that is known to be JSON.
    pub fn from_json(text: impl Into<Bytes>) -> Self {
        Self(text.into())
    }

    /// The JSON value `null`.
    pub const fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// The text as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text as bytes, without copying them.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// The text, or the empty string should the bytes not be UTF-8, which JSON always is.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no text at all, which is not JSON.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Bodies may hold secrets and may be large: a log line shows only how much there is.
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

/// Inside other JSON it stands as it is, byte for byte.
impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = RawValue::from_string(self.as_str().to_owned()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'a> Deserialize<'a> for Payload {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self::from_json(raw.get().to_owned()))
    }
}
