//! Limits: check, give back, look, reset; policies put and listed.

mod headers;

use axum::Json;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use towpath::limits::{LimitBuilder, LimitScope, Policy, Rules, Verdict};
use towpath_core::inspect::LimitQuery;

use super::app::App;
use super::bounds;
use super::codes::Code;
use super::convert;
use super::error::ApiError;
use super::extract::{JsonBody, OptionalJsonBody, PathText, Query};
use super::wire::count::Count;
use super::wire::limits::{
    CheckBody, CheckQuery, LimitList, LimitListQuery, PolicyBody, PutPolicyBody, RefundBody, ResetBody, RuleBody, VerdictBody, WhichRules,
};

const LIMIT_DEFAULT: u32 = 50;
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Take from a limit, or learn when there will be room
///
/// A denial is an answer: 200 with `allowed` false, or 429 with `?deny_status=429`. Headers `RateLimit-Policy` and `RateLimit` say the same.
#[utoipa::path(
    post, path = "/v1/limits/{scope}/check", tag = "limits",
    params(("scope" = String, Path, description = "What is limited, percent-encoded"), CheckQuery),
    request_body = CheckBody,
    responses((status = 200, description = "The verdict", body = VerdictBody),
        (status = 429, description = "Denied, where `deny_status=429` was asked for: a problem document with `violated-policies`")),
)]
pub(crate) async fn check(
    State(app): State<App>,
    PathText(scope): PathText,
    Query(query): Query<CheckQuery>,
    OptionalJsonBody(body): OptionalJsonBody<CheckBody>,
) -> Result<Response, ApiError> {
    let scope = convert::limit_scope(&scope)?;
    if query.deny_status.is_some_and(|status| status != 200 && status != 429) {
        return Err(ApiError::new(Code::InvalidField, "'deny_status' is 200 or 429").field("deny_status"));
    }
    let peeks = match body.mode.as_deref() {
        None | Some("commit") => false,
        Some("peek") => true,
        Some(_) => return Err(ApiError::new(Code::InvalidField, "'mode' is commit or peek").field("mode")),
    };
    let (cost, max_wait) = (convert::cost(body.cost.as_ref(), u64::from(!peeks))?, convert::max_wait(body.max_wait_ms.as_ref())?);
    let rules = meant(&app, &scope, &body.rules, body.policy.as_deref(), (body.limit.as_ref(), body.window_seconds.as_ref())).await?;
    let limit = limit(&app, &scope, &rules).cost(cost);
    let verdict = if peeks { limit.peek().await? } else { limit.max_wait(max_wait).reserve().await? };
    Ok(answer(&verdict, &query))
}

/// Give back what was taken and not used
#[utoipa::path(
    post, path = "/v1/limits/{scope}/refund", tag = "limits",
    params(("scope" = String, Path, description = "What is limited, percent-encoded")),
    request_body = RefundBody,
    responses((status = 200, description = "How the limit stands now", body = VerdictBody)),
)]
pub(crate) async fn refund(
    State(app): State<App>,
    PathText(scope): PathText,
    OptionalJsonBody(body): OptionalJsonBody<RefundBody>,
) -> Result<Response, ApiError> {
    let scope = convert::limit_scope(&scope)?;
    let cost = convert::cost(body.cost.as_ref(), 1)?;
    let rules = meant(&app, &scope, &body.rules, body.policy.as_deref(), (body.limit.as_ref(), body.window_seconds.as_ref())).await?;
    let verdict = limit(&app, &scope, &rules).cost(cost).refund().await?;
    Ok(answer(&verdict, &CheckQuery::default()))
}

/// Look at a limit; nothing is taken
#[utoipa::path(
    get, path = "/v1/limits/{scope}", tag = "limits",
    params(("scope" = String, Path, description = "What is limited, percent-encoded"), WhichRules),
    responses((status = 200, description = "How the limit stands", body = VerdictBody)),
)]
pub(crate) async fn peek(State(app): State<App>, PathText(scope): PathText, Query(query): Query<WhichRules>) -> Result<Response, ApiError> {
    let scope = convert::limit_scope(&scope)?;
    let rules = named(&app, &scope, &query).await?;
    let verdict = limit(&app, &scope, &rules).cost(0).peek().await?;
    Ok(answer(&verdict, &CheckQuery::default()))
}

/// Forget what a limit has counted
#[utoipa::path(
    delete, path = "/v1/limits/{scope}", tag = "limits",
    params(("scope" = String, Path, description = "What is limited, percent-encoded"), WhichRules),
    responses((status = 200, description = "How many rules had anything in use", body = ResetBody)),
)]
pub(crate) async fn reset(
    State(app): State<App>,
    PathText(scope): PathText,
    Query(query): Query<WhichRules>,
) -> Result<Json<ResetBody>, ApiError> {
    let scope = convert::limit_scope(&scope)?;
    let rules = named(&app, &scope, &query).await?;
    let reset = limit(&app, &scope, &rules).reset().await?;
    Ok(Json(ResetBody { scope: scope.to_string(), reset }))
}

