//! Names that people choose, checked once at the edge. A name that got past here can stand literally in a key, as old peers write it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// Why a name was refused. The text says what to change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidName {
    /// Nothing was given.
    #[error("{what} is empty: give it at least one character")]
    Empty {
        /// What was being named.
        what: &'static str,
    },
    /// Longer than names of this kind may be.
    #[error("{what} has {bytes} bytes: at most {max} are allowed")]
    TooLong {
        /// What was being named.
        what: &'static str,
        /// How long the name is.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// A control character, which would garble keys, logs and terminals.
    #[error("{what} contains the control character U+{code:04X}: remove it")]
    Control {
        /// What was being named.
        what: &'static str,
        /// The character's code point.
        code: u32,
    },
    /// A character that separates the parts of a key.
    #[error("{what} '{name}' contains '{character}', which separates the parts of a key: leave it out")]
    Separator {
        /// What was being named.
        what: &'static str,
        /// The name as given.
        name: String,
        /// The offending character.
        character: char,
    },
    /// The name would share a key with something else.
    #[error("{what} '{name}' is reserved ({why}): choose another name")]
    Reserved {
        /// What was being named.
        what: &'static str,
        /// The name as given.
        name: String,
        /// What it would collide with.
        why: &'static str,
    },
}

/// For text that is kept as data and never becomes part of a key.
fn check_length(what: &'static str, text: &str) -> Result<(), InvalidName> {
    if text.is_empty() {
        return Err(InvalidName::Empty { what });
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(InvalidName::TooLong { what, bytes: text.len(), max: NAME_BYTES_MAX });
    }
    Ok(())
}

fn check_text(what: &'static str, text: &str) -> Result<(), InvalidName> {
    check_length(what, text)?;
    match text.chars().find(|c| c.is_control()) {
        Some(character) => Err(InvalidName::Control { what, code: u32::from(character) }),
        None => Ok(()),
    }
}

fn refuse_separator(what: &'static str, text: &str, character: char) -> Result<(), InvalidName> {
    if text.contains(character) {
        return Err(InvalidName::Separator { what, name: text.to_owned(), character });
    }
    Ok(())
}

