//! Locks: uncontended pairs of acquire and release, and the way of one lock through the hands of ten who wait for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use towpath::locks::{Acquired, LockGuard, LockWait};
use towpath::{RedisLockFloor, Towpath};

use super::findings::{Aim, Finding};
use super::place::{Place, Target};
use super::tasks::{TASKS, over_and_over, with_store_cpu};
use super::{WARM_UP, failed, micros, open};
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::time;

/// Who contends for one lock.
const WAITERS: u32 = 10;
/// No waiter needs longer for one of ten turns.
const PATIENCE: Duration = Duration::from_secs(60);

/// What locks showed.
pub(super) struct Locks {
    pairs_per_second: f64,
    /// What the server's process needed for a pair, in microseconds.
    store_cpu_us: Option<f64>,
    /// Pairs/s of the bare lock, where there is one.
    floor_pairs_per_second: Option<f64>,
    hand_offs: u64,
    hand_off_p50: Duration,
    hand_off_p99: Duration,
}

pub(super) async fn run(target: &Target, length: Duration) -> Result<Locks, Failure> {
    let place = target.place()?;
    let half = (length / 2).max(Duration::from_secs(1));
    let before = floor(&place, half).await?;
    let towpath = open(&place.url).await?;
    let (pairs_per_second, store_cpu_us) = pairs(&place, &towpath, length).await?;
    let after = floor(&place, half).await?;
    let hand_offs = hand_offs(&place, &towpath, length).await?;
    towpath.close().await;
    place.clear().await?;
    let at = |quantile| Duration::from_micros(hand_offs.value_at_quantile(quantile));
    Ok(Locks {
        pairs_per_second,
        store_cpu_us,
        floor_pairs_per_second: before.zip(after).map(|(before, after)| f64::midpoint(before, after)),
        hand_offs: hand_offs.len(),
        hand_off_p50: at(0.5),
        hand_off_p99: at(0.99),
    })
}

async fn pairs(place: &Place, towpath: &Towpath, length: Duration) -> Result<(f64, Option<f64>), Failure> {
    let work = |number| pair_over_and_over(towpath.clone(), format!("{}{number}", place.tag));
    over_and_over(WARM_UP, work).await?;
    with_store_cpu(place, length, work).await
}

/// Pairs/s of the bare lock, driven by as many tasks.
async fn floor(place: &Place, length: Duration) -> Result<Option<f64>, Failure> {
    if !place.is_shared() {
        return Ok(None);
    }
    let floor = RedisLockFloor::open(&place.url).await.map_err(|error| failed(&error.to_string()))?;
    let work = |number| bare_over_and_over(floor.clone(), format!("{}bare-{number}", place.tag));
    over_and_over(WARM_UP, work).await?;
    over_and_over(length, work).await.map(Some)
}

fn pair_over_and_over(
    towpath: Towpath,
    scope: String,
) -> impl FnMut() -> std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + Send>> {
    move || {
        let (towpath, scope) = (towpath.clone(), scope.clone());
        Box::pin(async move {
            let guard = acquire(&towpath, &scope, LockWait::No).await?;
            guard.release().await.map(drop).map_err(|error| error.to_string())
        })
    }
}

fn bare_over_and_over(
    floor: RedisLockFloor,
    key: String,
) -> impl FnMut() -> std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + Send>> {
    move || {
        let (mut floor, key) = (floor.clone(), key.clone());
        Box::pin(async move {
            match floor.pair(&key, "towpath-bench").await {
                Ok(true) => Ok(()),
                Ok(false) => Err(format!("another client has the bare lock '{key}'")),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

async fn acquire(towpath: &Towpath, scope: &str, wait: LockWait) -> Result<LockGuard, String> {
    match towpath.lock(scope).wait(wait).acquire().await {
        Ok(Acquired::Granted(guard)) => Ok(guard),
        Ok(other) => Err(format!("the lock '{scope}' was not granted: {other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// From the moment in which one begins to release to that in which the next has the lock, in microseconds.
async fn hand_offs(place: &Place, towpath: &Towpath, length: Duration) -> Result<Histogram<u64>, Failure> {
    let scope = format!("{}contended", place.tag);
    let end = time::now() + length;
    let released_at: Arc<Mutex<Option<Instant>>> = Arc::default();
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        let (towpath, scope, released_at) = (towpath.clone(), scope.clone(), Arc::clone(&released_at));
        waiters.push(tokio::spawn(async move {
            let mut took = Vec::new();
            while time::now() < end {
                let guard = acquire(&towpath, &scope, LockWait::UpTo(PATIENCE)).await?;
                let now = time::now();
                let before = released_at.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
                took.extend(before.map(|before| micros(now - before)));
                *released_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(time::now());
                guard.release().await.map_err(|error| error.to_string())?;
            }
            Ok::<Vec<u64>, String>(took)
        }));
    }
    let mut all = Histogram::new(3).map_err(|error| failed(&error.to_string()))?;
    for waiter in waiters {
        for took in waiter.await.map_err(|error| failed(&error.to_string()))?.map_err(|cause| failed(&cause))? {
            all.record(took).map_err(|error| failed(&error.to_string()))?;
        }
    }
    Ok(all)
}

impl Locks {
    fn ratio(&self) -> Option<f64> {
        self.floor_pairs_per_second.map(|floor| self.pairs_per_second / floor)
    }

    pub(super) fn print(&self, out: Output) {
        out.line("");
        let bare = self.floor_pairs_per_second.zip(self.ratio());
        let bare = bare.map(|(bare, ratio)| format!("; bare SET NX PX and compare-and-delete {bare:.0}, ratio {ratio:.2}"));
        let cpu = self.store_cpu_us.map(|us| format!(" ({us:.1} us of redis cpu each)"));
        out.line(&format!(
            "locks, {TASKS} tasks: {:.0} pairs/s{}{}",
            self.pairs_per_second,
            cpu.unwrap_or_default(),
            bare.unwrap_or_default()
        ));
        let (p50, p99) = (self.hand_off_p50.as_secs_f64() * 1e3, self.hand_off_p99.as_secs_f64() * 1e3);
        out.line(&format!("a lock from one of {WAITERS} who wait to the next: p50 {p50:.2} ms, p99 {p99:.2} ms"));
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "tasks": TASKS,
            "pairs_per_second": self.pairs_per_second.round(),
            "store_cpu_us": self.store_cpu_us.map(|us| (us * 10.0).round() / 10.0),
            "floor_pairs_per_second": self.floor_pairs_per_second.map(f64::round),
            "ratio_to_floor": self.ratio().map(|ratio| (ratio * 100.0).round() / 100.0),
            "waiters": WAITERS,
            "hand_offs": self.hand_offs,
            "hand_off_p50_us": micros(self.hand_off_p50),
            "hand_off_p99_us": micros(self.hand_off_p99),
        })
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let pairs = self.ratio().map(|ratio| Finding::new("lock pairs/s against the floor", ratio, "x", Aim::AtLeast(0.2)));
        let ms = |length: Duration| length.as_secs_f64() * 1e3;
        let hand_offs = [
            Finding::new("hand-off of a lock, p50", ms(self.hand_off_p50), "ms", Aim::AtMost(5.0)),
            Finding::new("hand-off of a lock, p99", ms(self.hand_off_p99), "ms", Aim::AtMost(20.0)),
        ];
        pairs.into_iter().chain(hand_offs).collect()
    }
}
