//! Work that waits for something which is not there: the function of a batcher, the policy of a rate. Nothing of it is lost; health says so.

use towpath::FunctionKey;
use towpath::batches::{KnownBatcher, Target};
use towpath::limits::LimitError;
use towpath_core::inspect::FunctionView;
use towpath_core::names::{LimitScope, RuleName, Scope};

use super::app::App;
use super::error::ApiError;
use super::wire::health::WaitBody;

/// No answer names more of them.
pub(super) const NAMED_MAX: usize = 100;

/// What waits, functions first.
pub(super) async fn all(app: &App, functions: &[FunctionView]) -> Result<Vec<WaitBody>, ApiError> {
    let mut waits = Vec::new();
    for view in functions {
        let Some(rate) = &view.definition.limits.rate else { continue };
        let Ok(scope) = rate.scope_of(&view.definition.key) else { continue };
        if is_missing(app, &scope, &rate.policy).await? {
            waits.push(of_policy("function", view.definition.key.to_string(), &scope, &rate.policy, view.counts.backlog()));
        }
    }
    // A store without batches has no batchers.
    for known in app.towpath().batchers().list().await.unwrap_or_default() {
        waits.extend(of_batcher(app, &known, functions).await?);
    }
    waits.truncate(NAMED_MAX);
    Ok(waits)
}

async fn is_missing(app: &App, scope: &LimitScope, policy: &RuleName) -> Result<bool, ApiError> {
    match app.towpath().limit_policies().find(scope, policy).await {
        Ok(found) => Ok(found.is_none()),
        Err(LimitError::Store(error)) => Err(error.into()),
        // Policies that cannot be read let nothing through either, but they are there.
        Err(_) => Ok(false),
    }
}

fn of_policy(kind: &str, name: String, scope: &LimitScope, policy: &RuleName, waiting: u64) -> WaitBody {
    WaitBody {
        kind: kind.to_owned(),
        name,
        reason: "policy_not_found".to_owned(),
        function: None,
        policy: Some(policy.to_string()),
        scope: Some(scope.to_string()),
        waiting,
    }
}

/// Why calls of a function wait although a worker may be there, and what to do.
pub(super) async fn of_function(app: &App, function: &FunctionKey) -> Result<Option<String>, ApiError> {
    let Some(view) = app.store().find(function, app.clock().now()).await? else { return Ok(None) };
    let Some(rate) = &view.definition.limits.rate else { return Ok(None) };
    let Ok(scope) = rate.scope_of(function) else { return Ok(None) };
    let is_missing = is_missing(app, &scope, &rate.policy).await?;
    Ok(is_missing.then(|| no_policy(rate.policy.as_str(), scope.as_str())))
}

fn no_policy(policy: &str, scope: &str) -> String {
    format!(
        "there is no policy '{policy}', neither of scope '{scope}' nor for all: keep one with `towpath limit put '{scope}' --policy '{policy}' --rule r=gcra:10/1s`"
    )
}

async fn of_batcher(app: &App, known: &KnownBatcher, functions: &[FunctionView]) -> Result<Vec<WaitBody>, ApiError> {
    let mut waits = Vec::new();
    if let Some(Target::Function { name, .. }) = &known.settings.target {
        let key = FunctionKey { scope: Scope::global(), name: name.clone() };
        let is_listed = functions.iter().any(|view| view.definition.key == key);
        // A function of legacy workers alone is known as soon as it is asked for.
        if !is_listed && app.store().find(&key, app.clock().now()).await?.is_none() {
            let reason = "function_not_found".to_owned();
            let (function, kind) = (Some(name.to_string()), "batcher".to_owned());
            waits.push(WaitBody { kind, name: known.name.to_string(), reason, function, policy: None, scope: None, waiting: 0 });
        }
    }
    if let Some(rate) = &known.settings.rate
        && let Ok(scope) = rate.scope_of(&known.name)
        && is_missing(app, &scope, &rate.policy).await?
    {
        waits.push(of_policy("batcher", known.name.to_string(), &scope, &rate.policy, 0));
    }
    if !waits.is_empty() {
        let counts = app.towpath().batch(&known.name).counts().await?;
        waits.iter_mut().for_each(|wait| wait.waiting = counts.open_keys + counts.in_flight);
    }
    Ok(waits)
}

/// What a person on call should know, with what to do; nothing when nothing waits yet.
pub(super) fn problem(wait: &WaitBody) -> Option<String> {
    let (name, count) = (&wait.name, wait.waiting);
    let what = match (wait.kind.as_str(), count) {
        ("batcher", 1) => "batch",
        ("batcher", _) => "batches",
        (_, 1) => "call",
        _ => "calls",
    };
    let waits = if count == 1 { "waits" } else { "wait" };
    let why = match (&wait.function, &wait.policy, &wait.scope) {
        (Some(function), _, _) => {
            format!("the function '{function}' is not known: start a worker that serves it, or give the batcher another target")
        }
        (None, Some(policy), Some(scope)) => no_policy(policy, scope),
        _ => return None,
    };
    (count > 0).then(|| format!("{count} {what} of '{name}' {waits} because {why}"))
}
