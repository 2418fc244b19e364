//! Waiting for events.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use towpath_core::time::millis;

use super::body::Out;
use super::execution::{Execution, Request};
use super::step::{StepFuture, StepResult, decode, value};
use crate::error::HandlerError;

/// A wait for an event. Await it for the event's data.
#[must_use = "a run waits for an event when this is awaited"]
pub struct EventWait<T> {
    execution: Arc<Execution>,
    request: Result<Request, HandlerError>,
    data: PhantomData<fn() -> T>,
}

impl<T> EventWait<T> {
    pub(crate) fn new(execution: &Arc<Execution>, request: Result<Request, HandlerError>) -> Self {
        Self { execution: Arc::clone(execution), request, data: PhantomData }
    }

    /// Waits for this length at most, by the store's clock, and gives `None` then. No event is lost by that: one that comes later is kept.
    pub fn timeout(self, timeout: Duration) -> EventTimeout<T> {
        let request = self.request.map(|mut request| {
            request.open.ms = Some(u64::try_from(millis(timeout)).unwrap_or(0));
            request
        });
        EventTimeout { wait: Self { request, ..self } }
    }
}

impl<T: DeserializeOwned + Send + 'static> IntoFuture for EventWait<T> {
    type Output = Result<T, HandlerError>;
    type IntoFuture = StepResult<T>;

    fn into_future(self) -> StepResult<T> {
        Box::pin(async move {
            let request = self.request?;
            let what = format!("the data of {}", request.open.title());
            let data = value(StepFuture::new(&self.execution, request)).await?;
            Ok(decode(&self.execution, &what, &data).await)
        })
    }
}

impl<T> fmt::Debug for EventWait<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.request.as_ref().map(|request| Arc::clone(&request.parts.name));
        f.debug_struct("EventWait").field("event", &name.ok()).finish_non_exhaustive()
    }
}

/// A wait for an event that ends after some time. Await it for the event's data, or `None`.
#[must_use = "a run waits for an event when this is awaited"]
#[derive(Debug)]
pub struct EventTimeout<T> {
    wait: EventWait<T>,
}

impl<T: DeserializeOwned + Send + 'static> IntoFuture for EventTimeout<T> {
    type Output = Result<Option<T>, HandlerError>;
    type IntoFuture = StepResult<Option<T>>;

    fn into_future(self) -> StepResult<Option<T>> {
        let wait = self.wait;
        Box::pin(async move {
            let request = wait.request?;
            let what = format!("the data of {}", request.open.title());
            let done = StepFuture::new(&wait.execution, request).await.ok_or_else(HandlerError::cancelled)?;
            match done.out {
                Out::Ok => Ok(Some(decode(&wait.execution, &what, &done.value()).await)),
                _timeout => Ok(None),
            }
        })
    }
}
