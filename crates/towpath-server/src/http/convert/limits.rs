//! Limits between the wire and the library's words.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use towpath::limits::{
    Algorithm, Check, InvalidLimit, LimitError, LimitScope, OnError, Policy, Retry, Rule, RuleName, RuleReply, Rules, Verdict,
};
use towpath_core::inspect::LimitView;
use towpath_core::limit::NotedRule;

use crate::http::codes::Code;
use crate::http::error::{ApiError, invalid_name};
use crate::http::wire::count::Count;
use crate::http::wire::limits::{LimitBody, PolicyBody, RuleBody, RuleVerdictBody, VerdictBody};

pub(crate) fn limit_scope(text: &str) -> Result<LimitScope, ApiError> {
    LimitScope::new(text).map_err(|refused| invalid_name("scope", &refused))
}

pub(crate) fn policy_name(given: Option<&str>) -> Result<RuleName, ApiError> {
    RuleName::new(given.unwrap_or("default")).map_err(|refused| invalid_name("policy", &refused))
}

/// A number within its range, or an answer that says what the range is.
pub(crate) fn count(field: &str, given: Option<&Count>, default: u64, min: u64, max: u64) -> Result<u64, ApiError> {
    let Some(given) = given else { return Ok(default) };
    let told = match given.get() {
        Ok(number) if (min..=max).contains(&number) => return Ok(number),
        Ok(number) => number.to_string(),
        Err(given) => given.to_owned(),
    };
    Err(out_of_range(field.to_owned(), &told, min, max))
}

fn out_of_range(field: String, told: &str, min: u64, max: u64) -> ApiError {
    let message = format!("'{field}' is {told}: it must be a whole number from {min} to {max}");
    ApiError::new(Code::OutOfRange, message).field(field).details(json!({ "min": min, "max": max }))
}

pub(crate) fn cost(given: Option<&Count>, min: u64) -> Result<u64, ApiError> {
    count("cost", given, 1, min, Check::COST_MAX)
}

pub(crate) fn max_wait(given: Option<&Count>) -> Result<Duration, ApiError> {
    let max = u64::try_from(Check::WAIT_MAX.as_millis()).unwrap_or(u64::MAX);
    count("max_wait_ms", given, 0, 0, max).map(Duration::from_millis)
}

/// The seed's check: a fixed window that counts denied calls too.
pub(crate) fn seed_rule(limit: Option<&Count>, window_seconds: Option<&Count>) -> Result<Rules, ApiError> {
    let limit = count("limit", limit, 10, 1, Rule::LIMIT_MAX)?;
    let seconds = count("windowSeconds", window_seconds, 60, 1, Rule::WINDOW_MS_MAX / 1_000)?;
    Rule::seed(limit, Duration::from_secs(seconds)).map(Rules::one).map_err(|refused| refused_limit(&refused))
}

pub(crate) fn rules(bodies: &[RuleBody]) -> Result<Rules, ApiError> {
    let rules: Result<Vec<Rule>, ApiError> = bodies.iter().enumerate().map(|(place, body)| rule(place, body)).collect();
    Rules::new(rules?).map_err(|refused| refused_limit(&refused))
}

/// Rules as people write them, with semicolons between them.
pub(crate) fn rules_of_text(text: &str) -> Result<Rules, ApiError> {
    let rules: Result<Vec<Rule>, InvalidLimit> = text.split(';').map(str::parse).collect();
    rules.and_then(Rules::new).map_err(|refused| refused_limit(&refused))
}

fn rule(place: usize, body: &RuleBody) -> Result<Rule, ApiError> {
    let field = |name: &str| format!("rules[{place}].{name}");
    let word = |name: &str, given: &str, known: &str| {
        ApiError::new(Code::InvalidField, format!("'{}' is '{given}': write {known}", field(name))).field(field(name))
    };
    let algorithm = match body.algorithm.as_deref() {
        None => Algorithm::default(),
        Some(given) => {
            Algorithm::from_word(given).ok_or_else(|| word("algorithm", given, "gcra, fixed_window, sliding_counter or sliding_log"))?
        }
    };
    let limit = count(&field("limit"), Some(&body.limit), 0, 1, Rule::LIMIT_MAX)?;
    let window_ms = count(&field("window_ms"), Some(&body.window_ms), 0, 1, Rule::WINDOW_MS_MAX)?;
    let refused = |refused: InvalidLimit| match refused {
        InvalidLimit::Name(name) => invalid_name(field("name"), &name),
        other => refused_limit(&other).field(format!("rules[{place}]")),
    };
    let mut rule = Rule::new(&body.name, algorithm, limit, Duration::from_millis(window_ms)).map_err(refused)?;
    if let Some(burst) = &body.burst {
        rule = rule.burst(count(&field("burst"), Some(burst), 1, 1, Rule::LIMIT_MAX)?).map_err(refused)?;
    }
    if let Some(key) = &body.key {
        rule = rule.key(key).map_err(|refused| match refused {
            InvalidLimit::Name(name) => invalid_name(field("key"), &name),
            other => refused_limit(&other),
        })?;
    }
    if body.count_denied == Some(true) {
        rule = rule.count_denied().map_err(refused)?;
    }
    if let Some(given) = body.on_error.as_deref() {
        rule = rule.on_error(OnError::from_word(given).ok_or_else(|| word("on_error", given, "closed, open or local"))?);
    }
    Ok(if body.shadow == Some(true) { rule.shadow() } else { rule })
}

