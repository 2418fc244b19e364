//! The batchers that are known: what this process was told, under what is kept for all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towpath_core::batch::{Settings, SettingsPatch};
use towpath_core::names::BatcherName;
use towpath_core::payload::Payload;
use towpath_core::store::{StoreError, StoredBatcher};
use towpath_core::time::Timestamp;

use super::{BatchError, Batcher};
use crate::Towpath;

/// What was read is believed for so long: others may have changed it.
const BELIEVED: Duration = Duration::from_millis(500);

/// A batcher and its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownBatcher {
    /// What it is called.
    pub name: BatcherName,
    /// All its settings.
    pub settings: Arc<Settings>,
    /// What is kept of them for all processes.
    pub stored: Option<SettingsPatch>,
    /// Rises with every change that is kept; 0 when nothing is.
    pub version: u64,
}

/// What became of settings.
#[derive(Clone, Debug, PartialEq)]
pub struct PutBatcher {
    /// Nobody knew such a batcher before.
    pub created: bool,
    /// As it is now.
    pub batcher: KnownBatcher,
}

/// What a process keeps in mind.
#[derive(Debug, Default)]
pub(crate) struct KnownBatchers {
    here: Mutex<BTreeMap<BatcherName, SettingsPatch>>,
    read: Mutex<Option<Read>>,
    /// Versions of settings that cannot be used, which the log was told of.
    told: Mutex<BTreeSet<(BatcherName, u64)>>,
}

#[derive(Clone, Debug)]
struct Read {
    at: Timestamp,
    batchers: Arc<BTreeMap<BatcherName, KnownBatcher>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here can panic half way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The batchers that are known. `input_contour` always is.
#[derive(Clone, Debug)]
pub struct Batchers {
    towpath: Towpath,
}

impl Batchers {
    pub(super) fn new(towpath: Towpath) -> Self {
        Self { towpath }
    }

    /// Tells this process of a batcher, as its configuration file does. What is kept for all goes above it.
    pub fn define_here(&self, batcher: &Batcher) {
        lock(&self.known().here).insert(batcher.name().clone(), batcher.patch().clone());
        self.forget();
    }

    /// Keeps the settings of a batcher for all processes, instead of what was kept before. They follow within a second.
    pub async fn put(&self, batcher: &Batcher) -> Result<PutBatcher, BatchError> {
        let created = self.find(batcher.name()).await?.is_none();
        let text = serde_json::to_vec(batcher.patch()).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        // Together with what this process was told they must make sense, too.
        let here = self.here(batcher.name()).unwrap_or_default();
        let settings = Settings::of(batcher.name()).patched(&here)?.patched(batcher.patch())?;
        if let Some(rate) = &settings.rate {
            let refused = |error| BatchError::Rate { batcher: batcher.name().clone(), error: Box::new(error) };
            self.towpath.check_rate(&rate.scope_of(batcher.name())?, &rate.policy).await.map_err(refused)?;
        }
        let put = self.towpath.batch_store()?.put_batcher(batcher.name(), Payload::from_json(text)).await?;
        self.forget();
        let (name, stored) = (batcher.name().clone(), Some(batcher.patch().clone()));
        Ok(PutBatcher { created, batcher: KnownBatcher { name, settings: Arc::new(settings), stored, version: put.stored.version } })
    }

    /// A batcher, if it is known.
    pub async fn find(&self, name: &BatcherName) -> Result<Option<KnownBatcher>, BatchError> {
        Ok(self.all().await?.get(name).cloned())
    }

    /// All of them, by name.
    pub async fn list(&self) -> Result<Vec<KnownBatcher>, BatchError> {
        Ok(self.all().await?.values().cloned().collect())
    }

    /// Ends when any settings have changed since `seen`, or at `until`, and returns the new count of changes. Start with 0.
    pub async fn changed(&self, seen: u64, until: Timestamp) -> Result<u64, BatchError> {
        let count = self.towpath.batch_store()?.batchers_changed(seen, until).await?;
        if count != seen {
            self.forget();
        }
        Ok(count)
    }

    fn known(&self) -> &KnownBatchers {
        &self.towpath.batches().known
    }

    fn forget(&self) {
        *lock(&self.known().read) = None;
    }

    fn here(&self, name: &BatcherName) -> Option<SettingsPatch> {
        lock(&self.known().here).get(name).cloned()
    }

    async fn all(&self) -> Result<Arc<BTreeMap<BatcherName, KnownBatcher>>, BatchError> {
        let now = self.towpath.clock().now();
        if let Some(read) = lock(&self.known().read).as_ref().filter(|read| now.since(read.at) < BELIEVED) {
            return Ok(Arc::clone(&read.batchers));
        }
        let stored = self.towpath.batch_store()?.batchers().await?;
        let batchers = Arc::new(self.joined(stored)?);
        *lock(&self.known().read) = Some(Read { at: now, batchers: Arc::clone(&batchers) });
        Ok(batchers)
    }

    fn joined(&self, stored: Vec<StoredBatcher>) -> Result<BTreeMap<BatcherName, KnownBatcher>, BatchError> {
        let mut stored: BTreeMap<BatcherName, StoredBatcher> = stored.into_iter().map(|one| (one.name.clone(), one)).collect();
        let here = lock(&self.known().here).clone();
        let mut names: Vec<BatcherName> = here.keys().chain(stored.keys()).cloned().collect();
        names.push(BatcherName::new(BatcherName::INPUT_CONTOUR)?);
        let mut known = BTreeMap::new();
        for name in names {
            // A name may stand here twice; the second time nothing of it is left to be read.
            known.entry(name).or_insert_with_key(|name| {
                let is_news = |version| lock(&self.known().told).insert((name.clone(), version));
                joined(name.clone(), here.get(name), stored.remove(name), is_news)
            });
        }
        Ok(known)
    }
}

/// What is kept goes above what this process was told. What cannot be used is left out and said: work goes on under the rest.
/// `is_news`: whether the log was not told yet of settings of this version.
fn joined(
    name: BatcherName,
    here: Option<&SettingsPatch>,
    stored: Option<StoredBatcher>,
    is_news: impl FnOnce(u64) -> bool,
) -> KnownBatcher {
    let mut settings = Settings::of(&name);
    if let Some(patch) = here {
        settings = settings.clone().patched(patch).unwrap_or_else(|error| {
            tracing::error!(batcher = %name, %error, "the settings in the configuration file cannot be used");
            settings
        });
    }
    let (mut patch, mut version) = (None, 0);
    if let Some(stored) = stored {
        version = stored.version;
        match read_kept(&name, stored.settings.as_bytes()).and_then(|read| Ok((patched(&settings, &read)?, read))) {
            Ok((joined, read)) => (settings, patch) = (joined, Some(read)),
            Err(error) if is_news(version) => {
                tracing::error!(batcher = %name, error, "the settings that are kept cannot be used; put them again");
            }
            Err(_known) => {}
        }
    }
    KnownBatcher { name, settings: Arc::new(settings), stored: patch, version }
}

fn patched(settings: &Settings, patch: &SettingsPatch) -> Result<Settings, String> {
    settings.clone().patched(patch).map_err(|error| error.to_string())
}

/// Servers of several versions may share a store: what another one keeps must not make the rest of it useless.
fn read_kept(name: &BatcherName, text: &[u8]) -> Result<SettingsPatch, String> {
    let kept = SettingsPatch::read_kept(text).map_err(|error| error.to_string())?;
    if !kept.unknown.is_empty() {
        tracing::warn!(batcher = %name, unknown = ?kept.unknown, "settings that are kept are of another version; they are left out");
    }
    Ok(kept.patch)
}
