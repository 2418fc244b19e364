//! The floor: what the bare store does with nothing of Towpath between.

pub(super) mod redis;
pub(super) mod sqlite;

use std::time::Duration;

use super::mean;

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
    /// Measurements before, between and after something else as one. `None`: there are none.
    pub(super) fn mean(all: &[Self]) -> Option<Self> {
        let latencies: Option<Vec<Latency>> = all.iter().map(|one| one.latency).collect();
        let latency = latencies.and_then(|all| {
            let mean = |of: fn(&Latency) -> Duration| mean(all.iter().map(|one| of(one).as_secs_f64())).map(Duration::from_secs_f64);
            Some(Latency { p50: mean(|one| one.p50)?, p99: mean(|one| one.p99)? })
        });
        let store_cpu_us = mean(all.iter().filter_map(|one| one.store_cpu_us));
        Some(Self { calls_per_second: mean(all.iter().map(|one| one.calls_per_second))?, latency, store_cpu_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(calls_per_second: f64, p50_ms: Option<u64>) -> FloorMeasured {
        let latency = p50_ms.map(|ms| Latency { p50: Duration::from_millis(ms), p99: Duration::from_millis(2 * ms) });
        FloorMeasured { calls_per_second, latency, store_cpu_us: Some(calls_per_second / 10.0) }
    }

    #[test]
    fn measurements_in_turn_count_alike() {
        let mean = FloorMeasured::mean(&[measured(10.0, Some(1)), measured(20.0, Some(2)), measured(60.0, Some(6))]).expect("some");
        assert_eq!((mean.calls_per_second, mean.store_cpu_us), (30.0, Some(3.0)));
        assert_eq!(mean.latency.map(|latency| (latency.p50.as_millis(), latency.p99.as_millis())), Some((3, 6)));
        assert!(FloorMeasured::mean(&[]).is_none());
    }

    #[test]
    fn a_latency_that_was_not_measured_each_time_is_none() {
        assert!(FloorMeasured::mean(&[measured(1.0, Some(1)), measured(1.0, None)]).expect("some").latency.is_none());
    }
}
