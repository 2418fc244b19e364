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
use crate::keys::Keys;
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
        Place::of(&self.after) == Place::Queue && self.before.as_ref().is_none_or(|before| Place::of(before) != Place::Queue)
    }

    /// Another call may run in its place.
    fn frees_room(&self) -> bool {
        let counts = |record: &Record| record.call.state == CallState::Running && !record.call.parked;
        self.before.as_deref().is_some_and(counts) && !counts(&self.after)
    }
}

/// The place in which a record stands. The number is that of its key in the script; those of open calls come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ended = 0,
    Queue = 2,
    Running = 3,
    Delayed = 4,
    Exported = 5,
    Dead = 6,
}

impl Place {
    fn of(record: &Record) -> Self {
        match record.call.state {
            CallState::Queued if record.exported.is_empty() => Self::Queue,
            CallState::Queued => Self::Exported,
            CallState::Running => Self::Running,
            CallState::Delayed => Self::Delayed,
            CallState::Dead => Self::Dead,
            _ended => Self::Ended,
        }
    }

    /// The score of a record there, if that is not its sequence.
    fn instant(self, call: &Call) -> Option<Timestamp> {
        match self {
            Self::Running => Some(call.lease_until.unwrap_or(call.deadline)),
            Self::Delayed => Some(call.not_before.unwrap_or(call.deadline)),
            _by_sequence => None,
        }
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
        let changes: Vec<(Arc<Partition>, Arc<Change>)> =
            changes.into_iter().map(|change| (Arc::clone(partition), Arc::new(change))).collect();
        let places = (0..changes.len()).collect();
        let changed = self.run_sections(&changes, &[(Arc::clone(partition), places)]).await?.pop().unwrap_or_else(|| Ok(Vec::new()))?;
        if changed.is_empty() {
            changes.iter().for_each(|(_, change)| self.tell(partition, change));
        }
        Ok(changed.is_empty())
    }

    /// Makes all changes of a batch whose calls are still as they were seen. One result each.
    async fn flush_changes(&self, batch: Vec<(Arc<Partition>, Arc<Change>)>) -> Vec<Result<bool, StoreError>> {
        // A change that was not tried counts as not made: of two changes of one call the second was decided on what the first has changed.
        let mut results: Vec<Result<bool, StoreError>> = batch.iter().map(|_| Ok(false)).collect();
        let mut left = first_of_each_call(&batch);
        // A section is made as a whole, so that calls that have changed are left out of the next try. They are rare.
        while !left.is_empty() {
            let groups = group(&batch, left.drain(..));
            let replies = match self.run_sections(&batch, &groups).await {
                Ok(replies) => replies,
                Err(error) => groups.iter().map(|_| Err(error.clone())).collect(),
            };
            for ((partition, places), reply) in groups.into_iter().zip(replies) {
                match reply {
                    Ok(changed) if changed.is_empty() => places.iter().for_each(|place| results[*place] = Ok(true)),
                    Ok(changed) => left.extend(places.into_iter().filter(|place| !changed.contains(place))),
                    Err(error) => {
                        let error = self.explain(&partition, error).await;
                        places.iter().for_each(|place| results[*place] = Err(error.clone()));
                    }
                }
            }
        }
        results
    }

    /// Runs the script. Of each section it returns the places of the changes whose calls have changed: without one, all of them were made.
    async fn run_sections(
        &self,
        batch: &[(Arc<Partition>, Arc<Change>)],
        groups: &[(Arc<Partition>, Vec<usize>)],
    ) -> Result<Vec<Result<Vec<usize>, StoreError>>, StoreError> {
        let shared = &self.shared;
        let sections: Vec<Section<'_>> = groups.iter().map(|(partition, places)| Section::of(shared, partition, batch, places)).collect();
        let mut args = shared.pool.take();
        args.number(sections.len());
        let mut keys: Vec<&str> = Vec::with_capacity(sections.len() * 8);
        for section in &sections {
            keys.extend(section.partition.keys.of_changes());
            section.put_into(&mut args, &shared.keys);
        }
        let ran = shared.run_durably(&APPLY, &keys, &args).await;
        shared.pool.put(args);
        let (reply, _) = ran?;
        let replies = sections::read("a change of calls", reply, sections.len())?;
        Ok(sections.iter().zip(replies).map(|(section, reply)| section.changed(reply?)).collect())
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

/// The changes of one partition, in groups of those that are alike.
struct Section<'a> {
    partition: &'a Arc<Partition>,
    groups: Vec<Group<'a>>,
}

/// Changes that the script makes with the same commands.
struct Group<'a> {
    alike: Alike<'a>,
    /// Their places in the batch, in the order in which they are written.
    places: Vec<usize>,
    changes: Vec<&'a Change>,
    /// What the channel is told of them.
    messages: Vec<u8>,
    /// Commands that go with them.
    commands: Vec<Vec<Bytes>>,
}

#[derive(PartialEq, Eq)]
struct Alike<'a> {
    /// The start of the records as they were seen. Empty: there must be none.
    start: Vec<u8>,
    from: Place,
    to: Place,
    bucket: Option<Bucket>,
    /// The process that is told.
    told: Option<&'a str>,
}

