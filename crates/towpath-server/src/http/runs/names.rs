//! Names, ids and words of runs as they come over the wire, checked.

use std::borrow::Cow;

use towpath_core::names::{EventName, InvalidName, Reference, Shard, WorkflowName, WorkflowVersion};
use towpath_core::payload::Payload;
use towpath_core::run::{BlockCause, RunId, RunPlace, RunState, StepId};
use towpath_core::store::NewEvent;

use super::PAYLOAD_BYTES_MAX;
use crate::http::codes::Code;
use crate::http::convert;
use crate::http::error::{ApiError, invalid_name, payload_too_large};
use crate::http::wire::Json;
use crate::http::wire::runs::SendBody;

fn check<T>(field: impl Into<Cow<'static, str>>, name: Result<T, InvalidName>) -> Result<T, ApiError> {
    name.map_err(|refused| invalid_name(field, &refused))
}

pub(super) fn run_id(text: &str) -> Result<RunId, ApiError> {
    run_id_in("run_id", text)
}

pub(super) fn run_id_in(field: impl Into<Cow<'static, str>>, text: &str) -> Result<RunId, ApiError> {
    RunId::parse(text).map_err(|refused| ApiError::new(Code::InvalidName, refused.to_string()).field(field))
}

pub(super) fn step_id(field: impl Into<Cow<'static, str>>, text: &str) -> Result<StepId, ApiError> {
    StepId::parse(text).map_err(|refused| ApiError::new(Code::InvalidName, refused.to_string()).field(field))
}

pub(super) fn workflow(field: impl Into<Cow<'static, str>>, text: &str) -> Result<WorkflowName, ApiError> {
    check(field, WorkflowName::new(text))
}

pub(super) fn version(field: impl Into<Cow<'static, str>>, text: &str) -> Result<WorkflowVersion, ApiError> {
    check(field, WorkflowVersion::new(text))
}

pub(super) fn shard(field: impl Into<Cow<'static, str>>, text: &str) -> Result<Shard, ApiError> {
    check(field, Shard::new(text))
}

pub(super) fn event(field: impl Into<Cow<'static, str>>, text: &str) -> Result<EventName, ApiError> {
    check(field, EventName::new(text))
}

pub(super) fn reference(field: impl Into<Cow<'static, str>>, text: &str) -> Result<Reference, ApiError> {
    check(field, Reference::new(text))
}

/// A place whose fields stand below `prefix`, such as `workflows[0].`.
pub(super) fn place(prefix: &str, name: &str, given_version: &str, given_shard: Option<&str>) -> Result<RunPlace, ApiError> {
    Ok(RunPlace {
        workflow: workflow(format!("{prefix}workflow"), name)?,
        version: version(format!("{prefix}version"), given_version)?,
        shard: given_shard.map(|text| shard(format!("{prefix}shard"), text)).transpose()?,
    })
}

/// One of the words that a field knows.
pub(super) fn word<T>(
    field: impl Into<Cow<'static, str>>,
    given: &str,
    known: &[&str],
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, ApiError> {
    parse(given).ok_or_else(|| {
        let field: Cow<'static, str> = field.into();
        let message = format!("'{field}' is {}, not '{}'", known.join(", "), given.escape_default());
        ApiError::new(Code::InvalidField, message).field(field)
    })
}

pub(super) fn states(list: &str) -> Result<Vec<RunState>, ApiError> {
    let state = |text: &str| word("state", text.trim(), &RunState::ALL.map(RunState::as_str), RunState::parse);
    list.split(',').map(state).collect()
}

pub(super) fn cause(text: &str) -> Result<BlockCause, ApiError> {
    word("cause", text, &BlockCause::ALL.map(BlockCause::as_str), BlockCause::parse)
}

/// A payload of at most 1 MiB; `null` if there is none.
pub(super) fn payload(field: &'static str, given: Option<Json>) -> Result<Payload, ApiError> {
    let payload = given.map_or_else(Payload::null, convert::payload);
    let (bytes, limit) = (payload.len() as u64, PAYLOAD_BYTES_MAX as u64);
    if bytes > limit {
        return Err(payload_too_large(field, format!("'{field}' has {bytes} bytes: at most {limit} are kept"), bytes, limit));
    }
    Ok(payload)
}

/// An event whose fields stand below `prefix`, such as `event.`.
pub(super) fn new_event(prefix: &str, body: SendBody) -> Result<NewEvent, ApiError> {
    Ok(NewEvent {
        name: event(format!("{prefix}event"), &body.event)?,
        data: payload("data", body.data)?,
        reference: body.reference.as_deref().map(|text| reference(format!("{prefix}reference"), text)).transpose()?,
    })
}
