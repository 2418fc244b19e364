//! The settings of batchers, as they are kept. The version counts every change of any of them, over restarts too.

use towpath_core::names::BatcherName;
use towpath_core::payload::Payload;
use towpath_core::store::{BatcherPut, StoredBatcher};
use towpath_core::time::Timestamp;

use super::BatchRecords;

impl BatchRecords {
    pub(super) fn put_settings(&mut self, name: &BatcherName, settings: Payload, now: Timestamp) -> BatcherPut {
        self.settings_version += 1;
        let stored = StoredBatcher { name: name.clone(), settings, version: self.settings_version, updated_at: now };
        let created = self.settings.insert(name.clone(), stored.clone()).is_none();
        BatcherPut { created, stored }
    }

    pub(super) fn settings(&self, name: &BatcherName) -> Option<StoredBatcher> {
        self.settings.get(name).cloned()
    }

    pub(super) fn all_settings(&self) -> Vec<StoredBatcher> {
        self.settings.values().cloned().collect()
    }

    pub(super) fn settings_version(&self) -> u64 {
        self.settings_version
    }
}
