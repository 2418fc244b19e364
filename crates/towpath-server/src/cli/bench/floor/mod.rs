//! The floor: what the bare store does with nothing of Towpath between.

pub(super) mod redis;
pub(super) mod sqlite;

use std::time::Duration;

/// What a bare program showed.
pub(super) struct FloorMeasured {
    pub(super) calls_per_second: f64,
    /// Of one call, where calls were made one by one.
    pub(super) latency: Option<Latency>,
    /// What the server's process needed for a call, in microseconds.
    pub(super) store_cpu_us: Option<f64>,
}

#[derive(Clone, Copy)]
pub(super) struct Latency {
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

impl FloorMeasured {
    /// Two measurements around something else as one, so that a machine that slows down meanwhile favours nobody.
    pub(super) fn mean(before: &Self, after: &Self) -> Self {
        let both = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| f64::midpoint(a, b));
        let latency = before.latency.zip(after.latency);
        let latency = latency.map(|(a, b)| Latency { p50: (a.p50 + b.p50) / 2, p99: (a.p99 + b.p99) / 2 });
        let calls_per_second = f64::midpoint(before.calls_per_second, after.calls_per_second);
        Self { calls_per_second, latency, store_cpu_us: both(before.store_cpu_us, after.store_cpu_us) }
    }
}
