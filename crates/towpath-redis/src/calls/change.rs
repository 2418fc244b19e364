//! Changes of calls: decided by the host, made by one script for each call that is still as the host saw it.

use std::sync::Arc;

use bytes::Bytes;
use redis::Value;
use towpath_core::call::{Call, CallCommand, CallReply, CallState, Outcome, step};
use towpath_core::names::CallId;
use towpath_core::store::{CallNews, Ended, StoreError};
use towpath_core::time::{Timestamp, millis};

use super::ended::Bucket;
use super::find::Found;
use super::partition::{Partition, Weighed};
use super::record::{PROGRESS, REQUEST, Record};
use super::replies::write_reply;
use super::sections;
use crate::lane::heard;
use crate::legacy;
use crate::quick::QuickMap;
use crate::script::{APPLY, Args};
use crate::store::{RedisStore, Shared};
use crate::value;

/// A change of one call.
pub(crate) struct Change {
    /// The call as the host saw it; `None` for a new call, whose id must be free.
    pub(crate) before: Option<Arc<Record>>,
    pub(crate) after: Arc<Record>,
    /// Commands that go with the change.
    commands: Vec<Vec<Bytes>>,
    /// The handler has reported progress.
    reports: bool,
}

impl Change {
    /// From what was seen to what was decided.
    pub(crate) fn new(before: Arc<Record>, after: Call) -> Self {
        let after = before.next(after);
        Self::to(before, after)
    }

    pub(crate) fn to(before: Arc<Record>, after: Record) -> Self {
        Self { before: Some(before), after: Arc::new(after), commands: Vec::new(), reports: false }
    }

    /// A new call.
    pub(crate) fn insert(record: Record) -> Self {
        Self { before: None, after: Arc::new(record), commands: Vec::new(), reports: false }
    }

    /// The same change, with a command that is run if the change is made.
    pub(crate) fn with<const N: usize>(mut self, command: [&[u8]; N]) -> Self {
        self.commands.push(command.iter().map(|word| Bytes::copy_from_slice(word)).collect());
        self
    }

    /// About how many bytes it adds to a script.
    fn size(&self) -> usize {
        let outcome = match &self.after.call.outcome {
            Some(Outcome::Ok(data)) => data.len(),
            _ => 0,
        };
        // The outcome is written into the record, and told to the caller.
        2 * outcome + self.commands.iter().flatten().map(Bytes::len).sum::<usize>()
    }

    fn was(&self) -> Option<CallState> {
        self.before.as_ref().map(|before| before.call.state)
    }

    pub(crate) fn ends(&self) -> bool {
        self.was().is_some_and(|was| !was.has_ended()) && self.after.call.state.has_ended()
    }

    /// The same change, which keeps a progress report.
    pub(crate) fn reporting(mut self) -> Self {
        self.reports = true;
        self
    }

    /// The call will be tried again later, or has reported progress: its watchers look at it.
    fn is_worth_a_look(&self) -> bool {
        self.reports || self.was() != Some(CallState::Delayed) && self.after.call.state == CallState::Delayed
    }

    fn joins_queue(&self) -> bool {
        place(&self.after) == 'Q' && self.before.as_ref().is_none_or(|before| place(before) != 'Q')
    }

    /// Another call may run in its place.
    fn frees_room(&self) -> bool {
        let counts = |record: &Record| record.call.state == CallState::Running && !record.call.parked;
        self.before.as_deref().is_some_and(counts) && !counts(&self.after)
    }
}

/// The letter of the place in which a record stands, as the script names it.
fn place(record: &Record) -> char {
    match record.call.state {
        CallState::Queued if record.exported.is_empty() => 'Q',
        CallState::Queued => 'X',
        CallState::Running => 'R',
        CallState::Delayed => 'D',
        CallState::Dead => 'Z',
        _ended => '-',
    }
}

/// Its score there.
fn score(record: &Record) -> i64 {
    let call = &record.call;
    match place(record) {
        'R' => call.lease_until.unwrap_or(call.deadline).as_millis(),
        'D' => call.not_before.unwrap_or(call.deadline).as_millis(),
        _by_sequence => i64::try_from(record.sequence).unwrap_or(i64::MAX),
    }
}

impl Weighed for Arc<Change> {
    fn bytes(&self) -> usize {
        self.size()
    }
}

