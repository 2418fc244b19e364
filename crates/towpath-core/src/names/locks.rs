//! Names of locks: what is locked, who asks, and which question it was.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{InvalidName, check_length, check_text, refuse_separator};

name!(
    /// What is locked. It stands literally in the key that old workflows use, so that they meet the same lock.
    ///
    /// ```
    /// use towpath_core::names::LockScope;
    ///
    /// assert!(LockScope::new("excel-fileId-123").is_ok());
    /// let refused = LockScope::new("a:meta").unwrap_err();
    /// assert!(refused.to_string().contains("it ends in ':meta'"));
    /// ```
    LockScope,
    "lock scope",
    |text| check_lock_scope(text)
);

name!(
    /// Who asks for a lock. Any text: it is kept as data and never becomes part of a key.
    LockId,
    "lock id",
    check_length,
    |_text| Ok::<(), InvalidName>(())
);

name!(
    /// Which execution of a workflow a lock belongs to, so that it can be freed when the execution fails.
    ExecutionId,
    "execution id",
    check_length,
    |_text| Ok::<(), InvalidName>(())
);

name!(
    /// What a workflow is called, or its id, for people to read.
    WorkflowLabel,
    "workflow name",
    check_length,
    |_text| Ok::<(), InvalidName>(())
);

name!(
    /// One question for a lock. A repeated question carries the same id and gets the same answer.
    RequestId,
    "request id",
    |text| check_word("request id", text)
);

name!(
    /// One process that waits for locks and is woken as a whole.
    NodeId,
    "node id",
    |text| check_word("node id", text)
);

/// A place in a queue: `<node>|<request>`. The node is told when the turn comes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WaiterId(Arc<str>);

impl WaiterId {
    /// The place that this request of this node has.
    pub fn new(node: &NodeId, request: &RequestId) -> Self {
        Self(Arc::from(format!("{node}|{request}")))
    }

    /// `<node>|<request>`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The node to wake.
    pub fn node(&self) -> &str {
        self.0.split_once('|').map_or(&*self.0, |(node, _)| node)
    }
}

impl TryFrom<String> for WaiterId {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        let (node, request) = text.split_once('|').unwrap_or((&text, ""));
        Ok(Self::new(&NodeId::new(node)?, &RequestId::new(request)?))
    }
}

impl From<WaiterId> for String {
    fn from(waiter: WaiterId) -> String {
        waiter.as_str().to_owned()
    }
}

impl fmt::Display for WaiterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for WaiterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl LockScope {
    /// The counter's name, as workflows know it.
    pub fn key(&self) -> String {
        format!("n8n-lock-{self}")
    }

    /// The name beside it, under which the holder's identity stands.
    pub fn meta_key(&self) -> String {
        format!("n8n-lock-{self}:meta")
    }
}

impl Default for LockScope {
    fn default() -> Self {
        Self(Arc::from("default"))
    }
}

impl Default for WorkflowLabel {
    fn default() -> Self {
        Self(Arc::from("unknown"))
    }
}

fn check_lock_scope(text: &str) -> Result<(), InvalidName> {
    const WHAT: &str = "lock scope";
    if text.trim().is_empty() {
        return Err(InvalidName::Empty { what: WHAT });
    }
    if text.ends_with(":meta") {
        let why = "it ends in ':meta', where the identity of another lock's holder is kept";
        return Err(InvalidName::Reserved { what: WHAT, name: text.to_owned(), why });
    }
    Ok(())
}

/// A wake-up is `<key> <node>|<request>`: neither part may contain what separates them.
fn check_word(what: &'static str, text: &str) -> Result<(), InvalidName> {
    refuse_separator(what, text, '|')?;
    match text.chars().find(|c| c.is_whitespace()) {
        Some(character) => Err(InvalidName::Separator { what, name: text.to_owned(), character }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_that_is_empty_blank_long_or_somebodys_sidecar_is_refused() {
        for scope in ["", " ", "\u{2003}", ":meta", "x:meta", "x:meta:meta"] {
            assert!(LockScope::new(scope).is_err(), "{scope:?}");
        }
        assert!(matches!(LockScope::new("x".repeat(300)), Err(InvalidName::TooLong { bytes: 300, .. })));
        assert!(matches!(LockScope::new("a\nb"), Err(InvalidName::Control { .. })));
        for scope in ["a b", "a:b", "{a}", "x:metal", "meta", "замок", "🔒", "x".repeat(256).as_str()] {
            assert_eq!(LockScope::new(scope).unwrap().as_str(), scope);
        }
    }

    #[test]
    fn a_lock_id_is_any_text_of_some_length() {
        assert_eq!(LockId::new("a\n\"b\"\0").unwrap().as_str(), "a\n\"b\"\0");
        assert!(LockId::new("").is_err());
        assert!(ExecutionId::new("x".repeat(257)).is_err());
    }

    #[test]
    fn a_waiter_survives_its_text_and_names_its_node() {
        let waiter = WaiterId::new(&NodeId::new("host-1").unwrap(), &RequestId::new("r-1").unwrap());
        assert_eq!((waiter.as_str(), waiter.node()), ("host-1|r-1", "host-1"));
        assert_eq!(WaiterId::try_from(waiter.as_str().to_owned()), Ok(waiter));
        for text in ["", "a", "a|", "|b", "a|b|c", "a|b c"] {
            assert!(WaiterId::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
