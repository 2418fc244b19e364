//! The places of runs: which are known, where a run is kept, and the registry by which an id alone leads to its place.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::watch;
use towpath_core::run::{RunId, RunPlace};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::keys::{self, PlaceKeys};
use super::listen::Owners;
use super::moves::{Made, Move};
use super::remembered::Remembered;
use crate::lane::Lane;
use crate::link::{Script, trouble};
use crate::registry::reply::command;
use crate::script::Args;
use crate::store::{RedisStore, secret_name};
use crate::value;

/// How often a process reads the registry of all places.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Characters of the process in a run's version: 64 random bits.
const VERSION_CHARS: usize = 16;

/// What an open store keeps in mind about runs.
pub(crate) struct Runs {
    /// What the versions begin with that this process gives to runs. No other process has it.
    pub(super) name: String,
    /// Number of versions that were given.
    pub(super) versions: AtomicU64,
    places: Mutex<HashMap<String, Arc<Place>>>,
    /// When the registry was last read.
    looked_at: Mutex<Option<Timestamp>>,
    /// Rises whenever a run came into a queue.
    pub(super) queued: watch::Sender<u64>,
    /// How many claims have brought something: every eighth looks at new runs first.
    pub(super) claims: AtomicU64,
    pub(super) owners: Owners,
    /// The connection that take-overs saw last, and since when.
    connection: Mutex<Option<(u64, Option<Timestamp>)>>,
}

/// A workflow in one version and shard: one slot of a Cluster.
pub(super) struct Place {
    pub(super) place: RunPlace,
    pub(super) keys: PlaceKeys,
    /// Moves that wait to go together. One flush at a time: moves of this process do not compete for a run.
    pub(super) lane: Arc<Lane<Move, Made>>,
    /// The connection under which it was registered, from 1; 0 is none.
    registered: AtomicU64,
    listens: AtomicBool,
    pub(super) remembered: Remembered,
    /// Where repair goes on in each queue.
    pub(super) repaired_to: [AtomicUsize; 2],
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            name: format!("{}.", &secret_name()[..VERSION_CHARS]),
            versions: AtomicU64::new(0),
            places: Mutex::default(),
            looked_at: Mutex::default(),
            queued: watch::Sender::default(),
            claims: AtomicU64::new(0),
            owners: Owners::default(),
            connection: Mutex::default(),
        }
    }
}

impl Runs {
    /// The data of the server was replaced: every place is registered again, and the registry is read again.
    pub(crate) fn forget(&self) {
        self.places().values().for_each(|place| place.registered.store(0, Ordering::Relaxed));
        *lock(&self.looked_at) = None;
        self.wake();
    }

    /// Claims that wait look again.
    pub(crate) fn wake(&self) {
        self.queued.send_modify(|count| *count += 1);
    }

    fn places(&self) -> MutexGuard<'_, HashMap<String, Arc<Place>>> {
        lock(&self.places)
    }
}

impl RedisStore {
    /// What this process remembers of a place.
    pub(super) fn place_of(&self, place: &RunPlace) -> Arc<Place> {
        let code = place.code();
        let mut places = self.shared.runs.places();
        if let Some(known) = places.get(&code).filter(|known| known.place == *place) {
            return Arc::clone(known);
        }
        let options = &self.shared.options;
        let made = Arc::new(Place {
            place: place.clone(),
            keys: PlaceKeys::new(&options.prefix, options.database, place),
            lane: Arc::default(),
            registered: AtomicU64::new(0),
            listens: AtomicBool::new(false),
            remembered: Remembered::default(),
            repaired_to: Default::default(),
        });
        // A place whose code another one has is refused when it is registered.
        places.entry(code).or_insert_with(|| Arc::clone(&made));
        made
    }

    /// A place that is in the registry, from the first time on that this process has to do with it and again after every new connection.
    pub(super) async fn registered_place(&self, place: &RunPlace) -> Result<Arc<Place>, StoreError> {
        let (known, life) = (self.place_of(place), *self.shared.link.lives().borrow() + 1);
        if known.registered.load(Ordering::Relaxed) == life {
            return Ok(known);
        }
        let (registry, code) = (keys::partitions(&self.shared.options.prefix), place.code());
        let asks = [command("HSETNX", &[&registry, &code, &known.keys.stream]), command("HGET", &[&registry, &code])];
        let replies = self.shared.link.ask_all(&asks).await?;
        let kept = replies.into_iter().map(value::checked).collect::<Result<Vec<_>, _>>()?;
        match kept.last().and_then(value::text) {
            Some(stream) if stream == known.keys.stream => known.registered.store(life, Ordering::Relaxed),
            other => {
                return Err(trouble(format!(
                    "the workflow '{}' cannot be kept beside '{}', which has the same code: choose another version or shard",
                    known.keys.stream,
                    other.unwrap_or_default()
                )));
            }
        }
        Ok(known)
    }

