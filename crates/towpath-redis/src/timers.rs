//! What happens by itself. Every server does it; a line that one server takes up is put off for the others.
//!
//! A process fires the timers of calls that it has had a hand in. Those that a dead process has left are found by a look at all functions:
//! when a process or a worker went away, and now and then.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::{Cmd, Value};
use towpath_core::call::{CallCommand, CallReply, CallState, step};
use towpath_core::store::{Fired, Forgotten, Retention, StoreError, TimerStore};
use towpath_core::time::Timestamp;

use crate::calls::change::{Change, ended};
use crate::calls::partition::Partition;
use crate::calls::record::Record;
use crate::calls::sections;
use crate::legacy::Looks;
use crate::pause::pause;
use crate::quick::QuickMap;
use crate::script::{Args, DUE};
use crate::store::RedisStore;
use crate::value;

/// How often the next silent worker and the next lease of a lock are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often a process reads the timers of all functions: one second per function, within these bounds. It fires the timers that it has noted
/// itself without this, and also reads all of them when another process has left.
const LOOK_AT_ALL: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(60));
/// A line that was taken up is due again after this, should the process that took it up have died.
const PUT_OFF: Duration = Duration::from_secs(2);

/// Delays, leases, deadlines.
const KINDS: usize = 3;

/// A call that something is due of, and since when.
struct Due {
    partition: Arc<Partition>,
    record: Arc<Record>,
    at: Timestamp,
}

/// What becomes of a call that something was due of.
enum Decided {
    Moved(Change),
    NotDue(Arc<Record>),
}

#[async_trait]
impl TimerStore for RedisStore {
    async fn forget_old(&self, keep: &Retention, limit: u32) -> Result<Forgotten, StoreError> {
        self.forget_older(keep, limit).await
    }

    async fn fire_due(&self, limit: u32) -> Result<Fired, StoreError> {
        let now = self.shared.now();
        let mut fired = Fired::default();
        let looks_at_all = self.is_time_to_look_at_all(now);
        let partitions = if looks_at_all { self.all_partitions().await? } else { self.shared.agenda.due(now) };
        let mut in_trouble = Vec::new();
        if limit > 0 {
            in_trouble = self.fire_calls(&partitions, limit, now, &mut fired).await?;
            self.fire_others(limit, now, &mut fired).await?;
        }
        self.read_heads(&partitions).await?;
        // What is due of a function in trouble stays due: it is not looked at again at once.
        in_trouble.iter().for_each(|partition| self.shared.agenda.put_off(partition, now + PUT_OFF));
        if looks_at_all {
            self.shared.agenda.has_looked(now);
        }
        fired.next_due = self.shared.agenda.earliest().into_iter().chain(self.next_of_others().await?).min();
        self.shared.agenda.wait_until(fired.next_due);
        Ok(fired)
    }

    async fn due_before(&self, known: Option<Timestamp>) -> Timestamp {
        self.shared.agenda.wait_until(known);
        let mut departures = self.shared.presence.departures();
        loop {
            departures.mark_unchanged();
            match self.earliest().await {
                Ok(Some(first)) if known.is_none_or(|known| first < known) => return first,
                // A worker that would have been silent by then was heard, or a lease was renewed.
                Ok(Some(first)) if known.is_some_and(|known| known < first && known <= self.shared.now()) => return first,
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "the next timer is not known; looking again"),
            }
            tokio::select! {
                () = self.shared.agenda.sooner() => {}
                () = self.shared.agenda.lease_sooner() => {}
                // The sender lives in `self`, so this ends by a departure only.
                _ = departures.changed() => self.shared.agenda.doubt(),
                () = pause(LOOK_EVERY) => {}
            }
        }
    }
}

impl RedisStore {
    /// The earliest timer of all that is known.
    async fn earliest(&self) -> Result<Option<Timestamp>, StoreError> {
        if self.is_time_to_look_at_all(self.shared.now()) {
            let partitions = self.all_partitions().await?;
            self.read_heads(&partitions).await?;
            self.shared.agenda.has_looked(self.shared.now());
        }
        let (others, runs) = tokio::try_join!(self.next_of_others(), self.next_of_runs())?;
        Ok(self.shared.agenda.earliest().into_iter().chain(others).chain(runs).min())
    }

