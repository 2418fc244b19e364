//! Fires timers: ends of delays and leases, deadlines, silent workers, lock leases, timers of runs; sends posts of runs. Sleeps until the next
//! one, or until an earlier one exists.

use std::sync::Arc;
use std::time::Duration;

use towpath_core::clock::Clock;
use towpath_core::store::{RunStore, Store, StoreError};
use towpath_core::time::Timestamp;

use super::backoff::Backoff;

/// How many timers of each kind one move fires. More would make callers wait behind it.
const CHUNK: u32 = 256;
/// A store that says something is due and then finds nothing to do is not asked more often than this.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

pub(crate) async fn run(store: Arc<dyn Store>, runs: Option<Arc<dyn RunStore>>, clock: Arc<dyn Clock>) {
    let mut backoff = Backoff::new(&clock, "do what is due");
    loop {
        match fire(store.as_ref(), runs.as_deref()).await {
            Ok(Fire { has_more: true, .. }) => backoff.succeeded(),
            Ok(Fire { has_fired, next_due, .. }) => {
                backoff.succeeded();
                let earliest = if has_fired { clock.now() } else { clock.now() + SHORTEST_PAUSE };
                sleep(store.as_ref(), clock.as_ref(), next_due, earliest).await;
            }
            Err(error) => {
                if backoff.failed(error).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// What one look has come to.
struct Fire {
    has_fired: bool,
    /// A limit may have left something that is due.
    has_more: bool,
    next_due: Option<Timestamp>,
}

/// Fires what is due of all kinds, also when one of them fails. Posts go before timers of runs, whose reply says when the next of both is due.
async fn fire(store: &dyn Store, runs: Option<&dyn RunStore>) -> Result<Fire, StoreError> {
    let fired = store.fire_due(CHUNK).await;
    let of_runs = match runs {
        Some(runs) => Some((runs.send_posts(CHUNK).await, runs.fire_runs(CHUNK).await)),
        None => None,
    };
    let fired = fired?;
    let mut counts = vec![fired.total()];
    let mut next_due = fired.next_due;
    if let Some((sent, fired)) = of_runs {
        counts.push(sent?);
        let fired = fired?;
        counts.push(fired.fired);
        next_due = next_due.into_iter().chain(fired.next_due).min();
    }
    let has_more = counts.iter().any(|count| *count >= u64::from(CHUNK));
    Ok(Fire { has_fired: counts.iter().any(|count| *count > 0), has_more, next_due })
}

/// Sleeps until `next`, or until an earlier timer that comes meanwhile, but at least until `earliest`.
async fn sleep(store: &dyn Store, clock: &dyn Clock, mut next: Option<Timestamp>, earliest: Timestamp) {
    loop {
        let wake_at = next.unwrap_or(Timestamp::MAX).max(earliest);
        tokio::select! {
            biased;
            () = clock.sleep_until(wake_at) => return,
            at = store.due_before(next) => next = Some(at),
        }
    }
}
