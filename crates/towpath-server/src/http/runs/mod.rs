//! Workflow runs: start, look, send, ask, and the workers that execute them.

mod bodies;
mod body;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod look;
mod names;
pub(crate) mod pull;
pub(crate) mod requests;
mod roster;
mod seen;
pub(crate) mod start;
mod why;
pub(crate) mod workflows;

use std::sync::Arc;

pub(crate) use roster::RunRoster;
pub(crate) use seen::SeenPlaces;
use serde_json::json;
use towpath_core::run::{RunId, RunState};
use towpath_core::store::{RunStore, RunView};

use super::app::App;
use super::codes::Code;
use super::error::ApiError;

/// One payload of a run: an input, a result, the data of an event.
const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

/// The store of runs, if this server's store keeps any.
fn store(app: &App) -> Result<&Arc<dyn RunStore>, ApiError> {
    app.towpath().run_store().ok_or_else(|| {
        ApiError::new(Code::RunsUnsupported, "the store of this server keeps no workflow runs")
            .hint("start the server on a store that does, such as sqlite:./.towpath")
    })
}

/// A run that must be there.
async fn found(app: &App, run_id: &RunId) -> Result<RunView, ApiError> {
    store(app)?.run(run_id).await?.ok_or_else(|| not_found(run_id))
}

fn not_found(run_id: &RunId) -> ApiError {
    ApiError::new(Code::RunNotFound, format!("there is no run '{run_id}', or its retention is over")).field("run_id")
}

fn closed(run_id: &RunId, state: RunState) -> ApiError {
    ApiError::new(Code::RunClosed, format!("run '{run_id}' has closed: it is {state}"))
        .field("run_id")
        .details(json!({ "run_id": run_id.as_str(), "state": state.as_str() }))
}

/// What an acknowledgement of the store is worth at this moment. A store that cannot be asked is said to keep nothing.
async fn level(app: &App) -> String {
    let level = app.probe().ask(app).await.map_or(towpath_core::store::Durability::Memory, |status| status.durability);
    level.as_str().to_owned()
}
