//! A pull worker claims runs: those of silent workers first, then ready ones.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use tokio::sync::oneshot;
use towpath_core::names::WorkerId;
use towpath_core::store::{ClaimRuns, ClaimedRun, RunStore, StoreError, TakeOverRuns};
use towpath_core::time::Timestamp;

use super::{WAIT_MS_MAX, not_registered, release};
use crate::http::app::App;
use crate::http::bounds;
use crate::http::codes::Code;
use crate::http::convert;
use crate::http::error::ApiError;
use crate::http::extract::{OptionalJsonBody, PathText};
use crate::http::runs::roster::RunWorker;
use crate::http::runs::{body, store};
use crate::http::wire::run_workers::{ClaimRunsBody, ClaimedRunBody, ClaimedRuns};

const CLAIM_MAX: u64 = 100;
/// This many owners in a row may fall silent before a run is blocked.
const MAX_DELIVERIES: u32 = 10;
/// This much of a journal comes with the claim.
const JOURNAL_BYTES: usize = 256 * 1024;
/// A claim that waits looks this often for silent workers, or once per lease, and whether its client is still there.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// And not more often than this.
const LOOK_APART: Duration = Duration::from_millis(50);

/// Claim runs
///
/// Waits up to `wait_ms` for the first one. Runs of workers that have been silent for longer than their leases are taken over. A client
/// that goes away gives back what it would have got.
#[utoipa::path(
    post, path = "/v1/run-workers/{worker_id}/claim", tag = "run workers", request_body = ClaimRunsBody,
    params(("worker_id" = String, Path, description = "Which worker")),
    responses((status = 200, description = "The runs; none when nothing came in time", body = ClaimedRuns)),
)]
pub(crate) async fn claim(
    State(app): State<App>,
    PathText(id): PathText,
    OptionalJsonBody(request): OptionalJsonBody<ClaimRunsBody>,
) -> Result<Json<ClaimedRuns>, ApiError> {
    let (runs, worker) = (Arc::clone(store(&app)?), convert::worker_id(&id)?);
    let max = bounds::check_within("max", request.max.map(u64::from), 1, CLAIM_MAX)?.unwrap_or(1);
    let wait = bounds::check_within("wait_ms", request.wait_ms, 0, WAIT_MS_MAX)?.unwrap_or(0);
    if app.drain().has_begun() {
        return Err(ApiError::new(Code::Draining, "the server is stopping and gives out no more runs"));
    }
    let now = app.clock().now();
    let terms = app.run_roster().hear(&worker, now).ok_or_else(|| not_registered(&worker))?;
    let want = Want { worker, terms, max: u32::try_from(max).unwrap_or(u32::MAX), until: now + Duration::from_millis(wait) };
    let (sender, receiver) = oneshot::channel();
    let (task_app, drain) = (app.clone(), app.drain().clone());
    // A task of its own: a client that goes away must not tear a claim apart.
    tokio::spawn(async move { serve(&task_app, &runs, &want, sender).await });
    tokio::select! {
        claimed = receiver => Ok(Json(ClaimedRuns { runs: claimed.map_err(|_| ApiError::new(Code::Internal, "the claim broke off"))?? })),
        () = drain.begun() => Ok(Json(ClaimedRuns { runs: Vec::new() })),
    }
}

struct Want {
    worker: WorkerId,
    terms: RunWorker,
    max: u32,
    until: Timestamp,
}

type Answer = Result<Vec<ClaimedRunBody>, StoreError>;

/// Claims, and answers. Runs that the client cannot take any more are given back.
async fn serve(app: &App, runs: &Arc<dyn RunStore>, want: &Want, mut sender: oneshot::Sender<Answer>) {
    let claimed = match claim_until(app, runs, want, &mut sender).await {
        Ok(claimed) => claimed,
        Err(error) => {
            let _client_is_gone = sender.send(Err(error));
            return;
        }
    };
    let ids: Vec<_> = claimed.iter().map(|claimed| claimed.run.run_id.clone()).collect();
    app.run_roster().note_claimed(&want.worker, ids.iter().cloned());
    let answer = with_journals(runs, &claimed).await;
    let is_good = answer.is_ok();
    if sender.send(answer).is_ok() && is_good {
        return;
    }
    for run_id in ids {
        app.run_roster().note_left(&want.worker, &run_id);
        if let Err(error) = release(runs, &want.worker, &run_id).await {
            tracing::debug!(%error, %run_id, "a run whose worker hung up could not be given back; its claim expires");
        }
    }
}

async fn claim_until(
    app: &App,
    runs: &Arc<dyn RunStore>,
    want: &Want,
    sender: &mut oneshot::Sender<Answer>,
) -> Result<Vec<ClaimedRun>, StoreError> {
    let RunWorker { places, lease, .. } = &want.terms;
    loop {
        let look = TakeOverRuns {
            worker: want.worker.clone(),
            places: Arc::clone(places),
            max: want.max,
            idle: *lease,
            max_deliveries: MAX_DELIVERIES,
            executing: Vec::new(),
        };
        let taken = runs.take_over_runs(look).await?;
        for run_id in &taken.poisoned {
            tracing::warn!(%run_id, "the run is blocked: worker after worker fell silent while it executed it");
        }
        if !taken.claimed.is_empty() {
            return Ok(taken.claimed);
        }
        let now = app.clock().now();
        let look_again = taken.next_due.unwrap_or(want.until).min(now + LOOK_EVERY.min(*lease)).max(now + LOOK_APART).min(want.until);
        let ask =
            ClaimRuns { worker: want.worker.clone(), places: Arc::clone(places), max: want.max, idle: *lease, wait: look_again.since(now) };
        let claimed = runs.claim_runs(ask).await?;
        app.run_roster().hear(&want.worker, app.clock().now());
        if !claimed.is_empty() || sender.is_closed() || app.clock().now() >= want.until {
            return Ok(claimed);
        }
    }
}

/// The runs with their journals. One that cannot be read is left out: its claim expires, and it is blocked after some such claims.
async fn with_journals(runs: &Arc<dyn RunStore>, claimed: &[ClaimedRun]) -> Answer {
    let mut bodies = Vec::with_capacity(claimed.len());
    for ClaimedRun { run, facts } in claimed {
        let journal = match runs.journal(&run.run_id, 0, JOURNAL_BYTES).await {
            Ok(journal) => journal,
            Err(error @ StoreError::Corrupt(_)) => {
                tracing::error!(%error, run_id = %run.run_id, "the journal of a run cannot be read; no worker is given the run");
                continue;
            }
            Err(error) => return Err(error),
        };
        let journal_next = journal.last().map(|last| last.number + 1).filter(|next| *next < run.entries);
        bodies.push(ClaimedRunBody {
            run_id: run.run_id.to_string(),
            workflow: run.place.workflow.to_string(),
            version: run.place.version.to_string(),
            shard: run.place.shard.as_ref().map(ToString::to_string),
            epoch: run.epoch.as_u64(),
            revision: run.revision,
            generation: run.generation,
            lease_until: run.expires_at.unwrap_or(run.changed_at).as_millis(),
            cancel_requested: run.cancel_requested,
            facts: facts.iter().map(body::fact).collect(),
            journal: journal.iter().map(body::journal_entry).collect(),
            journal_next,
        });
    }
    Ok(bodies)
}
