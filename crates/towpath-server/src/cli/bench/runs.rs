//! Workflow runs of three tasks in steady state: tasks committed per second against one bare commit for each, the time of a step with one run
//! alone, and the time from an event to the end of a run that was parked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use towpath::workflow::{Event, RunState, TaskContext, Workflow, WorkflowContext, WorkflowOptions};
use towpath::{Floor, HandlerError, RedisRunFloor, Towpath};

use super::findings::{Aim, Finding};
use super::place::{Place, Target};
use super::steady::Steady;
use super::{PARAMS, blocking, failed, micros, open};
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::time;

/// Runs under way at once.
const IN_FLIGHT: u32 = 256;
/// Tasks of a run.
const TASKS: u32 = 3;
/// Parked runs that are woken by an event, one after the other.
const PARKED: u32 = 200;
/// A run is parked within this time.
const PARKING_MAX: Duration = Duration::from_secs(60);

static ORDER: Workflow<Order, bool> = Workflow::new("towpath-bench", "1");
static APPROVAL: Workflow<Order, bool> = Workflow::new("towpath-bench-approval", "1");
static APPROVED: Event<bool> = Event::new("approved");

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    order_id: String,
    amount: f64,
}

impl Order {
    fn sample() -> Self {
        Self { order_id: "A-1001".to_owned(), amount: 12.5 }
    }
}

async fn order(order: Order, ctx: WorkflowContext) -> Result<bool, HandlerError> {
    ctx.task("reserve", &order, nothing).await?;
    ctx.task("charge", &order, nothing).await?;
    ctx.task("ship", &order, nothing).await
}

async fn approval(_order: Order, ctx: WorkflowContext) -> Result<bool, HandlerError> {
    ctx.event(&APPROVED).await
}

async fn nothing(_order: Order, _ctx: TaskContext) -> Result<bool, HandlerError> {
    Ok(true)
}

/// What runs showed.
pub(super) struct Runs {
    runs_per_second: f64,
    p50: Duration,
    p99: Duration,
    /// Tasks committed per second by the bare store.
    floor_tasks_per_second: f64,
    /// Half of all steps of a run alone take no longer.
    step_p50: Duration,
    resume_p50: Duration,
    resume_p99: Duration,
}

pub(super) async fn run(target: &Target, steady: Steady, length: Duration, short: Duration) -> Result<Runs, Failure> {
    let place = target.place()?;
    let before = bare_redis(&place, short).await?;
    let towpath = open(&place.url).await?;
    let options = WorkflowOptions { max_concurrent_runs: IN_FLIGHT, ..WorkflowOptions::default() };
    let worker = towpath.worker().workflow(&ORDER, order).workflow(&APPROVAL, approval).workflow_options(options);
    let worker = worker.start().await.map_err(|error| failed(&error.to_string()))?;
    let measured = measure(&place, &towpath, steady, length, short).await;
    worker.drain().await;
    towpath.close().await;
    let (loaded, alone, resumed, moves_per_commit) = measured?;
    let floor = match (before, &place.folder) {
        (Some(before), _) => f64::midpoint(before, bare_redis(&place, short).await?.unwrap_or(before)),
        (None, Some(folder)) => bare_sqlite(folder.path().join("floor-runs"), &loaded, short, moves_per_commit).await?,
        (None, None) => return Err(failed("a place is a folder or a server")),
    };
    remove_streams(&place).await?;
    place.clear().await?;
    let at = |all: &Histogram<u64>, quantile| Duration::from_micros(all.value_at_quantile(quantile));
    Ok(Runs {
        runs_per_second: loaded.per_second,
        p50: at(&loaded.took, 0.5),
        p99: at(&loaded.took, 0.99),
        floor_tasks_per_second: floor,
        step_p50: at(&alone.took, 0.5) / TASKS,
        resume_p50: at(&resumed, 0.5),
        resume_p99: at(&resumed, 0.99),
    })
}

