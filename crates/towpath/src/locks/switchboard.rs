//! One ear for all waiters of this process: it hears whose turn it is and wakes that one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use towpath_core::ids::Ids;
use towpath_core::names::{NodeId, RequestId, WaiterId};
use towpath_core::store::{LockNews, LockWakes, Store};

/// Who waits in this process, and the one that listens for them.
#[derive(Default)]
pub(crate) struct Switchboard {
    line: OnceLock<Line>,
    waiting: Arc<Waiting>,
}

#[derive(Default)]
struct Waiting(Mutex<HashMap<WaiterId, Arc<Notify>>>);

struct Line {
    node: NodeId,
    listener: JoinHandle<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Switchboard {
    /// The place in any queue that a question of this process has. Listening begins with the first.
    pub(crate) fn waiter(&self, store: &Arc<dyn Store>, ids: &dyn Ids, request: &RequestId) -> WaiterId {
        let line = self.line.get_or_init(|| {
            let node = store.only_node().unwrap_or_else(|| node_id(ids));
            let listener = tokio::spawn(listen(store.lock_wakes(&node), Arc::clone(&self.waiting)));
            Line { node, listener }
        });
        WaiterId::new(&line.node, request)
    }

    /// Hears from now on when the turn of this waiter may have come.
    pub(super) fn expect(&self, waiter: &WaiterId) -> Turn {
        let notify = Arc::new(Notify::new());
        self.waiting.lock().insert(waiter.clone(), Arc::clone(&notify));
        Turn { waiter: waiter.clone(), notify, waiting: Arc::clone(&self.waiting) }
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<WaiterId, Arc<Notify>>> {
        // No code that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn listen(mut wakes: Box<dyn LockWakes>, waiting: Arc<Waiting>) {
    loop {
        match wakes.next().await {
            LockNews::Turn(waiter) => {
                if let Some(notify) = waiting.lock().get(&waiter) {
                    notify.notify_one();
                }
            }
            LockNews::Doubtful => waiting.lock().values().for_each(|notify| notify.notify_one()),
        }
    }
}

/// One waiter's bell.
pub(super) struct Turn {
    waiter: WaiterId,
    notify: Arc<Notify>,
    waiting: Arc<Waiting>,
}

impl Turn {
    pub(super) async fn comes(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock();
        // The same question may be asked twice at once; the later one has taken the bell over.
        if waiting.get(&self.waiter).is_some_and(|notify| Arc::ptr_eq(notify, &self.notify)) {
            waiting.remove(&self.waiter);
        }
    }
}

fn node_id(ids: &dyn Ids) -> NodeId {
    NodeId::new(as_word(ids.worker_id().as_str())).expect("the id was cleaned")
}

/// A new question's id.
pub(super) fn new_request(ids: &dyn Ids) -> RequestId {
    RequestId::new(as_word(ids.call_id().as_str())).expect("the id was cleaned")
}

/// An id with nothing in it that separates words.
fn as_word(id: &str) -> String {
    id.chars().map(|c| if c.is_whitespace() || c == '|' { '-' } else { c }).collect()
}
