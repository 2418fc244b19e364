//! The identity of a step: what it is and how often it came before, not where it stands in the code.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::canonical::{Unencodable, canonical};
use super::place::RunId;
use crate::payload::Payload;

/// The first part of what a step id is made of: it changes if the way to make them changes.
const FORMAT: &str = "towpath-step-1";
/// How many hex digits a step id has.
const STEP_ID_CHARS: usize = 32;

/// What kind of step it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Runs code once, with retries.
    Task,
    /// Waits for an instant.
    Sleep,
    /// Waits for an event.
    Event,
    /// Starts another workflow and waits for its end.
    Child,
    /// Sends an event to another run.
    Send,
    /// Calls a Towpath function.
    Call,
    /// Waits for a person or a webhook that has a token.
    Token,
    /// Remembers which version of the code a run takes.
    Mark,
}

impl StepKind {
    /// The word used in step ids, journals and the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Sleep => "sleep",
            Self::Event => "event",
            Self::Child => "child",
            Self::Send => "send",
            Self::Call => "call",
            Self::Token => "token",
            Self::Mark => "mark",
        }
    }
}

/// The id of a step: 32 hex digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StepId(Arc<str>);

/// Text that is not the id of a step.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not the id of a step: it has 32 hex digits")]
pub struct InvalidStepId(String);

impl StepId {
    /// Checks an id; the error says what it looks like.
    pub fn parse(text: &str) -> Result<Self, InvalidStepId> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != STEP_ID_CHARS || !text.bytes().all(is_hex) {
            return Err(InvalidStepId(text.chars().take(crate::names::NAME_BYTES_MAX).collect()));
        }
        Ok(Self(Arc::from(text)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl TryFrom<String> for StepId {
    type Error = InvalidStepId;

    fn try_from(text: String) -> Result<Self, InvalidStepId> {
        Self::parse(&text)
    }
}

impl From<StepId> for String {
    fn from(id: StepId) -> String {
        id.as_str().to_owned()
    }
}

/// What tells a step from others of its kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StepKey {
    /// Nothing: only how often it came before.
    None,
    /// A key that the code gave. The input is not compared then.
    Given(Arc<str>),
    /// The hash of its input.
    Input(Arc<str>),
}

impl StepKey {
    /// The key of a step with this input. `seed` is the run's: equal inputs of two runs have different hashes.
    pub fn of_input(seed: &[u8], input: &Payload) -> Result<Self, Unencodable> {
        let mut hash = Sha256::new();
        hash.update(seed);
        hash.update(canonical(input)?);
        Ok(Self::Input(Arc::from(hex(&hash.finalize()))))
    }

    fn text(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Given(key) => format!("k:{key}"),
            Self::Input(hash) => format!("h1:{hash}"),
        }
    }
}

/// What a step id is made of, but for its ordinal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StepParts {
    /// The labels of the branches that the code is in, outermost first.
    pub branch: Vec<Arc<str>>,
    /// What kind of step it is.
    pub kind: StepKind,
    /// Its name: the given one, `sleep` for a sleep without one, a child's workflow.
    pub name: Arc<str>,
    /// What tells it from others of its kind and name.
    pub key: StepKey,
}

