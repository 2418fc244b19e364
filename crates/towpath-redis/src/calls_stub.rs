//! What the registry asks of the room of calls, until that room exists.

use towpath_core::names::WorkerId;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use crate::store::RedisStore;

impl RedisStore {
    // written in calls
    pub(crate) async fn hand_back_all(&self, _worker: &WorkerId) -> Result<u64, StoreError> {
        Ok(0)
    }
}

/// When a call that is queued was submitted. `None`: it is not queued.
pub(crate) fn life_submitted_at(life: &[u8]) -> Option<Timestamp> {
    let line = life.split(|byte| *byte == b'\n').nth(10)?;
    std::str::from_utf8(line).ok()?.parse().ok().map(Timestamp::from_millis)
}
