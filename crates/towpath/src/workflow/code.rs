//! The code of a workflow, without its types, and how it is polled: to quiescence, and only when its executor lets it.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::unconstrained;
use towpath_core::payload::Payload;

use super::context::{WorkflowContext, to_payload};
use crate::error::HandlerError;

/// Code that wakes itself this often without a result waits for something that is not durable.
const POLLS_MAX: u32 = 10_000;

/// The future of a run's code.
pub(crate) type Code = Pin<Box<dyn Future<Output = Result<Payload, HandlerError>> + Send>>;

/// A workflow that a worker serves.
pub(crate) trait Served: Send + Sync {
    /// Begins the code. The error says why it cannot read the input.
    fn begin(&self, input: &Payload, ctx: WorkflowContext) -> Result<Code, String>;
}

/// An async function as a workflow.
pub(crate) struct TypedWorkflow<F, I, O> {
    handler: F,
    types: PhantomData<fn(I) -> O>,
}

impl<F, I, O> TypedWorkflow<F, I, O> {
    pub(crate) fn new(handler: F) -> Self {
        Self { handler, types: PhantomData }
    }
}

impl<F, I, O, Fut> Served for TypedWorkflow<F, I, O>
where
    F: Fn(I, WorkflowContext) -> Fut + Send + Sync,
    Fut: Future<Output = Result<O, HandlerError>> + Send + 'static,
    I: DeserializeOwned,
    O: Serialize,
{
    fn begin(&self, input: &Payload, ctx: WorkflowContext) -> Result<Code, String> {
        let input: I = serde_json::from_str(input.as_str()).map_err(|error| format!("the code cannot read the input: {error}"))?;
        let code = (self.handler)(input, ctx);
        Ok(Box::pin(async move {
            let output = code.await?;
            to_payload(&output, "result")
        }))
    }
}

/// What polling came to.
pub(crate) enum Polled {
    /// The code has returned.
    Returned(Result<Payload, HandlerError>),
    /// It waits.
    Waits,
    /// It panicked, with this message.
    Panicked(String),
    /// It wakes itself without end.
    Spins,
}

/// Knows whether the code was woken by what its executor revealed, or by something else.
pub(crate) struct Poller {
    inner: Arc<Wakes>,
    waker: Waker,
}

struct Wakes {
    /// The thread that polls the code or reveals something to it.
    inside: Mutex<Option<ThreadId>>,
    is_woken: AtomicBool,
    is_foreign: AtomicBool,
    foreign: Notify,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let inside = *self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if inside == Some(std::thread::current().id()) {
            self.is_woken.store(true, Ordering::Release);
        } else {
            self.is_foreign.store(true, Ordering::Release);
            self.foreign.notify_one();
        }
    }
}

impl Poller {
    pub(crate) fn new() -> Self {
        let inner = Arc::new(Wakes {
            inside: Mutex::new(None),
            is_woken: AtomicBool::new(false),
            is_foreign: AtomicBool::new(false),
            foreign: Notify::new(),
        });
        let waker = Waker::from(Arc::clone(&inner));
        Self { inner, waker }
    }

    /// Wakes parts of the code, in this order, and polls it until it makes no more progress.
    pub(crate) fn poll(&self, code: &mut Code, wakers: Vec<Waker>) -> Polled {
        let _inside = Inside::enter(&self.inner);
        wakers.into_iter().for_each(Waker::wake);
        for _ in 0..POLLS_MAX {
            self.inner.is_woken.store(false, Ordering::Release);
            let mut cx = Context::from_waker(&self.waker);
            // Otherwise a channel of the code would not be ready when this thread has done much else, and be polled in vain.
            match catch_unwind(AssertUnwindSafe(|| pin!(unconstrained(code.as_mut())).poll(&mut cx))) {
                Ok(Poll::Ready(result)) => return Polled::Returned(result),
                Ok(Poll::Pending) if self.inner.is_woken.load(Ordering::Acquire) => {}
                Ok(Poll::Pending) => return Polled::Waits,
                Err(panic) => return Polled::Panicked(panic_text(panic.as_ref()).to_owned()),
            }
        }
        Polled::Spins
    }

    /// Whether the code was woken by something that its executor did not reveal, such as a socket.
    pub(crate) fn is_foreign(&self) -> bool {
        self.inner.is_foreign.load(Ordering::Acquire)
    }

    /// Ends when it was.
    pub(crate) async fn woken_by_others(&self) {
        while !self.is_foreign() {
            self.inner.foreign.notified().await;
        }
    }
}

/// While it lives, wakes of this thread are the executor's own.
struct Inside<'a>(&'a Wakes);

impl<'a> Inside<'a> {
    fn enter(wakes: &'a Wakes) -> Self {
        *wakes.inside.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current().id());
        Self(wakes)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *self.0.inside.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// What a panic says.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
