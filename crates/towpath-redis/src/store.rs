//! What an open store is made of.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::mpsc;
use towpath_core::call::RetryPolicy;
use towpath_core::clock::Clock;
use towpath_core::names::FunctionKey;
use towpath_core::store::{Durability, StoreError};
use towpath_core::time::Timestamp;

use crate::agenda::Agenda;
use crate::batches::Batches;
use crate::calls::ears::Ears;
use crate::calls::inbox::Inboxes;
use crate::calls::old_peers::ReplyLists;
use crate::calls::queue::Queue;
use crate::clock::ServerClock;
use crate::definition::read_definition;
use crate::durability::{Guarantee, Unfit, Wanted};
use crate::held::HeldCalls;
use crate::incarnation::{self, Incarnation};
use crate::keys::{Keys, unfit_for_cluster};
use crate::limits::{Crowds, Notebook};
use crate::link::{Link, Script, Transaction, trouble};
use crate::listening::Listening;
use crate::locks::Locks;
use crate::locks::keys::SharedKeys;
use crate::news::{Heard, News};
use crate::options::RedisOptions;
use crate::pause::pause;
use crate::presence::{self, Presence};
use crate::quick::QuickMap;
use crate::registry::{PeersSeen, Said};
use crate::room::{Lanes, Room};
use crate::script::{Args, ArgsPool};
use crate::sweep::{sweep_for_ever, tend_for_ever};
use crate::value;

/// A store on Redis. Clones share it.
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) options: RedisOptions,
    pub(crate) keys: Keys,
    pub(crate) link: Link,
    /// It lives by the server's clock, not by one that a test moves.
    pub(crate) lives_by_the_server: bool,
    /// The clock that judges.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) guarantee: Guarantee,
    /// Our name on reply lists; nobody else can guess it.
    pub(crate) caller: String,
    pub(crate) news: News,
    pub(crate) ears: Ears,
    pub(crate) inboxes: Inboxes,
    pub(crate) reply_lists: ReplyLists,
    pub(crate) queue: Queue,
    pub(crate) held: HeldCalls,
    pub(crate) agenda: Agenda,
    pub(crate) presence: Presence,
    /// The data set as it was when it was last looked at.
    pub(crate) incarnation: Arc<Incarnation>,
    /// What was last seen of each function's workers on the wire.
    pub(crate) peers_seen: PeersSeen,
    /// Checks of limits that wait to go together.
    pub(crate) crowds: Crowds,
    pub(crate) notebook: Notebook,
    /// What was said of each worker of this process, and when.
    pub(crate) said: Said,
    pub(crate) locks: Locks,
    pub(crate) batches: Batches,
    rooms: Mutex<QuickMap<FunctionKey, BTreeMap<u16, Arc<Room>>>>,
    lanes: Lanes,
    pub(crate) pool: ArgsPool,
}

impl RedisStore {
    /// Connects, and lives by the server's clock, carried on by `base`.
    pub async fn open(options: RedisOptions, base: Arc<dyn Clock>) -> Result<Self, Unfit> {
        let link = Link::open(&options).await?;
        let clock = ServerClock::new(base);
        clock.measure(&link).await?;
        let store = Self::start(options, link, Arc::new(clock.clone()), true).await?;
        tokio::spawn(follow_the_server(Arc::downgrade(&store.shared), clock));
        tokio::spawn(sweep_for_ever(Arc::downgrade(&store.shared)));
        tokio::spawn(tend_for_ever(Arc::downgrade(&store.shared)));
        tokio::spawn(presence::watch_for_ever(Arc::downgrade(&store.shared)));
        Ok(store)
    }

    /// Connects, and lives by the given clock alone. For tests, which move it.
    pub async fn open_by_clock(options: RedisOptions, clock: Arc<dyn Clock>) -> Result<Self, Unfit> {
        let link = Link::open(&options).await?;
        Self::start(options, link, clock, false).await
    }

