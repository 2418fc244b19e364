//! Claims calls for free permits: one claim at a time for all functions, which waits in the store until there is something.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use towpath_core::store::{ClaimCalls, ClaimFunction};
use towpath_core::time::Timestamp;

use super::backoff::Backoff;
use super::desk::{Desk, Served};
use super::permits::Permits;
use super::turns;
use crate::limits::Room;

/// At most this many calls of one function come with one claim.
const OF_ONE_MAX: u32 = 256;
/// At most this many calls come with one claim. Of many functions it is a few of each, and each costs less with others of its function.
const CLAIM_MAX: u32 = 4 * OF_ONE_MAX;
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
        let Wish { want, left_out, again_at } = wish(desk, turn).await;
        if want.functions.is_empty() {
            tokio::select! {
                () = desk.permits().freed() => {}
                () = at(desk, again_at) => {}
            }
            continue;
        }
        turn = (turn + 1) % desk.served.len();
        // A claim that is dropped gives back what was claimed for it.
        let claimed = tokio::select! {
            biased;
            claimed = desk.store().claim(want) => claimed,
            () = any_freed(desk, &left_out), if !left_out.is_empty() => continue,
            () = at(desk, again_at), if again_at.is_some() => continue,
        };
        match claimed {
            Ok(deliveries) => {
                backoff.succeeded();
                turns::start(desk, deliveries).await;
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

/// What to claim now.
struct Wish {
    want: ClaimCalls,
    /// Functions that have no permit left.
    left_out: Vec<Arc<Served>>,
    /// When a function that is left out because it is not its turn may be claimed for again.
    again_at: Option<Timestamp>,
}

/// What to claim now, beginning with the function whose turn it is.
async fn wish(desk: &Desk, turn: usize) -> Wish {
    let max = desk.permits().free().min(CLAIM_MAX);
    let (mut left_out, mut again_at) = (Vec::new(), None);
    let mut functions = Vec::with_capacity(desk.served.len());
    let most = max.min(OF_ONE_MAX);
    let mut takes_any = true;
    let (before, from) = desk.served.split_at(turn);
    for served in from.iter().chain(before).filter(|_| max > 0) {
        let free = Permits::free_of(&served.permits).min(most);
        takes_any &= free == most && served.turns.is_none();
        if free == 0 {
            left_out.push(Arc::clone(served));
            continue;
        }
        let room = match &served.turns {
            Some(turns) => turns.room().await,
            None => Room::Now(free),
        };
        match room {
            Room::Now(room) => functions.push(ClaimFunction { function: served.key.clone(), max: free.min(room) }),
            Room::NotBefore(at) => again_at = Some(again_at.map_or(at, |known: Timestamp| known.min(at))),
        }
    }
    let (worker, lease) = (desk.worker_id().clone(), desk.timing.lease);
    let want = ClaimCalls { worker, functions, max, lease, wait: CLAIM_WAIT, takes_any };
    Wish { want, left_out, again_at }
}

/// Ends then, if there is such an instant.
async fn at(desk: &Desk, instant: Option<Timestamp>) {
    match instant {
        Some(instant) => desk.clock().sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Ends when one of these functions has a permit again.
async fn any_freed(desk: &Desk, left_out: &[Arc<Served>]) {
    while left_out.iter().all(|served| Permits::free_of(&served.permits) == 0) {
        desk.permits().freed().await;
    }
}