impl StepParts {
    /// The id of the step that comes with these parts for the `ordinal`-th time, from 0.
    pub fn id(&self, ordinal: u64) -> StepId {
        let mut hash = Sha256::new();
        let mut add = |part: &str| {
            // No part is as long as this: names have 256 bytes at most, and an input is hashed.
            hash.update(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            hash.update(part.as_bytes());
        };
        add(FORMAT);
        self.branch.iter().for_each(|label| add(label));
        add("");
        add(self.kind.as_str());
        add(&self.name);
        add(&self.key.text());
        add(&ordinal.to_string());
        StepId(Arc::from(&hex(&hash.finalize())[..STEP_ID_CHARS]))
    }
}

/// Counts how often each step came, in one execution of a generation.
#[derive(Debug, Default)]
pub struct Occurrences(HashMap<StepParts, u64>);

impl Occurrences {
    /// The id of the step that the code asks for now.
    pub fn next(&mut self, parts: &StepParts) -> StepId {
        let count = self.0.entry(parts.clone()).or_insert(0);
        let ordinal = *count;
        *count += 1;
        parts.id(ordinal)
    }
}

/// The key under which a task's effects outside are done once: the same for every attempt and every delivery, whatever its input.
pub fn idempotency_key(run: &RunId, generation: u64, parts: &StepParts, ordinal: u64) -> String {
    let key = match &parts.key {
        StepKey::Given(key) => format!("k:{key}"),
        StepKey::None | StepKey::Input(_) => format!("n:{ordinal}"),
    };
    let mut hash = Sha256::new();
    for part in [run.as_str(), &generation.to_string(), &parts.branch.join("\u{1f}"), &parts.name, &key] {
        hash.update(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())[..STEP_ID_CHARS].to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::place::place;
    use super::*;

    fn parts(name: &str, key: StepKey) -> StepParts {
        StepParts { branch: Vec::new(), kind: StepKind::Task, name: Arc::from(name), key }
    }

    fn input(text: &'static str) -> StepKey {
        StepKey::of_input(b"seed", &Payload::from_json(text)).unwrap()
    }

    #[test]
    fn a_step_is_known_by_its_content_and_its_occurrence() {
        let mut occurrences = Occurrences::default();
        let first = occurrences.next(&parts("charge", input(r#"{"a":1,"b":[2]}"#)));
        let again = occurrences.next(&parts("charge", input(r#"{ "b": [2.0], "a": 1 }"#)));
        let other = occurrences.next(&parts("charge", input("2")));
        assert_ne!(first, again, "the same step for the second time is another step");
        let mut replayed = Occurrences::default();
        assert_eq!(replayed.next(&parts("charge", input("2"))), other, "its place in the code does not count");
        assert_eq!(replayed.next(&parts("charge", input(r#"{"b":[2],"a":1}"#))), first, "nor does the order of members");
    }

    #[test]
    fn parts_that_are_put_together_otherwise_are_other_steps() {
        let branch = |labels: &[&str], name: &str, key: StepKey| StepParts {
            branch: labels.iter().map(|label| Arc::from(*label)).collect(),
            ..parts(name, key)
        };
        let steps = [
            branch(&[], "ab", StepKey::None),
            branch(&["a"], "b", StepKey::None),
            branch(&["a", "b"], "c", StepKey::None),
            branch(&["ab"], "c", StepKey::None),
            branch(&[], "ab", StepKey::Given(Arc::from("x"))),
            branch(&[], "ab", StepKey::Input(Arc::from("x"))),
            StepParts { kind: StepKind::Call, ..branch(&[], "ab", StepKey::None) },
        ];
        let ids: std::collections::BTreeSet<StepId> = steps.iter().flat_map(|parts| [parts.id(0), parts.id(1), parts.id(10)]).collect();
        assert_eq!(ids.len(), 3 * steps.len());
    }

    #[test]
    fn a_step_id_is_fixed() {
        // Journals of running workflows hold these ids: a build that makes other ones would find none of its steps again.
        assert_eq!(parts("reserve", StepKey::None).id(0).as_str(), "b329eaa6f308ee01440132ac50deccd5");
    }

    #[test]
    fn the_idempotency_key_does_not_depend_on_the_input() {
        let run = RunId::new(&place("a", "1", None).unwrap(), 1);
        let key = |key, ordinal| idempotency_key(&run, 0, &parts("charge", key), ordinal);
        assert_eq!(key(input("1"), 0), key(input("2"), 0), "a task that is issued again with another input has the same effects outside");
        assert_ne!(key(input("1"), 0), key(input("1"), 1));
        assert_eq!(key(StepKey::Given(Arc::from("x")), 0), key(StepKey::Given(Arc::from("x")), 1));
        assert_ne!(
            idempotency_key(&run, 1, &parts("charge", StepKey::None), 0),
            key(StepKey::None, 0),
            "another generation is another work"
        );
    }

    #[test]
    fn ids_are_checked() {
        let id = parts("a", StepKey::None).id(0);
        assert_eq!(StepId::parse(id.as_str()), Ok(id));
        for text in ["", "0", &"G".repeat(32), &"A".repeat(32), &"0".repeat(33)] {
            assert!(StepId::parse(text).is_err(), "{text}");
        }
    }
}
