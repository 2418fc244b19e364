//! Workers and their deliveries between wire and core.

use std::time::Duration;

use towpath_core::call::{Answer, Failure, Retry};
use towpath_core::ids::DeliveryId;
use towpath_core::names::{FunctionKey, FunctionName, Scope};
use towpath_core::payload::Payload;
use towpath_core::store::Delivery;
use towpath_core::worker::{FunctionDefinition, Offer, WorkerView};

use super::calls::millis;
use super::functions::{description, limits, parameters, retry};
use super::{json, payload};
use crate::http::bounds;
use crate::http::codes::Code;
use crate::http::error::{ApiError, invalid_delivery_id, invalid_name};
use crate::http::wire::workers::{ClaimedCall, FunctionRef, OfferBody, ResultBody, ResultError, WorkerBody};

/// The longest list in one request.
const ITEMS_MAX: usize = 1_000;
const CODE_DEFAULT: &str = "handler_error";
const CODE_CANCELLED: &str = "cancelled";

/// What a worker offers.
pub(crate) fn offers(bodies: Vec<OfferBody>) -> Result<Vec<Offer>, ApiError> {
    if bodies.is_empty() {
        return Err(ApiError::new(Code::InvalidField, "a worker serves at least one function").field("functions"));
    }
    check_items("functions", bodies.len())?;
    let offers: Vec<Offer> = bodies.into_iter().enumerate().map(|(index, body)| offer(index, body)).collect::<Result<_, _>>()?;
    for (index, one) in offers.iter().enumerate() {
        if offers[..index].iter().any(|other| other.definition.key == one.definition.key) {
            let message = format!("function '{}' is offered twice", one.definition.key);
            return Err(ApiError::new(Code::InvalidField, message).field(format!("functions[{index}].name")));
        }
    }
    Ok(offers)
}

fn offer(index: usize, body: OfferBody) -> Result<Offer, ApiError> {
    let at = format!("functions[{index}].");
    let name = FunctionName::new(&body.name).map_err(|refused| invalid_name(format!("{at}name"), &refused))?;
    let scope = body.scope.as_deref().map_or_else(|| Ok(Scope::global()), Scope::new);
    let scope = scope.map_err(|refused| invalid_name(format!("{at}scope"), &refused))?;
    let key = FunctionKey { scope, name };
    let definition = FunctionDefinition {
        description: description(&at, body.description)?,
        parameters: parameters(&at, body.parameters)?,
        retry: retry(&at, body.retry)?,
        limits: limits(&at, &key, body.limits)?,
        target: None,
        key,
    };
    let concurrency = bounds::check(&format!("{at}concurrency"), body.concurrency)?.unwrap_or(1);
    Ok(Offer { definition, concurrency: Some(concurrency) })
}

fn check_items(field: &'static str, items: usize) -> Result<(), ApiError> {
    if items <= ITEMS_MAX {
        return Ok(());
    }
    let message = format!("'{field}' has {items} entries: at most {ITEMS_MAX} are taken at once");
    Err(ApiError::new(Code::BatchTooLarge, message).field(field).details(serde_json::json!({ "limit": ITEMS_MAX })))
}

pub(crate) fn delivery_id(field: String, text: String) -> Result<DeliveryId, ApiError> {
    DeliveryId::try_from(text).map_err(|refused| invalid_delivery_id(field, &refused))
}

/// The deliveries that a heartbeat speaks of.
pub(crate) fn delivery_ids(texts: Vec<String>) -> Result<Vec<DeliveryId>, ApiError> {
    check_items("delivery_ids", texts.len())?;
    texts.into_iter().enumerate().map(|(index, text)| delivery_id(format!("delivery_ids[{index}]"), text)).collect()
}

/// What a worker says about its deliveries.
pub(crate) fn answers(bodies: Vec<ResultBody>) -> Result<Vec<(DeliveryId, Answer)>, ApiError> {
    check_items("results", bodies.len())?;
    bodies.into_iter().enumerate().map(|(index, body)| answer(index, body)).collect()
}

fn answer(index: usize, body: ResultBody) -> Result<(DeliveryId, Answer), ApiError> {
    let at = format!("results[{index}]");
    let id = delivery_id(format!("{at}.delivery_id"), body.delivery_id)?;
    let answer = match (body.success, body.data, body.error) {
        (true, data, None) => Answer::Ok(data.map_or_else(Payload::null, payload)),
        (false, None, Some(error)) => failed(&at, error)?,
        (true, _, Some(_)) => return Err(contradiction(&at, "error", "success is true, so there is no error")),
        (false, _, None) => {
            return Err(ApiError::new(Code::MissingField, "success is false: say why in 'error'").field(format!("{at}.error")));
        }
        (false, Some(_), Some(_)) => return Err(contradiction(&at, "data", "success is false, so there is no data")),
    };
    Ok((id, answer))
}

fn contradiction(at: &str, field: &str, message: &str) -> ApiError {
    ApiError::new(Code::InvalidField, message).field(format!("{at}.{field}"))
}

fn failed(at: &str, error: ResultError) -> Result<Answer, ApiError> {
    let code = error.code.unwrap_or_else(|| CODE_DEFAULT.to_owned());
    let retry_after = bounds::length(&format!("{at}.error.retry_after_ms"), error.retry_after_ms)?;
    if code == CODE_CANCELLED {
        return Ok(Answer::Cancelled);
    }
    let retry = match (error.retryable, retry_after) {
        (Some(false), _) => Retry::Never,
        (_, Some(wait)) => Retry::NotBefore(wait),
        (_, None) => Retry::ByPolicy,
    };
    Ok(Answer::Failed { failure: Failure { code, message: error.message, details: error.details.map(payload) }, retry })
}

/// A delivery as its worker gets it.
pub(crate) fn claimed_call(delivery: &Delivery) -> ClaimedCall {
    let request = &delivery.request;
    ClaimedCall {
        delivery_id: delivery.id.to_string(),
        call_id: delivery.id.call_id.to_string(),
        function_name: request.function.name.to_string(),
        scope: request.function.scope.to_string(),
        params: json(&request.params),
        input_item: request.input_item.as_ref().map(json),
        attempt: delivery.attempt,
        submitted_at: delivery.submitted_at.as_millis(),
        deadline: delivery.deadline.as_millis(),
        remaining_ms: millis(delivery.remaining),
        lease_until: delivery.lease_until.as_millis(),
        depth: request.depth,
        idempotency_key: request.idempotency_key.as_ref().map(ToString::to_string),
        traceparent: request.traceparent.clone(),
    }
}

impl From<WorkerView> for WorkerBody {
    fn from(view: WorkerView) -> Self {
        let function = |key: FunctionKey| FunctionRef { name: key.name.to_string(), scope: key.scope.to_string() };
        Self {
            worker_id: view.worker_id.to_string(),
            kind: view.kind,
            functions: view.functions.into_iter().map(function).collect(),
            registered_at: view.registered_at.as_millis(),
            last_heartbeat: view.last_heartbeat.as_millis(),
            healthy: view.healthy,
            running: view.running,
        }
    }
}

/// How long a worker may be silent about what it holds, unless it says otherwise.
pub(crate) const LEASE_DEFAULT: Duration = Duration::from_secs(30);
