//! How workers say that they live, as cheaply as possible: most of the time nothing else happens.
//!
//! A heartbeat counts from the moment it stands in the one sorted set of all workers. What old callers read, one hash per function, is
//! brought up to date with every second one, as is the set of all functions; all the rest is said again now and then, in case another program
//! took it away.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use towpath_core::names::WorkerId;
use towpath_core::store::{Heartbeat, StoreError, StoreTrouble};
use towpath_core::time::Timestamp;

use super::reply::{command, next, read};
use crate::definition::{OfferRecord, WorkerRecord, read_definition, shard_member};
use crate::legacy::announce::Served;
use crate::store::RedisStore;
use crate::unreadable::of_key;

/// Old callers take a worker for healthy whose hash is younger than 30 s. Heartbeats come every ten seconds and all are told; of a worker with
/// many functions every second one, which leaves ten seconds for one that is late.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(5);
const MANY_TOLD_AGAIN_AFTER: Duration = Duration::from_secs(15);
const MANY: usize = 8;
/// Everything is said again that often. Whoever misses something sooner finds it out in another way: a reader its group, a heartbeat its
/// worker and its hash.
const REPEATED_AFTER: Duration = Duration::from_secs(600);
/// Of more workers than this, those that were not heard for long are forgotten here, and begin anew.
const WORKERS_MAX: usize = 4_096;

/// What this process has said of each worker, and when.
#[derive(Debug, Default)]
pub(crate) struct Said(Mutex<HashMap<WorkerId, Told>>);

#[derive(Clone, Copy, Debug)]
struct Told {
    /// When its hashes were last brought up to date.
    at: Timestamp,
    /// When everything was last said, and how many connections had been made by then.
    all_at: Timestamp,
    connection: u64,
}

/// How much is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saying {
    Nothing,
    Hashes,
    Everything,
}

impl Said {
    fn what_is_left(&self, worker: &WorkerId, functions: usize, now: Timestamp, connection: u64) -> Saying {
        let told_again_after = if functions < MANY { TOLD_AGAIN_AFTER } else { MANY_TOLD_AGAIN_AFTER };
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match said.get(worker) {
            Some(told) if told.connection != connection || now.since(told.all_at) >= REPEATED_AFTER => Saying::Everything,
            Some(told) if now.since(told.at) >= told_again_after => Saying::Hashes,
            Some(_) => Saying::Nothing,
            None => Saying::Everything,
        }
    }

    fn note(&self, worker: &WorkerId, saying: Saying, now: Timestamp, connection: u64) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if saying == Saying::Everything {
            if said.len() >= WORKERS_MAX {
                said.retain(|_, told| now.since(told.at) < REPEATED_AFTER);
            }
            said.insert(worker.clone(), Told { at: now, all_at: now, connection });
        } else if let Some(told) = said.get_mut(worker) {
            told.at = now;
        }
    }

    /// The next heartbeat of this worker says everything.
    pub(super) fn forget(&self, worker: &WorkerId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(worker);
    }
}

impl RedisStore {
    pub(super) async fn hear_worker(&self, worker: &WorkerId) -> Result<Heartbeat, StoreError> {
        let (now, heartbeats) = (self.shared.now(), self.shared.keys.heartbeats());
        // Both must know it: a worker that is just being removed has only one of them left.
        let ask = [
            command("ZADD", &[heartbeats.as_str(), "XX", &now.as_millis().to_string(), worker.as_str()]),
            command("ZSCORE", &[heartbeats.as_str(), worker.as_str()]),
            command("HGET", &[self.shared.keys.workers().as_str(), worker.as_str()]),
        ];
        let mut replies = self.shared.link.insist(&ask).await?.into_iter();
        let of_heartbeats = |error: StoreError| of_key(error, &heartbeats);
        let _heard: Value = next(&mut replies).map_err(of_heartbeats)?;
        let score: Option<f64> = next(&mut replies).map_err(of_heartbeats)?;
        let record: Option<Vec<u8>> = next(&mut replies).map_err(|error| of_key(error, &self.shared.keys.workers()))?;
        // A record that cannot be read is written anew when the worker registers again.
        let heard = match (score, record.and_then(|record| self.readable_worker(worker, &record))) {
            // The heartbeat counts. What could not be said again, because one node of a Cluster is away, is said with the next one.
            (Some(_), Some(record)) => self.say(worker, &record, now).await.unwrap_or_else(|error| {
                tracing::warn!(%worker, %error, "not everything about this worker could be said again; the next heartbeat does it");
                Heartbeat::Known
            }),
            _ => Heartbeat::Unknown,
        };
        match heard {
            Heartbeat::Known => self.shared.incarnation.heard(worker, now),
            Heartbeat::Unknown => {
                self.shared.said.forget(worker);
                self.shared.incarnation.doubt();
            }
        }
        Ok(heard)
    }

    /// Says again what is not known well enough.
    async fn say(&self, worker: &WorkerId, record: &WorkerRecord, now: Timestamp) -> Result<Heartbeat, StoreError> {
        let connection = *self.shared.link.lives().borrow();
        let saying = self.shared.said.what_is_left(worker, record.offers.len(), now, connection);
        let heard = match saying {
            Saying::Nothing => return Ok(Heartbeat::Known),
            Saying::Hashes => self.tell_old_callers(worker, record, now).await?,
            Saying::Everything => self.repeat_offers(worker, record, now).await?,
        };
        if heard == Heartbeat::Known {
            self.shared.said.note(worker, saying, now, connection);
        }
        Ok(heard)
    }

