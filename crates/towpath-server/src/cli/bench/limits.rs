//! Checks of limits per second, against `INCR` and `EXPIRE` in a pipeline, asked by as many tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use comfy_table::{Cell, CellAlignment};
use serde_json::{Value, json};
use towpath::limits::{Rule, Rules};
use towpath::{LimitFloor, Towpath};

use super::findings::{Aim, Finding};
use super::place::{Place, Target};
use super::{WARM_UP, failed, open};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, table};
use crate::cli::time;

/// Tasks that each ask one check after the other.
const TASKS: usize = 64;

/// Checks of so many rules each.
pub(super) struct LimitRow {
    rules: usize,
    checks_per_second: f64,
    /// The embedded store has no bare command to compare with.
    floor_per_second: Option<f64>,
}

/// Measures checks of one rule and of three.
pub(super) async fn run(target: &Target, length: Duration) -> Result<Vec<LimitRow>, Failure> {
    let mut rows = Vec::new();
    for rules in [1, 3] {
        let place = target.place()?;
        let half = (length / 2).max(Duration::from_secs(1));
        let before = bare(target, &place, rules, half).await?;
        let checks_per_second = checks(&place, rules, length).await?;
        let after = bare(target, &place, rules, half).await?;
        rows.push(LimitRow { rules, checks_per_second, floor_per_second: before.zip(after).map(|(a, b)| f64::midpoint(a, b)) });
        place.clear().await?;
    }
    Ok(rows)
}

async fn checks(place: &Place, count: usize, length: Duration) -> Result<f64, Failure> {
    let towpath = open(&place.url).await?;
    // So wide that nothing is ever denied: a denial would be answered from memory.
    let rule = |number: usize| Rule::gcra(format!("r{number}"), 1_000_000_000, Duration::from_secs(1))?.burst(1_000_000_000);
    let rules: Result<Vec<Rule>, _> = (0..count).map(rule).collect();
    let rules = rules.and_then(Rules::new).map_err(|refused| failed(&refused.to_string()))?;
    let measured = by_tasks(length, |task| {
        let (towpath, scope, rules) = (towpath.clone(), place.function(task), rules.clone());
        move || {
            let (towpath, scope, rules) = (towpath.clone(), scope.clone(), rules.clone());
            async move { check(&towpath, &scope, &rules).await }
        }
    })
    .await;
    towpath.close().await;
    measured
}

async fn check(towpath: &Towpath, scope: &str, rules: &Rules) -> Result<(), String> {
    let verdict = towpath.limit(scope).rules(rules).take().await.map_err(|error| error.to_string())?;
    if verdict.allowed { Ok(()) } else { Err("a limit of a thousand million denied something".to_owned()) }
}

async fn bare(target: &Target, place: &Place, count: usize, length: Duration) -> Result<Option<f64>, Failure> {
    if !target.is_redis() {
        return Ok(None);
    }
    let floor = LimitFloor::open(&place.url).await.map_err(|error| failed(&error.to_string()))?;
    let measured = by_tasks(length, |task| {
        let keys: Arc<[String]> = (0..count).map(|rule| format!("{}:{rule}", place.function(task))).collect();
        let floor = floor.clone();
        move || {
            let (floor, keys) = (floor.clone(), Arc::clone(&keys));
            async move { floor.check(&keys).await.map(drop).map_err(|error| error.to_string()) }
        }
    });
    measured.await.map(Some)
}

/// Lets all tasks ask for so long, after a while that does not count; returns how many a second were answered.
async fn by_tasks<A, F>(length: Duration, asker: impl Fn(u32) -> A) -> Result<f64, Failure>
where
    A: Fn() -> F + Send + 'static,
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let (begin, answered) = (time::now() + WARM_UP, Arc::new(AtomicU64::new(0)));
    let end = begin + length;
    let tasks: Vec<_> = (0..TASKS as u32).map(|task| tokio::spawn(ask_until(asker(task), begin, end, Arc::clone(&answered)))).collect();
    for task in tasks {
        task.await.map_err(|error| failed(&error.to_string()))?.map_err(|cause| failed(&cause))?;
    }
    Ok(answered.load(Ordering::Relaxed) as f64 / length.as_secs_f64())
}

async fn ask_until<F>(ask: impl Fn() -> F, begin: Instant, end: Instant, answered: Arc<AtomicU64>) -> Result<(), String>
where
    F: Future<Output = Result<(), String>>,
{
    loop {
        ask().await?;
        let now = time::now();
        if now >= end {
            return Ok(());
        }
        answered.fetch_add(u64::from(now >= begin), Ordering::Relaxed);
    }
}

impl LimitRow {
    fn ratio(&self) -> Option<f64> {
        self.floor_per_second.map(|floor| self.checks_per_second / floor)
    }

    pub(super) fn finding(&self) -> Option<Finding> {
        let what = format!("limit checks/s of {} rule(s) against INCR + EXPIRE", self.rules);
        self.ratio().map(|ratio| Finding::new(what, ratio, "x", Aim::AtLeast(0.3)))
    }

    pub(super) fn json(&self) -> Value {
        let hundredths = |value: f64| (value * 100.0).round() / 100.0;
        json!({
            "rules": self.rules,
            "checks_per_second": self.checks_per_second.round(),
            "floor_checks_per_second": self.floor_per_second.map(f64::round),
            "ratio_to_floor": self.ratio().map(hundredths),
        })
    }
}

pub(super) fn print(out: Output, rows: &[LimitRow]) {
    if rows.is_empty() {
        return;
    }
    let mut lines = table(["rules", "limit checks/s", "bare checks/s", "ratio"]);
    for row in rows {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let cells = [
            row.rules.to_string(),
            format!("{:.0}", row.checks_per_second),
            or_dash(row.floor_per_second.map(|floor| format!("{floor:.0}"))),
            or_dash(row.ratio().map(|ratio| format!("{ratio:.2}"))),
        ];
        lines.add_row(cells.map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
    }
    out.line("");
    out.table(&lines);
}
