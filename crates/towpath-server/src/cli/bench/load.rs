//! The load: callers that each keep one call of a function that does nothing under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use towpath::{FloorGauge, NewCall, Towpath};

use super::meter::Meter;
use super::place::Place;
use super::steady::Steady;
use super::thread::on_one_thread;
use super::worker::Worker;
use super::{blocking, failed, mean, micros};
use crate::cli::failure::Failure;
use crate::cli::time;

/// A caller gives up after so many calls in a row without an answer.
const TRIES: u32 = 10;

/// What shall be under way.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) in_flight: u32,
    /// Every caller calls these in turn.
    pub(super) functions: u32,
    /// How long it is measured, after the warm-up.
    pub(super) length: Duration,
    pub(super) steady: Steady,
}

/// What a load showed.
pub(super) struct Measured {
    pub(super) calls: u64,
    /// Calls that ended without an answer, most often by their deadline.
    pub(super) unanswered: u64,
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
            unanswered: all.iter().map(|one| one.unanswered).sum(),
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
    run_watched(place, load, Meter::new()?).await
}

/// The same, for those that watch it meanwhile.
pub(super) async fn run_watched(place: &Place, load: Load, meter: Arc<Meter>) -> Result<Measured, Failure> {
    if !place.is_shared() {
        return run_here(place, load, &meter).await;
    }
    let place = place.clone();
    on_one_thread(move || async move { run_here(&place, load, &meter).await }).await
}

async fn run_here(place: &Place, load: Load, meter: &Arc<Meter>) -> Result<Measured, Failure> {
    let towpath = match super::open(&place.url).await {
        Ok(towpath) => towpath,
        Err(failure) => {
            meter.over().await;
            return Err(failure);
        }
    };
    meter.opened(&towpath);
    let measured = serve_and_measure(place, &towpath, load, meter).await;
    // Watchers may use the store until they have seen the end.
    meter.over().await;
    towpath.close().await;
    measured
}

async fn serve_and_measure(place: &Place, towpath: &Towpath, load: Load, meter: &Arc<Meter>) -> Result<Measured, Failure> {
    let worker = Worker::start(place, towpath, load.functions, load.in_flight.max(16)).await?;
    let measured = measure(place, towpath, load, meter).await;
    // Watchers see the end before the worker goes.
    meter.over().await;
    worker.stop().await;
    measured
}

async fn measure(place: &Place, towpath: &Towpath, load: Load, meter: &Arc<Meter>) -> Result<Measured, Failure> {
    let mut callers = Callers::start(place, towpath, load, meter)?;
    callers.run(load.steady.warm_up(place)).await??;
    let before = Counters::read(place, towpath).await?;
    let begin = time::now();
    meter.begin()?;
    callers.run(time::sleep_until(begin + load.length)).await?;
    let (took, counted) = (time::now() - begin, meter.end());
    let after = Counters::read(place, towpath).await?;
    callers.stop().await?;

    let latencies = counted.latencies;
    if latencies.is_empty() {
        return Err(failed("no call was answered while it was measured"));
    }
    let at = |quantile| Duration::from_micros(latencies.value_at_quantile(quantile));
    let (calls, commits) = (latencies.len(), (after.commits - before.commits).max(1));
    let cpu = after.store_cpu_seconds.zip(before.store_cpu_seconds).map(|(after, before)| after - before);
    Ok(Measured {
        calls,
        unanswered: counted.unanswered,
        took,
        p50: at(0.5),
        p99: at(0.99),
        moves_per_commit: (after.moves - before.moves) as f64 / commits as f64,
        store_cpu_us: cpu.map(|seconds| seconds * 1e6 / calls as f64),
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

/// Callers under way. Dropped, they end at once.
struct Callers {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Result<(), String>>,
}

impl Callers {
    fn start(place: &Place, towpath: &Towpath, load: Load, meter: &Arc<Meter>) -> Result<Self, Failure> {
        let calls: Arc<[NewCall]> = (0..load.functions).map(|number| load.steady.call(place, number)).collect::<Result<_, _>>()?;
        let (stop, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for number in 0..load.in_flight as usize {
            tasks.spawn(call_on_and_on(towpath.clone(), Arc::clone(&calls), number, Arc::clone(&stop), Arc::clone(meter)));
        }
        Ok(Self { stop, tasks })
    }

    /// Waits for something while the callers call. A caller that gives up is an error.
    async fn run<T>(&mut self, until: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            done = until => Ok(done),
            Some(caller) = self.tasks.join_next() => Err(gave_up(caller)),
        }
    }

    /// Lets each call that is under way end.
    async fn stop(mut self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(caller) = self.tasks.join_next().await {
            if !matches!(caller, Ok(Ok(()))) {
                return Err(gave_up(caller));
            }
        }
        Ok(())
    }
}

fn gave_up(caller: Result<Result<(), String>, tokio::task::JoinError>) -> Failure {
    match caller {
        Ok(Err(cause)) => failed(&cause),
        Ok(Ok(())) => failed("a caller stopped too early"),
        Err(error) => failed(&error.to_string()),
    }
}

/// Calls the functions at random: callers that go through them in turn would soon call the same function all at once.
async fn call_on_and_on(
    towpath: Towpath,
    calls: Arc<[NewCall]>,
    caller: usize,
    stop: Arc<AtomicBool>,
    meter: Arc<Meter>,
) -> Result<(), String> {
    let mut failed_in_a_row = 0;
    let mut random = caller as u64;
    while !stop.load(Ordering::Relaxed) {
        // A linear congruential generator: its upper bits are random enough to choose a function.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let call = &calls[(random >> 33) as usize % calls.len()];
        let begin = time::now();
        match towpath.call_raw(call.clone()).await {
            Ok(_) => {
                meter.answered(micros(time::now() - begin));
                failed_in_a_row = 0;
            }
            Err(error) => {
                meter.unanswered();
                failed_in_a_row += 1;
                if failed_in_a_row == TRIES {
                    return Err(format!("{TRIES} calls in a row had no answer, the last one because {error}"));
                }
            }
        }
    }
    Ok(())
}
