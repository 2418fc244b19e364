//! Submitting: bounds, the function, its parameters, then one move of the store, repeated under the same id if its reply was lost.

use std::sync::Arc;
use std::time::Duration;

use towpath_core::call::{CallRequest, CallState};
use towpath_core::names::{CallId, FunctionKey};
use towpath_core::store::{StoreError, SubmitCall, Submitted};
use towpath_core::time::Timestamp;

use super::closest::closest_names;
use super::{DEPTH_MAX, NewCall, SubmittedCall, TimeoutRetries};
use crate::Towpath;
use crate::engine::backoff::Backoff;
use crate::error::CallError;
use crate::functions::KnownFunction;

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// A waited-for call ends after this, unless it says otherwise.
pub(crate) const TIMEOUT_WAITED: Duration = Duration::from_secs(30);
const RETAIN_WAITED: Duration = Duration::from_secs(600);
/// How often a move whose reply was lost is sent before the caller hears of it.
const TRIES: u32 = 5;

impl Towpath {
    /// Submits a call: finds its function or waits for it, checks the params, and returns when the store has taken it.
    ///
    /// If the store's reply is lost, the same id is sent again, so that it is still one call.
    pub async fn submit(&self, call: NewCall) -> Result<SubmittedCall, CallError> {
        let (timeout, retain) = check_bounds(&call)?;
        let now = self.clock().now();
        let find_until = now + call.wait_for_function;
        let function = match self.functions().get(&call.function, now) {
            Some(known) => known,
            None => Box::pin(self.find_function(&call.function, find_until)).await?,
        };
        check_against(&function, &call)?;
        let detached = call.detached;
        let submit = to_submit(self, call, timeout, retain);
        // Listening starts before the submit, so that the end cannot be missed.
        let watch = (!detached).then(|| self.store().watch(&submit.call_id));
        let call_id = submit.call_id.clone();
        let taken = self.send(&submit, find_until).await?;
        let mut submitted = SubmittedCall {
            call_id,
            state: CallState::Queued,
            deadline: taken.deadline,
            existing: false,
            durability: taken.durability,
            towpath: self.clone(),
            watch,
        };
        if let Some((call_id, state)) = taken.existing {
            if call_id != submitted.call_id {
                submitted.watch = None; // it listens to an id that never came to be
            }
            (submitted.call_id, submitted.state, submitted.existing) = (call_id, state, true);
        }
        Ok(submitted)
    }

    /// Sends a call until there is a reply. Most are taken at once, and carry nothing for what can go wrong.
    async fn send(&self, submit: &SubmitCall, find_until: Timestamp) -> Result<Taken, CallError> {
        match self.store().submit(submit.clone()).await {
            Ok(Submitted::Accepted { deadline, durability }) => Ok(Taken { deadline, durability, existing: None }),
            other => Box::pin(self.send_on(submit, find_until, other)).await,
        }
    }

    async fn send_on(&self, submit: &SubmitCall, find_until: Timestamp, first: Result<Submitted, StoreError>) -> Result<Taken, CallError> {
        let function = submit.request.function.clone();
        let repeated = SubmitCall { fresh: false, ..submit.clone() };
        let mut first = Some(first);
        let mut refused = Backoff::new(self.clock(), "call a function");
        let mut was_refused = false;
        loop {
            let reply = self.retry_lost_replies_from(first.take(), || self.store().submit(repeated.clone())).await;
            let reply = reply.map_err(|error| {
                // A store that took nothing has said nothing about the function. Of any other error, anything may be the reason.
                if !matches!(error, StoreError::Unavailable(_)) {
                    self.functions().forget(&function);
                }
                CallError::Store { call_id: Some(submit.call_id.clone()), error }
            })?;
            return match reply {
                Submitted::Accepted { deadline, durability } => Ok(Taken { deadline, durability, existing: None }),
                Submitted::Existing { call_id, state, deadline, durability } => {
                    Ok(Taken { deadline, durability, existing: Some((call_id, state)) })
                }
                Submitted::Conflict { call_id } => Err(CallError::Conflict { call_id }),
                Submitted::NoWorkers => Err(CallError::NoWorkers { function }),
                Submitted::Overloaded { backlog, limit } => Err(CallError::Overloaded { function, backlog, limit }),
                Submitted::UnknownFunction => {
                    // It was forgotten since it was read: wait for it like for one that was never known.
                    self.functions().forget(&function);
                    if self.clock().now() >= find_until {
                        return Err(self.not_found(function).await);
                    }
                    if was_refused {
                        // The store knows the function and takes no call of it: asking without a pause would not help.
                        let again_at = self.clock().now() + refused.next_pause();
                        self.clock().sleep_until(again_at.min(find_until)).await;
                    }
                    was_refused = true;
                    self.find_function(&function, find_until).await?;
                    continue;
                }
            };
        }
    }

    /// A function as it is known at this moment; `None` when it is not.
    pub(crate) async fn known_function(&self, key: &FunctionKey) -> Result<Option<Arc<KnownFunction>>, StoreError> {
        let now = self.clock().now();
        if let Some(known) = self.functions().get(key, now) {
            return Ok(Some(known));
        }
        let generation = self.functions().generation();
        let found = self.store().find(key, now).await?;
        Ok(found.map(|view| self.functions().put(view.definition, generation, now)))
    }

