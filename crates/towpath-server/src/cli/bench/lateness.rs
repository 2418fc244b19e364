//! Lateness under load: how late a retry starts and how late a deadline is kept, while another function takes all the load it can.
//!
//! Both are measured beside the load, a few times per second. On a Redis they have connections and a worker of their own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use towpath::core::worker::FunctionDefinition;
use towpath::{Backoff, CallContext, CallId, FunctionOptions, HandlerError, NewCall, Payload, RawHandler, RetryPolicy, Timestamp, Towpath};

use super::findings::{Aim, Finding};
use super::meter::{Watcher, histogram, note};
use super::place::Place;
use super::steady::Steady;
use super::{ANSWER, failed, micros, open};
use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::time;

/// How often a call of each kind is submitted.
const EVERY: Duration = Duration::from_millis(200);
/// How often an overdue call is looked at. The lateness of a deadline is up to this much too long.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A call that is retried must not expire before its last attempt, however late that is.
const RETRIED_WITHIN: Duration = Duration::from_secs(600);
const ATTEMPTS: u32 = 3;
const AIM_MS: f64 = 250.0;

/// What was found, in microseconds.
pub(super) struct Lateness {
    retries: Histogram<u64>,
    deadlines: Histogram<u64>,
}

impl Lateness {
    /// Measures until the load ends. Whatever is overdue then counts as late as it is at that moment.
    pub(super) async fn measure(place: &Place, steady: Steady, mut watcher: Watcher) -> Result<Self, Failure> {
        if !watcher.measuring().await {
            return Ok(Self { retries: histogram()?, deadlines: histogram()? });
        }
        if place.is_shared() {
            let towpath = open(&place.url).await?;
            let found = beside(&towpath, place, steady, watcher).await;
            towpath.close().await;
            return found;
        }
        let towpath = watcher.towpath().cloned().ok_or_else(|| failed("the store of the load is not open"))?;
        beside(&towpath, place, steady, watcher).await
    }

    /// Several rounds as one. `None`: nothing was measured.
    pub(super) fn merged(rounds: Vec<Self>) -> Option<Self> {
        let mut rounds = rounds.into_iter();
        let mut all = rounds.next()?;
        for round in rounds {
            all.retries.add(round.retries).ok()?;
            all.deadlines.add(round.deadlines).ok()?;
        }
        Some(all)
    }

    fn kinds(&self) -> [(&'static str, &Histogram<u64>); 2] {
        [("retry", &self.retries), ("deadline", &self.deadlines)]
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let measured = self.kinds().into_iter().filter(|(_, late)| !late.is_empty());
        let finding = |(what, late): (&str, &Histogram<u64>)| {
            Finding::new(format!("lateness of a {what} at full load, p99"), ms(late, 0.99), "ms", Aim::AtMost(AIM_MS))
        };
        measured.map(finding).collect()
    }

    pub(super) fn print(&self, out: Output) {
        for (what, late) in self.kinds() {
            if late.is_empty() {
                out.line(&format!("lateness of a {what} at full load: none came due while it was measured"));
                continue;
            }
            let (p50, p99, worst) = (ms(late, 0.5), ms(late, 0.99), ms(late, 1.0));
            out.line(&format!(
                "lateness of a {what} at full load: p50 {p50:.0} ms, p99 {p99:.0} ms, worst {worst:.0} ms of {}",
                late.len()
            ));
        }
    }

    pub(super) fn json(&self) -> Value {
        let one = |late: &Histogram<u64>| {
            let at = |quantile| late.value_at_quantile(quantile);
            json!({ "count": late.len(), "p50_us": at(0.5), "p99_us": at(0.99), "max_us": late.max() })
        };
        json!({ "retry": one(&self.retries), "deadline": one(&self.deadlines) })
    }
}

fn ms(late: &Histogram<u64>, quantile: f64) -> f64 {
    late.value_at_quantile(quantile) as f64 / 1e3
}

async fn beside(towpath: &Towpath, place: &Place, steady: Steady, watcher: Watcher) -> Result<Lateness, Failure> {
    let (retries, deadlines) = tokio::join!(retries(towpath, place, steady, watcher.clone()), deadlines(towpath, place, steady, watcher));
    Ok(Lateness { retries: retries?, deadlines: deadlines? })
}

/// Submits calls of a function that fails twice, and returns how late each retry started.
async fn retries(towpath: &Towpath, place: &Place, steady: Steady, mut watcher: Watcher) -> Result<Histogram<u64>, Failure> {
    let mut call = steady.call_of(format!("{}retried", place.tag))?;
    (call.detached, call.timeout) = (true, Some(RETRIED_WITHIN));
    let delay_ms = u64::try_from(steady.backoff.as_millis()).unwrap_or(u64::MAX);
    let retry = RetryPolicy { max_attempts: ATTEMPTS, backoff: Backoff::Fixed { delay_ms }, ..RetryPolicy::default() };
    let handler = Arc::new(FailsTwice { backoff: steady.backoff, state: Mutex::new(Retries { due: HashMap::new(), late: histogram()? }) });
    let serving = Arc::<FailsTwice>::clone(&handler);
    let worker = towpath.worker().raw_function(FunctionOptions::for_key(&call.function).retry(retry), serving).start().await;
    let worker = worker.map_err(|error| failed(&error.to_string()))?;
    let mut next = time::now();
    while !watcher.is_over() {
        towpath.submit(call.clone()).await.map_err(|error| failed(&error.to_string()))?;
        next += EVERY;
        wait(next, &mut watcher).await;
    }
    let late = handler.end(time::now());
    worker.drain().await;
    Ok(late)
}

struct FailsTwice {
    backoff: Duration,
    state: Mutex<Retries>,
}

struct Retries {
    /// When the next attempt of each call is due.
    due: HashMap<CallId, Instant>,
    late: Histogram<u64>,
}

impl FailsTwice {
    fn state(&self) -> MutexGuard<'_, Retries> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, now: Instant) -> Histogram<u64> {
        let mut state = self.state();
        let overdue: Vec<Instant> = state.due.drain().map(|(_, due)| due).filter(|due| *due < now).collect();
        for due in overdue {
            note(&mut state.late, micros(now - due));
        }
        state.late.clone()
    }
}

