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
    let mut all = AllFunctions::of(desk);
    // Whose calls are looked for first. It changes when a claim is full: the first one's backlog must not starve the others.
    let mut turn = 0;
    loop {
        if desk.is_behind() {
            desk.permits().freed().await;
            continue;
        }
        let Wish { want, left_out, again_at } = wish(desk, turn, &mut all).await;
        if want.functions.is_empty() {
            tokio::select! {
                () = desk.permits().freed() => {}
                () = at(desk, again_at) => {}
            }
            continue;
        }
        let max = want.max as usize;
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
                if deliveries.len() >= max {
                    turn = (turn + 1) % desk.served.len();
                }
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

/// The list of all functions of a worker that sets no limit of its own to any of them. It is made once for many claims.
struct AllFunctions {
    is_usable: bool,
    made: Option<(usize, Arc<[ClaimFunction]>)>,
}

impl AllFunctions {
    fn of(desk: &Desk) -> Self {
        let is_usable = desk.served.iter().all(|served| served.permits.is_none() && served.turns.is_none());
        Self { is_usable, made: None }
    }

    /// The list, beginning with the function whose turn it is. `None`: a function has a limit, so each claim needs a list of its own.
    fn list(&mut self, desk: &Desk, turn: usize) -> Option<Arc<[ClaimFunction]>> {
        if !self.is_usable {
            return None;
        }
        match &self.made {
            Some((of_turn, list)) if *of_turn == turn => Some(Arc::clone(list)),
            _other_turn => {
                let (before, from) = desk.served.split_at(turn);
                let functions = from.iter().chain(before).map(|served| ClaimFunction { function: served.key.clone(), max: OF_ONE_MAX });
                let list: Arc<[ClaimFunction]> = functions.collect();
                self.made = Some((turn, Arc::clone(&list)));
                Some(list)
            }
        }
    }
}

/// What to claim now, beginning with the function whose turn it is.
async fn wish(desk: &Desk, turn: usize, all: &mut AllFunctions) -> Wish {
    let max = desk.permits().free().min(CLAIM_MAX);
    let (worker, lease) = (desk.worker_id().clone(), desk.timing.lease);
    if max > 0
        && let Some(functions) = all.list(desk, turn)
    {
        let want = ClaimCalls { worker, functions, max, lease, wait: CLAIM_WAIT, takes_any: true };
        return Wish { want, left_out: Vec::new(), again_at: None };
    }
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
    let want = ClaimCalls { worker, functions: functions.into(), max, lease, wait: CLAIM_WAIT, takes_any };
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
