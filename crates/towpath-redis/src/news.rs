//! Wake-ups between processes and within this one. No news carries truth: it says "look again", and losing it costs time, never work.
//!
//! | message | what it says |
//! |---|---|
//! | `f` | a function is new, has changed, or was forgotten |
//! | `c` | the shared configuration has changed |
//! | `b` | the settings of a batcher have changed |
//! | `d` | a list of old producers has lost its drainer |
//! | `a:worker` | a delivery of this worker deserves a renewal at once |
//! | `r:scope \n name` | work of this function was made ready, or there is more room for it |
//!
//! On the channel each message stands behind the sender's name, so that a process does not hear itself twice. The same subscription has the
//! channels that somebody in this process listens to, for turns at locks and for deadlines of batches: see [`Listening`].

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSub, PubSubSink};
use redis::{Cmd, Msg, Value};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::store::StoreError;

use crate::definition::{function_member, read_function_member};
use crate::link::Link;
use crate::listening::Listening;
use crate::pause::pause;

/// A function was defined, changed or forgotten.
pub(crate) const FUNCTIONS: &str = "f";
/// The shared configuration was set.
pub(crate) const CONFIG: &str = "c";
/// The settings of a batcher were put.
pub(crate) const BATCHERS: &str = "b";
/// The drainer of an old producer's list has given its place up.
pub(crate) const DRAINERS: &str = "d";
/// The first wait before another try to subscribe; it doubles up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(1);
/// With more workers than this, those whom nobody here listens for are let go: their rings come from other processes' cancellations.
const EARS_MAX: usize = 1_024;

/// What the claims that wait should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Work of this function was made ready, or there is more room for it.
    Ready(FunctionKey),
    /// Some news may have been lost: look at everything again.
    LookAgain,
}

/// The news of one open store. Dropping it ends its subscription.
pub(crate) struct News {
    link: Link,
    channel: String,
    /// The sender's name on the channel: no two stores share it, not even in one process.
    me: String,
    ears: Arc<Ears>,
    listening: Listening,
    subscription: AbortHandle,
}

/// Everyone in this process who listens.
struct Ears {
    functions: watch::Sender<u64>,
    config: watch::Sender<u64>,
    batchers: watch::Sender<u64>,
    drainers: watch::Sender<u64>,
    workers: Mutex<HashMap<WorkerId, Arc<Notify>>>,
    heard: mpsc::UnboundedSender<Heard>,
}

