//! Noticing that the data of the server is not what it was: flushed, or an older copy that came back. It is said loudly, whoever waits for
//! what is gone is woken, and the workers of this process are introduced again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::{Notify, watch};
use towpath_core::names::WorkerId;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;
use towpath_core::worker::{HEALTHY_FOR, RegisterWorker};

use crate::link::Link;
use crate::news::{CONFIG, FUNCTIONS};
use crate::pause::pause;
use crate::store::{RedisStore, Shared, secret_name};
use crate::value;

/// How often it is looked without a reason.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A loss is shown to people for so long.
const SHOWN_FOR: Duration = Duration::from_secs(24 * 3_600);
/// Of so many losses the latest are shown.
const SHOWN_MAX: usize = 5;

/// The data set that this process works with.
pub(crate) struct Incarnation {
    seen: Mutex<Seen>,
    /// Something is not as it should be: look at once.
    doubt: Notify,
    losses: Mutex<VecDeque<(Timestamp, String)>>,
    /// The workers that were introduced here, and when each was last heard.
    introduced: Mutex<HashMap<WorkerId, (RegisterWorker, Timestamp)>>,
}

/// A data set, as it was when it was last looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// Written once by whoever finds none.
    name: Option<String>,
    /// The latest submit. In one data set it only rises.
    sequence: u64,
}

impl Incarnation {
    /// Looks for the first time.
    pub(crate) async fn find(link: &Link, shared: (&str, &str)) -> Result<Self, StoreError> {
        let seen = Mutex::new(named(link, shared).await?);
        Ok(Self { seen, doubt: Notify::new(), losses: Mutex::default(), introduced: Mutex::default() })
    }

    /// What should be there is not: somebody looks at once whether everything is gone.
    pub(crate) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// A worker was introduced, so that it can be introduced again.
    pub(crate) fn introduced(&self, worker: &RegisterWorker, now: Timestamp) {
        lock(&self.introduced).insert(worker.worker_id.clone(), (worker.clone(), now));
    }

    /// A worker is alive.
    pub(crate) fn heard(&self, worker: &WorkerId, now: Timestamp) {
        if let Some((_, heard)) = lock(&self.introduced).get_mut(worker) {
            *heard = now;
        }
    }

    /// A worker has left.
    pub(crate) fn left(&self, worker: &WorkerId) {
        lock(&self.introduced).remove(worker);
    }

    /// What people should know, each with what to do.
    pub(crate) fn problems(&self, now: Timestamp) -> Vec<String> {
        let losses = lock(&self.losses);
        losses
            .iter()
            .filter(|(at, _)| now.since(*at) < SHOWN_FOR)
            .map(|(at, loss)| format!("{loss} (noticed at {} ms)", at.as_millis()))
            .collect()
    }

    /// What was lost between what was seen before and what is seen now.
    fn compare(&self, now: &Seen) -> Option<String> {
        let mut seen = lock(&self.seen);
        let before = std::mem::replace(&mut *seen, now.clone());
        if before.name != now.name {
            return Some("it was flushed, or another data set took its place: calls that were accepted before are gone".to_owned());
        }
        let back = before.sequence.saturating_sub(now.sequence);
        (back > 0)
            .then(|| format!("an older copy came back: at least {back} calls that were accepted are gone, and what became of others since"))
    }

    fn to_introduce(&self, now: Timestamp) -> Vec<RegisterWorker> {
        let mut introduced = lock(&self.introduced);
        // One that was silent for longer may be gone; if not, its next heartbeat introduces it.
        introduced.retain(|_, (_, heard)| now.since(*heard) < HEALTHY_FOR);
        introduced.values().map(|(worker, _)| worker.clone()).collect()
    }
}

impl RedisStore {
    /// Looks whether the data is still what it was.
    async fn look_at_incarnation(&self) -> Result<(), StoreError> {
        let (name, sequence) = (self.shared.keys.incarnation(), self.shared.keys.sequence());
        let now = named(&self.shared.link, (&name, &sequence)).await?;
        match self.shared.incarnation.compare(&now) {
            None => Ok(()),
            Some(loss) => self.begin_anew(&loss).await,
        }
    }

    async fn begin_anew(&self, loss: &str) -> Result<(), StoreError> {
        let shared = &self.shared;
        tracing::error!(store = %shared.options, "the data of this Redis was replaced: {loss}; workers register again by themselves");
        {
            let mut losses = lock(&shared.incarnation.losses);
            losses.truncate(SHOWN_MAX - 1);
            losses.push_front((
                shared.now(),
                format!("the data of this Redis was replaced: {loss}; see what made it so, and submit again what is missing"),
            ));
        }
        shared.held.forget_all();
        shared.news.look_at(&[FUNCTIONS, CONFIG]);
        self.rooms_in_use().iter().for_each(|room| room.ring());
        shared.ears.doubt_all();
        for worker in shared.incarnation.to_introduce(shared.now()) {
            let worker_id = worker.worker_id.clone();
            if let Err(error) = self.register_worker(worker).await {
                tracing::warn!(%error, worker = %worker_id, "the worker could not be introduced again; its next heartbeat does it");
            }
        }
        Ok(())
    }
}

/// Looks after every new connection, at every doubt, and now and then, as long as the store is open.
pub(crate) async fn watch_for_ever(shared: Weak<Shared>, mut lives: watch::Receiver<u64>) {
    loop {
        let Some(incarnation) = shared.upgrade().map(|shared| Arc::clone(&shared.incarnation)) else { return };
        tokio::select! {
            _ = lives.changed() => {}
            () = incarnation.doubt.notified() => {}
            () = pause(LOOK_EVERY) => {}
        }
        let Some(shared) = shared.upgrade() else { return };
        if let Err(error) = (RedisStore { shared }).look_at_incarnation().await {
            tracing::debug!(%error, "whether the data is what it was is not known; looking again");
        }
    }
}

/// The data set, which is given a name if it has none.
async fn named(link: &Link, (name, sequence): (&str, &str)) -> Result<Seen, StoreError> {
    let (mut known, count) = look(link, name, sequence).await?;
    if known.is_none() {
        let mut write = Cmd::new();
        write.arg("SET").arg(name).arg(secret_name()).arg("NX");
        link.ask(&write).await?;
        (known, _) = look(link, name, sequence).await?; // another process may have been faster
    }
    Ok(Seen { name: known, sequence: count.and_then(|count| count.parse().ok()).unwrap_or_default() })
}

async fn look(link: &Link, name: &str, sequence: &str) -> Result<(Option<String>, Option<String>), StoreError> {
    let text = |reply: Option<&Value>| reply.and_then(value::text).map(str::to_owned);
    let replies = if link.is_cluster() {
        let get = |key: &str| {
            let mut get = Cmd::new();
            get.arg("GET").arg(key);
            get
        };
        let replies = link.ask_all(&[get(name), get(sequence)]).await?;
        replies.into_iter().map(value::checked).collect::<Result<_, _>>()?
    } else {
        let mut get = Cmd::new();
        get.arg("MGET").arg(name).arg(sequence);
        value::array("MGET", link.ask(&get).await?)?
    };
    Ok((text(replies.first()), text(replies.get(1))))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here can panic half way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
