//! Functions: what makes them known, what is seen of them, and when they are forgotten.
//!
//! The set of functions and a function's own keys may lie on different servers, so they are written in steps. A function is put into the
//! set before it is defined, and once more after: a crash in between leaves a name without a definition, which nobody sees and the next
//! register repairs; and a `forget` that runs beside it cannot take the name of a function that was just defined. A name stays in the set
//! while the function has calls, so that whoever walks the set for what is due finds them even after the function was forgotten.
//!
//! A function that is spread is defined in each of its partitions, the first one first. A caller that finds no definition in another one
//! uses the first, so that a crash between two of them loses nothing; the next register or heartbeat of a worker completes the rest.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use redis::Value;
use towpath_core::inspect::{FunctionCounts, FunctionView};
use towpath_core::names::{CallId, FunctionKey, FunctionName, WorkerId};
use towpath_core::store::{StoreError, StoreTrouble};
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, HEALTHY_FOR};

use super::reply::{arguments, command, done, half_done, instant, next, read};
use super::scripts;
use crate::calls::change::Change;
use crate::calls::partition::Partition;
use crate::calls::record::Record;
use crate::definition::{function_member, read_definition, read_shard_member, shard_member, write_definition};
use crate::legacy::is_legacy_worker;
use crate::link::trouble;
use crate::store::RedisStore;
use crate::unreadable::{is_odd, of_key};

/// How many running calls are read at once.
const RUNNING_AT_ONCE: usize = 200;
/// How many functions are looked at in one breath.
const VIEWS_AT_ONCE: usize = 64;
/// A clock is not set back by more than this.
const CLOCK_SET_BACK: Duration = Duration::from_secs(24 * 3_600);

/// Who offers a function, and how many of its calls at once by the store's count.
pub(crate) struct Offered<'a> {
    pub(crate) worker: &'a WorkerId,
    pub(crate) concurrency: Option<u32>,
}

/// Whether a definition replaces the one that is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Definition<'a> {
    /// The latest counts.
    Replace,
    /// It was guessed from what an old worker says: whatever is known already is better.
    Adopt,
    /// Only while this one is there, as it is written.
    ReplaceThis(&'a str),
}

impl Definition<'_> {
    /// How the partitions beside the first are written: what the first one has counts.
    fn of_shard(self, shard: u16) -> Self {
        match self {
            Self::ReplaceThis(_) if shard > 0 => Self::Replace,
            mode => mode,
        }
    }

    /// The mode and the expected definition, as the script takes them.
    fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Replace => ("replace", ""),
            Self::Adopt => ("adopt", ""),
            Self::ReplaceThis(expected) => ("expect", expected),
        }
    }
}

/// What an offer or a definition has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) definition: bool,
    pub(crate) offer: bool,
    /// Nothing: another definition is there than the one to be replaced.
    pub(crate) is_refused: bool,
}

impl RedisStore {
    /// Makes a function known and, if somebody offers it, notes who.
    pub(crate) async fn write_offer(
        &self,
        function: &FunctionDefinition,
        mode: Definition<'_>,
        offered: Option<Offered<'_>>,
    ) -> Result<Changed, StoreError> {
        let spread_over = self.room_for_shards(function).await?;
        let mut changed = Changed { definition: false, offer: false, is_refused: false };
        for shard in 0..=spread_over {
            let of_shard = self.write_shard_offer(function, shard, mode.of_shard(shard), offered.as_ref()).await?;
            if of_shard.is_refused {
                return Ok(of_shard);
            }
            changed.definition |= of_shard.definition;
            changed.offer |= of_shard.offer;
        }
        self.shared.partitions.remember(&function.key);
        // From now on calls go to all of them.
        self.note_shards(&function.key, spread_over);
        Ok(changed)
    }