    /// Until when no run is taken over, after a new connection: owners could not renew their claims while the server was away.
    pub(super) fn no_take_over_until(&self, idle: Duration, now: Timestamp) -> Option<Timestamp> {
        let life = *self.shared.link.lives().borrow();
        let mut connection = lock(&self.shared.runs.connection);
        let since = match *connection {
            Some((seen, since)) if seen == life => since,
            Some(_another) => Some(now),
            None => None,
        };
        *connection = Some((life, since));
        since.map(|since| since + idle).filter(|until| now < *until)
    }

    /// The place of a run. `None`: no run of such a place was ever started here.
    pub(super) async fn place_of_run(&self, run_id: &RunId) -> Result<Option<Arc<Place>>, StoreError> {
        let known = self.shared.runs.places().get(run_id.code()).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let registry = keys::partitions(&self.shared.options.prefix);
        let found = self.shared.link.ask(&command("HGET", &[registry.as_str(), run_id.code()])).await?;
        Ok(value::text(&found).and_then(RunPlace::of_stream).map(|place| self.place_of(&place)))
    }

    /// All places that are known, by their names. The registry is read now and then; under a test's clock it always is.
    pub(super) async fn known_places(&self) -> Result<Vec<Arc<Place>>, StoreError> {
        let now = self.shared.now();
        let looked_at = lock(&self.shared.runs.looked_at).filter(|_| self.shared.lives_by_the_server);
        if looked_at.is_none_or(|at| now < at || now.since(at) >= LOOK_EVERY) {
            self.read_registry().await?;
            *lock(&self.shared.runs.looked_at) = Some(now);
        }
        let mut places: Vec<Arc<Place>> = self.shared.runs.places().values().cloned().collect();
        places.sort_by(|one, other| one.place.cmp(&other.place));
        Ok(places)
    }

    async fn read_registry(&self) -> Result<(), StoreError> {
        let registry = keys::partitions(&self.shared.options.prefix);
        let found = self.shared.link.ask(&command("HGETALL", &[&registry])).await.and_then(|reply| value::array("HGETALL", reply));
        for pair in self.shared.or_pass_over(&registry, found, Vec::new())?.chunks_exact(2) {
            match value::text(&pair[1]).and_then(RunPlace::of_stream) {
                Some(place) => drop(self.place_of(&place)),
                None => self.shared.pass_over(&registry, value::bytes(&pair[0]).unwrap_or_default(), "it is not the name of a stream"),
            }
        }
        Ok(())
    }

    /// From now on this process hears when a run of the place comes into a queue.
    pub(super) fn listen_to_place(&self, place: &Place) {
        if place.listens.swap(true, Ordering::Relaxed) {
            return;
        }
        let shared = Arc::downgrade(&self.shared);
        self.shared.news.listening().listen_with(&place.keys.channel, move |_message| {
            if let Some(shared) = shared.upgrade() {
                shared.runs.wake();
            }
        });
    }

    /// What all scripts of a place are handed first.
    pub(super) fn run_args(&self, place: &Place, more: usize) -> Args {
        let mut args = Args::with_capacity(3 + more);
        args.push(&place.keys.own);
        args.push(&place.keys.stream);
        args.push(&place.keys.channel);
        args
    }

    /// The keys of a script about these runs. Only a Cluster needs to be told all of them.
    pub(super) fn declared_keys<'a>(&self, place: &Place, runs: impl Iterator<Item = &'a RunId>) -> Vec<String> {
        if self.shared.link.is_cluster() { place.keys.declared(runs) } else { vec![place.keys.stream.clone()] }
    }

    /// Runs a script of a place that need not be confirmed.
    pub(super) async fn run_script(&self, script: &Script, place: &Place, runs: &[RunId], args: &Args) -> Result<Value, StoreError> {
        let keys = self.declared_keys(place, runs.iter());
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.shared.link.run_args(script, &keys, args).await
    }

    /// Asks about keys of several places. The trouble of one of them is its own.
    pub(super) async fn ask_places(&self, asks: &[Cmd]) -> Result<Vec<Value>, StoreError> {
        let replies = self.shared.link.ask_apart(asks).await;
        let or_nil = |reply: Result<Value, StoreError>| match reply {
            Err(error) if !self.shared.is_local(&error) => Err(error),
            reply => Ok(reply.unwrap_or(Value::Nil)),
        };
        replies.into_iter().map(or_nil).collect()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code under these locks can panic half way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