impl News {
    /// Subscribes. Once this has returned, no news is missed without [`Heard::LookAgain`].
    pub(crate) async fn start(
        link: Link,
        channel: String,
        listening: Listening,
        heard: mpsc::UnboundedSender<Heard>,
    ) -> Result<Self, StoreError> {
        let [functions, config, batchers, drainers] = std::array::from_fn(|_| watch::Sender::new(0));
        let ears = Arc::new(Ears { functions, config, batchers, drainers, workers: Mutex::default(), heard });
        let me = format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1));
        let lives = link.lives();
        let subscribed = link.subscribed(&channel).await?;
        let (ours, changes) = (Arc::clone(&ears), listening.changes());
        let listener = Listener {
            link: link.clone(),
            channel: channel.clone(),
            me: me.clone(),
            lives,
            ears: ours,
            listening: listening.clone(),
            changes,
        };
        let subscription = tokio::spawn(listener.listen(subscribed)).abort_handle();
        Ok(Self { link, channel, me, ears, listening, subscription })
    }

    /// Who listens to channels of their own.
    pub(crate) fn listening(&self) -> &Listening {
        &self.listening
    }

    /// Tells this process at once and then all others. Nobody is told of a failure: those who wait for news look again by themselves.
    pub(crate) async fn publish(&self, message: &str) {
        self.ears.hear(message);
        self.tell_others(&[message.to_owned()]).await;
    }

    async fn tell_others(&self, messages: &[String]) {
        let publish = messages.iter().map(|message| {
            let mut publish = Cmd::new();
            publish.arg("PUBLISH").arg(&self.channel).arg(format!("{} {message}", self.me));
            publish
        });
        let told = self.link.ask_all(&publish.collect::<Vec<_>>()).await;
        let refused = |reply: Value| reply.extract_error().err().map(|error| error.to_string());
        let failure = told.map_or_else(|error| Some(error.to_string()), |replies| replies.into_iter().find_map(refused));
        if let Some(error) = failure {
            tracing::debug!(error, "other processes were not told to look again");
        }
    }

    /// Tells that so many definitions are new, changed or forgotten, and that these functions have work or room.
    pub(crate) async fn publish_functions(&self, changes: u64, ready: &[&FunctionKey]) {
        let mut messages: Vec<String> = ready.iter().map(|function| format!("r:{}", function_member(function))).collect();
        for message in &messages {
            self.ears.hear(message);
        }
        if changes > 0 {
            // In one step: whoever saw a number in between would be woken twice.
            self.ears.functions.send_modify(|count| *count += changes);
            messages.push(FUNCTIONS.to_owned());
        }
        self.tell_others(&messages).await;
    }

    /// Tells this process alone to look at these again.
    pub(crate) fn look_at(&self, messages: &[&str]) {
        messages.iter().for_each(|message| self.ears.hear(message));
    }

    /// Counts the changes of functions; it starts at 0.
    pub(crate) fn functions(&self) -> watch::Receiver<u64> {
        self.ears.functions.subscribe()
    }

    /// How high that count stands.
    pub(crate) fn function_changes(&self) -> u64 {
        *self.ears.functions.borrow()
    }

    /// Whoever starts at 0 shall see that there is something to see.
    pub(crate) fn functions_are_known(&self) {
        self.ears.functions.send_modify(|count| *count = (*count).max(1));
    }

    /// Counts the changes of the configuration that were heard of.
    pub(crate) fn config(&self) -> watch::Receiver<u64> {
        self.ears.config.subscribe()
    }

    /// Counts the changes of batchers' settings that were heard of.
    pub(crate) fn batchers(&self) -> watch::Receiver<u64> {
        self.ears.batchers.subscribe()
    }

    /// Counts the drainers of old producers' lists that were heard to give their place up.
    pub(crate) fn drainers(&self) -> watch::Receiver<u64> {
        self.ears.drainers.subscribe()
    }

    /// Ends when the worker's attention is wanted. A request rings once; made while nobody listens, it rings at once.
    pub(crate) async fn attention(&self, worker: &WorkerId) {
        let ear = self.ears.ear_of(worker);
        ear.notified().await;
    }

    /// What was wanted of a worker that is gone is wanted no more. Whoever still listens for it keeps its ear: it may come back.
    pub(crate) fn forget_worker(&self, worker: &WorkerId) {
        let mut workers = lock(&self.ears.workers);
        if workers.get(worker).is_some_and(|ear| Arc::strong_count(ear) == 1) {
            workers.remove(worker);
        }
    }
}

impl Drop for News {
    fn drop(&mut self) {
        self.subscription.abort();
    }
}

impl Ears {
    fn hear(&self, message: &str) {
        match message.split_once(':') {
            None if message == FUNCTIONS => self.functions.send_modify(|count| *count += 1),
            None if message == CONFIG => self.config.send_modify(|count| *count += 1),
            None if message == BATCHERS => self.batchers.send_modify(|count| *count += 1),
            None if message == DRAINERS => self.drainers.send_modify(|count| *count += 1),
            Some(("a", worker)) => {
                if let Ok(worker) = WorkerId::new(worker) {
                    self.ear_of(&worker).notify_one();
                }
            }
            Some(("r", function)) => {
                if let Some(function) = read_function_member(function) {
                    // A store without claims has nobody who would listen.
                    drop(self.heard.send(Heard::Ready(function)));
                }
            }
            // A later version may say things that are not understood here.
            _other => tracing::debug!(message, "news that means nothing here"),
        }
    }

