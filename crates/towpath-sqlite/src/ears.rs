//! Wake-ups after a commit. None of them carries truth but an ended call, which is kept by then; losing one costs time, never work.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::{Notify, mpsc};
use towpath_core::call::Call;
use towpath_core::names::{BatcherName, CallId, NodeId, WaiterId, WorkerId};
use towpath_core::store::{BatchNews, BatchWakes, CallNews, CallWatch, LockNews, LockWakes};
use towpath_core::time::Timestamp;

use crate::runs::RunWaiters;

/// All tasks of this process that wait.
#[derive(Debug, Default)]
pub(crate) struct Ears {
    calls: Mutex<HashMap<CallId, Vec<Arc<Ear>>>>,
    workers: Mutex<HashMap<WorkerId, Arc<Notify>>>,
    nodes: Mutex<Vec<(NodeId, mpsc::UnboundedSender<WaiterId>)>>,
    dispatchers: Mutex<Vec<(BatcherName, mpsc::UnboundedSender<Timestamp>)>>,
    pub(crate) runs: Arc<RunWaiters>,
}

/// One watcher of one call.
#[derive(Debug, Default)]
struct Ear {
    ended: Mutex<Option<CallNews>>,
    changed: AtomicBool,
    notify: Notify,
}

impl Ears {
    pub(crate) fn watch(self: &Arc<Self>, call_id: &CallId) -> Box<dyn CallWatch> {
        let ear = Arc::new(Ear::default());
        lock(&self.calls).entry(call_id.clone()).or_default().push(Arc::clone(&ear));
        Box::new(Watch { ears: Arc::clone(self), call_id: call_id.clone(), ear })
    }

    pub(crate) fn tell_ended(&self, call: &Call) {
        let Some(listening) = lock(&self.calls).get(&call.call_id).cloned() else { return };
        let news = CallNews::of_end(call);
        for ear in listening {
            *lock(&ear.ended) = Some(news.clone());
            ear.notify.notify_one();
        }
    }

    pub(crate) fn tell_changed(&self, call_id: &CallId) {
        let Some(listening) = lock(&self.calls).get(call_id).cloned() else { return };
        for ear in listening {
            ear.changed.store(true, Ordering::Release);
            ear.notify.notify_one();
        }
    }

    pub(crate) fn listen_for_turns(&self, node: &NodeId) -> Box<dyn LockWakes> {
        let (sender, turns) = mpsc::unbounded_channel();
        let mut nodes = lock(&self.nodes);
        nodes.retain(|(_, sender)| !sender.is_closed());
        nodes.push((node.clone(), sender));
        Box::new(Turns { turns })
    }

    pub(crate) fn tell_turns(&self, waiters: &[WaiterId]) {
        for waiter in waiters {
            for (_, node) in lock(&self.nodes).iter().filter(|(node, _)| node.as_str() == waiter.node()) {
                let _a_node_that_left_asks_no_more = node.send(waiter.clone());
            }
        }
    }

    pub(crate) fn listen_for_due(&self, batcher: &BatcherName) -> Box<dyn BatchWakes> {
        let (sender, dues) = mpsc::unbounded_channel();
        let mut dispatchers = lock(&self.dispatchers);
        dispatchers.retain(|(_, sender)| !sender.is_closed());
        dispatchers.push((batcher.clone(), sender));
        Box::new(Dues { dues })
    }

    pub(crate) fn tell_dues(&self, dues: &[(BatcherName, Timestamp)]) {
        for (batcher, at) in dues {
            for (_, dispatcher) in lock(&self.dispatchers).iter().filter(|(name, _)| name == batcher) {
                let _a_dispatcher_that_left_claims_no_more = dispatcher.send(*at);
            }
        }
    }

    pub(crate) fn attention(&self, worker: &WorkerId) -> Arc<Notify> {
        Arc::clone(lock(&self.workers).entry(worker.clone()).or_default())
    }

    pub(crate) fn call_for_attention(&self, worker: &WorkerId) {
        self.attention(worker).notify_one();
    }

    /// Clears up after a worker that is gone. A task that still listens for it keeps its ear: the worker may come back under its name.
    pub(crate) fn forget_worker(&self, worker: &WorkerId) {
        let mut workers = lock(&self.workers);
        if workers.get(worker).is_some_and(|ear| Arc::strong_count(ear) == 1) {
            workers.remove(worker);
        }
    }
}

struct Watch {
    ears: Arc<Ears>,
    call_id: CallId,
    ear: Arc<Ear>,
}

#[async_trait]
impl CallWatch for Watch {
    async fn next(&mut self) -> CallNews {
        loop {
            if let Some(news) = lock(&self.ear.ended).take() {
                return news;
            }
            if self.ear.changed.swap(false, Ordering::AcqRel) {
                return CallNews::Changed;
            }
            self.ear.notify.notified().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut calls = lock(&self.ears.calls);
        if let Some(listening) = calls.get_mut(&self.call_id) {
            listening.retain(|ear| !Arc::ptr_eq(ear, &self.ear));
            if listening.is_empty() {
                calls.remove(&self.call_id);
            }
        }
    }
}

/// One node's ear.
struct Turns {
    turns: mpsc::UnboundedReceiver<WaiterId>,
}

#[async_trait]
impl LockWakes for Turns {
    async fn next(&mut self) -> LockNews {
        match self.turns.recv().await {
            Some(waiter) => LockNews::Turn(waiter),
            None => std::future::pending().await, // the store is gone; silence proves nothing
        }
    }
}

/// One dispatcher's ear.
struct Dues {
    dues: mpsc::UnboundedReceiver<Timestamp>,
}

#[async_trait]
impl BatchWakes for Dues {
    async fn next(&mut self) -> BatchNews {
        match self.dues.recv().await {
            Some(at) => BatchNews::Due(at),
            None => std::future::pending().await, // the store is gone; silence proves nothing
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
