//! Answers of old workers. They know no record and no inbox: they push a reply on the list that the entry names, and acknowledge the entry.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redis::Cmd;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use towpath_core::call::{Answer, Call, CallCommand, Claim, Failure, Held, Retry, RetryPolicy, step};
use towpath_core::names::{CallId, WorkerId};
use towpath_core::store::{CallNews, StoreError};
use towpath_core::time::Timestamp;

use super::load::Found;
use super::moves::Move;
use crate::keys;
use crate::link::{Exclusive, Reply};
use crate::pause::pause;
use crate::record::payload;
use crate::store::{RedisStore, Shared};
use crate::value;

/// How long one read blocks, in seconds.
const BLOCK_S: u64 = 5;
const RETRY: Duration = Duration::from_millis(100);
/// Who is written down as the one that answered when an old worker did.
const OLD_WORKER: &str = "old worker";

/// The reply lists that are being watched.
pub(crate) struct ReplyLists {
    awaited: Mutex<HashMap<String, CallId>>,
    changed: watch::Sender<u64>,
    read: Mutex<HashSet<String>>,
}

impl Default for ReplyLists {
    fn default() -> Self {
        Self { awaited: Mutex::default(), changed: watch::Sender::new(0), read: Mutex::default() }
    }
}

/// A reply as old workers write it: with or without the call's id.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OldReply<'a> {
    call_id: Option<String>,
    #[serde(default)]
    success: bool,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    code: Option<String>,
    #[serde(borrow)]
    details: Option<&'a RawValue>,
}

impl ReplyLists {
    fn add(&self, list: String, call_id: CallId) {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner).insert(list, call_id);
        self.changed.send_modify(|count| *count += 1);
    }

    fn remove(&self, list: &str) -> Option<CallId> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner).remove(list)
    }

    fn all(&self) -> Vec<String> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Whether the caller is the first to read so.
    fn start_reading(&self, what: &str) -> bool {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned())
    }

    fn stop_reading(&self, what: &str) {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).remove(what);
    }
}

impl RedisStore {
    /// Waits beside everything else for an old worker's reply to a call.
    pub(crate) fn await_old_reply(&self, call_id: &CallId) {
        self.await_old_reply_on(keys::response(call_id), call_id);
    }

    /// The same for a call that was put into the stream again.
    pub(crate) fn await_old_reply_to_put_back(&self, call_id: &CallId) {
        self.await_old_reply_on(keys::response_to_put_back(call_id), call_id);
    }

    fn await_old_reply_on(&self, list: String, call_id: &CallId) {
        self.shared.reply_lists.add(list.clone(), call_id.clone());
        // One server can watch all lists at once; in a Cluster each lies somewhere else.
        let group = if self.shared.link.is_cluster() { list } else { String::new() };
        if self.shared.reply_lists.start_reading(&group) {
            tokio::spawn(read_replies(Arc::downgrade(&self.shared), group));
        }
    }

    /// The call is over, or was never taken: nobody will answer.
    pub(crate) fn await_old_reply_no_more(&self, call_id: &CallId) {
        self.shared.reply_lists.remove(&keys::response(call_id));
    }