    /// Over how many more streams a function is to be spread. Another function may have the name of one of them.
    async fn room_for_shards(&self, function: &FunctionDefinition) -> Result<u16, StoreError> {
        if let Some(problem) = function.limits.problem() {
            return Err(trouble(format!("function '{}' cannot be kept so: {problem}", function.key)));
        }
        let shards = function.limits.shards.unwrap_or(0);
        let FunctionKey { scope, name } = &function.key;
        let of_another =
            |shard: u16| FunctionName::new(format!("{name}#{shard}")).ok().map(|name| FunctionKey { scope: scope.clone(), name });
        let mut in_the_way: Vec<String> = (1..=shards).filter_map(of_another).map(|other| function_member(&other)).collect();
        if let Some((of, shard)) = name.as_str().rsplit_once('#')
            && let (Ok(of), Ok(shard)) = (FunctionName::new(of), shard.parse::<u16>())
        {
            in_the_way.push(shard_member(&FunctionKey { scope: scope.clone(), name: of }, shard.max(1)));
        }
        if !in_the_way.is_empty() {
            let there = self.members_of_the_set().await?;
            let there = there.iter().map(|(function, shard)| shard_member(function, *shard));
            if there.into_iter().any(|member| in_the_way.contains(&member)) {
                return Err(trouble(format!(
                    "function '{}' cannot be told from a stream of another function: a name that ends with # and a number, and a \
                     function with shards whose name is the rest, do not go together; choose another name or no shards",
                    function.key
                )));
            }
        }
        Ok(shards)
    }

    async fn write_shard_offer(
        &self,
        function: &FunctionDefinition,
        shard: u16,
        mode: Definition<'_>,
        offered: Option<&Offered<'_>>,
    ) -> Result<Changed, StoreError> {
        let keys = self.shared.keys.shard(&function.key, shard);
        let add = command("SADD", &[self.shared.keys.functions(), shard_member(&function.key, shard)]);
        // Callers read from the set how many partitions there are, so the others come in when calls can be sent to them.
        if shard == 0 {
            done(self.shared.link.insist(std::slice::from_ref(&add)).await?)
                .map_err(|error| of_key(error, &self.shared.keys.functions()))?;
        }
        let limit = |limit: Option<String>| limit.unwrap_or_default();
        let (mode, expected) = mode.words();
        let arguments = arguments![
            if shard == 0 { keys.group.as_str() } else { "" },
            mode,
            write_definition(function)?,
            function.limits.max_backlog.map_or_else(|| "-".to_owned(), |limit| limit.to_string()),
            limit(function.limits.max_concurrent.map(|limit| limit.to_string())),
            offered.map_or("", |offered| offered.worker.as_str()),
            limit(offered.and_then(|offered| offered.concurrency).map(|limit| limit.to_string())),
            self.shared.now().as_millis(),
            limit(function.limits.shards.map(|shards| shards.to_string())),
            expected,
        ];
        // Only the first partition has a stream; in a Cluster it lies elsewhere than the others.
        let stream = if shard == 0 { &keys.stream } else { &keys.definition };
        let names = [keys.definition.as_str(), stream, &keys.workers, &keys.legacy];
        let reply = match self.shared.link.run(&scripts::OFFER, &names, &arguments).await {
            Err(error) => return Err(self.explain(&self.shard(&function.key, shard), error).await),
            Ok(reply) => reply,
        };
        let (definition, offer): (String, String) = read(reply)?;
        if definition == "changed" || shard > 0 {
            self.shared.link.insist(&[add]).await.and_then(done).map_err(half_done)?;
        }
        if let Some(Offered { worker, concurrency: Some(_) }) = offered
            && offer == "changed"
        {
            self.count_what_it_holds(&self.shard(&function.key, shard), worker).await.map_err(half_done)?;
        }
        Ok(Changed { definition: definition == "changed", offer: offer == "changed", is_refused: definition == "other" })
    }

