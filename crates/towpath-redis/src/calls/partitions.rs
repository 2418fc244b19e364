//! The partitions that this process remembers: those of functions that are known stay, others live as long as a task uses them. So a name
//! that is only asked for costs nothing lasting.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use towpath_core::names::FunctionKey;

use super::partition::Partition;
use crate::quick::{QuickMap, QuickSet};

/// Past so many functions, those are dropped that are neither known nor in use.
const MANY: usize = 64;

#[derive(Default)]
pub(crate) struct Partitions {
    functions: Mutex<Functions>,
}

#[derive(Default)]
struct Functions {
    by_key: QuickMap<FunctionKey, Shards>,
    /// The known functions of each hash that ids end with.
    by_tag: QuickMap<String, Vec<FunctionKey>>,
    /// Number of times that the known functions were read from the server.
    reads: u64,
    clear_at: usize,
}

/// The partitions of one function.
#[derive(Default)]
struct Shards {
    in_use: BTreeMap<u16, Weak<Partition>>,
    /// The function is known: its partitions stay.
    known: Option<Known>,
}

struct Known {
    partitions: BTreeMap<u16, Arc<Partition>>,
    /// Number of the latest read when this was noted.
    since_read: u64,
}

impl Shards {
    fn partitions(&self) -> impl Iterator<Item = Arc<Partition>> {
        self.in_use.values().filter_map(Weak::upgrade)
    }

    fn is_needed(&self) -> bool {
        self.known.is_some() || self.in_use.values().any(|partition| partition.strong_count() > 0)
    }
}

impl Partitions {
    /// The partition of a function, made if this process does not have it.
    pub(crate) fn get(&self, function: &FunctionKey, shard: u16, make: impl FnOnce() -> Partition) -> Arc<Partition> {
        let mut functions = self.lock();
        let shards = functions.by_key.get(function);
        if let Some(partition) = shards.and_then(|shards| shards.in_use.get(&shard)).and_then(Weak::upgrade) {
            return partition;
        }
        functions.make_room();
        let shards = functions.by_key.entry(function.clone()).or_default();
        let partition = Arc::new(make());
        shards.in_use.insert(shard, Arc::downgrade(&partition));
        if let Some(known) = &mut shards.known {
            partition.set_remembered(true);
            known.partitions.insert(shard, Arc::clone(&partition));
        }
        partition
    }

    /// The function is known: its partitions stay.
    pub(crate) fn remember(&self, function: &FunctionKey) {
        self.lock().remember(function);
    }

    /// The known functions are about to be read from the server. Returns the number of this read.
    pub(crate) fn begin_reading(&self) -> u64 {
        let mut functions = self.lock();
        functions.reads += 1;
        functions.reads
    }

    /// These functions are known, as was read. Others are forgotten, unless they were noted since the read began.
    pub(crate) fn have_read(&self, read: u64, known: &QuickSet<&FunctionKey>) {
        let mut functions = self.lock();
        known.iter().for_each(|function| functions.remember(function));
        let mut unknown = Vec::new();
        for (function, shards) in &mut functions.by_key {
            if !known.contains(function) && shards.known.as_ref().is_some_and(|known| known.since_read < read) {
                let partitions = shards.known.take().map(|known| known.partitions).unwrap_or_default();
                partitions.values().for_each(|partition| partition.set_remembered(false));
                unknown.push(function.clone());
            }
        }
        for function in unknown {
            functions.forget_tag(&function);
        }
    }

    /// The partitions of functions that were known before this read and are not among those that it found.
    pub(crate) fn missing(&self, read: u64, found: &QuickSet<&FunctionKey>) -> Vec<(FunctionKey, u16)> {
        let functions = self.lock();
        let mut missing = Vec::new();
        for (function, shards) in &functions.by_key {
            let Some(known) = shards.known.as_ref().filter(|known| known.since_read < read && !found.contains(function)) else { continue };
            let others = known.partitions.keys().copied().filter(|shard| *shard > 0);
            missing.extend(std::iter::once(0).chain(others).map(|shard| (function.clone(), shard)));
        }
        missing
    }

    /// How many functions are known.
    pub(crate) fn count_known(&self) -> usize {
        let functions = self.lock();
        functions.by_key.values().filter(|shards| shards.known.is_some()).count()
    }

