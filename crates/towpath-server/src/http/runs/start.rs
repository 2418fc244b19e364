//! A run is started, or found by its reference.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::json;
use sha2::{Digest, Sha256};
use towpath_core::names::{WorkflowName, WorkflowVersion};
use towpath_core::payload::Payload;
use towpath_core::run::{RunId, RunPlace, RunState, canonical};
use towpath_core::store::{EventSent, OnConflict, Reuse, StartRun, Started};

use super::{bodies, level, names, seen, store};
use crate::http::app::App;
use crate::http::bounds;
use crate::http::codes::Code;
use crate::http::convert;
use crate::http::error::ApiError;
use crate::http::extract::JsonBody;
use crate::http::wire::runs::{RunStarted, StartRunBody};

/// How long a run can be read after its end.
pub(super) const RETAIN_DEFAULT: Duration = Duration::from_secs(7 * 86_400);

/// Start a run of a workflow
///
/// With a `reference`, starting it again finds the same run, so that a start whose answer was lost is simply repeated. With an `event`, the
/// run receives it in the same move, whether it is new or was started before.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs", request_body = StartRunBody,
    params(("traceparent" = Option<String>, Header, description = "W3C trace context, carried to the worker")),
    responses((status = 201, description = "The run is kept and will be executed", body = RunStarted),
        (status = 200, description = "A run with this reference was started before", body = RunStarted)),
)]
pub(crate) async fn start(
    State(app): State<App>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<StartRunBody>,
) -> Result<(StatusCode, Json<RunStarted>), ApiError> {
    let runs = store(&app)?;
    let start = to_start(&app, &headers, body).await?;
    let (run_id, place, is_delayed) = (start.run_id.clone(), start.place.clone(), !start.delay.is_zero());
    let brings_event = start.event.is_some();
    let started = runs.start_run(start).await?;
    let (status, body) = match started {
        Started::Created { durability } => {
            let state = if is_delayed { RunState::Delayed } else { RunState::Ready };
            let event = brings_event.then(|| "accepted".to_owned());
            let warnings = warnings(&app, &place).await;
            let durability = durability.as_str().to_owned();
            (
                StatusCode::CREATED,
                RunStarted { run_id: run_id.to_string(), state: state.to_string(), existing: false, event, durability, warnings },
            )
        }
        Started::Existing { run_id, state, event } => {
            let (event, durability) = (event.map(|sent| sent_word(sent).to_owned()), level(&app).await);
            (
                StatusCode::OK,
                RunStarted {
                    run_id: run_id.to_string(),
                    state: state.to_string(),
                    existing: true,
                    event,
                    durability,
                    warnings: Vec::new(),
                },
            )
        }
        Started::Conflict { run_id } => return Err(conflict(&run_id)),
    };
    Ok((status, Json(body)))
}

fn conflict(run_id: &RunId) -> ApiError {
    ApiError::new(Code::ReferenceConflict, format!("the reference belongs to run '{run_id}', which has another input"))
        .field("reference")
        .hint("use another reference, or send on_conflict: return_existing")
        .details(json!({ "run_id": run_id.as_str() }))
}

fn sent_word(sent: EventSent) -> &'static str {
    match sent {
        EventSent::Accepted { .. } => "accepted",
        EventSent::Duplicate { .. } => "duplicate",
        EventSent::MailboxFull => "mailbox_full",
        EventSent::Closed(_) => "run_closed",
        EventSent::NotFound => "run_not_found",
    }
}

/// What a person should know about a run that was started. The run is kept: trouble here is not the caller's.
async fn warnings(app: &App, place: &RunPlace) -> Vec<String> {
    match seen::was_served(app, place).await {
        Ok(false) => vec!["no_worker_seen".to_owned()],
        Ok(true) | Err(_) => Vec::new(),
    }
}

async fn to_start(app: &App, headers: &HeaderMap, body: StartRunBody) -> Result<StartRun, ApiError> {
    let workflow = names::workflow("workflow", &body.workflow)?;
    let given = body.version.as_deref().map(|text| names::version("version", text)).transpose()?;
    let shard = body.shard.as_deref().map(|text| names::shard("shard", text)).transpose()?;
    let input = names::payload("input", body.input)?;
    let input_hash = hash_of("input", &input)?;
    let on_conflict = body.on_conflict.as_deref().map_or(Ok(OnConflict::default()), on_conflict)?;
    let reuse = body.reuse.as_deref().map_or(Ok(Reuse::default()), reuse)?;
    let delay = bounds::length("delay_ms", body.delay_ms)?.unwrap_or_default();
    let timeout = bounds::length("deadline_ms", body.deadline_ms)?;
    let retain = bounds::length("retain_ms", body.retain_ms)?.unwrap_or(RETAIN_DEFAULT);
    let reference = body.reference.as_deref().map(|text| names::reference("reference", text)).transpose()?;
    let event = body.event.map(|event| names::new_event("event.", event)).transpose()?;
    let version = match given {
        Some(version) => version,
        None => only_version(app, &workflow).await?,
    };
    let place = RunPlace { workflow, version, shard };
    let run_id = RunId::new(&place, new_number(app));
    let begin = bodies::begin(&new_seed(app), &input, convert::traceparent(headers).as_deref());
    Ok(StartRun { run_id, place, begin, input_hash, reference, on_conflict, reuse, delay, timeout, retain, event })
}

fn on_conflict(given: &str) -> Result<OnConflict, ApiError> {
    names::word("on_conflict", given, &["refuse", "return_existing"], |word| match word {
        "refuse" => Some(OnConflict::Refuse),
        "return_existing" => Some(OnConflict::ReturnExisting),
        _ => None,
    })
}

fn reuse(given: &str) -> Result<Reuse, ApiError> {
    names::word("reuse", given, &["never", "after_closed"], |word| match word {
        "never" => Some(Reuse::Never),
        "after_closed" => Some(Reuse::AfterClosed),
        _ => None,
    })
}

/// What tells an input from another one.
fn hash_of(field: &'static str, input: &Payload) -> Result<Arc<str>, ApiError> {
    let text = canonical(input)
        .map_err(|refused| ApiError::new(Code::UnencodableInput, format!("'{field}' cannot be compared: {refused}")).field(field))?;
    Ok(Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
}

/// The version of a start that names none.
async fn only_version(app: &App, workflow: &WorkflowName) -> Result<WorkflowVersion, ApiError> {
    let mut versions = seen::versions_of(app, workflow).await?;
    if versions.len() == 1 {
        return Ok(versions.swap_remove(0));
    }
    let known: Vec<&str> = versions.iter().map(WorkflowVersion::as_str).collect();
    let message = match known.as_slice() {
        [] => format!("no version of the workflow '{workflow}' is known, and none was given"),
        several => format!("the workflow '{workflow}' has the versions {}: say which one", several.join(", ")),
    };
    Err(ApiError::new(Code::WorkflowNotFound, message).field("version").hint("send version").details(json!({ "versions": known })))
}

/// A number that no other run has, and that is larger for later runs.
fn new_number(app: &App) -> u128 {
    let id = app.towpath().ids().call_id();
    let digits: String = id.as_str().chars().filter(|letter| *letter != '-').collect();
    u128::from_str_radix(&digits, 16).unwrap_or_else(|_| {
        let hash = Sha256::digest(id.as_str().as_bytes());
        hash.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
    })
}

/// A random seed: each id has 62 random bits.
fn new_seed(app: &App) -> String {
    let ids = app.towpath().ids();
    bodies::seed(&[ids.call_id().as_str(), ids.call_id().as_str(), ids.call_id().as_str()])
}