fn refuse_prefix(what: &'static str, text: &str, prefix: &str, why: &'static str) -> Result<(), InvalidName> {
    if text.starts_with(prefix) {
        return Err(InvalidName::Reserved { what, name: text.to_owned(), why });
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, |$text:ident| $rules:expr) => {
        name!($(#[$doc])* $name, $what, check_text, |$text| $rules);
    };
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:ident, |$text:ident| $rules:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a name; the error says what to change.
            pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidName> {
                let $text = text.as_ref();
                $check($what, $text)?;
                $rules?;
                Ok(Self(Arc::from($text)))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.as_str().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

mod batches;
mod locks;
mod runs;

pub use batches::{BATCH_KEY_BYTES_MAX, BatchId, BatchKey, BatchToken, BatcherName};
pub use locks::{ExecutionId, LockId, LockScope, NodeId, RequestId, WaiterId, WorkflowLabel};
pub use runs::{BuildId, EventName, Reference, Shard, VERSION_BYTES_MAX, WorkflowName, WorkflowVersion};

name!(
    /// What a function is called. Compared as bytes.
    ///
    /// ```
    /// use towpath_core::names::FunctionName;
    ///
    /// assert!(FunctionName::new("Process Order").is_ok());
    /// let refused = FunctionName::new("global_config").unwrap_err();
    /// assert!(refused.to_string().contains("reserved"));
    /// ```
    FunctionName,
    "function name",
    |text| check_function(text)
);

name!(
    /// Where a function is known: `__global__`, or the id of the one workflow that may call it.
    Scope,
    "scope",
    |text| refuse_separator("scope", text, ':')
);

name!(
    /// One worker process, for as long as it lives.
    WorkerId,
    "worker id",
    |text| refuse_separator("worker id", text, ':')
);

name!(
    /// One call. Callers may make it themselves, so that a resend is the same call.
    CallId,
    "call id",
    |text| refuse_prefix("call id", text, "inbox:", "reply inboxes are called so")
);

name!(
    /// What makes two calls of one function the same call.
    IdempotencyKey,
    "idempotency key",
    |_text| Ok::<(), InvalidName>(())
);

name!(
    /// What a limit counts for: a tenant, a service, a file. Written literally into the keys of old callers, who may use any text.
    LimitScope,
    "scope",
    |text| refuse_blank("scope", text)
);

name!(
    /// What a rule of a limit is called among the others of its check.
    RuleName,
    "rule name",
    |text| refuse_blank("rule name", text).and_then(|()| refuse_separator("rule name", text, ':'))
);

name!(
    /// Whom a rule counts apart from all others under the same scope: a user of a tenant.
    RuleKey,
    "rule key",
    |text| refuse_blank("rule key", text)
);

fn refuse_blank(what: &'static str, text: &str) -> Result<(), InvalidName> {
    if text.trim().is_empty() { Err(InvalidName::Empty { what }) } else { Ok(()) }
}

fn check_function(text: &str) -> Result<(), InvalidName> {
    const WHAT: &str = "function name";
    if text == "global_config" {
        let why = "the shared configuration is kept under that key";
        return Err(InvalidName::Reserved { what: WHAT, name: text.to_owned(), why });
    }
    refuse_prefix(WHAT, text, "meta:", "worker metadata is kept under such keys")?;
    refuse_prefix(WHAT, text, "stream:", "call streams are kept under such keys")?;
    refuse_prefix(WHAT, text, "response:", "replies are kept under such keys")
}

impl Scope {
    /// The scope of functions that everyone may call.
    pub fn global() -> Self {
        Self(Arc::from("__global__"))
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::global()
    }
}

/// A function's full name. The same name in two scopes is two functions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FunctionKey {
    /// Where it is known.
    pub scope: Scope,
    /// What it is called there.
    pub name: FunctionName,
}

impl FunctionKey {
    /// A function that everyone may call.
    pub fn global(name: FunctionName) -> Self {
        Self { scope: Scope::global(), name }
    }
}

/// Characters of a [`FunctionKey::tag`].
const TAG_CHARS: usize = 7;
/// The digits of a tag: base 32 as in RFC 4648, in lower case.
const TAG_DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

impl FunctionKey {
    /// A short stable hash of the function's full name: 7 lowercase base-32 characters. Two functions can share a tag.
    pub fn tag(&self) -> String {
        let bytes = self.scope.as_str().bytes().chain([b'\n']).chain(self.name.as_str().bytes());
        let hash = fnv_1a(bytes);
        let mut rest = hash ^ (hash >> 35); // folded, so that all 64 bits count
        let mut tag = String::with_capacity(TAG_CHARS);
        for _ in 0..TAG_CHARS {
            tag.push(char::from(TAG_DIGITS[(rest & 31) as usize]));
            rest >>= 5;
        }
        tag
    }
}

/// FNV-1a with 64 bits, written out because tags are stored: no library may change them.
fn fnv_1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

impl CallId {
    /// The id with its function's tag behind it: `<id>.<tag>`. A store that keeps calls by function finds such a call by its id alone.
    /// An id that would become longer than [`NAME_BYTES_MAX`] is returned as it is.
    pub fn for_function(id: &Self, function: &FunctionKey) -> Self {
        let tagged = format!("{id}.{}", function.tag());
        if tagged.len() > NAME_BYTES_MAX { id.clone() } else { Self(Arc::from(tagged)) }
    }

    /// The 7 characters behind the last dot, if they can be a tag. Only a hint: callers choose ids freely.
    pub fn function_tag(&self) -> Option<&str> {
        let (_, tag) = self.as_str().rsplit_once('.')?;
        (tag.len() == TAG_CHARS && tag.bytes().all(|byte| TAG_DIGITS.contains(&byte))).then_some(tag)
    }
}

impl fmt::Display for FunctionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scope == Scope::global() { write!(f, "{}", self.name) } else { write!(f, "{}:{}", self.scope, self.name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_share_a_key_are_refused() {
        for name in ["global_config", "meta:x", "stream:x", "response:x"] {
            assert!(matches!(FunctionName::new(name), Err(InvalidName::Reserved { .. })), "{name}");
        }
        assert!(matches!(Scope::new("a:b"), Err(InvalidName::Separator { character: ':', .. })));
        assert!(matches!(WorkerId::new("a:b"), Err(InvalidName::Separator { character: ':', .. })));
        assert!(matches!(CallId::new("inbox:x"), Err(InvalidName::Reserved { .. })));
    }

    #[test]
    fn the_tag_of_a_function_never_changes() {
        let add = FunctionKey::global(FunctionName::new("add").unwrap());
        let scoped = FunctionKey { scope: Scope::new("wf-7").unwrap(), name: FunctionName::new("add").unwrap() };
        assert_eq!((add.tag().as_str(), scoped.tag().as_str()), ("wasfpwk", "2laglsc"));
    }

    #[test]
    fn an_id_tells_the_tag_of_its_function() {
        let add = FunctionKey::global(FunctionName::new("add").unwrap());
        let id = CallId::for_function(&CallId::new("call.1").unwrap(), &add);
        assert_eq!(id.as_str(), format!("call.1.{}", add.tag()));
        assert_eq!(id.function_tag(), Some(add.tag().as_str()));
        for untagged in ["call-1", "call.1", "call.abcdefgh", "call.abcdef", "call.ABCDEFG", "call.abcdef1", "abcdefg", "call.abcdefg."] {
            assert_eq!(CallId::new(untagged).unwrap().function_tag(), None, "{untagged}");
        }
        let long = CallId::new("x".repeat(NAME_BYTES_MAX - 7)).unwrap();
        assert_eq!(CallId::for_function(&long, &add), long, "a tag makes no id too long");
    }

    #[test]
    fn empty_long_and_control_are_refused_and_unicode_is_kept() {
        assert_eq!(FunctionName::new(""), Err(InvalidName::Empty { what: "function name" }));
        assert_eq!(
            FunctionName::new("x".repeat(300)),
            Err(InvalidName::TooLong { what: "function name", bytes: 300, max: NAME_BYTES_MAX })
        );
        assert_eq!(FunctionName::new("a\0b"), Err(InvalidName::Control { what: "function name", code: 0 }));
        assert_eq!(FunctionName::new("a\u{85}b"), Err(InvalidName::Control { what: "function name", code: 0x85 }));
        for name in ["a:b", "a/b", "{a}", "100%", "заказ", "🚢", "metadata", "x".repeat(256).as_str()] {
            assert_eq!(FunctionName::new(name).unwrap().as_str(), name);
        }
    }
}