impl<'a> Section<'a> {
    fn of(shared: &Shared, partition: &'a Arc<Partition>, batch: &'a [(Arc<Partition>, Arc<Change>)], places: &[usize]) -> Self {
        let (mut section, now) = (Self { partition, groups: Vec::new() }, shared.now());
        for place in places {
            section.add(shared, *place, &batch[*place].1, now);
        }
        section
    }

    fn add(&mut self, shared: &Shared, place: usize, change: &'a Change, now: Timestamp) {
        let after = &change.after;
        let bucket = after.call.kept_until().map(|until| Bucket::of(until, after.call.retain, now, shared.lives_by_the_server));
        let told = told(shared, change);
        let message = if told.is_empty() { Vec::new() } else { write_reply(&after.call, change.ends()) };
        let commands = self.commands(shared, change, &told, &message, bucket.as_ref());
        let alike = Alike::of(change, bucket, told.first().copied());
        let known = self.groups.iter().position(|group| group.alike == alike);
        let number = known.unwrap_or_else(|| {
            self.groups.push(Group::new(alike));
            self.groups.len() - 1
        });
        let group = &mut self.groups[number];
        group.places.push(place);
        group.changes.push(change);
        group.messages.extend_from_slice(&message);
        group.commands.extend(commands);
    }

    fn put_into(&self, args: &mut Args, all_keys: &Keys) {
        let keys = &self.partition.keys;
        args.counted(|words| {
            words.push(&keys.ended);
            words.push(&keys.listed);
            words.number(self.groups.len());
            self.groups.iter().for_each(|group| group.put_into(words, all_keys));
        });
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

    /// The places of the changes whose calls have changed, by the numbers that the script gave.
    fn changed(&self, reply: Value) -> Result<Vec<usize>, StoreError> {
        let places: Vec<usize> = self.groups.iter().flat_map(|group| group.places.iter().copied()).collect();
        let place = |number: &Value| {
            let number = value::number(number).and_then(|number| usize::try_from(number - 1).ok());
            let place = number.and_then(|number| places.get(number).copied());
            place.ok_or_else(|| StoreError::Corrupt("a change that was not asked for was refused".to_owned()))
        };
        value::array("a change of calls", reply)?.iter().map(place).collect()
    }
}

impl<'a> Alike<'a> {
    fn of(change: &'a Change, bucket: Option<Bucket>, told: Option<&'a str>) -> Self {
        let mut start = Vec::new();
        if let Some(before) = &change.before {
            before.write_start(&mut start);
        }
        Self { start, from: change.before.as_deref().map_or(Place::Ended, Place::of), to: Place::of(&change.after), bucket, told }
    }
}

impl<'a> Group<'a> {
    fn new(alike: Alike<'a>) -> Self {
        Self { alike, places: Vec::new(), changes: Vec::new(), messages: Vec::new(), commands: Vec::new() }
    }

    fn put_into(&self, words: &mut Args, keys: &Keys) {
        let Alike { start, from, to, bucket, told } = &self.alike;
        let has_score = matches!(to, Place::Running | Place::Delayed);
        words.push(start);
        words.number(*from as u8);
        words.number(*to as u8);
        words.push(bucket.as_ref().map_or("", |bucket| &bucket.name));
        words.number(bucket.as_ref().map_or(0, |bucket| bucket.lives_ms));
        words.push(told.map_or(String::new(), |process| keys.replies(process)));
        words.push(&self.messages);
        words.number(self.commands.len());
        words.number(if has_score { 4 } else { 3 });
        words.number(self.changes.len());
        for Change { after, .. } in &self.changes {
            words.push(after.call.call_id.as_str());
            words.push(after.write());
            words.number(after.sequence);
            if let Some(instant) = to.instant(&after.call) {
                words.number(instant.as_millis());
            }
        }
        for command in &self.commands {
            words.number(command.len());
            command.iter().for_each(|word| words.push(word));
        }
    }
}

/// The processes that are told of a change, besides this one.
fn told<'a>(shared: &Shared, change: &'a Change) -> Vec<&'a str> {
    if !change.ends() && !change.is_worth_a_look() {
        return Vec::new();
    }
    let Some(before) = &change.before else { return Vec::new() };
    let replies = before.replies.iter().map(|reply| &**reply);
    replies.filter(|reply| *reply != shared.process && !legacy::is_reply_list(reply)).collect()
}

/// The places of each partition's questions among these of a batch.
pub(crate) fn group<T>(batch: &[(Arc<Partition>, T)], places: impl Iterator<Item = usize>) -> Vec<(Arc<Partition>, Vec<usize>)> {
    let mut groups: Vec<(Arc<Partition>, Vec<usize>)> = Vec::new();
    let mut known: QuickMap<usize, usize> = QuickMap::default();
    for place in places {
        let partition = &batch[place].0;
        let number = *known.entry(Arc::as_ptr(partition).addr()).or_insert(groups.len());
        if number == groups.len() {
            groups.push((Arc::clone(partition), Vec::new()));
        }
        groups[number].1.push(place);
    }
    groups
}

/// The places of those changes that are the first of their call in a batch.
fn first_of_each_call(batch: &[(Arc<Partition>, Arc<Change>)]) -> Vec<usize> {
    let mut seen: QuickMap<&CallId, ()> = QuickMap::default();
    let is_first = |place: &usize| seen.insert(&batch[*place].1.after.call.call_id, ()).is_none();
    (0..batch.len()).filter(is_first).collect()
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
