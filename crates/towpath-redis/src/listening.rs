//! Channels that somebody in this process listens to, and the ears that hear them. The subscription itself is that of the news.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};

/// What an ear hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// This was said.
    Message(Arc<str>),
    /// Something may have been missed.
    Doubtful,
}

/// The ears of one process. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Listening {
    shared: Arc<Shared>,
}

/// What is run for every message on a channel, and when messages may have been missed (`None`).
type Hook = Arc<dyn Fn(Option<&[u8]>) + Send + Sync>;

#[derive(Default)]
struct Shared {
    /// Channels that are listened to for as long as the store is open.
    hooks: Mutex<HashMap<String, Hook>>,
    ears: Mutex<HashMap<String, Vec<Ear>>>,
    /// Counts what has changed about who listens.
    wanted: watch::Sender<u64>,
    /// Up to which change the subscription is as it should be.
    settled: watch::Sender<u64>,
}

struct Ear {
    number: u64,
    spoken: mpsc::UnboundedSender<Spoken>,
}

impl Listening {
    /// Hears what is said on a channel as soon as the subscription has it, and is told to doubt when it has.
    pub(crate) fn listen(&self, channel: String) -> ChannelEar {
        let (spoken, hears) = mpsc::unbounded_channel();
        let mut ears = self.ears();
        let number = self.change();
        ears.entry(channel.clone()).or_default().push(Ear { number, spoken });
        ChannelEar { listening: self.clone(), channel, number, hears }
    }

    /// Runs this for every message on a channel for as long as the store is open, and when messages may have been missed: when the
    /// subscription has begun, and each time that it was cut.
    pub(crate) fn listen_with(&self, channel: &str, hook: impl Fn(Option<&[u8]>) + Send + Sync + 'static) {
        self.hooks().insert(channel.to_owned(), Arc::new(hook));
        self.change();
    }

    /// Rises whenever somebody begins or ceases to listen.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.wanted.subscribe()
    }

    /// The channels that somebody listens to.
    pub(crate) fn channels(&self) -> BTreeSet<String> {
        let mut channels: BTreeSet<String> = self.ears().keys().cloned().collect();
        channels.extend(self.hooks().keys().cloned());
        channels
    }

    /// The subscription is as was wanted at that change. Whoever began to listen since the last time may have missed something.
    pub(crate) fn has_settled(&self, change: u64, new_channels: &[String]) {
        let ears = self.ears();
        for ear in new_channels.iter().filter_map(|channel| ears.get(channel)).flatten() {
            drop(ear.spoken.send(Spoken::Doubtful));
        }
        drop(ears);
        for channel in new_channels {
            if let Some(hook) = self.hook(channel) {
                hook(None);
            }
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

    /// Passes on what was said on a channel. `false`: it has no listener.
    pub(crate) fn hear(&self, channel: &str, message: &[u8]) -> bool {
        if let Some(hook) = self.hook(channel) {
            hook(Some(message));
            return true;
        }
        self.hear_text(channel, &String::from_utf8_lossy(message))
    }

    fn hook(&self, channel: &str) -> Option<Hook> {
        self.hooks().get(channel).cloned()
    }

    fn hooks(&self) -> MutexGuard<'_, HashMap<String, Hook>> {
        self.shared.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear_text(&self, channel: &str, message: &str) -> bool {
        let ears = self.ears();
        let Some(ears) = ears.get(channel) else { return false };
        let message: Arc<str> = Arc::from(message);
        for ear in ears {
            drop(ear.spoken.send(Spoken::Message(Arc::clone(&message))));
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
pub(crate) struct ChannelEar {
    listening: Listening,
    channel: String,
    number: u64,
    hears: mpsc::UnboundedReceiver<Spoken>,
}

impl ChannelEar {
    /// The next thing that is said.
    pub(crate) async fn next(&mut self) -> Spoken {
        match self.hears.recv().await {
            Some(spoken) => spoken,
            // The sender is kept for as long as this ear is there.
            None => std::future::pending().await,
        }
    }
}

impl Drop for ChannelEar {
    fn drop(&mut self) {
        let mut ears = self.listening.ears();
        if let Some(of_channel) = ears.get_mut(&self.channel) {
            of_channel.retain(|ear| ear.number != self.number);
            if of_channel.is_empty() {
                ears.remove(&self.channel);
                self.listening.change();
            }
        }
    }
}
