//! Claims calls for free permits: one claim at a time for all functions, which waits in the store until there is something.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use towpath_core::store::{ClaimCalls, ClaimFunction};

use super::backoff::Backoff;
use super::desk::{Desk, Served};
use super::executor;
use super::permits::Permits;

/// At most this many calls come with one claim.
const CLAIM_MAX: u32 = 256;
/// A claim that found nothing for so long is made anew. One that waits costs nothing; to make one costs a look at each function.
const CLAIM_WAIT: Duration = Duration::from_secs(3_600);

/// Claims until `stop`.
pub(crate) async fn run(desk: Arc<Desk>, stop: CancellationToken) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = claim_for_ever(&desk) => {}
    }
}

async fn claim_for_ever(desk: &Arc<Desk>) {
    let mut backoff = Backoff::new(desk.clock(), "claim calls");
    // Whose calls are looked for first. It changes with every claim: the first one's backlog must not starve the others.
    let mut turn = 0;
    loop {
        if desk.is_behind() {
            desk.permits().freed().await;
            continue;
        }
        let (want, left_out) = wish(desk, turn);
        if want.functions.is_empty() {
            desk.permits().freed().await;
            continue;
        }
        turn = (turn + 1) % desk.served.len();
        // A claim that is dropped gives back what was claimed for it.
        let claimed = tokio::select! {
            biased;
            claimed = desk.store().claim(want) => claimed,
            () = any_freed(desk, &left_out), if !left_out.is_empty() => continue,
        };
        match claimed {
            Ok(deliveries) => {
                backoff.succeeded();
                executor::start(desk, deliveries);
                // What was claimed goes first: the next claim may wait a moment, their callers do.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                if backoff.failed(error).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// What to claim now, beginning with the function whose turn it is, and the functions that have no permit left.
fn wish(desk: &Desk, turn: usize) -> (ClaimCalls, Vec<Arc<Served>>) {
    let max = desk.permits().free().min(CLAIM_MAX);
    let mut left_out = Vec::new();
    let mut functions = Vec::with_capacity(desk.served.len());
    let (before, from) = desk.served.split_at(turn);
    for served in from.iter().chain(before).filter(|_| max > 0) {
        match Permits::free_of(&served.permits).min(max) {
            0 => left_out.push(Arc::clone(served)),
            max => functions.push(ClaimFunction { function: served.key.clone(), max }),
        }
    }
    let (worker, lease) = (desk.worker_id().clone(), desk.timing.lease);
    (ClaimCalls { worker, functions, max, lease, wait: CLAIM_WAIT, in_process: true }, left_out)
}

/// Ends when one of these functions has a permit again.
async fn any_freed(desk: &Desk, left_out: &[Arc<Served>]) {
    while left_out.iter().all(|served| Permits::free_of(&served.permits) == 0) {
        desk.permits().freed().await;
    }
}
