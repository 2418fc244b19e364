//! A message as it came, and what makes it the same message as another.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

/// A message, byte for byte as it came. That it is JSON was seen when it was taken; what an old worker has left behind may be anything.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Message(Bytes);

impl Message {
    /// Wraps a message.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its bytes, without copying them.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none, which is no message.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Messages hold what people wrote, and the tokens of their bots: a log line shows only how much there is.
        write!(f, "Message({} bytes)", self.0.len())
    }
}

/// What makes two messages of one key the same message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Arc<str>);

impl MessageId {
    /// Longer ids are known by their hash.
    const LITERAL_BYTES_MAX: usize = 128;

    /// The id that a message carries, as it stands behind a batch key: without `:`, so that no id of one key is that of another. None when
    /// it is empty.
    ///
    /// ```
    /// use towpath_core::batch::MessageId;
    ///
    /// assert_eq!(MessageId::new("msg_1").unwrap().as_str(), "msg_1");
    /// assert_eq!(MessageId::new("a:1").unwrap().as_str(), "a%3A1");
    /// assert_eq!(MessageId::new("x".repeat(129)).unwrap().as_str().len(), 64);
    /// assert_eq!(MessageId::new(""), None);
    /// ```
    pub fn new(text: impl AsRef<str>) -> Option<Self> {
        let text = text.as_ref();
        let encoded = text.replace('%', "%25").replace(':', "%3A");
        match encoded.len() {
            0 => None,
            1..=Self::LITERAL_BYTES_MAX => Some(Self(Arc::from(encoded))),
            _ => Some(Self(Arc::from(hex(&Sha256::digest(text))))),
        }
    }

    /// The id as a store keeps it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Which element of an old producer's list a message was: the list, and a number that no other element of it ever has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId {
    /// The list.
    pub list: Arc<str>,
    /// The number.
    pub number: u64,
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.list, self.number)
    }
}

/// Twelve hexadecimal digits of the SHA-256 of a text: enough to tell things apart, too few to find out what they were.
pub fn hash12(text: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(text)[..6])
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _a_string_takes_everything = write!(text, "{byte:02x}");
        text
    })
}
