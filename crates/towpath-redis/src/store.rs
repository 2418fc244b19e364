//! What an open store is made of.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Value};
use tokio::sync::{Notify, mpsc};
use towpath_core::call::RetryPolicy;
use towpath_core::clock::Clock;
use towpath_core::names::{CallId, FunctionKey};
use towpath_core::store::{Durability, StoreError, StoreTrouble};
use towpath_core::time::Timestamp;

use crate::batches::Batches;
use crate::calls::agenda::Agenda;
use crate::calls::handed::WrittenClaims;
use crate::calls::held::HeldCalls;
use crate::calls::partition::{Lanes, Partition};
use crate::calls::partitions::Partitions;
use crate::calls::replies;
use crate::calls::waiters::Waiters;
use crate::calls::waiting::Claims;
use crate::clock::ServerClock;
use crate::definition::read_definition;
use crate::durability::{self, Guarantee, Unfit, Wanted};
use crate::incarnation::{self, Incarnation};
use crate::keys::{Keys, unfit_for_cluster};
use crate::legacy::Legacy;
use crate::limits::{Crowds, Notebook};
use crate::link::{Link, Script, trouble};
use crate::listening::Listening;
use crate::locks::Locks;
use crate::locks::keys::SharedKeys;
use crate::news::{Heard, News};
use crate::options::RedisOptions;
use crate::pause::pause;
use crate::presence::{self, Presence};
use crate::registry::Said;
use crate::runs::Runs;
use crate::script::{Args, ArgsPool};
use crate::supervised::supervise;
use crate::unreadable::{Unreadable, of_key};
use crate::value;

