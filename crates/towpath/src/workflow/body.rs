//! The bodies of journal entries (decision 051).

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use towpath_core::call::{Failure, RetryPolicy};
use towpath_core::names::EventName;
use towpath_core::payload::Payload;
use towpath_core::run::{ClosePolicy, Entry, EntryKind, RunId, StepId, StepKey, StepKind, StepParts};

/// `open` keeps inputs up to this size. A larger one comes from the code, at each replay.
pub(crate) const INPUT_KEPT_MAX: usize = 4 * 1024;

/// The first entry of a generation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// 32 hex digits.
    pub(crate) seed: Arc<str>,
    /// The input.
    #[serde(default)]
    pub(crate) v: Option<Payload>,
    /// `traceparent` of the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<String>,
}

/// The code has issued a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Open {
    pub(crate) k: StepKind,
    pub(crate) name: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) br: Vec<Arc<str>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) n: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<RetryPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<i64>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) once: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ver: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) close: Option<ClosePolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) v: Option<Payload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
}

impl Open {
    /// A step of these parts, with nothing else said of it.
    pub(crate) fn of(parts: &StepParts) -> Self {
        let key = match &parts.key {
            StepKey::None => None,
            StepKey::Given(key) => Some(format!("k:{key}")),
            StepKey::Input(hash) => Some(format!("h1:{hash}")),
        };
        Self {
            k: parts.kind,
            name: Arc::clone(&parts.name),
            key,
            br: parts.branch.clone(),
            n: 0,
            retry: None,
            ms: None,
            until: None,
            once: false,
            call: None,
            run: None,
            ver: None,
            close: None,
            to: None,
            v: None,
            bytes: None,
        }
    }

    /// Keeps the input, or only its size.
    pub(crate) fn keep_input(&mut self, input: &Payload) {
        if input.len() <= INPUT_KEPT_MAX {
            self.v = Some(input.clone());
        } else {
            self.bytes = Some(input.len() as u64);
        }
    }

    /// What people read: `task charge`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.k.as_str(), self.name)
    }

    /// The event that it waits for.
    pub(crate) fn event(&self) -> Option<EventName> {
        (self.k == StepKind::Event).then(|| EventName::new(&self.name).ok()).flatten()
    }
}

/// An attempt of a step that runs at most once begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) n: u32,
}

/// An attempt has failed; the next one begins after `ms`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) n: u32,
    pub(crate) err: Error,
    pub(crate) ms: u64,
}

/// How a step or a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Out {
    Ok,
    Err,
    Timeout,
    Cancelled,
    Terminated,
}

/// The result of a step, or of a run: `done` and `close`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) out: Out,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) n: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) v: Option<Payload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) err: Option<Error>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

impl Done {
    pub(crate) const fn bare(out: Out) -> Self {
        Self { out, n: None, v: None, err: None, reason: None }
    }

    pub(crate) fn ok(value: Payload) -> Self {
        Self { v: Some(value), ..Self::bare(Out::Ok) }
    }

    pub(crate) fn err(failure: &Failure) -> Self {
        Self { err: Some(failure.into()), ..Self::bare(Out::Err) }
    }

    pub(crate) fn value(&self) -> Payload {
        self.v.clone().unwrap_or_else(Payload::null)
    }

    pub(crate) fn failure(&self) -> Failure {
        let unknown = || Failure::new("unknown_error", "the journal names no error");
        self.err.clone().map_or_else(unknown, Failure::from)
    }
}

/// An error as a journal keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Error {
    pub(crate) code: String,
    pub(crate) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Payload>,
}

impl From<&Failure> for Error {
    fn from(failure: &Failure) -> Self {
        Self { code: failure.code.clone(), message: failure.message.clone(), details: failure.details.clone() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { code: error.code, message: error.message, details: error.details }
    }
}

/// Which version of itself the code follows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) name: Arc<str>,
    pub(crate) ver: u32,
}

/// A caller wants the run cancelled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cancel {
    #[serde(default)]
    pub(crate) reason: Arc<str>,
}

/// An entry with this body.
pub(crate) fn entry<B: Serialize>(kind: EntryKind, step: Option<StepId>, body: &B) -> Entry {
    // These bodies are structs with text keys, which can always be written.
    let text = serde_json::to_vec(body).unwrap_or_else(|_| b"null".to_vec());
    Entry { kind, step, body: Payload::from_json(text) }
}

/// The body of an entry. The error says what does not fit.
pub(crate) fn read<B: DeserializeOwned>(body: &Payload) -> Result<B, String> {
    serde_json::from_str(body.as_str()).map_err(|error| error.to_string())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_written_as_decision_051_says() {
        let parts = StepParts {
            branch: vec![Arc::from("card")],
            kind: StepKind::Task,
            name: Arc::from("charge"),
            key: StepKey::Given(Arc::from("x")),
        };
        let mut open = Open { once: true, ..Open::of(&parts) };
        open.keep_input(&Payload::from_json("[1]"));
        let text = entry(EntryKind::Open, None, &open).body;
        assert_eq!(text.as_str(), r#"{"k":"task","name":"charge","key":"k:x","br":["card"],"once":true,"v":[1]}"#);
        assert_eq!(read::<Open>(&text).unwrap().title(), "task charge");
        let done = entry(EntryKind::Done, None, &Done { n: Some(3), ..Done::ok(Payload::from_json("1e400")) });
        assert_eq!(done.body.as_str(), r#"{"out":"ok","n":3,"v":1e400}"#);
        let end = towpath_core::store::end_without_code("terminated", "why");
        assert_eq!(read::<Done>(&end).unwrap().out, Out::Terminated);
    }

    #[test]
    fn a_large_input_is_only_counted() {
        let parts = StepParts { branch: Vec::new(), kind: StepKind::Task, name: Arc::from("a"), key: StepKey::None };
        let mut open = Open::of(&parts);
        open.keep_input(&Payload::from_json(format!("\"{}\"", "x".repeat(INPUT_KEPT_MAX))));
        assert_eq!((open.v.is_some(), open.bytes), (false, Some(INPUT_KEPT_MAX as u64 + 2)));
    }
}
