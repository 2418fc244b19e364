//! Repair: finds lines that do not fit a call's record, and mends them. Sets are derived from records; a crash cannot make them differ,
//! because one script writes both, but a person or another program can.

use std::collections::HashSet;
use std::sync::Arc;

use redis::{Cmd, Value};
use towpath_core::call::CallState;
use towpath_core::names::CallId;
use towpath_core::store::StoreError;

use crate::calls::change::Change;
use crate::calls::partition::Partition;
use crate::calls::record::Record;
use crate::script::{Args, MEND};
use crate::store::RedisStore;
use crate::value;

/// So many calls of a function are looked at in one round.
const CHUNK: usize = 200;

impl RedisStore {
    /// Looks at some calls of the functions that this process has to do with.
    pub(crate) async fn repair(&self) -> Result<(), StoreError> {
        for partition in self.partitions_in_use() {
            if let Err(error) = self.repair_partition(&partition).await {
                tracing::debug!(function = %partition.function, %error, "this function's calls were not checked; the next round does it");
            }
        }
        Ok(())
    }

    async fn repair_partition(&self, partition: &Arc<Partition>) -> Result<(), StoreError> {
        let keys = &partition.keys;
        let mut ask = Cmd::new();
        let cursor = partition.repaired_to();
        ask.arg("HSCAN").arg(&keys.calls).arg(cursor).arg("COUNT").arg(CHUNK);
        let mut reply = value::array("HSCAN", self.shared.link.ask(&ask).await?)?.into_iter();
        let next = reply.next().as_ref().and_then(value::number).unwrap_or_default();
        let fields = value::array("HSCAN", reply.next().unwrap_or(Value::Nil))?;
        let mut records = Vec::new();
        for pair in fields.chunks_exact(2) {
            let Some(call_id) = value::text(&pair[0]).and_then(|id| CallId::new(id).ok()) else { continue };
            let text = value::bytes(&pair[1]).unwrap_or_default().to_vec();
            match Record::read(&call_id, &text.into()) {
                Ok(record) => records.push(record),
                Err(error) => tracing::warn!(function = %partition.function, %error, "a call cannot be read"),
            }
        }
        self.mend(partition, records).await?;
        self.remove_stale(partition).await?;
        partition.set_repaired_to(u64::try_from(next).unwrap_or(0));
        Ok(())
    }

    /// Puts calls into the sets in which their records stand, if they are missing there.
    async fn mend(&self, partition: &Arc<Partition>, records: Vec<Record>) -> Result<(), StoreError> {
        let keys = &partition.keys;
        let now = self.shared.now();
        let mut lines: Vec<(usize, &str)> = Vec::new();
        for (place, record) in records.iter().enumerate() {
            let call = &record.call;
            let set = match call.state {
                CallState::Queued if !record.exported.is_empty() => Some(&keys.exported),
                // A call past its deadline has left the queue.
                CallState::Queued => Some(&keys.queue).filter(|_| now < call.deadline),
                CallState::Running => Some(&keys.running),
                CallState::Delayed => Some(&keys.delayed),
                CallState::Dead => Some(&keys.dead),
                _ended => None,
            };
            lines.extend(set.map(|set| (place, set.as_str())));
            if !call.state.has_ended() {
                lines.push((place, &keys.deadlines));
            }
        }
        let score = |(place, set): &(usize, &str)| {
            let mut ask = Cmd::new();
            ask.arg("ZSCORE").arg(*set).arg(records[*place].call.call_id.as_str());
            ask
        };
        let scores = self.shared.link.ask_all(&lines.iter().map(score).collect::<Vec<_>>()).await?;
        let missing: HashSet<usize> =
            lines.iter().zip(scores).filter(|(_, score)| matches!(score, Value::Nil)).map(|((place, _), _)| *place).collect();
        let mut changes = Vec::new();
        for (_, record) in records.into_iter().enumerate().filter(|(place, _)| missing.contains(place)) {
            let (deadline, call_id) = (record.call.deadline.as_millis().to_string(), record.call.call_id.to_string());
            let (is_open, after) = (!record.call.state.has_ended(), record.next(record.call.clone()));
            let mut change = Change::to(Arc::new(record), after).with([b"PUBLISH", keys.work.as_bytes(), b""]);
            if is_open {
                change = change.with([b"ZADD", keys.deadlines.as_bytes(), deadline.as_bytes(), call_id.as_bytes()]);
            }
            changes.push(change);
        }
        if changes.is_empty() {
            return Ok(());
        }
        let mended = self.apply(partition, changes).await?.into_iter().filter(|made| *made).count();
        if mended > 0 {
            tracing::warn!(function = %partition.function, mended, "calls were missing in the sets of their function; they are back");
            self.work_came(partition);
        }
        Ok(())
    }

    /// Removes members of sets of running calls that do not run so.
    async fn remove_stale(&self, partition: &Partition) -> Result<(), StoreError> {
        let keys = &partition.keys;
        let mut about = Cmd::new();
        about.arg("HGETALL").arg(&keys.definition);
        let fields = value::array("HGETALL", self.shared.link.ask(&about).await?)?;
        let workers = fields.iter().step_by(2).filter_map(value::text).filter_map(|field| field.strip_prefix("offer:"));
        let sets = workers.map(|worker| (format!("{}{worker}", keys.held), false, worker)).chain([(keys.parked.clone(), true, "")]);
        for (set, parked, worker) in sets {
            let mut args = Args::with_capacity(3);
            args.number(CHUNK);
            args.flag(parked);
            args.push(worker);
            let removed = self.shared.link.run_args(&MEND, &[&keys.calls, &set], &args).await?;
            if let Some(removed) = value::number(&removed).filter(|removed| *removed > 0) {
                tracing::warn!(function = %partition.function, removed, set, "calls that do not run were counted as running; they are not any more");
                self.work_came(partition);
            }
        }
        Ok(())
    }
}
