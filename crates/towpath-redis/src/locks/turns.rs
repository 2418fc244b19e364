//! Whose turn it is: which nodes this process listens for, and the ears that hear it. The subscription itself is that of the news.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};
use towpath_core::names::{NodeId, WaiterId};
use towpath_core::store::{LockNews, LockWakes};

/// The ears of one process.
#[derive(Clone)]
pub(crate) struct Turns {
    shared: Arc<Shared>,
}

struct Shared {
    /// What stands before a node's id in its channel.
    channels: String,
    ears: Mutex<HashMap<String, Vec<Ear>>>,
    /// Counts what has changed about who listens.
    wanted: watch::Sender<u64>,
    /// Up to which change the subscription is as it should be.
    settled: watch::Sender<u64>,
}

struct Ear {
    number: u64,
    news: mpsc::UnboundedSender<LockNews>,
}

impl Turns {
    /// Nobody listens yet.
    pub(crate) fn new(channels: String) -> Self {
        let (wanted, settled) = (watch::Sender::new(0), watch::Sender::new(0));
        Self { shared: Arc::new(Shared { channels, ears: Mutex::default(), wanted, settled }) }
    }

    /// Hears of this node's turns as soon as the subscription has its channel, and is told to doubt when it has.
    pub(crate) fn listen(&self, node: &NodeId) -> NodesEar {
        let (news, hears) = mpsc::unbounded_channel();
        let channel = format!("{}{node}", self.shared.channels);
        let mut ears = self.ears();
        let number = self.change();
        ears.entry(channel.clone()).or_default().push(Ear { number, news });
        NodesEar { turns: self.clone(), channel, number, hears }
    }

    /// Rises whenever somebody begins or ceases to listen.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.wanted.subscribe()
    }

    /// The channels that somebody listens to.
    pub(crate) fn channels(&self) -> BTreeSet<String> {
        self.ears().keys().cloned().collect()
    }

    /// The subscription is as was wanted at that change. Whoever began to listen since the last time may have missed something.
    pub(crate) fn has_settled(&self, change: u64, new_channels: &[String]) {
        let ears = self.ears();
        for ear in new_channels.iter().filter_map(|channel| ears.get(channel)).flatten() {
            drop(ear.news.send(LockNews::Doubtful));
        }
        self.shared.settled.send_modify(|settled| *settled = (*settled).max(change));
    }

    /// Ends when all who have begun to listen before are heard.
    pub(crate) async fn settled(&self) {
        let wanted = *self.shared.wanted.borrow();
        let mut settled = self.shared.settled.subscribe();
        // The sender lives as long as this does.
        drop(settled.wait_for(|settled| *settled >= wanted).await);
    }

    /// Passes on what was said on a channel: `<key> <waiter>`. `false`: nobody listens to it.
    pub(crate) fn hear(&self, channel: &str, message: &str) -> bool {
        let ears = self.ears();
        let Some(ears) = ears.get(channel) else { return false };
        let waiter = message.rsplit_once(' ').and_then(|(_, waiter)| WaiterId::try_from(waiter.to_owned()).ok());
        if let Some(waiter) = waiter {
            for ear in ears {
                drop(ear.news.send(LockNews::Turn(waiter.clone())));
            }
        }
        true
    }

    fn change(&self) -> u64 {
        self.shared.wanted.send_modify(|count| *count += 1);
        *self.shared.wanted.borrow()
    }

    fn ears(&self) -> MutexGuard<'_, HashMap<String, Vec<Ear>>> {
        // No code that can panic runs under this lock.
        self.shared.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One ear.
pub(crate) struct NodesEar {
    turns: Turns,
    channel: String,
    number: u64,
    hears: mpsc::UnboundedReceiver<LockNews>,
}

#[async_trait]
impl LockWakes for NodesEar {
    async fn next(&mut self) -> LockNews {
        match self.hears.recv().await {
            Some(news) => news,
            // The sender is kept for as long as this ear is there.
            None => std::future::pending().await,
        }
    }
}

impl Drop for NodesEar {
    fn drop(&mut self) {
        let mut ears = self.turns.ears();
        if let Some(of_node) = ears.get_mut(&self.channel) {
            of_node.retain(|ear| ear.number != self.number);
            if of_node.is_empty() {
                ears.remove(&self.channel);
                self.turns.change();
            }
        }
    }
}
