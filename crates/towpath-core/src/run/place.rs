//! Where a run lives: the stream of its workflow, version and shard, and the ids that name it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::identity::StepId;
use crate::names::{InvalidName, Shard, WorkflowName, WorkflowVersion};

/// The first part of every stream's name.
const STREAMS: &str = "workflow";
/// Characters of a part of a stream's name that are written as `%XX`, so that no two places share a name.
const ENCODED: [char; 5] = [':', '/', '{', '}', '%'];
/// Base32 without letters that are easily confused.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// How many characters name a place in a run's id.
const CODE_CHARS: usize = 10;
/// How many characters follow them.
const TAIL_CHARS: usize = 26;

/// A workflow in one version, and the shard that its runs are in. Runs of one place share a stream and a Redis Cluster slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunPlace {
    /// Which workflow.
    pub workflow: WorkflowName,
    /// In which version.
    pub version: WorkflowVersion,
    /// The shard, if the runs of this workflow are spread.
    pub shard: Option<Shard>,
}

impl RunPlace {
    /// The name of its stream, as seed 003 writes it.
    ///
    /// ```
    /// use towpath_core::names::{Shard, WorkflowName, WorkflowVersion};
    /// use towpath_core::run::RunPlace;
    ///
    /// let mut place = RunPlace {
    ///     workflow: WorkflowName::new("order-processing").unwrap(),
    ///     version: WorkflowVersion::new("1.0.0").unwrap(),
    ///     shard: None,
    /// };
    /// assert_eq!(place.stream(), "workflow/order-processing/1.0.0");
    /// place.shard = Some(Shard::new("us-east").unwrap());
    /// assert_eq!(place.stream(), "workflow/order-processing/1.0.0/us-east");
    /// assert_eq!(RunPlace::of_stream(&place.stream()), Some(place));
    /// ```
    pub fn stream(&self) -> String {
        let mut stream = format!("{STREAMS}/{}/{}", encode(self.workflow.as_str()), encode(self.version.as_str()));
        if let Some(shard) = &self.shard {
            stream.push('/');
            stream += &encode(shard.as_str());
        }
        stream
    }

    /// What the names of all streams of a workflow begin with, and no other's.
    ///
    /// ```
    /// use towpath_core::run::{RunPlace, place};
    ///
    /// let place = place("a/b", "1.0.0", Some("us-east")).unwrap();
    /// assert_eq!(RunPlace::streams_of(&place.workflow), "workflow/a%2Fb/");
    /// assert!(place.stream().starts_with("workflow/a%2Fb/"));
    /// ```
    pub fn streams_of(workflow: &WorkflowName) -> String {
        format!("{STREAMS}/{}/", encode(workflow.as_str()))
    }

    /// The place of a stream's name; `None` if it is not the name of such a stream.
    pub fn of_stream(stream: &str) -> Option<Self> {
        let mut parts = stream.split('/');
        if parts.next() != Some(STREAMS) {
            return None;
        }
        let workflow = WorkflowName::new(decode(parts.next()?)?).ok()?;
        let version = WorkflowVersion::new(decode(parts.next()?)?).ok()?;
        let shard = match parts.next() {
            Some(part) => Some(Shard::new(decode(part)?).ok()?),
            None => None,
        };
        parts.next().is_none().then_some(Self { workflow, version, shard })
    }

    /// Ten characters that name the place in the ids of its runs.
    pub fn code(&self) -> String {
        let digest = Sha256::digest(self.stream().as_bytes());
        base32(&digest, CODE_CHARS)
    }
}

fn encode(part: &str) -> String {
    let mut encoded = String::with_capacity(part.len());
    for character in part.chars() {
        if ENCODED.contains(&character) {
            encoded += &format!("%{:02X}", u32::from(character));
        } else {
            encoded.push(character);
        }
    }
    encoded
}

/// Reads what [`encode`] wrote. `None`: it did not write this.
fn decode(part: &str) -> Option<String> {
    let mut decoded = String::with_capacity(part.len());
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('%') {
        let character = char::from(u8::from_str_radix(after.get(..2)?, 16).ok()?);
        decoded += before;
        decoded.push(character);
        rest = &after[2..];
    }
    decoded += rest;
    (encode(&decoded) == part).then_some(decoded)
}

/// The first characters of these bytes in base32. Bits beyond the bytes are 0.
fn base32(bytes: &[u8], chars: usize) -> String {
    let bit = |number: usize| bytes.get(number / 8).map_or(0, |byte| byte >> (7 - number % 8) & 1);
    let digit = |first: usize| (first..first + 5).fold(0_usize, |digit, number| digit << 1 | usize::from(bit(number)));
    (0..chars).map(|place| char::from(DIGITS[digit(place * 5)])).collect()
}

/// The id of a run: the code of its place, a dash, and 26 characters of its own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(Arc<str>);

/// Text that is not the id of a run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not the id of a run: it has 10 characters, a dash and 26 characters")]
pub struct InvalidRunId(String);