    /// Brings the hashes up to date that old callers read, and the set of all functions. If one of them was gone, more may be: then everything is
    /// said again.
    async fn tell_old_callers(&self, worker: &WorkerId, record: &WorkerRecord, now: Timestamp) -> Result<Heartbeat, StoreError> {
        let list = (!record.offers.is_empty()).then(|| self.list_again(&record.offers));
        let live = record.offers.iter().map(|offer| Served { worker, function: &offer.function }.live(now));
        let tell: Vec<_> = live.chain(list).collect();
        let mut replies = self.shared.link.insist(&tell).await?;
        let listed = replies.split_off(record.offers.len());
        let mut one_was_gone = self.number_listed(listed)? > 0;
        for was_gone in replies {
            match read::<bool>(was_gone) {
                // Another program keeps something else there; registering has warned of it.
                Err(StoreError::Unavailable(StoreTrouble::WrongType(_))) => {}
                was_gone => one_was_gone |= was_gone?,
            }
        }
        if one_was_gone { self.repeat_offers(worker, record, now).await } else { Ok(Heartbeat::Known) }
    }

    /// Says again all that may have been lost: to an old worker that destroyed the group, to a key that expired, to a sweep that ran
    /// beside this heartbeat.
    async fn repeat_offers(&self, worker: &WorkerId, record: &WorkerRecord, now: Timestamp) -> Result<Heartbeat, StoreError> {
        let commands: Vec<_> = record.offers.iter().flat_map(|offer| self.offer_again(worker, offer, 0, now)).collect();
        let definitions = self.defined(&commands, record.offers.len()).await?;
        let Some(definitions) = definitions else { return Ok(Heartbeat::Unknown) };
        // A definition that cannot be read is written anew when the worker registers again.
        let definitions = definitions.iter().map(|definition| read_definition(definition)).collect::<Result<Vec<_>, _>>();
        let Ok(definitions) = definitions else { return Ok(Heartbeat::Unknown) };
        let shards = definitions.iter().map(|definition| definition.limits.shards.unwrap_or(0));
        let others: Vec<(&OfferRecord, u16)> =
            record.offers.iter().zip(shards).flat_map(|(offer, shards)| (1..=shards).map(move |shard| (offer, shard))).collect();
        let commands: Vec<_> = others.iter().flat_map(|(offer, shard)| self.offer_again(worker, offer, *shard, now)).collect();
        if self.defined(&commands, others.len()).await?.is_none() {
            return Ok(Heartbeat::Unknown);
        }
        self.announce(worker, &definitions, record.registered_at).await?;
        record.offers.iter().for_each(|offer| self.make_group_again(&offer.function));
        Ok(Heartbeat::Known)
    }

    /// Says offers again, and returns the definitions that stand with them. `None`: one is missing.
    async fn defined(&self, offers: &[redis::Cmd], count: usize) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        let mut replies = self.shared.link.insist(offers).await?.into_iter();
        let mut definitions = Vec::with_capacity(count);
        for _offer in 0..count {
            let definition: Option<Vec<u8>> = next(&mut replies)?;
            let Some(definition) = definition else { return Ok(None) };
            definitions.push(definition);
            self.number_listed(replies.next())?;
            let (_heard, _offered): (Value, Value) = (next(&mut replies)?, next(&mut replies)?);
        }
        Ok(Some(definitions))
    }

    /// Puts functions into the set of all functions.
    fn list_again(&self, offers: &[OfferRecord]) -> redis::Cmd {
        let mut list = command("SADD", &[self.shared.keys.functions()]);
        for offer in offers {
            list.arg(shard_member(&offer.function, 0));
        }
        list
    }

    /// How many functions were missing in the set. A set that another program has replaced keeps no worker from saying the rest.
    fn number_listed(&self, replies: impl IntoIterator<Item = Value>) -> Result<u64, StoreError> {
        let listed = replies.into_iter().map(|reply| self.shared.or_pass_over(&self.shared.keys.functions(), read::<u64>(reply), 0));
        listed.sum()
    }

    fn offer_again(&self, worker: &WorkerId, offer: &OfferRecord, shard: u16, now: Timestamp) -> [redis::Cmd; 4] {
        let keys = self.shared.keys.shard(&offer.function, shard);
        let field = format!("offer:{worker}");
        [
            command("HGET", &[keys.definition.as_str(), "definition"]),
            command("SADD", &[self.shared.keys.functions(), shard_member(&offer.function, shard)]),
            command("ZADD", &[keys.workers, now.as_millis().to_string(), worker.to_string()]),
            match offer.concurrency {
                Some(concurrency) => command("HSET", &[keys.definition, field, concurrency.to_string()]),
                None => command("HDEL", &[keys.definition, field]),
            },
        ]
    }

    /// When each of these workers was last heard, in this order.
    pub(crate) async fn latest_heartbeats(&self, workers: &[String]) -> Result<Vec<Option<f64>>, StoreError> {
        if workers.is_empty() {
            return Ok(Vec::new());
        }
        let heartbeats = self.shared.keys.heartbeats();
        let mut ask = command("ZMSCORE", &[&heartbeats]);
        ask.arg(workers);
        let asked = self.shared.link.ask(&ask).await.and_then(read);
        self.shared.or_pass_over(&heartbeats, asked, vec![None; workers.len()])
    }
}
