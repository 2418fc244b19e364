//! Events for runs.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::json;
use towpath_core::names::WorkflowName;
use towpath_core::run::RunId;
use towpath_core::store::{EventSent, NewEvent};

use super::{closed, level, names, not_found, store};
use crate::http::app::App;
use crate::http::codes::Code;
use crate::http::error::ApiError;
use crate::http::extract::{JsonBody, PathText};
use crate::http::wire::runs::{EventSentBody, SendAnswer, SendBody, SendManyAnswer, SendManyBody};

/// An event goes to this many runs at most.
const TARGETS_MAX: usize = 1_000;

/// Send an event to a run
///
/// The event waits in the run's inbox until the code asks for it. A parked run that waits for it goes on.
#[utoipa::path(
    post, path = "/v1/runs/{run_id}/send", tag = "runs", request_body = SendBody,
    params(("run_id" = String, Path, description = "Which run")),
    responses((status = 202, description = "The run has it, now or already before", body = SendAnswer)),
)]
pub(crate) async fn send(
    State(app): State<App>,
    PathText(id): PathText,
    JsonBody(body): JsonBody<SendBody>,
) -> Result<(StatusCode, Json<SendAnswer>), ApiError> {
    let (runs, run_id) = (store(&app)?, names::run_id(&id)?);
    let event = names::new_event("", body)?;
    let (result, number) = match runs.send_event(&run_id, event).await? {
        EventSent::Accepted { number } => ("accepted", number),
        EventSent::Duplicate { number } => ("duplicate", number),
        EventSent::MailboxFull => return Err(mailbox_full(&run_id)),
        EventSent::Closed(state) => return Err(closed(&run_id, state)),
        EventSent::NotFound => return Err(not_found(&run_id)),
    };
    let sent =
        EventSentBody { run_id: Some(run_id.to_string()), reference: None, result: result.to_owned(), number: Some(number), state: None };
    Ok((StatusCode::ACCEPTED, Json(SendAnswer { sent, durability: level(&app).await })))
}

fn mailbox_full(run_id: &RunId) -> ApiError {
    let limit = towpath_core::run::EVENTS_MAX;
    ApiError::new(Code::MailboxFull, format!("run '{run_id}' has {limit} events that it has not consumed"))
        .field("run_id")
        .details(json!({ "run_id": run_id.as_str(), "limit": limit }))
}

/// Send an event to many runs
///
/// Runs are named by their ids, or by a workflow and references. Each has an answer of its own.
#[utoipa::path(
    post, path = "/v1/runs:send", tag = "runs", request_body = SendManyBody,
    responses((status = 202, description = "What became of it for each run", body = SendManyAnswer)),
)]
pub(crate) async fn send_many(
    State(app): State<App>,
    JsonBody(body): JsonBody<SendManyBody>,
) -> Result<(StatusCode, Json<SendManyAnswer>), ApiError> {
    let runs = store(&app)?;
    let targets = targets(&body)?;
    let event = names::new_event("", SendBody { event: body.event, data: body.data, reference: body.reference })?;
    let mut results = Vec::with_capacity(body.run_ids.len() + body.references.len());
    match targets {
        Targets::Ids(ids) => {
            for id in ids {
                results.push(send_one(&app, Some(id), None, &event).await?);
            }
        }
        Targets::References(workflow, references) => {
            for reference in references {
                let found = runs.run_referenced(&workflow, &reference).await?;
                results.push(send_one(&app, found, Some(reference.to_string()), &event).await?);
            }
        }
    }
    Ok((StatusCode::ACCEPTED, Json(SendManyAnswer { results, durability: level(&app).await })))
}

/// The runs that an event is for.
enum Targets {
    Ids(Vec<RunId>),
    References(WorkflowName, Vec<towpath_core::names::Reference>),
}

fn targets(body: &SendManyBody) -> Result<Targets, ApiError> {
    for (field, count) in [("run_ids", body.run_ids.len()), ("references", body.references.len())] {
        if count > TARGETS_MAX {
            let message = format!("there are {count} {field}: send at most {TARGETS_MAX} at once");
            return Err(ApiError::new(Code::BatchTooLarge, message).field(field).details(json!({ "limit": TARGETS_MAX })));
        }
    }
    match (body.run_ids.is_empty(), body.references.is_empty(), &body.workflow) {
        (false, true, None) => {
            let ids = body.run_ids.iter().enumerate();
            Ok(Targets::Ids(ids.map(|(place, id)| names::run_id_in(format!("run_ids[{place}]"), id)).collect::<Result<_, _>>()?))
        }
        (true, false, Some(workflow)) => {
            let references = body.references.iter().enumerate();
            let references = references.map(|(place, text)| names::reference(format!("references[{place}]"), text));
            Ok(Targets::References(names::workflow("workflow", workflow)?, references.collect::<Result<_, _>>()?))
        }
        (true, false, None) => Err(ApiError::new(Code::MissingField, "references belong to a workflow: name it").field("workflow")),
        (true, true, _) => Err(ApiError::new(Code::MissingField, "which runs? give run_ids, or workflow and references").field("run_ids")),
        _ => Err(ApiError::new(Code::Ambiguous, "give run_ids, or workflow and references").field("run_ids")),
    }
}

async fn send_one(app: &App, run_id: Option<RunId>, reference: Option<String>, event: &NewEvent) -> Result<EventSentBody, ApiError> {
    let sent = match &run_id {
        Some(run_id) => store(app)?.send_event(run_id, event.clone()).await?,
        None => EventSent::NotFound,
    };
    let (result, number, state) = match sent {
        EventSent::Accepted { number } => ("accepted", Some(number), None),
        EventSent::Duplicate { number } => ("duplicate", Some(number), None),
        EventSent::MailboxFull => ("mailbox_full", None, None),
        EventSent::Closed(state) => ("run_closed", None, Some(state.to_string())),
        EventSent::NotFound => ("run_not_found", None, None),
    };
    Ok(EventSentBody { run_id: run_id.map(|id| id.to_string()), reference, result: result.to_owned(), number, state })
}
