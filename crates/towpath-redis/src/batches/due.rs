//! What is due, when to look again, and the wake-ups of whoever sleeps until then.

use async_trait::async_trait;
use towpath_core::batch::BatcherId;
use towpath_core::names::{BatchId, BatchKey};
use towpath_core::store::{BatchNews, BatchWakes, DueBatches, StoreError};
use towpath_core::time::Timestamp;

use super::said::Said;
use super::scripts;
use crate::listening::{ChannelEar, Spoken};
use crate::store::RedisStore;

impl RedisStore {
    pub(super) async fn due_batches(&self, batcher: &BatcherId, limit: usize) -> Result<DueBatches, StoreError> {
        let now = self.shared.now();
        let (mut keys, mut flights) = (Vec::new(), Vec::new());
        for place in self.places(batcher).all() {
            let mut args = self.batch_args(place, now, 1);
            args.number(limit);
            let mut said = Said::new(self.run_at(&scripts::DUE, place, &[], &args).await?)?;
            // What has no name of ours is nobody's to claim.
            let due_keys = said.part(0)?;
            keys.extend(due_keys.scored().filter_map(|(key, at)| Some((from_seconds(at), BatchKey::new(key).ok()?))));
            let due_flights = said.part(1)?;
            flights.extend(due_flights.scored().filter_map(|(id, at)| Some((from_ms(at), BatchId::new(id).ok()?))));
        }
        let (keys, next_key) = named(keys, limit, now);
        let (flights, next_flight) = named(flights, limit, now);
        Ok(DueBatches { now, keys, flights, next: next_key.into_iter().chain(next_flight).min() })
    }

    pub(super) fn listen_for_due(&self, batcher: &BatcherId) -> Box<dyn BatchWakes> {
        let channel = self.places(batcher).any().channel.clone();
        Box::new(DueEar(self.shared.news.listening().listen(channel)))
    }
}

/// What is due and may be named, the earliest first and by name at one instant; and when the first that is not named is due.
fn named<T: Ord>(mut all: Vec<(Timestamp, T)>, limit: usize, now: Timestamp) -> (Vec<T>, Option<Timestamp>) {
    all.sort();
    let due = all.iter().take_while(|(at, _)| *at <= now).count().min(limit);
    let next = all.get(due).map(|(at, _)| *at);
    all.truncate(due);
    (all.into_iter().map(|(_, name)| name).collect(), next)
}

#[expect(clippy::cast_possible_truncation, reason = "scores are instants, far below 2^53")]
fn from_ms(score: f64) -> Timestamp {
    Timestamp::from_millis(score as i64)
}

/// The old worker's instants are seconds with a fraction.
#[expect(clippy::cast_possible_truncation, reason = "scores are instants, far below 2^53")]
fn from_seconds(score: f64) -> Timestamp {
    Timestamp::from_millis((score * 1_000.0 + 0.5).floor() as i64)
}

/// The ear of whoever waits for deadlines.
struct DueEar(ChannelEar);

#[async_trait]
impl BatchWakes for DueEar {
    async fn next(&mut self) -> BatchNews {
        loop {
            match self.0.next().await {
                Spoken::Doubtful => return BatchNews::Doubtful,
                Spoken::Message(message) => {
                    if let Ok(at) = message.parse() {
                        return BatchNews::Due(Timestamp::from_millis(at));
                    }
                }
            }
        }
    }
}
