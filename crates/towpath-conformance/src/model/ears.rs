//! Who listens to the model: claims that wait for work, watchers of calls, workers that want to hear of cancellations.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use tokio::sync::mpsc;
use towpath_core::names::{BatcherName, CallId, NodeId, WaiterId, WorkerId};
use towpath_core::store::{BatchNews, BatchWakes, CallNews, CallWatch, LockNews, LockWakes};
use towpath_core::time::Timestamp;

use super::claim::WaitingClaim;

/// Nobody here holds truth: losing them all costs time, never work.
#[derive(Default)]
pub(super) struct Ears {
    /// Claims that found nothing, in the order in which they came.
    pub(super) waiting: Vec<WaitingClaim>,
    /// The latest place given out in that order.
    pub(super) last_ticket: u64,
    /// Watchers by call, whether it exists yet or not.
    watchers: BTreeMap<CallId, Vec<mpsc::UnboundedSender<CallNews>>>,
    /// Nodes that want to hear whose turn it is.
    nodes: Vec<(NodeId, mpsc::UnboundedSender<WaiterId>)>,
    /// Dispatchers that want to hear when something is due earlier.
    dispatchers: Vec<(BatcherName, mpsc::UnboundedSender<Timestamp>)>,
    /// Workers with a cancellation that they have not been told of.
    pub(super) wanted: BTreeSet<WorkerId>,
}

impl Ears {
    pub(super) fn watch(&mut self, call_id: &CallId) -> Watch {
        self.watchers.retain(|_, senders| {
            senders.retain(|sender| !sender.is_closed());
            !senders.is_empty()
        });
        let (sender, news) = mpsc::unbounded_channel();
        self.watchers.entry(call_id.clone()).or_default().push(sender);
        Watch { news }
    }

    pub(super) fn tell(&mut self, call_id: &CallId, news: &CallNews) {
        for watcher in self.watchers.get(call_id).into_iter().flatten() {
            // A watcher that has left hears nothing, which is what it wanted.
            drop(watcher.send(news.clone()));
        }
    }
}

impl Ears {
    pub(super) fn listen_for_turns(&mut self, node: &NodeId) -> Turns {
        self.nodes.retain(|(_, sender)| !sender.is_closed());
        let (sender, turns) = mpsc::unbounded_channel();
        self.nodes.push((node.clone(), sender));
        Turns { turns }
    }

    /// Tells the node of each waiter that its turn may have come.
    pub(super) fn wake(&mut self, waiters: &[WaiterId]) {
        for waiter in waiters {
            for (_, node) in self.nodes.iter().filter(|(node, _)| node.as_str() == waiter.node()) {
                // A node that has left asks no more.
                drop(node.send(waiter.clone()));
            }
        }
    }
}

impl Ears {
    pub(super) fn listen_for_due(&mut self, batcher: &BatcherName) -> Dues {
        self.dispatchers.retain(|(_, sender)| !sender.is_closed());
        let (sender, dues) = mpsc::unbounded_channel();
        self.dispatchers.push((batcher.clone(), sender));
        Dues { dues }
    }

    /// Tells the dispatchers of a batcher when something is due.
    pub(super) fn tell_due(&mut self, batcher: &BatcherName, at: Timestamp) {
        for (_, dispatcher) in self.dispatchers.iter().filter(|(name, _)| name == batcher) {
            let _a_dispatcher_that_left_claims_no_more = dispatcher.send(at);
        }
    }
}

/// One dispatcher's ear.
pub(super) struct Dues {
    dues: mpsc::UnboundedReceiver<Timestamp>,
}

#[async_trait]
impl BatchWakes for Dues {
    async fn next(&mut self) -> BatchNews {
        match self.dues.recv().await {
            Some(at) => BatchNews::Due(at),
            // The store is gone; silence proves nothing.
            None => std::future::pending().await,
        }
    }
}

/// One node's ear.
pub(super) struct Turns {
    turns: mpsc::UnboundedReceiver<WaiterId>,
}

#[async_trait]
impl LockWakes for Turns {
    async fn next(&mut self) -> LockNews {
        match self.turns.recv().await {
            Some(waiter) => LockNews::Turn(waiter),
            // The store is gone; silence proves nothing.
            None => std::future::pending().await,
        }
    }
}

/// One watcher's ear.
pub(super) struct Watch {
    news: mpsc::UnboundedReceiver<CallNews>,
}

#[async_trait]
impl CallWatch for Watch {
    async fn next(&mut self) -> CallNews {
        match self.news.recv().await {
            Some(news) => news,
            // The store is gone; silence proves nothing.
            None => std::future::pending().await,
        }
    }
}
