//! Pull workers: register, claim, answer, stay alive, report, leave.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use towpath_core::ids::DeliveryId;
use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::store::{ClaimFunction, CompleteCalls, Completed, Delivery, Heartbeat, RenewCalls, Renewal};
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, HEARTBEAT_EVERY, RegisterWorker, WorkerView};

use super::app::App;
use super::bounds;
use super::codes::Code;
use super::convert::{self, LEASE_DEFAULT};
use super::error::{ApiError, lease_lost, payload_too_large, worker_not_found};
use super::extract::{JsonBody, OptionalJsonBody, PathText, Query};
use super::functions::check_rate;
use super::pages::{self, PageQuery};
use super::standing::{Standing, Terms};
use super::turns::{self, Claimable};
use super::wire::workers::{
    ClaimBody, Claimed, CompleteAnswer, CompleteBody, HeartbeatAnswer, HeartbeatBody, ProgressBody, RegisterBody, Registered, ResultAnswer,
    Unregistered, WorkerList,
};

/// A worker that waits in an open claim is alive: it is counted so this often.
const ALIVE_EVERY: Duration = HEARTBEAT_EVERY;
const WAIT_MS_MAX: u64 = 60_000;
const CLAIM_MAX: u64 = 1_000;
/// A function without its name is about this long in a list of workers.
const FUNCTION_BYTES: usize = 40;
const KIND_DEFAULT: &str = "http";
const KIND_BYTES_MAX: usize = 64;
const PROGRESS_BYTES_MAX: usize = 64 * 1024;

/// Register a worker
///
/// Doing it again replaces what it said before.
#[utoipa::path(
    post, path = "/v1/workers", tag = "workers", request_body = RegisterBody,
    responses((status = 200, description = "The worker is known", body = Registered)),
)]
pub(crate) async fn register(State(app): State<App>, JsonBody(body): JsonBody<RegisterBody>) -> Result<Json<Registered>, ApiError> {
    let worker_id = match body.worker_id.as_deref() {
        Some(text) => convert::worker_id(text)?,
        None => app.towpath().ids().worker_id(),
    };
    let kind = kind(body.kind)?;
    let offers = convert::offers(body.functions)?;
    for (place, offer) in offers.iter().enumerate() {
        check_new_rate(&app, &offer.definition, &format!("functions[{place}].limits.rate")).await?;
    }
    let functions: Vec<FunctionKey> = offers.iter().map(|offer| offer.definition.key.clone()).collect();
    app.store().register(RegisterWorker { worker_id: worker_id.clone(), kind, offers }).await?;
    app.roster().remember(worker_id.clone(), functions, app.clock().now());
    Ok(Json(Registered { worker_id: worker_id.to_string(), lease_ms: ms(LEASE_DEFAULT), heartbeat_ms: ms(HEARTBEAT_EVERY) }))
}

/// Checks a rate that the function does not have yet. A worker that only comes back is taken: its calls wait for the policy in the queue, and
/// what it holds keeps its leases.
async fn check_new_rate(app: &App, definition: &FunctionDefinition, field: &str) -> Result<(), ApiError> {
    if definition.limits.rate.is_none() {
        return Ok(());
    }
    let known = app.store().find(&definition.key, app.clock().now()).await?;
    if known.is_some_and(|known| known.definition.limits.rate == definition.limits.rate) {
        return Ok(());
    }
    check_rate(app, definition, field).await
}

/// What a worker calls itself is shown to people: a short word without surprises.
fn kind(given: Option<String>) -> Result<String, ApiError> {
    let kind = given.unwrap_or_else(|| KIND_DEFAULT.to_owned());
    if kind.is_empty() || kind.len() > KIND_BYTES_MAX || kind.contains(char::is_control) {
        let message = format!("a worker's kind has 1 to {KIND_BYTES_MAX} bytes and no control characters");
        return Err(ApiError::new(Code::InvalidName, message).field("kind"));
    }
    Ok(kind)
}

fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// List the workers
#[utoipa::path(
    get, path = "/v1/workers", tag = "workers", params(PageQuery),
    responses((status = 200, description = "By id", body = WorkerList)),
)]
pub(crate) async fn list(State(app): State<App>, Query(query): Query<PageQuery>) -> Result<Json<WorkerList>, ApiError> {
    let (limit, after) = (query.limit()?, query.cursor.as_deref().map(convert::worker_id).transpose()?);
    let mut workers = app.store().workers().await?;
    workers.sort_by(|one, other| one.worker_id.cmp(&other.worker_id));
    let wanted = workers.into_iter().filter(|worker| after.as_ref().is_none_or(|after| worker.worker_id > *after));
    let bytes = |worker: &WorkerView| worker.functions.iter().map(|key| key.name.as_str().len() + FUNCTION_BYTES).sum();
    let (page, next) = pages::cut(wanted, limit, bytes, |worker| worker.worker_id.to_string());
    Ok(Json(WorkerList { workers: page.into_iter().map(Into::into).collect(), next }))
}

/// Claim calls
///
/// Waits up to `wait_ms` for the first one. While it waits the worker counts as alive. A client that goes away gives back what it would
/// have got.
#[utoipa::path(
    post, path = "/v1/workers/{worker_id}/claim", tag = "workers",
    params(("worker_id" = String, Path, description = "Who")), request_body = ClaimBody,
    responses((status = 200, description = "The calls, oldest first; none when nothing came in time", body = Claimed)),
)]
pub(crate) async fn claim(
    State(app): State<App>,
    PathText(id): PathText,
    OptionalJsonBody(body): OptionalJsonBody<ClaimBody>,
) -> Result<Json<Claimed>, ApiError> {
    let worker = convert::worker_id(&id)?;
    let max = bounds::check_within("max", body.max.map(u64::from), 1, CLAIM_MAX)?.unwrap_or(1);
    let wait = bounds::check_within("wait_ms", body.wait_ms, 0, WAIT_MS_MAX)?.unwrap_or(0);
    let lease = bounds::length("lease_ms", body.lease_ms)?.unwrap_or(LEASE_DEFAULT);
    if app.drain().has_begun() {
        return Err(ApiError::new(Code::Draining, "the server is stopping and gives out no more calls"));
    }
    let until = app.clock().now() + Duration::from_millis(wait);
    let want = Want { worker, max: u32::try_from(max).unwrap_or(u32::MAX), lease, until };
    let deliveries = tokio::select! {
        claimed = claim_until(&app, &want) => claimed?,
        () = app.drain().begun() => Vec::new(),
    };
    Ok(Json(Claimed { calls: deliveries.iter().map(convert::claimed_call).collect() }))
}

struct Want {
    worker: WorkerId,
    max: u32,
    lease: Duration,
    until: Timestamp,
}

impl Want {
    fn terms(&self, functions: Vec<ClaimFunction>) -> Terms {
        Terms { worker: self.worker.clone(), functions: functions.into(), max: self.max, lease: self.lease }
    }

    /// Of a claim that is full, some functions may not have been asked.
    fn note_claimed(&self, app: &App, claimed: &[Delivery]) {
        if claimed.len() >= self.max as usize {
            app.roster().next_turn(&self.worker);
        }
    }
}

async fn claim_until(app: &App, want: &Want) -> Result<Vec<Delivery>, ApiError> {
    loop {
        stay_alive(app, &want.worker).await?;
        let functions = app.roster().functions_of(app, &want.worker).await?.ok_or_else(|| worker_not_found(&want.worker))?;
        let Claimable { functions, again_at } = turns::claimable(app, functions, want.max).await;
        let now = app.clock().now();
        if now >= want.until {
            return claim_now(app, want, functions).await;
        }
        let look_again_at = again_at.unwrap_or(want.until).min(want.until).min(now + ALIVE_EVERY);
        if functions.is_empty() {
            app.clock().sleep_until(look_again_at).await;
            continue;
        }
        let mut claim = app.standing().claim(app.store(), want.terms(functions));
        tokio::select! {
            biased;
            claimed = &mut claim.claimed => {
                let claimed = claimed?;
                if claimed.is_empty() {
                    // The store ends a wait when a lease of this worker ran out. The worker that holds the request open may have stopped working,
                    // so the client itself has to ask again.
                    return Ok(claimed);
                }
                want.note_claimed(app, &claimed);
                let given = turns::draw(app, &want.worker, want.lease, claimed).await?;
                if !given.is_empty() {
                    return Ok(given);
                }
                continue;
            }
            () = app.clock().sleep_until(look_again_at) => Standing::keep(app, claim),
        }
        if app.clock().now() >= want.until {
            return Ok(Vec::new());
        }
    }
}

