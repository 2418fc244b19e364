//! Places that a worker has served: those of workers in this process, of pull workers of this server, and those whose runs a worker has executed.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use towpath_core::names::{WorkflowName, WorkflowVersion};
use towpath_core::run::{RunPlace, RunState};
use towpath_core::store::{RunFilter, RunPageRequest};

use super::store;
use crate::http::app::App;
use crate::http::error::ApiError;

/// More places are looked up each time.
const REMEMBERED_MAX: usize = 10_000;
/// A run gets into these states only by a worker.
const EXECUTED: [RunState; 5] = [RunState::Running, RunState::Waiting, RunState::Blocked, RunState::Completed, RunState::Failed];

/// Places that a worker is known to have served.
#[derive(Debug, Default)]
pub(crate) struct SeenPlaces(Mutex<HashSet<RunPlace>>);

impl SeenPlaces {
    fn remember(&self, place: &RunPlace) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < REMEMBERED_MAX {
            seen.insert(place.clone());
        }
    }

    fn has(&self, place: &RunPlace) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(place)
    }
}

/// Whether a worker has served this place, as far as this server can know.
pub(super) async fn was_served(app: &App, place: &RunPlace) -> Result<bool, ApiError> {
    if app.seen_places().has(place) {
        return Ok(true);
    }
    let is_seen =
        app.towpath().has_served(place) || app.run_roster().serving(place, app.clock().now()) > 0 || has_executed_runs(app, place).await?;
    if is_seen {
        app.seen_places().remember(place);
    }
    Ok(is_seen)
}

async fn has_executed_runs(app: &App, place: &RunPlace) -> Result<bool, ApiError> {
    let filter = RunFilter {
        workflow: Some(place.workflow.clone()),
        version: Some(place.version.clone()),
        shard: place.shard.clone(),
        states: EXECUTED.to_vec(),
        ..RunFilter::default()
    };
    let page = store(app)?.runs(&filter, RunPageRequest { after: None, limit: 1 }).await?;
    // A page without runs and with a next one leaves it open: no warning then.
    Ok(!page.runs.is_empty() || page.next.is_some())
}

/// The versions of a workflow of which there are runs, or pull workers of this server.
pub(super) async fn versions_of(app: &App, workflow: &WorkflowName) -> Result<Vec<WorkflowVersion>, ApiError> {
    let of_runs = store(app)?.run_places().await?.into_iter().map(|view| view.place);
    let of_workers = app.run_roster().places(app.clock().now()).into_iter();
    let places = of_runs.chain(of_workers).filter(|place| place.workflow == *workflow);
    let mut versions: Vec<WorkflowVersion> = places.map(|place| place.version).collect();
    versions.sort();
    versions.dedup();
    Ok(versions)
}
