//! Workers: how they come, leave, or fall silent.
//!
//! What is kept of a worker lies in the keys of all and in the keys of each function it offers, which may be different servers. So every
//! move is a row of steps, in an order in which a crash leaves something that is seen and repaired: a worker's record names its functions
//! for as long as any of them may know the worker. It is written before the offers and removed after them; what is left half-way is
//! completed by the worker's next register or heartbeat, or swept when its silence has lasted long enough.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::try_join_all;
use redis::Value;
use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::store::{StoreError, StoreTrouble};
use towpath_core::time::{Timestamp, millis};
use towpath_core::worker::{FunctionDefinition, HEALTHY_FOR, Offer, REMEMBERED_FOR, RegisterWorker, WorkerView};

use super::functions::{Definition, Offered};
use super::reply::{arguments, command, done, half_done, instant, read};
use super::scripts;
use crate::definition::{OfferRecord, WorkerRecord};
use crate::legacy::announce::Served;
use crate::store::RedisStore;
use crate::unreadable::{is_odd, of_key};

impl RedisStore {
    pub(crate) async fn register_worker(&self, worker: RegisterWorker) -> Result<(), StoreError> {
        let introduction = worker.clone();
        let RegisterWorker { worker_id, kind, offers } = worker;
        let now = self.shared.now();
        let (offers, definitions) = latest_of_each(offers);
        let before = self.known_offers(&worker_id).await?;
        let still = |dropped: &OfferRecord| offers.iter().any(|offer| offer.function == dropped.function);
        let dropped: Vec<FunctionKey> = before.into_iter().filter(|offer| !still(offer)).map(|offer| offer.function).collect();
        let record = WorkerRecord { kind, offers, registered_at: now };
        self.write_worker(&worker_id, &record, &definitions, &dropped).await.map_err(half_done)?;
        self.shared.said.forget(&introduction.worker_id);
        self.shared.incarnation.introduced(&introduction, now);
        Ok(())
    }

    async fn write_worker(
        &self,
        worker: &WorkerId,
        record: &WorkerRecord,
        definitions: &[FunctionDefinition],
        dropped: &[FunctionKey],
    ) -> Result<(), StoreError> {
        self.withdraw_from_all(worker, dropped, None).await?;
        self.withdraw_from_wire(worker, dropped).await?;
        let now = self.shared.now().as_millis().to_string();
        let (records, heartbeats) = (self.shared.keys.workers(), self.shared.keys.heartbeats());
        let global = [
            command("HSET", &[records.clone(), worker.to_string(), record.write()?]),
            command("ZADD", &[heartbeats.clone(), now, worker.to_string()]),
        ];
        for (key, reply) in [records, heartbeats].iter().zip(self.shared.link.insist(&global).await?) {
            done([reply]).map_err(|error| of_key(error, key))?;
        }
        let offers = record.offers.iter().zip(definitions).map(|(offer, definition)| async move {
            let offered = Offered { worker, concurrency: offer.concurrency };
            self.write_offer(definition, Definition::Replace, Some(offered)).await
        });
        let changed = try_join_all(offers).await?;
        self.announce(worker, definitions, record.registered_at).await?;
        let changed: Vec<_> = definitions.iter().map(|definition| &definition.key).zip(changed).collect();
        self.tell_of_functions(&changed).await;
        Ok(())
    }

    pub(super) async fn announce(&self, worker: &WorkerId, definitions: &[FunctionDefinition], since: Timestamp) -> Result<(), StoreError> {
        let now = self.shared.now();
        let say = definitions.iter().flat_map(|definition| {
            let stream = self.shared.keys.function(&definition.key).stream;
            let served = Served { worker, function: &definition.key };
            served.announce(&stream, definition.parameters.as_ref(), since, now)
        });
        heard_by_legacy_peers(worker, self.shared.link.insist(&say.collect::<Vec<_>>()).await?)
    }

    pub(super) async fn unregister_worker(&self, worker: &WorkerId) -> Result<u64, StoreError> {
        let functions: Vec<FunctionKey> = self.known_offers(worker).await?.into_iter().map(|offer| offer.function).collect();
        self.let_go(worker, &functions).await.map_err(half_done)
    }

