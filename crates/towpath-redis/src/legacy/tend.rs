//! Looks after the stream of one function: decides what became of exported calls, takes over entries of dead workers, and exports.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::store::StoreError;

use super::CONSUMER;
use super::answers::sent_mark;
use super::consumers::Consumers;
use super::entry::{Entry, Place};
use super::import::If;
use super::look::{Look, items, lossy, since};
use super::peers::Serving;
use super::scripts::CONSUMERS;
use crate::calls::partition::Partition;
use crate::calls::record::Record;
use crate::registry::reply::command;
use crate::script::Args;
use crate::store::RedisStore;
use crate::value;

/// So many entries of dead workers are taken over by one tick.
const TAKEN_OVER_MAX: usize = 16;
/// A consumer that holds no entry and has not asked for one in this long is removed.
const CONSUMER_KEPT: Duration = Duration::from_secs(86_400);
/// So many consumers are removed at once.
const CONSUMERS_MAX: usize = 100;

impl RedisStore {
    /// Looks after the stream of one partition.
    pub(super) async fn tend(&self, partition: &Arc<Partition>) -> Result<(), StoreError> {
        let serving = self.last_serving(&partition.function).unwrap_or_default();
        // What comes from now on is for the next tick.
        partition.legacy.is_tended.store(false, Ordering::Release);
        let tended = self.tend_once(partition, &serving).await;
        if !matches!(tended, Ok(true)) || serving.has_legacy {
            partition.legacy.tend();
        }
        tended.map(drop)
    }

    /// `true`: there is nothing to look after.
    async fn tend_once(&self, partition: &Arc<Partition>, serving: &Serving) -> Result<bool, StoreError> {
        let notes = partition.legacy.notes_next.load(Ordering::Relaxed);
        let look = self.look_at_stream(partition, serving.has_legacy, notes).await?;
        partition.legacy.notes_next.store(look.notes_next, Ordering::Relaxed);
        if look.has_unread {
            partition.legacy.note_entries();
            self.work_came(partition);
        }
        let names = self.names_of_consumers(partition, &look).await?;
        let consumers = Consumers {
            names: names.iter().map(|(name, idle)| (name.as_str(), *idle)).collect(),
            workers: &serving.legacy,
            abandoned_after: self.shared.options.timing.abandoned_after,
            now: self.shared.now(),
        };
        let exported: Vec<Arc<Record>> = look.exported.iter().chain(&look.running).map(Arc::clone).collect();
        self.decide_on_exported(partition, &look, &exported, &consumers).await?;
        self.forget_replies(partition, &look, &exported).await?;
        let places: HashSet<Place> = exported.iter().filter_map(|record| Place::read(&record.exported)).collect();
        self.take_over(partition, &look, &places, &consumers).await?;
        self.adopt_missed(partition, &look).await?;
        self.answer_owed(partition, &look.owed).await?;
        self.export_for(partition, serving, look.oldest_queued).await?;
        Ok(look.is_quiet())
    }

    /// The consumers of the group, and since when each has not asked for entries. They are asked for only if an entry idles so long that its
    /// consumer may be dead: there can be thousands of them.
    async fn names_of_consumers(&self, partition: &Partition, look: &Look) -> Result<Vec<(String, Duration)>, StoreError> {
        let (keys, now) = (&partition.keys, self.shared.now());
        let held = look.pending.values().filter(|pending| pending.consumer != CONSUMER).map(|pending| pending.idle);
        let longest = held.max().unwrap_or_default().max(partition.legacy.without_entry().longest(now));
        if longest < self.shared.options.timing.abandoned_after {
            return Ok(Vec::new());
        }
        let ask = [command("XINFO", &["CONSUMERS", keys.stream.as_str(), &keys.group])];
        let reply = self.shared.link.ask_all(&ask).await?.pop().unwrap_or(Value::Nil);
        let (mut names, mut left) = (Vec::new(), Args::default());
        left.push(&keys.group);
        for consumer in items(&reply) {
            let about = |name: &str| items(consumer).chunks_exact(2).find(|pair| value::text(&pair[0]) == Some(name)).map(|pair| &pair[1]);
            let (Some(name), Some(pending), Some(idle)) = (about("name"), about("pending"), about("idle")) else { continue };
            let (shown, idle) = (lossy(name), since(idle));
            if idle >= CONSUMER_KEPT && value::number(pending) == Some(0) && !shown.starts_with(CONSUMER) && left.len() <= CONSUMERS_MAX {
                left.push(value::bytes(name).unwrap_or_default());
            }
            names.push((shown, idle));
        }
        if left.len() > 1 {
            self.shared.link.run_args(&CONSUMERS, &[&keys.stream], &left).await?;
        }
        Ok(names)
    }