impl RedisStore {
    /// Puts one command to a call: find, decide, save if it is still so, tell. `None`: there is no such call.
    /// A decision that changes nothing is answered from what was found.
    pub(crate) async fn put(
        &self,
        call_id: &CallId,
        command: impl Fn(&Found, Timestamp) -> CallCommand,
    ) -> Result<Option<(Found, CallReply)>, StoreError> {
        loop {
            let Some(found) = self.find_call(call_id).await? else { return Ok(None) };
            let now = self.shared.now();
            let (after, reply) = step(found.record.call.clone(), command(&found, now), now);
            if !changes(&reply) {
                return Ok(Some((found, reply)));
            }
            let change = Change::new(Arc::clone(&found.record), after);
            let record = Arc::clone(&change.after);
            if self.apply(&found.partition, vec![change]).await?[0] {
                return Ok(Some((Found { record, ..found }, reply)));
            }
        }
    }

    /// Makes changes of one partition's calls and tells everyone concerned. `false` where the call has changed meanwhile.
    pub(crate) async fn apply(&self, partition: &Arc<Partition>, changes: Vec<Change>) -> Result<Vec<bool>, StoreError> {
        let changes = changes.into_iter().map(|change| (Arc::clone(partition), change)).collect();
        self.apply_all(changes).await.into_iter().collect()
    }

    /// The same for several partitions. Each change has a result of its own.
    pub(crate) async fn apply_all(&self, changes: Vec<(Arc<Partition>, Change)>) -> Vec<Result<bool, StoreError>> {
        let changes: Vec<(Arc<Partition>, Arc<Change>)> =
            changes.into_iter().map(|(partition, change)| (partition, Arc::new(change))).collect();
        let mut receivers: Vec<_> = changes.iter().map(|_| None).collect();
        let mut by_lane: QuickMap<usize, Vec<usize>> = QuickMap::default();
        for (place, (partition, _)) in changes.iter().enumerate() {
            by_lane.entry(Arc::as_ptr(&partition.changes).addr()).or_default().push(place);
        }
        for places in by_lane.into_values() {
            let lane = Arc::clone(&changes[places[0]].0.changes);
            let store = self.clone();
            let asked = lane.ask(places.iter().map(|place| changes[*place].clone()), move |batch| {
                let store = store.clone();
                async move { Ok(store.flush_changes(batch).await) }
            });
            places.iter().zip(asked).for_each(|(place, receiver)| receivers[*place] = Some(receiver));
        }
        let mut results = Vec::with_capacity(changes.len());
        for ((partition, change), receiver) in changes.iter().zip(receivers) {
            let made = match receiver {
                Some(receiver) => heard(receiver).await.and_then(|made| made),
                None => Ok(false),
            };
            if matches!(made, Ok(true)) {
                self.tell(partition, change);
            }
            results.push(made);
        }
        self.answer_legacy_callers(&changes, &results);
        results
    }

    /// Makes changes of one partition's calls, all of them or none.
    pub(crate) async fn apply_together(&self, partition: &Arc<Partition>, changes: Vec<Change>) -> Result<bool, StoreError> {
        let changes: Vec<Arc<Change>> = changes.into_iter().map(Arc::new).collect();
        let section = Section { partition, changes: changes.iter().collect(), together: true };
        let made = self.run_sections(&[section]).await?.pop().unwrap_or_else(|| Ok(Vec::new()))?;
        if made.iter().all(|made| *made) {
            changes.iter().for_each(|change| self.tell(partition, change));
            return Ok(true);
        }
        Ok(false)
    }

    /// Makes all changes of a batch whose calls are still as they were seen. One result each.
    async fn flush_changes(&self, batch: Vec<(Arc<Partition>, Arc<Change>)>) -> Vec<Result<bool, StoreError>> {
        let groups = group(&batch);
        let sections: Vec<Section<'_>> = groups
            .iter()
            .map(|(partition, places)| Section {
                partition,
                changes: places.iter().map(|place| &batch[*place].1).collect(),
                together: false,
            })
            .collect();
        let mut results: Vec<Result<bool, StoreError>> = batch.iter().map(|_| Ok(false)).collect();
        match self.run_sections(&sections).await {
            Err(error) => results.iter_mut().for_each(|result| *result = Err(error.clone())),
            Ok(replies) => {
                for ((partition, places), reply) in groups.iter().zip(replies) {
                    match reply {
                        Ok(made) => places.iter().zip(made).for_each(|(place, made)| results[*place] = Ok(made)),
                        Err(error) => {
                            let error = self.explain(partition, error).await;
                            places.iter().for_each(|place| results[*place] = Err(error.clone()));
                        }
                    }
                }
            }
        }
        results
    }