impl RunId {
    /// The id of a run in this place. The number is the run's own: its high bits are a time, so that later ids sort later.
    pub fn new(place: &RunPlace, number: u128) -> Self {
        Self::of(place, &number.to_be_bytes())
    }

    /// The id of a child: the same for every execution of the parent's step, so that it cannot start twice.
    pub fn of_child(place: &RunPlace, parent: &Self, generation: u64, step: &StepId) -> Self {
        let digest = Sha256::digest(format!("towpath-child-1\n{parent}\n{generation}\n{step}").as_bytes());
        Self::of(place, &digest[..16])
    }

    fn of(place: &RunPlace, bytes: &[u8]) -> Self {
        Self(Arc::from(format!("{}-{}", place.code(), base32(bytes, TAIL_CHARS))))
    }

    /// Checks an id; the error says what it looks like.
    pub fn parse(text: &str) -> Result<Self, InvalidRunId> {
        let is_word = |word: &str, chars: usize| word.len() == chars && word.bytes().all(|byte| DIGITS.contains(&byte));
        match text.split_once('-') {
            Some((code, tail)) if is_word(code, CODE_CHARS) && is_word(tail, TAIL_CHARS) => Ok(Self(Arc::from(text))),
            _other => Err(InvalidRunId(text.chars().take(crate::names::NAME_BYTES_MAX).collect())),
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The code of the run's place.
    pub fn code(&self) -> &str {
        self.0.split_once('-').map_or("", |(code, _)| code)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl TryFrom<String> for RunId {
    type Error = InvalidRunId;

    fn try_from(text: String) -> Result<Self, InvalidRunId> {
        Self::parse(&text)
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> String {
        id.as_str().to_owned()
    }
}

/// Makes a place of three texts; the error says which one to change.
///
/// ```
/// let place = towpath_core::run::place("order-processing", "1.0.0", None).unwrap();
/// assert_eq!(place.stream(), "workflow/order-processing/1.0.0");
/// ```
pub fn place(workflow: &str, version: &str, shard: Option<&str>) -> Result<RunPlace, InvalidName> {
    Ok(RunPlace {
        workflow: WorkflowName::new(workflow)?,
        version: WorkflowVersion::new(version)?,
        shard: shard.map(Shard::new).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn streams_are_named_as_the_seed_names_them() {
        let names = [
            ("order-processing", "1.0.0", None, "workflow/order-processing/1.0.0"),
            ("user-onboarding", "1.0.0", None, "workflow/user-onboarding/1.0.0"),
            ("email-sending", "2.0.0", None, "workflow/email-sending/2.0.0"),
            ("order-processing", "1.0.0", Some("us-east"), "workflow/order-processing/1.0.0/us-east"),
            ("order-processing", "1.0.0", Some("eu-west"), "workflow/order-processing/1.0.0/eu-west"),
        ];
        for (workflow, version, shard, stream) in names {
            assert_eq!(place(workflow, version, shard).unwrap().stream(), stream);
        }
    }

    #[test]
    fn what_is_not_the_name_of_a_stream_is_refused() {
        for text in [
            "",
            "workflow",
            "workflow/a",
            "workflow//1",
            "workflow/a/1/b/c",
            "other/a/1",
            "workflow/a%2/1",
            "workflow/a%41/1",
            "workflow/a:b/1",
        ] {
            assert_eq!(RunPlace::of_stream(text), None, "{text}");
        }
    }

    #[test]
    fn the_id_of_a_child_is_the_same_each_time_and_another_for_another_step() {
        let place = place("shipping", "2", None).unwrap();
        let parent = RunId::new(&place, 7);
        let id = |generation, step: &str| RunId::of_child(&place, &parent, generation, &StepId::parse(step).unwrap());
        let (step, other) = ("0".repeat(32), "1".repeat(32));
        assert_eq!(id(0, &step), id(0, &step));
        assert!(id(0, &step) != id(0, &other) && id(0, &step) != id(1, &step));
        assert_eq!(RunId::parse(id(0, &step).as_str()), Ok(id(0, &step)));
        assert_eq!(id(0, &step).code(), place.code());
    }

    #[test]
    fn later_ids_sort_later() {
        let place = place("a", "1", None).unwrap();
        let ids: Vec<RunId> = [0, 1, 31, 32, 1 << 80, u128::MAX].map(|number| RunId::new(&place, number)).into();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    }

    proptest! {
        #[test]
        fn no_two_places_share_a_stream(name in "[a-c:/{}%2F]{1,6}", version in "[a-c:/{}%]{1,4}", shard in proptest::option::of("[a-c:/%]{1,3}")) {
            let place = place(&name, &version, shard.as_deref()).unwrap();
            prop_assert_eq!(RunPlace::of_stream(&place.stream()), Some(place.clone()));
            prop_assert!(RunId::parse(RunId::new(&place, 1).as_str()).is_ok());
        }
    }
}