    /// Imports entries of legacy callers that a dead worker, or a dead process of Towpath, has read.
    async fn take_over(
        &self,
        partition: &Arc<Partition>,
        look: &Look,
        exported: &HashSet<Place>,
        consumers: &Consumers<'_>,
    ) -> Result<(), StoreError> {
        let is_ours = |place: &Place| look.pending.get(place).is_some_and(|pending| pending.consumer == CONSUMER);
        let abandoned = look.pending.iter().filter(|(_, pending)| consumers.have_abandoned(&pending.consumer, pending.idle));
        let mut places: Vec<Place> =
            abandoned.map(|(place, _)| *place).filter(|place| is_ours(place) || !exported.contains(place)).collect();
        places.sort_unstable();
        places.truncate(TAKEN_OVER_MAX);
        let mut entries = self.entries(partition, &places).await?;
        let there: HashSet<Place> = entries.iter().map(|entry| entry.place).collect();
        let removed: Vec<Cmd> = places.iter().filter(|place| !there.contains(place)).map(|place| acknowledge(partition, *place)).collect();
        self.shared.link.ask_all(&removed).await?;
        // Whether a call is lost that Towpath has exported is decided by its record.
        entries.retain(|entry| !entry.is_exported || is_ours(&entry.place));
        let entries = self.settle_answered(partition, entries).await?;
        if !entries.is_empty() {
            tracing::warn!(function = %partition.function, count = entries.len(), "entries that a worker has read and never answered are imported");
            self.import(partition, entries, If::Pending).await?;
            self.work_came(partition);
        }
        Ok(())
    }

    /// These entries, as far as they are in the stream.
    async fn entries(&self, partition: &Partition, places: &[Place]) -> Result<Vec<Entry>, StoreError> {
        let stream = &partition.keys.stream;
        let asks: Vec<Cmd> =
            places.iter().map(|place| command("XRANGE", &[stream.clone(), place.to_string(), place.to_string()])).collect();
        Ok(self.shared.link.ask_all(&asks).await?.iter().flat_map(Entry::read_all).collect())
    }

    /// Removes entries that have a reply, as far as that can be seen: a reply that waits on the list, or generation B's mark. Returns the others.
    pub(super) async fn settle_answered(&self, partition: &Partition, entries: Vec<Entry>) -> Result<Vec<Entry>, StoreError> {
        let traces = |entry: &Entry| {
            let mark = entry.call_id.as_ref().map(sent_mark).unwrap_or_default();
            [command("EXISTS", &[entry.reply_list().unwrap_or_default()]), command("EXISTS", &[mark])]
        };
        let found = self.shared.link.ask_all(&entries.iter().flat_map(traces).collect::<Vec<_>>()).await?;
        let is_answered = |found: &[Value]| found.iter().any(|trace| value::number(trace) == Some(1));
        let (mut unanswered, mut settle) = (Vec::with_capacity(entries.len()), Vec::new());
        for (entry, found) in entries.into_iter().zip(found.chunks_exact(2)) {
            if !entry.is_exported && is_answered(found) {
                let delete = command("XDEL", &[partition.keys.stream.clone(), entry.place.to_string()]);
                settle.extend([acknowledge(partition, entry.place), delete]);
            } else {
                unanswered.push(entry);
            }
        }
        self.shared.link.ask_all(&settle).await?;
        Ok(unanswered)
    }
}

fn acknowledge(partition: &Partition, place: Place) -> Cmd {
    command("XACK", &[partition.keys.stream.clone(), partition.keys.group.clone(), place.to_string()])
}

#[cfg(test)]
mod tests {
    use towpath_core::clock::VirtualClock;
    use towpath_redis_testing::RedisServer;

    use super::*;
    use crate::options::RedisOptions;

    #[tokio::test]
    async fn a_consumer_that_holds_an_entry_is_not_removed() {
        let server = RedisServer::start();
        let options = RedisOptions::standalone("127.0.0.1", server.port());
        let store = RedisStore::open_by_clock(options, Arc::new(VirtualClock::new())).await.unwrap();
        server.cli(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]);
        server.cli(&["XGROUP", "CREATECONSUMER", "s", "g", "silent"]);
        server.cli(&["XADD", "s", "*", "callId", "a"]);
        server.cli(&["XREADGROUP", "GROUP", "g", "busy", "STREAMS", "s", ">"]);
        let mut args = Args::default();
        ["g", "silent", "busy", "unknown"].iter().for_each(|word| args.push(word));
        store.shared.link.run_args(&CONSUMERS, &["s"], &args).await.unwrap();
        let left = server.cli(&["XINFO", "CONSUMERS", "s", "g"]);
        assert!(left.contains("busy") && !left.contains("silent") && !left.contains("unknown"), "{left}");
        assert_eq!(server.cli(&["XPENDING", "s", "g"]).lines().next(), Some("1"));
    }
}
