//! Functions that callers know of: read from the registry once in a while, never once per call.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use foldhash::fast::RandomState;
use towpath_core::names::FunctionKey;
use towpath_core::time::Timestamp;
use towpath_core::worker::FunctionDefinition;

use crate::params::{CompiledParameters, Parameters};

/// How long an entry is believed, should the news of a change be lost.
const BELIEVED_FOR: Duration = Duration::from_secs(5);

/// A function as callers need to know it.
#[derive(Debug)]
pub(crate) struct KnownFunction {
    pub(crate) definition: FunctionDefinition,
    pub(crate) parameters: Arc<Parameters>,
    read_at: Timestamp,
    generation: u64,
}

/// What callers know.
#[derive(Debug, Default)]
pub(crate) struct FunctionCache {
    /// Rises when everything known may be out of date. An entry that was read under an older one is not believed.
    generation: AtomicU64,
    known: RwLock<HashMap<FunctionKey, Arc<KnownFunction>, RandomState>>,
    /// Outlives the entries, because a function that is read again has most often the same definition.
    compiled: Arc<CompiledParameters>,
    /// Who reads the registry for a function. A thousand callers that miss it at once ask one question.
    gates: Mutex<HashMap<FunctionKey, Arc<tokio::sync::Mutex<()>>>>,
}

impl FunctionCache {
    /// The function, if what is known of it can be believed.
    pub(crate) fn get(&self, key: &FunctionKey, now: Timestamp) -> Option<Arc<KnownFunction>> {
        let known = self.read(key)?;
        let fresh = now < known.read_at + BELIEVED_FOR && known.generation == self.generation();
        fresh.then_some(known)
    }

    /// Whoever holds this one reads the registry; the others wait for what it finds.
    pub(crate) fn gate(&self, key: &FunctionKey) -> Arc<tokio::sync::Mutex<()>> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|_, gate| Arc::strong_count(gate) > 1);
        Arc::clone(gates.entry(key.clone()).or_default())
    }

    /// Which generation a read of the registry belongs to: ask before reading.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Keeps what was read. If something changed while it was read, it is kept but not believed.
    pub(crate) fn put(&self, definition: FunctionDefinition, generation: u64, now: Timestamp) -> Arc<KnownFunction> {
        let parameters = self.compiled.of(&definition);
        let key = definition.key.clone();
        let known = Arc::new(KnownFunction { definition, parameters, read_at: now, generation });
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&known));
        known
    }

    /// Forgets a function: it is unknown, or the store is in trouble.
    pub(crate) fn forget(&self, key: &FunctionKey) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.compiled.forget(key);
    }

    /// The compiled parameters of all functions.
    pub(crate) fn compiled(&self) -> Arc<CompiledParameters> {
        Arc::clone(&self.compiled)
    }

    /// The set of functions or a definition has changed.
    pub(crate) fn doubt_all(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn read(&self, key: &FunctionKey) -> Option<Arc<KnownFunction>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use towpath_core::names::FunctionName;
    use towpath_core::payload::Payload;

    use super::*;

    fn definition() -> FunctionDefinition {
        let mut definition = FunctionDefinition::new(FunctionKey::global(FunctionName::new("add").unwrap()));
        definition.parameters = Some(Payload::from_json(r#"[{"name":"a"}]"#));
        definition
    }

    #[test]
    fn an_entry_is_believed_for_five_seconds() {
        let (cache, start) = (FunctionCache::default(), Timestamp::from_millis(0));
        let key = cache.put(definition(), cache.generation(), start).definition.key.clone();
        assert!(cache.get(&key, start + Duration::from_millis(4_999)).is_some());
        assert!(cache.get(&key, start + Duration::from_millis(5_000)).is_none());
    }

    #[test]
    fn a_change_while_the_registry_was_read_leaves_the_entry_in_doubt() {
        let (cache, start) = (FunctionCache::default(), Timestamp::from_millis(0));
        let generation = cache.generation();
        cache.doubt_all();
        let key = cache.put(definition(), generation, start).definition.key.clone();
        assert!(cache.get(&key, start).is_none());
    }

    #[test]
    fn parameters_are_compiled_once_per_definition() {
        let (cache, start) = (FunctionCache::default(), Timestamp::from_millis(0));
        let first = cache.put(definition(), 0, start);
        cache.doubt_all();
        let same = cache.put(definition(), 1, start);
        assert!(Arc::ptr_eq(&first.parameters, &same.parameters));
        let mut changed = definition();
        changed.parameters = None;
        assert!(!Arc::ptr_eq(&first.parameters, &cache.put(changed, 1, start).parameters));
    }
}