    /// Under a test's clock everything is always looked at: other processes may share the server.
    fn is_time_to_look_at_all(&self, now: Timestamp) -> bool {
        let Some(looked_at) = self.shared.agenda.looked_at().filter(|_| self.shared.lives_by_the_server) else { return true };
        let functions = u64::try_from(self.partitions_in_use().len()).unwrap_or(u64::MAX);
        now.since(looked_at) >= Duration::from_secs(functions).clamp(LOOK_AT_ALL.0, LOOK_AT_ALL.1) || now < looked_at
    }

    /// Does what is due of these functions, of each kind so many at most. The trouble of one function keeps no other from its timers.
    /// Returns the functions in trouble.
    async fn fire_calls(
        &self,
        partitions: &[Arc<Partition>],
        limit: u32,
        now: Timestamp,
        fired: &mut Fired,
    ) -> Result<Vec<Arc<Partition>>, StoreError> {
        let mut in_trouble = Vec::new();
        let mut kinds: [Vec<Due>; KINDS] = Default::default();
        // About twice the limit is taken up of each kind, whatever the number of functions: the earliest are fired, and the rest stays due.
        let share = (2 * limit as usize).div_ceil(partitions.len().max(1)).max(2);
        for partition in partitions {
            match self.take_up(partition, share, now).await {
                Ok((taken, trouble)) => {
                    kinds.iter_mut().zip(taken).for_each(|(kind, taken)| kind.extend(taken));
                    if let Some(error) = trouble {
                        let error = self.explain(partition, error).await;
                        self.shared.pass_over(
                            &partition.keys.deadlines,
                            b"",
                            format!("not all timers of this function are fired: {error}"),
                        );
                        in_trouble.push(Arc::clone(partition));
                    }
                }
                Err(error) => {
                    self.shared.pass_over(
                        &partition.keys.deadlines,
                        b"",
                        format!("timers of this function are not fired; trying again: {error}"),
                    );
                    in_trouble.push(Arc::clone(partition));
                }
            }
        }
        let (mut moved, mut batch, mut put_back) = (HashSet::new(), Vec::new(), Vec::new());
        for mut kind in kinds {
            kind.retain(|due| !moved.contains(&due.record.call.call_id));
            kind.sort_by_key(|due| (due.at, due.record.sequence));
            put_back.extend(kind.split_off(kind.len().min(limit as usize)));
            moved.extend(kind.iter().map(|due| due.record.call.call_id.clone()));
            batch.append(&mut kind);
        }
        let mut changes = Vec::with_capacity(batch.len());
        let mut policies: QuickMap<String, u32> = QuickMap::default();
        let mut looks = Looks::default();
        for Due { partition, record, at } in batch {
            // The trouble of one call, or of its function, keeps no other from its timer. What was put off is due again in two seconds.
            let decided = match self.decide(&partition, record, &mut policies, &mut looks, now).await {
                Ok(decided) => decided,
                Err(error) => {
                    tracing::warn!(function = %partition.function, %error, "what is due of this function could not be decided; trying again");
                    in_trouble.push(partition);
                    continue;
                }
            };
            match decided {
                Decided::Moved(change) => changes.push((partition, change)),
                Decided::NotDue(record) => put_back.push(Due { partition, record, at }),
            }
        }
        let dying = changes.iter().map(|(partition, change)| (&partition.function, &change.after.call));
        if let Err(error) = self.keep_reservations(dying.filter(|(_, call)| call.state == CallState::Dead)).await {
            tracing::warn!(%error, "ids of dead letters could not be reserved for longer; these letters may not be found by their ids");
        }
        let fate =
            |(partition, change): &(Arc<Partition>, Change)| (Arc::clone(partition), change.before.clone(), Arc::clone(&change.after));
        let fates: Vec<_> = changes.iter().map(fate).collect();
        for ((partition, before, after), made) in fates.iter().zip(self.apply_all(changes).await) {
            match (made, before) {
                (Ok(true), Some(before)) => self.count_fired(partition, before, after, now, fired),
                (Err(error), _) => {
                    tracing::warn!(function = %partition.function, %error, "a timer could not be fired; trying again");
                    in_trouble.push(Arc::clone(partition));
                }
                _changed => {}
            }
        }
        self.correct_lines(&put_back).await?;
        Ok(in_trouble)
    }

