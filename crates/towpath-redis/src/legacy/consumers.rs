//! Which consumers of a group are gone. Legacy workers answer for what they have read by their heartbeats alone, and many read under a name
//! that is not their worker id.

use std::collections::HashMap;
use std::time::Duration;

use towpath_core::time::Timestamp;

use super::CONSUMER;
use super::peers::LegacyWorker;

/// The consumer of the seeds that takes over what others have abandoned, and never runs it.
const RECLAIMER: &str = "reclaimer";
/// An entry of a process that is certainly gone is taken over when it was idle for this long.
const GRACE: Duration = Duration::from_secs(3);
/// An entry that Towpath has read is imported at once, unless its process has died.
const IMPORTED_WITHIN: Duration = Duration::from_secs(3);

/// The consumers of a group, and the legacy workers that serve its function.
pub(super) struct Consumers<'a> {
    /// Those that read the stream, and since when each has not asked for entries.
    pub(super) names: HashMap<&'a str, Duration>,
    pub(super) workers: &'a [LegacyWorker],
    pub(super) abandoned_after: Duration,
    pub(super) now: Timestamp,
}

impl Consumers<'_> {
    /// Whether an entry that a consumer has read and not acknowledged, since so long, will never be answered.
    pub(super) fn have_abandoned(&self, consumer: &str, idle: Duration) -> bool {
        if consumer.is_empty() {
            return true;
        }
        if consumer == CONSUMER {
            return idle >= IMPORTED_WITHIN;
        }
        if consumer == RECLAIMER {
            return idle >= self.abandoned_after;
        }
        if self.live().any(|worker| worker.id.as_str() == consumer) {
            return false;
        }
        if self.is_older_than_all_workers(consumer) {
            return idle >= GRACE.min(self.abandoned_after);
        }
        let is_silent_worker = self.workers.iter().any(|worker| worker.id.as_str() == consumer);
        idle >= self.abandoned_after && (is_silent_worker || !self.may_be_a_live_worker(consumer))
    }

    fn live(&self) -> impl Iterator<Item = &LegacyWorker> {
        self.workers.iter().filter(|worker| self.now.since(worker.heartbeat) < self.abandoned_after)
    }

    /// A process makes its worker id before it makes consumers: a consumer that is older than every live worker is of a process that is gone.
    fn is_older_than_all_workers(&self, consumer: &str) -> bool {
        let Some(made) = made_at(consumer, "consumer") else { return false };
        let mut live = self.live().peekable();
        live.peek().is_some() && live.all(|worker| made_at(worker.id.as_str(), "worker").is_some_and(|started| made < started))
    }

    /// Whether a consumer that is not known may be a live worker under another name. Each live worker whose id is not among the consumers has
    /// one; if as many other consumers were heard lately, this is none of them. Before Redis 7.2 a read that finds nothing is not heard, so that
    /// more entries stay with their consumer.
    fn may_be_a_live_worker(&self, consumer: &str) -> bool {
        let under_another_name = self.live().filter(|worker| !self.names.contains_key(worker.id.as_str())).count();
        // A third: a worker that has just died is not heard any more before its heartbeat is too old.
        let is_heard = |name: &str| self.names.get(name).is_some_and(|idle| *idle < self.abandoned_after / 3);
        if self.names.get(consumer).is_some_and(|idle| *idle < self.abandoned_after) {
            return under_another_name > 0;
        }
        let is_unknown =
            |name: &str| !name.starts_with(CONSUMER) && name != RECLAIMER && !self.workers.iter().any(|worker| worker.id == name);
        let may_live = |name: &str| is_unknown(name) && is_heard(name) && !self.is_older_than_all_workers(name);
        let heard = self.names.keys().filter(|name| **name != consumer && may_live(name)).count();
        heard < under_another_name
    }
}

/// The instant in a name such as `worker-1794767286013-elno0oaxhp6`, in ms.
pub(super) fn made_at(name: &str, kind: &str) -> Option<u64> {
    let rest = name.strip_prefix(kind)?.strip_prefix(['-', '_'])?;
    rest.split(['-', '_']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(30);

    fn worker(id: &str, heartbeat: i64) -> LegacyWorker {
        LegacyWorker::heard(id, Timestamp::from_millis(heartbeat))
    }

    fn abandoned(workers: &[LegacyWorker], names: &[&str], consumer: &str, idle_s: u64) -> bool {
        let names =
            names.iter().map(|name| (*name, if *name == consumer { Duration::from_secs(idle_s) } else { Duration::ZERO })).collect();
        let consumers = Consumers { names, workers, abandoned_after: AFTER, now: Timestamp::from_millis(100_000) };
        consumers.have_abandoned(consumer, Duration::from_secs(idle_s))
    }

    #[test]
    fn a_live_worker_keeps_what_it_has_read() {
        let workers = [worker("worker-1", 99_000)];
        assert!(!abandoned(&workers, &["worker-1"], "worker-1", 3_600));
        let silent = [worker("worker-1", 60_000)];
        assert!(!abandoned(&silent, &["worker-1"], "worker-1", 29) && abandoned(&silent, &["worker-1"], "worker-1", 30));
    }

    #[test]
    fn a_process_that_was_killed_and_started_again_has_abandoned_what_it_held() {
        let again = [worker("worker-2000-b", 99_000)];
        let names = ["consumer-1500-a", "consumer-2500-b"];
        assert!(abandoned(&again, &names, "consumer-1500-a", 3));
        assert!(!abandoned(&again, &names, "consumer-1500-a", 2), "an answer may be on its way");
        assert!(!abandoned(&again, &names, "consumer-2500-b", 3_600), "that is the live one");
        let beside = [worker("worker-2000-b", 99_000), worker("worker-1000-a", 99_000)];
        assert!(!abandoned(&beside, &names, "consumer-1500-a", 3_600), "it may be the other process");
        let strange = [worker("worker-2000-b", 99_000), worker("n8n", 99_000)];
        assert!(!abandoned(&strange, &names, "consumer-1500-a", 3_600), "it may be the process whose name tells nothing");
    }

    #[test]
    fn an_unknown_consumer_may_be_a_live_worker_under_another_name() {
        let workers = [worker("n8n", 99_000)];
        assert!(!abandoned(&workers, &["x"], "x", 3_600));
        assert!(abandoned(&workers, &["x", "n8n"], "x", 30), "the live one reads under its own name");
        assert!(abandoned(&workers, &["x", "y"], "x", 30), "the live one was heard under another name");
        assert!(!abandoned(&[worker("n8n", 99_000), worker("n9n", 99_000)], &["x", "y"], "x", 30), "one of the two may be it");
        assert!(abandoned(&[], &["x"], "x", 30) && !abandoned(&[], &["x"], "x", 29));
        assert!(abandoned(&workers, &["reclaimer"], "reclaimer", 30));
    }

    #[test]
    fn an_entry_that_was_never_delivered_is_abandoned() {
        assert!(abandoned(&[worker("w", 99_000)], &[], "", 0));
        assert!(!abandoned(&[], &[], CONSUMER, 1) && abandoned(&[], &[], CONSUMER, 3));
    }
}
