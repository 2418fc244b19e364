//! Replies of legacy workers end the calls that were exported. One blocking `BLPOP` waits for the replies to all calls that this process has
//! exported; the tick of any server finds the others, and all of them in a Cluster, whose lists lie on different servers.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::watch;
use towpath_core::call::{Answer, Call, CallCommand, Claim, Held, RetryPolicy, step};
use towpath_core::names::{CallId, WorkerId};
use towpath_core::store::{CallNews, StoreError};
use towpath_core::time::Timestamp;

use super::look::Look;
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
/// One tick looks so many calls up whose list is awaited.
const LOOKED_UP_MAX: usize = 64;
/// A list is awaited from before its call is exported; the export takes no longer than this.
const EXPORTED_WITHIN: Duration = Duration::from_secs(2);

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
    since: Timestamp,
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
        let awaited = Awaited { partition: Arc::clone(partition), call_id: call_id.clone(), number, since: self.shared.now(), until };
        replies.lock().insert(list.to_owned(), awaited);
        replies.changes.send_modify(|count| *count += 1);
        if !replies.is_started.swap(true, Ordering::AcqRel) {
            reader::start::<Pop>(self);
        }
    }

    /// Stops waiting for replies to calls of a partition that are not exported any more. `exported`: some calls that are.
    pub(super) async fn forget_replies(&self, partition: &Arc<Partition>, look: &Look, exported: &[Arc<Record>]) -> Result<(), StoreError> {
        let (replies, now) = (&self.shared.legacy.replies, self.shared.now());
        let known: HashSet<&CallId> = exported.iter().map(|record| &record.call.call_id).collect();
        let mut doubtful: Vec<(u64, String, CallId)> = Vec::new();
        for (list, awaited) in replies.lock().iter() {
            let is_of_this = Arc::ptr_eq(&awaited.partition, partition) && now.since(awaited.since) >= EXPORTED_WITHIN;
            if is_of_this && !known.contains(&awaited.call_id) {
                doubtful.push((awaited.number, list.clone(), awaited.call_id.clone()));
            }
        }
        doubtful.sort_unstable_by_key(|(number, ..)| *number);
        let mut is_exported = vec![false; doubtful.len()];
        if look.has_exported() {
            doubtful.truncate(LOOKED_UP_MAX);
            let ids: Vec<CallId> = doubtful.iter().map(|(.., call_id)| call_id.clone()).collect();
            let records = self.records(partition, &ids).await?;
            is_exported = records.iter().map(|record| record.as_ref().is_some_and(|record| !record.exported.is_empty())).collect();
        }
        let mut lists = replies.lock();
        for ((number, list, _), _) in doubtful.iter().zip(is_exported).filter(|(_, is_exported)| !is_exported) {
            // The call may have been exported again meanwhile.
            if lists.get(list).is_some_and(|awaited| awaited.number == *number) {
                lists.remove(list);
            }
        }
        Ok(())
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
                self.shared.legacy.replies.lock().remove(list);
                self.shared.link.ask(&command("DEL", &[list])).await?;
            }
            ended.push(found.is_some());
        }
        Ok(ended)
    }

    /// Ends a call as the reply of a legacy worker says, unless it is over.
    async fn take_reply(&self, partition: &Arc<Partition>, call_id: &CallId, reply: &[u8]) -> Result<(), StoreError> {
        let answer = reply::read(reply);
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

#[cfg(test)]
mod tests {
    use towpath_core::clock::VirtualClock;
    use towpath_core::names::FunctionKey;
    use towpath_redis_testing::RedisServer;

    use super::*;
    use crate::options::RedisOptions;

    #[tokio::test]
    async fn replies_to_calls_that_are_not_exported_any_more_are_not_awaited() {
        let (server, clock) = (RedisServer::start(), VirtualClock::new());
        let options = RedisOptions::standalone("127.0.0.1", server.port());
        let store = RedisStore::open_by_clock(options, Arc::new(clock.clone())).await.unwrap();
        let [one, other] = ["one", "other"].map(|name| store.partition(&FunctionKey::global(name.parse().unwrap())));
        let until = store.shared.now() + Duration::from_secs(3_600);
        for number in 0..600 {
            let call_id = CallId::new(format!("call-{number}")).unwrap();
            store.await_reply(&one, &call_id, &format!("function:response:{call_id}"), until);
        }
        store.await_reply(&other, &CallId::new("call").unwrap(), "function:response:call", until);
        let awaited = || store.shared.legacy.replies.lock().len();
        store.tend(&one).await.unwrap();
        assert_eq!(awaited(), 601, "they may be about to be exported");
        clock.advance(EXPORTED_WITHIN);
        store.tend(&one).await.unwrap();
        assert_eq!(awaited(), 1, "none of them is exported");
    }
}
