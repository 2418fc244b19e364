//! A batcher of your own making: its name and its settings.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use towpath_core::batch::{InvalidSettings, RatePatch, Settings, SettingsPatch, Strategy, Target};
use towpath_core::names::BatcherName;

use super::BatchError;

/// A batcher: what it is called, and in what it differs from the default.
///
/// ```
/// use std::time::Duration;
/// use towpath::batches::{Batcher, Strategy, Target};
///
/// let orders = Batcher::builder("orders")
///     .key(["/customer"])
///     .debounce(Duration::from_secs(5))
///     .max_wait(Duration::from_secs(60))
///     .max_messages(50)
///     .merge(Strategy::List)
///     .rate("default") // the policy of scope `orders`: `towpath limit put orders --rule r=gcra:10/1s`
///     .target(Target::Pull)
///     .build()?;
/// assert_eq!(orders.settings().max_messages, 50);
/// assert!(Batcher::builder("orders").max_messages(0).build().is_err());
/// # Ok::<(), towpath::batches::BatchError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Batcher {
    name: BatcherName,
    patch: SettingsPatch,
    settings: Arc<Settings>,
}

impl Batcher {
    /// A batcher to be.
    pub fn builder(name: impl Into<String>) -> BatcherBuilder {
        BatcherBuilder { name: name.into(), patch: SettingsPatch::default() }
    }

    /// A batcher from settings as they stand in a file.
    pub fn from_patch(name: BatcherName, patch: SettingsPatch) -> Result<Self, InvalidSettings> {
        let settings = Arc::new(Settings::of(&name).patched(&patch)?);
        if let Some(rate) = &settings.rate {
            rate.scope_of(&name)?; // a name that cannot be a scope is refused now, not when the first batch is due
        }
        Ok(Self { name, patch, settings })
    }

    /// What it is called.
    pub fn name(&self) -> &BatcherName {
        &self.name
    }

    /// In what it differs from the default.
    pub fn patch(&self) -> &SettingsPatch {
        &self.patch
    }

    /// All its settings.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }
}

/// A batcher to be. What is not said stays as the default has it.
#[derive(Clone, Debug)]
#[must_use = "a batcher is nothing until it is built"]
pub struct BatcherBuilder {
    name: String,
    patch: SettingsPatch,
}

impl BatcherBuilder {
    /// Where in a message the parts of its batch key are: names of fields, or JSON Pointers.
    pub fn key<T: Into<String>>(mut self, parts: impl IntoIterator<Item = T>) -> Self {
        self.patch.key = Some(parts.into_iter().map(Into::into).collect());
        self
    }

    /// How long a sender must be silent. Default: 10 s.
    pub fn debounce(mut self, length: Duration) -> Self {
        self.patch.debounce_seconds = Some(length.as_secs_f64());
        self
    }

    /// How long the first message waits at most. Default: 300 s.
    pub fn max_wait(mut self, length: Duration) -> Self {
        self.patch.max_wait_seconds = Some(length.as_secs_f64());
        self
    }

    /// So many messages close a batch. Default: 100.
    pub fn max_messages(mut self, count: u64) -> Self {
        self.patch.max_messages = Some(count);
        self
    }

    /// So many bytes close a batch. Default: 1 MiB.
    pub fn max_bytes(mut self, count: u64) -> Self {
        self.patch.max_bytes = Some(count);
        self
    }

    /// What is made of the messages. Default: a list.
    pub fn merge(mut self, strategy: Strategy) -> Self {
        self.patch.merge = Some(strategy);
        self
    }

    /// A template with look-ups, for [`Strategy::Template`].
    pub fn template(mut self, template: Value) -> Self {
        self.patch.template = Some(template);
        self.merge(Strategy::Template)
    }

    /// Where batches go. Without one they are held, unless somebody in this process receives them.
    pub fn target(mut self, target: Target) -> Self {
        self.patch.target = Some(target);
        self
    }

    /// Every delivery takes from this policy of limits, over all servers; batches wait for their turn in the queue. Default: no policy.
    pub fn rate(mut self, policy: impl Into<String>) -> Self {
        let scope = self.patch.rate.take().and_then(|rate| rate.scope);
        self.patch.rate = Some(RatePatch { policy: policy.into(), scope });
        self
    }

    /// What the policy limits, where several batchers or functions share it. Default: the batcher's name. It counts with a [`rate`](Self::rate).
    pub fn rate_scope(mut self, scope: impl Into<String>) -> Self {
        let policy = self.patch.rate.take().map(|rate| rate.policy).unwrap_or_default();
        self.patch.rate = Some(RatePatch { policy, scope: Some(scope.into()) });
        self
    }

    /// One batch per key at a time, so that order is kept. Default: yes.
    pub fn serial(mut self, serial: bool) -> Self {
        self.patch.serial = Some(serial);
        self
    }

    /// So many attempts, then it is a dead letter. Default: 5.
    pub fn max_attempts(mut self, count: u32) -> Self {
        self.patch.max_attempts = Some(count);
        self
    }

    /// All other settings, under the names that they have in a file.
    pub fn patch(mut self, change: impl FnOnce(&mut SettingsPatch)) -> Self {
        change(&mut self.patch);
        self
    }

    /// Checks it.
    pub fn build(self) -> Result<Batcher, BatchError> {
        Ok(Batcher::from_patch(BatcherName::new(self.name)?, self.patch)?)
    }
}

/// Which batcher is meant.
#[derive(Clone, Debug)]
pub enum Which {
    /// The one that is known by this name.
    Named(String),
    /// This one, with its own settings.
    Given(Box<Batcher>),
}

impl From<&str> for Which {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<String> for Which {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}

impl From<&BatcherName> for Which {
    fn from(name: &BatcherName) -> Self {
        Self::Named(name.as_str().to_owned())
    }
}

impl From<&Batcher> for Which {
    fn from(batcher: &Batcher) -> Self {
        Self::Given(Box::new(batcher.clone()))
    }
}

impl From<Batcher> for Which {
    fn from(batcher: Batcher) -> Self {
        Self::Given(Box::new(batcher))
    }
}
