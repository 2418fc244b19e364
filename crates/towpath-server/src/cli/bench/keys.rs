//! Growth by keys of a limit: what a check costs when a hundred thousand users have been counted under one scope.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinSet;
use towpath::Towpath;
use towpath::limits::Rule;

use super::fill::all;
use super::findings::{Aim, Finding};
use super::open;
use super::place::Target;
use crate::cli::failure::Failure;
use crate::cli::time;

/// Tasks that each ask one check after the other.
const TASKS: usize = 64;
const WINDOW: u64 = 1_000;
/// Windows at either end; the fastest of them counts, because a short one is easily disturbed.
const WINDOWS: u64 = 5;

/// Checks per second at both ends.
pub(super) struct KeysRow {
    keys: u64,
    first_per_second: f64,
    last_per_second: f64,
}

/// Takes one unit for each of so many keys of one scope.
pub(super) async fn run(target: &Target, keys: u64) -> Result<KeysRow, Failure> {
    let place = target.place()?;
    let towpath = open(&place.url).await?;
    // Connections and caches are warm before anything counts.
    checks(&towpath, &place.function(1), 0, WINDOW * 2).await?;
    let scope = place.function(0);
    let first_per_second = fastest(&towpath, &scope, 0).await?;
    let last = keys.saturating_sub(WINDOW * WINDOWS).max(WINDOW * WINDOWS);
    checks(&towpath, &scope, WINDOW * WINDOWS, last).await?;
    let last_per_second = fastest(&towpath, &scope, last).await?;
    towpath.close().await;
    place.clear().await?;
    Ok(KeysRow { keys, first_per_second, last_per_second })
}

async fn fastest(towpath: &Towpath, scope: &str, from: u64) -> Result<f64, Failure> {
    let mut fastest = 0.0_f64;
    for window in 0..WINDOWS {
        let begin = time::now();
        checks(towpath, scope, from + window * WINDOW, from + (window + 1) * WINDOW).await?;
        fastest = fastest.max(WINDOW as f64 / (time::now() - begin).as_secs_f64());
    }
    Ok(fastest)
}

/// One check for each of these keys.
async fn checks(towpath: &Towpath, scope: &str, from: u64, to: u64) -> Result<(), Failure> {
    let next = Arc::new(AtomicU64::new(from));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (towpath, scope, next) = (towpath.clone(), scope.to_owned(), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let key = next.fetch_add(1, Ordering::Relaxed);
                if key >= to {
                    return Ok(());
                }
                check(&towpath, &scope, key).await?;
            }
        });
    }
    all(tasks).await
}

async fn check(towpath: &Towpath, scope: &str, key: u64) -> Result<(), String> {
    let text = format!("per_user=gcra:5/1h,burst=5,key=u{key}");
    let rule: Rule = text.parse().map_err(|refused| format!("{refused}"))?;
    let verdict = towpath.limit(scope).rule(rule).take().await.map_err(|error| error.to_string())?;
    if verdict.allowed { Ok(()) } else { Err(format!("the first check of key u{key} was denied")) }
}

impl KeysRow {
    pub(super) fn findings(&self) -> Vec<Finding> {
        let what = format!("limit checks/s: the last thousand of {} keys of one scope against the first", self.keys);
        vec![Finding::new(what, self.last_per_second / self.first_per_second, "x", Aim::AtLeast(0.8))]
    }

    pub(super) fn sentence(&self) -> String {
        let Self { keys, first_per_second, last_per_second } = self;
        format!("limit checks/s with a key per user: {first_per_second:.0} at first, {last_per_second:.0} at {keys} keys of one scope")
    }
}

/// Keys that are asked for.
pub(super) fn keys(quick: bool) -> u64 {
    if quick { 20_000 } else { 100_000 }
}
