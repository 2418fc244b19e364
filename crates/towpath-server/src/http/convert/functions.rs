//! Functions between wire and core.

use towpath::params::Parameters;
use towpath_core::call::{Backoff, RetryPolicy};
use towpath_core::inspect::{FunctionView, StreamGroup, StreamView};
use towpath_core::names::{FunctionKey, LimitScope, RuleName};
use towpath_core::payload::Payload;
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, FunctionLimits, FunctionRate, PushTarget};

use super::calls::millis;
use super::{json, payload};
use crate::http::bounds;
use crate::http::codes::Code;
use crate::http::error::{ApiError, invalid_name};
use crate::http::wire::Json;
use crate::http::wire::functions::{
    BackoffBody, BackoffKind, DefineBody, FunctionBody, LimitsBody, RateBody, RetryBody, StreamBody, StreamGroupBody, TargetBody,
};

const DELAY_MS_DEFAULT: u64 = 2_000;
const DELAY_MS_MAX_DEFAULT: u64 = 60_000;
const TARGET_CONCURRENCY_DEFAULT: u32 = 16;
const DESCRIPTION_BYTES_MAX: usize = 4_096;

/// What a body says about a function.
pub(crate) fn definition(key: FunctionKey, body: DefineBody) -> Result<FunctionDefinition, ApiError> {
    Ok(FunctionDefinition {
        description: description("", body.description)?,
        parameters: parameters("", body.parameters)?,
        retry: retry("", body.retry)?,
        limits: limits("", &key, body.limits)?,
        target: body.target.map(target).transpose()?,
        key,
    })
}

/// One sentence for people. `at` is where the function stands in the body: empty, or such as `functions[0].`.
pub(super) fn description(at: &str, text: Option<String>) -> Result<Option<String>, ApiError> {
    match text {
        Some(text) if text.len() > DESCRIPTION_BYTES_MAX => {
            let message = format!("the description has {} bytes: at most {DESCRIPTION_BYTES_MAX} are taken", text.len());
            Err(ApiError::new(Code::InvalidField, message).field(format!("{at}description")))
        }
        text => Ok(text),
    }
}

/// Parameter definitions or a JSON Schema, checked now so that no call meets a broken one.
pub(super) fn parameters(at: &str, json: Option<Json>) -> Result<Option<Payload>, ApiError> {
    let Some(text) = json.map(payload) else { return Ok(None) };
    match Parameters::compile(&text) {
        Ok(_) => Ok(Some(text)),
        Err(refused) => Err(ApiError::new(Code::InvalidField, refused.to_string()).field(format!("{at}parameters"))),
    }
}

pub(super) fn retry(at: &str, body: Option<RetryBody>) -> Result<RetryPolicy, ApiError> {
    let (body, default) = (body.unwrap_or_default(), RetryPolicy::default());
    Ok(RetryPolicy {
        max_attempts: bounds::check(&format!("{at}retry.max_attempts"), body.max_attempts)?.unwrap_or(default.max_attempts),
        max_deliveries: bounds::check(&format!("{at}retry.max_deliveries"), body.max_deliveries)?.unwrap_or(default.max_deliveries),
        backoff: body.backoff.map_or(Ok(default.backoff), |body| backoff(at, &body))?,
    })
}

fn backoff(at: &str, body: &BackoffBody) -> Result<Backoff, ApiError> {
    let delay_ms = bounds::check(&format!("{at}retry.backoff.delay_ms"), body.delay_ms)?.unwrap_or(DELAY_MS_DEFAULT);
    let delay_ms_max = bounds::check(&format!("{at}retry.backoff.delay_ms_max"), body.delay_ms_max)?.unwrap_or(DELAY_MS_MAX_DEFAULT);
    Ok(match body.kind {
        BackoffKind::Fixed => Backoff::Fixed { delay_ms },
        BackoffKind::Exponential => Backoff::Exponential { delay_ms, delay_ms_max },
    })
}

pub(super) fn limits(at: &str, key: &FunctionKey, body: Option<LimitsBody>) -> Result<FunctionLimits, ApiError> {
    let (body, default) = (body.unwrap_or_default(), FunctionLimits::default());
    let limits = FunctionLimits {
        max_backlog: bounds::check(&format!("{at}limits.max_backlog"), body.max_backlog)?,
        max_concurrent: bounds::check(&format!("{at}limits.max_concurrent"), body.max_concurrent)?,
        max_payload_bytes: bounds::check(&format!("{at}limits.max_payload_bytes"), body.max_payload_bytes)?
            .unwrap_or(default.max_payload_bytes),
        rate: body.rate.map(|body| rate(at, key, &body)).transpose()?,
        shards: bounds::check(&format!("{at}limits.shards"), body.shards)?,
    };
    match limits.problem() {
        Some(problem) => Err(ApiError::new(Code::OutOfRange, problem).field(format!("{at}limits.shards"))),
        None => Ok(limits),
    }
}

fn rate(at: &str, key: &FunctionKey, body: &RateBody) -> Result<FunctionRate, ApiError> {
    let field = |name: &str| format!("{at}limits.rate.{name}");
    let policy = RuleName::new(&body.policy).map_err(|refused| invalid_name(field("policy"), &refused))?;
    let scope = body.scope.as_ref().map(LimitScope::new).transpose();
    let rate = FunctionRate { policy, scope: scope.map_err(|refused| invalid_name(field("scope"), &refused))? };
    rate.scope_of(key)
        .map_err(|refused| invalid_name(field("scope"), &refused).hint("name a scope: the function's name is too long to be one"))?;
    Ok(rate)
}

fn target(body: TargetBody) -> Result<PushTarget, ApiError> {
    let concurrency = bounds::check("target.concurrency", body.concurrency)?.unwrap_or(TARGET_CONCURRENCY_DEFAULT);
    Ok(PushTarget { url: body.url, concurrency })
}

/// A function as people see it.
pub(crate) fn function_body(view: &FunctionView, now: Timestamp) -> FunctionBody {
    let FunctionView { definition, counts, .. } = view;
    FunctionBody {
        name: definition.key.name.to_string(),
        scope: definition.key.scope.to_string(),
        description: definition.description.clone(),
        parameters: definition.parameters.as_ref().map(json),
        retry: definition.retry.clone(),
        limits: definition.limits.clone(),
        target: definition.target.clone(),
        queued: counts.queued,
        delayed: counts.delayed,
        running: counts.running,
        parked: counts.parked,
        dead: counts.dead,
        workers: view.workers,
        healthy_workers: view.healthy_workers,
        oldest_queued_age_ms: view.oldest_queued_at.map(|at| millis(now.since(at))),
        stream: view.stream.as_ref().map(|stream| stream_body(stream, now)),
        problems: view.problems.clone(),
    }
}

fn stream_body(stream: &StreamView, now: Timestamp) -> StreamBody {
    let age = |at: Option<Timestamp>| at.map(|at| millis(now.since(at)));
    let group = |group: &StreamGroup| StreamGroupBody {
        name: group.name.clone(),
        consumers: group.consumers,
        pending: group.pending,
        lag: group.lag,
    };
    StreamBody {
        length: stream.length,
        oldest_age_ms: age(stream.oldest_at),
        pending: stream.pending,
        oldest_pending_age_ms: age(stream.oldest_pending_at),
        groups: stream.groups.iter().map(group).collect(),
    }
}
