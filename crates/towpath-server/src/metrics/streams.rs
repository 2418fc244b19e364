//! The streams that legacy peers use, read when Prometheus asks.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use towpath_core::inspect::FunctionView;
use towpath_core::time::Timestamp;

use super::FunctionLabels;

/// Gauges per function that has a stream.
#[derive(Default)]
pub(super) struct StreamMetrics {
    length: Family<FunctionLabels, Gauge>,
    pending: Family<FunctionLabels, Gauge>,
    oldest_seconds: Family<FunctionLabels, Gauge<f64, AtomicU64>>,
    oldest_pending_seconds: Family<FunctionLabels, Gauge<f64, AtomicU64>>,
}

impl StreamMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("legacy_stream_length", "Entries in the stream that legacy peers of a function use", self.length.clone());
        let help = "Entries of that stream that workers have read and not acknowledged";
        registry.register("legacy_stream_pending", help, self.pending.clone());
        let help = "Age of the oldest entry of that stream that no worker has finished";
        registry.register("legacy_stream_oldest_seconds", help, self.oldest_seconds.clone());
        let help = "Age of the oldest entry of that stream that a worker has read and not acknowledged";
        registry.register("legacy_stream_oldest_pending_seconds", help, self.oldest_pending_seconds.clone());
    }

    pub(super) fn set(&self, functions: &[FunctionView], now: Timestamp) {
        [&self.length, &self.pending].into_iter().for_each(|gauges| gauges.clear());
        [&self.oldest_seconds, &self.oldest_pending_seconds].into_iter().for_each(|gauges| gauges.clear());
        for (view, stream) in functions.iter().filter_map(|view| Some((view, view.stream.as_ref()?))) {
            let labels = FunctionLabels::from(&view.definition.key);
            let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            let age = |at: Option<Timestamp>| at.map(|at| now.since(at)).unwrap_or_default().as_secs_f64();
            self.length.get_or_create(&labels).set(whole(stream.length));
            self.pending.get_or_create(&labels).set(whole(stream.pending));
            self.oldest_seconds.get_or_create(&labels).set(age(stream.oldest_at));
            self.oldest_pending_seconds.get_or_create(&labels).set(age(stream.oldest_pending_at));
        }
    }
}