    /// Runs the script. Of each section it says which changes were made.
    async fn run_sections(&self, sections: &[Section<'_>]) -> Result<Vec<Result<Vec<bool>, StoreError>>, StoreError> {
        let shared = &self.shared;
        let mut args = shared.pool.take();
        args.number(sections.len());
        let mut keys: Vec<&str> = Vec::with_capacity(sections.len() * 8);
        for section in sections {
            keys.extend(section.partition.keys.of_changes());
            let mut words = shared.pool.take();
            section.write(shared, &mut words);
            args.number(words.len());
            args.append(&words);
            shared.pool.put(words);
        }
        let ran = shared.run_durably(&APPLY, &keys, &args).await;
        shared.pool.put(args);
        let (reply, _) = ran?;
        let replies = sections::read("a change of calls", reply, sections.len())?;
        let made = |(section, reply): (&Section<'_>, Result<Value, StoreError>)| section.made(reply?);
        Ok(sections.iter().zip(replies).map(made).collect())
    }

    /// Tells this process what it needs to know of a change that was made; the script has told the others.
    fn tell(&self, partition: &Arc<Partition>, change: &Change) {
        let after = &change.after.call;
        if change.ends() {
            self.shared.waiters.tell_end(after);
        } else if change.is_worth_a_look() {
            self.shared.waiters.tell(&after.call_id, &CallNews::Changed);
        }
        if change.joins_queue() || change.frees_room() && partition.is_limited(self.shared.news.function_changes()) {
            self.work_came(partition);
        }
        if let Some(due) = after.due() {
            self.shared.agenda.note(partition, due);
        }
    }
}

/// The changes of one partition.
struct Section<'a> {
    partition: &'a Arc<Partition>,
    changes: Vec<&'a Arc<Change>>,
    together: bool,
}

impl Section<'_> {
    fn write(&self, shared: &Shared, words: &mut Args) {
        let keys = &self.partition.keys;
        words.number(self.changes.len());
        words.flag(self.together);
        words.push(&keys.ended);
        words.push(&keys.listed);
        let now = shared.now();
        for change in &self.changes {
            self.write_change(shared, change, now, words);
        }
    }

    fn write_change(&self, shared: &Shared, change: &Change, now: Timestamp, words: &mut Args) {
        let (after, from) = (&change.after, change.before.as_deref().map_or('-', place));
        words.push(after.call.call_id.as_str());
        words.written(|text| {
            if let Some(before) = &change.before {
                before.write_start(text);
            }
        });
        words.push([from as u8]);
        words.push([place(after) as u8]);
        words.number(score(after));
        words.push(after.write());
        words.number(after.sequence);
        let bucket = after.call.kept_until().map(|until| Bucket::of(until, after.call.retain, now, shared.lives_by_the_server));
        words.push(bucket.as_ref().map_or("", |bucket| &bucket.name));
        words.number(bucket.as_ref().map_or(0, |bucket| bucket.lives_ms));
        let told = self.told(shared, change);
        let message = if told.is_empty() { Vec::new() } else { write_reply(&after.call, change.ends()) };
        words.push(told.first().map_or(String::new(), |process| shared.keys.replies(process)));
        words.push(&message);
        let commands = self.commands(shared, change, &told, &message, bucket.as_ref());
        words.number(commands.len());
        for command in &commands {
            words.number(command.len());
            command.iter().for_each(|word| words.push(word));
        }
    }