/// Keep a policy for a scope, or remove it with an empty list of rules
#[utoipa::path(
    put, path = "/v1/limits/{scope}", tag = "limits",
    params(("scope" = String, Path, description = "What is limited, percent-encoded")),
    request_body = PutPolicyBody,
    responses((status = 200, description = "The policy as it is kept", body = PolicyBody)),
)]
pub(crate) async fn put(
    State(app): State<App>,
    PathText(scope): PathText,
    JsonBody(body): JsonBody<PutPolicyBody>,
) -> Result<Json<PolicyBody>, ApiError> {
    let (scope, name) = (convert::limit_scope(&scope)?, convert::policy_name(body.policy.as_deref())?);
    let policies = app.towpath().limit_policies();
    let rules = match body.rules.as_slice() {
        [] => {
            policies.remove(Some(&scope), &name).await?;
            Vec::new()
        }
        bodies => {
            let rules = convert::rules(bodies)?;
            policies.put(Some(&scope), &name, &rules).await?;
            rules.iter().map(RuleBody::from).collect()
        }
    };
    Ok(Json(PolicyBody { scope: Some(scope.to_string()), policy: name.to_string(), rules }))
}

/// List limits that have something in use, and the policies
///
/// By scope and rule. The first page has the policies too, those for all and those of the scopes that are asked for.
#[utoipa::path(
    get, path = "/v1/limits", tag = "limits", params(LimitListQuery),
    responses((status = 200, description = "A page of limits", body = LimitList)),
)]
pub(crate) async fn list(State(app): State<App>, Query(query): Query<LimitListQuery>) -> Result<Json<LimitList>, ApiError> {
    let is_first = query.cursor.is_none();
    let query = LimitQuery {
        prefix: query.prefix.unwrap_or_default(),
        after: query.cursor.as_deref().map(convert::limit_cursor).transpose()?,
        limit: bounds::check("limit", query.limit)?.unwrap_or(LIMIT_DEFAULT),
    };
    let page = app.store().limits(&query).await?;
    let is_meant = |policy: &Policy| policy.scope.as_ref().is_none_or(|scope| scope.as_str().starts_with(&query.prefix));
    let policies = match is_first {
        true => app.towpath().limit_policies().list().await?.iter().filter(|policy| is_meant(policy)).map(convert::policy_body).collect(),
        false => Vec::new(),
    };
    let limits = page.items.iter().map(convert::limit_body).collect();
    Ok(Json(LimitList { limits, policies, next: page.next.as_ref().map(convert::limit_cursor_text) }))
}

fn limit(app: &App, scope: &LimitScope, rules: &Rules) -> LimitBuilder {
    app.towpath().limit(scope.as_str()).rules(rules)
}

/// The rules that a body means: its own, a policy's, the seed's; without any of them the scope's default, else the seed's own.
async fn meant(
    app: &App,
    scope: &LimitScope,
    rules: &[RuleBody],
    policy: Option<&str>,
    (seed_limit, seed_window): (Option<&Count>, Option<&Count>),
) -> Result<Rules, ApiError> {
    let is_seeds = seed_limit.is_some() || seed_window.is_some();
    match (rules.is_empty(), policy, is_seeds) {
        (false, None, false) => convert::rules(rules),
        (true, Some(_), false) => of_policy(app, scope, policy).await,
        (true, None, true) => convert::seed_rule(seed_limit, seed_window),
        (true, None, false) => match app.towpath().limit_policies().find(scope, &convert::policy_name(None)?).await? {
            Some(rules) => Ok(rules),
            None => convert::seed_rule(None, None),
        },
        _ => Err(convert::ambiguous()),
    }
}

async fn named(app: &App, scope: &LimitScope, query: &WhichRules) -> Result<Rules, ApiError> {
    match (&query.rules, &query.policy) {
        (Some(_), Some(_)) => Err(convert::ambiguous()),
        (Some(text), None) => convert::rules_of_text(text),
        (None, policy) => of_policy(app, scope, policy.as_deref()).await,
    }
}

async fn of_policy(app: &App, scope: &LimitScope, name: Option<&str>) -> Result<Rules, ApiError> {
    let name = convert::policy_name(name)?;
    let found = app.towpath().limit_policies().find(scope, &name).await?;
    found.ok_or_else(|| {
        let message = format!("there is no policy '{name}', neither of scope '{scope}' nor for all");
        ApiError::new(Code::PolicyNotFound, message).field("policy").hint("keep one with PUT /v1/limits/{scope}, or send rules")
    })
}

fn answer(verdict: &Verdict, query: &CheckQuery) -> Response {
    let headers = headers::of(verdict, query.x_ratelimit == Some(true));
    if verdict.allowed || query.deny_status != Some(429) {
        return (headers, Json(convert::verdict_body(verdict))).into_response();
    }
    let violated: Vec<&str> = verdict.violated.iter().map(|rule| rule.as_str()).collect();
    let problem = json!({
        "type": QUOTA_EXCEEDED,
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
        "violated-policies": violated,
    });
    let mut response = (StatusCode::TOO_MANY_REQUESTS, headers, problem.to_string()).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(after) = verdict.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(headers::seconds_up(after).max(1)));
    }
    response
}
