//! What is looked at for legacy peers, and how often. A process without legacy peers sends one question every few seconds, whatever the number
//! of its functions.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use towpath_core::names::FunctionKey;
use towpath_core::store::StoreError;
use towpath_core::time::Timestamp;

use super::scripts::LOOK;
use crate::calls::partition::Partition;
use crate::script::Args;
use crate::store::RedisStore;
use crate::value;

/// So many functions are asked about at once.
const FUNCTIONS_AT_ONCE: usize = 256;
/// Workers are looked for three times as often as streams. A blocking read reports new entries at once; the look at streams finds what it missed.
const WORKERS_PER_STREAMS: u32 = 3;
/// How often the lengths of streams are looked at in a Cluster.
const LENGTHS_EVERY: Duration = Duration::from_secs(1);

/// When each thing was last looked at.
#[derive(Default)]
pub(super) struct Rounds {
    workers: Option<Timestamp>,
    streams: Option<Timestamp>,
    lengths: Option<Timestamp>,
}

/// Which things are due. What is due counts as done.
struct Due {
    workers: bool,
    streams: bool,
    lengths: bool,
}

impl RedisStore {
    /// One round of looking after the streams that legacy peers use.
    pub(crate) async fn look_after_legacy_peers(&self) -> Result<(), StoreError> {
        let mut partitions = self.partitions_in_use();
        partitions.retain(|partition| !partition.is_shard());
        let due = self.take_due();
        if due.workers {
            self.look_for_legacy_workers(&partitions).await?;
        }
        if due.streams {
            self.look_for_streams(&partitions).await?;
        }
        if due.lengths && self.shared.link.is_cluster() {
            self.look_at_lengths().await?;
        }
        for partition in partitions.iter().filter(|partition| partition.legacy.is_tended.load(Ordering::Acquire)) {
            // The trouble of one function keeps no other from being looked after.
            if let Err(error) = self.tend(partition).await {
                tracing::debug!(function = %partition.function, %error, "the stream of this function was not looked after; the next tick does it");
            }
        }
        Ok(())
    }

    fn take_due(&self) -> Due {
        let (every, now) = (self.shared.options.timing.look_for_legacy_every, self.shared.now());
        // No code that can panic runs under this lock.
        let mut rounds = self.shared.legacy.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let take = |last: &mut Option<Timestamp>, every: Duration| {
            let is_due = last.is_none_or(|last| now.since(last) >= every || now < last);
            if is_due {
                *last = Some(now);
            }
            is_due
        };
        Due {
            workers: take(&mut rounds.workers, every),
            streams: take(&mut rounds.streams, every * WORKERS_PER_STREAMS),
            lengths: take(&mut rounds.lengths, LENGTHS_EVERY),
        }
    }

    /// Finds out which functions legacy workers serve.
    async fn look_for_legacy_workers(&self, partitions: &[Arc<Partition>]) -> Result<(), StoreError> {
        for some in partitions.chunks(FUNCTIONS_AT_ONCE) {
            let had_legacy = |function: &FunctionKey| self.last_serving(function).is_some_and(|serving| !serving.legacy.is_empty());
            let functions = some.iter().map(|partition| partition.function.clone());
            let (mut looked_at, others): (Vec<FunctionKey>, Vec<FunctionKey>) = functions.partition(had_legacy);
            if !others.is_empty() && !self.all_are_familiar(&others).await? {
                looked_at.extend(others);
            }
            if looked_at.is_empty() {
                continue;
            }
            self.look_at_peers_now(&looked_at).await?;
            for partition in some {
                if self.last_serving(&partition.function).is_some_and(|serving| serving.has_legacy) {
                    partition.legacy.tend();
                }
            }
        }
        Ok(())
    }

    /// Finds streams in use, streams whose group was destroyed, and what processes that died have left.
    async fn look_for_streams(&self, partitions: &[Arc<Partition>]) -> Result<(), StoreError> {
        let at_once = if self.shared.link.is_cluster() { 1 } else { FUNCTIONS_AT_ONCE };
        for some in partitions.chunks(at_once) {
            let of = |partition: &Arc<Partition>| {
                let keys = &partition.keys;
                [keys.stream.clone(), keys.exported.clone(), keys.owed.clone(), keys.legacy.clone()]
            };
            let keys: Vec<String> = some.iter().flat_map(of).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let mut groups = Args::with_capacity(some.len());
            for partition in some {
                let is_served = partition.legacy.is_listened_to.load(Ordering::Acquire);
                groups.push(if is_served { partition.keys.group.as_str() } else { "" });
            }
            let found = value::array("a look for streams", self.shared.link.run_args(&LOOK, &keys, &groups).await?)?;
            let numbers = found.iter().filter_map(value::number).filter_map(|number| usize::try_from(number - 1).ok());
            numbers.filter_map(|number| some.get(number)).for_each(|partition| partition.legacy.tend());
        }
        Ok(())
    }
}
