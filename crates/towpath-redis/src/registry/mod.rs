//! Who serves what, and the configuration that all share.
//!
//! | room | what it does |
//! |---|---|
//! | `functions` | definitions: made known, looked at, forgotten |
//! | `lost` | functions that are missing in the set of all functions, and put back |
//! | `workers` | workers: they come, leave, fall silent |
//! | `heartbeats` | how they say that they live |
//! | `config` | the shared configuration |
//! | `scripts`, `reply` | the Lua files, and what comes back |

mod config;
pub(crate) mod functions;
mod heartbeats;
mod lost;
pub(crate) mod reply;
mod scripts;
#[cfg(test)]
mod tests;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use towpath_core::inspect::FunctionView;
use towpath_core::names::{FunctionKey, WorkerId};
use towpath_core::store::{ConfigView, Heartbeat, PrepareParams, RegistryStore, SetConfig, StoreError};
use towpath_core::time::Timestamp;
use towpath_core::worker::{FunctionDefinition, RegisterWorker};

use crate::store::RedisStore;
use functions::Definition;

pub(crate) use heartbeats::Said;

/// How often whoever waits for a function looks for an old worker. Only here is looked again by the clock: an old worker that comes wakes
/// nobody, and the seeds promise that a call made a moment too early finds it.
const OLD_WORKERS_EVERY: Duration = Duration::from_secs(1);

#[async_trait]
impl RegistryStore for RedisStore {
    async fn register(&self, worker: RegisterWorker) -> Result<(), StoreError> {
        for offer in &worker.offers {
            self.check_place(&offer.definition.key)?;
        }
        self.register_worker(worker).await
    }

    async fn heartbeat(&self, worker: &WorkerId) -> Result<Heartbeat, StoreError> {
        self.hear_worker(worker).await
    }

    async fn unregister(&self, worker: &WorkerId) -> Result<u64, StoreError> {
        self.unregister_worker(worker).await
    }

    async fn define(&self, function: FunctionDefinition) -> Result<(), StoreError> {
        self.check_place(&function.key)?;
        self.define_function(&function, Definition::Replace).await
    }

    async fn redefine(&self, before: &FunctionDefinition, after: FunctionDefinition) -> Result<bool, StoreError> {
        self.check_place(&after.key)?;
        self.redefine_function(before, &after).await
    }

    async fn forget(&self, function: &FunctionKey) -> Result<bool, StoreError> {
        self.forget_function(function).await
    }

    fn prepare_params_with(&self, prepare: Arc<dyn PrepareParams>) {
        self.shared.legacy.prepare_params_with(prepare);
    }

    async fn find(&self, function: &FunctionKey, until: Timestamp) -> Result<Option<FunctionView>, StoreError> {
        self.check_place(function)?;
        let mut changes = self.shared.news.functions();
        let mut over = self.shared.clock.sleep_until(until);
        loop {
            changes.mark_unchanged();
            self.look_at_peers(std::slice::from_ref(function)).await?;
            if let Some(found) = self.view_function(function).await? {
                return Ok(Some(found));
            }
            if self.adopt(function).await? {
                continue;
            }
            let look_again = self.shared.clock.sleep_until(self.shared.now() + OLD_WORKERS_EVERY);
            tokio::select! {
                biased;
                // The sender lives in `self`, so this never fails.
                _ = changes.changed() => {}
                () = &mut over => return Ok(None),
                () = look_again => {}
            }
        }
    }

    async fn functions_changed(&self, seen: u64) -> Result<u64, StoreError> {
        let mut changes = self.shared.news.functions();
        loop {
            let count = *changes.borrow_and_update();
            if count != seen {
                return Ok(count);
            }
            // The sender lives in `self`, so this never fails.
            drop(changes.changed().await);
        }
    }

    async fn config(&self) -> Result<ConfigView, StoreError> {
        self.read_config().await
    }

    async fn set_config(&self, change: SetConfig) -> Result<Option<ConfigView>, StoreError> {
        self.write_config(change).await
    }

    async fn config_changed(&self, seen: u64, until: Timestamp) -> Result<ConfigView, StoreError> {
        let mut changes = self.shared.news.config();
        let mut over = self.shared.clock.sleep_until(until);
        loop {
            changes.mark_unchanged();
            let config = self.read_config().await?;
            if config.version != seen {
                return Ok(config);
            }
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = &mut over => return self.read_config().await,
            }
        }
    }
}