    /// The function, as soon as it is known.
    async fn find_function(&self, key: &FunctionKey, until: Timestamp) -> Result<Arc<KnownFunction>, CallError> {
        if let Some(known) = self.functions().get(key, self.clock().now()) {
            return Ok(known);
        }
        let gate = self.functions().gate(key);
        // Whoever cannot wait for the one that reads asks for itself.
        let _turn = tokio::select! {
            biased;
            turn = gate.lock() => Some(turn),
            () = self.clock().sleep_until(until) => None,
        };
        if let Some(known) = self.functions().get(key, self.clock().now()) {
            return Ok(known);
        }
        let generation = self.functions().generation();
        let found = self.retry_lost_replies(|| self.store().find(key, until)).await;
        match found {
            Ok(Some(view)) => Ok(self.functions().put(view.definition, generation, self.clock().now())),
            Ok(None) => {
                self.functions().forget(key);
                Err(self.not_found(key.clone()).await)
            }
            Err(error) => Err(CallError::Store { call_id: None, error }),
        }
    }

    async fn not_found(&self, function: FunctionKey) -> CallError {
        // A store that cannot list its functions right now only costs the suggestion.
        let known: Vec<FunctionKey> =
            self.store().functions().await.unwrap_or_default().into_iter().map(|view| view.definition.key).collect();
        let closest = closest_names(&function, &known);
        CallError::FunctionNotFound { function, closest }
    }

    /// Repeats a move that is safe to repeat while its reply is lost.
    pub(crate) async fn retry_lost_replies<T, F>(&self, attempt: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.retry_lost_replies_from(None, attempt).await
    }

    /// The same after a first attempt, if there was one.
    async fn retry_lost_replies_from<T, F>(
        &self,
        mut first: Option<Result<T, StoreError>>,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut backoff = Backoff::new(self.clock(), "learn what became of a move");
        let mut tries_left = TRIES;
        let mut may_have_happened = None;
        loop {
            let reply = match first.take() {
                Some(reply) => reply,
                None => attempt().await,
            };
            match (reply, may_have_happened.take()) {
                (Err(StoreError::Unknown(cause)), _) => {
                    tries_left -= 1;
                    if tries_left == 0 {
                        return Err(StoreError::Unknown(cause));
                    }
                    may_have_happened = Some(cause.clone());
                    backoff.failed(StoreError::Unknown(cause)).await?;
                }
                // This try took nothing, but an earlier one may have.
                (Err(StoreError::Unavailable(trouble)), Some(earlier)) => {
                    return Err(StoreError::Unknown(format!("{earlier}; then {trouble}")));
                }
                (reply, _) => return reply,
            }
        }
    }
}

/// A submit that the store took.
struct Taken {
    deadline: Timestamp,
    durability: towpath_core::store::Durability,
    existing: Option<(CallId, CallState)>,
}

fn to_submit(towpath: &Towpath, call: NewCall, timeout: Duration, retain: Duration) -> SubmitCall {
    let (fresh, continues) = (call.call_id.is_none(), call.continues || call.parent.is_some());
    SubmitCall {
        call_id: call.call_id.unwrap_or_else(|| CallId::for_function(&towpath.ids().call_id(), &call.function)),
        request: CallRequest {
            function: call.function,
            params: call.params,
            input_item: call.input_item,
            idempotency_key: call.idempotency_key,
            depth: call.depth,
            parent: call.parent,
            traceparent: call.traceparent,
        },
        timeout,
        retain,
        fail_without_workers: call.fail_without_workers,
        fresh,
        before: call.before,
        continues,
    }
}

/// The call's timeout and retention, by itself or by default.
fn check_bounds(call: &NewCall) -> Result<(Duration, Duration), CallError> {
    if call.depth > DEPTH_MAX {
        return Err(CallError::TooDeep { depth: call.depth, limit: DEPTH_MAX });
    }
    check_retries(call)?;
    let timeout = call.timeout.unwrap_or(if call.detached { DAY } else { TIMEOUT_WAITED });
    let kept_long = call.detached || call.idempotency_key.is_some();
    let retain = call.retain.unwrap_or(if kept_long { DAY } else { RETAIN_WAITED });
    for (field, length) in [("timeout", timeout), ("retain", retain)] {
        if !(SHORTEST..=LONGEST).contains(&length) {
            let message = format!("must be between 1 ms and 30 days, not {length:?}");
            return Err(CallError::OutOfRange { field, message });
        }
    }
    Ok((timeout, retain))
}

/// Each retry is a new call, so nothing may make it the same one.
fn check_retries(call: &NewCall) -> Result<(), CallError> {
    let message = match call.retries_on_timeout {
        0 => return Ok(()),
        1..=TimeoutRetries::MAX if call.detached => "needs a caller that waits: leave it out of a detached call",
        1..=TimeoutRetries::MAX if call.call_id.is_some() || call.idempotency_key.is_some() => {
            "makes new calls, but the same id or idempotency key is the same call: leave out one of them"
        }
        1..=TimeoutRetries::MAX => return Ok(()),
        _too_many => "must be between 0 and 10",
    };
    Err(CallError::OutOfRange { field: "retries_on_timeout", message: message.to_owned() })
}

/// Whether the function takes such a call.
fn check_against(function: &KnownFunction, call: &NewCall) -> Result<(), CallError> {
    let bytes = call.params.len() as u64 + call.input_item.as_ref().map_or(0, |item| item.len() as u64);
    let limit = function.definition.limits.max_payload_bytes;
    if bytes > limit {
        return Err(CallError::PayloadTooLarge { bytes, limit });
    }
    let problems = function.parameters.check(&call.params);
    if problems.is_empty() { Ok(()) } else { Err(CallError::InvalidParams { function: call.function.clone(), problems }) }
}
