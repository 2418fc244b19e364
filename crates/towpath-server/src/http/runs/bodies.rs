//! What stands in the entries of a journal: the bodies of decision 051, written and read.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use towpath_core::payload::Payload;
use towpath_core::run::{Entry, EntryKind, StepId};

use crate::http::wire::Json;

/// A seed has this many hex digits.
const SEED_CHARS: usize = 32;

/// The body of a `begin`.
#[derive(Serialize)]
pub(super) struct Begin<'a> {
    pub(super) seed: &'a str,
    pub(super) v: &'a Payload,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<&'a str>,
}

/// What is read of a `begin`.
#[derive(Deserialize)]
pub(super) struct Begun {
    pub(super) seed: String,
}

/// The body of an `open`, for all kinds of steps that the server writes.
#[derive(Default, Serialize)]
pub(super) struct Open<'a> {
    pub(super) k: &'static str,
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) n: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ver: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) close: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) v: Option<&'a Payload>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<usize>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What is read of an `open`.
#[derive(Deserialize)]
pub(super) struct Opened {
    pub(super) k: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) key: String,
    #[serde(default)]
    pub(super) br: Vec<String>,
    #[serde(default)]
    pub(super) n: u64,
    #[serde(default)]
    pub(super) ms: Option<u64>,
}

/// The body of a `done` or a `close`, written.
#[derive(Default, Serialize)]
pub(super) struct Ended<'a> {
    pub(super) out: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) v: Option<&'a Payload>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) err: Option<&'a Error>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) n: Option<u64>,
}

/// An error in a journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Error {
    pub(super) code: String,
    pub(super) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<Json>,
}

/// The body of a `close`, read.
#[derive(Deserialize)]
pub(super) struct Closed {
    #[serde(default)]
    pub(super) v: Option<Json>,
    #[serde(default)]
    pub(super) err: Option<Error>,
    #[serde(default)]
    pub(super) reason: Option<String>,
}

/// A body as it stands in an entry.
pub(super) fn body(value: &impl Serialize) -> Payload {
    // Plain structs of ours: they always have a JSON form.
    Payload::from_json(serde_json::to_string(value).unwrap_or_else(|_| RawValue::NULL.get().to_owned()))
}

/// The first entry of a generation.
pub(super) fn begin(seed: &str, input: &Payload, trace: Option<&str>) -> Entry {
    Entry { kind: EntryKind::Begin, step: None, body: body(&Begin { seed, v: input, trace }) }
}

/// The last entry of a generation.
pub(super) fn close(ended: &Ended<'_>) -> Entry {
    Entry { kind: EntryKind::Close, step: None, body: body(ended) }
}

/// The result of a step.
pub(super) fn done(step: StepId, ended: &Ended<'_>) -> Entry {
    Entry { kind: EntryKind::Done, step: Some(step), body: body(ended) }
}

/// A seed that follows from these texts.
pub(super) fn seed(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part.as_bytes()));
    let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    digits[..SEED_CHARS].to_owned()
}
