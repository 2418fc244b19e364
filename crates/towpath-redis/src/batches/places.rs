//! Where a batcher is kept: in one place, or in several when its keys are spread over a Cluster.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::Cmd;
use towpath_core::batch::{BatcherId, Layout};
use towpath_core::names::{BatchId, BatchKey};
use towpath_core::store::StoreError;

use super::ingest::IngestLane;
use super::keys::{PlaceKeys, channel};
use super::source::Sources;
use crate::store::RedisStore;
use crate::value;

/// What an open store keeps in mind about batches.
#[derive(Default)]
pub(crate) struct Batches {
    places: Mutex<HashMap<BatcherId, Arc<Places>>>,
    pub(super) sources: Sources,
}

/// All places of one batcher; at least one.
pub(super) struct Places {
    parts: Vec<Arc<Place>>,
    /// Whether every batch must be looked at by the next sweep, because an old worker may have left some.
    unseen: AtomicBool,
}

/// One place.
pub(super) struct Place {
    pub(super) keys: PlaceKeys,
    pub(super) channel: String,
    /// Messages that wait to go together.
    pub(super) lane: Arc<IngestLane>,
}

impl Places {
    pub(super) fn all(&self) -> &[Arc<Place>] {
        &self.parts
    }

    /// Where the batches of a key are.
    pub(super) fn of(&self, key: &BatchKey) -> &Arc<Place> {
        &self.parts[self.part_of(key)]
    }

    pub(super) fn part_of(&self, key: &BatchKey) -> usize {
        match self.parts.len() {
            1 => 0,
            parts => crc32(key.as_str().as_bytes()) as usize % parts,
        }
    }

    /// Where what belongs to no key is.
    pub(super) fn any(&self) -> &Arc<Place> {
        &self.parts[0]
    }

    /// Whether there may be batches that only an old worker knows of.
    pub(super) fn has_unseen(&self) -> bool {
        self.unseen.load(Ordering::Relaxed)
    }

    /// Every batch was looked at.
    pub(super) fn all_seen(&self) {
        self.unseen.store(false, Ordering::Relaxed);
    }
}

impl RedisStore {
    /// Where a batcher is kept.
    pub(super) fn places(&self, batcher: &BatcherId) -> Arc<Places> {
        let mut known = self.shared.batches.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = known.get(batcher) {
            return Arc::clone(places);
        }
        let places = Arc::new(self.make_places(batcher));
        known.insert(batcher.clone(), Arc::clone(&places));
        places
    }

    /// The old worker's keys lie in several slots, so a Cluster never has them.
    fn make_places(&self, batcher: &BatcherId) -> Places {
        let (prefix, name) = (self.shared.keys.prefix(), &batcher.name);
        let by_default = if name.is_input_contour() { Layout::Seed } else { Layout::Own };
        let is_seeds = batcher.layout.unwrap_or(by_default) == Layout::Seed && !self.shared.link.is_cluster();
        let keys: Vec<PlaceKeys> = if is_seeds {
            vec![PlaceKeys::seed(prefix)]
        } else {
            (0..batcher.partitions.unwrap_or(1).max(1)).map(|part| PlaceKeys::own(prefix, name, part)).collect()
        };
        let channel = channel(prefix, self.shared.options.database, name);
        let place = |keys| Arc::new(Place { keys, channel: channel.clone(), lane: Arc::default() });
        Places { parts: keys.into_iter().map(place).collect(), unseen: AtomicBool::new(is_seeds) }
    }

    /// The place that has a batch in flight. Where there are several, they are asked.
    pub(super) async fn place_of_flight(&self, places: &Places, id: &BatchId) -> Result<Option<Arc<Place>>, StoreError> {
        let parts = places.all();
        if let [only] = parts {
            return Ok(Some(Arc::clone(only)));
        }
        let ask = parts.iter().map(|place| {
            let mut exists = Cmd::new();
            exists.arg("EXISTS").arg(&place.keys.of_flight(id)[0]);
            exists
        });
        let replies = self.shared.link.ask_all(&ask.collect::<Vec<_>>()).await?;
        for (place, reply) in parts.iter().zip(replies) {
            if value::number(&value::checked(reply)?) == Some(1) {
                return Ok(Some(Arc::clone(place)));
            }
        }
        Ok(None)
    }
}

/// The checksum of IEEE 802.3, as `zlib` has it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_that_everybody_knows() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