    async fn let_go(&self, worker: &WorkerId, functions: &[FunctionKey]) -> Result<u64, StoreError> {
        self.withdraw_from_all(worker, functions, None).await?;
        let handed_back = self.give_back_all(worker).await?;
        self.withdraw_from_wire(worker, functions).await?;
        let remove = [
            command("ZREM", &[self.shared.keys.heartbeats().as_str(), worker.as_str()]),
            command("HDEL", &[self.shared.keys.workers().as_str(), worker.as_str()]),
        ];
        let keys = [self.shared.keys.heartbeats(), self.shared.keys.workers()];
        for (key, removed) in keys.iter().zip(self.shared.link.ask_all(&remove).await?) {
            done([removed]).map_err(|error| of_key(error, key))?;
        }
        self.shared.news.forget_worker(worker);
        self.shared.said.forget(worker);
        self.shared.incarnation.left(worker);
        self.shared.legacy.forget(functions);
        Ok(handed_back)
    }

    /// Workers whose silence has lasted so long that they are taken off the list, with the instant at which that was due, earliest first.
    pub(crate) async fn silent_workers(&self, limit: u32) -> Result<Vec<(Timestamp, WorkerId)>, StoreError> {
        let (heartbeats, silent_since) = (self.shared.keys.heartbeats(), self.silent_since().to_string());
        let limit = limit.to_string();
        let ask = command("ZRANGEBYSCORE", &[heartbeats.as_str(), "-inf", &silent_since, "WITHSCORES", "LIMIT", "0", &limit]);
        let asked = self.shared.link.ask(&ask).await.and_then(read::<Vec<(Vec<u8>, f64)>>);
        let (mut silent, mut no_workers) = (Vec::new(), Vec::new());
        for (worker, heard) in self.shared.or_pass_over(&heartbeats, asked, Vec::new())? {
            match read_worker_id(&worker) {
                Some(worker) => silent.push((instant(heard) + REMEMBERED_FOR, worker)),
                None => no_workers.push(worker),
            }
        }
        // A line that names no worker would be due forever.
        if !no_workers.is_empty() {
            no_workers.iter().for_each(|member| self.shared.pass_over(&heartbeats, member, "no worker has such a name; it is removed"));
            let mut remove = command("ZREM", &[&heartbeats]);
            remove.arg(&no_workers);
            self.shared.link.ask(&remove).await?;
        }
        Ok(silent)
    }

    /// When the next worker will have been silent for too long, if none of them is heard again.
    pub(crate) async fn next_silence(&self) -> Result<Option<Timestamp>, StoreError> {
        let heartbeats = self.shared.keys.heartbeats();
        let ask = command("ZRANGE", &[heartbeats.as_str(), "0", "0", "WITHSCORES"]);
        let asked = self.shared.link.ask(&ask).await.and_then(read::<Vec<(Vec<u8>, f64)>>);
        let first = self.shared.or_pass_over(&heartbeats, asked, Vec::new())?;
        Ok(first.first().map(|(_, heard)| instant(*heard) + REMEMBERED_FOR))
    }

    /// Takes a worker that is still silent off the list; what it holds stays its own until the lease ends. `false`: it was heard
    /// meanwhile, or somebody else has removed it.
    pub(crate) async fn remove_worker(&self, worker: &WorkerId) -> Result<bool, StoreError> {
        let silent_since = self.silent_since();
        if !self.is_silent(worker, silent_since).await? {
            return Ok(false);
        }
        let functions: Vec<FunctionKey> = self.known_offers(worker).await?.into_iter().map(|offer| offer.function).collect();
        if !self.withdraw_from_all(worker, &functions, Some(silent_since)).await? {
            return Ok(false);
        }
        self.withdraw_from_wire(worker, &functions).await.map_err(half_done)?;
        let forget = command("HDEL", &[self.shared.keys.workers().as_str(), worker.as_str()]);
        self.shared.link.ask(&forget).await.map_err(half_done)?;
        // Last, because only who stands here is found again should this process die on the way. A heartbeat that comes in between finds
        // no record and is told to register again.
        let heartbeats = self.shared.keys.heartbeats();
        let reply = self.shared.link.run(&scripts::GONE, &[&heartbeats], &arguments![worker, silent_since]).await.map_err(half_done)?;
        let (word,): (String,) = read(reply)?;
        if word == "gone" {
            self.shared.news.forget_worker(worker);
        }
        Ok(word == "gone")
    }

