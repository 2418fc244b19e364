//! Names that lead nowhere: a batcher's function that does not exist, a rate policy that is missing. Work behind such a name waits, and its
//! caller hears only that it waits.

use towpath::Towpath;
use towpath::batches::Target;
use towpath_core::names::{FunctionKey, LimitScope, RuleName, Scope};
use towpath_core::store::StoreError;

use super::Finding;

/// Functions and policies that are named, and whether they are there.
pub(super) async fn check(towpath: &Towpath) -> Vec<Finding> {
    match look(towpath).await {
        Ok(findings) => findings,
        Err(error) => {
            vec![Finding::warn("names", format!("functions and batchers cannot be read: {error}"), "look at the store's other checks")]
        }
    }
}

async fn look(towpath: &Towpath) -> Result<Vec<Finding>, StoreError> {
    // A store without batches has none.
    let batchers = towpath.batchers().list().await.unwrap_or_default();
    let mut found = Vec::new();
    for batcher in &batchers {
        let name = &batcher.name;
        if let Some(Target::Function { name: function, .. }) = &batcher.settings.target {
            let key = FunctionKey { scope: Scope::global(), name: function.clone() };
            if towpath.store().find(&key, towpath.clock().now()).await?.is_none() {
                let message = format!("batcher '{name}' calls function '{function}', which is not known: its batches wait");
                let advice = format!("start a worker that serves '{function}', or `towpath batch settings {name} --set target=...`");
                found.push(Finding::fail("batches", message, advice));
            }
        }
        if let Some(rate) = &batcher.settings.rate
            && let Ok(scope) = rate.scope_of(name)
        {
            found.extend(missing(towpath, &format!("batcher '{name}'"), &scope, &rate.policy).await);
        }
    }
    for view in towpath.store().functions().await? {
        let (key, Some(rate)) = (&view.definition.key, &view.definition.limits.rate) else { continue };
        if let Ok(scope) = rate.scope_of(key) {
            found.extend(missing(towpath, &format!("function '{key}'"), &scope, &rate.policy).await);
        }
    }
    if found.is_empty() {
        found.push(Finding::ok("names", "each function and rate policy that is named is there"));
    }
    Ok(found)
}

async fn missing(towpath: &Towpath, of: &str, scope: &LimitScope, policy: &RuleName) -> Option<Finding> {
    let message = match towpath.limit_policies().find(scope, policy).await {
        Ok(Some(_)) => return None,
        Ok(None) => format!("{of} has the rate policy '{policy}', which does not exist for scope '{scope}': its work waits"),
        Err(error) => format!("{of} has the rate policy '{policy}', which cannot be read: {error}"),
    };
    let advice = format!("keep it with `towpath limit put '{scope}' --policy '{policy}' --rule r=gcra:10/1s` or PUT /v1/limits/{scope}");
    Some(Finding::fail("rates", message, advice))
}
