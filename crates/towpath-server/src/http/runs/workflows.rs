//! Workflows of which there are runs, or pull workers.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use towpath_core::run::RunPlace;
use towpath_core::store::RunPlaceView;

use super::store;
use crate::http::app::App;
use crate::http::error::ApiError;
use crate::http::extract::Query;
use crate::http::pages::{self, PageQuery};
use crate::http::wire::runs::{WorkflowBody, WorkflowList};

/// List workflows
#[utoipa::path(
    get, path = "/v1/workflows", tag = "runs", params(PageQuery),
    responses((status = 200, description = "By name, version and shard", body = WorkflowList)),
)]
pub(crate) async fn workflows(State(app): State<App>, Query(query): Query<PageQuery>) -> Result<Json<WorkflowList>, ApiError> {
    let limit = query.limit()?;
    let mut all: BTreeMap<String, RunPlaceView> = BTreeMap::new();
    for place in app.run_roster().places(app.clock().now()) {
        all.insert(place.stream(), RunPlaceView { place, counts: Vec::new(), oldest_ready: None });
    }
    for view in store(&app)?.run_places().await? {
        all.insert(view.place.stream(), view);
    }
    let wanted = all.into_iter().filter(|(stream, _)| query.cursor.as_ref().is_none_or(|cursor| stream > cursor));
    let (page, next) = pages::cut(wanted, limit, |_small| 0, |(stream, _)| stream.clone());
    let workflows = page.into_iter().map(|(stream, view)| workflow(&app, stream, view)).collect();
    Ok(Json(WorkflowList { workflows, next }))
}

fn workflow(app: &App, stream: String, view: RunPlaceView) -> WorkflowBody {
    let pull_workers = app.run_roster().serving(&view.place, app.clock().now());
    let RunPlace { workflow, version, shard } = view.place;
    WorkflowBody {
        workflow: workflow.to_string(),
        version: version.to_string(),
        shard: shard.map(|shard| shard.to_string()),
        stream,
        runs: view.counts.into_iter().map(|(state, count)| (state.to_string(), count)).collect(),
        pull_workers,
        oldest_ready_at: view.oldest_ready.map(|at| at.as_millis()),
    }
}
