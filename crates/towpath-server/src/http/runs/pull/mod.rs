//! Pull workers of runs: register, claim, commit, renew, leave.

mod book;
pub(crate) mod claim;
pub(crate) mod commit;
mod derive;
mod then;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde_json::json;
use towpath_core::lock::Fence;
use towpath_core::names::{BuildId, WorkerId};
use towpath_core::run::{Commit, RunId, RunState, Then};
use towpath_core::store::{RunRenewal, RunStore, StoreError};

pub(crate) use book::Books;

use super::roster::{RunWorker, WORKERS_MAX};
use super::{names, store};
use crate::http::app::App;
use crate::http::bounds;
use crate::http::codes::Code;
use crate::http::convert;
use crate::http::error::{ApiError, invalid_name, worker_not_found};
use crate::http::extract::{JsonBody, OptionalJsonBody, PathText};
use crate::http::wire::run_workers::{
    HeldRunBody, RegisterRunWorkerBody, RenewRunsAnswer, RenewRunsBody, RenewedRunBody, RunWorkerLeft, RunWorkerRegistered,
};

const LEASE_MS_DEFAULT: u64 = 15_000;
const LEASE_MS_MIN: u64 = 500;
const LEASE_MS_MAX: u64 = 3_600_000;
const WAIT_MS_MAX: u64 = 60_000;
const WORKFLOWS_MAX: usize = 100;
const RUNS_MAX: usize = 1_000;

/// Register a worker of runs
///
/// Doing it again replaces what it said before. Runs that did not fit another build are ready again.
#[utoipa::path(
    post, path = "/v1/run-workers", tag = "run workers", request_body = RegisterRunWorkerBody,
    responses((status = 200, description = "The worker is known", body = RunWorkerRegistered)),
)]
pub(crate) async fn register(
    State(app): State<App>,
    JsonBody(body): JsonBody<RegisterRunWorkerBody>,
) -> Result<Json<RunWorkerRegistered>, ApiError> {
    let runs = store(&app)?;
    let worker_id = match body.worker_id.as_deref() {
        Some(text) => convert::worker_id(text)?,
        None => app.towpath().ids().worker_id(),
    };
    let build = BuildId::new(&body.build).map_err(|refused| invalid_name("build", &refused))?;
    let lease_ms = bounds::check_within("lease_ms", body.lease_ms, LEASE_MS_MIN, LEASE_MS_MAX)?.unwrap_or(LEASE_MS_DEFAULT);
    if body.workflows.is_empty() || body.workflows.len() > WORKFLOWS_MAX {
        let message = format!("a worker serves 1 to {WORKFLOWS_MAX} workflows, not {}", body.workflows.len());
        return Err(ApiError::new(Code::InvalidField, message).field("workflows"));
    }
    let served = body.workflows.iter().enumerate();
    let places =
        served.map(|(at, served)| names::place(&format!("workflows[{at}]."), &served.workflow, &served.version, served.shard.as_deref()));
    let places: Vec<_> = places.collect::<Result<_, _>>()?;
    let unblocked = runs.register_build(&build, &places).await?;
    let terms = RunWorker { build, places: places.into(), lease: Duration::from_millis(lease_ms) };
    if !app.run_roster().remember(worker_id.clone(), terms, app.clock().now()) {
        return Err(ApiError::new(Code::OverloadedServer, format!("this server knows {WORKERS_MAX} workers of runs already")));
    }
    Ok(Json(RunWorkerRegistered { worker_id: worker_id.to_string(), lease_ms, renew_ms: lease_ms / 3, unblocked }))
}

fn not_registered(worker: &WorkerId) -> ApiError {
    worker_not_found(worker).hint("register again with POST /v1/run-workers, under the same worker_id")
}

/// Renew the claims of a worker
///
/// With `wait_ms` the request stays open, and renews, until something comes for one of the runs.
#[utoipa::path(
    post, path = "/v1/run-workers/{worker_id}/renew", tag = "run workers", request_body = RenewRunsBody,
    params(("worker_id" = String, Path, description = "Which worker")),
    responses((status = 200, description = "What became of each claim", body = RenewRunsAnswer)),
)]
pub(crate) async fn renew(
    State(app): State<App>,
    PathText(id): PathText,
    OptionalJsonBody(body): OptionalJsonBody<RenewRunsBody>,
) -> Result<Json<RenewRunsAnswer>, ApiError> {
    let (runs, worker) = (store(&app)?, convert::worker_id(&id)?);
    let wait = bounds::check_within("wait_ms", body.wait_ms, 0, WAIT_MS_MAX)?.unwrap_or(0);
    let claims = claims(&body.runs)?;
    // A worker that this server does not know (it was started anew) keeps its claims: they are in the store.
    let known = app.run_roster().hear(&worker, app.clock().now());
    let lease = known.map_or(Duration::from_millis(LEASE_MS_DEFAULT), |worker| worker.lease);
    let until = app.clock().now() + Duration::from_millis(wait);
    let mut first: Option<Vec<RunRenewal>> = None;
    loop {
        let renewals = runs.renew_runs(&worker, claims.clone()).await?;
        let now = app.clock().now();
        app.run_roster().hear(&worker, now);
        let before = first.get_or_insert_with(|| renewals.clone());
        let has_news = renewals.iter().zip(before.iter()).zip(&body.runs).any(|((now, before), held)| is_news(now, before, held));
        if has_news || now >= until || app.drain().has_begun() {
            let answers = body.runs.iter().zip(&renewals).map(|(held, renewal)| renewed(held, renewal));
            return Ok(Json(RenewRunsAnswer { runs: answers.collect() }));
        }
        let pause = until.since(now).min(lease / 3);
        tokio::select! {
            notified = runs.runs_notified(&worker, pause) => drop(notified?),
            () = app.drain().begun() => {}
        }
    }
}

