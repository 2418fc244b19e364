//! A worker's desk: what it serves, what lies on it, and what all its actors share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use towpath_core::call::Answer;
use towpath_core::clock::Clock;
use towpath_core::ids::DeliveryId;
use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::store::{Delivery, Store};
use towpath_core::time::Timestamp;
use towpath_core::worker::RegisterWorker;

use super::permits::{FunctionPermits, Permits};
use super::supervised::Health;
use crate::Towpath;
use crate::handler::RawHandler;
use crate::limits::Turns;
use crate::params::Parameters;

/// A function as this worker serves it.
pub(crate) struct Served {
    pub(crate) key: FunctionKey,
    pub(crate) handler: Arc<dyn RawHandler>,
    pub(crate) parameters: Parameters,
    pub(crate) permits: FunctionPermits,
    /// The store counts its running calls, so it has to know which of them only wait for others.
    pub(crate) counted_by_store: bool,
    /// Its deliveries take turns, over all workers.
    pub(crate) turns: Option<Turns>,
}

/// How long things take on this desk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) lease: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) cancel_grace: Duration,
}

/// What all actors of one worker share.
pub(crate) struct Desk {
    towpath: Towpath,
    /// What the worker says when it introduces itself; said again when the store has forgotten it.
    pub(crate) introduction: RegisterWorker,
    pub(crate) timing: Timing,
    pub(crate) served: Vec<Arc<Served>>,
    by_key: HashMap<FunctionKey, Arc<Served>, RandomState>,
    permits: Permits,
    held: Mutex<Held>,
    /// Told whenever something left the desk.
    pub(crate) left: Notify,
    /// Whether its actors can do their work.
    pub(crate) health: Arc<Health>,
    /// Handlers that are over and whose answers are not kept yet.
    unsent: AtomicUsize,
    finished: mpsc::UnboundedSender<Finished>,
}

/// Everything that lies on the desk.
#[derive(Default)]
struct Held {
    /// No more is taken: the worker has ended.
    closed: bool,
    next_ticket: Ticket,
    deliveries: HashMap<Ticket, HeldDelivery, RandomState>,
}

/// Handlers do not run ahead of their answers by more than this.
const UNSENT_MAX: usize = 1_024;

/// The desk's own number for a delivery: cheaper to look up than a delivery's id.
pub(crate) type Ticket = u64;

/// A delivery from its claim until its answer is kept.
struct HeldDelivery {
    id: DeliveryId,
    /// The call's deadline, by this process's clock.
    ends_at: Timestamp,
    renewed_at: Timestamp,
    stop: StopSignal,
    handler: AbortHandle,
}

/// A handler that is over.
pub(crate) struct Finished {
    pub(crate) ticket: Ticket,
    pub(crate) delivery: DeliveryId,
    /// `None`: there is nothing to say, because the delivery is no longer ours or the call has timed out.
    pub(crate) answer: Option<Answer>,
}

/// A delivery whose lease should be renewed.
pub(crate) struct DueLease {
    pub(crate) ticket: Ticket,
    pub(crate) delivery: DeliveryId,
}

/// Tells a handler to stop, and remembers why.
#[derive(Clone)]
pub(crate) struct StopSignal(Arc<Stop>);

struct Stop {
    token: CancellationToken,
    lost: AtomicBool,
}

impl StopSignal {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Stop { token: CancellationToken::new(), lost: AtomicBool::new(false) }))
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.0.token
    }

    /// Somebody wants the call cancelled.
    pub(crate) fn cancel(&self) {
        self.0.token.cancel();
    }

    /// The delivery is no longer this worker's: nothing may be written for it.
    pub(crate) fn lose(&self) {
        self.0.lost.store(true, Ordering::Release);
        self.0.token.cancel();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Acquire)
    }
}

impl Desk {
    pub(crate) fn new(
        towpath: Towpath,
        introduction: RegisterWorker,
        timing: Timing,
        served: Vec<Arc<Served>>,
        concurrency: u32,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Finished>) {
        let (finished, finishing) = mpsc::unbounded_channel();
        let by_key = served.iter().map(|served| (served.key.clone(), Arc::clone(served))).collect();
        let permits = Permits::new(concurrency);
        let (held, left, health, unsent) = (Mutex::default(), Notify::new(), Arc::default(), AtomicUsize::new(0));
        let desk = Self { towpath, introduction, timing, served, by_key, permits, held, left, health, unsent, finished };
        (Arc::new(desk), finishing)
    }

