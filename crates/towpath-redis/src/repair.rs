//! Repair: finds lines that do not fit a call's record, and mends them. Sets are derived from records; a crash cannot make them differ,
//! because one script writes both, but a person or another program can.

use std::collections::HashSet;
use std::sync::Arc;

use redis::{Cmd, Value};
use towpath_core::call::CallState;
use towpath_core::names::CallId;
use towpath_core::store::{StoreError, StoreTrouble};

use crate::calls::change::Change;
use crate::calls::partition::Partition;
use crate::calls::record::Record;
use crate::registry::reply::command;
use crate::script::{Args, MEND};
use crate::store::RedisStore;
use crate::value;

/// So many members of a set are looked at in one round.
const CHUNK: usize = 200;

/// So many functions are asked about at once.
const FUNCTIONS_AT_ONCE: usize = 64;

impl RedisStore {
    /// Looks at some calls of the functions that this process has to do with. A function without calls costs no message of its own.
    pub(crate) async fn repair(&self) -> Result<(), StoreError> {
        self.check_notifications().await?;
        // The trouble of runs keeps no call from being repaired.
        if let Err(error) = self.repair_runs().await {
            tracing::debug!(%error, "ready runs were not checked; the next round does it");
        }
        self.check_set_of_functions().await?;
        for some in self.partitions_in_use().chunks(FUNCTIONS_AT_ONCE) {
            let looks: Vec<Cmd> = some.iter().flat_map(|partition| look(partition)).collect();
            let found = self.shared.link.ask_apart(&looks).await;
            let found: Vec<Value> = found.into_iter().map(|reply| reply.unwrap_or(Value::Nil)).collect();
            let mut sets = Vec::new();
            for (partition, found) in some.iter().zip(found.chunks_exact(LOOKS)) {
                // Of a function that cannot be asked nothing is known.
                let has_calls = value::number(&found[0]).is_some_and(|calls| calls > 0);
                // A notification may have been lost: a Cluster's nodes drop some when they connect to each other again.
                if value::number(&found[2]).is_some_and(|waiting| waiting > 0) {
                    self.work_came(partition);
                }
                match if has_calls { self.repair_calls(partition).await } else { Ok(()) } {
                    Ok(()) => sets.extend(sets_of_running(partition, &found[1])),
                    // The trouble of one function keeps no other from being repaired.
                    Err(error) => {
                        tracing::debug!(function = %partition.function, %error, "this function's calls were not checked; the next round does it");
                    }
                }
            }
            self.remove_stale(sets).await?;
        }
        Ok(())
    }

    /// Scripts go on without a notification that may not be sent, so that a process that may not send any would never hear of it.
    async fn check_notifications(&self) -> Result<(), StoreError> {
        let channel = self.shared.keys.probe();
        if let Err(StoreError::Unavailable(StoreTrouble::NotAllowed(why))) =
            self.shared.link.ask(&command("PUBLISH", &[&channel, ""])).await
        {
            let says = format!(
                "this process may not send notifications (PUBLISH to {channel}), so that workers, waiting callers and locks hear of news up to 15 s \
                 late: {why}"
            );
            self.shared.tell_once("notifications", &says);
        }
        Ok(())
    }

    async fn repair_calls(&self, partition: &Arc<Partition>) -> Result<(), StoreError> {
        let mut scan = command("HSCAN", &[&partition.keys.calls]);
        scan.arg(partition.repaired_to()).arg("COUNT").arg(partition.repair_count());
        let mut reply = value::array("HSCAN", self.shared.link.ask(&scan).await?)?.into_iter();
        let next = reply.next().as_ref().and_then(value::number).unwrap_or_default();
        let fields = value::array("HSCAN", reply.next().unwrap_or(Value::Nil))?;
        let bytes = fields.iter().filter_map(value::bytes).map(<[u8]>::len).sum();
        let mut records = Vec::new();
        for pair in fields.chunks_exact(2) {
            let Some(call_id) = value::text(&pair[0]).and_then(|id| CallId::new(id).ok()) else { continue };
            let text = value::bytes(&pair[1]).unwrap_or_default().to_vec();
            match Record::read(&call_id, &text.into()) {
                Ok(record) => records.push(record),
                Err(error) => self.shared.pass_over(&partition.keys.calls, call_id.as_str().as_bytes(), error),
            }
        }
        self.mend(partition, records).await?;
        partition.note_repair(u64::try_from(next).unwrap_or(0), bytes);
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
    async fn remove_stale(&self, sets: Vec<SetOfRunning<'_>>) -> Result<(), StoreError> {
        let sizes: Vec<Cmd> = sets.iter().map(|set| command("SCARD", &[&set.key])).collect();
        for (set, size) in sets.iter().zip(self.shared.link.ask_apart(&sizes).await) {
            // Without members, or of another type: the doctor tells of it.
            if size.ok().as_ref().and_then(value::number).is_none_or(|size| size == 0) {
                continue;
            }
            let mut args = Args::with_capacity(3);
            args.number(CHUNK);
            args.flag(set.worker.is_empty());
            args.push(&set.worker);
            let removed = self.shared.link.run_args(&MEND, &[&set.partition.keys.calls, &set.key], &args).await;
            // The trouble of one function keeps no other from being repaired.
            let removed = match removed {
                Err(error) if self.shared.is_local(&error) => {
                    self.shared.pass_over(&set.partition.keys.calls, b"", self.explain(set.partition, error).await);
                    continue;
                }
                removed => removed?,
            };
            if let Some(removed) = value::number(&removed).filter(|removed| *removed > 0) {
                let (function, set_key) = (&set.partition.function, &set.key);
                tracing::warn!(%function, removed, set_key, "calls that do not run were counted as running; they are not any more");
                self.work_came(set.partition);
            }
        }
        Ok(())
    }
}

/// A set of running calls: those of a worker whose slots the store counts, or those that are parked.
struct SetOfRunning<'a> {
    partition: &'a Arc<Partition>,
    key: String,
    /// The worker that holds its calls. Empty: they are parked.
    worker: String,
}

/// Number of questions about one function.
const LOOKS: usize = 3;

fn look(partition: &Partition) -> [Cmd; LOOKS] {
    let keys = &partition.keys;
    [command("HLEN", &[&keys.calls]), command("HGETALL", &[&keys.definition]), command("ZCARD", &[&keys.queue])]
}

fn sets_of_running<'a>(partition: &'a Arc<Partition>, about: &Value) -> Vec<SetOfRunning<'a>> {
    let fields: &[Value] = if let Value::Array(fields) = about { fields } else { &[] };
    let workers = fields.iter().step_by(2).filter_map(value::text).filter_map(|field| field.strip_prefix("offer:"));
    let held = workers.map(|worker| SetOfRunning { partition, key: format!("{}{worker}", partition.keys.held), worker: worker.to_owned() });
    held.chain([SetOfRunning { partition, key: partition.keys.parked.clone(), worker: String::new() }]).collect()
}
