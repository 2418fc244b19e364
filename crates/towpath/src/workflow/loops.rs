//! The loops of a worker that executes runs.
//!
//! | loop | what it does |
//! |---|---|
//! | [`claim`] | claims ready runs for free slots |
//! | [`renew`] | renews the claims, and hears of facts, pauses and losses |
//! | [`take_over`] | takes the runs of silent owners |
//! | [`hear`] | hears of facts and requests at once |
//! | [`register`] | says which build serves which workflows |

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use towpath_core::lock::Fence;
use towpath_core::run::RunId;
use towpath_core::store::{ClaimRuns, ClaimedRun, RunRenewal, StoreError, TakeOverRuns};

use super::host::Host;
use crate::engine::backoff::Backoff;

/// How long one question for notifications waits.
const HEAR_WAIT: Duration = Duration::from_secs(60);
/// A loop that finds nothing to do does not look again sooner.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// Claims ready runs for free slots, until the worker leaves.
pub(crate) async fn claim(host: Arc<Host>) {
    let mut backoff = Backoff::new(host.clock(), "claim runs");
    loop {
        let max = tokio::select! {
            () = host.leaving.cancelled() => return,
            max = host.free_slots() => max,
        };
        match claim_once(&host, max).await {
            Some(Ok(claimed)) => {
                backoff.succeeded();
                host.start(claimed);
            }
            Some(Err(error)) => {
                if backoff.failed(error).await.is_err() {
                    return;
                }
            }
            None => return,
        }
    }
}

/// One request for runs. `None`: the worker leaves, and the store has nothing in hand for it.
async fn claim_once(host: &Host, max: u32) -> Option<Result<Vec<ClaimedRun>, StoreError>> {
    let want = ClaimRuns {
        worker: host.worker_id.clone(),
        places: Arc::clone(&host.places),
        max,
        idle: host.options.claim_min_idle_time,
        wait: host.claim_wait,
    };
    let mut claim = pin!(host.store.claim_runs(want));
    tokio::select! {
        biased;
        claimed = &mut claim => return Some(claimed),
        () = host.leaving.cancelled() => {}
    }
    // A claim that the store works on has its reply when the store has answered this.
    tokio::select! {
        biased;
        claimed = &mut claim => return Some(claimed),
        _answered = host.store.renew_runs(&host.worker_id, Vec::new()) => {}
    }
    claim.now_or_never()
}

/// Renews the claims. A worker whose store does not answer starts nothing more once others may take its runs.
pub(crate) async fn renew(host: Arc<Host>) {
    let mut renewed_at = host.now();
    loop {
        if host.count() == 0 {
            let changed = host.changed.notified();
            if host.count() == 0 {
                changed.await;
            }
            renewed_at = host.now();
            continue;
        }
        host.clock().sleep_until(host.now() + host.options.heartbeat_interval).await;
        let claims = host.claims();
        match host.store.renew_runs(&host.worker_id, claims.clone()).await {
            Ok(renewals) => {
                renewed_at = host.now();
                for ((run_id, epoch), renewal) in claims.iter().zip(renewals) {
                    host.tell(run_id, *epoch, |told| match renewal {
                        RunRenewal::Held { facts, paused, .. } => {
                            (told.is_paused, told.is_silent) = (paused, false);
                            told.facts = told.facts.max(facts);
                        }
                        RunRenewal::Lost => told.is_lost = true,
                    });
                }
            }
            Err(error) => {
                tracing::warn!(%error, "claims of runs could not be renewed; trying again");
                if host.now().since(renewed_at) >= host.options.claim_min_idle_time * 2 / 3 {
                    host.tell_all(|told| told.is_silent = true);
                }
            }
        }
    }
}

/// Takes the runs of silent owners, until the worker leaves.
pub(crate) async fn take_over(host: Arc<Host>) {
    let mut backoff = Backoff::new(host.clock(), "take over runs");
    let idle = host.options.claim_min_idle_time;
    loop {
        let max = tokio::select! {
            () = host.leaving.cancelled() => return,
            max = host.free_slots() => max,
        };
        let mut next = host.now() + idle / 4;
        let want = TakeOverRuns {
            worker: host.worker_id.clone(),
            places: Arc::clone(&host.places),
            max,
            idle,
            max_deliveries: host.options.max_deliveries,
            executing: host.claims().into_iter().map(|(run_id, _)| run_id).collect(),
        };
        match host.store.take_over_runs(want).await {
            Ok(taken) => {
                backoff.succeeded();
                for run_id in &taken.poisoned {
                    tracing::error!(run = %run_id, "a run is blocked: worker after worker stopped answering while it executed it");
                }
                next = taken.next_due.map_or(next, |due| due.min(next)).max(host.now() + SHORTEST_PAUSE);
                host.start(taken.claimed);
            }
            Err(error) => {
                if backoff.failed(error).await.is_err() {
                    return;
                }
            }
        }
        tokio::select! {
            () = host.leaving.cancelled() => return,
            () = host.clock().sleep_until(next) => {}
        }
    }
}

/// Hears at once that something has come for a run that is executed here. Renewals say the same, later.
pub(crate) async fn hear(host: Arc<Host>) {
    let mut backoff = Backoff::new(host.clock(), "hear of facts");
    loop {
        if host.count() == 0 {
            let changed = host.changed.notified();
            if host.count() == 0 {
                changed.await;
            }
            continue;
        }
        match host.store.runs_notified(&host.worker_id, HEAR_WAIT).await {
            Ok(notified) => {
                backoff.succeeded();
                let mut heard = host.claims();
                heard.retain(|(run_id, _)| notified.contains(run_id));
                if !heard.is_empty() {
                    look(&host, heard).await;
                }
            }
            Err(error) => {
                if backoff.failed(error).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Something has come for these runs: their executors read it, and hear whether the run is paused or lost.
async fn look(host: &Host, heard: Vec<(RunId, Fence)>) {
    for (run_id, epoch) in &heard {
        host.tell(run_id, *epoch, |told| told.looks += 1);
    }
    // Without an answer they hear it with the next renewal.
    let renewals = host.store.renew_runs(&host.worker_id, heard.clone()).await.unwrap_or_default();
    for ((run_id, epoch), renewal) in heard.iter().zip(renewals) {
        host.tell(run_id, *epoch, |told| match renewal {
            RunRenewal::Held { paused, .. } => told.is_paused = paused,
            RunRenewal::Lost => told.is_lost = true,
        });
    }
}

/// Says which build serves which workflows, again and again: a run that does not fit another build returns to this one.
pub(crate) async fn register(host: Arc<Host>) {
    loop {
        host.clock().sleep_until(host.now() + host.options.claim_min_idle_time).await;
        if let Err(error) = host.store.register_build(&host.build, &host.places).await {
            tracing::warn!(%error, "the build could not be registered; trying again");
        }
    }
}
