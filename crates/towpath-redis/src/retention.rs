//! Removes what is too old: dead letters of calls, and entries of audits. Ended calls live in buckets that Redis expires, and dead letters of
//! batches are swept with their batcher.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use serde_json::Value as Json;
use towpath_core::call::CallState;
use towpath_core::names::CallId;
use towpath_core::store::{CallStore, Forgotten, InspectStore, Retention, StoreError};
use towpath_core::time::{Timestamp, millis};

use crate::batches::keys as batch_keys;
use crate::calls::partition::Partition;
use crate::store::RedisStore;
use crate::value;

/// So many functions are asked about at once.
const FUNCTIONS_AT_ONCE: usize = 64;

impl RedisStore {
    pub(crate) async fn forget_older(&self, keep: &Retention, limit: u32) -> Result<Forgotten, StoreError> {
        let (now, limit) = (self.shared.now(), limit as usize);
        let mut forgotten = Forgotten::default();
        if let Some(keep) = keep.dead_letters {
            forgotten.dead_letters = self.drop_old_dead(earlier(now, keep), limit).await?;
        }
        if let Some(keep) = keep.audits {
            let audits = [self.shared.locks.keys.audit.clone(), batch_keys::audit(self.shared.keys.prefix())];
            for key in audits {
                let left = limit.saturating_sub(usize::try_from(forgotten.audits).unwrap_or(limit));
                forgotten.audits += self.trim_audit(&key, earlier(now, keep), left).await?;
            }
        }
        Ok(forgotten)
    }

    async fn drop_old_dead(&self, before: Timestamp, limit: usize) -> Result<Vec<CallId>, StoreError> {
        let mut dropped = Vec::new();
        for some in self.all_partitions().await?.chunks(FUNCTIONS_AT_ONCE) {
            for oldest in self.first_dead(some, limit).await? {
                for call_id in oldest {
                    if dropped.len() == limit {
                        return Ok(dropped);
                    }
                    if !self.drop_if_old(&call_id, before).await? {
                        break; // those after it were submitted later
                    }
                    dropped.push(call_id);
                }
            }
        }
        Ok(dropped)
    }

    /// The dead letters of some functions that were submitted first.
    async fn first_dead(&self, partitions: &[Arc<Partition>], limit: usize) -> Result<Vec<Vec<CallId>>, StoreError> {
        let ask = |partition: &Arc<Partition>| {
            let mut ask = Cmd::new();
            ask.arg("ZRANGE").arg(&partition.keys.dead).arg(0).arg(limit.saturating_sub(1));
            ask
        };
        let replies = self.shared.link.ask_all(&partitions.iter().map(ask).collect::<Vec<_>>()).await?;
        // A key of another type is one function's trouble, and keeps no other's dead letters.
        let lists = replies.into_iter().filter_map(|reply| value::array("ZRANGE", reply).ok());
        let ids = |list: Vec<Value>| list.iter().filter_map(|id| CallId::new(value::text(id)?).ok()).collect();
        Ok(lists.map(ids).collect())
    }

    async fn drop_if_old(&self, call_id: &CallId, before: Timestamp) -> Result<bool, StoreError> {
        let found = match self.call(call_id).await {
            Err(StoreError::Corrupt(_)) => return Ok(false), // repair tells of it
            found => found?,
        };
        let is_old = found.is_some_and(|view| view.call.state == CallState::Dead && view.call.ended_at.is_some_and(|at| at <= before));
        Ok(is_old && self.drop_dead(call_id).await?)
    }

    /// Removes the oldest entries of a list that has the newest first. Each is removed by its text, so that two processes harm nothing.
    async fn trim_audit(&self, key: &str, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        if limit == 0 {
            return Ok(0);
        }
        let mut ask = Cmd::new();
        ask.arg("LRANGE").arg(key).arg(-i64::try_from(limit).unwrap_or(i64::MAX)).arg(-1);
        let entries = value::array("LRANGE", self.shared.link.ask(&ask).await?)?;
        let is_old = |entry: &&[u8]| written_at(entry).is_some_and(|at| at <= before);
        let remove = |entry: &[u8]| {
            let mut remove = Cmd::new();
            remove.arg("LREM").arg(key).arg(-1).arg(entry);
            remove
        };
        let removals: Vec<Cmd> = entries.iter().filter_map(value::bytes).filter(is_old).map(remove).collect();
        if removals.is_empty() {
            return Ok(0);
        }
        let replies = self.shared.link.ask_all(&removals).await?;
        Ok(replies.iter().filter(|reply| value::number(reply) == Some(1)).count() as u64)
    }
}

fn earlier(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_millis(now.as_millis().saturating_sub(millis(by)))
}

/// When an entry of an audit was written.
fn written_at(entry: &[u8]) -> Option<Timestamp> {
    Timestamp::from_iso(serde_json::from_slice::<Json>(entry).ok()?.get("at")?.as_str()?)
}