#[async_trait]
impl RawHandler for FailsTwice {
    async fn run(&self, ctx: CallContext) -> Result<Payload, HandlerError> {
        let now = time::now();
        let mut state = self.state();
        if let Some(due) = state.due.remove(ctx.call_id()) {
            note(&mut state.late, micros(now.saturating_duration_since(due)));
        }
        if ctx.attempt() < ATTEMPTS {
            state.due.insert(ctx.call_id().clone(), now + self.backoff);
            return Err(HandlerError::retryable("not_yet", "the first two attempts fail"));
        }
        Ok(Payload::from_json(ANSWER))
    }
}

/// Submits calls of a function without a worker, and returns how late each one was seen to have expired.
async fn deadlines(towpath: &Towpath, place: &Place, steady: Steady, mut watcher: Watcher) -> Result<Histogram<u64>, Failure> {
    let mut call: NewCall = steady.call_of(format!("{}expired", place.tag))?;
    (call.detached, call.timeout) = (true, Some(steady.expire_after));
    let define = FunctionDefinition::new(call.function.clone());
    towpath.store().define(define).await.map_err(|error| failed(&error.to_string()))?;
    let (mut next, mut looking, mut late) = (time::now(), JoinSet::new(), histogram()?);
    while !watcher.is_over() {
        let submitted = towpath.submit(call.clone()).await.map_err(|error| failed(&error.to_string()))?;
        looking.spawn(expiry(towpath.clone(), submitted.call_id, submitted.deadline, watcher.clone()));
        next += EVERY;
        wait(next, &mut watcher).await;
    }
    while let Some(seen) = looking.join_next().await {
        let seen = seen.map_err(|error| failed(&error.to_string()))?.map_err(|cause| failed(&cause))?;
        if let Some(seen) = seen {
            note(&mut late, micros(seen));
        }
    }
    Ok(late)
}

/// How late a call was seen to have expired. `None`: the load ended before its deadline.
async fn expiry(towpath: Towpath, call_id: CallId, deadline: Timestamp, mut watcher: Watcher) -> Result<Option<Duration>, String> {
    let clock = Arc::clone(towpath.clock());
    wait(time::now() + deadline.since(clock.now()), &mut watcher).await;
    loop {
        let over = watcher.is_over();
        let now = clock.now();
        if over {
            return Ok((now > deadline).then(|| now.since(deadline)));
        }
        let view = towpath.store().call(&call_id).await.map_err(|error| error.to_string())?;
        if view.is_none_or(|view| view.call.state.has_ended()) {
            return Ok(Some(clock.now().since(deadline)));
        }
        wait(time::now() + LOOK_EVERY, &mut watcher).await;
    }
}

/// Returns at an instant, or when the load ends.
async fn wait(until: Instant, watcher: &mut Watcher) {
    tokio::select! {
        () = watcher.over() => {}
        () = time::sleep_until(until) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_that_never_came_counts_as_late_as_it_is_at_the_end() {
        let now = time::now() + Duration::from_secs(60);
        let due = [("late", now - Duration::from_secs(30)), ("not-yet", now + Duration::from_secs(1))];
        let due = due.map(|(id, at)| (CallId::new(id).unwrap(), at)).into_iter().collect();
        let state = Mutex::new(Retries { due, late: Histogram::new(3).unwrap() });
        let late = FailsTwice { backoff: Duration::from_secs(2), state }.end(now);
        assert_eq!(late.len(), 1);
        assert!(late.max() >= 30_000_000, "{}", late.max());
    }
}
