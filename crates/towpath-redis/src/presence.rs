//! Noticing that somebody went away, so that what is left behind is looked at soon and everything else can be looked at seldom.
//!
//! Every process fires what is due of its own and repairs what fell from its own hands. Only what a dead one left needs others. One is
//! missed in two ways: its subscription to the news ends with its connection, at once when a process is killed; and its workers fall
//! silent, also when a whole machine is gone. Neither carries truth. Missing both costs time: everything is looked at now and then.

use std::collections::HashSet;
use std::sync::Weak;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::watch;
use towpath_core::store::StoreError;
use towpath_core::time::millis;
use towpath_core::worker::HEARTBEAT_EVERY;

use crate::pause::pause;
use crate::store::{RedisStore, Shared};
use crate::value;

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Of so many silent workers at once it is noticed that they fell silent.
const SILENT_MAX: usize = 1_000;

/// Counts departures.
pub(crate) struct Presence(watch::Sender<u64>);

impl Default for Presence {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Presence {
    /// Changes when somebody went away.
    pub(crate) fn departures(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// Who was there when it was last looked.
#[derive(Default)]
struct Seen {
    /// How many processes listen to the news.
    processes: i64,
    /// Workers that missed a heartbeat.
    silent: HashSet<String>,
}

impl Seen {
    /// Whether somebody is missing who was not missing before.
    fn misses_somebody(&mut self, now: Self) -> bool {
        let left = now.processes < self.processes || !now.silent.is_subset(&self.silent);
        *self = now;
        left
    }
}

impl RedisStore {
    async fn look_who_is_there(&self) -> Result<Seen, StoreError> {
        let shared = &self.shared;
        let (mut silent, mut listeners) = (Cmd::new(), Cmd::new());
        let since = shared.now().as_millis().saturating_sub(millis(HEARTBEAT_EVERY * 3 / 2));
        silent.arg("ZRANGEBYSCORE").arg(shared.keys.heartbeats()).arg("-inf").arg(since).arg("LIMIT").arg(0).arg(SILENT_MAX);
        listeners.arg("PUBSUB").arg("NUMSUB").arg(shared.keys.news(shared.options.database));
        // In a Cluster each node knows its own listeners only.
        let asks = if shared.link.is_cluster() { vec![silent] } else { vec![silent, listeners] };
        let mut replies = shared.link.ask_all(&asks).await?.into_iter();
        let silent = value::array("ZRANGEBYSCORE", value::checked(replies.next().unwrap_or(Value::Nil))?)?;
        let processes = match replies.next() {
            // A channel and its number. One who may not ask learns it from the workers.
            Some(Value::Array(counted)) => counted.get(1).and_then(value::number).unwrap_or_default(),
            _ => 0,
        };
        Ok(Seen { processes, silent: silent.iter().filter_map(value::text).map(str::to_owned).collect() })
    }
}

/// Looks now and then, as long as the store is open.
pub(crate) async fn watch_for_ever(shared: Weak<Shared>) {
    let mut seen = Seen::default();
    while let Some(shared) = shared.upgrade() {
        let store = RedisStore { shared };
        match store.look_who_is_there().await {
            Ok(now) => {
                if seen.misses_somebody(now) {
                    store.shared.presence.0.send_modify(|count| *count += 1);
                }
            }
            Err(error) => tracing::debug!(%error, "whether everybody is still there is not known; looking again"),
        }
        drop(store);
        pause(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(processes: i64, silent: &[&str]) -> Seen {
        Seen { processes, silent: silent.iter().map(|worker| (*worker).to_owned()).collect() }
    }

    #[test]
    fn somebody_is_missed_once_and_nobody_who_is_there() {
        let mut before = Seen::default();
        assert!(!before.misses_somebody(seen(2, &[])), "two came");
        assert!(!before.misses_somebody(seen(3, &[])));
        assert!(before.misses_somebody(seen(2, &[])), "a process ended");
        assert!(!before.misses_somebody(seen(2, &[])));
        assert!(before.misses_somebody(seen(2, &["w1"])), "a worker fell silent");
        assert!(!before.misses_somebody(seen(2, &["w1"])), "which is known");
        assert!(before.misses_somebody(seen(2, &["w1", "w2"])), "another one");
        assert!(!before.misses_somebody(seen(2, &["w2"])), "the first was heard again, or removed");
    }
}