    /// Looks for a reply that lies on a call's list although nobody here waits for it: whoever did is gone. `true`: it has ended the call.
    pub(crate) async fn find_old_reply(&self, call_id: &CallId) -> Result<bool, StoreError> {
        for list in [keys::response(call_id), keys::response_to_put_back(call_id)] {
            let mut look = Cmd::new();
            look.arg("LRANGE").arg(&list).arg(-1).arg(-1);
            let replies = value::array("LRANGE", self.shared.link.ask(&look).await?)?;
            if let Some(reply) = replies.first().and_then(value::bytes) {
                self.take_old_reply(Some(call_id.clone()), reply, Some(&list)).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends a call as an old worker's reply on this list says, or tells what it ended with when it is over.
    pub(crate) async fn take_old_reply(&self, call_id: Option<CallId>, reply: &[u8], list: Option<&str>) -> Result<(), StoreError> {
        let Some((named, answer)) = read_reply(reply) else {
            tracing::warn!(bytes = reply.len(), "a reply that cannot be read was dropped; the call goes on until its deadline");
            return Ok(());
        };
        let Some(call_id) = call_id.or(named) else {
            tracing::warn!("a reply that names no call came to our inbox; the call goes on until its deadline");
            return Ok(());
        };
        while let Some(found) = self.load(&call_id).await? {
            if found.life.call.state.has_ended() {
                self.shared.ears.tell(&call_id, &CallNews::of_end(&found.life.call));
                return Ok(());
            }
            let after = answered(&found, &answer, self.shared.now());
            let mut heard = Move::new(found.life, after);
            // More than one process may have put it back; each of them reads on until it is told.
            if let Some(list) = list.filter(|list| **list == keys::response(&call_id)) {
                heard = heard.heard_on(list.to_owned());
            }
            if self.apply(&found.room, vec![heard]).await?[0] {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The call as an old worker's answer ends it, whoever holds it by our books.
fn answered(found: &Found, answer: &Answer, now: Timestamp) -> Call {
    let mut call = found.life.call.clone();
    let worker = call.holder.clone().or_else(|| WorkerId::new(OLD_WORKER).ok());
    let Some(worker) = worker else { return call };
    if call.lease_until.is_none() {
        // It was read from the stream without our knowing. Whatever its deadline says now, it was run and has its answer.
        call.deadline = call.deadline.max(now + Duration::from_millis(1));
        let deadline = found.life.call.deadline;
        (call, _) = step(call, CallCommand::Claim(Claim { worker: worker.clone(), lease: Duration::from_secs(30) }), now);
        call.deadline = deadline;
    }
    let held = Held { worker: call.holder.clone().unwrap_or(worker), number: call.delivery };
    step(call, CallCommand::Answer { held, answer: answer.clone(), policy: RetryPolicy::default() }, now).0
}

/// Which call a reply names, if it does, and what it says. What is no JSON object is no reply.
fn read_reply(reply: &[u8]) -> Option<(Option<CallId>, Answer)> {
    let reply: OldReply<'_> = serde_json::from_slice(reply).ok()?;
    let call_id = reply.call_id.as_ref().and_then(|id| CallId::new(id).ok());
    if reply.success {
        return Some((call_id, Answer::Ok(payload(reply.data.map_or("null", RawValue::get).as_bytes()))));
    }
    // The error is plain text as a rule; what is something else is shown as it is.
    let text = reply.error.map_or_else(
        || "the worker failed and did not say why".to_owned(),
        |error| serde_json::from_str(error.get()).unwrap_or_else(|_| error.get().to_owned()),
    );
    let mut failure = Failure::new(reply.code.unwrap_or_else(|| "handler_failed".to_owned()), text);
    failure.details = reply.details.map(|details| payload(details.get().as_bytes()));
    // Old workers know no further attempt, and their callers expect none.
    Some((call_id, Answer::Failed { failure, retry: Retry::Never }))
}

/// Reads reply lists as long as there are any to watch: the one named, or all of them.
async fn read_replies(shared: Weak<Shared>, only: String) {
    let mut line = None;
    loop {
        let Some(open) = shared.upgrade() else { return };
        let mut changed = open.reply_lists.changed.subscribe();
        let lists = if only.is_empty() {
            open.reply_lists.all()
        } else {
            open.reply_lists.all().into_iter().filter(|list| *list == only).collect()
        };
        if lists.is_empty() {
            open.reply_lists.stop_reading(&only);
            let nobody = open.reply_lists.all().is_empty() || !only.is_empty();
            if nobody || !open.reply_lists.start_reading(&only) {
                return;
            }
            continue;
        }
        let link = open.link.clone();
        drop(open);
        let read = async {
            let mut own = match line.take() {
                Some(own) => own,
                None => link.exclusive(&lists[0]).await?,
            };
            let popped = pop(&link, &mut own, &lists, &mut changed).await?;
            Ok::<(Exclusive, Reply), StoreError>((own, popped))
        };
        match read.await {
            Ok((own, popped)) => {
                line = Some(own);
                hand_in(&shared, &popped).await;
            }
            Err(error) => {
                tracing::debug!(%error, "reading replies of old workers failed; trying again");
                pause(RETRY).await;
            }
        }
    }
}

/// Blocks until one of the lists has a reply, or until there are others to watch.
async fn pop(
    link: &crate::link::Link,
    line: &mut Exclusive,
    lists: &[String],
    changed: &mut watch::Receiver<u64>,
) -> Result<Reply, StoreError> {
    let mut pop = Cmd::new();
    pop.arg("BLPOP");
    for list in lists {
        pop.arg(list);
    }
    pop.arg(BLOCK_S);
    let id = line.id();
    let read = line.ask(&pop);
    tokio::pin!(read);
    tokio::select! {
        biased;
        reply = &mut read => reply,
        _ = changed.changed() => link.end(&id, read).await,
    }
}

async fn hand_in(shared: &Weak<Shared>, popped: &Reply) {
    let (Some(shared), [list, reply]) = (shared.upgrade(), popped.items()) else { return };
    let call_id = list.text().and_then(|list| shared.reply_lists.remove(list));
    let store = RedisStore { shared };
    let reply = reply.bytes().map(|reply| &reply[..]).unwrap_or_default();
    if let Err(error) = store.take_old_reply(call_id, reply, list.text()).await {
        tracing::warn!(%error, "a reply of an old worker could not be written down; the call goes on until its deadline");
    }
}