/// A reply that the replicas did not confirm is tried again after this.
const CONFIRM_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The latest sequence that any store of this process has given out.
static LATEST_SEQUENCE: AtomicU64 = AtomicU64::new(0);
/// Sequences are scores of sorted sets, which are exact below this number.
const SEQUENCE_END: u64 = 1 << 53;

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
    /// The name of this process among those that wait for calls. No other process can guess it.
    pub(crate) process: String,
    pub(crate) news: News,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) claims: Claims,
    /// What is to be written down of claims that wait.
    pub(crate) written_claims: WrittenClaims,
    pub(crate) held: HeldCalls,
    pub(crate) agenda: Agenda,
    pub(crate) presence: Presence,
    /// The data set as it was when it was last looked at.
    pub(crate) incarnation: Arc<Incarnation>,
    pub(crate) legacy: Legacy,
    /// Checks of limits that wait to go together.
    pub(crate) crowds: Crowds,
    pub(crate) notebook: Notebook,
    /// What was said of each worker of this process, and when.
    pub(crate) said: Said,
    pub(crate) locks: Locks,
    pub(crate) batches: Batches,
    pub(crate) runs: Runs,
    pub(crate) partitions: Partitions,
    /// Keys and members that were met and cannot be read.
    pub(crate) unreadable: Unreadable,
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
        let tick = store.shared.options.timing.legacy_tick;
        supervise("legacy peers", &store, move || pause(tick), |store| async move { store.look_after_legacy_peers().await });
        let every = store.shared.options.timing.repair_every;
        supervise("repair", &store, move || pause(every), |store| async move { store.repair().await });
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
        check_format(&link, &keys).await?;
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
            process: secret_name(),
            news,
            waiters: Arc::default(),
            claims: Claims::default(),
            written_claims: WrittenClaims::default(),
            held: HeldCalls::default(),
            agenda: Agenda::default(),
            presence: Presence::default(),
            incarnation: Arc::new(incarnation),
            legacy: Legacy::default(),
            crowds: Crowds::default(),
            notebook: Notebook::default(),
            said: Said::default(),
            locks: Locks::new(lock_keys, !lives_by_the_server),
            batches: Batches::default(),
            runs: Runs::default(),
            partitions: Partitions::default(),
            unreadable: Unreadable::default(),
            lanes: Lanes::default(),
            pool: ArgsPool::default(),
        };
        let store = Self { shared: Arc::new(shared) };
        store.hear_replies();
        let signalled = |signal: &Arc<Notify>| {
            let signal = Arc::clone(signal);
            move || {
                let signal = Arc::clone(&signal);
                async move { signal.notified().await }
            }
        };
        supervise("claims", &store, signalled(&store.shared.claims.signal), |store| async move { store.serve_claims().await });
        supervise(
            "waiting claims",
            &store,
            signalled(&store.shared.written_claims.changed),
            |store| async move { store.write_claims().await },
        );
        tokio::spawn(pass_on(listen, Arc::downgrade(&store.shared)));
        tokio::spawn(durability::follow(Arc::downgrade(&store.shared), store.shared.link.lives()));
        tokio::spawn(incarnation::watch_for_ever(Arc::downgrade(&store.shared), store.shared.link.lives()));
        store.look_for_functions().await?;
        Ok(store)
    }

    /// The clock by which this store judges.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock)
    }

    /// Hears on the channel of this process how calls ended that it waits for, and which calls were handed to its claims.
    fn hear_replies(&self) {
        let (waiters, shared) = (Arc::clone(&self.shared.waiters), Arc::downgrade(&self.shared));
        let channel = self.shared.keys.replies(&self.shared.process);
        let must_be_confirmed = self.shared.guarantee.asks_replicas();
        self.shared.news.listening().listen_with(&channel, move |message| {
            let Some(store) = shared.upgrade().map(|shared| Self { shared }) else { return };
            match message {
                Some(message) if store.hear_handed_calls(message) => {}
                Some(message) if must_be_confirmed => {
                    tokio::spawn(hand_out_when_kept(Weak::clone(&shared), Arc::clone(&waiters), Bytes::copy_from_slice(message)));
                }
                Some(message) => replies::hand_out(&waiters, message),
                None => {
                    waiters.doubt_all();
                    store.write_claims_again();
                }
            }
        });
    }

    /// Makes sure that all that was written about a call is kept as well as was asked for.
    async fn confirm_call(&self, call_id: &CallId) -> Result<(), StoreError> {
        let mut partitions = self.partitions_named_by(call_id).await?;
        if partitions.is_empty() {
            partitions = self.partitions_reserved_for(call_id).await?;
        }
        for partition in partitions {
            self.shared.confirm(&partition.keys.calls).await?;
        }
        Ok(())
    }

    /// How a function's calls are retried.
    pub(crate) async fn retry_policy(&self, partition: &Partition) -> Result<RetryPolicy, StoreError> {
        let mut ask = Cmd::new();
        ask.arg("HGET").arg(&partition.keys.definition).arg("definition");
        let reply = self.shared.link.ask(&ask).await?;
        let policy =
            value::bytes(&reply).map_or(Ok(RetryPolicy::default()), |text| read_definition(text).map(|definition| definition.retry));
        policy.map_err(|error| of_key(error, &partition.keys.definition))
    }

    /// What this process remembers about a function; its first partition. Of a function that is not known it is remembered while it is used.
    pub(crate) fn partition(&self, function: &FunctionKey) -> Arc<Partition> {
        self.shard(function, 0)
    }

    /// One of the partitions that a function is spread over.
    pub(crate) fn shard(&self, function: &FunctionKey, shard: u16) -> Arc<Partition> {
        self.shared.partitions.get(function, shard, || {
            let lanes = if self.shared.link.is_cluster() { Lanes::default() } else { self.shared.lanes.clone() };
            Partition::new(&self.shared.keys, function, shard, lanes)
        })
    }

    /// All partitions of a function that may have calls.
    pub(crate) fn partitions(&self, function: &FunctionKey) -> Vec<Arc<Partition>> {
        let first = self.partition(function);
        let others = 1..=first.shards();
        std::iter::once(first).chain(others.map(|shard| self.shard(function, shard))).collect()
    }

    /// A function has, or had, that many more partitions.
    pub(crate) fn note_shards(&self, function: &FunctionKey, shards: u16) {
        if self.partition(function).note_shards(shards) {
            self.shared.claims.forget_list();
        }
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

    /// The partitions that this process has to do with.
    pub(crate) fn partitions_in_use(&self) -> Vec<Arc<Partition>> {
        self.shared.partitions.all()
    }

    /// All partitions of all functions that are known.
    pub(crate) async fn all_partitions(&self) -> Result<Vec<Arc<Partition>>, StoreError> {
        let members = self.members_of_the_set().await?;
        Ok(members.iter().map(|(function, shard)| self.shard(function, *shard)).collect())
    }

    /// Writes down what only this process knows. Workers unregister before. The tasks of the store end when the last clone is dropped.
    pub async fn close(&self) {
        self.shared.notebook.is_written().await;
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Sequences that are given out from now on are behind this one, unless it cannot be one.
    pub(crate) fn go_on_after(&self, sequence: i64) {
        let sequence = u64::try_from(sequence).unwrap_or(0);
        if sequence < SEQUENCE_END {
            LATEST_SEQUENCE.fetch_max(sequence, Ordering::Relaxed);
        }
    }

    /// The place of the next call in the order of submits: this microsecond, or the next that was not given out yet. Two processes may give
    /// out the same; it orders calls, and names none.
    pub(crate) fn next_sequence(&self, now: Timestamp) -> u64 {
        let micros = u64::try_from(now.as_millis()).unwrap_or(0).saturating_mul(1_000);
        let next = |latest: u64| Some(micros.max(latest + 1));
        let latest = LATEST_SEQUENCE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or(0);
        micros.max(latest + 1)
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

    pub(crate) async fn prove_writable(&self) -> Result<Option<StoreTrouble>, StoreError> {
        let mut write = Cmd::new();
        write.arg("SET").arg(self.keys.probe()).arg(self.now().as_millis()).arg("PX").arg(60_000);
        match self.link.ask(&write).await.and_then(value::checked) {
            Ok(_written) => Ok(None),
            // Full memory takes nothing new; what finishes work is written all the same.
            Err(StoreError::Unavailable(full @ StoreTrouble::Full(_))) => {
                let replies = self.link.insist(&[write]).await?;
                replies.into_iter().try_for_each(|reply| value::checked(reply).map(drop))?;
                Ok(Some(full))
            }
            Err(error) => Err(error),
        }
    }
}

/// Hands out replies once the replicas have what they say. It does not keep the store open, and a call without a waiter needs no reply.
async fn hand_out_when_kept(shared: Weak<Shared>, waiters: Arc<Waiters>, message: Bytes) {
    for (call_id, news) in replies::read_all(&waiters, &message) {
        while waiters.has_waiter(&call_id) {
            let Some(shared) = shared.upgrade() else { return };
            match (RedisStore { shared }).confirm_call(&call_id).await {
                Ok(()) => {
                    waiters.tell(&call_id, &news);
                    break;
                }
                Err(error) => tracing::debug!(%error, %call_id, "an outcome is not confirmed by the replicas yet"),
            }
            pause(CONFIRM_AGAIN_AFTER).await;
        }
    }
}

/// Tells the claims that wait what was heard from other processes.
async fn pass_on(mut heard: mpsc::UnboundedReceiver<Heard>, shared: Weak<Shared>) {
    while let Some(what) = heard.recv().await {
        let Some(shared) = shared.upgrade() else { return };
        match what {
            Heard::Ready(function) => shared.partitions.of(&function).iter().for_each(|partition| partition.note_work()),
            Heard::LookAgain => {
                for partition in shared.partitions.all() {
                    partition.legacy.note_entries();
                    partition.note_work();
                }
                shared.agenda.doubt();
                shared.runs.wake();
            }
        }
        shared.claims.signal.notify_one();
    }
}

/// Writes down the format of an empty data set, and refuses one of another format.
async fn check_format(link: &Link, keys: &Keys) -> Result<(), StoreError> {
    const FORMAT: &str = "4";
    let format = keys.format();
    let command = |words: &[&str]| {
        let mut command = Cmd::new();
        command.arg(words);
        command
    };
    let old_keys = [format!("{}:sequence", keys.prefix()), format!("{}:where", keys.prefix())];
    let found = link.ask(&command(&["GET", &format])).await.map_err(|error| of_key(error, &format))?;
    if value::text(&found).is_none() {
        for key in &old_keys {
            if value::number(&link.ask(&command(&["EXISTS", key])).await?) == Some(1) {
                return Err(trouble(format!(
                    "this Redis holds data of an earlier, unreleased format of Towpath (key {key}): this version cannot read it. Work it off \
                     with the version that wrote it, delete the keys {}:* and start again, or choose another prefix (`prefix=WORD` in the URL)",
                    keys.prefix()
                )));
            }
        }
        link.insist(&[command(&["SET", &format, FORMAT, "NX"])])
            .await?
            .into_iter()
            .try_for_each(|reply| value::checked(reply).map(drop))?;
        return Ok(());
    }
    match value::text(&found) {
        Some(FORMAT) => Ok(()),
        other => Err(trouble(format!(
            "this Redis holds data of format {}, and this version of Towpath writes format {FORMAT}: use the version that wrote it, or choose \
             another prefix (`prefix=WORD` in the URL)",
            other.unwrap_or("unknown")
        ))),
    }
}

/// Measures the server's clock again now and then, and at every new connection.
async fn follow_the_server(shared: Weak<Shared>, clock: ServerClock) {
    const EVERY: Duration = Duration::from_secs(5);
    let Some(mut lives) = shared.upgrade().map(|shared| shared.link.lives()) else { return };
    loop {
        tokio::select! {
            _ = lives.changed() => {}
            () = pause(EVERY) => {}
        }
        let Some(shared) = shared.upgrade() else { return };
        if let Err(error) = clock.measure(&shared.link).await {
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