/// The streams of workflows have the names that users give them, and no prefix.
async fn remove_streams(place: &Place) -> Result<(), Failure> {
    if !place.is_shared() {
        return Ok(());
    }
    let floor = RedisRunFloor::open(&place.url).await.map_err(|error| failed(&error.to_string()))?;
    let stream = |name: &str, version: &str| format!("workflow/{name}/{version}");
    let streams = [stream(ORDER.name(), ORDER.version()), stream(APPROVAL.name(), APPROVAL.version())];
    floor.remove(&streams).await.map_err(|error| failed(&error.to_string()))
}

/// Runs that were started and waited for.
struct Loaded {
    per_second: f64,
    took: Histogram<u64>,
}

async fn measure(
    place: &Place,
    towpath: &Towpath,
    steady: Steady,
    length: Duration,
    short: Duration,
) -> Result<(Loaded, Loaded, Histogram<u64>, f64), Failure> {
    over_and_over(towpath, steady, IN_FLIGHT, steady.warm_up).await?;
    let before = moves(place, towpath).await?;
    let loaded = over_and_over(towpath, steady, IN_FLIGHT, length).await?;
    let after = moves(place, towpath).await?;
    let alone = over_and_over(towpath, steady, 1, short).await?;
    let resumed = resume(towpath, steady).await?;
    Ok((loaded, alone, resumed, (after.0 - before.0) / (after.1 - before.1).max(1.0)))
}

/// How many moves and commits the store has counted.
async fn moves(_place: &Place, towpath: &Towpath) -> Result<(f64, f64), Failure> {
    let status = towpath.store().probe().await.map_err(|error| failed(&error.to_string()))?;
    Ok((status.moves as f64, status.commits as f64))
}

/// Keeps this many runs under way for this long.
async fn over_and_over(towpath: &Towpath, steady: Steady, in_flight: u32, length: Duration) -> Result<Loaded, Failure> {
    let (begin, done) = (time::now(), Arc::new(AtomicU64::new(0)));
    let end = begin + length;
    let callers: Vec<_> = (0..in_flight).map(|_| tokio::spawn(run_until(towpath.clone(), steady, end, Arc::clone(&done)))).collect();
    let mut took = histogram()?;
    for caller in callers {
        for micros in caller.await.map_err(|error| failed(&error.to_string()))?.map_err(|cause| failed(&cause))? {
            took.record(micros).map_err(|error| failed(&error.to_string()))?;
        }
    }
    Ok(Loaded { per_second: done.load(Ordering::Relaxed) as f64 / length.as_secs_f64(), took })
}

async fn run_until(towpath: Towpath, steady: Steady, end: Instant, done: Arc<AtomicU64>) -> Result<Vec<u64>, String> {
    let mut took = Vec::new();
    loop {
        let begin = time::now();
        let started = towpath.start(&ORDER, &Order::sample()).retain(steady.retain).await;
        let result = started.map_err(|error| error.to_string())?.result().await.map_err(|error| error.to_string())?;
        let now = time::now();
        if !result {
            return Err("a run has ended with another result than its code returns".to_owned());
        }
        if now >= end {
            return Ok(took);
        }
        done.fetch_add(1, Ordering::Relaxed);
        took.push(micros(now - begin));
    }
}

/// The time from an event to the end of a parked run.
async fn resume(towpath: &Towpath, steady: Steady) -> Result<Histogram<u64>, Failure> {
    let told = |error: &dyn std::error::Error| failed(&error.to_string());
    let mut parked = Vec::new();
    for _ in 0..PARKED {
        parked.push(towpath.start(&APPROVAL, &Order::sample()).retain(steady.retain).await.map_err(|error| told(&error))?);
    }
    let mut took = histogram()?;
    for run in parked {
        let end = time::now() + PARKING_MAX;
        while run.describe().await.map_err(|error| told(&error))?.run.state != RunState::Waiting {
            if time::now() > end {
                return Err(failed("a run that waits for an event was not parked within a minute"));
            }
            tokio::task::yield_now().await;
        }
        let begin = time::now();
        run.send(&APPROVED, &true).await.map_err(|error| told(&error))?;
        run.result().await.map_err(|error| told(&error))?;
        took.record(micros(time::now() - begin)).map_err(|error| told(&error))?;
    }
    Ok(took)
}