/// What is there at this moment.
async fn claim_now(app: &App, want: &Want, functions: Vec<ClaimFunction>) -> Result<Vec<Delivery>, ApiError> {
    if functions.is_empty() {
        return Ok(Vec::new());
    }
    let claimed = app.store().claim(want.terms(functions).wish(Duration::ZERO)).await?;
    want.note_claimed(app, &claimed);
    turns::draw(app, &want.worker, want.lease, claimed).await
}

/// Tells the store that a worker lives, unless it was told a moment ago.
async fn stay_alive(app: &App, worker: &WorkerId) -> Result<(), ApiError> {
    if app.roster().was_just_heard(worker, app.clock().now()) {
        return Ok(());
    }
    let heard = app.store().heartbeat(worker).await;
    if !matches!(heard, Ok(Heartbeat::Known)) {
        app.roster().forget(worker);
    }
    match heard? {
        Heartbeat::Known => Ok(()),
        Heartbeat::Unknown => Err(worker_not_found(worker)),
    }
}

/// Answer deliveries
///
/// Each result stands for itself: one that comes too late is refused as `lost` and does not spoil the others.
#[utoipa::path(
    post, path = "/v1/workers/{worker_id}/complete", tag = "workers",
    params(("worker_id" = String, Path, description = "Who")), request_body = CompleteBody,
    responses((status = 200, description = "What became of each result", body = CompleteAnswer)),
)]
pub(crate) async fn complete(
    State(app): State<App>,
    PathText(id): PathText,
    JsonBody(body): JsonBody<CompleteBody>,
) -> Result<Json<CompleteAnswer>, ApiError> {
    let worker = convert::worker_id(&id)?;
    let answers = convert::answers(body.results)?;
    let ids: Vec<DeliveryId> = answers.iter().map(|(id, _)| id.clone()).collect();
    let completed = app.store().complete(CompleteCalls { worker, answers }).await?;
    let results = ids.iter().zip(completed).map(|(id, completed)| result_answer(id, &completed)).collect();
    Ok(Json(CompleteAnswer { results }))
}

fn result_answer(id: &DeliveryId, completed: &Completed) -> ResultAnswer {
    let (result, reason) = match completed {
        Completed::Recorded { .. } => ("accepted", None),
        Completed::AlreadyRecorded => ("already", None),
        Completed::Lost(lost) => ("lost", Some(lost.as_str().to_owned())),
    };
    ResultAnswer { delivery_id: id.to_string(), result: result.to_owned(), reason }
}

