//! Noticing that the data of the server is not what it was: flushed, or an older copy that came back. It is said loudly, whoever waits for
//! what is gone is woken, and the workers of this process are introduced again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::{Notify, watch};
use towpath_core::names::WorkerId;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;
use towpath_core::worker::{HEALTHY_FOR, RegisterWorker};

use crate::keys::Keys;
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
    /// The same on each master of a Cluster, by key. A key goes with its slot, so it may be on another master the next time, or a master
    /// may be known by another key; but a key that was seen once stays what it is.
    marks: BTreeMap<String, String>,
    /// How often any process has looked. In one data set it only rises.
    pulse: u64,
}

impl Incarnation {
    /// Looks for the first time.
    pub(crate) async fn find(link: &Link, keys: &Keys) -> Result<Self, StoreError> {
        let seen = Mutex::new(look(link, keys, &[]).await?);
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

    /// What was lost between what was seen before and what is seen now, with a name that everybody gives it who notices.
    fn compare(&self, mut now: Seen) -> Option<(String, String)> {
        let mut seen = lock(&self.seen);
        let before = std::mem::replace(&mut *seen, now.clone());
        let replaced = before.marks.iter().find_map(|(key, mark)| now.marks.get(key).filter(|now| *now != mark).map(|now| (key, now)));
        let loss = if before.name != now.name {
            let says = "it was flushed, or another data set took its place: calls that were accepted before are gone";
            Some((now.name.clone().unwrap_or_default(), says.to_owned()))
        } else if let Some((key, mark)) = replaced {
            let says = "one master of the Cluster was flushed, or another data set took its place: calls of functions that it has are gone";
            Some((format!("{key} {mark}"), says.to_owned()))
        } else {
            let says = "an older copy came back: calls that were accepted since it was made are gone, and what became of others since";
            (now.pulse <= before.pulse).then(|| (format!("pulse {}", now.pulse), says.to_owned()))
        };
        now.marks.extend(before.marks.into_iter().filter(|(key, _)| !now.marks.contains_key(key)).collect::<Vec<_>>());
        seen.marks = now.marks;
        loss
    }

    fn keys_seen(&self) -> Vec<String> {
        lock(&self.seen).marks.keys().cloned().collect()
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
        let shared = &self.shared;
        let now = look(&shared.link, &shared.keys, &shared.incarnation.keys_seen()).await?;
        match shared.incarnation.compare(now) {
            None => Ok(()),
            Some((name, loss)) => self.begin_anew(&name, &loss).await,
        }
    }

    /// Writes down what was noticed, for people who look later; several may notice the same.
    async fn write_down_loss(&self, name: &str, loss: &str) {
        let (losses, now) = (self.shared.keys.losses(), self.shared.now());
        let (mut write, mut all) = (Cmd::new(), Cmd::new());
        write.arg("HSETNX").arg(&losses).arg(name).arg(format!("{} {loss}", now.as_millis()));
        all.arg("HGETALL").arg(&losses);
        let written = async {
            self.shared.link.insist(std::slice::from_ref(&write)).await?;
            let known = value::array("HGETALL", self.shared.link.ask(&all).await?)?;
            let mut forget = Cmd::new();
            forget.arg("HDEL").arg(&losses);
            let is_old = |pair: &&[Value]| value::text(&pair[1]).and_then(read_loss).is_none_or(|(at, _)| now.since(at) > SHOWN_FOR);
            let old: Vec<_> = known.chunks_exact(2).filter(is_old).filter_map(|pair| value::bytes(&pair[0])).collect();
            if !old.is_empty() {
                forget.arg(old);
                self.shared.link.ask(&forget).await?;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = written.await {
            tracing::debug!(%error, "what was lost could not be written down");
        }
    }

    async fn begin_anew(&self, name: &str, loss: &str) -> Result<(), StoreError> {
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
        self.write_down_loss(name, loss).await;
        shared.held.forget_all();
        shared.agenda.doubt();
        shared.runs.forget();
        shared.news.look_at(&[FUNCTIONS, CONFIG]);
        self.partitions_in_use().iter().for_each(|partition| self.work_came(partition));
        shared.waiters.doubt_all();
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

/// A loss as it is written down: when, and what.
pub(crate) fn read_loss(text: &str) -> Option<(Timestamp, &str)> {
    let (at, loss) = text.split_once(' ')?;
    Some((Timestamp::from_millis(at.parse().ok()?), loss))
}

/// The data set. Whatever has no name is given one: the whole, and in a Cluster each master.
async fn look(link: &Link, keys: &Keys, seen: &[String]) -> Result<Seen, StoreError> {
    let (name, pulse) = (keys.incarnation(), keys.pulse());
    let mut marks = link.key_on_each_master(&name);
    marks.extend(seen.iter().cloned());
    marks.sort_unstable();
    marks.dedup();
    let named: Vec<String> = marks.into_iter().chain([name.clone()]).collect();
    let mut texts = read_all(link, named.iter()).await?;
    let count = value::checked(link.insist(&[command(&["INCR", &pulse])]).await?.pop().unwrap_or(Value::Nil))?;
    let unnamed = named.iter().zip(&texts).filter(|(_, text)| text.is_none()).map(|(key, _)| key);
    let write: Vec<Cmd> = unnamed.map(|key| command(&["SET", key, &secret_name(), "NX"])).collect();
    if !write.is_empty() {
        link.insist(&write).await?.into_iter().try_for_each(|reply| value::checked(reply).map(drop))?;
        texts = read_all(link, named.iter()).await?; // another process may have been faster
    }
    let mut marks: BTreeMap<String, String> = named.into_iter().zip(texts).filter_map(|(key, text)| Some((key, text?))).collect();
    let name = marks.remove(&name);
    Ok(Seen { name, marks, pulse: value::number(&count).and_then(|count| u64::try_from(count).ok()).unwrap_or_default() })
}

async fn read_all<'a>(link: &Link, keys: impl Iterator<Item = &'a String>) -> Result<Vec<Option<String>>, StoreError> {
    let text = |reply: Value| value::text(&reply).map(str::to_owned);
    if !link.is_cluster() {
        let words: Vec<&str> = ["MGET"].into_iter().chain(keys.map(String::as_str)).collect();
        return Ok(value::array("MGET", link.ask(&command(&words)).await?)?.into_iter().map(text).collect());
    }
    let get: Vec<Cmd> = keys.map(|key| command(&["GET", key])).collect();
    link.ask_all(&get).await?.into_iter().map(|reply| value::checked(reply).map(text)).collect()
}

fn command(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here can panic half way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
