//! Repair: a ready run that no worker could get from its queue gets a new entry. A person may have deleted a stream or its group, or a process may
//! have died between the delivery of an entry and the claim.

use std::sync::atomic::Ordering;

use towpath_core::run::{RunId, RunQueue};
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::keys::{QUEUES, letter};
use super::places::Place;
use super::scripts;
use crate::store::RedisStore;
use crate::unreadable::of_key;
use crate::value;

/// Number of ready runs of a queue that one script looks at.
const AT_ONCE: usize = 500;
/// Number of these looks that follow each other while each finds something to put back.
const LOOKS_MAX: usize = 40;
/// An entry that was delivered this long ago while its run is still ready was lost by the process that got it.
const LOST_AFTER_MS: u64 = 5_000;

/// What one look has come to.
struct Looked {
    /// Number of runs that were put back.
    back: u64,
    /// Where the next look begins. `None`: it was the last.
    next: Option<usize>,
}

impl RedisStore {
    /// Looks at some ready runs of every place, and lets references of closed runs expire.
    pub(crate) async fn repair_runs(&self) -> Result<(), StoreError> {
        for place in self.known_places().await? {
            self.shared.or_pass_over(&place.keys.stream, self.repair_next(&place).await, ())?;
            self.shared.or_pass_over(&place.keys.of("refs"), self.end_references(&place).await, ())?;
        }
        Ok(())
    }

    /// Looks at all ready runs of a place, and puts those back into their queues that no worker could get. Returns how many.
    pub(super) async fn repair_place(&self, place: &Place) -> Result<u64, StoreError> {
        let mut back = 0;
        for queue in QUEUES {
            let mut from = Some(0);
            for _ in 0..LOOKS_MAX {
                let Some(start) = from else { break };
                let looked = self.repair_some(place, queue, start).await?;
                (back, from) = (back + looked.back, looked.next);
            }
        }
        Ok(back)
    }

    /// Looks at some ready runs of a place, and at more while it finds something to put back.
    async fn repair_next(&self, place: &Place) -> Result<(), StoreError> {
        for (queue, repaired_to) in QUEUES.into_iter().zip(&place.repaired_to) {
            for _ in 0..LOOKS_MAX {
                let looked = self.repair_some(place, queue, repaired_to.load(Ordering::Relaxed)).await?;
                repaired_to.store(looked.next.unwrap_or(0), Ordering::Relaxed);
                if looked.back == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn repair_some(&self, place: &Place, queue: RunQueue, from: usize) -> Result<Looked, StoreError> {
        let mut args = self.run_args(place, 4);
        args.push(letter(queue));
        args.number(from);
        args.number(AT_ONCE);
        args.number(LOST_AFTER_MS);
        let reply = self.run_script(&scripts::REQUEUE, place, &[], &args).await;
        let said = value::array("a repair", reply.map_err(|error| of_key(error, &place.keys.ready(queue)))?)?;
        let count = |part: usize| said.get(part).and_then(value::number).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        let (seen, back) = (count(0), count(1));
        if back > 0 {
            tracing::warn!(place = place.keys.stream, back, "ready runs were missing in their queues; they are back");
        }
        // Those that were put back stand at the end now.
        Ok(Looked { back: back as u64, next: (seen == AT_ONCE).then_some(from + seen - back) })
    }

    /// A line of a set gets the instant that its run has for it, or goes if it has none. `version`: that of the run as it was seen.
    pub(super) async fn correct_line(
        &self,
        place: &Place,
        (set, line): (&str, &str),
        (run_id, version): (&RunId, &str),
        at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let mut args = self.run_args(place, 6);
        args.number(1);
        [set, line, run_id.as_str(), version].iter().for_each(|word| args.push(word));
        match at {
            Some(at) => args.number(at.as_millis()),
            None => args.push(""),
        }
        self.run_script(&scripts::LINES, place, std::slice::from_ref(run_id), &args).await.map(drop)
    }
}