    /// A worker that leaves counting to the store from now on may hold calls that were not counted. If this process dies on the way, the
    /// worker gets more calls than it has slots for, until those have ended.
    async fn count_what_it_holds(&self, partition: &Arc<Partition>, worker: &WorkerId) -> Result<(), StoreError> {
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = command("ZSCAN", &[partition.keys.running.as_str(), &cursor]);
            scan.arg("COUNT").arg(RUNNING_AT_ONCE);
            let (next, running): (String, Vec<(Vec<u8>, f64)>) = read(self.shared.link.ask(&scan).await?)?;
            let ids = running.iter().filter_map(|(id, _)| CallId::new(std::str::from_utf8(id).ok()?).ok());
            let mut ids: Vec<CallId> = ids.collect();
            while !ids.is_empty() {
                let records = self.records(partition, &ids).await?.into_iter().flatten();
                let is_uncounted = |record: &Record| record.call.holder.as_ref() == Some(worker) && !record.counted;
                let records: Vec<Arc<Record>> = records.filter(is_uncounted).map(Arc::new).collect();
                let count = |record: &Arc<Record>| {
                    let counted = Record { counted: true, ..record.next(record.call.clone()) };
                    Change::to(Arc::clone(record), counted)
                };
                let counted = self.apply(partition, records.iter().map(count).collect()).await?;
                // A call that has changed meanwhile is looked at again.
                ids = records.iter().zip(counted).filter(|(_, made)| !made).map(|(record, _)| record.call.call_id.clone()).collect();
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    pub(crate) async fn define_function(&self, function: &FunctionDefinition, mode: Definition<'_>) -> Result<(), StoreError> {
        let changed = self.write_offer(function, mode, None).await?;
        self.tell_of_functions(&[(&function.key, changed)]).await;
        Ok(())
    }

    /// Compares what is written and not what is meant: another version may have written the same definition in another way.
    pub(crate) async fn redefine_function(&self, before: &FunctionDefinition, after: &FunctionDefinition) -> Result<bool, StoreError> {
        let key = self.shared.keys.shard(&before.key, 0).definition.clone();
        let reply = self.shared.link.ask(&command("HGET", &[key.as_str(), "definition"])).await?;
        let Some(written) = read::<Option<String>>(reply)? else { return Ok(false) };
        if read_definition(written.as_bytes())? != *before {
            return Ok(false);
        }
        let changed = self.write_offer(after, Definition::ReplaceThis(&written), None).await?;
        self.tell_of_functions(&[(&after.key, changed)]).await;
        Ok(!changed.is_refused)
    }

    /// Wakes whoever waits for a function, and claims that may find more room now.
    pub(crate) async fn tell_of_functions(&self, changes: &[(&FunctionKey, Changed)]) {
        let definitions = changes.iter().filter(|(_, changed)| changed.definition).count();
        let ready = changes.iter().filter(|(_, changed)| changed.definition || changed.offer).map(|(function, _)| *function);
        self.shared.news.publish_functions(definitions as u64, &ready.collect::<Vec<_>>()).await;
    }

    pub(crate) async fn forget_function(&self, function: &FunctionKey) -> Result<bool, StoreError> {
        // An old worker that has left says so to nobody, and one that came has not told us.
        self.look_at_peers_now(std::slice::from_ref(function)).await?;
        let rooms = self.partitions(function);
        if !self.can_be_forgotten(&rooms).await? {
            return Ok(false);
        }
        // The first of its partitions last: as long as it is known, so is the function.
        for room in rooms.into_iter().rev() {
            let keys = &room.keys;
            let touched = [keys.definition.as_str(), &keys.workers, &keys.deadlines, &keys.dead, &keys.buckets];
            let reply = match self.shared.link.run(&scripts::FORGET, &touched, &arguments![keys.ended]).await {
                Err(error) => return Err(self.explain(&room, error).await),
                Ok(reply) => read::<Vec<String>>(reply)?,
            };
            match reply.first().map(String::as_str) {
                Some("forgotten") => {}
                Some("unknown") if room.is_shard() => {}
                _ => return Ok(false),
            }
            if reply.get(1).is_some_and(|left| left == "empty") {
                self.take_from_the_set(&room).await.map_err(half_done)?;
            }
        }
        self.shared.news.publish_functions(1, &[]).await;
        Ok(true)
    }

    /// Whether no partition of a function has a worker, an open call or a dead letter. The script looks again at each, as it forgets it.
    async fn can_be_forgotten(&self, rooms: &[Arc<Partition>]) -> Result<bool, StoreError> {
        let counts = |room: &Arc<Partition>| {
            let keys = &room.keys;
            [command("ZCARD", &[&keys.workers]), command("ZCARD", &[&keys.deadlines]), command("ZCARD", &[&keys.dead])]
        };
        let counted = self.shared.link.ask_all(&rooms.iter().flat_map(counts).collect::<Vec<_>>()).await?;
        for (room, counts) in rooms.iter().zip(counted.chunks_exact(3)) {
            for count in counts {
                match read::<u64>(count.clone()) {
                    Ok(0) => {}
                    Ok(_) => return Ok(false),
                    Err(error) => return Err(self.explain(room, error).await),
                }
            }
        }
        Ok(true)
    }

    async fn take_from_the_set(&self, room: &Partition) -> Result<(), StoreError> {
        let (set, member) = (self.shared.keys.functions(), &room.member);
        self.shared.link.ask(&command("SREM", &[&set, member])).await?;
        let defined_again: bool = read(self.shared.link.ask(&command("EXISTS", &[&room.keys.definition])).await?)?;
        if defined_again {
            self.shared.link.ask(&command("SADD", &[&set, member])).await?;
        }
        Ok(())
    }

    /// The functions in the set, by scope and name: all that are known, and maybe some that have only calls left.
    pub(crate) async fn functions_in_set(&self) -> Result<Vec<FunctionKey>, StoreError> {
        let members = self.members_of_the_set().await?;
        Ok(members.into_iter().filter(|(_, shard)| *shard == 0).map(|(function, _)| function).collect())
    }

    /// The same with all their streams.
    pub(crate) async fn members_of_the_set(&self) -> Result<Vec<(FunctionKey, u16)>, StoreError> {
        let reading = self.shared.partitions.begin_reading();
        let set = self.shared.keys.functions();
        let asked = self.shared.link.ask(&command("SMEMBERS", &[&set])).await.and_then(read::<Vec<Vec<u8>>>).map(Some);
        // Without the set, the functions are those that this process has seen in it.
        let Some(found) = self.shared.or_pass_over(&set, asked, None)? else { return Ok(self.shared.partitions.known()) };
        let mut members: Vec<(FunctionKey, u16)> = Vec::with_capacity(found.len());
        for member in found {
            match std::str::from_utf8(&member).ok().and_then(read_shard_member) {
                Some(member) => members.push(member),
                None => self.shared.pass_over(&set, &member, "no function has such a name; SREM removes it"),
            }
        }
        members.extend(self.put_back(reading, &members).await?);
        members.sort();
        // It would keep the partitions of functions that are gone.
        self.shared.claims.forget_list();
        self.shared.partitions.have_read(reading, &members.iter().map(|(function, _)| function).collect());
        for (function, shard) in members.iter().filter(|(_, shard)| *shard > 0) {
            self.note_shards(function, *shard);
        }
        Ok(members)
    }

    /// All functions, by scope and name.
    pub(crate) async fn list_functions(&self) -> Result<Vec<FunctionView>, StoreError> {
        match self.find_legacy_functions().await {
            // Functions that only legacy workers serve may be missing; the next search finds them.
            Err(error) if self.shared.is_local(&error) => {
                tracing::debug!(%error, "not all keys were searched for functions of legacy workers");
            }
            searched => searched?,
        }
        let functions = self.functions_in_set().await?;
        self.look_at_peers(&functions).await?;
        let view = |function: FunctionKey| async move {
            match self.view_function(&function).await {
                // One function's trouble hides no other.
                Err(error @ StoreError::Unavailable(StoreTrouble::WrongType(_))) => {
                    self.shared.pass_over(&self.partition(&function).keys.definition, b"", &error);
                    let error = self.explain(&self.partition(&function), error).await;
                    Ok(Ok(Some(self.view_in_trouble(&function, &error).await)))
                }
                Err(error) if self.shared.is_local(&error) => {
                    self.shared.pass_over(&self.partition(&function).keys.definition, b"", &error);
                    Ok(if is_odd(&error) { Ok(None) } else { Err(error) })
                }
                view => view.map(Ok),
            }
        };
        let views: Vec<_> = stream::iter(functions).map(view).buffered(VIEWS_AT_ONCE).try_collect().await?;
        // When no function can be reached, it is not the trouble of one.
        match views.iter().find_map(|view| view.as_ref().err()).filter(|_| views.iter().all(Result::is_err)) {
            Some(error) => Err(error.clone()),
            None => Ok(views.into_iter().flatten().flatten().collect()),
        }
    }

    /// Starts the count of changes, at 0 when no function is known, and the sequence: behind the calls that wait, also when the clock was set
    /// back since they were submitted, by up to a day. A later score is none that a process of ours has written.
    pub(crate) async fn look_for_functions(&self) -> Result<(), StoreError> {
        let latest = (self.shared.now() + CLOCK_SET_BACK).as_millis().saturating_mul(1_000).to_string();
        let mut ask = Vec::new();
        let mut functions = self.functions_in_set().await?;
        if functions.is_empty() && self.search_definitions().await? {
            functions = self.functions_in_set().await?;
        }
        for function in functions {
            let keys = self.shared.keys.function(&function);
            ask.push(command("HEXISTS", &[keys.definition.as_str(), "definition"]));
            ask.push(command("ZREVRANGEBYSCORE", &[keys.queue.as_str(), latest.as_str(), "-inf", "WITHSCORES", "LIMIT", "0", "1"]));
        }
        let mut replies = self.shared.link.ask_apart(&ask).await.into_iter();
        while let (Some(is_known), Some(latest)) = (replies.next(), replies.next()) {
            // A key of a wrong type, or on a master that is away, is the trouble of its function alone.
            if is_known.and_then(read).unwrap_or(false) {
                self.shared.news.functions_are_known();
            }
            let latest: Vec<(Vec<u8>, f64)> = latest.and_then(read).unwrap_or_default();
            latest.iter().for_each(|(_, sequence)| self.shared.go_on_after(instant(*sequence).as_millis()));
        }
        Ok(())
    }

    /// One function as it is now, if it is known.
    pub(crate) async fn view_function(&self, function: &FunctionKey) -> Result<Option<FunctionView>, StoreError> {
        let mut shards = self.partitions(function).into_iter();
        let Some(mut view) = self.view_partition(&self.partition(function)).await? else { return Ok(None) };
        self.shared.partitions.remember(function);
        shards.next();
        for shard in shards {
            let Some(of_shard) = self.view_partition(&shard).await? else { continue };
            view.counts = view.counts.plus(of_shard.counts);
            view.problems.extend(of_shard.problems);
            view.oldest_queued_at = [view.oldest_queued_at, of_shard.oldest_queued_at].into_iter().flatten().min();
        }
        self.add_legacy_backlog(&mut view).await?;
        Ok(Some(view))
    }

    /// What can be shown of a function one of whose keys holds something else.
    async fn view_in_trouble(&self, function: &FunctionKey, error: &StoreError) -> FunctionView {
        let ask = command("HGET", &[self.shared.keys.function(function).definition.as_str(), "definition"]);
        let stored = self.shared.link.ask(&ask).await.and_then(read::<Option<Vec<u8>>>).ok().flatten();
        let definition = stored.and_then(|text| read_definition(&text).ok());
        FunctionView {
            definition: definition.unwrap_or_else(|| FunctionDefinition::new(function.clone())),
            counts: FunctionCounts::default(),
            workers: 0,
            healthy_workers: 0,
            oldest_queued_at: None,
            stream: None,
            problems: vec![error.to_string()],
        }
    }

    async fn view_partition(&self, partition: &Partition) -> Result<Option<FunctionView>, StoreError> {
        let keys = &partition.keys;
        let touched = [
            keys.definition.as_str(),
            &keys.calls,
            &keys.queue,
            &keys.exported,
            &keys.delayed,
            &keys.running,
            &keys.parked,
            &keys.dead,
            &keys.deadlines,
            &keys.workers,
        ];
        let viewed = self.shared.link.run(&scripts::VIEW, &touched, &[]).await.and_then(read::<Vec<Value>>);
        let parts = match viewed {
            Err(error) => return Err(self.explain(partition, error).await),
            Ok(parts) => parts,
        };
        if parts.is_empty() {
            return Ok(None);
        }
        let mut parts = parts.into_iter();
        let definition: Vec<u8> = next(&mut parts)?;
        let counts: Vec<u64> = next(&mut parts)?;
        let workers: Vec<(Vec<u8>, f64)> = next(&mut parts)?;
        // A name that is not text is not a worker's.
        let workers = workers.into_iter().filter_map(|(worker, heard)| Some((String::from_utf8(worker).ok()?, heard)));
        let workers: Vec<(String, f64)> = workers.collect();
        let oldest: Vec<(Vec<u8>, Vec<u8>)> = next(&mut parts)?;
        let wrong: Vec<(String, String, String)> = next(&mut parts)?;
        let problem = |(key, kind, wanted): &(String, String, String)| {
            format!("the key {key} is a {kind} and should be a {wanted}: look at it, then rename or delete it. Other functions go on")
        };
        Ok(Some(FunctionView {
            definition: read_definition(&definition).map_err(|error| of_key(error, &keys.definition))?,
            counts: read_counts(&counts),
            workers: workers.len() as u64,
            healthy_workers: self.count_healthy(workers).await?,
            oldest_queued_at: oldest.into_iter().filter_map(|(id, record)| submitted_at(&id, record)).min(),
            stream: None,
            problems: wrong.iter().map(problem).collect(),
        }))
    }
}

impl RedisStore {
    /// How many of a function's workers are healthy. What stands with the function of one of ours may be older than its latest heartbeat.
    async fn count_healthy(&self, workers: Vec<(String, f64)>) -> Result<u64, StoreError> {
        let now = self.shared.now();
        let is_healthy = |heard: f64| now.since(instant(heard)) < HEALTHY_FOR;
        let (healthy, others): (Vec<_>, Vec<_>) = workers.into_iter().partition(|(_, heard)| is_healthy(*heard));
        let others: Vec<String> = others.into_iter().map(|(worker, _)| worker).filter(|worker| !is_legacy_worker(worker)).collect();
        let heard = self.latest_heartbeats(&others).await?;
        let heard_lately = heard.into_iter().flatten().filter(|heard| is_healthy(*heard)).count();
        Ok((healthy.len() + heard_lately) as u64)
    }
}

fn read_counts(counts: &[u64]) -> FunctionCounts {
    let count = |place: usize| counts.get(place).copied().unwrap_or(0);
    FunctionCounts { queued: count(0), delayed: count(1), running: count(2), parked: count(3), dead: count(4) }
}

fn submitted_at(id: &[u8], record: Vec<u8>) -> Option<Timestamp> {
    let record = Record::read(&CallId::new(std::str::from_utf8(id).ok()?).ok()?, &record.into()).ok()?;
    Some(record.call.submitted_at)
}
