//! Calls: make one and wait, make one and go, look, list, cancel.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use towpath::{Answered, CallError, FunctionKey, NewCall, Phase, SubmittedCall, TimeoutRetries, Wait};
use towpath_core::call::CallState;
use towpath_core::names::CallId;
use towpath_core::store::{Cancelled, Durability};
use towpath_core::time::Timestamp;

use super::app::App;
use super::codes::Code;
use super::error::{ApiError, call_not_found};
use super::extract::{OptionalJsonBody, PathText, Query};
use super::nested::Nested;
use super::wire::calls::{CallAccepted, CallAnswer, CallBody, CallDetail, CallList, CallQuery, CancelAnswer, WaitQuery};
use super::{bounds, convert, waits};

/// Call a function and wait for its answer
///
/// The answer is 200 with the result, an error that says how the call ended, or 202 with the call's id when `wait_ms` is over first.
#[utoipa::path(
    post, path = "/v1/functions/{name}/call", tag = "calls",
    params(("name" = String, Path, description = "The function's name, percent-encoded"),
        ("idempotency-key" = Option<String>, Header, description = "The same as the field `idempotency_key`"),
        ("traceparent" = Option<String>, Header, description = "W3C trace context, carried to the handler")),
    request_body = CallBody,
    responses((status = 200, description = "The call ended well", body = CallAnswer),
        (status = 202, description = "The call goes on: ask with GET /v1/calls/{call_id}", body = CallAccepted)),
)]
pub(crate) async fn call(
    State(app): State<App>,
    PathText(name): PathText,
    headers: HeaderMap,
    OptionalJsonBody(mut body): OptionalJsonBody<CallBody>,
) -> Result<Response, ApiError> {
    let wait = bounds::length("wait_ms", body.wait_ms)?;
    let parent = body.parent_delivery_id.take();
    let call = convert::new_call(&name, body, &headers, false)?;
    let mut first = call.clone();
    let nested = Nested::below(&app, parent.clone(), &mut first).await?;
    let Some(_waiting) = app.drain().wait() else {
        return Err(ApiError::new(Code::Draining, "the server is stopping and waits for no more calls"));
    };
    let until = wait.map(|wait| app.clock().now() + wait);
    let mut retries = TimeoutRetries::of(&call);
    let mut submitted = take(&app, first).await?;
    let _parked = nested.park().await; // until the answer is there, or the caller is gone
    loop {
        let taken = Taken::of(&submitted);
        let error = tokio::select! {
            biased;
            answered = submitted.answer() => match answered {
                Ok(answered) => return Ok(Json(to_answer(&answered)).into_response()),
                Err(error) => error,
            },
            () = patience(&app, until) => return Ok(taken.accepted(&app).await?.into_response()),
            () = app.drain().given_up() => return Err(given_up(&taken.call_id)),
        };
        if let Err(error) = retries.after(error) {
            return Err(taken.ended_badly(&app, &call.function, error).await);
        }
        // A caller whose time is over in the pause gets the call that timed out.
        tokio::select! {
            () = app.clock().sleep_until(app.clock().now() + TimeoutRetries::PAUSE) => {}
            () = patience(&app, until) => return Ok(taken.accepted(&app).await?.into_response()),
            () = app.drain().given_up() => return Err(given_up(&taken.call_id)),
        }
        let mut next = call.clone();
        if let Err(lost) = Nested::below(&app, parent.clone(), &mut next).await {
            return Err(retries.take_unknown().map_or(lost, ApiError::from));
        }
        submitted = app.towpath().submit(next).await.map_err(|error| retries.last(error))?;
    }
}

/// Submits a call. A conflict is put down to what the caller gave: its key, or else its id.
async fn take(app: &App, call: NewCall) -> Result<SubmittedCall, ApiError> {
    let by = if call.idempotency_key.is_some() { "idempotency_key" } else { "call_id" };
    app.towpath().submit(call).await.map_err(|error| match error {
        CallError::Conflict { .. } => ApiError::from(error).field(by),
        _ => ApiError::from(error),
    })
}

/// Ends when the caller has waited long enough; never, for a caller who waits as long as the call lives.
async fn patience(app: &App, until: Option<Timestamp>) {
    match until {
        Some(until) => app.clock().sleep_until(until).await,
        None => std::future::pending().await,
    }
}

fn to_answer(answered: &Answered) -> CallAnswer {
    CallAnswer {
        call_id: answered.call_id.to_string(),
        success: true,
        data: convert::json(&answered.data),
        durability: answered.durability.as_str().to_owned(),
    }
}

/// What the acknowledgement of a call says.
struct Taken {
    call_id: CallId,
    state: CallState,
    existing: bool,
    durability: Durability,
}

impl Taken {
    fn of(submitted: &SubmittedCall) -> Self {
        let SubmittedCall { call_id, state, existing, durability, .. } = submitted;
        Self { call_id: call_id.clone(), state: *state, existing: *existing, durability: *durability }
    }

    /// The end of a call without an answer, as an error for the caller that waited for it.
    async fn ended_badly(&self, app: &App, function: &FunctionKey, error: CallError) -> ApiError {
        match error {
            CallError::Store { error, .. } => ApiError::from(error).after_submit(&self.call_id),
            CallError::TimedOut { phase: Phase::Queued, .. } => {
                // Why it waited is a help; without it the error says enough.
                let why = waits::of_function(app, function).await.ok().flatten();
                why.into_iter().fold(ApiError::from(error), |error, why| error.hint(why))
            }
            ended => ApiError::from(ended),
        }
    }