    async fn is_silent(&self, worker: &WorkerId, since: i64) -> Result<bool, StoreError> {
        let ask = command("ZSCORE", &[self.shared.keys.heartbeats().as_str(), worker.as_str()]);
        let heard: Option<f64> = read(self.shared.link.ask(&ask).await?)?;
        Ok(heard.is_some_and(|heard| instant(heard).as_millis() <= since))
    }

    fn silent_since(&self) -> i64 {
        self.shared.now().as_millis().saturating_sub(millis(REMEMBERED_FOR))
    }

    /// Whether it is no longer among those that offer these functions. `false`: it was heard after `silent_since`.
    async fn withdraw_from_all(&self, worker: &WorkerId, from: &[FunctionKey], silent_since: Option<i64>) -> Result<bool, StoreError> {
        let arguments = arguments![worker, silent_since.map(|at| at.to_string()).unwrap_or_default()];
        let arguments = &arguments;
        let rooms: Vec<_> = from.iter().flat_map(|function| self.partitions(function)).collect();
        let withdrawn = rooms.iter().map(|room| async move {
            let keys = &room.keys;
            let reply = match self.shared.link.run(&scripts::WITHDRAW, &[&keys.definition, &keys.workers], arguments).await {
                // One function's trouble keeps no worker from leaving the others.
                Err(error) if is_odd(&error) => {
                    self.shared.pass_over(&keys.workers, b"", self.explain(room, error).await);
                    return Ok(true);
                }
                reply => reply?,
            };
            let (word,): (String,) = read(reply)?;
            Ok::<_, StoreError>(word == "withdrawn")
        });
        Ok(try_join_all(withdrawn).await?.into_iter().all(|withdrawn| withdrawn))
    }

    /// Old callers no longer see it. A group forgets it only when nothing is pending for it there.
    async fn withdraw_from_wire(&self, worker: &WorkerId, functions: &[FunctionKey]) -> Result<(), StoreError> {
        let unsay = functions.iter().flat_map(|function| Served { worker, function }.withdraw());
        heard_by_legacy_peers(worker, self.shared.link.ask_all(&unsay.collect::<Vec<_>>()).await?)?;
        let rooms: Vec<_> = functions.iter().flat_map(|function| self.partitions(function)).collect();
        let leave = rooms.iter().map(|room| async move {
            let keys = &room.keys;
            self.shared.link.run(&scripts::LEAVE, &[&keys.stream], &arguments![keys.group, worker]).await
        });
        try_join_all(leave).await.map(drop)
    }

    /// What a worker said when it registered. A record that cannot be read counts as none: the worker registers again.
    async fn worker_record(&self, worker: &WorkerId) -> Result<Option<WorkerRecord>, StoreError> {
        let text = self.worker_text(worker).await?;
        Ok(text.and_then(|text| self.readable_worker(worker, &text)))
    }

    async fn worker_text(&self, worker: &WorkerId) -> Result<Option<Vec<u8>>, StoreError> {
        let key = self.shared.keys.workers();
        let ask = command("HGET", &[key.as_str(), worker.as_str()]);
        self.shared.link.ask(&ask).await.and_then(read).map_err(|error| of_key(error, &key))
    }

    pub(super) fn readable_worker(&self, worker: &WorkerId, text: &[u8]) -> Option<WorkerRecord> {
        let record = WorkerRecord::read(text);
        record.inspect_err(|error| self.shared.pass_over(&self.shared.keys.workers(), worker.as_str().as_bytes(), error)).ok()
    }

    /// What a worker offers, as far as it may stand with functions: all that are known, if its record cannot be read.
    async fn known_offers(&self, worker: &WorkerId) -> Result<Vec<OfferRecord>, StoreError> {
        let Some(text) = self.worker_text(worker).await? else { return Ok(Vec::new()) };
        if let Some(record) = self.readable_worker(worker, &text) {
            return Ok(record.offers);
        }
        let functions = self.functions_in_set().await?;
        Ok(functions.into_iter().map(|function| OfferRecord { function, concurrency: None }).collect())
    }