    fn look_again(&self) {
        self.functions.send_modify(|count| *count += 1);
        self.config.send_modify(|count| *count += 1);
        self.batchers.send_modify(|count| *count += 1);
        self.drainers.send_modify(|count| *count += 1);
        for ear in lock(&self.workers).values() {
            ear.notify_one();
        }
        drop(self.heard.send(Heard::LookAgain));
    }

    fn ear_of(&self, worker: &WorkerId) -> Arc<Notify> {
        let mut workers = lock(&self.workers);
        if workers.len() >= EARS_MAX && !workers.contains_key(worker) {
            workers.retain(|_, ear| Arc::strong_count(ear) > 1);
        }
        Arc::clone(workers.entry(worker.clone()).or_default())
    }
}

/// Keeps one subscribed connection.
struct Listener {
    link: Link,
    channel: String,
    me: String,
    lives: watch::Receiver<u64>,
    ears: Arc<Ears>,
    listening: Listening,
    changes: watch::Receiver<u64>,
}

impl Listener {
    async fn listen(mut self, mut subscribed: PubSub) {
        loop {
            self.hear_until_it_breaks(subscribed).await;
            subscribed = self.subscribe_again().await;
            // Only now: what is published from here on is heard, and what was published before is seen by looking.
            self.ears.look_again();
        }
    }

    /// A new shared connection is a sign that this one may be dead too, even if nobody has told it.
    async fn hear_until_it_breaks(&mut self, subscribed: PubSub) {
        let (mut sink, mut messages) = subscribed.split();
        let mut channels = BTreeSet::new();
        if !self.follow_channels(&mut sink, &mut channels).await {
            return;
        }
        loop {
            tokio::select! {
                message = messages.next() => match message {
                    Some(message) => self.pass_on(&message),
                    None => return,
                },
                changed = self.lives.changed() => if changed.is_ok() { return },
                _changed = self.changes.changed() => if !self.follow_channels(&mut sink, &mut channels).await { return },
            }
        }
    }

    /// Subscribes to the channels that somebody here listens to, and to no others. `false`: the connection is of no use any more.
    async fn follow_channels(&mut self, sink: &mut PubSubSink, channels: &mut BTreeSet<String>) -> bool {
        let change = *self.changes.borrow_and_update();
        let wanted = self.listening.channels();
        let (new, gone): (Vec<_>, Vec<_>) =
            (wanted.difference(channels).cloned().collect(), channels.difference(&wanted).cloned().collect());
        let done = tokio::time::timeout(RETRY_LAST * 5, async {
            if !new.is_empty() {
                sink.subscribe(&new).await?;
            }
            if !gone.is_empty() {
                sink.unsubscribe(&gone).await?;
            }
            Ok::<(), redis::RedisError>(())
        });
        if !matches!(done.await, Ok(Ok(()))) {
            return false;
        }
        *channels = wanted;
        self.listening.has_settled(change, &new);
        true
    }

    fn pass_on(&self, message: &Msg) {
        if self.listening.hear(message.get_channel_name(), message.get_payload_bytes()) {
            return;
        }
        let text: String = message.get_payload().unwrap_or_default();
        if let Some((sender, message)) = text.split_once(' ')
            && sender != self.me
        {
            self.ears.hear(message);
        }
    }

