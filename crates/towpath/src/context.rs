//! What a handler is given: who calls, how long it may take, whether it should stop, and a way to call on.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use towpath_core::names::{CallId, FunctionName, Scope};
use towpath_core::payload::Payload;
use towpath_core::store::{Delivery, Renewal};
use towpath_core::time::Timestamp;

use crate::call::{CallBuilder, NewCall};
use crate::engine::aside::Aside;
use crate::engine::desk::{Desk, StopSignal};
use crate::error::{CallError, HandlerError};

/// One delivery of a call, as its handler sees it. Clones are the same delivery.
#[derive(Clone)]
pub struct CallContext {
    inner: Arc<Inner>,
}

struct Inner {
    desk: Arc<Desk>,
    delivery: Box<Delivery>,
    /// The deadline by this process's clock: the store's may be another machine's.
    ends_at: Timestamp,
    stop: StopSignal,
    aside: Arc<Aside>,
}

impl CallContext {
    pub(crate) fn new(desk: Arc<Desk>, delivery: Box<Delivery>, ends_at: Timestamp, stop: StopSignal, aside: Arc<Aside>) -> Self {
        Self { inner: Arc::new(Inner { desk, delivery, ends_at, stop, aside }) }
    }

    /// Which call. The same for every delivery of it.
    pub fn call_id(&self) -> &CallId {
        &self.inner.delivery.id.call_id
    }

    /// Which attempt this is: 1 until a handler has failed.
    pub fn attempt(&self) -> u32 {
        self.inner.delivery.attempt
    }

    /// When the call ends at the latest, by the store's clock. This handler is dropped then.
    pub fn deadline(&self) -> Timestamp {
        self.inner.delivery.deadline
    }

    /// How long that is from now.
    pub fn remaining(&self) -> Duration {
        self.inner.ends_at.since(self.inner.desk.clock().now())
    }

    /// Ends when this handler should stop: the call was cancelled, or it is no longer this worker's.
    /// Clean up and return [`HandlerError::cancelled`]; a handler that goes on is dropped after a few seconds.
    pub async fn cancelled(&self) {
        self.inner.stop.token().cancelled().await;
    }

    /// Whether this handler should stop.
    pub fn is_cancelled(&self) -> bool {
        self.inner.stop.token().is_cancelled()
    }

    /// The same as a token, for libraries that take one.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.inner.stop.token().clone()
    }

    /// What makes the effects of this handler the same effects when it runs again: the caller's idempotency key, or the call's id.
    pub fn idempotency_key(&self) -> &str {
        self.inner.delivery.request.idempotency_key.as_ref().map_or(self.call_id().as_str(), |key| key.as_str())
    }

    /// The function's name.
    pub fn function_name(&self) -> &FunctionName {
        &self.inner.delivery.request.function.name
    }

    /// Where the function is known.
    pub fn scope(&self) -> &Scope {
        &self.inner.delivery.request.function.scope
    }

    /// How many calls are above this one.
    pub fn depth(&self) -> u32 {
        self.inner.delivery.request.depth
    }

    /// W3C trace context, as the caller gave it.
    pub fn traceparent(&self) -> Option<&str> {
        self.inner.delivery.request.traceparent.as_deref()
    }

    /// The params as JSON text, with the defaults of absent parameters filled in.
    pub fn params_raw(&self) -> &Payload {
        &self.inner.delivery.request.params
    }

    /// The delivery itself, for those who carry it elsewhere. Its params are those of [`params_raw`](Self::params_raw).
    pub fn delivery(&self) -> &Delivery {
        &self.inner.delivery
    }

    /// The item that the caller was working on; `None` when it gave none. An item of another type is a final error.
    pub fn input_item<T: DeserializeOwned>(&self) -> Result<Option<T>, HandlerError> {
        let Some(item) = &self.inner.delivery.request.input_item else { return Ok(None) };
        serde_json::from_slice(item.as_bytes()).map(Some).map_err(|error| {
            HandlerError::fatal("invalid_input_item", format!("the input item is not what '{}' takes: {error}", self.function_name()))
        })
    }

    /// Calls another function, or this one again. The nested call ends at the latest when this one does. While this handler waits for
    /// it, it does not count as running, so that functions may call themselves however few run at once.
    ///
    /// Of several nested calls that a handler waits for at the same time, the last one to end makes it count as running again.
    pub fn call<T, P>(&self, name: &str, params: &P) -> CallBuilder<T>
    where
        P: Serialize + ?Sized,
    {
        self.inner.desk.towpath().call(name, params).nested(Nesting { ctx: self.clone() })
    }

    /// Reports how far the handler has come, for those who wait for the call. An error means that nobody heard it; `?` gives up then.
    pub async fn progress<P: Serialize + ?Sized>(&self, progress: &P) -> Result<(), HandlerError> {
        let text = serde_json::to_vec(progress)
            .map_err(|error| HandlerError::fatal("invalid_progress", format!("the progress cannot be written as JSON: {error}")))?;
        let (desk, delivery) = (&self.inner.desk, &self.inner.delivery.id);
        match desk.store().report_progress(desk.worker_id(), delivery, Payload::from_json(text)).await? {
            Renewal::Held { cancel_requested, .. } => {
                if cancel_requested {
                    self.inner.stop.cancel();
                }
                Ok(())
            }
            Renewal::Lost(_) => {
                self.inner.stop.lose();
                Err(HandlerError::cancelled())
            }
        }
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delivery = &self.inner.delivery;
        f.debug_struct("CallContext").field("delivery", &delivery.id).field("function", &delivery.request.function).finish_non_exhaustive()
    }
}

/// What makes a call a nested one.
pub(crate) struct Nesting {
    ctx: CallContext,
}

impl Nesting {
    /// Writes down where the call comes from.
    pub(crate) fn mark(&self, call: &mut NewCall) {
        call.depth = self.ctx.depth().saturating_add(1);
        call.parent = Some(self.ctx.call_id().clone());
        if call.traceparent.is_none() {
            call.traceparent = self.ctx.traceparent().map(str::to_owned);
        }
    }

    /// Nobody would hear the outcome of a nested call that outlives the handler which waits for it.
    pub(crate) fn cap(&self, call: &mut NewCall) {
        let own = call.timeout.unwrap_or(crate::call::TIMEOUT_WAITED);
        let left = self.ctx.remaining().max(Duration::from_millis(1));
        call.timeout = Some(own.min(left));
    }

    /// Waits without counting as running.
    pub(crate) async fn while_waiting<T>(&self, wait: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        self.ctx.inner.aside.step_aside_for(wait).await
    }
}