    /// What a worker on the list offers.
    pub(crate) async fn offers_of(&self, worker: &WorkerId) -> Result<Option<Vec<FunctionKey>>, StoreError> {
        let Some(record) = self.worker_record(worker).await? else { return Ok(None) };
        // One without a heartbeat is just being removed, or has not quite registered yet.
        let ask = command("ZSCORE", &[self.shared.keys.heartbeats().as_str(), worker.as_str()]);
        let heard: Option<f64> = read(self.shared.link.ask(&ask).await?)?;
        Ok(heard.map(|_| record.offers.into_iter().map(|offer| offer.function).collect()))
    }

    /// All workers, by id.
    pub(crate) async fn list_workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        let now = self.shared.now();
        let (records, heartbeats) = (self.shared.keys.workers(), self.shared.keys.heartbeats());
        let ask = [command("HGETALL", &[&records]), command("ZRANGE", &[heartbeats.as_str(), "0", "-1", "WITHSCORES"])];
        let mut replies = self.shared.link.ask_apart(&ask).await.into_iter();
        let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
        let records: BTreeMap<Vec<u8>, Vec<u8>> = self.shared.or_pass_over(&records, next().and_then(read), BTreeMap::new())?;
        let heartbeats: HashMap<Vec<u8>, f64> = self.shared.or_pass_over(&heartbeats, next().and_then(read), HashMap::new())?;
        let running = self.running_by_worker().await?;
        let mut workers = Vec::with_capacity(records.len());
        for (worker, record) in records {
            // One without a heartbeat is just being removed, or has not quite registered yet.
            let Some(last_heartbeat) = heartbeats.get(&worker).copied().map(instant) else { continue };
            let Some(worker_id) = read_worker_id(&worker) else {
                self.shared.pass_over(&self.shared.keys.workers(), &worker, "no worker has such a name; HDEL removes it");
                continue;
            };
            let Some(record) = self.readable_worker(&worker_id, &record) else { continue };
            workers.push(WorkerView {
                running: running.get(worker_id.as_str()).copied().unwrap_or(0),
                worker_id,
                kind: record.kind,
                functions: record.offers.into_iter().map(|offer| offer.function).collect(),
                registered_at: record.registered_at,
                last_heartbeat,
                healthy: now.since(last_heartbeat) < HEALTHY_FOR,
            });
        }
        workers.extend(self.list_legacy_workers().await?);
        workers.sort_by(|one, other| one.worker_id.cmp(&other.worker_id));
        Ok(workers)
    }

    /// How many calls each worker holds: of all functions, because it may hold calls of one that it no longer offers.
    async fn running_by_worker(&self) -> Result<HashMap<String, u64>, StoreError> {
        let mut running = HashMap::new();
        for partition in self.all_partitions().await? {
            let records = match self.running(&partition).await {
                // One function's trouble hides no worker.
                Err(error) if self.shared.is_local(&error) => continue,
                records => records?,
            };
            for holder in records.iter().filter_map(|record| record.call.holder.as_ref()) {
                *running.entry(holder.to_string()).or_default() += 1;
            }
        }
        Ok(running)
    }
}

/// Checks the replies to commands on the seeds' keys. Any program may keep something else under such a name: then legacy callers do not find the
/// worker there, and everything else works.
fn heard_by_legacy_peers(worker: &WorkerId, replies: Vec<redis::Value>) -> Result<(), StoreError> {
    for reply in replies {
        match read::<redis::Value>(reply) {
            Err(StoreError::Unavailable(StoreTrouble::WrongType(trouble))) => {
                tracing::warn!(%worker, trouble, "a key of the registry that legacy callers read holds something else");
            }
            other => drop(other?),
        }
    }
    Ok(())
}

/// Offered twice in one breath, a function's latter offer counts, in its latter place.
fn latest_of_each(offers: Vec<Offer>) -> (Vec<OfferRecord>, Vec<FunctionDefinition>) {
    let mut latest: Vec<Offer> = Vec::new();
    for offer in offers {
        latest.retain(|earlier| earlier.definition.key != offer.definition.key);
        latest.push(offer);
    }
    let record = |offer: Offer| (OfferRecord { function: offer.definition.key.clone(), concurrency: offer.concurrency }, offer.definition);
    latest.into_iter().map(record).unzip()
}

fn read_worker_id(name: &[u8]) -> Option<WorkerId> {
    WorkerId::new(std::str::from_utf8(name).ok()?).ok()
}
