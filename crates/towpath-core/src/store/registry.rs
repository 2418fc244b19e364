//! Who serves what, and the configuration that all share.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::StoreError;
use crate::call::Failure;
use crate::inspect::FunctionView;
use crate::names::{FunctionKey, WorkerId};
use crate::payload::Payload;
use crate::time::Timestamp;
use crate::worker::{FunctionDefinition, RegisterWorker};

/// The registry's moves.
#[async_trait]
pub trait RegistryStore: Send + Sync {
    /// Adds or replaces a worker and what it offers. A function it offers is known from now on, with this definition.
    async fn register(&self, worker: RegisterWorker) -> Result<(), StoreError>;

    /// Says that a worker is alive.
    async fn heartbeat(&self, worker: &WorkerId) -> Result<Heartbeat, StoreError>;

    /// Removes a worker and hands back whatever it still holds, so that another worker gets it at once.
    /// Returns how many deliveries were handed back.
    async fn unregister(&self, worker: &WorkerId) -> Result<u64, StoreError>;

    /// Makes a function known without a worker, or changes its definition.
    async fn define(&self, function: FunctionDefinition) -> Result<(), StoreError>;

    /// Replaces the definition `before` by another one of the same function. `false`: the function has another definition or is not known;
    /// nothing changed. A repeated move whose first reply was lost is told `false`, too: look which definition is there.
    async fn redefine(&self, before: &FunctionDefinition, after: FunctionDefinition) -> Result<bool, StoreError>;

    /// Forgets a function that has no worker and no call that is not over. `false`: it has, or it is not known; nothing changed.
    async fn forget(&self, function: &FunctionKey) -> Result<bool, StoreError>;

    /// The function, as soon as it is known; `None` if it still is not at `until`.
    async fn find(&self, function: &FunctionKey, until: Timestamp) -> Result<Option<FunctionView>, StoreError>;

    /// Ends when the set of functions or a definition has changed since `seen`, and returns the new count of changes. Start with 0.
    async fn functions_changed(&self, seen: u64) -> Result<u64, StoreError>;

    /// The shared configuration.
    async fn config(&self) -> Result<ConfigView, StoreError>;

    /// Replaces the shared configuration and wakes its watchers.
    async fn set_config(&self, change: SetConfig) -> Result<Option<ConfigView>, StoreError>;

    /// The configuration, as soon as its version is not `seen`; the present one at `until`.
    async fn config_changed(&self, seen: u64, until: Timestamp) -> Result<ConfigView, StoreError>;

    /// Takes what params go through before this store itself gives a call to a worker. The first one counts. Stores that deliver calls only
    /// by [`claim`](super::CallStore::claim) ignore it: there, the caller of `claim` prepares the params.
    fn prepare_params_with(&self, _prepare: Arc<dyn PrepareParams>) {}
}

/// Makes params ready for a worker.
pub trait PrepareParams: fmt::Debug + Send + Sync {
    /// The params with the defaults of the function's definition filled in, or the failure that ends a call with such params.
    fn prepare(&self, definition: &FunctionDefinition, params: &Payload) -> Result<Payload, Failure>;
}

/// What a heartbeat learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heartbeat {
    /// The worker is known.
    Known,
    /// The worker is not, or no longer, known: register again.
    Unknown,
}

/// A change of the shared configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetConfig {
    /// The new value, JSON.
    pub value: Payload,
    /// Only if the version still is this; otherwise nothing changes and the reply is `None`.
    pub if_version: Option<u64>,
}

/// The shared configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigView {
    /// Rises with every change; 0 when nobody has ever set it.
    pub version: u64,
    /// Its value, `null` when nobody has ever set it.
    pub value: Payload,
    /// When it was set.
    pub updated_at: Option<Timestamp>,
}
