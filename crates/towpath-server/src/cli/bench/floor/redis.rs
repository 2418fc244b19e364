//! The floor on Redis: a bare caller in this process and a bare worker in another, as the caller and the worker that are measured.

use std::time::Duration;

use hdrhistogram::Histogram;
use towpath::{FloorGauge, RedisFloor, RedisFloorCaller};

use super::super::place::Place;
use super::super::process::Part;
use super::super::{PARAMS, WARM_UP, blocking, failed, micros};
use super::{FloorMeasured, Latency};
use crate::cli::failure::Failure;
use crate::cli::time;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Keeps `in_flight` calls under way for `length`.
pub(in super::super) async fn run(place: &Place, in_flight: u32, length: Duration) -> Result<FloorMeasured, Failure> {
    let failed = |cause: String| failed(&cause);
    let floor = RedisFloor::open(&place.url, &place.tag).map_err(|error| failed(error.to_string()))?;
    let create = floor.clone();
    blocking(move || create.create()).await.map_err(failed)?;
    let worker = Part::start(place, &["floor-worker"]).await?;
    let (caller, url) = (floor.clone(), place.url.clone());
    let measured = blocking(move || measure(&caller, &url, in_flight as usize, length)).await;
    worker.stop().await;
    blocking(move || floor.remove()).await.map_err(failed)?;
    measured.map_err(failed)
}

fn measure(floor: &RedisFloor, url: &str, in_flight: usize, length: Duration) -> Result<FloorMeasured, Cause> {
    let mut caller = floor.caller(PARAMS)?;
    let mut gauge = FloorGauge::open(url)?;
    call_for(&mut caller, in_flight, WARM_UP)?;
    let (before, begin) = (gauge.read()?, time::now());
    let (calls, turns) = call_for(&mut caller, in_flight, length)?;
    let (took, after) = (time::now() - begin, gauge.read()?);
    caller.finish()?;
    let at = |quantile| Duration::from_micros(turns.value_at_quantile(quantile));
    Ok(FloorMeasured {
        calls_per_second: calls as f64 / took.as_secs_f64(),
        latency: (in_flight == 1).then(|| Latency { p50: at(0.5), p99: at(0.99) }),
        store_cpu_us: Some((after.cpu_seconds - before.cpu_seconds) * 1e6 / calls as f64),
    })
}

/// How many calls were answered, and how long each turn took in microseconds.
fn call_for(caller: &mut RedisFloorCaller, in_flight: usize, length: Duration) -> Result<(u64, Histogram<u64>), Cause> {
    let (mut calls, mut turns) = (0, Histogram::new(3)?);
    let mut begin = time::now();
    let end = begin + length;
    while begin < end {
        calls += caller.turn(in_flight)? as u64;
        let now = time::now();
        turns.record(micros(now - begin))?;
        begin = now;
    }
    Ok((calls, turns))
}

/// The bare worker, until it is told to stop.
pub(in super::super) fn serve(url: &str, tag: &str, answer: &str, ready: impl FnOnce(), stop: impl Fn() -> bool) -> Result<(), Cause> {
    let mut worker = RedisFloor::open(url, tag)?.worker(answer)?;
    ready();
    Ok(worker.run(stop)?)
}
