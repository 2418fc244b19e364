//! What is counted of batches.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use towpath::batches::{BatchCounts, BatcherName, CloseReason};
use towpath_core::batch::IngestReply;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BatcherLabels {
    batcher: String,
}

impl From<&BatcherName> for BatcherLabels {
    fn from(name: &BatcherName) -> Self {
        Self { batcher: name.to_string() }
    }
}

/// A batcher and one of few words.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WordLabels {
    batcher: String,
    reason: String,
}

impl WordLabels {
    fn new(name: &BatcherName, reason: &str) -> Self {
        Self { batcher: name.to_string(), reason: reason.to_owned() }
    }
}

type PerBatcher<M> = Family<BatcherLabels, M>;
type PerWord = Family<WordLabels, Counter>;

/// Everything that is counted of batches.
#[derive(Debug)]
pub(crate) struct BatchMetrics {
    open_keys: PerBatcher<Gauge>,
    open_messages: PerBatcher<Gauge>,
    in_flight: PerBatcher<Gauge>,
    dead_letters: PerBatcher<Gauge>,
    ingested: PerBatcher<Counter>,
    duplicates: PerBatcher<Counter>,
    refused: PerBatcher<Counter>,
    closed: PerWord,
    lateness_seconds: Family<BatcherLabels, Histogram, fn() -> Histogram>,
    attempts: PerWord,
    retries: PerBatcher<Counter>,
    reclaims: PerBatcher<Counter>,
    stale_tokens: PerBatcher<Counter>,
    dead: PerWord,
}

impl Default for BatchMetrics {
    fn default() -> Self {
        Self {
            open_keys: Family::default(),
            open_messages: Family::default(),
            in_flight: Family::default(),
            dead_letters: Family::default(),
            ingested: Family::default(),
            duplicates: Family::default(),
            refused: Family::default(),
            closed: Family::default(),
            // From a millisecond to about 16 seconds, four times as long from one to the next.
            lateness_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 8))),
            attempts: Family::default(),
            retries: Family::default(),
            reclaims: Family::default(),
            stale_tokens: Family::default(),
            dead: Family::default(),
        }
    }
}

impl BatchMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("batch_open_keys", "Keys with an open batch", self.open_keys.clone());
        registry.register("batch_open_messages", "Messages in open batches", self.open_messages.clone());
        registry.register("batches_in_flight", "Batches that were claimed and are not settled", self.in_flight.clone());
        registry.register("batch_dead_letters", "Batches that were given up and wait to be replayed or dropped", self.dead_letters.clone());
        registry.register("batch_messages_ingested", "Messages taken by this server", self.ingested.clone());
        registry.register("batch_messages_duplicate", "Messages that had been taken before", self.duplicates.clone());
        registry.register("batch_messages_refused_full", "Messages refused because too many were open", self.refused.clone());
        registry.register("batches_closed", "Batches that were closed, by what closed them", self.closed.clone());
        registry.register("batch_lateness_seconds", "From the deadline of a batch to its claim", self.lateness_seconds.clone());
        registry.register("batch_attempts", "Deliveries that were tried, by how they went", self.attempts.clone());
        registry.register("batch_retries", "Deliveries that failed and go again", self.retries.clone());
        registry.register("batch_reclaims", "Batches taken over because a lease had ended or a retry was due", self.reclaims.clone());
        registry.register(
            "batch_stale_tokens",
            "Dispatchers and consumers that spoke of a batch that was not theirs",
            self.stale_tokens.clone(),
        );
        registry.register("batches_dead", "Batches and messages that became dead letters, by reason", self.dead.clone());
    }

    /// What stands in the store now.
    pub(crate) fn set(&self, counts: &[(BatcherName, BatchCounts)]) {
        for gauges in [&self.open_keys, &self.open_messages, &self.in_flight, &self.dead_letters] {
            gauges.clear();
        }
        for (name, counts) in counts {
            let set = |gauges: &PerBatcher<Gauge>, count: u64| {
                gauges.get_or_create(&name.into()).set(i64::try_from(count).unwrap_or(i64::MAX));
            };
            set(&self.open_keys, counts.open_keys);
            set(&self.open_messages, counts.open_messages);
            set(&self.in_flight, counts.in_flight);
            set(&self.dead_letters, counts.dead_letters);
        }
    }

    pub(super) fn ingested(&self, name: &BatcherName, reply: &IngestReply) {
        let counter = match reply {
            IngestReply::Accepted { .. } => &self.ingested,
            IngestReply::Duplicate { .. } => &self.duplicates,
            IngestReply::Full { .. } => &self.refused,
        };
        counter.get_or_create(&name.into()).inc();
    }

    pub(super) fn closed(&self, name: &BatcherName, reason: CloseReason) {
        self.closed.get_or_create(&WordLabels::new(name, reason.as_str())).inc();
    }

    pub(super) fn late(&self, name: &BatcherName, late: Duration) {
        self.lateness_seconds.get_or_create(&name.into()).observe(late.as_secs_f64());
    }

    pub(super) fn attempted(&self, name: &BatcherName, label: &str) {
        self.attempts.get_or_create(&WordLabels::new(name, label)).inc();
    }

    pub(super) fn retried(&self, name: &BatcherName) {
        self.retries.get_or_create(&name.into()).inc();
    }

    pub(super) fn reclaimed(&self, name: &BatcherName) {
        self.reclaims.get_or_create(&name.into()).inc();
    }

    pub(super) fn token_stale(&self, name: &BatcherName) {
        self.stale_tokens.get_or_create(&name.into()).inc();
    }

    pub(super) fn dead(&self, name: &BatcherName, reason: &str) {
        self.dead.get_or_create(&WordLabels::new(name, reason)).inc();
    }
}
