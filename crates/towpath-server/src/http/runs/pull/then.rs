//! What becomes of a run with a commit, as a pull worker says it.

use serde_json::json;
use towpath_core::names::BuildId;
use towpath_core::payload::Payload;
use towpath_core::run::{BlockCause, Entry, RunEnd, Then};

use super::derive::error;
use crate::http::codes::Code;
use crate::http::error::ApiError;
use crate::http::runs::bodies::{self, Ended};
use crate::http::runs::names;
use crate::http::wire::run_workers::ThenBody;

/// The key under which a person reads why a run is blocked.
const BLOCKED: &str = "$blocked";

/// What a commit does with its run, before the store was asked for facts.
#[derive(Debug)]
pub(super) enum Wanted {
    /// The worker goes on.
    Stay,
    /// The run is parked until an open step can end.
    Park,
    /// The run ends with this entry.
    Close(RunEnd, Entry),
    /// It begins anew.
    Continue(Payload),
    /// Another worker goes on.
    Release,
    /// A person or another build must help.
    Block { cause: BlockCause, reason: String },
}

impl Wanted {
    /// Reads what a worker wants.
    pub(super) fn of(body: Option<ThenBody>) -> Result<Self, ApiError> {
        let Some(body) = body else { return Ok(Self::Stay) };
        refuse_options(&body)?;
        let ThenBody { kind, value, error: given, input, cause, reason } = body;
        match kind.as_str() {
            "stay" => Ok(Self::Stay),
            "park" => Ok(Self::Park),
            "release" => Ok(Self::Release),
            "complete" => {
                let value = names::payload("value", value)?;
                Ok(Self::Close(RunEnd::Completed, bodies::close(&Ended { out: "ok", v: Some(&value), ..Ended::default() })))
            }
            "fail" => {
                let given = given.ok_or_else(|| missing("then.error", "a run that fails has an error"))?;
                Ok(Self::Close(RunEnd::Failed, bodies::close(&Ended { out: "err", err: Some(&error(given)?), ..Ended::default() })))
            }
            "cancel" => {
                let ended = Ended { out: "cancelled", reason: reason.as_deref(), ..Ended::default() };
                Ok(Self::Close(RunEnd::Cancelled, bodies::close(&ended)))
            }
            "continue" => Ok(Self::Continue(names::payload("input", input)?)),
            _block => {
                let cause = cause.ok_or_else(|| missing("then.cause", "a run is blocked for a cause"))?;
                Ok(Self::Block { cause: self::cause(&cause)?, reason: reason.unwrap_or_default() })
            }
        }
    }

    /// Whether the worker keeps the run, unless facts hold it back from parking.
    pub(super) const fn stays(&self) -> bool {
        matches!(self, Self::Stay)
    }
}

fn missing(field: &'static str, message: &str) -> ApiError {
    ApiError::new(Code::MissingField, message).field(field)
}

fn cause(given: &str) -> Result<BlockCause, ApiError> {
    // Workers find these; a store finds out by itself that a run is poisoned.
    let known = [BlockCause::Nondeterminism, BlockCause::Panicked, BlockCause::Decode, BlockCause::HistoryFull, BlockCause::Exhausted];
    names::word("then.cause", given, &known.map(BlockCause::as_str), |word| known.into_iter().find(|cause| cause.as_str() == word))
}

/// Refuses what does not belong to the kind.
fn refuse_options(body: &ThenBody) -> Result<(), ApiError> {
    const KINDS: [&str; 8] = ["stay", "park", "complete", "fail", "cancel", "continue", "release", "block"];
    names::word("then.kind", &body.kind, &KINDS, |word| KINDS.contains(&word).then_some(()))?;
    let options: [(&str, bool, &[&str]); 5] = [
        ("then.value", body.value.is_some(), &["complete"]),
        ("then.error", body.error.is_some(), &["fail"]),
        ("then.input", body.input.is_some(), &["continue"]),
        ("then.cause", body.cause.is_some(), &["block"]),
        ("then.reason", body.reason.is_some(), &["block", "cancel"]),
    ];
    match options.iter().find(|(_, is_given, kinds)| *is_given && !kinds.contains(&body.kind.as_str())) {
        None => Ok(()),
        Some((field, _, kinds)) => {
            let message = format!("'{field}' belongs to {}, not to '{}'", kinds.join(" and "), body.kind);
            Err(ApiError::new(Code::InvalidField, message).field(*field))
        }
    }
}

/// A block in the store's words, and what is published for people.
pub(super) fn block(cause: BlockCause, reason: &str, build: Option<BuildId>) -> (Then, (std::sync::Arc<str>, Payload)) {
    let said = json!({ "cause": cause.as_str(), "message": reason, "build": build.as_ref().map(BuildId::as_str) });
    let published = (std::sync::Arc::from(BLOCKED), Payload::from_json(said.to_string()));
    (Then::Block { cause, build: build.filter(|_| cause.is_of_the_build()) }, published)
}
