//! Runs handlers: one task per delivery, from its permit to its answer. A panic is a failure; a deadline is the end.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use towpath_core::call::Answer;
use towpath_core::payload::Payload;
use towpath_core::store::Delivery;
use towpath_core::time::Timestamp;

use super::aside::Aside;
use super::desk::{Desk, Finished, Served, StopSignal, Ticket};
use super::permits::Permit;
use crate::context::CallContext;
use crate::error::HandlerError;
use crate::limits::not_before;

/// Starts the handlers of these deliveries, after a wait.
pub(crate) fn start(desk: &Arc<Desk>, deliveries: Vec<Delivery>, wait: Duration) {
    desk.take(deliveries, |delivery, ticket, stop| {
        // Taken here and not in the task, so that the next claim sees how many are left. A handler that came back from a nested call may
        // have been faster; then this one waits in hand.
        let served = desk.served(&delivery.request.function);
        let served = served.map(|served| (Arc::clone(served), desk.permits().try_acquire(&served.permits)));
        let work = Work { delivery: Box::new(delivery), wait };
        tokio::spawn(run(Arc::clone(desk), served, work, ticket, stop)).abort_handle()
    });
}

/// A delivery, and how long until it is its turn.
struct Work {
    // In a box, because it goes through several hands, and each of them would keep room for it.
    delivery: Box<Delivery>,
    wait: Duration,
}

async fn run(desk: Arc<Desk>, served: Option<(Arc<Served>, Option<Permit>)>, work: Work, ticket: Ticket, stop: StopSignal) {
    let id = work.delivery.id.clone();
    let answer = match served {
        Some((served, permit)) => execute(&desk, served, permit, work, &stop).await,
        None => {
            tracing::error!(delivery = %id, "the store delivered a call of a function that was not asked for");
            None
        }
    };
    let answer = answer.filter(|_| !stop.is_lost());
    desk.finish(Finished { ticket, delivery: id, answer });
}

/// How a handler came to its end.
enum End {
    Returned(Result<Payload, HandlerError>),
    Panicked(Box<dyn Any + Send>),
    /// It was asked to stop and did not.
    Stopped,
    Deadline,
}

async fn execute(desk: &Arc<Desk>, served: Arc<Served>, permit: Option<Permit>, work: Work, stop: &StopSignal) -> Option<Answer> {
    let delivery = &work.delivery;
    let ends_at = desk.clock().now() + delivery.remaining;
    let function = served.key.clone();
    let aside = Arc::new(Aside::new(Arc::clone(desk), Arc::clone(&served), delivery.id.clone(), stop.clone(), permit));
    let mut handler = pin!(AssertUnwindSafe(handle(desk, served, work, ends_at, stop, &aside)).catch_unwind());
    let end = tokio::select! {
        biased;
        returned = &mut handler => returned.map_or_else(End::Panicked, End::Returned),
        // Made only when it is polled, and in a box: a handler that ends at once needs no timer, and no room for one.
        end = async { Box::pin(forced_end(desk, stop, ends_at)).await } => end,
    };
    aside.finish();
    match end {
        End::Returned(Ok(data)) => Some(Answer::Ok(data)),
        End::Returned(Err(error)) => Some(error.into_answer()),
        End::Panicked(panic) => {
            let message = format!("the handler of '{function}' panicked: {}", panic_text(panic.as_ref()));
            Some(HandlerError::retryable("handler_panicked", message).into_answer())
        }
        End::Stopped => Some(Answer::Cancelled),
        End::Deadline => {
            stop.cancel(); // for whatever the handler has started elsewhere
            None // the store ends the call by itself
        }
    }
}

async fn handle(
    desk: &Arc<Desk>,
    served: Arc<Served>,
    Work { mut delivery, wait }: Work,
    ends_at: Timestamp,
    stop: &StopSignal,
    aside: &Arc<Aside>,
) -> Result<Payload, HandlerError> {
    if !wait.is_zero() {
        desk.clock().sleep_until(not_before(desk.clock().now_us() + wait)).await;
    }
    aside.begin().await;
    // Callers check too, but the definition may have changed since, and not every caller is this library.
    let prepared = served.parameters.prepare(&served.key, &delivery.request.params);
    delivery.request.params = prepared.map_err(|failure| HandlerError::Final { failure })?;
    let ctx = CallContext::new(Arc::clone(desk), delivery, ends_at, stop.clone(), Arc::clone(aside));
    served.handler.run(ctx).await
}

/// Ends when the handler may not go on: some time after it was asked to stop, or at the call's deadline.
async fn forced_end(desk: &Desk, stop: &StopSignal, ends_at: Timestamp) -> End {
    let clock = desk.clock();
    let asked_to_stop = async {
        stop.token().cancelled().await;
        clock.sleep_until(clock.now() + desk.timing.cancel_grace).await;
    };
    tokio::select! {
        biased;
        () = asked_to_stop => End::Stopped,
        () = clock.sleep_until(ends_at) => End::Deadline,
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