/// A rule or a check that cannot be.
pub(crate) fn refused_limit(refused: &InvalidLimit) -> ApiError {
    let message = refused.to_string();
    match refused {
        InvalidLimit::Name(name) => invalid_name("rules", name),
        InvalidLimit::OutOfRange { field, given, min, max } => out_of_range((*field).to_owned(), given, *min, *max),
        InvalidLimit::TooMany { max, .. } => ApiError::new(Code::TooMany, message).field("rules").details(json!({ "limit": max })),
        InvalidLimit::BadRule(_) => ApiError::new(Code::BadRule, message).field("rules"),
        InvalidLimit::TooLarge { .. } => ApiError::new(Code::RuleTooLarge, message).field("rules"),
    }
}

impl From<LimitError> for ApiError {
    fn from(error: LimitError) -> Self {
        let message = error.to_string();
        match error {
            LimitError::Invalid(refused) => refused_limit(&refused),
            LimitError::NoPolicy { .. } => Self::new(Code::PolicyNotFound, message).field("policy"),
            LimitError::NoRules { .. } => Self::new(Code::MissingField, message).field("rules"),
            LimitError::Ambiguous { .. } => ambiguous(),
            LimitError::BadPolicies(_) => Self::new(Code::BadPolicies, message),
            LimitError::Store(error) => error.into(),
            _ => Self::new(Code::Internal, message),
        }
    }
}

pub(crate) fn ambiguous() -> ApiError {
    ApiError::new(Code::Ambiguous, "rules, a policy and the seed's limit and windowSeconds exclude each other: give one of them")
        .field("rules")
}

pub(crate) fn limit_body(view: &LimitView) -> LimitBody {
    LimitBody { scope: view.limit.scope().to_string(), rule: rule_verdict(view.limit.rule(), &view.said) }
}

/// A cursor is a rule of a scope, in letters that need no escape.
pub(crate) fn limit_cursor_text(limit: &NotedRule) -> String {
    URL_SAFE_NO_PAD.encode(limit.text())
}

pub(crate) fn limit_cursor(text: &str) -> Result<NotedRule, ApiError> {
    let read = || NotedRule::from_text(&String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?);
    read().ok_or_else(|| ApiError::new(Code::InvalidField, "'cursor' is none that a page has ended with").field("cursor"))
}

pub(crate) fn policy_body(policy: &Policy) -> PolicyBody {
    PolicyBody {
        scope: policy.scope.as_ref().map(ToString::to_string),
        policy: policy.name.to_string(),
        rules: policy.rules.iter().map(RuleBody::from).collect(),
    }
}

pub(crate) fn verdict_body(verdict: &Verdict) -> VerdictBody {
    VerdictBody {
        allowed: verdict.allowed,
        scope: verdict.scope.to_string(),
        count: verdict.count,
        limit: verdict.limit,
        remaining: verdict.remaining,
        retry_after_ms: verdict.retry_after.map(ms_up),
        reset_ms: ms_up(verdict.reset),
        wait_ms: ms_up(verdict.wait),
        never: verdict.never,
        rule: verdict.rule.to_string(),
        violated: verdict.violated.iter().map(ToString::to_string).collect(),
        shadow: verdict.would_deny.is_some(),
        would_deny: verdict.would_deny,
        degraded: verdict.degraded,
        rules: verdict.rules.iter().map(|(rule, said)| rule_verdict(rule, said)).collect(),
    }
}

fn rule_verdict(rule: &Rule, said: &RuleReply) -> RuleVerdictBody {
    RuleVerdictBody {
        name: rule.name().to_string(),
        algorithm: rule.algorithm().as_str().to_owned(),
        key: rule.counted_for().map(ToString::to_string),
        limit: rule.limit(),
        window_ms: ms_up(rule.window()),
        ok: said.ok,
        count: said.count,
        remaining: said.remaining,
        retry_after_ms: if let Retry::After(after) = said.retry { Some(ms_up(after)) } else { None },
        reset_ms: ms_up(said.reset),
        shadow: rule.is_shadow(),
    }
}

/// Milliseconds, rounded up: a caller that comes back then is not too early.
pub(crate) fn ms_up(length: Duration) -> u64 {
    u64::try_from(length.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