    async fn subscribe_again(&mut self) -> PubSub {
        let mut wait = RETRY_FIRST;
        loop {
            // Before the try: a shared connection that is made anew after it counts as a sign again.
            self.lives.mark_unchanged();
            match self.link.subscribed(&self.channel).await {
                Ok(subscribed) => return subscribed,
                Err(error) => tracing::debug!(%error, "not subscribed yet"),
            }
            pause(wait).await;
            wait = (wait * 2).min(RETRY_LAST);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs under this lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use towpath_conformance::words::{function, worker_id};
    use towpath_redis_testing::RedisServer;

    use super::*;
    use crate::options::RedisOptions;

    async fn listen(server: &RedisServer) -> (News, mpsc::UnboundedReceiver<Heard>) {
        let link = Link::open(&RedisOptions::standalone("127.0.0.1", server.port())).await.unwrap();
        let (heard, hears) = mpsc::unbounded_channel();
        (News::start(link, "news".to_owned(), Listening::default(), heard).await.unwrap(), hears)
    }

    async fn soon<T>(it: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), it).await.expect("it does not come")
    }

    fn rings(news: &News, worker: &str) -> bool {
        futures_util::FutureExt::now_or_never(news.attention(&worker_id(worker))).is_some()
    }

    #[tokio::test]
    async fn a_process_hears_itself_at_once_and_only_once() {
        let server = RedisServer::start();
        let (news, mut hears) = listen(&server).await;
        news.publish_functions(0, &[&function("wf-7:a:b")]).await;
        assert_eq!(hears.try_recv(), Ok(Heard::Ready(function("wf-7:a:b"))));
        // Whatever the channel brings comes in order: the echo would be there before this.
        server.cli(&["PUBLISH", "news", "somebody r:__global__\nadd"]);
        assert_eq!(soon(hears.recv()).await, Some(Heard::Ready(function("add"))));
    }

    #[tokio::test]
    async fn a_request_for_attention_rings_once_in_every_process() {
        let server = RedisServer::start();
        let (here, _hears) = listen(&server).await;
        let (there, _hears) = listen(&server).await;
        here.publish("a:w1").await;
        assert!(rings(&here, "w1") && !rings(&here, "w1"), "made while nobody listened, it rings at once, and once");
        soon(there.attention(&worker_id("w1"))).await;
        assert!(!rings(&there, "w1") && !rings(&there, "w2"));
        here.publish("a:w1").await;
        here.forget_worker(&worker_id("w1"));
        assert!(!rings(&here, "w1"), "nothing is wanted of a worker that is gone");
    }

    #[tokio::test]
    async fn rings_for_strangers_are_not_kept_for_ever() {
        let server = RedisServer::start();
        let (news, _hears) = listen(&server).await;
        for number in 0..EARS_MAX * 2 {
            news.ears.hear(&format!("a:w{number}"));
        }
        assert!(lock(&news.ears.workers).len() <= EARS_MAX);
        let latest = format!("w{}", EARS_MAX * 2 - 1);
        assert!(rings(&news, &latest));
    }

    #[tokio::test]
    async fn everybody_is_told_to_look_again_when_the_subscription_was_cut() {
        let server = RedisServer::start();
        let (news, mut hears) = listen(&server).await;
        let (mut functions, mut config) = (news.functions(), news.config());
        server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_eq!(soon(hears.recv()).await, Some(Heard::LookAgain));
        soon(functions.changed()).await.unwrap();
        soon(config.changed()).await.unwrap();
        server.cli(&["PUBLISH", "news", "somebody r:__global__\nadd"]);
        assert_eq!(soon(hears.recv()).await, Some(Heard::Ready(function("add"))), "and it is subscribed again");
    }

    #[tokio::test]
    async fn what_is_not_understood_does_no_harm() {
        let server = RedisServer::start();
        let (news, mut hears) = listen(&server).await;
        for nonsense in ["", "x", "somebody", "somebody z", "somebody a:", "somebody r:add", "somebody f:1", "\u{fffd}"] {
            server.cli(&["PUBLISH", "news", nonsense]);
        }
        server.cli(&["PUBLISH", "news", "somebody r:__global__\nadd"]);
        assert_eq!(soon(hears.recv()).await, Some(Heard::Ready(function("add"))));
        assert_eq!(news.function_changes(), 0);
    }
}
