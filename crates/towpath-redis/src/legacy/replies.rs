//! Replies of legacy workers end the calls that were exported. One blocking `BLPOP` waits for the replies to all calls that this process has
//! exported; the tick of any server finds the others, and all of them in a Cluster, whose lists lie on different servers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::watch;
use towpath_core::call::{Answer, Call, CallCommand, Claim, Held, RetryPolicy, step};
use towpath_core::names::{CallId, WorkerId};
use towpath_core::store::{CallNews, StoreError};
use towpath_core::time::Timestamp;

use super::reader::{self, BLOCK, BlockingRead};
use super::{LEGACY, entry, reply};
use crate::calls::change::{Change, changes};
use crate::calls::partition::Partition;
use crate::calls::record::Record;
use crate::link::Reply;
use crate::registry::reply::command;
use crate::store::RedisStore;
use crate::value;

/// One read waits for so many lists at most, those of the calls that were exported first: legacy workers take them in that order.
const LISTS_MAX: usize = 512;

/// The lists of the calls that this process has exported.
pub(super) struct AwaitedReplies {
    lists: Mutex<HashMap<String, Awaited>>,
    changes: watch::Sender<u64>,
    next: AtomicU64,
    is_started: AtomicBool,
}

struct Awaited {
    partition: Arc<Partition>,
    call_id: CallId,
    /// Its place in the order of exports.
    number: u64,
    /// The call ends then at the latest.
    until: Timestamp,
}

impl Default for AwaitedReplies {
    fn default() -> Self {
        Self { lists: Mutex::default(), changes: watch::Sender::new(0), next: AtomicU64::new(0), is_started: AtomicBool::new(false) }
    }
}

impl AwaitedReplies {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Awaited>> {
        // No code that can panic runs under this lock.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RedisStore {
    /// Waits for the reply to a call that is about to be exported.
    pub(super) fn await_reply(&self, partition: &Arc<Partition>, call_id: &CallId, list: &str, until: Timestamp) {
        let replies = &self.shared.legacy.replies;
        if self.shared.link.is_cluster() {
            return;
        }
        let number = replies.next.fetch_add(1, Ordering::Relaxed);
        let awaited = Awaited { partition: Arc::clone(partition), call_id: call_id.clone(), number, until };
        replies.lock().insert(list.to_owned(), awaited);
        replies.changes.send_modify(|count| *count += 1);
        if !replies.is_started.swap(true, Ordering::AcqRel) {
            reader::start::<Pop>(self);
        }
    }

    /// Looks for replies to these calls that no process has taken. Says which of them have ended.
    pub(super) async fn find_replies(&self, partition: &Arc<Partition>, records: &[Arc<Record>]) -> Result<Vec<bool>, StoreError> {
        let lists: Vec<String> = records.iter().map(|record| entry::worker_list(record)).collect();
        let asks: Vec<Cmd> = lists.iter().map(|list| command("LRANGE", &[list.as_str(), "-1", "-1"])).collect();
        let mut ended = Vec::with_capacity(records.len());
        for ((record, list), found) in records.iter().zip(&lists).zip(self.shared.link.ask_all(&asks).await?) {
            let found = if let Value::Array(found) = found { found.into_iter().next().and_then(value::into_bytes) } else { None };
            if let Some(reply) = &found {
                self.take_reply(partition, &record.call.call_id, reply).await?;
                self.shared.link.ask(&command("DEL", &[list])).await?;
            }
            ended.push(found.is_some());
        }
        Ok(ended)
    }

    /// Ends a call as the reply of a legacy worker says, unless it is over.
    async fn take_reply(&self, partition: &Arc<Partition>, call_id: &CallId, reply: &[u8]) -> Result<(), StoreError> {
        let Some(answer) = reply::read(reply) else {
            tracing::warn!(%call_id, bytes = reply.len(), "a reply that cannot be read was dropped; the call goes on until its deadline");
            return Ok(());
        };
        while let Some(record) = self.records(partition, std::slice::from_ref(call_id)).await?.pop().flatten() {
            if record.call.state.has_ended() {
                self.shared.waiters.tell(call_id, &CallNews::of_end(&record.call));
                return Ok(());
            }
            let Some(after) = answered(&record.call, &answer, self.shared.now()) else {
                tracing::warn!(%call_id, "a late reply of a legacy worker was dropped: the call will be tried again");
                return Ok(());
            };
            if self.apply(partition, vec![Change::new(Arc::new(record), after)]).await?[0] {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The call as a legacy worker's answer ends it, whichever worker holds it by its record. `None`: it does not wait and does not run.
pub(super) fn answered(call: &Call, answer: &Answer, now: Timestamp) -> Option<Call> {
    let mut call = call.clone();
    let deadline = call.deadline;
    let worker = call.holder.clone().or_else(|| WorkerId::new(LEGACY).ok())?;
    if call.lease_until.is_none() {
        // It was read from the stream without a claim. Whatever its deadline, it was run and has its answer.
        call.deadline = call.deadline.max(now + Duration::from_millis(1));
        (call, _) = step(call, CallCommand::Claim(Claim { worker: worker.clone(), lease: Duration::from_secs(30) }), now);
        call.deadline = deadline;
    }
    let held = Held { worker, number: call.delivery };
    let (call, reply) = step(call, CallCommand::Answer { held, answer: answer.clone(), policy: RetryPolicy::default() }, now);
    changes(&reply).then_some(call)
}

struct Pop;

impl BlockingRead for Pop {
    const NAME: &'static str = "replies of legacy workers";

    async fn question(store: &RedisStore) -> Result<Option<(String, Cmd)>, StoreError> {
        let now = store.shared.now();
        let mut lists = store.shared.legacy.replies.lock();
        lists.retain(|_, awaited| now < awaited.until + BLOCK);
        let mut order: Vec<(u64, &String)> = lists.iter().map(|(list, awaited)| (awaited.number, list)).collect();
        order.sort_unstable();
        order.truncate(LISTS_MAX);
        let Some((_, first)) = order.first() else { return Ok(None) };
        let mut pop = Cmd::new();
        pop.arg("BLPOP").arg(order.iter().map(|(_, list)| list.as_str()).collect::<Vec<_>>()).arg(BLOCK.as_secs());
        Ok(Some(((*first).clone(), pop)))
    }

    async fn answer(store: RedisStore, popped: Reply) -> Result<(), StoreError> {
        let [list, reply] = popped.items() else { return Ok(()) };
        let Some(awaited) = list.text().and_then(|list| store.shared.legacy.replies.lock().remove(list)) else { return Ok(()) };
        let reply = reply.bytes().map(|reply| &reply[..]).unwrap_or_default();
        let taken = store.take_reply(&awaited.partition, &awaited.call_id, reply).await;
        if let (Err(_), Some(list)) = (&taken, list.text()) {
            // It goes back to its list, where a tick finds it.
            let mut back = command("RPUSH", &[list]);
            back.arg(reply);
            drop(store.shared.link.ask_all(&[back, command("PEXPIRE", &[list, "60000"])]).await);
        }
        taken
    }

    fn failed(_store: &RedisStore) {}

    fn changes(store: &RedisStore) -> watch::Receiver<u64> {
        store.shared.legacy.replies.changes.subscribe()
    }
}