    async fn start(options: RedisOptions, link: Link, clock: Arc<dyn Clock>, lives_by_the_server: bool) -> Result<Self, Unfit> {
        let guarantee = Guarantee::read(&link, Wanted::from(&options)).await?;
        let keys = Keys::of(&options);
        let incarnation = Incarnation::find(&link, &keys).await?;
        let (heard, listen) = mpsc::unbounded_channel();
        let lock_keys = SharedKeys::new(&options.prefix, options.database, link.is_cluster());
        let news = News::start(link.clone(), keys.news(options.database), Listening::default(), heard).await?;
        let shared = Shared {
            options,
            keys,
            link,
            lives_by_the_server,
            clock,
            guarantee,
            caller: secret_name(),
            news,
            ears: Ears::default(),
            inboxes: Inboxes::default(),
            reply_lists: ReplyLists::default(),
            queue: Queue::default(),
            held: HeldCalls::default(),
            agenda: Agenda::default(),
            presence: Presence::default(),
            incarnation: Arc::new(incarnation),
            peers_seen: PeersSeen::default(),
            crowds: Crowds::default(),
            notebook: Notebook::default(),
            said: Said::default(),
            locks: Locks::new(lock_keys, !lives_by_the_server),
            batches: Batches::default(),
            rooms: Mutex::default(),
            lanes: Lanes::default(),
            pool: ArgsPool::default(),
        };
        let store = Self { shared: Arc::new(shared) };
        tokio::spawn(pass_on(listen, Arc::downgrade(&store.shared)));
        tokio::spawn(incarnation::watch_for_ever(Arc::downgrade(&store.shared), store.shared.link.lives()));
        store.look_for_functions().await?;
        Ok(store)
    }

    /// The clock by which this store judges.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock)
    }

    /// How a function's calls are retried.
    pub(crate) async fn retry_policy(&self, room: &Room) -> Result<RetryPolicy, StoreError> {
        let mut ask = Cmd::new();
        ask.arg("HGET").arg(&room.keys.definition).arg("definition");
        let reply = self.shared.link.ask(&ask).await?;
        value::bytes(&reply).map_or(Ok(RetryPolicy::default()), |text| read_definition(text).map(|definition| definition.retry))
    }

    /// Looks up or makes what this process keeps in mind about a function.
    pub(crate) fn room(&self, function: &FunctionKey) -> Arc<Room> {
        self.shard(function, 0)
    }

    /// The same of one of the streams that a function is spread over.
    pub(crate) fn shard(&self, function: &FunctionKey, shard: u16) -> Arc<Room> {
        let mut rooms = self.shared.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let shards = match rooms.get_mut(function) {
            Some(shards) => shards,
            None => rooms.entry(function.clone()).or_default(),
        };
        if let Some(room) = shards.get(&shard) {
            return Arc::clone(room);
        }
        let lanes = if self.shared.link.is_cluster() { Lanes::default() } else { self.shared.lanes.clone() };
        let room = Arc::new(Room::new(&self.shared.keys, function, shard, lanes));
        shards.insert(shard, Arc::clone(&room));
        room
    }

    /// All streams of a function that may have calls.
    pub(crate) fn shards(&self, function: &FunctionKey) -> Vec<Arc<Room>> {
        let first = self.room(function);
        let others = 1..=first.shards();
        std::iter::once(first).chain(others.map(|shard| self.shard(function, shard))).collect()
    }

    /// Refuses a function that cannot be kept here.
    pub(crate) fn check_place(&self, function: &FunctionKey) -> Result<(), StoreError> {
        if !self.shared.link.is_cluster() {
            return Ok(());
        }
        match unfit_for_cluster(function) {
            Some(why) => Err(trouble(why)),
            None => Ok(()),
        }
    }

    /// The functions that this process has to do with.
    pub(crate) fn rooms_in_use(&self) -> Vec<Arc<Room>> {
        self.shared.rooms.lock().unwrap_or_else(PoisonError::into_inner).values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// All functions that are known.
    pub(crate) async fn all_rooms(&self) -> Result<Vec<Arc<Room>>, StoreError> {
        let members = self.members_of_the_set().await?;
        Ok(members.iter().map(|(function, shard)| self.shard(function, *shard)).collect())
    }

    /// Leaves nothing of this process on the server: its reply lists go. Workers unregister before. What runs beside the store ends when
    /// the last clone is dropped.
    pub async fn close(&self) {
        if let Err(error) = self.write_down_all_deliveries().await {
            tracing::warn!(%error, "deliveries were not written down; their leases will run out");
        }
        self.shared.notebook.is_written().await;
        for inbox in self.shared.inboxes.all() {
            let mut forget = Cmd::new();
            forget.arg("DEL").arg(inbox);
            if let Err(error) = self.shared.link.ask(&forget).await {
                tracing::debug!(%error, "a reply list stays until it expires");
            }
        }
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// What an acknowledgement is worth here.
    pub(crate) fn durability(&self) -> Durability {
        self.guarantee.level()
    }

    /// Runs a script that takes something, and makes sure that it is kept as well as was asked for.
    pub(crate) async fn run_durably(&self, script: &Script, keys: &[&str], args: &Args) -> Result<(Value, Durability), StoreError> {
        let confirm = self.guarantee.commands_after_write(&self.keys.confirmed(keys.first().copied().unwrap_or_default()));
        if confirm.is_empty() {
            let reply = self.link.run_args(script, keys, args).await?;
            return Ok((reply, self.guarantee.judge(&[])?));
        }
        let (reply, confirmed) = self.link.run_with(script, keys, args, &confirm).await?;
        Ok((reply, self.guarantee.judge(&confirmed)?))
    }

    /// A connection for a script with something beside it. `None` also where replicas are to confirm it, which costs more than it spares.
    pub(crate) async fn transaction(&self) -> Option<Transaction<'_>> {
        if self.guarantee.asks_replicas() { None } else { self.link.transaction().await }
    }

    /// Makes sure that whatever lies beside this key is kept as well as was asked for: what was written before by others, too.
    pub(crate) async fn confirm(&self, beside: &str) -> Result<(), StoreError> {
        let confirm = self.guarantee.commands_after_write(&self.keys.confirmed(beside));
        if confirm.is_empty() {
            return Ok(());
        }
        let confirmed = self.link.ask_and_wait(&confirm).await?;
        self.guarantee.judge(&confirmed).map(drop)
    }

    pub(crate) fn location(&self) -> String {
        self.options.to_string()
    }

    pub(crate) async fn prove_writable(&self) -> Result<(), StoreError> {
        let mut write = Cmd::new();
        write.arg("SET").arg(self.keys.probe()).arg(self.now().as_millis()).arg("PX").arg(60_000);
        self.link.insist(&[write]).await?.into_iter().try_for_each(|reply| value::checked(reply).map(drop))
    }
}

