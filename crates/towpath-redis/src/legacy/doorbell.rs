//! The doorbell: one blocking `XREAD` over the streams of all functions that claims of this process want calls of. It needs no group and
//! takes nothing; it says that a stream may have entries.
//!
//! In a Cluster streams lie on different servers, which one read cannot wait for. There the tick looks at their lengths once a second.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Value};
use tokio::sync::watch;
use towpath_core::store::StoreError;
use towpath_core::time::millis;

use super::entry::Place;
use super::reader::{self, BLOCK, BlockingRead};
use crate::calls::partition::Partition;
use crate::link::Reply;
use crate::registry::reply::command;
use crate::store::RedisStore;
use crate::value;

/// The streams that are listened to.
pub(super) struct Doorbell {
    streams: Mutex<BTreeMap<String, Stream>>,
    changes: watch::Sender<u64>,
    is_started: AtomicBool,
}

struct Stream {
    partition: Arc<Partition>,
    /// The entry after which the next one rings. `None`: the stream must be looked at first.
    after: Option<Place>,
}

impl Default for Doorbell {
    fn default() -> Self {
        Self { streams: Mutex::default(), changes: watch::Sender::new(0), is_started: AtomicBool::new(false) }
    }
}

impl Doorbell {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Stream>> {
        // No code that can panic runs under this lock.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The partitions that are listened to.
    pub(super) fn partitions(&self) -> Vec<Arc<Partition>> {
        self.lock().values().map(|stream| Arc::clone(&stream.partition)).collect()
    }

    /// All streams are looked at again.
    pub(super) fn doubt(&self) {
        self.lock().values_mut().for_each(|stream| stream.after = None);
    }
}

impl RedisStore {
    /// From now on this process hears when an entry comes into this partition's stream.
    pub(super) fn listen_to_stream(&self, partition: &Arc<Partition>) {
        let doorbell = &self.shared.legacy.doorbell;
        let stream = Stream { partition: Arc::clone(partition), after: None };
        doorbell.lock().insert(partition.keys.stream.clone(), stream);
        doorbell.changes.send_modify(|count| *count += 1);
        // Under a test's clock nothing is imported by itself, and a Cluster has no doorbell.
        if self.shared.lives_by_the_server && !self.shared.link.is_cluster() && !doorbell.is_started.swap(true, Ordering::AcqRel) {
            reader::start::<Ring>(self);
        }
    }

    /// In a Cluster: looks at the lengths of the streams that are listened to.
    pub(super) async fn look_at_lengths(&self) -> Result<(), StoreError> {
        let partitions = self.shared.legacy.doorbell.partitions();
        let asks: Vec<Cmd> = partitions.iter().map(|partition| command("XLEN", &[&partition.keys.stream])).collect();
        for (partition, length) in partitions.iter().zip(self.shared.link.ask_all(&asks).await?) {
            if value::number(&length).is_some_and(|length| length > 0) {
                self.stream_may_have_entries(partition);
            }
        }
        Ok(())
    }

    /// The newest entry of each stream. `None`: the key is not a stream.
    async fn newest_entries(&self, streams: &[String]) -> Result<Vec<Option<Place>>, StoreError> {
        let asks: Vec<Cmd> = streams.iter().map(|stream| command("XREVRANGE", &[stream.as_str(), "+", "-", "COUNT", "1"])).collect();
        let newest = |reply: Value| match reply {
            Value::Array(entries) => {
                let first = entries.first().and_then(|entry| if let Value::Array(parts) = entry { parts.first() } else { None });
                Some(first.and_then(value::text).and_then(Place::read).unwrap_or_default())
            }
            _wrong_type => None,
        };
        Ok(self.shared.link.ask_all(&asks).await?.into_iter().map(newest).collect())
    }

    /// These streams may have new entries. First their newest entry is read, then they are looked at: what comes later rings again.
    async fn ring(&self, streams: Vec<String>) -> Result<(), StoreError> {
        let newest = self.newest_entries(&streams).await?;
        let mut rung = Vec::new();
        let mut known = self.shared.legacy.doorbell.lock();
        for (name, newest) in streams.iter().zip(newest) {
            if let Some(stream) = known.get_mut(name) {
                // It may be smaller than before: another program has deleted the stream and made it again.
                stream.after = newest;
                rung.push(Arc::clone(&stream.partition));
            }
        }
        drop(known);
        rung.iter().for_each(|partition| self.stream_may_have_entries(partition));
        Ok(())
    }
}

struct Ring;

impl BlockingRead for Ring {
    const NAME: &'static str = "entries of legacy callers";

    async fn question(store: &RedisStore) -> Result<Option<(String, Cmd)>, StoreError> {
        let doorbell = &store.shared.legacy.doorbell;
        let new: Vec<String> = doorbell.lock().iter().filter(|(_, stream)| stream.after.is_none()).map(|(name, _)| name.clone()).collect();
        if !new.is_empty() {
            store.ring(new).await?;
        }
        let (mut names, mut places) = (Vec::new(), Vec::new());
        for (name, stream) in doorbell.lock().iter() {
            // A key of another type would refuse the whole read.
            if let Some(after) = stream.after {
                names.push(name.clone());
                places.push(after.to_string());
            }
        }
        let Some(first) = names.first().cloned() else { return Ok(None) };
        let mut read = Cmd::new();
        read.arg("XREAD").arg("COUNT").arg(1).arg("BLOCK").arg(millis(BLOCK)).arg("STREAMS").arg(names).arg(places);
        Ok(Some((first, read)))
    }

    async fn answer(store: RedisStore, reply: Reply) -> Result<(), StoreError> {
        let name = |stream: &Reply| stream.items().first().and_then(Reply::text).map(str::to_owned);
        let rung: Vec<String> = reply.items().iter().filter_map(name).collect();
        if rung.is_empty() { Ok(()) } else { store.ring(rung).await }
    }

    fn failed(store: &RedisStore) {
        store.shared.legacy.doorbell.doubt();
    }

    fn changes(store: &RedisStore) -> watch::Receiver<u64> {
        store.shared.legacy.doorbell.changes.subscribe()
    }
}