fn histogram() -> Result<Histogram<u64>, Failure> {
    Histogram::new(3).map_err(|error| failed(&error.to_string()))
}

/// Tasks per second that a bare script commits, asked by as many callers as there are runs under way. `None`: the store is a file.
async fn bare_redis(place: &Place, length: Duration) -> Result<Option<f64>, Failure> {
    if !place.is_shared() {
        return Ok(None);
    }
    let floor = RedisRunFloor::open(&place.url).await.map_err(|error| failed(&error.to_string()))?;
    let (end, done) = (time::now() + length, Arc::new(AtomicU64::new(0)));
    let header = "0".repeat(512);
    let callers: Vec<_> = (0..IN_FLIGHT)
        .map(|number| {
            let (floor, done, header, run) = (floor.clone(), Arc::clone(&done), header.clone(), format!("{}bare-{number}", place.tag));
            tokio::spawn(async move {
                while time::now() < end {
                    for _ in 0..TASKS {
                        floor.commit(&run, PARAMS, &header).await?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    floor.forget(&run).await?;
                }
                Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
            })
        })
        .collect();
    for caller in callers {
        caller.await.map_err(|error| failed(&error.to_string()))?.map_err(|error| failed(&error.to_string()))?;
    }
    Ok(Some(done.load(Ordering::Relaxed) as f64 / length.as_secs_f64()))
}

/// Tasks per second that a bare SQLite loop commits, with as many moves in a commit as the store had.
async fn bare_sqlite(folder: std::path::PathBuf, loaded: &Loaded, length: Duration, moves_per_commit: f64) -> Result<f64, Failure> {
    let runs = ((loaded.per_second * length.as_secs_f64()) as u64).max(1);
    let bare = blocking(move || {
        std::fs::create_dir_all(&folder)?;
        let mut floor = Floor::open(&folder, PARAMS)?;
        let begin = time::now();
        floor.run_tasks(runs, TASKS, moves_per_commit)?;
        let per_second = (runs * u64::from(TASKS)) as f64 / (time::now() - begin).as_secs_f64();
        drop(floor);
        std::fs::remove_dir_all(&folder)?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(per_second)
    });
    bare.await.map_err(|cause| failed(&format!("the bare loop failed: {cause}")))
}

impl Runs {
    fn tasks_per_second(&self) -> f64 {
        self.runs_per_second * f64::from(TASKS)
    }

    fn ratio(&self) -> f64 {
        self.tasks_per_second() / self.floor_tasks_per_second
    }

    pub(super) fn print(&self, out: Output) {
        let ms = |length: Duration| length.as_secs_f64() * 1e3;
        out.line("");
        out.line(&format!(
            "runs of {TASKS} tasks, {IN_FLIGHT} in flight: {:.0} runs/s, {:.0} tasks/s (p50 {:.2} ms, p99 {:.2} ms a run); bare {:.0} tasks/s, ratio {:.2}",
            self.runs_per_second,
            self.tasks_per_second(),
            ms(self.p50),
            ms(self.p99),
            self.floor_tasks_per_second,
            self.ratio()
        ));
        out.line(&format!(
            "a step of a run alone: p50 {:.2} ms; from an event to the end of a parked run: p50 {:.2} ms, p99 {:.2} ms",
            ms(self.step_p50),
            ms(self.resume_p50),
            ms(self.resume_p99)
        ));
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "in_flight": IN_FLIGHT,
            "tasks": TASKS,
            "runs_per_second": self.runs_per_second.round(),
            "tasks_per_second": self.tasks_per_second().round(),
            "p50_us": micros(self.p50),
            "p99_us": micros(self.p99),
            "floor_tasks_per_second": self.floor_tasks_per_second.round(),
            "ratio_to_floor": (self.ratio() * 100.0).round() / 100.0,
            "step_p50_us": micros(self.step_p50),
            "resume_p50_us": micros(self.resume_p50),
            "resume_p99_us": micros(self.resume_p99),
        })
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        vec![Finding::new("workflow tasks/s against the floor, 256 runs in flight", self.ratio(), "x", Aim::AtLeast(0.3))]
    }
}