/// Tells the claims that wait what was heard from other processes.
async fn pass_on(mut heard: mpsc::UnboundedReceiver<Heard>, shared: Weak<Shared>) {
    while let Some(what) = heard.recv().await {
        let Some(shared) = shared.upgrade() else { return };
        let rooms = shared.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        match what {
            Heard::Ready(function) => {
                rooms.get(&function).into_iter().flat_map(BTreeMap::values).for_each(|room| room.ring());
            }
            Heard::LookAgain => rooms.values().flat_map(BTreeMap::values).for_each(|room| room.ring()),
        }
    }
}

/// Measures the server's clock again now and then, and at every new connection looks anew at what it promises.
async fn follow_the_server(shared: Weak<Shared>, clock: ServerClock) {
    const EVERY: Duration = Duration::from_secs(30);
    let Some(mut lives) = shared.upgrade().map(|shared| shared.link.lives()) else { return };
    loop {
        let reconnected = tokio::select! {
            changed = lives.changed() => changed.is_ok(),
            () = pause(EVERY) => false,
        };
        let Some(shared) = shared.upgrade() else { return };
        let followed = async {
            clock.measure(&shared.link).await?;
            if reconnected {
                shared.guarantee.read_again(&shared.link).await?;
            }
            Ok::<(), StoreError>(())
        };
        if let Err(error) = followed.await {
            tracing::debug!(%error, "the server could not be asked for its time");
        }
    }
}

/// A name with 128 random bits.
pub(crate) fn secret_name() -> String {
    // The standard library seeds its hashers from the operating system's randomness.
    let bits = || RandomState::new().hash_one(0_u8);
    format!("{:016x}{:016x}", bits(), bits())
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("place", &self.shared.options.place).finish_non_exhaustive()
    }
}