    pub(crate) fn towpath(&self) -> &Towpath {
        &self.towpath
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.towpath.store()
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        self.towpath.clock()
    }

    pub(crate) fn worker_id(&self) -> &WorkerId {
        &self.introduction.worker_id
    }

    pub(crate) fn permits(&self) -> &Permits {
        &self.permits
    }

    pub(crate) fn served(&self, key: &FunctionKey) -> Option<&Arc<Served>> {
        self.by_key.get(key)
    }

    /// Puts deliveries on the desk. `start` is given a ticket and a signal and starts the handler. Nothing starts once the desk is closed.
    pub(crate) fn take(&self, deliveries: Vec<Delivery>, start: impl Fn(Delivery, Ticket, StopSignal) -> AbortHandle) {
        let now = self.clock().now();
        let mut held = self.lock();
        if held.closed {
            return; // they come back by their lease
        }
        for delivery in deliveries {
            let (ticket, stop) = (held.next_ticket, StopSignal::new());
            held.next_ticket += 1;
            let (id, ends_at) = (delivery.id.clone(), now + delivery.remaining);
            // Under the lock, so that a handler that is over at once finds its delivery on the desk.
            let handler = start(delivery, ticket, stop.clone());
            held.deliveries.insert(ticket, HeldDelivery { id, ends_at, renewed_at: now, stop, handler });
        }
    }

    /// A handler is over.
    pub(crate) fn finish(&self, finished: Finished) {
        self.unsent.fetch_add(1, Ordering::AcqRel);
        // Without a receiver the worker has ended, and the call comes back by its lease.
        let _ = self.finished.send(finished);
    }

    /// Whether so many answers wait to be kept that no more calls should be run: what was run and is not kept is run again after a crash.
    pub(crate) fn is_behind(&self) -> bool {
        self.unsent.load(Ordering::Acquire) >= UNSENT_MAX
    }

    /// Takes finished deliveries off the desk: their answers are kept, or of no use any more.
    pub(crate) fn remove(&self, tickets: &[Ticket]) {
        {
            let mut held = self.lock();
            for ticket in tickets {
                held.deliveries.remove(ticket);
            }
        }
        self.left.notify_waiters();
        let before = self.unsent.fetch_sub(tickets.len(), Ordering::AcqRel);
        if before >= UNSENT_MAX {
            self.permits.look_again();
        }
    }

    pub(crate) fn held_count(&self) -> usize {
        self.lock().deliveries.len()
    }

    /// Whether an answer of this delivery may still count. Only the store knows when a lease is over, and a lease that is over but was
    /// not taken back can still be answered; so an answer is of use until we hear that it is lost, or the call's time is up.
    pub(crate) fn may_answer(&self, ticket: Ticket, now: Timestamp) -> bool {
        let held = self.lock();
        held.deliveries.get(&ticket).is_some_and(|delivery| !delivery.stop.is_lost() && now < delivery.ends_at)
    }

    /// Deliveries whose last renewal is at least `age` ago and that are not lost.
    pub(crate) fn held_longer_than(&self, age: Duration) -> Vec<DueLease> {
        let now = self.clock().now();
        let held = self.lock();
        let due = held.deliveries.iter().filter(|(_, delivery)| delivery.renewed_at + age <= now && !delivery.stop.is_lost());
        due.map(|(ticket, delivery)| DueLease { ticket: *ticket, delivery: delivery.id.clone() }).collect()
    }

    /// When the first delivery will have been held for `age`.
    pub(crate) fn first_held_for(&self, age: Duration) -> Option<Timestamp> {
        let held = self.lock();
        held.deliveries.values().filter(|delivery| !delivery.stop.is_lost()).map(|delivery| delivery.renewed_at + age).min()
    }

    pub(crate) fn renewed(&self, ticket: Ticket, at: Timestamp) {
        if let Some(delivery) = self.lock().deliveries.get_mut(&ticket) {
            delivery.renewed_at = at;
        }
    }

    /// The signal of a delivery that still lies here.
    pub(crate) fn stop_signal(&self, ticket: Ticket) -> Option<StopSignal> {
        self.lock().deliveries.get(&ticket).map(|delivery| delivery.stop.clone())
    }

    /// Ends every handler and clears the desk for good. Returns what still lay there.
    pub(crate) fn close(&self) -> Vec<DeliveryId> {
        let mut held = self.lock();
        held.closed = true;
        let rest = std::mem::take(&mut held.deliveries);
        rest.into_values()
            .map(|delivery| {
                delivery.handler.abort();
                delivery.id
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // Nothing is ever left half done under this lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
