//! Lists of calls when there are very many of them, and a push beside people who list.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use towpath::batches::{BatchHandle, Batcher};
use towpath::core::inspect::{CallFilter, PageRequest};
use towpath::{CallState, FunctionName, Scope, Towpath, WorkerId};

use super::fill::{all, fill};
use super::findings::{Aim, Finding};
use super::place::{Place, Target};
use super::steady::Steady;
use super::{failed, open};
use crate::cli::failure::Failure;
use crate::cli::time;

/// Calls of a second function, which are few among many.
const FEW: u64 = 1_000;
const PAGE: u32 = 50;
/// Each list is read so often; the median counts, because other work on the machine is not the list's.
const READ: usize = 5;
const LISTERS: usize = 20;
const PUSHES: usize = 50;

/// How long lists and pushes took.
pub(super) struct ListsRow {
    calls: u64,
    lists: Vec<(&'static str, Duration)>,
    push_median: Duration,
    push_longest: Duration,
}

pub(super) async fn run(target: &Target, calls: u64) -> Result<ListsRow, Failure> {
    let place = target.place()?;
    let towpath = open(&place.url).await?;
    for (number, count) in [(0, calls / 2), (1, FEW), (0, calls - calls / 2)] {
        let mut call = Steady::FULL.call(&place, number)?;
        (call.detached, call.timeout) = (true, Some(Duration::from_secs(7 * 86_400)));
        fill(&towpath, &call, count, None).await?;
    }
    let mut lists = Vec::new();
    for (what, filter) in filters(&place)? {
        lists.push((what, median(&towpath, &filter).await?));
    }
    let mut took = pushes(&towpath, &place).await?;
    took.sort();
    towpath.close().await;
    place.clear().await?;
    let (push_median, push_longest) = (took[took.len() / 2], took[took.len() - 1]);
    Ok(ListsRow { calls, lists, push_median, push_longest })
}

/// Every filter there is, those that match much and those that match nothing.
fn filters(place: &Place) -> Result<Vec<(&'static str, CallFilter)>, Failure> {
    let name = |number| FunctionName::new(place.function(number)).map_err(|error| failed(&error.to_string()));
    let worker = WorkerId::new("nobody").map_err(|error| failed(&error.to_string()))?;
    let brief = CallFilter { brief: true, ..CallFilter::default() };
    Ok(vec![
        ("all calls", brief.clone()),
        ("queued", CallFilter { states: vec![CallState::Queued], ..brief.clone() }),
        ("completed: none", CallFilter { states: vec![CallState::Completed], ..brief.clone() }),
        ("dead: none", CallFilter { states: vec![CallState::Dead], ..brief.clone() }),
        ("running or delayed: none", CallFilter { states: vec![CallState::Running, CallState::Delayed], ..brief.clone() }),
        ("a function with many", CallFilter { function: Some(name(0)?), ..brief.clone() }),
        ("a function with few", CallFilter { function: Some(name(1)?), ..brief.clone() }),
        ("a function with few, failed", CallFilter { function: Some(name(1)?), states: vec![CallState::Failed], ..brief.clone() }),
        ("a scope", CallFilter { scope: Some(Scope::global()), ..brief.clone() }),
        ("a worker", CallFilter { worker: Some(worker), ..brief }),
    ])
}

async fn list(towpath: &Towpath, filter: &CallFilter) -> Result<Duration, String> {
    let begin = time::now();
    towpath.store().calls(filter, PageRequest::first(PAGE)).await.map_err(|error| error.to_string())?;
    Ok(time::now() - begin)
}

async fn median(towpath: &Towpath, filter: &CallFilter) -> Result<Duration, Failure> {
    let mut took = Vec::new();
    for _ in 0..READ {
        took.push(list(towpath, filter).await.map_err(|cause| failed(&cause))?);
    }
    took.sort();
    Ok(took[READ / 2])
}

/// Pushes one message after the other while people list all the time.
async fn pushes(towpath: &Towpath, place: &Place) -> Result<Vec<Duration>, Failure> {
    let refused = |cause: towpath::batches::BatchError| failed(&cause.to_string());
    let batcher = Batcher::builder(place.function(9)).build().map_err(refused)?;
    towpath.batchers().put(&batcher).await.map_err(refused)?;
    let (handle, over) = (towpath.batch(batcher.name()), Arc::new(AtomicBool::new(false)));
    let filters: Vec<CallFilter> = filters(place)?.into_iter().map(|(_, filter)| filter).collect();
    let mut listers = JoinSet::new();
    for number in 0..LISTERS {
        let (towpath, filter, over) = (towpath.clone(), filters[number % filters.len()].clone(), Arc::clone(&over));
        listers.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                list(&towpath, &filter).await?;
            }
            Ok(())
        });
    }
    let pushed = push_all(&handle).await;
    over.store(true, Ordering::Relaxed);
    all(listers).await?;
    pushed.map_err(|cause| failed(&cause))
}

async fn push_all(handle: &BatchHandle) -> Result<Vec<Duration>, String> {
    let mut took = Vec::new();
    for number in 0..PUSHES {
        let message = json!({ "tenant_id": "t", "channel": "telegram", "external_chat_id": number.to_string(), "text": "hello" });
        let begin = time::now();
        handle.push(&message).send().await.map_err(|error| error.to_string())?;
        took.push(time::now() - begin);
    }
    Ok(took)
}

fn ms(length: Duration) -> f64 {
    length.as_secs_f64() * 1e3
}

impl ListsRow {
    pub(super) fn findings(&self) -> Vec<Finding> {
        let list = |(what, took): &(&str, Duration)| {
            Finding::new(format!("a list of {} calls: {what}", self.calls), ms(*took), "ms", Aim::AtMost(50.0))
        };
        let mut found: Vec<Finding> = self.lists.iter().map(list).collect();
        let push = format!("a push beside {LISTERS} lists of {} calls, median", self.calls);
        found.push(Finding::new(push, ms(self.push_median), "ms", Aim::AtMost(20.0)));
        found
    }

    pub(super) fn sentence(&self) -> String {
        let (median, longest) = (ms(self.push_median), ms(self.push_longest));
        format!("a push beside {LISTERS} lists of {} calls: median {median:.1} ms, longest {longest:.1} ms", self.calls)
    }
}

/// Calls that are asked for.
pub(super) fn calls(quick: bool, full: bool) -> u64 {
    match (quick, full) {
        (true, _) => 10_000,
        (_, true) => 1_800_000,
        _ => 100_000,
    }
}