    /// Decides what becomes of a call that something is due of.
    async fn decide(
        &self,
        partition: &Arc<Partition>,
        record: Arc<Record>,
        policies: &mut QuickMap<String, u32>,
        looks: &mut Looks,
        now: Timestamp,
    ) -> Result<Decided, StoreError> {
        let max_deliveries = match policies.get(&partition.member) {
            Some(known) => *known,
            None => {
                let policy = self.retry_policy(partition).await?;
                *policies.entry(partition.member.clone()).or_insert(policy.max_deliveries)
            }
        };
        let record = self.seen_by_legacy_workers(partition, record, now, looks).await?;
        let (after, reply) = step(record.call.clone(), CallCommand::ComeDue { max_deliveries }, now);
        Ok(if reply == CallReply::Moved { Decided::Moved(Change::new(record, after)) } else { Decided::NotDue(record) })
    }

    fn count_fired(&self, partition: &Partition, before: &Record, after: &Record, now: Timestamp, fired: &mut Fired) {
        self.dismiss_silent(before, now);
        match (ended(partition, &after.call), before.call.state) {
            (Some(ended), _) => fired.ended.push(ended),
            (None, CallState::Running) => fired.reclaimed += 1,
            (None, _) => fired.promoted += 1,
        }
    }

    /// Takes up what is due of a function, by kind, and says which trouble it met with one of them.
    async fn take_up(
        &self,
        partition: &Arc<Partition>,
        limit: usize,
        now: Timestamp,
    ) -> Result<([Vec<Due>; KINDS], Option<StoreError>), StoreError> {
        let keys = &partition.keys;
        let mut args = Args::with_capacity(3);
        args.number(now.as_millis());
        args.number((now + PUT_OFF).as_millis());
        args.number(limit);
        let names = [keys.calls.as_str(), &keys.delayed, &keys.running, &keys.deadlines];
        let replies = value::array("a look for what is due", self.shared.link.run_args(&DUE, &names, &args).await?)?;
        let trouble = replies.get(KINDS).and_then(value::text).filter(|why| !why.is_empty()).map(sections::refused);
        let mut kinds: [Vec<Due>; KINDS] = Default::default();
        for (number, (kind, reply)) in kinds.iter_mut().zip(replies).enumerate() {
            let mut parts = value::array("a look for what is due", reply)?.into_iter();
            while let (Some(id), Some(text)) = (parts.next(), parts.next()) {
                let text = Bytes::from(value::into_bytes(text).unwrap_or_default());
                let record = match value::call_id(&id).and_then(|call_id| Record::read(&call_id, &text)) {
                    Ok(record) => Arc::new(record),
                    Err(error) => {
                        // A later version may have written it. The doctor tells of it.
                        tracing::debug!(function = %partition.function, %error, "something is due of a call that cannot be read");
                        continue;
                    }
                };
                let of_kind = [record.call.not_before, record.call.lease_until, Some(record.call.deadline)][number];
                let at = of_kind.unwrap_or(record.call.deadline);
                kind.push(Due { partition: Arc::clone(partition), record, at });
            }
        }
        Ok((kinds, trouble))
    }