    /// The call goes on, and the caller does not.
    async fn accepted(self, app: &App) -> Result<(StatusCode, Json<CallAccepted>), ApiError> {
        let view = app.store().call(&self.call_id).await.map_err(|error| ApiError::from(error).after_submit(&self.call_id))?;
        let state = view.map_or(self.state, |view| view.call.state);
        Ok(Self { state, ..self }.to_body())
    }

    fn to_body(&self) -> (StatusCode, Json<CallAccepted>) {
        let body = CallAccepted {
            call_id: self.call_id.to_string(),
            state: self.state.to_string(),
            existing: self.existing,
            durability: self.durability.as_str().to_owned(),
        };
        (StatusCode::ACCEPTED, Json(body))
    }
}

/// Submit a call and do not wait
///
/// The outcome is kept for the retention time: ask with GET /v1/calls/{call_id}.
#[utoipa::path(
    post, path = "/v1/functions/{name}/calls", tag = "calls",
    params(("name" = String, Path, description = "The function's name, percent-encoded"),
        ("idempotency-key" = Option<String>, Header, description = "The same as the field `idempotency_key`"),
        ("traceparent" = Option<String>, Header, description = "W3C trace context, carried to the handler")),
    request_body = CallBody,
    responses((status = 202, description = "The call is kept and will be run", body = CallAccepted)),
)]
pub(crate) async fn submit(
    State(app): State<App>,
    PathText(name): PathText,
    headers: HeaderMap,
    OptionalJsonBody(mut body): OptionalJsonBody<CallBody>,
) -> Result<Response, ApiError> {
    if body.wait_ms.is_some() {
        let message = "a detached call is not waited for: use the path that ends with /call, or leave wait_ms out";
        return Err(ApiError::new(Code::InvalidField, message).field("wait_ms"));
    }
    let parent = body.parent_delivery_id.take();
    let mut call = convert::new_call(&name, body, &headers, true)?;
    Nested::below(&app, parent, &mut call).await?;
    let submitted = take(&app, call).await?;
    Ok(Taken::of(&submitted).to_body().into_response())
}

fn given_up(call_id: &CallId) -> ApiError {
    ApiError::new(Code::Draining, format!("the server is stopping; call '{call_id}' is kept and goes on afterwards"))
        .hint("ask for it with GET /v1/calls/{call_id} when the server is back")
        .after_submit(call_id)
}

/// Look at a call, or wait for it
#[utoipa::path(
    get, path = "/v1/calls/{call_id}", tag = "calls",
    params(("call_id" = String, Path, description = "Which call"), WaitQuery),
    responses((status = 200, description = "Everything that is known of it", body = CallDetail)),
)]
pub(crate) async fn show(
    State(app): State<App>,
    PathText(id): PathText,
    Query(query): Query<WaitQuery>,
) -> Result<Json<CallDetail>, ApiError> {
    let wait = bounds::length("wait_ms", query.wait_ms)?.unwrap_or_default();
    let call_id = convert::call_id(&id)?;
    let until = app.clock().now() + wait;
    let view = if wait.is_zero() || app.drain().has_begun() {
        app.store().call(&call_id).await?
    } else {
        tokio::select! {
            view = app.towpath().wait(&call_id, Wait { until, after_progress: query.after_progress }) => view?,
            () = app.drain().begun() => app.store().call(&call_id).await?,
        }
    };
    let view = view.ok_or_else(|| call_not_found(&call_id))?;
    let mut detail = CallDetail::from(&view);
    if matches!(view.call.state, CallState::Queued | CallState::Expired) {
        detail.waits_because = waits::of_function(&app, &view.request.function).await?;
    }
    Ok(Json(detail))
}

/// List calls, newest first
#[utoipa::path(
    get, path = "/v1/calls", tag = "calls", params(CallQuery),
    responses((status = 200, description = "A page of calls", body = CallList)),
)]
pub(crate) async fn list(State(app): State<App>, Query(query): Query<CallQuery>) -> Result<Json<CallList>, ApiError> {
    let (filter, page) = convert::filter(&query)?;
    Ok(Json(convert::call_list(&app.store().calls(&filter, page).await?, filter.brief)))
}

/// Cancel a call
///
/// A waiting call will not run. The worker of a running one is asked to stop.
#[utoipa::path(
    delete, path = "/v1/calls/{call_id}", tag = "calls",
    params(("call_id" = String, Path, description = "Which call")),
    responses((status = 200, description = "What became of it", body = CancelAnswer)),
)]
pub(crate) async fn cancel(State(app): State<App>, PathText(id): PathText) -> Result<Json<CancelAnswer>, ApiError> {
    let call_id = convert::call_id(&id)?;
    let result = match app.store().cancel(&call_id).await? {
        Cancelled::Done => "cancelled",
        Cancelled::Requested => "requested",
        Cancelled::AlreadyEnded(_) => "already_ended",
        Cancelled::NotFound => return Err(call_not_found(&call_id)),
    };
    Ok(Json(CancelAnswer { call_id: call_id.to_string(), result: result.to_owned() }))
}
