//! The load: callers that each keep one call of a function that does nothing under way, and a worker in the same process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hdrhistogram::Histogram;
use towpath::{CallContext, FunctionKey, FunctionName, FunctionOptions, HandlerError, NewCall, Payload, RawHandler, Towpath};

use super::PARAMS;
use super::folder::Folder;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::time;

/// Not measured: caches fill, the file grows its first pages.
const WARM_UP: Duration = Duration::from_millis(500);
const FUNCTION: &str = "nothing";

/// What a level showed.
pub(super) struct Measured {
    pub(super) calls: u64,
    pub(super) took: Duration,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) moves_per_commit: f64,
}

impl Measured {
    pub(super) fn calls_per_second(&self) -> f64 {
        self.calls as f64 / self.took.as_secs_f64()
    }
}

struct Nothing;

#[async_trait]
impl RawHandler for Nothing {
    async fn run(&self, _ctx: CallContext) -> Result<Payload, HandlerError> {
        Ok(Payload::from_json(r#"{"accepted":true}"#))
    }
}

pub(super) async fn run(folder: &Folder, in_flight: u32, length: Duration) -> Result<Measured, Failure> {
    let failed = |cause: String| Failure::new(Exit::Failed, "bench_failed", cause);
    let towpath = Towpath::builder().owner("towpath bench").open(&folder.store_url()).await.map_err(|error| failed(error.to_string()))?;
    let worker = towpath.worker().concurrency(in_flight.max(16)).raw_function(FunctionOptions::new(FUNCTION), Arc::new(Nothing));
    let worker = worker.start().await.map_err(|error| failed(error.to_string()))?;
    calls_until(&towpath, in_flight, time::now() + WARM_UP).await.map_err(failed)?;

    let (begin, before) = (time::now(), written(&towpath).await.map_err(failed)?);
    let latencies = calls_until(&towpath, in_flight, begin + length).await.map_err(failed)?;
    let (took, after) = (time::now() - begin, written(&towpath).await.map_err(failed)?);
    worker.drain().await;
    towpath.close().await;

    let at = |quantile| Duration::from_micros(latencies.value_at_quantile(quantile));
    let commits = (after.0 - before.0).max(1);
    let moves_per_commit = (after.1 - before.1) as f64 / commits as f64;
    Ok(Measured { calls: latencies.len(), took, p50: at(0.5), p99: at(0.99), moves_per_commit })
}

async fn written(towpath: &Towpath) -> Result<(u64, u64), String> {
    let status = towpath.store().probe().await.map_err(|error| error.to_string())?;
    Ok((status.commits, status.moves))
}

/// Latencies in microseconds of all calls that `in_flight` callers made until `end`.
async fn calls_until(towpath: &Towpath, in_flight: u32, end: Instant) -> Result<Histogram<u64>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..in_flight).map(|_| tokio::spawn(call_over_and_over(towpath.clone(), Arc::clone(&stop)))).collect();
    time::sleep_until(end).await;
    stop.store(true, Ordering::Relaxed);
    let mut all = Histogram::new(3).map_err(|error| error.to_string())?;
    for caller in callers {
        all.add(caller.await.map_err(|error| error.to_string())??).map_err(|error| error.to_string())?;
    }
    Ok(all)
}

async fn call_over_and_over(towpath: Towpath, stop: Arc<AtomicBool>) -> Result<Histogram<u64>, String> {
    let mut latencies = Histogram::new(3).map_err(|error| error.to_string())?;
    let name = FunctionName::new(FUNCTION).map_err(|error| error.to_string())?;
    let call = NewCall::new(FunctionKey::global(name), Payload::from_json(PARAMS));
    while !stop.load(Ordering::Relaxed) {
        let begin = time::now();
        towpath.call_raw(call.clone()).await.map_err(|error| error.to_string())?;
        let micros = u64::try_from((time::now() - begin).as_micros()).unwrap_or(u64::MAX);
        latencies.record(micros).map_err(|error| error.to_string())?;
    }
    Ok(latencies)
}