    /// Gives lines that were put off the times of their calls again.
    async fn correct_lines(&self, put_back: &[Due]) -> Result<(), StoreError> {
        let line = |key: &str, at: Timestamp, record: &Record| {
            let mut add = Cmd::new();
            add.arg("ZADD").arg(key).arg("XX").arg(at.as_millis()).arg(record.call.call_id.as_str());
            add
        };
        let mut correct = Vec::new();
        for Due { partition, record, .. } in put_back {
            let (keys, call) = (&partition.keys, &record.call);
            match call.state {
                CallState::Running => correct.extend(call.lease_until.map(|at| line(&keys.running, at, record))),
                CallState::Delayed => correct.extend(call.not_before.map(|at| line(&keys.delayed, at, record))),
                _ => {}
            }
            correct.push(line(&keys.deadlines, call.deadline, record));
        }
        for reply in self.shared.link.ask_apart(&correct).await {
            // A line that is not corrected is due again in two seconds.
            if let Err(error) = reply
                && !self.shared.is_local(&error)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Workers that were silent for too long, and leases of locks that ended.
    async fn fire_others(&self, limit: u32, now: Timestamp, fired: &mut Fired) -> Result<(), StoreError> {
        if self.shared.agenda.others_from().is_some_and(|from| now < from) {
            return Ok(());
        }
        // The trouble of one worker or lock keeps no other from its timer. After a failure all of them wait for a while.
        let mut failed = false;
        for (_, worker) in self.silent_workers(limit).await? {
            match self.remove_worker(&worker).await {
                Ok(removed) => fired.workers_removed += u64::from(removed),
                Err(error) => {
                    let workers = self.shared.keys.workers();
                    self.shared.pass_over(
                        &workers,
                        worker.as_str().as_bytes(),
                        format!("this silent worker is not removed; trying again: {error}"),
                    );
                    failed = true;
                }
            }
        }
        for (_, scope) in self.ended_leases(now, limit as usize).await? {
            match self.reap_lock(&scope).await {
                Ok(_) => fired.locks_reaped += 1,
                Err(error) => {
                    self.shared.pass_over(&scope.key(), b"", format!("the ended lease of this lock is not removed; trying again: {error}"));
                    failed = true;
                }
            }
        }
        if failed {
            self.shared.agenda.put_others_off(now + PUT_OFF);
        }
        Ok(())
    }

    /// A worker that let a lease run out may be gone: its claims that wait end empty.
    fn dismiss_silent(&self, before: &Record, now: Timestamp) {
        let call = &before.call;
        let ran_out = call.state == CallState::Running && call.lease_until.is_some_and(|until| until <= now);
        if let Some(holder) = call.holder.as_ref().filter(|_| ran_out) {
            self.shared.claims.dismiss(holder);
            self.shared.held.remove(&call.call_id);
        }
    }

    /// When the next worker will have been silent for too long, or the next lease of a lock ends.
    async fn next_of_others(&self) -> Result<Option<Timestamp>, StoreError> {
        let (silence, lease_end) = tokio::try_join!(self.next_silence(), self.next_lease_end())?;
        let next = silence.into_iter().chain(lease_end).min();
        Ok(next.map(|next| self.shared.agenda.others_from().map_or(next, |from| next.max(from))))
    }

    /// Reads the earliest timer of each of these partitions into the agenda.
    async fn read_heads(&self, partitions: &[Arc<Partition>]) -> Result<(), StoreError> {
        self.shared.agenda.begin_reading(partitions);
        for (partition, head) in partitions.iter().zip(self.heads(partitions).await?) {
            self.shared.agenda.set(partition, head);
        }
        Ok(())
    }

    /// The earliest timer of each of these partitions.
    async fn heads(&self, partitions: &[Arc<Partition>]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        let ask = |key: &str| {
            let mut head = Cmd::new();
            head.arg("ZRANGE").arg(key).arg(0).arg(0).arg("WITHSCORES");
            head
        };
        let asks: Vec<Cmd> = partitions
            .iter()
            .flat_map(|partition| [&partition.keys.delayed, &partition.keys.running, &partition.keys.deadlines].map(|key| ask(key)))
            .collect();
        let replies = self.shared.link.ask_apart(&asks).await;
        if let Some(Err(error)) = replies.iter().find(|reply| matches!(reply, Err(error) if !self.shared.is_local(error))) {
            return Err(error.clone());
        }
        // A key of a wrong type, or on a master that is away, is the trouble of its function, and is told by what fires its timers.
        let heads = |replies: &[Result<Value, StoreError>]| replies.iter().flatten().filter_map(first_score).min();
        Ok(replies.chunks_exact(3).map(heads).collect())
    }
}

fn first_score(reply: &Value) -> Option<Timestamp> {
    let Value::Array(parts) = reply else { return None };
    #[expect(clippy::cast_possible_truncation, reason = "scores are instants in whole milliseconds, far below 2^53")]
    value::score(parts.get(1)?).map(|score| Timestamp::from_millis(score as i64))
}
