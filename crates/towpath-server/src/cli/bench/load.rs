//! The load: callers that each keep one call of a function that does nothing under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use towpath::{FloorGauge, FunctionKey, FunctionName, NewCall, Payload, Towpath};

use super::place::Place;
use super::thread::on_one_thread;
use super::worker::Worker;
use super::{PARAMS, WARM_UP, blocking, failed, mean, micros};
use crate::cli::failure::Failure;
use crate::cli::time;

/// What shall be under way.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) in_flight: u32,
    /// Over how many functions the calls are spread.
    pub(super) functions: u32,
    pub(super) length: Duration,
}

/// What a load showed.
pub(super) struct Measured {
    pub(super) calls: u64,
    pub(super) took: Duration,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    /// 0 where the store does not count commits.
    pub(super) moves_per_commit: f64,
    /// What the server's process needed for a call, in microseconds.
    pub(super) store_cpu_us: Option<f64>,
}

impl Measured {
    /// Several measurements as one. `None`: there are none.
    pub(super) fn mean(all: &[Self]) -> Option<Self> {
        let mean_of = |of: fn(&Self) -> Duration| mean(all.iter().map(|one| of(one).as_secs_f64())).map(Duration::from_secs_f64);
        Some(Self {
            calls: all.iter().map(|one| one.calls).sum(),
            took: all.iter().map(|one| one.took).sum(),
            p50: mean_of(|one| one.p50)?,
            p99: mean_of(|one| one.p99)?,
            moves_per_commit: mean(all.iter().map(|one| one.moves_per_commit))?,
            store_cpu_us: mean(all.iter().filter_map(|one| one.store_cpu_us)),
        })
    }

    pub(super) fn calls_per_second(&self) -> f64 {
        self.calls as f64 / self.took.as_secs_f64()
    }
}

/// Puts a load on a store. On a server its two sides are processes with one thread each.
pub(super) async fn run(place: &Place, load: Load) -> Result<Measured, Failure> {
    if !place.is_shared() {
        return run_here(place, load).await;
    }
    let place = place.clone();
    on_one_thread(move || async move { run_here(&place, load).await }).await
}

async fn run_here(place: &Place, load: Load) -> Result<Measured, Failure> {
    let towpath = super::open(&place.url).await?;
    let worker = Worker::start(place, &towpath, load.functions, load.in_flight.max(16)).await?;
    calls_until(place, &towpath, load, time::now() + WARM_UP).await?;

    let (begin, before) = (time::now(), Counters::read(place, &towpath).await?);
    let latencies = calls_until(place, &towpath, load, begin + load.length).await?;
    let (took, after) = (time::now() - begin, Counters::read(place, &towpath).await?);
    worker.stop().await;
    towpath.close().await;

    let at = |quantile| Duration::from_micros(latencies.value_at_quantile(quantile));
    let (calls, commits) = (latencies.len(), (after.commits - before.commits).max(1));
    let cpu = after.store_cpu_seconds.zip(before.store_cpu_seconds).map(|(after, before)| after - before);
    Ok(Measured {
        calls,
        took,
        p50: at(0.5),
        p99: at(0.99),
        moves_per_commit: (after.moves - before.moves) as f64 / commits as f64,
        store_cpu_us: cpu.map(|seconds| seconds * 1e6 / calls.max(1) as f64),
    })
}

/// What the store has counted so far.
struct Counters {
    commits: u64,
    moves: u64,
    store_cpu_seconds: Option<f64>,
}

impl Counters {
    async fn read(place: &Place, towpath: &Towpath) -> Result<Self, Failure> {
        let status = towpath.store().probe().await.map_err(|error| failed(&error.to_string()))?;
        let store_cpu_seconds = if place.is_shared() { Some(gauge(place).await?.cpu_seconds) } else { None };
        Ok(Self { commits: status.commits, moves: status.moves, store_cpu_seconds })
    }
}

/// What the Redis server says about itself.
pub(super) async fn gauge(place: &Place) -> Result<towpath::FloorReading, Failure> {
    let url = place.url.clone();
    blocking(move || FloorGauge::open(&url)?.read()).await.map_err(|cause| failed(&cause))
}

/// A call of one of the measured functions.
pub(super) fn call(place: &Place, number: u32) -> Result<NewCall, Failure> {
    let name = FunctionName::new(place.function(number)).map_err(|error| failed(&error.to_string()))?;
    Ok(NewCall::new(FunctionKey::global(name), Payload::from_json(PARAMS)))
}

/// Latencies in microseconds of all calls that were made until `end`.
async fn calls_until(place: &Place, towpath: &Towpath, load: Load, end: Instant) -> Result<Histogram<u64>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::new();
    for number in 0..load.in_flight {
        let call = call(place, number % load.functions)?;
        callers.push(tokio::spawn(call_over_and_over(towpath.clone(), call, Arc::clone(&stop))));
    }
    time::sleep_until(end).await;
    stop.store(true, Ordering::Relaxed);
    let mut all = Histogram::new(3).map_err(|error| failed(&error.to_string()))?;
    for caller in callers {
        let latencies = caller.await.map_err(|error| failed(&error.to_string()))?.map_err(|cause| failed(&cause))?;
        for latency in latencies {
            all.record(latency).map_err(|error| failed(&error.to_string()))?;
        }
    }
    Ok(all)
}

/// Their latencies stand in a row: a histogram for each of a thousand callers would fill the caches that the callers need.
async fn call_over_and_over(towpath: Towpath, call: NewCall, stop: Arc<AtomicBool>) -> Result<Vec<u64>, String> {
    let mut latencies = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let begin = time::now();
        towpath.call_raw(call.clone()).await.map_err(|error| error.to_string())?;
        latencies.push(micros(time::now() - begin));
    }
    Ok(latencies)
}
