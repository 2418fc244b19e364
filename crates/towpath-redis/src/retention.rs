//! Removes what is too old: dead letters of calls, and entries of audits. Ended calls live in buckets that Redis expires, and dead letters of
//! batches are swept with their batcher.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use serde_json::Value as Json;
use towpath_core::call::CallState;
use towpath_core::names::CallId;
use towpath_core::store::{CallStore, Forgotten, Retention, StoreError};
use towpath_core::time::{Timestamp, millis};

use crate::batches::keys as batch_keys;
use crate::calls::partition::Partition;
use crate::calls::record::Record;
use crate::registry::reply::command;
use crate::store::RedisStore;
use crate::value;

/// So many functions are asked about at once.
const FUNCTIONS_AT_ONCE: usize = 64;

/// What a line among the dead letters of a function names.
enum Line {
    /// A dead letter that is too old.
    Old(CallId),
    /// A dead letter that is kept. Those after it were submitted later.
    Younger,
    /// A record that this version cannot read. A person decides about it.
    Unreadable,
    /// No dead letter.
    Nothing,
}

impl RedisStore {
    pub(crate) async fn forget_older(&self, keep: &Retention, limit: u32) -> Result<Forgotten, StoreError> {
        let (now, limit) = (self.shared.now(), limit as usize);
        let mut forgotten = Forgotten::default();
        if let Some(keep) = keep.audits {
            let audits = [self.shared.locks.keys.audit.clone(), batch_keys::audit(self.shared.keys.prefix())];
            for key in audits {
                let left = limit.saturating_sub(usize::try_from(forgotten.audits).unwrap_or(limit));
                let trimmed = self.trim_audit(&key, earlier(now, keep), left).await;
                forgotten.audits += self.shared.or_pass_over(&key, trimmed, 0)?;
            }
        }
        if let Some(keep) = keep.dead_letters {
            forgotten.dead_letters = self.drop_old_dead(earlier(now, keep), limit).await?;
        }
        Ok(forgotten)
    }

    async fn drop_old_dead(&self, before: Timestamp, limit: usize) -> Result<Vec<CallId>, StoreError> {
        let mut dropped = Vec::new();
        for some in self.all_partitions().await?.chunks(FUNCTIONS_AT_ONCE) {
            for (partition, lines) in some.iter().zip(self.first_dead(some, limit).await?) {
                match self.drop_old_of(partition, &lines, before, limit, &mut dropped).await {
                    // The trouble of one function keeps no other's dead letters.
                    Err(error) if self.shared.is_local(&error) => {
                        let error = self.explain(partition, error).await;
                        let says = format!("dead letters of this function are kept longer than they should be: {error}");
                        self.shared.pass_over(&partition.keys.calls, b"", says);
                    }
                    done => done?,
                }
            }
        }
        Ok(dropped)
    }

    /// The lines of some functions whose dead letters were submitted first, each function's by themselves.
    async fn first_dead(&self, partitions: &[Arc<Partition>], limit: usize) -> Result<Vec<Vec<Value>>, StoreError> {
        let last = limit.saturating_sub(1).to_string();
        let asks: Vec<Cmd> = partitions.iter().map(|partition| command("ZRANGE", &[partition.keys.dead.as_str(), "0", &last])).collect();
        let replies = self.shared.link.ask_apart(&asks).await.into_iter().map(|reply| value::array("ZRANGE", reply?));
        partitions.iter().zip(replies).map(|(partition, reply)| self.shared.or_pass_over(&partition.keys.dead, reply, Vec::new())).collect()
    }

    async fn drop_old_of(
        &self,
        partition: &Partition,
        lines: &[Value],
        before: Timestamp,
        limit: usize,
        dropped: &mut Vec<CallId>,
    ) -> Result<(), StoreError> {
        for line in lines.iter().filter_map(value::bytes) {
            if dropped.len() == limit {
                return Ok(());
            }
            match self.read_line(partition, line, before).await? {
                Line::Old(call_id) => {
                    if self.drop_dead(&call_id).await? {
                        dropped.push(call_id);
                    }
                }
                Line::Younger => return Ok(()),
                Line::Unreadable => {}
                Line::Nothing => {
                    let mut remove = Cmd::new();
                    remove.arg("ZREM").arg(&partition.keys.dead).arg(line);
                    self.shared.link.ask(&remove).await?;
                }
            }
        }
        Ok(())
    }

    async fn read_line(&self, partition: &Partition, line: &[u8], before: Timestamp) -> Result<Line, StoreError> {
        let Some(call_id) = std::str::from_utf8(line).ok().and_then(|id| CallId::new(id).ok()) else { return Ok(Line::Nothing) };
        let calls = &partition.keys.calls;
        let found = self.shared.link.ask(&command("HGET", &[calls.as_str(), call_id.as_str()])).await?;
        let Some(text) = value::into_bytes(found) else { return Ok(Line::Nothing) };
        Ok(match Record::read(&call_id, &text.into()) {
            Ok(record) if record.call.state != CallState::Dead => Line::Nothing,
            Ok(record) if record.call.ended_at.is_some_and(|at| at <= before) => Line::Old(call_id),
            Ok(_younger) => Line::Younger,
            Err(error) => {
                self.shared.pass_over(calls, line, error);
                Line::Unreadable
            }
        })
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