    /// The processes that are told of a change, besides this one.
    fn told<'c>(&self, shared: &Shared, change: &'c Change) -> Vec<&'c str> {
        if !change.ends() && !change.is_worth_a_look() {
            return Vec::new();
        }
        let Some(before) = &change.before else { return Vec::new() };
        let replies = before.replies.iter().map(|reply| &**reply);
        replies.filter(|reply| *reply != shared.process && !legacy::is_reply_list(reply)).collect()
    }

    /// The commands that go with a change, besides those that every change has.
    fn commands(&self, shared: &Shared, change: &Change, told: &[&str], message: &[u8], bucket: Option<&Bucket>) -> Vec<Vec<Bytes>> {
        let (keys, after) = (&self.partition.keys, &change.after);
        let mut commands = change.commands.clone();
        let mut add = |words: &[&[u8]]| commands.push(words.iter().map(|word| Bytes::copy_from_slice(word)).collect());
        let id = after.call.call_id.as_str().as_bytes();
        for process in told.iter().skip(1) {
            add(&[b"PUBLISH", shared.keys.replies(process).as_bytes(), message]);
        }
        let before = change.before.as_deref();
        let is_parked = |record: &Record| record.call.parked;
        match (before.is_some_and(is_parked), is_parked(after)) {
            (false, true) => add(&[b"SADD", keys.parked.as_bytes(), id]),
            (true, false) => add(&[b"SREM", keys.parked.as_bytes(), id]),
            _ => {}
        }
        let counts_for = |record: &Record| record.call.holder.clone().filter(|_| record.counted && !record.call.parked);
        match (before.and_then(counts_for), counts_for(after)) {
            (Some(holder), None) => add(&[b"SREM", format!("{}{holder}", keys.held).as_bytes(), id]),
            (None, Some(holder)) => add(&[b"SADD", format!("{}{holder}", keys.held).as_bytes(), id]),
            _ => {}
        }
        if let Some(bucket) = bucket {
            for (field, is_beside) in [(REQUEST, after.request.is_none()), (PROGRESS, after.has_progress)] {
                if is_beside {
                    add(&[b"MOVE", format!("{field}{}", after.call.call_id).as_bytes()]);
                }
            }
            if let Some(key) = after.key.as_ref().filter(|_| after.call.replayed_as.is_none()) {
                add(&[b"PEXPIRE", format!("{}{key}", keys.idempotency).as_bytes(), bucket.lives_ms.to_string().as_bytes()]);
            }
        }
        if let Some(before) = before.filter(|before| !before.exported.is_empty() && before.exported != after.exported) {
            let field = format!("r:{}", after.call.call_id);
            let entry = before.exported.as_bytes();
            add(&[b"ENTRY", keys.stream.as_bytes(), keys.group.as_bytes(), entry, keys.legacy.as_bytes(), field.as_bytes()]);
        }
        if change.ends() && after.replies.iter().any(|reply| legacy::is_reply_list(reply)) {
            add(&[b"SADD", keys.owed.as_bytes(), id]);
        }
        if change.joins_queue() || change.frees_room() && self.partition.is_limited(shared.news.function_changes()) {
            add(&[b"PUBLISH", keys.work.as_bytes(), b""]);
        }
        if before.is_none() && !after.call.state.has_ended() {
            add(&[b"ZADD", keys.deadlines.as_bytes(), after.call.deadline.as_millis().to_string().as_bytes(), id]);
        }
        commands
    }

    /// Which changes were made, by the numbers of those that were not.
    fn made(&self, reply: Value) -> Result<Vec<bool>, StoreError> {
        let mut made = vec![true; self.changes.len()];
        let refused = value::array("a change of calls", reply)?;
        for number in &refused {
            let place = value::number(number).and_then(|number| usize::try_from(number - 1).ok());
            let made = place.and_then(|place| made.get_mut(place));
            *made.ok_or_else(|| StoreError::Corrupt("a change that was not asked for was refused".to_owned()))? = false;
        }
        if self.together && !refused.is_empty() {
            made.fill(false);
        }
        Ok(made)
    }
}

/// The places of each partition's questions in a batch.
pub(crate) fn group<T>(batch: &[(Arc<Partition>, T)]) -> Vec<(Arc<Partition>, Vec<usize>)> {
    let mut groups: Vec<(Arc<Partition>, Vec<usize>)> = Vec::new();
    let mut known: QuickMap<usize, usize> = QuickMap::default();
    for (place, (partition, _)) in batch.iter().enumerate() {
        let number = *known.entry(Arc::as_ptr(partition).addr()).or_insert(groups.len());
        if number == groups.len() {
            groups.push((Arc::clone(partition), Vec::new()));
        }
        groups[number].1.push(place);
    }
    groups
}

/// Whether a reply says that the call is not as it was.
pub(crate) fn changes(reply: &CallReply) -> bool {
    use CallReply as R;
    !matches!(reply, R::NotClaimed | R::AlreadyRecorded | R::Lost(_) | R::AlreadyEnded | R::NotDue | R::NotDead)
}

/// How this call ended, if it did.
pub(crate) fn ended(partition: &Partition, call: &Call) -> Option<Ended> {
    call.state.has_ended().then(|| Ended {
        call_id: call.call_id.clone(),
        function: partition.function.clone(),
        state: call.state,
        took: call.ended_at.unwrap_or(call.submitted_at).since(call.submitted_at),
    })
}

/// How long a key that leads to a call lives at least: until the call is gone at the latest, unless it becomes a dead letter.
pub(crate) fn longest_life_ms(call: &Call) -> i64 {
    millis(call.deadline.since(call.submitted_at)).saturating_add(millis(call.retain)).saturating_add(3_600_000)
}
