//! Stepping aside: while a handler waits for nested calls, it gives its permit back, and tells the store if the store counts too.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towpath_core::ids::DeliveryId;
use towpath_core::store::Renewal;

use super::desk::{Desk, Served, StopSignal};
use super::permits::Permit;

/// The permit of one delivery, and whether it is in use.
pub(crate) struct Aside {
    desk: Arc<Desk>,
    served: Arc<Served>,
    delivery: DeliveryId,
    stop: StopSignal,
    state: Mutex<State>,
    /// What the store was told last. Held over the telling, so that two tellings cannot overtake each other.
    told_parked: tokio::sync::Mutex<bool>,
}

struct State {
    /// Nested calls that are waited for.
    waiting: u32,
    permit: Option<Permit>,
    /// The handler is over; nothing is taken again for it.
    over: bool,
}

impl Aside {
    /// A delivery with its permit, if there was one for it.
    pub(crate) fn new(desk: Arc<Desk>, served: Arc<Served>, delivery: DeliveryId, stop: StopSignal, permit: Option<Permit>) -> Self {
        let state = Mutex::new(State { waiting: 0, permit, over: false });
        Self { desk, served, delivery, stop, state, told_parked: tokio::sync::Mutex::new(false) }
    }

    /// Waits for the permit to run, if there is none yet.
    pub(crate) async fn begin(&self) {
        if self.needs_permit() {
            let permit = self.desk.permits().acquire(&self.served.permits).await;
            self.keep(permit);
        }
    }

    /// Waits for a nested call without a permit, and has one again before the handler goes on. Of several at once, the last one to end
    /// takes it: otherwise a handler that still waits would hold the very permit that its other nested call needs.
    pub(crate) async fn step_aside_for<T>(self: &Arc<Self>, wait: impl Future<Output = T>) -> T {
        let mut waiting = Waiting::begin(self);
        self.tell_store().await;
        let result = wait.await;
        waiting.end();
        self.begin().await;
        self.tell_store().await;
        result
    }

    /// The handler is over: its permit is free, whatever it left behind.
    pub(crate) fn finish(&self) {
        let permit = {
            let mut state = self.lock();
            state.over = true;
            state.permit.take()
        };
        drop(permit);
    }

    fn needs_permit(&self) -> bool {
        let state = self.lock();
        state.waiting == 0 && state.permit.is_none() && !state.over
    }

    /// Keeps a permit, unless another nested call has begun or the handler has ended since it was asked for.
    fn keep(&self, permit: Permit) {
        let mut state = self.lock();
        if state.waiting == 0 && state.permit.is_none() && !state.over {
            state.permit = Some(permit);
        }
    }

    /// Tells the store whether this delivery runs, if the store counts the function's running calls.
    async fn tell_store(&self) {
        if !self.served.counted_by_store {
            return;
        }
        let mut told = self.told_parked.lock().await;
        let parked = {
            let state = self.lock();
            state.waiting > 0 && !state.over
        };
        if *told == parked {
            return;
        }
        let (store, worker) = (self.desk.store(), self.desk.worker_id());
        match self.desk.towpath().retry_lost_replies(|| store.park(worker, &self.delivery, parked)).await {
            Ok(Renewal::Held { .. }) => *told = parked,
            Ok(Renewal::Lost(_)) => self.stop.lose(),
            // The count is off by one until this delivery ends; the call itself is unharmed.
            Err(error) => tracing::warn!(%error, delivery = %self.delivery, "could not tell the store that a call waits for another"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A nested call that is waited for. Dropped half way when the handler gives up waiting.
struct Waiting<'a> {
    aside: &'a Arc<Aside>,
    ended: bool,
}

impl<'a> Waiting<'a> {
    fn begin(aside: &'a Arc<Aside>) -> Self {
        let permit = {
            let mut state = aside.lock();
            state.waiting += 1;
            state.permit.take()
        };
        drop(permit);
        Self { aside, ended: false }
    }

    fn end(&mut self) {
        self.aside.lock().waiting -= 1;
        self.ended = true;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.end();
        // Nobody can wait here. Without a free permit the handler goes on without one, which is one too many until it ends.
        if self.aside.needs_permit()
            && let Some(permit) = self.aside.desk.permits().try_acquire(&self.aside.served.permits)
        {
            self.aside.keep(permit);
        }
        if self.aside.served.counted_by_store && !self.aside.lock().over && tokio::runtime::Handle::try_current().is_ok() {
            let aside = Arc::clone(self.aside);
            tokio::spawn(async move { aside.tell_store().await });
        }
    }
}
