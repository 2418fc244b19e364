//! Forgets a function that only servers serve, because it has a target: first its target goes, and every server hears of it and stops pushing.

use std::time::Duration;

use towpath_core::names::FunctionKey;
use towpath_core::store::StoreError;
use towpath_core::worker::FunctionDefinition;

use crate::http::app::App;

/// All servers have this long to stop pushing.
const RETIRE_TIME_MAX: Duration = Duration::from_secs(10);
/// A worker that leaves notifies nobody, so this server looks again until all have left.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Whether the function is forgotten. If it is not, it has its target again.
///
/// A process that dies on the way leaves a function without a target: define it again, or forget it again.
pub(super) async fn forget(app: &App, key: &FunctionKey) -> Result<bool, StoreError> {
    let Some(before) = definition(app, key).await? else { return Ok(false) };
    let forgotten = without_target(app, &before).await;
    if !matches!(forgotten, Ok(true)) {
        give_back_target(app, before).await?;
    }
    forgotten
}

async fn definition(app: &App, key: &FunctionKey) -> Result<Option<FunctionDefinition>, StoreError> {
    Ok(app.store().find(key, app.clock().now()).await?.map(|view| view.definition))
}

async fn without_target(app: &App, before: &FunctionDefinition) -> Result<bool, StoreError> {
    let give_up_at = app.clock().now() + RETIRE_TIME_MAX;
    loop {
        // In every round: a server that was just starting its worker writes the definition again, as it had read it.
        define(app, FunctionDefinition { target: None, ..before.clone() }).await?;
        if app.store().forget(&before.key).await? {
            return Ok(true);
        }
        let Some(view) = app.store().find(&before.key, app.clock().now()).await? else { return Ok(true) };
        let has_calls = view.counts.backlog() + view.counts.running + view.counts.dead > 0;
        if has_calls || app.clock().now() >= give_up_at {
            return Ok(false);
        }
        app.clock().sleep_until(app.clock().now() + LOOK_AGAIN_AFTER).await;
    }
}

async fn define(app: &App, definition: FunctionDefinition) -> Result<(), StoreError> {
    let _still = app.pushed().definitions().await;
    app.store().define(definition).await
}

/// Unless the function is gone, or another caller has defined it otherwise meanwhile.
async fn give_back_target(app: &App, before: FunctionDefinition) -> Result<(), StoreError> {
    match definition(app, &before.key).await? {
        Some(now) if now == (FunctionDefinition { target: None, ..before.clone() }) => define(app, before).await,
        _ => Ok(()),
    }
}
