//! Who serves what, and the configuration that all share.
//!
//! - A worker that registers again replaces what it offered; it counts as alive from then on, and as registered since then. Offered twice
//!   in one breath, a function's latter offer counts.
//! - The latest definition of a function counts. The count of changes rises by one for each definition that is new or different, and for
//!   each function that is forgotten; an identical definition changes nothing. How high it stands means nothing: only that it differs
//!   from what a listener has seen. It starts anew with the store, at 0 when no function is known.
//! - A function stays known when its last worker leaves. It can be forgotten once no worker, healthy or not, offers it and none of its
//!   calls is queued, delayed, running or dead.
//! - A worker that leaves hands back what it holds, even when it was never, or is no longer, on the list.

use async_trait::async_trait;
use towpath_core::ids::DeliveryId;
use towpath_core::inspect::{FunctionCounts, FunctionView};
use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::store::{ConfigView, Heartbeat, RegistryStore, SetConfig, StoreError};
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, Offer, RegisterWorker};

use super::records::{Record, Records, Worker};
use super::{ModelStore, State};

#[async_trait]
impl RegistryStore for ModelStore {
    async fn register(&self, worker: RegisterWorker) -> Result<(), StoreError> {
        self.transition(|state, now| state.records.register(worker, now));
        Ok(())
    }

    async fn heartbeat(&self, worker: &WorkerId) -> Result<Heartbeat, StoreError> {
        Ok(self.transition(|state, now| {
            let Some(worker) = state.records.workers.get_mut(worker) else { return Heartbeat::Unknown };
            worker.last_heartbeat = now;
            Heartbeat::Known
        }))
    }

    async fn unregister(&self, worker: &WorkerId) -> Result<u64, StoreError> {
        Ok(self.transition(|state, now| state.unregister(worker, now)))
    }

    async fn define(&self, function: FunctionDefinition) -> Result<(), StoreError> {
        self.transition(|state, _| state.records.define(function));
        Ok(())
    }

    async fn redefine(&self, before: &FunctionDefinition, after: FunctionDefinition) -> Result<bool, StoreError> {
        Ok(self.transition(|state, _| {
            let is_before = state.records.functions.get(&before.key) == Some(before);
            if is_before {
                state.records.define(after);
            }
            is_before
        }))
    }

    async fn forget(&self, function: &FunctionKey) -> Result<bool, StoreError> {
        Ok(self.transition(|state, _| state.records.forget_function(function)))
    }

    async fn find(&self, function: &FunctionKey, until: Timestamp) -> Result<Option<FunctionView>, StoreError> {
        Ok(self.look_until(Some(until), |state, now| state.records.function_view(function, now)).await)
    }

    async fn functions_changed(&self, seen: u64) -> Result<u64, StoreError> {
        let changed = self.look_until(None, |state, _| Some(state.records.function_changes).filter(|count| *count != seen)).await;
        Ok(changed.unwrap_or(seen))
    }

    async fn config(&self) -> Result<ConfigView, StoreError> {
        Ok(self.look(|state, _| state.records.config.clone()))
    }

    async fn set_config(&self, change: SetConfig) -> Result<Option<ConfigView>, StoreError> {
        Ok(self.transition(|state, now| {
            let version = state.records.config.version;
            if change.if_version.is_some_and(|expected| expected != version) {
                return None;
            }
            state.records.config = ConfigView { version: version + 1, value: change.value, updated_at: Some(now) };
            Some(state.records.config.clone())
        }))
    }

    async fn config_changed(&self, seen: u64, until: Timestamp) -> Result<ConfigView, StoreError> {
        let changed = self.look_until(Some(until), |state, _| Some(&state.records.config).filter(|now| now.version != seen).cloned());
        match changed.await {
            Some(config) => Ok(config),
            None => self.config().await,
        }
    }
}

impl State {
    fn unregister(&mut self, worker: &WorkerId, now: Timestamp) -> u64 {
        let held = self.records.held_by(worker);
        let held = held.map(|Record { call, .. }| DeliveryId { call_id: call.call_id.clone(), number: call.delivery }).collect();
        self.remove_worker(worker);
        self.release_all(worker, held, now)
    }

    /// Takes a worker off the list; what it holds stays its own until the lease ends.
    pub(super) fn remove_worker(&mut self, worker: &WorkerId) {
        self.records.workers.remove(worker);
        self.ears.wanted.remove(worker);
    }
}

impl Records {
    fn register(&mut self, worker: RegisterWorker, now: Timestamp) {
        let RegisterWorker { worker_id, kind, offers } = worker;
        let mut worker = Worker { kind, offers: Vec::new(), registered_at: now, last_heartbeat: now };
        for Offer { definition, concurrency } in offers {
            worker.offers.retain(|(offered, _)| *offered != definition.key);
            worker.offers.push((definition.key.clone(), concurrency));
            self.define(definition);
        }
        self.workers.insert(worker_id, worker);
    }

    fn define(&mut self, function: FunctionDefinition) {
        if self.functions.get(&function.key) != Some(&function) {
            self.function_changes += 1;
            self.functions.insert(function.key.clone(), function);
        }
    }

    fn forget_function(&mut self, function: &FunctionKey) -> bool {
        let in_use = self.workers_of(function).next().is_some() || self.counts(function) != FunctionCounts::default();
        if in_use || self.functions.remove(function).is_none() {
            return false;
        }
        self.function_changes += 1;
        true
    }
}