    /// All partitions of the functions that are known, by scope, name and number.
    pub(crate) fn known(&self) -> Vec<(FunctionKey, u16)> {
        let functions = self.lock();
        let known = functions.by_key.iter().filter_map(|(function, shards)| Some((function, shards.known.as_ref()?)));
        let numbered = known.flat_map(|(function, known)| {
            let numbers = std::iter::once(0).chain(known.partitions.keys().copied().filter(|shard| *shard > 0));
            numbers.map(|shard| (function.clone(), shard))
        });
        let mut numbered: Vec<_> = numbered.collect();
        numbered.sort();
        numbered
    }

    /// The known functions whose ids end with this hash.
    pub(crate) fn of_tag(&self, tag: &str) -> Vec<FunctionKey> {
        self.lock().by_tag.get(tag).cloned().unwrap_or_default()
    }

    /// The partitions of a function that this process has.
    pub(crate) fn of(&self, function: &FunctionKey) -> Vec<Arc<Partition>> {
        self.lock().by_key.get(function).into_iter().flat_map(Shards::partitions).collect()
    }

    /// All partitions that this process has.
    pub(crate) fn all(&self) -> Vec<Arc<Partition>> {
        self.lock().by_key.values().flat_map(Shards::partitions).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Functions> {
        // No code under this lock can panic half way.
        self.functions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Functions {
    fn remember(&mut self, function: &FunctionKey) {
        let since_read = self.reads;
        let shards = self.by_key.entry(function.clone()).or_default();
        if let Some(known) = &mut shards.known {
            known.since_read = since_read;
            return;
        }
        let in_use = shards.in_use.iter().filter_map(|(shard, partition)| Some((*shard, partition.upgrade()?)));
        let partitions: BTreeMap<u16, Arc<Partition>> = in_use.collect();
        partitions.values().for_each(|partition| partition.set_remembered(true));
        shards.known = Some(Known { partitions, since_read });
        self.by_tag.entry(function.tag()).or_default().push(function.clone());
    }

    fn forget_tag(&mut self, function: &FunctionKey) {
        let tag = function.tag();
        if let Some(functions) = self.by_tag.get_mut(&tag) {
            functions.retain(|other| other != function);
            if functions.is_empty() {
                self.by_tag.remove(&tag);
            }
        }
    }

    fn make_room(&mut self) {
        if self.by_key.len() >= self.clear_at.max(MANY) {
            self.by_key.retain(|_, shards| shards.is_needed());
            self.clear_at = self.by_key.len() * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_core::names::FunctionName;

    use super::super::partition::Lanes;
    use super::*;
    use crate::keys::Keys;
    use crate::options::RedisOptions;

    fn get(partitions: &Partitions, name: &str) -> Arc<Partition> {
        let keys = Keys::of(&RedisOptions::standalone("127.0.0.1", 6379));
        let function = FunctionKey::global(FunctionName::new(name).unwrap());
        partitions.get(&function, 0, || Partition::new(&keys, &function, 0, Lanes::default()))
    }

    #[test]
    fn a_partition_stays_while_its_function_is_known_or_a_task_uses_it() {
        let partitions = Partitions::default();
        let held = get(&partitions, "held");
        let known = Arc::downgrade(&get(&partitions, "known"));
        assert_eq!(known.strong_count(), 0, "it is only asked for");
        let known = get(&partitions, "known");
        partitions.remember(&known.function);
        let read = partitions.begin_reading();
        let noted = get(&partitions, "noted").function.clone();
        partitions.remember(&noted);
        partitions.have_read(read, &[&known.function].into_iter().collect());
        assert_eq!(partitions.of_tag(&noted.tag()), [noted], "it was noted since the read began");
        let function = known.function.clone();
        let known = {
            let partition = known;
            Arc::downgrade(&partition)
        };
        assert!(known.upgrade().is_some_and(|known| known.is_remembered()));
        assert!(Arc::ptr_eq(&held, &get(&partitions, "held")), "there is one at a time");
        partitions.have_read(partitions.begin_reading(), &QuickSet::default());
        assert_eq!((known.strong_count(), partitions.of_tag(&function.tag())), (0, vec![]));
        assert_eq!(partitions.all().len(), 1, "one is held");
    }

    #[test]
    fn names_that_are_only_asked_for_do_not_pile_up() {
        let partitions = Partitions::default();
        for number in 0..10_000 {
            get(&partitions, &format!("unknown-{number}"));
        }
        assert!(partitions.lock().by_key.len() <= MANY);
        assert_eq!(partitions.all().len(), 0);
    }
}
