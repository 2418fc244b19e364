//! Typed calls: parameters in, a result or an error out.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use towpath_core::names::{CallId, FunctionKey, FunctionName, IdempotencyKey, InvalidName, Scope};
use towpath_core::payload::Payload;
use towpath_core::store::Cancelled;

use super::{Answered, NewCall, SubmittedCall};
use crate::Towpath;
use crate::context::Nesting;
use crate::error::CallError;

/// A call to be. Await it for the result, or [`detach`](CallBuilder::detach) it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use towpath::{CallContext, HandlerError, Towpath};
///
/// let towpath = Towpath::open("memory:").await?;
/// let worker =
///     towpath.worker().function("upper", |text: String, _: CallContext| async move { Ok::<_, HandlerError>(text.to_uppercase()) }).start().await?;
///
/// let answer: String = towpath.call("upper", "hi").timeout(Duration::from_secs(5)).idempotency_key("greeting-7").await?;
/// assert_eq!(answer, "HI");
///
/// // The same key again: the same call, which ran once.
/// let handle = towpath.call::<String, _>("upper", "hi").idempotency_key("greeting-7").detach().await?;
/// assert!(handle.existing());
/// assert_eq!(handle.result().await?, "HI");
/// # worker.drain().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "a call is made when it is awaited or detached"]
pub struct CallBuilder<T> {
    towpath: Towpath,
    /// The first thing that was wrong stands here until somebody awaits the call.
    call: Result<NewCall, CallError>,
    /// Set for a call that a handler makes.
    nesting: Option<Nesting>,
    result: PhantomData<fn() -> T>,
}

impl Towpath {
    /// A call of a function by name.
    pub fn call<T, P>(&self, name: &str, params: &P) -> CallBuilder<T>
    where
        P: Serialize + ?Sized,
    {
        let call = new_call(name, params);
        CallBuilder { towpath: self.clone(), call, nesting: None, result: PhantomData }
    }
}

fn new_call<P: Serialize + ?Sized>(name: &str, params: &P) -> Result<NewCall, CallError> {
    let function = FunctionKey::global(FunctionName::new(name)?);
    Ok(NewCall::new(function, to_json(params, "params")?))
}

fn to_json<P: Serialize + ?Sized>(value: &P, what: &str) -> Result<Payload, CallError> {
    let text = serde_json::to_vec(value)
        .map_err(|error| CallError::Decode { call_id: None, message: format!("the {what} cannot be written as JSON: {error}") })?;
    Ok(Payload::from_json(text))
}

impl<T> CallBuilder<T> {
    pub(crate) fn nested(mut self, nesting: Nesting) -> Self {
        self.nesting = Some(nesting);
        self
    }

    /// Where the function is known. Default: everywhere.
    pub fn scope(self, scope: &str) -> Self {
        self.with_name(Scope::new(scope), |call, scope| call.function.scope = scope)
    }

    /// It ends at the latest after this. Default: 30 s, detached 24 h.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|call| call.timeout = Some(timeout))
    }

    /// Makes calls of the function with the same key the same call, also across callers.
    pub fn idempotency_key(self, key: &str) -> Self {
        self.with_name(IdempotencyKey::new(key), |call, key| call.idempotency_key = Some(key))
    }

    /// An id of your own: sending it again is the same call.
    pub fn call_id(self, call_id: &str) -> Self {
        self.with_name(CallId::new(call_id), |call, call_id| call.call_id = Some(call_id))
    }

    /// Calls again, as a new call two seconds later, when the call times out. Default: never; at most 10 times.
    ///
    /// A call that timed out while it ran may have done its work, and then it is done again: for functions that may run twice.
    pub fn retries_on_timeout(self, times: u32) -> Self {
        self.with(|call| call.retries_on_timeout = times)
    }

    /// How long to wait for a function that is not known yet. Default: 5 s.
    pub fn wait_for_function(self, length: Duration) -> Self {
        self.with(|call| call.wait_for_function = length)
    }

    /// Refuse at once when no healthy worker serves the function, instead of waiting for one.
    pub fn fail_without_workers(self) -> Self {
        self.with(|call| call.fail_without_workers = true)
    }

    /// The item that you are working on, carried along for the handler.
    pub fn input_item<I: Serialize + ?Sized>(mut self, item: &I) -> Self {
        self.call = self.call.and_then(|mut call| {
            call.input_item = Some(to_json(item, "input item")?);
            Ok(call)
        });
        self
    }

    /// W3C trace context. A nested call inherits it.
    pub fn traceparent(self, traceparent: &str) -> Self {
        self.with(|call| call.traceparent = Some(traceparent.to_owned()))
    }

    /// How long the outcome is kept. Default: 10 min; 24 h when detached or with an idempotency key.
    pub fn retain(self, retain: Duration) -> Self {
        self.with(|call| call.retain = Some(retain))
    }

    /// Submits the call and does not wait for it. It has been taken when this returns.
    pub async fn detach(self) -> Result<CallHandle<T>, CallError> {
        let mut call = self.call?;
        call.detached = true;
        if let Some(nesting) = &self.nesting {
            nesting.mark(&mut call);
        }
        let submitted = self.towpath.submit(call).await?;
        Ok(CallHandle { submitted, result: PhantomData })
    }

    fn with(mut self, change: impl FnOnce(&mut NewCall)) -> Self {
        if let Ok(call) = &mut self.call {
            change(call);
        }
        self
    }

    fn with_name<N>(mut self, name: Result<N, InvalidName>, change: impl FnOnce(&mut NewCall, N)) -> Self {
        match (name, &mut self.call) {
            (Ok(name), Ok(call)) => change(call, name),
            (Err(error), call @ Ok(_)) => *call = Err(error.into()),
            (_, Err(_earlier)) => {}
        }
        self
    }
}

impl<T: DeserializeOwned + 'static> IntoFuture for CallBuilder<T> {
    type Output = Result<T, CallError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut call = self.call?;
            let answered = match self.nesting {
                None => self.towpath.call_raw(call).await?,
                Some(nesting) => {
                    nesting.mark(&mut call);
                    nesting.while_waiting(self.towpath.call_within(call, |call| nesting.cap(call))).await?
                }
            };
            decode(answered)
        })
    }
}

fn decode<T: DeserializeOwned>(answered: Answered) -> Result<T, CallError> {
    serde_json::from_slice(answered.data.as_bytes()).map_err(|error| CallError::Decode {
        message: format!("the result of call '{}' is not what was asked for: {error}", answered.call_id),
        call_id: Some(answered.call_id),
    })
}

/// A call that goes on by itself.
#[derive(Debug)]
pub struct CallHandle<T> {
    submitted: SubmittedCall,
    result: PhantomData<fn() -> T>,
}

impl<T> CallHandle<T> {
    /// Which call.
    pub fn call_id(&self) -> &CallId {
        &self.submitted.call_id
    }

    /// It had been taken before, under the same id or idempotency key.
    pub fn existing(&self) -> bool {
        self.submitted.existing
    }

    /// Cancels the call if it waits, asks its worker to stop if it runs.
    pub async fn cancel(&self) -> Result<Cancelled, CallError> {
        let call_id = self.call_id();
        let reply = self.submitted.towpath.store().cancel(call_id).await;
        reply.map_err(|error| CallError::Store { call_id: Some(call_id.clone()), error })
    }
}

impl<T: DeserializeOwned> CallHandle<T> {
    /// Waits for the result after all.
    pub async fn result(self) -> Result<T, CallError> {
        decode(self.submitted.answer().await?)
    }
}
