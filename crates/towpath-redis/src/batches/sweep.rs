//! What fell by the wayside: deadlines that went missing, an old worker's batches that nobody has counted, dead letters that are too old.

use std::time::Duration;

use redis::Cmd;
use towpath_core::batch::BatcherId;
use towpath_core::store::{StoreError, Swept};

use super::places::Place;
use super::said::Said;
use super::scripts;
use crate::store::RedisStore;
use crate::value;

/// So many keys are looked at by one run of the script.
const PAGE: i64 = 500;

impl RedisStore {
    pub(super) async fn sweep_batches(&self, batcher: &BatcherId, keep_dead: Option<Duration>) -> Result<Swept, StoreError> {
        let (places, mut swept) = (self.places(batcher), Swept::default());
        let look_at_all = places.has_unseen();
        for place in places.all() {
            // An open batch without a deadline is one that waits for a flight, or one that has lost it.
            if look_at_all || self.some_have_no_deadline(place).await? {
                swept.rearmed += self.rearm(place, look_at_all).await?;
            }
        }
        places.all_seen();
        if let Some(keep) = keep_dead {
            swept.dead_removed = self.remove_old_letters(&places, keep).await?;
        }
        Ok(swept)
    }

    async fn some_have_no_deadline(&self, place: &Place) -> Result<bool, StoreError> {
        let keys = [place.keys.first.as_str(), place.keys.deadlines()];
        let ask = keys.map(|key| {
            let mut ask = Cmd::new();
            ask.arg("ZCARD").arg(key);
            ask
        });
        let replies = self.shared.link.ask_all(&ask).await?.into_iter();
        let counted: Result<Vec<i64>, StoreError> = replies.map(|reply| Ok(value::number(&value::checked(reply)?).unwrap_or(0))).collect();
        let counted = self.or_corrupt(counted, &keys).await?;
        Ok(counted.first() > counted.get(1))
    }

    async fn rearm(&self, place: &Place, look_at_all: bool) -> Result<u64, StoreError> {
        let (mut start, mut rearmed) = (0, 0);
        loop {
            let mut args = self.batch_args(place, self.shared.now(), 3);
            args.number(start);
            args.number(PAGE);
            args.push(if look_at_all { "1" } else { "" });
            let said = Said::new(self.run_at(&scripts::SWEEP, place, &[], &args).await?)?;
            let (looked_at, armed, forgotten) = (said.number(0)?, said.count(1)?, said.number(2)?);
            rearmed += armed;
            if looked_at < PAGE {
                return Ok(rearmed);
            }
            start += looked_at - forgotten;
        }
    }
}