/// Say that a worker lives, and prolong its leases
///
/// With `wait_ms` the request stays open until a caller cancels one of the calls, or the time is over.
#[utoipa::path(
    post, path = "/v1/workers/{worker_id}/heartbeat", tag = "workers",
    params(("worker_id" = String, Path, description = "Who")), request_body = HeartbeatBody,
    responses((status = 200, description = "What to stop working on", body = HeartbeatAnswer)),
)]
pub(crate) async fn heartbeat(
    State(app): State<App>,
    PathText(id): PathText,
    OptionalJsonBody(body): OptionalJsonBody<HeartbeatBody>,
) -> Result<Json<HeartbeatAnswer>, ApiError> {
    let worker = convert::worker_id(&id)?;
    let deliveries = convert::delivery_ids(body.delivery_ids)?;
    let lease = bounds::length("lease_ms", body.lease_ms)?.unwrap_or(LEASE_DEFAULT);
    let wait = bounds::check_within("wait_ms", body.wait_ms, 0, WAIT_MS_MAX)?.unwrap_or(0);
    let until = app.clock().now() + Duration::from_millis(wait);
    let leases = RenewCalls { worker, deliveries, lease };
    loop {
        stay_alive(&app, &leases.worker).await?;
        let answer = renew(&app, &leases).await?;
        let now = app.clock().now();
        let news = !answer.lost.is_empty() || !answer.cancelled.is_empty();
        if news || now >= until || app.drain().has_begun() {
            return Ok(Json(answer));
        }
        // Renewed often enough that neither the worker nor its leases lapse while the request is open.
        let pause = until.since(now).min(ALIVE_EVERY).min(leases.lease / 3);
        tokio::select! {
            () = app.store().attention(&leases.worker) => {}
            () = app.clock().sleep_until(now + pause) => {}
            () = app.drain().begun() => {}
        }
    }
}

async fn renew(app: &App, leases: &RenewCalls) -> Result<HeartbeatAnswer, ApiError> {
    let mut answer = HeartbeatAnswer { lost: Vec::new(), cancelled: Vec::new() };
    if leases.deliveries.is_empty() {
        return Ok(answer);
    }
    let renewals = app.store().renew(leases.clone()).await?;
    for (id, renewal) in leases.deliveries.iter().zip(renewals) {
        match renewal {
            Renewal::Held { cancel_requested: false, .. } => {}
            Renewal::Held { cancel_requested: true, .. } => answer.cancelled.push(id.to_string()),
            Renewal::Lost(_) => answer.lost.push(id.to_string()),
        }
    }
    Ok(answer)
}

/// Report progress of a delivery
#[utoipa::path(
    post, path = "/v1/workers/{worker_id}/progress", tag = "workers",
    params(("worker_id" = String, Path, description = "Who")), request_body = ProgressBody,
    responses((status = 200, description = "Kept; `cancelled` has the delivery when a caller cancelled its call", body = HeartbeatAnswer)),
)]
pub(crate) async fn progress(
    State(app): State<App>,
    PathText(id): PathText,
    JsonBody(body): JsonBody<ProgressBody>,
) -> Result<Json<HeartbeatAnswer>, ApiError> {
    let worker = convert::worker_id(&id)?;
    let delivery = convert::delivery_id("delivery_id".to_owned(), body.delivery_id)?;
    let (progress, limit) = (convert::payload(body.progress), PROGRESS_BYTES_MAX as u64);
    if progress.len() > PROGRESS_BYTES_MAX {
        let message = format!("the progress report has {} bytes: at most {limit} are kept", progress.len());
        return Err(payload_too_large("progress", message, progress.len() as u64, limit));
    }
    match app.store().report_progress(&worker, &delivery, progress).await? {
        Renewal::Held { cancel_requested, .. } => {
            let cancelled = cancel_requested.then(|| delivery.to_string()).into_iter().collect();
            Ok(Json(HeartbeatAnswer { lost: Vec::new(), cancelled }))
        }
        Renewal::Lost(lost) => Err(lease_lost("delivery_id", &delivery.to_string(), lost)),
    }
}

/// Leave
///
/// What the worker still holds is handed back, so that another gets it at once.
#[utoipa::path(
    delete, path = "/v1/workers/{worker_id}", tag = "workers",
    params(("worker_id" = String, Path, description = "Who")),
    responses((status = 200, description = "The worker is gone", body = Unregistered)),
)]
pub(crate) async fn unregister(State(app): State<App>, PathText(id): PathText) -> Result<Json<Unregistered>, ApiError> {
    let worker = convert::worker_id(&id)?;
    app.roster().forget(&worker);
    app.standing().give_up(&worker, None);
    stay_alive(&app, &worker).await?; // tells an unknown worker from one without deliveries
    Ok(Json(Unregistered { handed_back: app.store().unregister(&worker).await? }))
}