fn claims(runs: &[HeldRunBody]) -> Result<Vec<(RunId, Fence)>, ApiError> {
    if runs.len() > RUNS_MAX {
        let message = format!("there are {} runs: send at most {RUNS_MAX} at once", runs.len());
        return Err(ApiError::new(Code::BatchTooLarge, message).field("runs").details(json!({ "limit": RUNS_MAX })));
    }
    let claim =
        |(at, held): (usize, &HeldRunBody)| Ok((names::run_id_in(format!("runs[{at}].run_id"), &held.run_id)?, Fence::new(held.epoch)));
    runs.iter().enumerate().map(claim).collect()
}

/// Whether a claim is lost, or something has come that the worker does not know of.
fn is_news(now: &RunRenewal, before: &RunRenewal, held: &HeldRunBody) -> bool {
    match (now, before) {
        (
            RunRenewal::Held { facts, cancel_requested, paused, .. },
            RunRenewal::Held { facts: facts_before, cancel_requested: cancel_before, paused: paused_before, .. },
        ) => {
            let known = held.latest_fact.unwrap_or(*facts_before);
            *facts > known || cancel_requested != cancel_before || paused != paused_before
        }
        _lost => true,
    }
}

fn renewed(held: &HeldRunBody, renewal: &RunRenewal) -> RenewedRunBody {
    let run_id = held.run_id.clone();
    match renewal {
        RunRenewal::Held { until, facts, cancel_requested, paused } => RenewedRunBody {
            run_id,
            result: "held".to_owned(),
            lease_until: Some(until.as_millis()),
            latest_fact: Some(*facts),
            cancel_requested: *cancel_requested,
            paused: *paused,
        },
        RunRenewal::Lost => RenewedRunBody {
            run_id,
            result: "lost".to_owned(),
            lease_until: None,
            latest_fact: None,
            cancel_requested: false,
            paused: false,
        },
    }
}

/// Leave
///
/// The runs that the worker has are released, so that other workers go on with them at once.
#[utoipa::path(
    delete, path = "/v1/run-workers/{worker_id}", tag = "run workers",
    params(("worker_id" = String, Path, description = "Which worker")),
    responses((status = 200, description = "The worker is gone", body = RunWorkerLeft)),
)]
pub(crate) async fn leave(State(app): State<App>, PathText(id): PathText) -> Result<Json<RunWorkerLeft>, ApiError> {
    let (runs, worker) = (store(&app)?, convert::worker_id(&id)?);
    let held = app.run_roster().forget(&worker).ok_or_else(|| not_registered(&worker))?;
    let mut released = 0;
    for run_id in held {
        match release(runs, &worker, &run_id).await {
            Ok(had) => released += u64::from(had),
            Err(error) => tracing::warn!(%error, %run_id, "a run of a worker that left could not be given back; its claim expires"),
        }
    }
    Ok(Json(RunWorkerLeft { released }))
}

/// Gives a run back, if this worker has it. Whether it had.
async fn release(runs: &Arc<dyn RunStore>, worker: &WorkerId, run_id: &RunId) -> Result<bool, StoreError> {
    let Some(run) = runs.run(run_id).await?.map(|view| view.run) else { return Ok(false) };
    if run.state != RunState::Running || run.owner.as_ref() != Some(worker) {
        return Ok(false);
    }
    let commit = Commit {
        owner: worker.clone(),
        epoch: run.epoch,
        revision: run.revision,
        digest: Arc::from("released"),
        entries: Vec::new(),
        consumed: Vec::new(),
        seen: run.facts,
        armed: Vec::new(),
        disarmed: Vec::new(),
        children: Vec::new(),
        posts: Vec::new(),
        published: Vec::new(),
        then: Then::Release,
    };
    runs.commit_run(run_id, commit).await?;
    Ok(true)
}
