//! Ended calls are answered to their legacy callers, each of which waits on a list. The script that ends a call notes its id in the set `owed`;
//! it leaves the set with the answer, so a crash in between costs a second and not the answer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use towpath_core::names::CallId;
use towpath_core::store::StoreError;

use super::entry::Entry;
use super::scripts::ANSWER;
use super::{is_reply_list, reply};
use crate::calls::change::Change;
use crate::calls::partition::Partition;
use crate::calls::record::Record;
use crate::registry::reply::command;
use crate::script::Args;
use crate::store::RedisStore;
use crate::value;

/// How long an answer stays on its list, as the seeds have it.
const KEPT_MS: u32 = 60_000;
/// The process that has ended a call answers by itself within this.
const OWED_AFTER: Duration = Duration::from_secs(1);

/// The key that says that a call was answered, as generation B has it.
pub(super) fn sent_mark(call_id: &CallId) -> String {
    format!("function:response:sent:{call_id}")
}

fn lists(record: &Record) -> impl Iterator<Item = &str> {
    record.replies.iter().map(|reply| &**reply).filter(|reply| is_reply_list(reply))
}

impl RedisStore {
    /// Answers the legacy callers of calls that have ended.
    pub(crate) fn answer_legacy_callers(&self, changes: &[(Arc<Partition>, Arc<Change>)], made: &[Result<bool, StoreError>]) {
        let mut ended: Vec<(&Arc<Partition>, Vec<Arc<Record>>)> = Vec::new();
        for ((partition, change), made) in changes.iter().zip(made) {
            if !matches!(made, Ok(true)) || !change.ends() || lists(&change.after).next().is_none() {
                continue;
            }
            match ended.iter_mut().find(|(known, _)| Arc::ptr_eq(known, partition)) {
                Some((_, records)) => records.push(Arc::clone(&change.after)),
                None => ended.push((partition, vec![Arc::clone(&change.after)])),
            }
        }
        for (partition, records) in ended {
            let (store, partition) = (self.clone(), Arc::clone(partition));
            tokio::spawn(async move {
                if let Err(error) = store.answer(&partition, &records).await {
                    tracing::debug!(function = %partition.function, %error, "legacy callers were not answered; the tick tries again");
                    partition.legacy.tend();
                }
            });
        }
    }

    /// Answers the callers of these ended calls, if that is still owed.
    pub(super) async fn answer(&self, partition: &Partition, records: &[Arc<Record>]) -> Result<(), StoreError> {
        if self.shared.link.is_cluster() {
            return self.answer_in_steps(partition, records).await;
        }
        let mut args = Args::with_capacity(1 + records.len() * 2);
        args.number(KEPT_MS);
        let mut keys = vec![partition.keys.owed.clone()];
        for record in records {
            for list in lists(record) {
                keys.extend([sent_mark(&record.call.call_id), list.to_owned()]);
                args.push(record.call.call_id.as_str());
                args.push(reply::write(&record.call));
            }
        }
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let wrong = value::array("an answer", self.shared.link.run_args(&ANSWER, &keys, &args).await?)?;
        for list in wrong.iter().filter_map(value::text) {
            tracing::warn!(function = %partition.function, list, "a legacy caller was not answered: the key of its reply list holds something else");
        }
        Ok(())
    }

    /// In a Cluster the lists lie on different servers. Two servers may answer the same call after a crash; its caller takes the first.
    /// A reply that the server of its list refuses is owed on, unless the key of the list holds something else.
    async fn answer_in_steps(&self, partition: &Partition, records: &[Arc<Record>]) -> Result<(), StoreError> {
        let pushes: Vec<(&CallId, &str, Vec<u8>)> =
            records.iter().flat_map(|record| lists(record).map(|list| (&record.call.call_id, list, reply::write(&record.call)))).collect();
        let kept = KEPT_MS.to_string();
        let commands = pushes.iter().flat_map(|(call_id, list, reply)| {
            let mut push = command("LPUSH", &[list]);
            push.arg(reply);
            [command("SET", &[&sent_mark(call_id), "1", "PX", &kept]), push]
        });
        let replies = self.shared.link.insist(&commands.collect::<Vec<Cmd>>()).await?;
        let (mut refused, mut owed, mut settle) = (Ok(()), HashSet::new(), Vec::new());
        for ((call_id, list, _), [_marked, pushed]) in pushes.iter().zip(replies.as_chunks().0) {
            match pushed {
                Value::ServerError(error) if error.code() == "WRONGTYPE" => {
                    tracing::warn!(function = %partition.function, list, "a legacy caller was not answered: the key of its reply list holds something else");
                }
                pushed => match value::checked(pushed.clone()) {
                    Ok(_) => settle.push(command("PEXPIRE", &[list, kept.as_str()])),
                    Err(error) => {
                        owed.insert(*call_id);
                        refused = Err(error);
                    }
                },
            }
        }
        let answered = records.iter().map(|record| &record.call.call_id).filter(|call_id| !owed.contains(call_id));
        settle.extend(answered.map(|call_id| command("SREM", &[&partition.keys.owed, call_id.as_str()])));
        for reply in self.shared.link.ask_all(&settle).await? {
            value::checked(reply)?;
        }
        refused
    }

    /// Tells callers whose call id Towpath refuses. Their entries are no calls, so that nothing is owed: this comes before their acknowledgement.
    pub(super) async fn answer_refused_ids(&self, partition: &Partition, entries: &[Entry]) -> Result<(), StoreError> {
        let (now, kept) = (self.shared.now(), KEPT_MS.to_string());
        for (call_id, list) in entries.iter().filter_map(Entry::refused) {
            tracing::info!(function = %partition.function, call_id, "a call of a legacy caller was refused: its id cannot be used");
            let mut push = command("LPUSH", &[&list]);
            push.arg(reply::write_refused_id(call_id, now));
            let pushed = self.shared.link.insist(&[push]).await?.pop().unwrap_or(Value::Nil);
            // A key of another type is not a reply list, and is left as it is.
            if value::number(&pushed).is_some() {
                self.shared.link.ask(&command("PEXPIRE", &[&list, &kept])).await?;
            }
        }
        Ok(())
    }

    /// Answers what a process that died still owes.
    pub(super) async fn answer_owed(&self, partition: &Arc<Partition>, owed: &[CallId]) -> Result<(), StoreError> {
        if owed.is_empty() {
            return Ok(());
        }
        let (mut settled, mut late, now) = (Vec::new(), Vec::new(), self.shared.now());
        for (call_id, record) in owed.iter().zip(self.records(partition, owed).await?) {
            match record {
                Some(record) if lists(&record).next().is_some() && record.call.state.has_ended() => {
                    if record.call.ended_at.is_some_and(|ended_at| now.since(ended_at) > OWED_AFTER) {
                        late.push(Arc::new(record));
                    }
                }
                _gone => settled.push(call_id.as_str()),
            }
        }
        if !late.is_empty() {
            tracing::info!(function = %partition.function, count = late.len(), "answering legacy callers whose answer was still owed");
            self.answer(partition, &late).await?;
        }
        if !settled.is_empty() {
            let mut settle = command("SREM", &[&partition.keys.owed]);
            settle.arg(settled);
            self.shared.link.ask(&settle).await?;
        }
        Ok(())
    }
}
